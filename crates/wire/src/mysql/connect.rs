//! The client's login: from the server's greeting to the first OK ("Connection Phase").

use std::sync::Arc;

use super::{
    Capabilities, Error,
    auth_switch::AuthSwitchRequest,
    codec::printable,
    err::refuse_err,
    greeting::Greeting,
    handshake_response::HandshakeResponse,
    native_password::{self, NONCE_BYTES},
    ok::OkPacket,
    packet::{self, MAX_LOGIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES, Packets},
    ssl_request::{SslRequest, UTF8MB4},
};
use crate::{Phase, Secret, Step};

/// MariaDB puts this before its version, because old replicas took "10" for less than "5".
const MARIADB_VERSION_PREFIX: &[u8] = b"5.5.5-";
/// More than any server's version or plugin has; what is longer is cut.
const MAX_NAME_CHARACTERS: usize = 128;

/// Without these a server is older than 4.1.
const REQUIRED: Capabilities = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
/// Used where the server offers them. Neither several statements in one query nor local files are among them.
const WANTED: Capabilities = REQUIRED
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::DEPRECATE_EOF);

/// Whether the connection is encrypted. There is no "if the server can".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// Plaintext.
    Plain,
    /// TLS or nothing.
    Tls,
}

/// Who logs in and how; made once and shared by all connects.
#[derive(Clone)]
pub struct Login {
    /// The account.
    pub user: String,
    /// Its password; empty for none.
    pub password: Secret,
    /// The database to begin in.
    pub database: Option<String>,
    /// Whether to encrypt.
    pub encryption: Encryption,
}

/// What is known of the server once its greeting was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its version, without MariaDB's `5.5.5-`.
    pub version: String,
    /// Its number for this connection.
    pub connection_id: u32,
    /// What both sides agreed on: what the readers of answers must be made with.
    pub capabilities: Capabilities,
    /// What the server offered.
    pub offered: Capabilities,
}

/// One login, from the client's side.
pub struct Connect {
    login: Arc<Login>,
    packets: Packets,
    state: State,
    nonce: [u8; NONCE_BYTES],
    server: Option<ServerInfo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitGreeting,
    RequestTls,
    StartTls,
    SendLogin,
    AwaitVerdict { switched: Switched },
    Ended,
    Failed,
}

/// A server may ask for another plugin once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switched {
    No,
    Yes,
}

impl Connect {
    /// A login that has seen no byte yet.
    pub fn new(login: Arc<Login>) -> Self {
        Self {
            login,
            packets: Packets::new(0, MAX_LOGIN_PAYLOAD_BYTES),
            state: State::AwaitGreeting,
            nonce: [0; NONCE_BYTES],
            server: None,
        }
    }

