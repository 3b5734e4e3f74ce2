//! The client's login: from the first byte to the first `ReadyForQuery` ("Start-up").

use std::sync::Arc;

use ciphertoll_vocabulary::Phase;

use crate::{
    postgres::{
        client::{
            authenticator::Authenticator,
            login::{ChannelBinding, PostgresAuthMethod, PostgresLogin, PostgresTlsMode},
        },
        codec::{
            authentication::Authentication,
            cancel_key::CancelKey,
            kind,
            message::{self, MAX_LOGIN_PAYLOAD_BYTES, Message},
            parameters::{Parameters, parse_parameter_status},
            reader::Reader,
            report::Report,
            startup::{PROTOCOL_3_0, encode_cancel_request, encode_startup, encode_tls_request},
            transaction::TransactionStatus,
        },
        error::Error,
        relay::internal_command::{InternalCommand, PipelinedCommit},
    },
    printable::printable,
    response::Response,
    scram::{KeyCache, KeyDerivation},
    step::Step,
};

/// Longer than any server's version; the rest is cut.
const MAX_VERSION_CHARACTERS: usize = 128;
/// The client's name in server views such as `pg_stat_activity`.
const APPLICATION_NAME: &str = "ciphertoll";
/// The replies to an `SSLRequest`.
const TLS_ACCEPTED: u8 = b'S';
const TLS_REFUSED: u8 = b'N';

/// What is known of the server once it awaits commands.
#[derive(Debug, Clone)]
pub struct PostgresServerInfo {
    /// `server_version`; empty if the server did not report it.
    pub version: String,
    /// The server process of this connection; 0 if the server did not report it.
    pub process_id: u32,
    /// Authorizes cancel requests for this connection.
    pub cancel_key: CancelKey,
    pub auth: PostgresAuthMethod,
    /// All reported settings, for a [`PostgresConnect::pooled`] or [`PostgresConnect::dedicated`]; else empty.
    pub parameters: Parameters,
    /// As a [`PostgresConnect::pooled`] has found out.
    pub commit: PipelinedCommit,
}

pub struct PostgresConnect {
    login: Arc<PostgresLogin>,
    purpose: ConnectPurpose,
    authenticator: Authenticator,
    state: State,
    server: Option<PostgresServerInfo>,
    probe: InternalCommand,
}

/// What a connection is for.
enum ConnectPurpose {
    /// Commands of the caller.
    Use,
    /// Commands of other clients, which bring their own settings.
    Pool,
    /// A single client, which has chosen the startup parameters.
    Dedicated,
    /// A request to cancel a command on another connection.
    Cancel { process_id: u32, key: CancelKey },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    AwaitTlsAnswer,
    StartTls,
    SendStartup,
    AwaitAuth,
    AwaitReady,
    AwaitProbe,
    Ready,
    Failed,
}

impl PostgresConnect {
    pub fn new(login: Arc<PostgresLogin>) -> Self {
        Self::of(login, ConnectPurpose::Use, None)
    }

    /// The login of a connection for a pool. It sets nothing, not even an application name, so that a reset
    /// restores the server's defaults, it records the reported settings, and it finds out when the server commits a
    /// pipelined reset. SCRAM keys are cached in `keys`; the caller derives missing ones, see
    /// [`Self::take_key_derivation`].
    pub fn pooled(login: Arc<PostgresLogin>, keys: Arc<KeyCache>) -> Self {
        Self::of(login, ConnectPurpose::Pool, Some(keys))
    }

    /// The login of a connection that one client uses alone, in the mode that the login's startup parameters ask for, such as
    /// replication. It sets nothing else, sends no commands, and records the reported settings. Keys are as in
    /// [`Self::pooled`].
    pub fn dedicated(login: Arc<PostgresLogin>, keys: Arc<KeyCache>) -> Self {
        Self::of(login, ConnectPurpose::Dedicated, Some(keys))
    }

    /// A cancel request for another connection in place of a login, encrypted as the login says. It is done
    /// once the request is in `out`; the server closes the connection after handling it.
    pub fn cancelling(login: Arc<PostgresLogin>, process_id: u32, key: CancelKey) -> Self {
        Self::of(login, ConnectPurpose::Cancel { process_id, key }, None)
    }

    fn of(login: Arc<PostgresLogin>, purpose: ConnectPurpose, keys: Option<Arc<KeyCache>>) -> Self {
        let authenticator = Authenticator::new(Arc::clone(&login), keys);
        Self {
            login,
            purpose,
            authenticator,
            state: State::Begin,
            server: None,
            probe: InternalCommand::nothing(),
        }
    }

