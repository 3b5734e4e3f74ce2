//! The client's login: from the first byte to the first `ReadyForQuery` ("Start-up").

use std::sync::Arc;

use super::{
    CancelKey, Error, Parameters, TransactionStatus,
    authentication::Authentication,
    authenticator::{Authenticator, Keys},
    codec::{Reader, printable},
    kind,
    message::{self, MAX_LOGIN_PAYLOAD_BYTES, Message},
    parameters::parse_parameter_status,
    report::Report,
    startup::{PROTOCOL_3_0, encode_cancel_request, encode_startup, encode_tls_request},
};
use crate::{
    Phase, Secret, Step,
    scram::{KeyCache, KeyDerivation},
};

/// More than any server's version has; what is longer is cut.
const MAX_VERSION_CHARACTERS: usize = 128;
/// The name that the server shows for this client.
const APPLICATION_NAME: &str = "ciphertoll";
/// The answers to an `SSLRequest`.
const TLS_ACCEPTED: u8 = b'S';
const TLS_REFUSED: u8 = b'N';

/// Whether the connection is encrypted. There is no "if the server can".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// Plaintext.
    Plain,
    /// An `SSLRequest`, then TLS or nothing.
    Tls,
    /// An `SSLRequest` and TLS's first message at once, then TLS or nothing; since PostgreSQL 17.
    EagerTls,
    /// TLS from the first byte, with ALPN [`DIRECT_TLS_ALPN`]; since PostgreSQL 17.
    DirectTls,
}

/// The protocol's name in ALPN, without which servers refuse TLS from the first byte.
pub const DIRECT_TLS_ALPN: &[u8] = b"postgresql";

/// Whether SCRAM is bound to the TLS channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChannelBinding {
    /// Never: SCRAM-SHA-256, over TLS, too.
    #[default]
    Disabled,
    /// SCRAM-SHA-256-PLUS where the server offers it and [`Connect::bind_channel`] was called, else whatever it asks
    /// for: what libpq does unless told otherwise.
    Preferred,
    /// SCRAM-SHA-256-PLUS or nothing. [`Connect::bind_channel`] must be called after the TLS handshake.
    Required,
}

/// Who logs in and how; made once and shared by all connects.
#[derive(Clone)]
pub struct Login {
    /// The role.
    pub user: String,
    /// Its password; of no matter where the server asks for none.
    pub password: Secret,
    /// The database; the one of the user's name where there is none.
    pub database: Option<String>,
    /// Whether to encrypt.
    pub encryption: Encryption,
    /// Whether to bind SCRAM to the channel.
    pub channel_binding: ChannelBinding,
}

/// How the server had the client authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthMethod {
    /// It asked for nothing: `trust`, `peer`, or the certificate that TLS has seen.
    None,
    /// The password itself, inside TLS.
    Cleartext,
    /// MD5 of it and a salt.
    Md5,
    /// SCRAM-SHA-256.
    Scram {
        /// The rounds of key derivation that the server asked for.
        iterations: u32,
        /// What the exchange was bound to.
        channel_binding: Bound,
    },
}

impl AuthMethod {
    /// A short, stable name, such as `scram-4096+plus`.
    pub fn label(self) -> String {
        match self {
            Self::None => "trust".to_owned(),
            Self::Cleartext => "cleartext".to_owned(),
            Self::Md5 => "md5".to_owned(),
            Self::Scram { iterations, channel_binding: Bound::Nothing } => format!("scram-{iterations}"),
            Self::Scram { iterations, channel_binding: Bound::ServerEndPoint } => {
                format!("scram-{iterations}+plus")
            }
        }
    }
}

/// What a SCRAM exchange was bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// To nothing.
    Nothing,
    /// To the server's certificate (`tls-server-end-point`).
    ServerEndPoint,
}

/// What is known of the server once it awaits commands.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Its version (`server_version`), empty where it did not say.
    pub version: String,
    /// The process that serves this connection; 0 where the server did not say.
    pub process_id: u32,
    /// The right to cancel what it does.
    pub cancel_key: CancelKey,
    /// What it asked for to believe who the client is.
    pub auth: AuthMethod,
    /// Everything that it said of its settings, to a [`Connect::pooled`]; else nothing.
    pub parameters: Parameters,
}

/// One login, from the client's side.
pub struct Connect {
    login: Arc<Login>,
    purpose: Purpose,
    authenticator: Authenticator,
    state: State,
    server: Option<ServerInfo>,
}

