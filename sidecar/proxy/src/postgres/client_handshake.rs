//! A PostgreSQL client's handshake: from its first byte until it is authenticated.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ciphertoll_wire::postgres::message::MAX_LOGIN_PAYLOAD_BYTES;
use ciphertoll_wire::postgres::server::{
    AuthResponse, Authentication, FrontendMessage, Startup, TlsAnswer, read_frontend, read_startup,
    write_authentication, write_tls_answer,
};
use ciphertoll_wire::scram::{self, Binding, Mechanism, ServerFirst, Verifier};
use ciphertoll_wire::{Secret, postgres};
use foldhash::HashMap;

use crate::client_auth::{ClientAuth, TlsState};
use crate::console_rules::{CONSOLE, LoginProof};
use crate::postgres::auth_query::{CredentialLookup, Found};
use crate::postgres::found_users::ProvenLogin;
use crate::postgres::recent_logins::RecentLogins;
use crate::postgres::startup_request::{StartupParameters, StartupRequest};
use crate::protocol::{HandshakeResult, HandshakeStep, ProtocolHandshake, next_step};
use crate::refusal::Refusal;
use crate::settings::ReplicationAccess;

const SALT_BYTES: usize = 16;
/// The type of all responses to a request for authentication.
const PASSWORD_MESSAGE: u8 = b'p';
/// One for TLS and one for GSSAPI encryption.
const MAX_REQUESTS: u8 = 2;

/// Verifies that clients know the password of their user.
pub struct CredentialStore {
    verifiers: HashMap<String, Verifier>,
    /// For unknown users: it has the same salt and costs the same, but no password matches.
    decoy: Verifier,
    /// The request for authentication.
    sasl_request: Vec<u8>,
}

type ServerNonce = [u8; ServerFirst::NONCE_BYTES];

pub struct ClientHandshake {
    auth: ClientAuth,
    credentials: Option<Arc<CredentialStore>>,
    tls: TlsState,
    recent_logins: Option<RecentLogins>,
    /// For users whom the settings do not name; `None` if they are refused.
    lookup: Option<Arc<CredentialLookup>>,
    replication: ReplicationAccess,
    /// Drawn together with those of other clients, if it is known to be needed.
    nonce: Option<ServerNonce>,
    console: ConsoleTrust,
    state: HandshakeState,
}

/// Whether the client may log in to the console as the user `pgbouncer` without a password.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConsoleTrust {
    Untrusted,
    Trusted,
}

enum HandshakeState {
    Startup { requests: u8 },
    AwaitSecret { request: Box<StartupRequest>, lookup: Arc<CredentialLookup>, answer: Arc<OnceLock<Found>> },
    AwaitScram { request: Box<StartupRequest>, secret: SecretSource },
    AwaitProof { request: Box<StartupRequest>, first: ServerFirst, found: Option<FoundSecret> },
    Over,
}

/// Where the secret of a client's user comes from.
enum SecretSource {
    Settings(Arc<CredentialStore>),
    Server(FoundSecret),
}

/// A user's secret on the server.
struct FoundSecret {
    verifier: Verifier,
    since: Instant,
    lookup: Arc<CredentialLookup>,
}

impl SecretSource {
    fn verifier_of(&self, user: &str) -> &Verifier {
        match self {
            Self::Settings(credentials) => credentials.verifier_of(user),
            Self::Server(found) => &found.verifier,
        }
    }
}

impl CredentialStore {
    /// The number that drivers expect over TCP, and the least that some of them accept.
    pub const DEFAULT_ITERATIONS: u32 = 4096;

