//! MongoDB's wire protocol, from outside.

use bson::{RawBsonRef, RawDocument};
use memchr::memmem;

use crate::mongodb::codec::document;
use crate::mongodb::codec::header::{OP_COMPRESSED, OP_MSG};
use crate::passive::account::{Account, AccountNames};
use crate::passive::event::{AuthMethod, Content, Event, FailureCode};
use crate::passive::message_loop::{AfterMessage, NextPart, PassiveMachine, PassiveMessage};
use crate::passive::messages::MessageLayout;
use crate::side::ConnectionSide;

/// The operation of old drivers' first message.
const OP_QUERY: u32 = 2004;
const OP_REPLY: u32 = 1;
/// Flags and the kind of a section, in front of the command's document.
const MSG_PREFIX_BYTES: usize = 4 + 1;
/// Flags in front of the collection of an `OP_QUERY`.
const QUERY_FLAGS_BYTES: usize = 4;
/// How many documents to skip and to return, behind it.
const QUERY_RANGE_BYTES: usize = 4 + 4;
/// The section that is the command's document.
const BODY_SECTION: u8 = 0;
/// `ContentType` of a TLS handshake; a message of this length has a header only.
const TLS_HANDSHAKE: u8 = 22;

/// Commands of drivers that no application asked for.
const OF_DRIVERS: [&[u8]; 5] = [b"hello", b"ismaster", b"isMaster", b"ping", b"endSessions"];
/// Those of logins.
const OF_LOGINS: [&[u8]; 3] = [b"saslStart", b"saslContinue", b"authenticate"];

/// The start of `done: true`, which ends a conversation of SASL, and of `code`, which only errors have.
const DONE: &[u8] = b"\x08done\0\x01";
const CODE: &[u8] = b"\x10code\0";

#[derive(Clone, Debug, Default)]
pub(super) struct MongoDbMachine {
    phase: MongoDbPhase,
    /// The last command, until it is answered.
    awaited: Option<Command>,
    is_compressed: bool,
    names: AccountNames,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MongoDbPhase {
    #[default]
    First,
    Login,
    Commands,
}

impl PassiveMachine for MongoDbMachine {
    fn expected(&mut self, side: ConnectionSide, are_between: [bool; 2], content: &Content<'_>) -> NextPart {
        // MongoDB has no request for TLS: it begins with the first byte, with a record whose version tells it from a message of
        // 790 bytes.
        let is_tls = self.phase == MongoDbPhase::First
            && are_between == [true; 2]
            && matches!(
                content,
                Content::Bytes([TLS_HANDSHAKE, 3, 1..=4, ..] | [TLS_HANDSHAKE, 3] | [TLS_HANDSHAKE])
            );
        match side {
            _ if is_tls => NextPart::Tls,
            ConnectionSide::Client if self.phase != MongoDbPhase::Commands => {
                NextPart::Message(MessageLayout::MongoDbLogin)
            }
            _ => NextPart::Message(MessageLayout::MongoDb),
        }
    }

    fn message(
        &mut self,
        side: ConnectionSide,
        message: &PassiveMessage<'_>,
        events: &mut dyn FnMut(Event),
    ) -> AfterMessage {
        let operation = operation(message.header);
        match side {
            ConnectionSide::Client => self.request(operation, message.body, events),
            ConnectionSide::Server => self.reply(operation, message.body, events),
        }
    }
}

impl MongoDbMachine {
    pub(super) fn new(names: AccountNames) -> Self {
        Self { names, ..Self::default() }
    }

    /// Whether a client's first bytes are a message of this protocol.
    pub(super) fn is(bytes: &[u8]) -> bool {
        let operation = bytes.get(12..16).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let known = [OP_MSG, OP_COMPRESSED].map(i32::cast_unsigned);
        operation.is_some_and(|operation| operation == OP_QUERY || known.contains(&operation))
    }

    fn request(
        &mut self,
        operation: Option<u32>,
        body: &[u8],
        events: &mut dyn FnMut(Event),
    ) -> AfterMessage {
        let (command, mechanism) = match operation {
            Some(OP_QUERY) => (Command::OfDriver, mechanism(body)),
            Some(number) if number == OP_COMPRESSED.cast_unsigned() => (Command::Compressed, None),
            Some(number) if number == OP_MSG.cast_unsigned() => (Command::of(body), mechanism(body)),
            _ => return AfterMessage::Lost,
        };
        if self.phase == MongoDbPhase::First {
            self.phase = MongoDbPhase::Login;
            events(Event::LoginStarted);
        }
        if self.names == AccountNames::Read
            && let Some(account) = account(operation, body)
        {
            events(Event::Account(account));
        }
        if let Some(mechanism) = mechanism {
            events(Event::Login(mechanism));
        }
        if command == Command::Compressed && !std::mem::replace(&mut self.is_compressed, true) {
            events(Event::Compressed);
        }
        self.awaited = Some(command);
        if !matches!(command, Command::OfDriver | Command::OfLogin) {
            // A client that does not authenticate shows by its first query that it is ready.
            self.logged_in(events);
            events(Event::Query);
        }
        AfterMessage::More
    }