/// What a connection is for.
enum Purpose {
    /// To be used by the one who makes it.
    Use,
    /// To be handed to others, who bring settings of their own.
    Pool,
    /// To have a command on another connection cancelled.
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
    Ready,
    Failed,
}

impl Connect {
    /// A login that has sent no byte yet.
    pub fn new(login: Arc<Login>) -> Self {
        Self::of(login, Purpose::Use, None)
    }

    /// The login of a connection that others will use: it sets nothing, not even its own name, so that a reset brings
    /// the server's defaults back, and keeps what the server says of its settings. SCRAM keys are kept in `keys`; those that are
    /// not there are derived by the caller, see [`Self::take_key_derivation`].
    pub fn pooled(login: Arc<Login>, keys: Arc<KeyCache>) -> Self {
        Self::of(login, Purpose::Pool, Some(keys))
    }

    /// In place of a login: a request to cancel what another connection does, encrypted as the login says. It is done
    /// when the request is in `out`; the server closes the connection when it has done its part.
    pub fn cancelling(login: Arc<Login>, process_id: u32, key: CancelKey) -> Self {
        Self::of(login, Purpose::Cancel { process_id, key }, None)
    }

    fn of(login: Arc<Login>, purpose: Purpose, keys: Option<Arc<KeyCache>>) -> Self {
        let authenticator = Authenticator::new(Arc::clone(&login), keys);
        Self { login, purpose, authenticator, state: State::Begin, server: None }
    }

    /// Takes whole messages from the front of `input` and appends to `out` what is to be sent. The client speaks
    /// first: the first step takes no input.
    ///
    /// Input that is there before TLS starts is an error: it would be plaintext that passes for encrypted. An error
    /// is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        let step = match self.state {
            State::Begin => self.begin(input, out),
            State::AwaitTlsAnswer => self.await_tls_answer(input),
            State::StartTls => self.start_tls(input),
            State::SendStartup => self.send_startup(input, out),
            State::AwaitAuth => self.await_auth(input, out),
            State::AwaitReady => self.await_ready(input),
            State::Ready => Ok(Step::Done),
            State::Failed => Err(Error::NotReset),
        };
        if step.is_err() {
            self.state = State::Failed;
        }
        step
    }

    /// The server, once it awaits commands.
    pub fn server(&self) -> Option<&ServerInfo> {
        if self.state == State::Ready { self.server.as_ref() } else { None }
    }

    /// Hands over the hash of the server's certificate (`tls-server-end-point`, RFC 5929, section 4.1), after the TLS
    /// handshake and before the next step, where channel binding is required, or preferred and possible.
    pub fn bind_channel(&mut self, certificate_hash: &[u8]) {
        self.authenticator.bind_channel(certificate_hash);
    }

    /// What has to be run, on any thread, before a [`Self::pooled`] login can go on. Until then each step says
    /// [`Step::NeedInput`] and takes none; afterwards the login is stepped again.
    pub fn take_key_derivation(&mut self) -> Option<KeyDerivation> {
        self.authenticator.take_derivation()
    }

    /// Whether the login waits for keys, and takes no input.
    pub fn awaits_keys(&self) -> bool {
        self.authenticator.awaits_keys()
    }

    fn begin(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        check(&self.login)?;
        match self.login.encryption {
            Encryption::Plain => self.send_startup(input, out),
            Encryption::Tls => {
                encode_tls_request(out);
                self.state = State::AwaitTlsAnswer;
                self.await_tls_answer(input)
            }
            Encryption::EagerTls => {
                encode_tls_request(out);
                self.state = State::AwaitTlsAnswer;
                Ok(Step::OfferTls)
            }
            Encryption::DirectTls => self.start_tls(input),
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
            _ => {
                let reason = "neither yes nor no";
                Err(Error::Protocol { message: "answer to the request for TLS", reason })
            }
        }
    }

    fn start_tls(&mut self, input: &[u8]) -> Result<Step, Error> {
        self.refuse_plaintext(input)?;
        self.state = State::SendStartup;
        Ok(Step::StartTls)
    }

    /// What comes before TLS has begun. Where TLS was offered at once, that is TLS, and never taken for anything else.
    fn refuse_plaintext(&self, input: &[u8]) -> Result<(), Error> {
        match self.login.encryption {
            Encryption::EagerTls => Ok(()),
            Encryption::Plain | Encryption::Tls | Encryption::DirectTls => refuse_early_input(input),
        }
    }

    fn send_startup(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // The server has nothing to say here; bytes can only be plaintext that was carried over.
        if self.login.encryption != Encryption::Plain {
            refuse_early_input(input)?;
        }
        let user = ("user", self.login.user.as_str());
        let client = [("client_encoding", "UTF8"), ("application_name", APPLICATION_NAME)];
        let database = self.login.database.as_ref().map(|database| ("database", database.as_str()));
        match (&self.purpose, database) {
            (Purpose::Use, Some(database)) => encode_startup(out, &[user, database, client[0], client[1]])?,
            (Purpose::Use, None) => encode_startup(out, &[user, client[0], client[1]])?,
            (Purpose::Pool, Some(database)) => encode_startup(out, &[user, database])?,
            (Purpose::Pool, None) => encode_startup(out, &[user])?,
            (Purpose::Cancel { process_id, key }, _) => {
                encode_cancel_request(out, *process_id, key);
                self.server = Some(unknown_server(AuthMethod::None));
                self.state = State::Ready;
                return Ok(Step::Done);
            }
        }
        self.state = State::AwaitAuth;
        self.await_auth(input, out)
    }

    fn await_auth(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        while self.authenticator.go_on(out)? == Keys::NotAwaited
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
                    let reason = "it does not belong there";
                    return Err(Error::Protocol { message: "answer to the login", reason });
                }
            }
        }
        Ok(Step::NeedInput)
    }

    fn await_ready(&mut self, input: &mut &[u8]) -> Result<Step, Error> {
        while let Some(Message { kind, payload }) = message::take(input, MAX_LOGIN_PAYLOAD_BYTES)? {
            match (kind, &mut self.server) {
                (kind::PARAMETER_STATUS, Some(server)) => take_parameter(server, &self.purpose, payload)?,
                (kind::BACKEND_KEY_DATA, Some(server)) => take_key(server, payload)?,
                (kind::READY_FOR_QUERY, _) => {
                    TransactionStatus::parse(payload)?;
                    self.state = State::Ready;
                    return Ok(Step::Phase(Phase::Ready));
                }
                (kind::NOTICE_RESPONSE, _) => {}
                (kind::ERROR_RESPONSE, _) => return Err(Report::parse(payload)?.into()),
                _ => {
                    let reason = "it does not belong there";
                    return Err(Error::Protocol { message: "start of the session", reason });
                }
            }
        }
        Ok(Step::NeedInput)
    }
}

