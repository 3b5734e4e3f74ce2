//! The protocol of MySQL and MariaDB, from outside.

use crate::mysql::codec::auth_switch::AuthSwitchRequest;
use crate::mysql::codec::capabilities::Capabilities;
use crate::mysql::codec::change_user;
use crate::mysql::codec::greeting::Greeting;
use crate::mysql::codec::handshake_response::HandshakeResponse;
use crate::mysql::codec::reader::Reader;
use crate::mysql::codec::ssl_request::SslRequest;
use crate::passive::account::{Account, AccountNames};
use crate::passive::event::{AuthMethod, Content, Event, FailureCode};
use crate::passive::message_loop::{AfterMessage, NextPart, PassiveMachine, PassiveMessage};
use crate::passive::messages::MessageLayout;
use crate::side::ConnectionSide;

const OK: u8 = 0x00;
const AUTH_SWITCH: u8 = 0xfe;
const ERR: u8 = 0xff;
/// A request for a file of the client, instead of a result.
const LOCAL_FILE: u8 = 0xfb;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_CHANGE_USER: u8 = change_user::HEADER;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_BULK_EXECUTE: u8 = 0xfa;
/// The method of a client that sends no proof of a password; a request for another plugin may follow.
const NO_PASSWORD: &[u8] = b"none";
/// The plugin of servers and clients that name none.
const UNNAMED_PLUGIN: &[u8] = b"mysql_native_password";