    /// Accepts the passwords of these users, hashed with so many iterations.
    pub fn for_users<'a>(
        users: impl IntoIterator<Item = (&'a str, &'a Secret)>,
        iterations: u32,
    ) -> Result<Self, scram::Error> {
        let random = |bytes: &mut [u8]| {
            openssl::rand::rand_bytes(bytes).map_err(|_| scram::Error::Crypto { operation: "random bytes" })
        };
        // One salt for all users, known or not, so that it does not reveal which users exist.
        let (mut salt, mut decoy) = ([0; SALT_BYTES], [0; SALT_BYTES]);
        random(&mut salt)?;
        random(&mut decoy)?;
        let verifier = |password: &[u8]| Verifier::with_salt(password, iterations, &salt);
        let verifiers = users
            .into_iter()
            .map(|(user, password)| Ok((user.to_owned(), verifier(password.expose())?)))
            .collect::<Result<_, scram::Error>>()?;
        Ok(Self { verifiers, decoy: verifier(&decoy)?, sasl_request: sasl_request() })
    }

    fn verifier_of(&self, user: &str) -> &Verifier {
        self.verifiers.get(user).unwrap_or(&self.decoy)
    }
}

type Outcome = HandshakeResult<Box<StartupRequest>>;

impl ClientHandshake {
    pub fn new(auth: ClientAuth, credentials: Option<Arc<CredentialStore>>) -> Self {
        let state = HandshakeState::Startup { requests: 0 };
        let (tls, replication) = (auth.initial_tls(), ReplicationAccess::Refused);
        let console = ConsoleTrust::Untrusted;
        let lookup = None;
        Self { auth, credentials, tls, recent_logins: None, lookup, replication, nonce: None, console, state }
    }

    #[must_use]
    pub(super) fn with_lookup(self, lookup: Option<Arc<CredentialLookup>>) -> Self {
        Self { lookup, ..self }
    }

    #[must_use]
    pub(super) fn with_replication(self, replication: ReplicationAccess) -> Self {
        Self { replication, ..self }
    }

    /// Saves parsing a message that clients have sent before, and drawing a nonce.
    #[must_use]
    pub(super) fn with_caches(self, recent_logins: RecentLogins, nonce: Option<ServerNonce>) -> Self {
        Self { recent_logins: Some(recent_logins), nonce, ..self }
    }

