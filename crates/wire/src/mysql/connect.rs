//! The client's login: from the server's greeting to the first OK ("Connection Phase").

use std::sync::Arc;

use super::{
    AuthMethod, Capabilities, Error, Plugin,
    auth_switch::AuthSwitchRequest,
    codec::printable,
    conversation::{Answer, Conversation},
    err::refuse_err,
    greeting::Greeting,
    greeting_template::GreetingTemplate,
    handshake_response::HandshakeResponse,
    native_password::NONCE_BYTES,
    ok::OkPacket,
    packet::{self, MAX_LOGIN_PAYLOAD_BYTES, MAX_MESSAGE_BYTES, Packets},
    relay::RELAYED,
    ssl_request::{SslRequest, UTF8MB4},
};
use crate::{Phase, Secret, Step};

/// MariaDB puts this before its version, because old replicas took "10" for less than "5".
const MARIADB_VERSION_PREFIX: &[u8] = b"5.5.5-";
/// More than any server's version or plugin has; what is longer is cut.
pub(super) const MAX_NAME_CHARACTERS: usize = 128;

/// An account of MariaDB may have several plugins, which the server tries in turn; nobody has as many as this.
const MAX_SWITCHES: u8 = 4;

/// `AuthMoreData`: what follows is for the plugin. MariaDB leaves it out where the data cannot be taken for another
/// message, `MySQL` never does.
pub(super) const MORE_DATA: u8 = 0x01;

/// Without these a server is older than 4.1.
const REQUIRED: Capabilities = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
/// Used where the server offers them. Local files are not among them, nor are several statements in one query unless the
/// login asks for that.
const WANTED: Capabilities = REQUIRED
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::DEPRECATE_EOF);

/// What a login alone is about, and nothing that comes after it.
const OF_LOGIN: Capabilities = REQUIRED
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::SSL)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC);

/// What a server is taken to offer that is asked for TLS before it has said anything: all that a login may use. Every
/// server of the last ten years does.
const ASSUMED: Capabilities = WANTED
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::SSL);
/// Of the request for TLS, which answers the greeting even where it goes before.
const REQUEST_NUMBER: u8 = 1;

/// Whether the connection is encrypted. There is no "if the server can".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// Plaintext.
    Plain,
    /// TLS or nothing.
    Tls,
    /// The request for it and TLS's first message at once, before the greeting: TLS or nothing.
    EagerTls,
}

/// What the connection runs over, as far as authentication must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// A network: without TLS others may listen.
    #[default]
    Tcp,
    /// A unix socket: nobody listens, though nothing is encrypted.
    UnixSocket,
}

/// How many statements a `COM_QUERY` may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Statements {
    /// One, so that nobody appends another to it.
    #[default]
    One,
    /// Any number, between semicolons; each has a result of its own.
    Several,
}

/// Who logs in and how; made once and shared by all connects.
///
/// [`Login::new`] has what most logins want; the rest is changed in place:
///
/// ```
/// # use ciphertoll_wire::{Secret, mysql::{Encryption, Login, Plugin}};
/// let login = Login {
///     encryption: Encryption::Tls,
///     plugin: Plugin::CachingSha2Password,
///     ..Login::new("toll", Secret::new(b"correct horse".to_vec()))
/// };
/// ```
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
    /// What the connection runs over.
    pub transport: Transport,
    /// The plugin to begin with.
    pub plugin: Plugin,
    /// How many statements a query may have.
    pub statements: Statements,
}

impl Login {
    /// A login in plaintext over TCP with `mysql_native_password`, in no database.
    pub fn new(user: impl Into<String>, password: Secret) -> Self {
        Self {
            user: user.into(),
            password,
            database: None,
            encryption: Encryption::Plain,
            transport: Transport::default(),
            plugin: Plugin::default(),
            statements: Statements::default(),
        }
    }
}

/// What a login agrees on for one that will pass another's bytes through: so much of it as that one has agreed on with
/// its own client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Terms {
    /// Of those that [`RELAYED`] has; the server must offer all of them.
    pub capabilities: Capabilities,
    /// The client's collation, its lower byte.
    pub character_set: u8,
}

/// What is known of the server and the connection once the login is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// The server's version, without MariaDB's `5.5.5-`.
    pub version: String,
    /// Its number for this connection.
    pub connection_id: u32,
    /// What both sides agreed on: what the readers of answers must be made with.
    pub capabilities: Capabilities,
    /// What the server offered.
    pub offered: Capabilities,
    /// How the client has proved who it is.
    pub auth: AuthMethod,
    /// What the server says to everybody.
    pub greeting: GreetingTemplate,
}