fn check(login: &Login) -> Result<(), Error> {
    if login.user.contains('\0') {
        return Err(Error::InvalidLogin { field: "user" });
    }
    if login.database.as_ref().is_some_and(|database| database.contains('\0')) {
        return Err(Error::InvalidLogin { field: "database" });
    }
    match (login.encryption, login.channel_binding) {
        (Encryption::Plain, ChannelBinding::Required) => Err(Error::NotBound),
        _ => Ok(()),
    }
}

fn unknown_server(auth: AuthMethod) -> ServerInfo {
    ServerInfo {
        version: String::new(),
        process_id: 0,
        cancel_key: CancelKey::none(),
        auth,
        parameters: Parameters::default(),
    }
}

/// `NegotiateProtocolVersion`: what was asked for is the oldest version there is and has no options.
fn check_version(payload: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(payload, "NegotiateProtocolVersion");
    // The documentation long said that this is the minor version; servers send both halves.
    let version = reader.u32()?;
    if version != 0 && version != PROTOCOL_3_0 {
        return Err(reader.error("a version that was not asked for"));
    }
    if reader.u32()? != 0 {
        return Err(reader.error("options that were not asked for"));
    }
    reader.end()
}

fn take_parameter(server: &mut ServerInfo, purpose: &Purpose, payload: &[u8]) -> Result<(), Error> {
    let (name, value) = parse_parameter_status(payload)?;
    if name == b"server_version" {
        server.version = printable(value, MAX_VERSION_CHARACTERS);
    }
    match purpose {
        Purpose::Pool => server.parameters.set(name, value),
        Purpose::Use | Purpose::Cancel { .. } => Ok(()),
    }
}

fn take_key(server: &mut ServerInfo, payload: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(payload, "BackendKeyData");
    server.process_id = reader.u32()?;
    let key = CancelKey::new(reader.rest().to_vec());
    server.cancel_key = key.ok_or_else(|| reader.error("a key that is too long"))?;
    Ok(())
}

/// No plaintext may cross into the encrypted part (CVE-2021-23222).
fn refuse_early_input(input: &[u8]) -> Result<(), Error> {
    if input.is_empty() {
        return Ok(());
    }
    let reason = "bytes follow it that TLS would not cover";
    Err(Error::Protocol { message: "answer to the request for TLS", reason })
}
