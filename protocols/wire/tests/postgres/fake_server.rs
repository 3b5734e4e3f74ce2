//! A server for logins, built from the crate's server side.

use ciphertoll_wire::Step;
use ciphertoll_wire::postgres::relay::PipelinedCommit;
use ciphertoll_wire::postgres::server::{
    self, Authentication, FrontendMessage, Report, Startup, StoredPassword, TlsAnswer,
};
use ciphertoll_wire::postgres::{Error, PostgresConnect, Severity, TransactionStatus};
use ciphertoll_wire::scram::{Binding, Mechanism, ServerFirst, Verifier};

pub(crate) const USER: &str = "toll";
pub(crate) const PASSWORD: &str = "correct horse";
pub(crate) const END_POINT: &[u8] = b"a hash of the server's certificate";
pub(crate) const CANCEL_KEY: [u8; 4] = [1, 2, 3, 4];
const LIMIT_BYTES: usize = 1 << 16;
const SALT: [u8; 4] = *b"salt";

/// The authentication method of the server.
#[derive(Clone)]
pub(crate) enum Auth {
    Trust,
    Cleartext,
    Md5,
    Scram(Verifier),
}

/// SCRAM for [`PASSWORD`], with few iterations.
/// Few, so that tests are fast.
pub(crate) const ITERATIONS: u32 = 16;

pub(crate) fn scram() -> Auth {
    Auth::Scram(Verifier::of(PASSWORD.as_bytes(), ITERATIONS).unwrap())
}

pub(crate) struct FakeServer {
    auth: Auth,
    pub(crate) tls: TlsAnswer,
    /// The channel binding once TLS has started.
    pub(crate) end_point: Option<&'static [u8]>,
    /// All parameters of the startup message, as text.
    pub(crate) startup: Vec<(String, String)>,
    /// When it commits a `DISCARD ALL` without a `Sync`.
    pub(crate) commit: PipelinedCommit,
    session: Session,
    state: State,
}

/// The part of a session that the probe of a pooled login looks at.
#[derive(Default)]
struct Session {
    application_name: String,
    /// What a `ROLLBACK` restores.
    committed_name: String,
    /// The text of the unnamed statement.
    statement: String,
}

enum State {
    AwaitStartup,
    AwaitPassword,
    AwaitMechanism,
    AwaitProof(ServerFirst),
    Ended,
}

impl FakeServer {
    pub(crate) fn new(auth: Auth) -> Self {
        Self {
            auth,
            tls: TlsAnswer::Yes,
            end_point: None,
            startup: Vec::new(),
            commit: PipelinedCommit::AtOnce,
            session: Session::default(),
            state: State::AwaitStartup,
        }
    }

    /// Runs until it needs input. Returns whether TLS must start.
    pub(crate) fn run(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> bool {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::AwaitStartup => match server::read_startup(input).unwrap() {
                    None => {
                        self.state = State::AwaitStartup;
                        return false;
                    }
                    Some(Startup::TlsRequest) => {
                        assert!(input.is_empty());
                        server::write_tls_answer(out, self.tls);
                        self.state = State::AwaitStartup;
                        return self.tls == TlsAnswer::Yes;
                    }
                    Some(Startup::Login(login)) => {
                        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                        self.startup =
                            login.parameters().map(|(name, value)| (text(name), text(value))).collect();
                        assert_eq!(login.version, 3 << 16);
                        self.ask(out);
                    }
                    Some(other) => panic!("{other:?}"),
                },
                State::Ended => match server::read_frontend(input, LIMIT_BYTES).unwrap() {
                    None => return false,
                    Some(command) => self.session.execute(&command, self.commit, out),
                },
                state => {
                    let Some(message) = server::read_frontend(input, LIMIT_BYTES).unwrap() else {
                        self.state = state;
                        return false;
                    };
                    let FrontendMessage::Auth(response) = message else { panic!("{message:?}") };
                    self.judge(state, response, out);
                }
            }
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        let (request, state) = match (&self.auth, self.end_point) {
            (Auth::Trust, _) => return welcome(out),
            (Auth::Cleartext, _) => (Authentication::Cleartext, State::AwaitPassword),
            (Auth::Md5, _) => (Authentication::Md5 { salt: SALT }, State::AwaitPassword),
            (Auth::Scram(_), end_point) => {
                let all = [Mechanism::Sha256Plus, Mechanism::Sha256].map(|name| name.name().as_bytes());
                let mechanisms = if end_point.is_some() { all.to_vec() } else { all[1..].to_vec() };
                (Authentication::Sasl { mechanisms }, State::AwaitMechanism)
            }
        };
        server::write_authentication(out, &request).unwrap();
        self.state = state;
    }

    fn judge(&mut self, state: State, response: server::AuthResponse<'_>, out: &mut Vec<u8>) {
        match (state, &self.auth) {
            (State::AwaitPassword, Auth::Cleartext) => {
                verdict(response.password().unwrap() == PASSWORD.as_bytes(), out);
            }
            (State::AwaitPassword, Auth::Md5) => {
                let stored = StoredPassword::of(PASSWORD.as_bytes(), USER.as_bytes()).unwrap();
                verdict(stored.accepts(SALT, response.password().unwrap()).unwrap(), out);
            }
            (State::AwaitMechanism, Auth::Scram(verifier)) => {
                let (mechanism, first) = response.sasl_initial().unwrap();
                let mechanism = Mechanism::from_name(mechanism).unwrap();
                let channel = self.end_point.map_or(Binding::None, Binding::ServerEndPoint);
                match ServerFirst::answer(verifier, mechanism, channel, first.unwrap()) {
                    Ok(first) => {
                        let challenge = Authentication::SaslContinue(first.message());
                        server::write_authentication(out, &challenge).unwrap();
                        self.state = State::AwaitProof(first);
                    }
                    Err(_) => verdict(false, out),
                }
            }
            (State::AwaitProof(first), _) => match first.judge(response.sasl()) {
                Ok(last) => {
                    server::write_authentication(out, &Authentication::SaslFinal(&last)).unwrap();
                    verdict(true, out);
                }
                Err(_) => verdict(false, out),
            },
            _ => panic!("nothing was asked for"),
        }
    }
}