    /// Takes whole packets from the front of `input` and appends to `out` what is to be sent.
    ///
    /// Input that is there before TLS starts is an error: it would be plaintext that passes for encrypted. An error
    /// is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        let step = match self.state {
            State::AwaitGreeting => self.await_greeting(input),
            State::RequestTls => self.request_tls(input, out),
            State::StartTls => self.start_tls(input),
            State::SendLogin => self.send_login(input, out),
            State::AwaitVerdict { switched } => self.await_verdict(input, out, switched),
            State::Ended => Ok(Step::Done),
            State::Failed => Err(Error::NotReset),
        };
        if step.is_err() {
            self.state = State::Failed;
        }
        step
    }

    /// The server, once it has greeted.
    pub fn server(&self) -> Option<&ServerInfo> {
        self.server.as_ref()
    }

    fn await_greeting(&mut self, input: &mut &[u8]) -> Result<Step, Error> {
        let Some(payload) = self.packets.take(input, "greeting")? else {
            return Ok(Step::NeedInput);
        };
        refuse_err(payload)?;
        let greeting = Greeting::parse(payload)?;
        let capabilities = agree(&self.login, greeting.capabilities)?;
        let version = greeting.version.strip_prefix(MARIADB_VERSION_PREFIX).unwrap_or(greeting.version);
        self.server = Some(ServerInfo {
            version: printable(version, MAX_NAME_CHARACTERS),
            connection_id: greeting.connection_id,
            capabilities,
            offered: greeting.capabilities,
        });
        self.nonce = greeting.nonce;
        self.state = match self.login.encryption {
            Encryption::Plain => State::SendLogin,
            Encryption::Tls => State::RequestTls,
        };
        Ok(Step::Phase(Phase::ServerGreeting))
    }

    fn request_tls(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        refuse_early_input(input)?;
        let request = self.head();
        packet::write(out, self.packets.number(), |out| request.encode(out))?;
        self.state = State::StartTls;
        Ok(Step::Phase(Phase::TlsRequest))
    }

    fn start_tls(&mut self, input: &[u8]) -> Result<Step, Error> {
        refuse_early_input(input)?;
        self.state = State::SendLogin;
        Ok(Step::StartTls)
    }

    fn send_login(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // The server has nothing to say here; bytes can only be plaintext that was carried over.
        if self.login.encryption == Encryption::Tls {
            refuse_early_input(input)?;
        }
        let head = self.head();
        let proof = native_password::response(self.login.password.expose(), &self.nonce);
        let response = HandshakeResponse {
            head,
            user: self.login.user.as_bytes(),
            auth_response: if self.login.password.expose().is_empty() { &[] } else { &proof },
            database: self.login.database.as_deref().map(str::as_bytes),
            plugin: head.capabilities.contains(Capabilities::PLUGIN_AUTH).then_some(native_password::NAME),
        };
        packet::write(out, self.packets.number(), |out| response.encode(out))?;
        self.state = State::AwaitVerdict { switched: Switched::No };
        self.await_verdict(input, out, Switched::No)
    }

    fn await_verdict(
        &mut self,
        input: &mut &[u8],
        out: &mut Vec<u8>,
        switched: Switched,
    ) -> Result<Step, Error> {
        let Some(payload) = self.packets.take(input, "answer to the login")? else {
            return Ok(Step::NeedInput);
        };
        refuse_err(payload)?;
        if OkPacket::is(payload) {
            OkPacket::parse(payload)?;
            self.state = State::Ended;
            return Ok(Step::Phase(Phase::Auth));
        }
        let unexpected = |reason| Error::Protocol { message: "answer to the login", reason };
        if !AuthSwitchRequest::is(payload) {
            return Err(unexpected("neither OK nor ERR nor another plugin"));
        }
        if switched == Switched::Yes {
            return Err(unexpected("a second request for another plugin"));
        }
        self.answer_switch(&AuthSwitchRequest::parse(payload)?, out)?;
        self.state = State::AwaitVerdict { switched: Switched::Yes };
        self.await_verdict(input, out, Switched::Yes)
    }

    fn answer_switch(&mut self, request: &AuthSwitchRequest<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        if request.plugin != native_password::NAME {
            return Err(Error::UnsupportedAuth { plugin: printable(request.plugin, MAX_NAME_CHARACTERS) });
        }
        let nonce = request.data.strip_suffix(&[0]).unwrap_or(request.data);
        let nonce = nonce.try_into().map_err(|_| Error::Protocol {
            message: "request to switch authentication",
            reason: "its challenge is not 20 bytes",
        })?;
        let password = self.login.password.expose();
        packet::write(out, self.packets.number(), |out| {
            if !password.is_empty() {
                out.extend_from_slice(&native_password::response(password, nonce));
            }
        })
    }

    fn head(&self) -> SslRequest {
        SslRequest {
            capabilities: self.server.as_ref().map_or(WANTED, |server| server.capabilities),
            max_packet_bytes: MAX_PAYLOAD_BYTES as u32,
            character_set: UTF8MB4,
        }
    }
}

/// The capabilities that this login uses at a server that offers these.
fn agree(login: &Login, offered: Capabilities) -> Result<Capabilities, Error> {
    if login.user.contains('\0') {
        return Err(Error::InvalidLogin { field: "user" });
    }
    if !offered.contains(REQUIRED) {
        return Err(Error::Protocol { message: "greeting", reason: "a server from before 4.1" });
    }
    let mut agreed = (WANTED & offered) | Capabilities::LONG_PASSWORD;
    if let Some(database) = &login.database {
        if database.contains('\0') {
            return Err(Error::InvalidLogin { field: "database" });
        }
        if !offered.contains(Capabilities::CONNECT_WITH_DB) {
            return Err(Error::Protocol { message: "greeting", reason: "no database at login" });
        }
        agreed = agreed | Capabilities::CONNECT_WITH_DB;
    }
    if login.encryption == Encryption::Tls {
        if !offered.contains(Capabilities::SSL) {
            return Err(Error::TlsNotOffered);
        }
        agreed = agreed | Capabilities::SSL;
    }
    Ok(agreed)
}

/// No plaintext may cross into the encrypted part ("NO STARTTLS", USENIX Security 2021: command injection).
fn refuse_early_input(input: &[u8]) -> Result<(), Error> {
    if input.is_empty() {
        return Ok(());
    }
    Err(Error::Protocol { message: "greeting", reason: "bytes follow it that TLS would not cover" })
}
