//! The client's login: from the server's greeting to the first OK ("Connection Phase").

use std::sync::Arc;

use ciphertoll_vocabulary::Phase;

use crate::{
    mysql::{
        auth::{MySqlAuthMethod, Plugin, native_password::NONCE_BYTES},
        client::{
            auth_exchange::{AuthExchange, AuthMessage, MAX_NAME_CHARACTERS},
            login::{MySqlLogin, MySqlTlsMode},
        },
        codec::{
            auth_switch::{AuthSwitchRequest, MORE_DATA},
            capabilities::{Capabilities, RELAYED},
            command::StatementsPerQuery,
            err::refuse_err,
            greeting::Greeting,
            handshake_response::HandshakeResponse,
            ok::OkPacket,
            packet::{self, MAX_LOGIN_PAYLOAD_BYTES, MAX_MESSAGE_BYTES, PacketReader},
            ssl_request::{SslRequest, UTF8MB4},
        },
        error::Error,
        server::greeting_template::GreetingTemplate,
    },
    printable::printable,
    step::Step,
};

/// MariaDB prefixes its version with this, because old replicas compared "10" as less than "5".
const MARIADB_VERSION_PREFIX: &[u8] = b"5.5.5-";

/// A MariaDB account may have several plugins, which the server tries in turn, but hardly this many.
const MAX_SWITCHES: u8 = 4;

/// A server without these is older than 4.1.
const REQUIRED: Capabilities = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
/// Used if the server offers them. Local files are not among them; multiple statements only if the login asks
/// for them.
const WANTED: Capabilities = REQUIRED
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::DEPRECATE_EOF);

/// Capabilities that concern the login only.
const OF_LOGIN: Capabilities = REQUIRED
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::SSL)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC);

/// What a server is assumed to offer if TLS is requested before its greeting: everything that a login may
/// use. Every server of the last ten years offers it.
const ASSUMED: Capabilities = WANTED
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::SSL);
/// The sequence number of the TLS request. It counts as the reply to the greeting even if it is sent first.
const REQUEST_NUMBER: u8 = 1;

/// What the login of a relayed connection negotiates: what the relay's own client has negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Terms {
    /// A subset of [`RELAYED`]. The server must offer all of them.
    pub capabilities: Capabilities,
    /// The lower byte of the client's collation.
    pub character_set: u8,
}

/// What is known of the server and the connection after the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MySqlServerInfo {
    /// Without MariaDB's prefix `5.5.5-`.
    pub version: String,
    /// The server's identifier for this connection.
    pub connection_id: u32,
    /// The negotiated capabilities, which the readers of responses need.
    pub capabilities: Capabilities,
    /// The capabilities that the server offered.
    pub offered: Capabilities,
    pub auth: MySqlAuthMethod,
    /// The parts of the greeting that are the same for every client.
    pub greeting: GreetingTemplate,
}

pub struct MySqlConnect {
    login: Arc<MySqlLogin>,
    /// `None`: the login uses its own options.
    terms: Option<Terms>,
    packets: PacketReader,
    state: State,
}

/// Each state carries what was learned up to it.
enum State {
    OfferTls,
    AwaitGreeting,
    RequestTls(GreetingInfo),
    StartTls(GreetingInfo),
    SendLogin(GreetingInfo),
    AwaitVerdict { greeted: GreetingInfo, auth_exchange: AuthExchange, switches: u8 },
    Ended(MySqlServerInfo),
    Failed,
}

struct GreetingInfo {
    version: String,
    connection_id: u32,
    capabilities: Capabilities,
    offered: Capabilities,
    nonce: [u8; NONCE_BYTES],
    greeting: GreetingTemplate,
}

impl MySqlConnect {
    pub fn new(login: Arc<MySqlLogin>) -> Self {
        let state = match login.encryption {
            MySqlTlsMode::Plain | MySqlTlsMode::Tls => State::AwaitGreeting,
            MySqlTlsMode::EagerTls => State::OfferTls,
        };
        Self { login, terms: None, packets: PacketReader::new(0, MAX_LOGIN_PAYLOAD_BYTES), state }
    }