    fn wait(&mut self, state: HandshakeState) -> HandshakeStep<Box<StartupRequest>> {
        self.state = state;
        HandshakeStep::NeedInput
    }

    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Outcome {
        match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::Startup { requests } => self.startup(requests, input, out),
            HandshakeState::AwaitSecret { request, lookup, answer } => {
                // The input is not read at this point, so its size must be limited.
                if input.len() > MAX_LOGIN_PAYLOAD_BYTES {
                    return Err(out_of_order());
                }
                self.secret(request, lookup, answer, out)
            }
            HandshakeState::AwaitScram { request, secret } => self.scram(request, secret, input, out),
            HandshakeState::AwaitProof { request, first, found } => {
                self.proof(request, first, found, input, out)
            }
            HandshakeState::Over => Ok(Some(HandshakeStep::HangUp("the handshake is over"))),
        }
    }

    fn startup(&mut self, requests: u8, input: &mut &[u8], out: &mut Vec<u8>) -> Outcome {
        if let Some(known) = self.recent_logins.as_ref().and_then(|logins| logins.parameters(input)) {
            *input = &input[known.message.len()..];
            return self.login(|| Ok(known), out);
        }
        let message = match read_startup(input) {
            // Like servers: this may not be a client of this protocol.
            Err(postgres::Error::StartupLength { .. }) => {
                return Ok(Some(HandshakeStep::HangUp("its first message has an impossible length")));
            }
            message => message.map_err(|error| broken(&error))?,
        };
        let Some(message) = message else { return Ok(Some(self.wait(HandshakeState::Startup { requests }))) };
        Ok(Some(match message {
            Startup::TlsRequest if self.tls == TlsState::Required => {
                write_tls_answer(out, TlsAnswer::Yes);
                HandshakeStep::StartTls
            }
            Startup::DirectTls if self.tls == TlsState::Required => HandshakeStep::StartTls,
            Startup::DirectTls => HandshakeStep::HangUp("it starts TLS, which is not offered"),
            Startup::TlsRequest | Startup::GssEncRequest if requests >= MAX_REQUESTS => {
                HandshakeStep::HangUp("it requests encryption repeatedly")
            }
            Startup::TlsRequest | Startup::GssEncRequest => {
                write_tls_answer(out, TlsAnswer::No);
                self.state = HandshakeState::Startup { requests: requests + 1 };
                return Ok(None);
            }
            Startup::Cancel { process_id, key } => HandshakeStep::Cancel { process_id, key: key.to_vec() },
            Startup::Login(message) => {
                let access = self.replication;
                return self.login(|| StartupParameters::read_as(&message, access).map(Arc::new), out);
            }
        }))
    }

    fn login(
        &mut self,
        read: impl FnOnce() -> Result<Arc<StartupParameters>, Refusal>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        self.auth.check(self.credentials.is_some())?;
        self.recent_logins = None;
        let parameters = read()?;
        if self.tls == TlsState::Required {
            return Err(Refusal::new(Refusal::WHO, "this proxy requires TLS"));
        }
        out.extend_from_slice(&parameters.negotiation);
        let mut request = StartupRequest::new(parameters);
        if self.console == ConsoleTrust::Trusted && is_for_console(&request.parameters) {
            request.proof = LoginProof::OwnUid;
            return Ok(Some(HandshakeStep::Login(request)));
        }
        if let Some(lookup) = self.lookup.take_if(|lookup| !lookup.configures(&request.parameters.user)) {
            return self.look_up(request, lookup, out);
        }
        if let Some(credentials) = self.credentials.take_if(|_| self.auth.needs_password()) {
            out.extend_from_slice(&credentials.sasl_request);
            let secret = SecretSource::Settings(credentials);
            self.state = HandshakeState::AwaitScram { request, secret };
            return Ok(None);
        }
        let user = &request.parameters.user;
        if self.auth.is_met(&self.tls, user) {
            return Ok(Some(HandshakeStep::Login(request)));
        }
        Err(wrong_certificate(user))
    }

    /// The user is not in the settings: the client must prove its password, however else it is authenticated.
    fn look_up(
        &mut self,
        request: Box<StartupRequest>,
        lookup: Arc<CredentialLookup>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let user = &request.parameters.user;
        if self.auth == ClientAuth::Certificate && !self.auth.is_met(&self.tls, user) {
            return Err(wrong_certificate(user));
        }
        let answer = Arc::new(OnceLock::new());
        if let Some(found) = lookup.cached(user) {
            let _ = answer.set(found);
            return self.secret(request, lookup, answer, out);
        }
        let step = HandshakeStep::LookUp(lookup.look_up(user, &answer));
        self.state = HandshakeState::AwaitSecret { request, lookup, answer };
        Ok(Some(step))
    }

    fn secret(
        &mut self,
        request: Box<StartupRequest>,
        lookup: Arc<CredentialLookup>,
        answer: Arc<OnceLock<Found>>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let (verifier, since) = match answer.get() {
            None => return Ok(Some(self.wait(HandshakeState::AwaitSecret { request, lookup, answer }))),
            Some(Found::Failed) => {
                let message = "the proxy cannot look up users at the moment: the reason is in its log";
                return Err(Refusal::new(Refusal::NO_SERVER, message));
            }
            Some(Found::Secret { verifier, since }) => (verifier.clone(), *since),
        };
        out.extend_from_slice(&sasl_request());
        let secret = SecretSource::Server(FoundSecret { verifier, since, lookup });
        self.state = HandshakeState::AwaitScram { request, secret };
        Ok(None)
    }

    fn scram(
        &mut self,
        request: Box<StartupRequest>,
        secret: SecretSource,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Some(answer) = read_answer(input)? else {
            return Ok(Some(self.wait(HandshakeState::AwaitScram { request, secret })));
        };
        let user = &request.parameters.user;
        let client_first = match answer.sasl_initial().map_err(|error| broken(&error))? {
            (name, Some(first)) if Mechanism::from_name(name) == Some(Mechanism::Sha256) => first,
            _ => return Err(out_of_order()),
        };
        let (verifier, mechanism) = (secret.verifier_of(user), Mechanism::Sha256);
        let first = match self.nonce.take() {
            Some(nonce) => ServerFirst::with_random(verifier, mechanism, Binding::None, client_first, nonce),
            None => ServerFirst::answer(verifier, mechanism, Binding::None, client_first),
        };
        let first = first.map_err(|_| wrong_password(user))?;
        let _ = write_authentication(out, &Authentication::SaslContinue(first.message()));
        let found = match secret {
            SecretSource::Settings(_) => None,
            SecretSource::Server(found) => Some(found),
        };
        self.state = HandshakeState::AwaitProof { request, first, found };
        Ok(None)
    }

    fn proof(
        &mut self,
        mut request: Box<StartupRequest>,
        first: ServerFirst,
        found: Option<FoundSecret>,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Some(answer) = read_answer(input)? else {
            return Ok(Some(self.wait(HandshakeState::AwaitProof { request, first, found })));
        };
        let user = &request.parameters.user;
        let last = match found {
            None => first.judge(answer.sasl()).map_err(|_| wrong_password(user))?,
            Some(FoundSecret { verifier, since, lookup }) => {
                let judged = first.judge_with_keys(answer.sasl()).inspect_err(|_| lookup.doubt(user));
                let (last, keys) = judged.map_err(|_| wrong_password(user))?;
                request.proven = Some(ProvenLogin::new(user, &verifier, keys, since));
                last
            }
        };
        let _ = write_authentication(out, &Authentication::SaslFinal(&last));
        Ok(Some(HandshakeStep::Login(request)))
    }
}