/// One login, from the client's side.
pub struct Connect {
    login: Arc<Login>,
    /// None for a login that says itself what it wants.
    terms: Option<Terms>,
    packets: Packets,
    state: State,
}

/// Each state has what was learnt up to it.
enum State {
    OfferTls,
    AwaitGreeting,
    RequestTls(Greeted),
    StartTls(Greeted),
    SendLogin(Greeted),
    AwaitVerdict { greeted: Greeted, conversation: Conversation, switches: u8 },
    Ended(ServerInfo),
    Failed,
}

/// What the greeting said.
struct Greeted {
    version: String,
    connection_id: u32,
    capabilities: Capabilities,
    offered: Capabilities,
    nonce: [u8; NONCE_BYTES],
    greeting: GreetingTemplate,
}

impl Connect {
    /// A login that has seen no byte yet.
    pub fn new(login: Arc<Login>) -> Self {
        let state = match login.encryption {
            Encryption::Plain | Encryption::Tls => State::AwaitGreeting,
            Encryption::EagerTls => State::OfferTls,
        };
        Self { login, terms: None, packets: Packets::new(0, MAX_LOGIN_PAYLOAD_BYTES), state }
    }

    /// A login that agrees on these terms and on nothing else; of `login` neither the statements matter nor anything
    /// that is not who logs in and how.
    pub fn pooled(login: Arc<Login>, terms: Terms) -> Self {
        Self { terms: Some(terms), ..Self::new(login) }
    }