    /// A login that negotiates exactly these terms. Only the credentials and the transport options of `login`
    /// are used.
    pub fn pooled(login: Arc<MySqlLogin>, terms: Terms) -> Self {
        Self { terms: Some(terms), ..Self::new(login) }
    }

    /// Takes whole packets from the front of `input` and appends output to `out`, which may be the cleartext
    /// password (see [`crate::mysql::auth::clear_password`]).
    ///
    /// Input before TLS starts is an error: it would be plaintext that passes for encrypted. After
    /// [`Step::OfferTls`], the bytes behind the greeting are TLS. An error is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // An error leaves this state.
        let (state, step) = match std::mem::replace(&mut self.state, State::Failed) {
            State::OfferTls => self.offer_tls(out),
            State::AwaitGreeting => self.await_greeting(input),
            State::RequestTls(greeted) => self.request_tls(greeted, input, out),
            State::StartTls(greeted) => self.start_tls(greeted, input),
            State::SendLogin(greeted) => self.send_login(greeted, input, out),
            State::AwaitVerdict { greeted, auth_exchange, switches } => {
                self.await_verdict(greeted, auth_exchange, switches, input, out)
            }
            State::Ended(server) => Ok((State::Ended(server), Step::Done)),
            State::Failed => Err(Error::NotReset),
        }?;
        self.state = state;
        Ok(step)
    }

    pub fn server(&self) -> Option<&MySqlServerInfo> {
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
        let greeted = GreetingInfo {
            version: printable(version, MAX_NAME_CHARACTERS),
            connection_id: greeting.connection_id,
            capabilities: self.agree(greeting.capabilities)?,
            offered: greeting.capabilities,
            nonce: greeting.nonce,
            greeting: GreetingTemplate::of(&greeting),
        };
        let next = match self.login.encryption {
            MySqlTlsMode::Plain => State::SendLogin(greeted),
            MySqlTlsMode::Tls => State::RequestTls(greeted),
            MySqlTlsMode::EagerTls if greeted.capabilities != self.agree(ASSUMED)? => {
                return Err(Error::protocol(
                    "greeting",
                    "it lacks capabilities that the early TLS request assumed",
                ));
            }
            MySqlTlsMode::EagerTls => {
                // The TLS request used this number before the greeting arrived.
                self.packets.number();
                State::StartTls(greeted)
            }
        };
        Ok((next, Step::Phase(Phase::ServerGreeting)))
    }

    fn request_tls(
        &mut self,
        greeted: GreetingInfo,
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
        greeted: GreetingInfo,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(State, Step), Error> {
        // The server must not send anything here; bytes would be plaintext from before TLS.
        if self.login.encryption != MySqlTlsMode::Plain {
            refuse_early_input(input)?;
        }
        let named = greeted.capabilities.contains(Capabilities::PLUGIN_AUTH);
        // Servers without plugin support use this one without naming it.
        let plugin = if named { self.login.plugin } else { Plugin::NativePassword };
        let (auth_exchange, proof) = AuthExchange::guess(plugin, &self.login, &greeted.nonce);
        let response = HandshakeResponse {
            head: self.head(greeted.capabilities),
            user: self.login.user.as_bytes(),
            auth_response: &proof,
            database: self.login.database.as_deref().map(str::as_bytes),
            plugin: named.then_some(plugin.name()),
        };
        packet::write(out, self.packets.number(), |out| response.encode(out))?;
        self.await_verdict(greeted, auth_exchange, 0, input, out)
    }

    fn await_verdict(
        &mut self,
        greeted: GreetingInfo,
        mut auth_exchange: AuthExchange,
        mut switches: u8,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(State, Step), Error> {
        loop {
            let Some(payload) = self.packets.take(input, "reply to the login")? else {
                return Ok((State::AwaitVerdict { greeted, auth_exchange, switches }, Step::NeedInput));
            };
            refuse_err(payload)?;
            if OkPacket::is(payload) {
                OkPacket::parse(payload)?;
                let server = greeted.into_server(auth_exchange.accepted()?);
                return Ok((State::Ended(server), Step::Phase(Phase::Auth)));
            }
            if AuthSwitchRequest::is(payload) {
                if switches == MAX_SWITCHES {
                    return Err(Error::protocol("reply to the login", "too many plugin switches"));
                }
                switches += 1;
                let request = AuthSwitchRequest::parse(payload)?;
                let answer;
                (auth_exchange, answer) = AuthExchange::switch(&request, &self.login)?;
                self.send(&answer, out)?;
            } else {
                let data = payload.strip_prefix(&[MORE_DATA]).unwrap_or(payload);
                if let Some(answer) = auth_exchange.more(data, &self.login)? {
                    self.send(&answer, out)?;
                }
            }
        }
    }

    fn start_tls(&self, greeted: GreetingInfo, input: &[u8]) -> Result<(State, Step), Error> {
        // After an early TLS request these bytes are TLS, and are never interpreted otherwise.
        if self.login.encryption != MySqlTlsMode::EagerTls {
            refuse_early_input(input)?;
        }
        Ok((State::SendLogin(greeted), Step::StartTls))
    }

    fn send(&mut self, answer: &AuthMessage, out: &mut Vec<u8>) -> Result<(), Error> {
        packet::write(out, self.packets.number(), |out| out.extend_from_slice(answer))
    }

    /// A TLS request, or the first fields of a login.
    fn head(&self, capabilities: Capabilities) -> SslRequest {
        let character_set = self.terms.map_or(UTF8MB4, |terms| terms.character_set);
        SslRequest { capabilities, max_packet_bytes: MAX_MESSAGE_BYTES as u32, character_set }
    }

    /// The capabilities that this login uses if the server offers `offered`.
    fn agree(&self, offered: Capabilities) -> Result<Capabilities, Error> {
        let agreed = agree(&self.login, offered)?;
        let Some(Terms { capabilities, .. }) = self.terms else { return Ok(agreed) };
        let capabilities = capabilities & RELAYED;
        if !offered.contains(capabilities) {
            return Err(Error::protocol("greeting", "it offers less than the server did before"));
        }
        let terms = (agreed & OF_LOGIN) | capabilities;
        // MariaDB's extended flags are sent in place of this one.
        Ok(if terms.is_extended() { terms.without(Capabilities::LONG_PASSWORD) } else { terms })
    }
}

impl GreetingInfo {
    fn into_server(self, auth: MySqlAuthMethod) -> MySqlServerInfo {
        let Self { version, connection_id, capabilities, offered, nonce: _, greeting } = self;
        MySqlServerInfo { version, connection_id, capabilities, offered, auth, greeting }
    }
}

/// The capabilities that this login uses if the server offers `offered`.
fn agree(login: &MySqlLogin, offered: Capabilities) -> Result<Capabilities, Error> {
    if login.user.contains('\0') {
        return Err(Error::InvalidLogin { field: "user" });
    }
    if !offered.contains(REQUIRED) {
        return Err(Error::protocol("greeting", "the server is older than 4.1"));
    }
    let mut agreed = (WANTED & offered) | Capabilities::LONG_PASSWORD;
    if let Some(database) = &login.database {
        if database.contains('\0') {
            return Err(Error::InvalidLogin { field: "database" });
        }
        if !offered.contains(Capabilities::CONNECT_WITH_DB) {
            return Err(Error::protocol("greeting", "the server accepts no database at login"));
        }
        agreed = agreed | Capabilities::CONNECT_WITH_DB;
    }
    if login.statements == StatementsPerQuery::Several {
        if !offered.contains(Capabilities::MULTI_STATEMENTS | Capabilities::MULTI_RESULTS) {
            return Err(Error::protocol("greeting", "the server does not offer multiple statements"));
        }
        agreed = agreed | Capabilities::MULTI_STATEMENTS;
    }
    if login.encryption != MySqlTlsMode::Plain {
        if !offered.contains(Capabilities::SSL) {
            return Err(Error::TlsNotOffered);
        }
        agreed = agreed | Capabilities::SSL;
    }
    Ok(agreed)
}

/// Rejects plaintext that would cross into the encrypted part ("NO STARTTLS", USENIX Security 2021: command
/// injection).
fn refuse_early_input(input: &[u8]) -> Result<(), Error> {
    if input.is_empty() {
        return Ok(());
    }
    Err(Error::protocol("greeting", "plaintext follows it where TLS must start"))
}