impl ProtocolHandshake for ClientHandshake {
    type Request = Box<StartupRequest>;

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<Box<StartupRequest>> {
        next_step(|| self.advance(input, out))
    }

    fn tls_established(&mut self, name: Option<String>) {
        self.tls = TlsState::Established { name };
        self.state = HandshakeState::Startup { requests: MAX_REQUESTS };
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn trust_console(&mut self) {
        self.console = ConsoleTrust::Trusted;
    }
}

fn is_for_console(parameters: &StartupParameters) -> bool {
    parameters.user == CONSOLE && parameters.database.as_deref() == Some(CONSOLE)
}

fn sasl_request() -> Vec<u8> {
    let mut request = Vec::new();
    let mechanisms = vec![Mechanism::Sha256.name().as_bytes()];
    // Fails only for more than a gigabyte.
    let _ = write_authentication(&mut request, &Authentication::Sasl { mechanisms });
    request
}

/// The client's next response to a request for authentication; `None` if it is not complete yet.
fn read_answer<'a>(input: &mut &'a [u8]) -> Result<Option<AuthResponse<'a>>, Refusal> {
    // Such as a second startup message. Its length may be taken for that of a longer message, which never arrives.
    if input.first().is_some_and(|kind| *kind != PASSWORD_MESSAGE) {
        return Err(out_of_order());
    }
    match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES).map_err(|error| broken(&error))? {
        None => Ok(None),
        Some(FrontendMessage::Auth(answer)) => Ok(Some(answer)),
        Some(_) => Err(out_of_order()),
    }
}

/// The server's wording, without the name in the certificate.
fn wrong_certificate(user: &str) -> Refusal {
    Refusal::new(Refusal::WHO, format!("certificate authentication failed for user \"{user}\""))
}

/// The server's wording, whatever the reason.
fn wrong_password(user: &str) -> Refusal {
    Refusal::new(Refusal::PASSWORD, format!("password authentication failed for user \"{user}\""))
}

fn out_of_order() -> Refusal {
    Refusal::new(Refusal::PROTOCOL, "a response to the password request was expected")
}

fn broken(error: &postgres::Error) -> Refusal {
    Refusal::new(Refusal::PROTOCOL, error.to_string())
}

#[cfg(test)]
mod tests;