#[derive(Clone, Debug, Default)]
pub(super) struct MySqlMachine {
    phase: MySqlPhase,
    server_capabilities: Capabilities,
    client_capabilities: Capabilities,
    server_plugin: Box<[u8]>,
    /// The plugin that the server asked for instead; the client has not answered.
    switched: Option<AuthMethod>,
    /// Whether messages are compressed once the client is logged in.
    is_compressed: bool,
    awaits_answer: bool,
    /// The last packet.
    last: Option<LastPacket>,
    names: AccountNames,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MySqlPhase {
    #[default]
    Greeting,
    Login,
    Commands,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastPacket {
    from: ConnectionSide,
    sequence: u8,
    /// The server asks for a file (LOAD DATA LOCAL). A row may begin like that, too, but never ends an answer.
    asks_for_file: bool,
}

impl PassiveMachine for MySqlMachine {
    fn expected(&mut self, side: ConnectionSide, _: [bool; 2], _: &Content<'_>) -> NextPart {
        NextPart::Message(match (self.phase, side) {
            (MySqlPhase::Commands, _) if self.is_compressed => MessageLayout::MySqlCompressed,
            (MySqlPhase::Greeting, ConnectionSide::Client) => MessageLayout::MySqlLogin,
            _ => MessageLayout::MySql,
        })
    }

    fn message(
        &mut self,
        side: ConnectionSide,
        message: &PassiveMessage<'_>,
        events: &mut dyn FnMut(Event),
    ) -> AfterMessage {
        let before = self.last.replace(LastPacket {
            from: side,
            sequence: message.header[3],
            asks_for_file: side == ConnectionSide::Server && message.body.first() == Some(&LOCAL_FILE),
        });
        match (side, self.phase) {
            (ConnectionSide::Client, MySqlPhase::Greeting) if SslRequest::is(message.body) => {
                return AfterMessage::Tls;
            }
            (ConnectionSide::Client, MySqlPhase::Greeting) => self.login(message.body, events),
            (ConnectionSide::Client, MySqlPhase::Login) => {
                if let Some(method) = self.switched.take().filter(|_| message.body_bytes > 0) {
                    events(Event::Login(method));
                }
            }
            (ConnectionSide::Client, MySqlPhase::Commands) => {
                if let Some(command) = command(message).filter(|_| !continues(before, message)) {
                    self.command(command, message, events);
                }
            }
            (ConnectionSide::Server, MySqlPhase::Commands) => {
                if std::mem::take(&mut self.awaits_answer) {
                    events(Event::Answer);
                }
            }
            (ConnectionSide::Server, _) => return self.login_answer(message.body, events),
        }
        AfterMessage::More
    }

    fn heap_bytes(&self) -> usize {
        self.server_plugin.len()
    }
}

impl MySqlMachine {
    pub(super) fn new(names: AccountNames) -> Self {
        Self { names, ..Self::default() }
    }

    fn login(&mut self, body: &[u8], events: &mut dyn FnMut(Event)) {
        events(Event::LoginStarted);
        self.phase = MySqlPhase::Login;
        self.client_capabilities = client_capabilities(body).unwrap_or_default();
        self.account(login_account(body, self.client_capabilities), events);
        let Ok(login) = HandshakeResponse::parse(body) else { return };
        let plugin = login.plugin.filter(|plugin| !plugin.is_empty()).unwrap_or(&self.server_plugin);
        // Without a password there is nothing to hash, whatever the plugin.
        let has_password = !login.auth_response.is_empty();
        events(Event::Login(AuthMethod::named(if has_password { plugin } else { NO_PASSWORD })));
        let shared = |flag: Capabilities| {
            login.head.capabilities.contains(flag) && self.server_capabilities.contains(flag)
        };
        self.is_compressed = shared(Capabilities::COMPRESS) || shared(Capabilities::ZSTD_COMPRESSION);
    }

    fn account(&self, account: Option<Account>, events: &mut dyn FnMut(Event)) {
        if let Some(account) = account.filter(|_| self.names == AccountNames::Read) {
            events(Event::Account(account));
        }
    }

    fn command(&mut self, command: u8, message: &PassiveMessage<'_>, events: &mut dyn FnMut(Event)) {
        match command {
            COM_QUERY | COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE => {
                self.awaits_answer = true;
                events(Event::Query);
            }
            COM_CHANGE_USER => {
                let packet_header = usize::from(message.layout == MessageLayout::MySqlCompressed) * 4;
                let body = message.body.get(packet_header..).unwrap_or_default();
                self.account(change_of_account(body, self.client_capabilities), events);
            }
            COM_QUIT => events(Event::Terminate),
            _ => {}
        }
    }

    /// A message of the server before the client is logged in.
    fn login_answer(&mut self, body: &[u8], events: &mut dyn FnMut(Event)) -> AfterMessage {
        match (self.phase, body.first()) {
            (_, Some(&ERR)) => {
                let code = body.get(1..3).and_then(|code| code.try_into().ok()).map_or(0, u16::from_le_bytes);
                events(Event::Refused(FailureCode::Number(u32::from(code))));
            }
            (MySqlPhase::Greeting, _) => {
                let Ok(greeting) = Greeting::parse(body) else { return AfterMessage::Lost };
                self.server_capabilities = greeting.capabilities;
                let plugin = if greeting.plugin.is_empty() { UNNAMED_PLUGIN } else { greeting.plugin };
                self.server_plugin = plugin.into();
                events(Event::Greeting);
            }
            (_, Some(&OK)) => {
                self.phase = MySqlPhase::Commands;
                events(Event::LoggedIn);
                if self.is_compressed {
                    events(Event::Compressed);
                }
            }
            (_, Some(&AUTH_SWITCH)) => {
                let request = AuthSwitchRequest::parse(body).ok();
                self.switched = request.map(|request| AuthMethod::named(request.plugin));
            }
            _ => {}
        }
        AfterMessage::More
    }
}

/// What the client of this login can do; clients before 4.1 have 16 flags.
fn client_capabilities(body: &[u8]) -> Option<Capabilities> {
    let low = Capabilities::from_halves(u16::from_le_bytes(*body.first_chunk()?).into(), 0);
    if !low.contains(Capabilities::PROTOCOL_41) {
        return Some(low);
    }
    Some(Capabilities::from_halves(u32::from_le_bytes(*body.first_chunk()?), 0))
}

/// The names in a login, of which the end may be cut off.
fn login_account(body: &[u8], capabilities: Capabilities) -> Option<Account> {
    /// Capabilities and the longest packet.
    const HEAD_BYTES: usize = 2 + 3;
    /// The same with more bytes, a collation and 23 bytes that are reserved.
    const HEAD_41_BYTES: usize = 4 + 4 + 1 + 23;
    let is_41 = capabilities.contains(Capabilities::PROTOCOL_41);
    let names = body.get(if is_41 { HEAD_41_BYTES } else { HEAD_BYTES }..)?;
    let proof = match capabilities {
        _ if !is_41 => ProofLayout::Terminated,
        some if some.contains(Capabilities::PLUGIN_AUTH_LENENC) => ProofLayout::Encoded,
        some => ProofLayout::of_change(some),
    };
    account(names, proof, capabilities.contains(Capabilities::CONNECT_WITH_DB))
}

/// The names in a request to become another user.
fn change_of_account(body: &[u8], capabilities: Capabilities) -> Option<Account> {
    account(body.get(1..)?, ProofLayout::of_change(capabilities), true)
}

/// A user, a proof, and a database if there is one.
fn account(names: &[u8], proof: ProofLayout, has_database: bool) -> Option<Account> {
    let mut reader = Reader::new(names, "names");
    let user = reader.nul_terminated().ok()?;
    let mut database = || {
        match proof {
            ProofLayout::Terminated => reader.nul_terminated(),
            ProofLayout::Counted => reader.u8().and_then(|length| reader.bytes(length.into())),
            ProofLayout::Encoded => reader.lenenc_bytes(),
        }
        .ok()?;
        reader.nul_terminated().ok().filter(|database| !database.is_empty())
    };
    Some(Account::named(user, if has_database { database() } else { None }))
}

/// How the end of a proof is known, behind which the database follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProofLayout {
    Terminated,
    /// Behind a byte with the length.
    Counted,
    /// Behind a length-encoded length.
    Encoded,
}

impl ProofLayout {
    fn of_change(capabilities: Capabilities) -> Self {
        if capabilities.contains(Capabilities::SECURE_CONNECTION) { Self::Counted } else { Self::Terminated }
    }
}

/// Whether a client's packet continues what it sent before, although its number is that of a command: numbers wrap around behind
/// 255. Large payloads and files are split into that many packets.
fn continues(before: Option<LastPacket>, message: &PassiveMessage<'_>) -> bool {
    before.is_some_and(|before| {
        let follows = before.sequence.wrapping_add(1) == message.header[3];
        follows && (before.from == ConnectionSide::Client || before.asks_for_file)
    })
}

/// The command that a packet begins; `None` if it continues another message, or is data for the server.
fn command(message: &PassiveMessage<'_>) -> Option<u8> {
    // Each command begins with the sequence number 0.
    if message.header[3] != 0 {
        return None;
    }
    match message.layout {
        // A packet that is compressed hides its command: most are queries.
        MessageLayout::MySqlCompressed if message.header[4..7] != [0; 3] => Some(COM_QUERY),
        MessageLayout::MySqlCompressed => message.body.get(4).copied(),
        // Only the last packet of a long message may be empty.
        _ if message.body_bytes == 0 => None,
        _ => message.body.first().copied(),
    }
}