    /// Takes whole messages from the front of `input` and appends output to `out`. The client speaks first:
    /// the first step takes no input.
    ///
    /// Input before TLS starts is an error: it would be plaintext that passes for encrypted. An error is
    /// final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        let step = match self.state {
            State::Begin => self.begin(input, out),
            State::AwaitTlsAnswer => self.await_tls_answer(input),
            State::StartTls => self.start_tls(input),
            State::SendStartup => self.send_startup(input, out),
            State::AwaitAuth => self.await_auth(input, out),
            State::AwaitReady => self.await_ready(input, out),
            State::AwaitProbe => self.await_probe(input),
            State::Ready => Ok(Step::Done),
            State::Failed => Err(Error::NotReset),
        };
        if step.is_err() {
            self.state = State::Failed;
        }
        step
    }

    /// What is known of the server, once it awaits commands.
    pub fn server(&self) -> Option<&PostgresServerInfo> {
        if self.state == State::Ready { self.server.as_ref() } else { None }
    }

    /// Sets the hash of the server's certificate (`tls-server-end-point`, RFC 5929, section 4.1). Call it
    /// after the TLS handshake and before the next step, if channel binding is required, or preferred and
    /// possible.
    pub fn bind_channel(&mut self, certificate_hash: &[u8]) {
        self.authenticator.bind_channel(certificate_hash);
    }

    /// Work to run on any thread before a [`Self::pooled`] login can continue. Until then each step returns
    /// [`Step::NeedInput`] and takes no input. Afterwards step the login again.
    pub fn take_key_derivation(&mut self) -> Option<KeyDerivation> {
        self.authenticator.take_derivation()
    }

    /// Whether the login waits for derived keys. It takes no input meanwhile.
    pub fn awaits_keys(&self) -> bool {
        self.authenticator.awaits_keys()
    }

    fn begin(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        check(&self.login)?;
        match self.login.encryption {
            PostgresTlsMode::Plain => self.send_startup(input, out),
            PostgresTlsMode::Tls => {
                encode_tls_request(out);
                self.state = State::AwaitTlsAnswer;
                self.await_tls_answer(input)
            }
            PostgresTlsMode::EagerTls => {
                encode_tls_request(out);
                self.state = State::AwaitTlsAnswer;
                Ok(Step::OfferTls)
            }
            PostgresTlsMode::DirectTls => self.start_tls(input),
        }
    }

    fn await_tls_answer(&mut self, input: &mut &[u8]) -> Result<Step, Error> {
        let Some((&answer, rest)) = input.split_first() else {
            return Ok(Step::NeedInput);
        };
        match answer {
            TLS_ACCEPTED => {
                self.refuse_plaintext(rest)?;
                *input = rest;
                self.state = State::StartTls;
                Ok(Step::Phase(Phase::TlsRequest))
            }
            TLS_REFUSED => Err(Error::TlsNotOffered),
            kind::ERROR_RESPONSE => Err(Error::ErrorBeforeTls),
            _ => Err(Error::protocol("reply to the TLS request", "it is neither S nor N")),
        }
    }

    fn start_tls(&mut self, input: &[u8]) -> Result<Step, Error> {
        self.refuse_plaintext(input)?;
        self.state = State::SendStartup;
        Ok(Step::StartTls)
    }

    /// After an early TLS request these bytes are TLS, and are never interpreted otherwise.
    fn refuse_plaintext(&self, input: &[u8]) -> Result<(), Error> {
        match self.login.encryption {
            PostgresTlsMode::EagerTls => Ok(()),
            PostgresTlsMode::Plain | PostgresTlsMode::Tls | PostgresTlsMode::DirectTls => {
                refuse_early_input(input)
            }
        }
    }

    fn send_startup(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // The server must not send anything here; bytes would be plaintext from before TLS.
        if self.login.encryption != PostgresTlsMode::Plain {
            refuse_early_input(input)?;
        }
        let user = ("user", self.login.user.as_str());
        let database = self.login.database.as_ref().map(|database| ("database", database.as_str()));
        match (&self.purpose, database) {
            (ConnectPurpose::Use, database) => {
                let own = [("client_encoding", "UTF8"), ("application_name", APPLICATION_NAME)];
                let given = || self.login.startup.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let own = own.into_iter().filter(|(name, _)| given().all(|(known, _)| known != *name));
                let all = [user].into_iter().chain(database).chain(own).chain(given());
                encode_startup(out, &all.collect::<Vec<_>>())?;
            }
            (ConnectPurpose::Dedicated, database) => {
                let is_own = |(name, _): &(String, String)| matches!(name.as_str(), "user" | "database");
                if self.login.startup.iter().any(is_own) {
                    let reason = "a startup parameter would replace the user or the database";
                    return Err(Error::Protocol { message: "startup message", reason });
                }
                let given = self.login.startup.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                encode_startup(out, &[user].into_iter().chain(database).chain(given).collect::<Vec<_>>())?;
            }
            (ConnectPurpose::Pool, Some(database)) => encode_startup(out, &[user, database])?,
            (ConnectPurpose::Pool, None) => encode_startup(out, &[user])?,
            (ConnectPurpose::Cancel { process_id, key }, _) => {
                encode_cancel_request(out, *process_id, key);
                self.server = Some(unknown_server(PostgresAuthMethod::None));
                self.state = State::Ready;
                return Ok(Step::Done);
            }
        }
        self.state = State::AwaitAuth;
        self.await_auth(input, out)
    }

    fn await_auth(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        while self.authenticator.send_pending(out)?
            && let Some(Message { kind, payload }) = message::take(input, MAX_LOGIN_PAYLOAD_BYTES)?
        {
            match kind {
                kind::AUTHENTICATION => {
                    let request = Authentication::parse(payload)?;
                    if let Some(auth) = self.authenticator.answer(&request, out)? {
                        self.server = Some(unknown_server(auth));
                        self.state = State::AwaitReady;
                        return Ok(Step::Phase(Phase::Auth));
                    }
                }
                kind::NEGOTIATE_PROTOCOL_VERSION => check_version(payload)?,
                kind::NOTICE_RESPONSE => {}
                kind::ERROR_RESPONSE => return Err(Report::parse(payload)?.into()),
                _ => {
                    return Err(Error::protocol("reply to the login", "it is unexpected here"));
                }
            }
        }
        Ok(Step::NeedInput)
    }

    fn await_ready(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        while let Some(Message { kind, payload }) = message::take(input, MAX_LOGIN_PAYLOAD_BYTES)? {
            match (kind, &mut self.server) {
                (kind::PARAMETER_STATUS, Some(server)) => take_parameter(server, &self.purpose, payload)?,
                (kind::BACKEND_KEY_DATA, Some(server)) => take_key(server, payload)?,
                (kind::READY_FOR_QUERY, _) => {
                    TransactionStatus::parse(payload)?;
                    if let ConnectPurpose::Pool = self.purpose {
                        self.probe = InternalCommand::probe_commit(out)?;
                        self.state = State::AwaitProbe;
                        return self.await_probe(input);
                    }
                    self.state = State::Ready;
                    return Ok(Step::Phase(Phase::Ready));
                }
                (kind::NOTICE_RESPONSE, _) => {}
                (kind::ERROR_RESPONSE, _) => return Err(Report::parse(payload)?.into()),
                _ => {
                    return Err(Error::protocol("start of the session", "it is unexpected here"));
                }
            }
        }
        Ok(Step::NeedInput)
    }

    fn await_probe(&mut self, input: &mut &[u8]) -> Result<Step, Error> {
        let Some(server) = &mut self.server else { return Err(Error::NotReset) };
        match self.probe.step(input, &mut server.parameters)? {
            Response::NeedInput => Ok(Step::NeedInput),
            Response::Done(TransactionStatus::Idle) => {
                server.commit = self.probe.commit();
                self.state = State::Ready;
                Ok(Step::Phase(Phase::Ready))
            }
            Response::Done(_) => Err(Error::protocol("reply to the proxy", "a transaction stays open")),
        }
    }
}