    fn reply(&mut self, operation: Option<u32>, body: &[u8], events: &mut dyn FnMut(Event)) -> AfterMessage {
        let known = [OP_MSG.cast_unsigned(), OP_COMPRESSED.cast_unsigned(), OP_REPLY];
        // Servers do not speak first.
        if self.phase == MongoDbPhase::First || !operation.is_some_and(|number| known.contains(&number)) {
            return AfterMessage::Lost;
        }
        let awaited = self.awaited.take();
        match awaited {
            Some(Command::OfDriver | Command::OfLogin) if self.phase == MongoDbPhase::Login => {
                events(Event::LoginAnswer);
                let code = (awaited == Some(Command::OfLogin)).then(|| code(body)).flatten();
                if let Some(code) = code {
                    events(Event::Refused(code));
                } else if memmem::find(body, DONE).is_some() {
                    self.logged_in(events);
                }
            }
            Some(Command::OfApplication | Command::Compressed) => events(Event::Answer),
            Some(_) | None => {}
        }
        AfterMessage::More
    }

    fn logged_in(&mut self, events: &mut dyn FnMut(Event)) {
        if self.phase == MongoDbPhase::Login {
            self.phase = MongoDbPhase::Commands;
            events(Event::LoggedIn);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    OfDriver,
    OfLogin,
    OfApplication,
    /// Commands of logins are never compressed.
    Compressed,
}

impl Command {
    /// By the first key of the document.
    fn of(body: &[u8]) -> Self {
        const LENGTH_AND_TYPE_BYTES: usize = 4 + 1;
        let key = match body.get(MSG_PREFIX_BYTES - 1..) {
            Some([BODY_SECTION, document @ ..]) => document.get(LENGTH_AND_TYPE_BYTES..).unwrap_or_default(),
            // Documents of a batch may come first; they belong to an insert, an update or a delete.
            _ => return Self::OfApplication,
        };
        let name = key.split(|byte| *byte == 0).next().unwrap_or_default();
        match name {
            _ if OF_DRIVERS.contains(&name) => Self::OfDriver,
            _ if OF_LOGINS.contains(&name) => Self::OfLogin,
            _ => Self::OfApplication,
        }
    }
}

fn operation(header: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(header.get(12..16)?.try_into().ok()?))
}

/// The code of an error.
fn code(reply: &[u8]) -> Option<FailureCode> {
    let value = reply.get(memmem::find(reply, CODE)? + CODE.len()..)?;
    Some(FailureCode::Number(u32::from_le_bytes(*value.first_chunk()?)))
}

/// The mechanism that a login names: `saslStart`, or within a first `hello`.
fn mechanism(body: &[u8]) -> Option<AuthMethod> {
    const KEY: &[u8] = b"\x02mechanism\0";
    let is_login =
        memmem::find(body, b"\x10saslStart\0").is_some() || memmem::find(body, b"authenticate\0").is_some();
    let value = body.get(memmem::find(body, KEY)? + KEY.len() + size_of::<u32>()..)?;
    is_login.then(|| value.split(|byte| *byte == 0).next().map(AuthMethod::named))?
}

/// The names in a login by SCRAM: `saslStart`, or within a first `hello`. The database is the one that knows the user.
fn account(operation: Option<u32>, body: &[u8]) -> Option<Account> {
    let (mut rest, of_collection) = match operation {
        Some(OP_QUERY) => {
            let collection = body.get(QUERY_FLAGS_BYTES..)?;
            let end = collection.iter().position(|byte| *byte == 0)?;
            let database = collection[..end].split(|byte| *byte == b'.').next();
            (collection.get(end + 1 + QUERY_RANGE_BYTES..)?, database)
        }
        _ => match body.get(MSG_PREFIX_BYTES - 1..)? {
            [BODY_SECTION, document @ ..] => (document, None),
            _ => return None,
        },
    };
    let command = document::take(&mut rest).ok()?;
    if let Ok(speculative) = command.get_document("speculativeAuthenticate") {
        return scram_account(speculative, text(speculative, "db"));
    }
    scram_account(command, text(command, "$db").or(of_collection))
}

fn scram_account(login: &RawDocument, database: Option<&[u8]>) -> Option<Account> {
    let first = login.iter().next()?.ok()?;
    if first.0.as_str() != "saslStart" || !text(login, "mechanism")?.starts_with(b"SCRAM-") {
        return None;
    }
    let RawBsonRef::Binary(payload) = login.get("payload").ok()?? else { return None };
    Some(Account::named(scram_user(payload.bytes)?.as_bytes(), database))
}

fn text<'a>(document: &'a RawDocument, key: &str) -> Option<&'a [u8]> {
    document.get_str(key).ok().map(str::as_bytes)
}

/// The user in a `client-first-message` of RFC 5802: channel binding, another identity, and the name, in which `,` and `=` are
/// escaped.
fn scram_user(message: &[u8]) -> Option<String> {
    let name = message.split(|byte| *byte == b',').nth(2)?.strip_prefix(b"n=")?;
    Some(String::from_utf8_lossy(name).replace("=2C", ",").replace("=3D", "="))
}