    /// Takes whole packets from the front of `input` and appends to `out` what is to be sent, which may be the password
    /// itself (see [`super::clear_password`]).
    ///
    /// Input that is there before TLS starts is an error: it would be plaintext that passes for encrypted. Where TLS was
    /// offered at once, what follows the greeting is TLS. An error is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // An error leaves the state as it is here.
        let (state, step) = match std::mem::replace(&mut self.state, State::Failed) {
            State::OfferTls => self.offer_tls(out),
            State::AwaitGreeting => self.await_greeting(input),
            State::RequestTls(greeted) => self.request_tls(greeted, input, out),
            State::StartTls(greeted) => self.start_tls(greeted, input),
            State::SendLogin(greeted) => self.send_login(greeted, input, out),
            State::AwaitVerdict { greeted, conversation, switches } => {
                self.await_verdict(greeted, conversation, switches, input, out)
            }
            State::Ended(server) => Ok((State::Ended(server), Step::Done)),
            State::Failed => Err(Error::NotReset),
        }?;
        self.state = state;
        Ok(step)
    }

    /// The server, once the login is done.
    pub fn server(&self) -> Option<&ServerInfo> {
        match &self.state {
            State::Ended(server) => Some(server),
            _ => None,
        }
    }

    fn offer_tls(&mut self, out: &mut Vec<u8>) -> Result<(State, Step), Error> {
        let request = self.head(self.agree(ASSUMED)?);
        packet::write(out, REQUEST_NUMBER, |out| request.encode(out))?;
        Ok((State::AwaitGreeting, Step::OfferTls))
    }

    fn await_greeting(&mut self, input: &mut &[u8]) -> Result<(State, Step), Error> {
        let Some(payload) = self.packets.take(input, "greeting")? else {
            return Ok((State::AwaitGreeting, Step::NeedInput));
        };
        refuse_err(payload)?;
        let greeting = Greeting::parse(payload)?;
        let version = greeting.version.strip_prefix(MARIADB_VERSION_PREFIX).unwrap_or(greeting.version);
        let greeted = Greeted {
            version: printable(version, MAX_NAME_CHARACTERS),
            connection_id: greeting.connection_id,
            capabilities: self.agree(greeting.capabilities)?,
            offered: greeting.capabilities,
            nonce: greeting.nonce,
            greeting: GreetingTemplate::of(&greeting),
        };
        let next = match self.login.encryption {
            Encryption::Plain => State::SendLogin(greeted),
            Encryption::Tls => State::RequestTls(greeted),
            Encryption::EagerTls if greeted.capabilities != self.agree(ASSUMED)? => {
                let reason = "it lacks what was taken for granted when TLS was asked for before it";
                return Err(Error::Protocol { message: "greeting", reason });
            }
            Encryption::EagerTls => {
                // The request's number, which was used before the greeting's.
                self.packets.number();
                State::StartTls(greeted)
            }
        };
        Ok((next, Step::Phase(Phase::ServerGreeting)))
    }

    fn request_tls(
        &mut self,
        greeted: Greeted,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(State, Step), Error> {
        refuse_early_input(input)?;
        let request = self.head(greeted.capabilities);
        packet::write(out, self.packets.number(), |out| request.encode(out))?;
        Ok((State::StartTls(greeted), Step::Phase(Phase::TlsRequest)))
    }

    fn send_login(
        &mut self,
        greeted: Greeted,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(State, Step), Error> {
        // The server has nothing to say here; bytes can only be plaintext that was carried over.
        if self.login.encryption != Encryption::Plain {
            refuse_early_input(input)?;
        }
        let named = greeted.capabilities.contains(Capabilities::PLUGIN_AUTH);
        // Servers that know no plugins know this one without its name.
        let plugin = if named { self.login.plugin } else { Plugin::NativePassword };
        let (conversation, proof) = Conversation::guess(plugin, &self.login, &greeted.nonce);
        let response = HandshakeResponse {
            head: self.head(greeted.capabilities),
            user: self.login.user.as_bytes(),
            auth_response: &proof,
            database: self.login.database.as_deref().map(str::as_bytes),
            plugin: named.then_some(plugin.name()),
        };
        packet::write(out, self.packets.number(), |out| response.encode(out))?;
        self.await_verdict(greeted, conversation, 0, input, out)
    }

    fn await_verdict(
        &mut self,
        greeted: Greeted,
        mut conversation: Conversation,
        mut switches: u8,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(State, Step), Error> {
        loop {
            let Some(payload) = self.packets.take(input, "answer to the login")? else {
                return Ok((State::AwaitVerdict { greeted, conversation, switches }, Step::NeedInput));
            };
            refuse_err(payload)?;
            if OkPacket::is(payload) {
                OkPacket::parse(payload)?;
                let server = greeted.into_server(conversation.accepted()?);
                return Ok((State::Ended(server), Step::Phase(Phase::Auth)));
            }
            if AuthSwitchRequest::is(payload) {
                if switches == MAX_SWITCHES {
                    let reason = "too many requests for another plugin";
                    return Err(Error::Protocol { message: "answer to the login", reason });
                }
                switches += 1;
                let request = AuthSwitchRequest::parse(payload)?;
                let answer;
                (conversation, answer) = Conversation::switch(&request, &self.login)?;
                self.send(&answer, out)?;
            } else {
                let data = payload.strip_prefix(&[MORE_DATA]).unwrap_or(payload);
                if let Some(answer) = conversation.more(data, &self.login)? {
                    self.send(&answer, out)?;
                }
            }
        }
    }

    fn start_tls(&self, greeted: Greeted, input: &[u8]) -> Result<(State, Step), Error> {
        // Where TLS was offered at once, that is TLS, and never taken for anything else.
        if self.login.encryption != Encryption::EagerTls {
            refuse_early_input(input)?;
        }
        Ok((State::SendLogin(greeted), Step::StartTls))
    }

    fn send(&mut self, answer: &Answer, out: &mut Vec<u8>) -> Result<(), Error> {
        packet::write(out, self.packets.number(), |out| out.extend_from_slice(answer))
    }

    /// What a request for TLS is, and what a login begins with.
    fn head(&self, capabilities: Capabilities) -> SslRequest {
        let character_set = self.terms.map_or(UTF8MB4, |terms| terms.character_set);
        SslRequest { capabilities, max_packet_bytes: MAX_MESSAGE_BYTES as u32, character_set }
    }

    /// The capabilities that this login uses at a server that offers these.
    fn agree(&self, offered: Capabilities) -> Result<Capabilities, Error> {
        let agreed = agree(&self.login, offered)?;
        let Some(Terms { capabilities, .. }) = self.terms else { return Ok(agreed) };
        let capabilities = capabilities & RELAYED;
        if !offered.contains(capabilities) {
            let reason = "it offers less than the server has before";
            return Err(Error::Protocol { message: "greeting", reason });
        }
        let terms = (agreed & OF_LOGIN) | capabilities;
        // MariaDB's own flags are sent in place of this one.
        Ok(if terms.is_extended() { terms.without(Capabilities::LONG_PASSWORD) } else { terms })
    }
}

impl Greeted {
    fn into_server(self, auth: AuthMethod) -> ServerInfo {
        let Self { version, connection_id, capabilities, offered, nonce: _, greeting } = self;
        ServerInfo { version, connection_id, capabilities, offered, auth, greeting }
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
    if login.statements == Statements::Several {
        if !offered.contains(Capabilities::MULTI_STATEMENTS | Capabilities::MULTI_RESULTS) {
            return Err(Error::Protocol { message: "greeting", reason: "no several statements in a query" });
        }
        agreed = agreed | Capabilities::MULTI_STATEMENTS;
    }
    if login.encryption != Encryption::Plain {
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