fn check(login: &PostgresLogin) -> Result<(), Error> {
    if login.user.contains('\0') {
        return Err(Error::InvalidLogin { field: "user" });
    }
    if login.database.as_ref().is_some_and(|database| database.contains('\0')) {
        return Err(Error::InvalidLogin { field: "database" });
    }
    match (login.encryption, login.channel_binding) {
        (PostgresTlsMode::Plain, ChannelBinding::Required) => Err(Error::NotBound),
        _ => Ok(()),
    }
}

fn unknown_server(auth: PostgresAuthMethod) -> PostgresServerInfo {
    PostgresServerInfo {
        version: String::new(),
        process_id: 0,
        cancel_key: CancelKey::none(),
        auth,
        parameters: Parameters::default(),
        commit: PipelinedCommit::default(),
    }
}

/// `NegotiateProtocolVersion`. The login requests the oldest version and no options, so nothing is
/// negotiable.
fn check_version(payload: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(payload, "NegotiateProtocolVersion");
    // The documentation long called this the minor version; servers send both halves.
    let version = reader.u32()?;
    if version != 0 && version != PROTOCOL_3_0 {
        return Err(reader.error("a version that was not requested"));
    }
    if reader.u32()? != 0 {
        return Err(reader.error("options that were not requested"));
    }
    reader.end()
}

fn take_parameter(
    server: &mut PostgresServerInfo,
    purpose: &ConnectPurpose,
    payload: &[u8],
) -> Result<(), Error> {
    let (name, value) = parse_parameter_status(payload)?;
    if name == b"server_version" {
        server.version = printable(value, MAX_VERSION_CHARACTERS);
    }
    match purpose {
        ConnectPurpose::Pool | ConnectPurpose::Dedicated => server.parameters.set(name, value),
        ConnectPurpose::Use | ConnectPurpose::Cancel { .. } => Ok(()),
    }
}

fn take_key(server: &mut PostgresServerInfo, payload: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(payload, "BackendKeyData");
    server.process_id = reader.u32()?;
    let key = CancelKey::new(reader.rest().to_vec());
    server.cancel_key = key.ok_or_else(|| reader.error("a key that is too long"))?;
    Ok(())
}

/// Rejects plaintext that would cross into the encrypted part (CVE-2021-23222).
fn refuse_early_input(input: &[u8]) -> Result<(), Error> {
    if input.is_empty() {
        return Ok(());
    }
    Err(Error::protocol("reply to the TLS request", "plaintext follows it where TLS must start"))
}