impl Session {
    fn execute(&mut self, command: &FrontendMessage<'_>, commit: PipelinedCommit, out: &mut Vec<u8>) {
        match command {
            FrontendMessage::Query(sql) => {
                for statement in String::from_utf8_lossy(sql).split("; ") {
                    self.run(statement, commit, out);
                }
                self.committed_name.clone_from(&self.application_name);
                server::write_ready_for_query(out, TransactionStatus::Idle);
            }
            FrontendMessage::Parse { sql, .. } => self.statement = String::from_utf8_lossy(sql).into_owned(),
            FrontendMessage::Bind(_) => {}
            FrontendMessage::Execute { .. } => self.run(&self.statement.clone(), commit, out),
            FrontendMessage::Sync => server::write_ready_for_query(out, TransactionStatus::Idle),
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, statement: &str, commit: PipelinedCommit, out: &mut Vec<u8>) {
        match statement {
            "SHOW application_name" => {
                server::write_data_row(out, &[Some(self.application_name.as_bytes())]).unwrap();
            }
            "DISCARD ALL" => {
                self.application_name.clear();
                if commit == PipelinedCommit::AtOnce {
                    self.committed_name.clear();
                }
            }
            "BEGIN" => {}
            "ROLLBACK" => self.application_name.clone_from(&self.committed_name),
            "RESET application_name" => self.application_name.clear(),
            other => {
                let value = other.strip_prefix("SET application_name = '").expect(other);
                value.trim_end_matches('\'').clone_into(&mut self.application_name);
            }
        }
        server::write_command_complete(out, b"SET").unwrap();
        server::write_parameter_status(out, b"application_name", self.application_name.as_bytes()).unwrap();
    }
}

fn verdict(accepted: bool, out: &mut Vec<u8>) {
    if accepted {
        return welcome(out);
    }
    let message = b"password authentication failed for user \"toll\"";
    let report = Report { severity: Severity::Fatal, sqlstate: *b"28P01", message };
    server::write_error(out, &report).unwrap();
}

/// A server's messages from `AuthenticationOk` to the first `ReadyForQuery`.
pub(crate) fn welcome(out: &mut Vec<u8>) {
    server::write_authentication(out, &Authentication::Ok).unwrap();
    let notice = Report { severity: Severity::Warning, sqlstate: *b"01000", message: b"collation" };
    server::write_notice(out, &notice).unwrap();
    for (name, value) in [("server_encoding", "UTF8"), ("server_version", "17.2"), ("TimeZone", "UTC")] {
        server::write_parameter_status(out, name.as_bytes(), value.as_bytes()).unwrap();
    }
    server::write_backend_key_data(out, 42, &CANCEL_KEY).unwrap();
    server::write_ready_for_query(out, TransactionStatus::Idle);
}

/// The traffic of a login.
#[derive(Debug, PartialEq)]
pub(crate) struct Passed {
    /// The client's steps other than `NeedInput`.
    pub(crate) steps: Vec<Step>,
    /// The client's bytes before and after TLS started.
    pub(crate) plain: Vec<u8>,
    pub(crate) encrypted: Vec<u8>,
}

/// Connects client and server until the client has ended, with portions of `size` bytes.
pub(crate) fn join(
    client: &mut PostgresConnect,
    server: &mut FakeServer,
    size: usize,
) -> (Result<(), Error>, Passed) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut received = Vec::new();
    let mut passed = Passed { steps: Vec::new(), plain: Vec::new(), encrypted: Vec::new() };
    let mut server_wants_tls = false;
    loop {
        let mut input = received.as_slice();
        let step = client.step(&mut input, &mut to_server);
        received = input.to_vec();
        let sent =
            if passed.steps.contains(&Step::StartTls) { &mut passed.encrypted } else { &mut passed.plain };
        sent.extend_from_slice(&to_server);
        let mut input = to_server.as_slice();
        server_wants_tls |= server.run(&mut input, &mut to_client);
        assert!(input.is_empty(), "the server understands all that the client sends");
        to_server.clear();
        if let Some(derivation) = client.take_key_derivation() {
            derivation.run();
            continue;
        }
        match step {
            Err(error) => return (Err(error), passed),
            Ok(Step::NeedInput) => {
                assert!(!to_client.is_empty(), "both wait");
                received.extend(to_client.drain(..size.min(to_client.len())));
            }
            Ok(Step::StartTls) => {
                let direct = passed.plain.is_empty();
                assert!(direct || server_wants_tls, "both sides start TLS at the same byte");
                client.bind_channel(END_POINT);
                passed.steps.push(Step::StartTls);
            }
            Ok(step @ (Step::OfferTls | Step::Phase(_))) => passed.steps.push(step),
            Ok(Step::Done) => {
                assert!(received.is_empty() && to_client.is_empty());
                passed.steps.push(Step::Done);
                return (Ok(()), passed);
            }
        }
    }
}
