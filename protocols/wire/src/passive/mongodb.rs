//! MongoDB's wire protocol, from outside.

use memchr::memmem;

use crate::mongodb::codec::header::{OP_COMPRESSED, OP_MSG};
use crate::passive::event::{AuthMethod, Content, Event};
use crate::passive::messages::{MessageLayout, Messages, Next};
use crate::side::ConnectionSide;

/// The operation of old drivers' first message.
const OP_QUERY: u32 = 2004;
const OP_REPLY: u32 = 1;
/// Flags and the kind of a section, in front of the command's document.
const MSG_PREFIX_BYTES: usize = 4 + 1;
/// The section that is the command's document.
const BODY_SECTION: u8 = 0;
/// `ContentType` of a TLS handshake; a message of this length has a header only.
const TLS_HANDSHAKE: u8 = 22;

/// Commands of drivers that no application asked for.
const OF_DRIVERS: [&[u8]; 8] = [
    b"hello",
    b"ismaster",
    b"isMaster",
    b"saslStart",
    b"saslContinue",
    b"authenticate",
    b"ping",
    b"endSessions",
];

#[derive(Clone, Debug, Default)]
pub(super) struct MongoDbMachine {
    client: Messages,
    server: Messages,
    phase: MongoDbPhase,
    awaits_answer: bool,
    is_compressed: bool,
    is_tls: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MongoDbPhase {
    #[default]
    First,
    Login,
    Commands,
    Opaque,
}

impl MongoDbMachine {
    /// Whether a client's first bytes are a message of this protocol.
    pub(super) fn is(bytes: &[u8]) -> bool {
        let operation = bytes.get(12..16).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let known = [OP_MSG, OP_COMPRESSED].map(i32::cast_unsigned);
        operation.is_some_and(|operation| operation == OP_QUERY || known.contains(&operation))
    }

    /// Reads one side's next bytes. Returns what is TLS.
    pub(super) fn read<'a>(
        &mut self,
        side: ConnectionSide,
        mut content: Content<'a>,
        events: &mut impl FnMut(Event),
    ) -> Option<Content<'a>> {
        match side {
            ConnectionSide::Client => self.client.skip(&mut content),
            ConnectionSide::Server => self.server.skip(&mut content),
        }
        loop {
            // MongoDB has no request for TLS: it begins with the first byte, with a record whose version tells it from a message of
            // 790 bytes.
            if self.phase == MongoDbPhase::First
                && self.client.is_between()
                && self.server.is_between()
                && matches!(
                    content,
                    Content::Bytes([TLS_HANDSHAKE, 3, 1..=4, ..] | [TLS_HANDSHAKE, 3] | [TLS_HANDSHAKE])
                )
            {
                self.is_tls = true;
            }
            if self.is_tls {
                return Some(content);
            }
            let goes_on = match side {
                ConnectionSide::Client => self.client_message(&mut content, events),
                ConnectionSide::Server => self.server_message(&mut content, events),
            };
            if !goes_on {
                return None;
            }
        }
    }

    fn client_message(&mut self, content: &mut Content<'_>, events: &mut impl FnMut(Event)) -> bool {
        if self.phase == MongoDbPhase::Opaque {
            return false;
        }
        let (command, mechanism) = match self.client.next(content, MessageLayout::MongoDb) {
            Next::Message { header, body, .. } => match operation(header) {
                Some(OP_QUERY) => (Command::OfDriver, mechanism(body)),
                Some(number) if number == OP_COMPRESSED.cast_unsigned() => (Command::Compressed, None),
                Some(number) if number == OP_MSG.cast_unsigned() => (Command::of(body), mechanism(body)),
                _ => return self.lost(events),
            },
            Next::Starved => return false,
            Next::Lost => return self.lost(events),
        };
        if self.phase == MongoDbPhase::First {
            self.phase = MongoDbPhase::Login;
            events(Event::LoginStarted);
        }
        if let Some(mechanism) = mechanism {
            events(Event::Login(mechanism));
        }
        if command == Command::Compressed && !std::mem::replace(&mut self.is_compressed, true) {
            events(Event::Compressed);
        }
        if command != Command::OfDriver {
            // Only the server says when a login is complete; the client's first query shows that it is.
            if self.phase == MongoDbPhase::Login {
                self.phase = MongoDbPhase::Commands;
                events(Event::LoggedIn);
            }
            self.awaits_answer = true;
            events(Event::Query);
        }
        true
    }

    fn server_message(&mut self, content: &mut Content<'_>, events: &mut impl FnMut(Event)) -> bool {
        if self.phase == MongoDbPhase::Opaque {
            return false;
        }
        match self.server.next(content, MessageLayout::MongoDb) {
            Next::Message { header, .. } => {
                let known = [OP_MSG.cast_unsigned(), OP_COMPRESSED.cast_unsigned(), OP_REPLY];
                if !operation(header).is_some_and(|number| known.contains(&number)) {
                    return self.lost(events);
                }
                if std::mem::take(&mut self.awaits_answer) {
                    events(Event::Answer);
                }
            }
            Next::Starved => return false,
            Next::Lost => return self.lost(events),
        }
        true
    }

    fn lost(&mut self, events: &mut impl FnMut(Event)) -> bool {
        if self.phase != MongoDbPhase::Opaque {
            events(Event::Lost);
        }
        self.phase = MongoDbPhase::Opaque;
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    OfDriver,
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
        if OF_DRIVERS.contains(&name) { Self::OfDriver } else { Self::OfApplication }
    }
}

fn operation(header: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(header.get(12..16)?.try_into().ok()?))
}

/// The mechanism that a login names: `saslStart`, or within a first `hello`.
fn mechanism(body: &[u8]) -> Option<AuthMethod> {
    const KEY: &[u8] = b"\x02mechanism\0";
    let is_login =
        memmem::find(body, b"\x10saslStart\0").is_some() || memmem::find(body, b"authenticate\0").is_some();
    let value = body.get(memmem::find(body, KEY)? + KEY.len() + size_of::<u32>()..)?;
    is_login.then(|| value.split(|byte| *byte == 0).next().map(AuthMethod::named))?
}
