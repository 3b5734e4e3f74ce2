//! PostgreSQL's frontend/backend protocol, from outside.

use crate::passive::account::{Account, AccountNames};
use crate::passive::event::{AuthMethod, Content, Event, FailureCode};
use crate::passive::message_loop::{AfterMessage, NextPart, PassiveMachine, PassiveMessage};
use crate::passive::messages::MessageLayout;
use crate::postgres::codec::reader::Reader;
use crate::side::ConnectionSide;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
/// The major version of every server since 7.4.
const MAJOR_VERSION: u32 = 3;
/// `ContentType` of a TLS handshake. A message that begins with it would be longer than 350 MB.
const TLS_HANDSHAKE: u8 = 22;

/// Requests for a proof (`AuthenticationOk`, `AuthenticationMD5Password` and so on), by their number.
const AUTH_OK: u32 = 0;
const AUTH_CLEARTEXT: u32 = 3;
const AUTH_MD5: u32 = 5;
const AUTH_GSS: u32 = 7;
const AUTH_SSPI: u32 = 9;
const AUTH_SASL: u32 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct PostgresMachine {
    phase: PostgresPhase,
    asked: Asked,
    awaits_answer: bool,
    /// The client sends TLS before the server has agreed to it.
    is_eager: bool,
    names: AccountNames,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PostgresPhase {
    /// The client's first message, or the next one after a refusal.
    #[default]
    Opening,
    /// The client asked for encryption.
    Asked,
    Login,
    Ready,
}

/// Whether the server asked for a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    /// By this method. Clients without a password close the connection now: nothing was sent.
    For(AuthMethod),
    /// The client has answered.
    Answered,
}

impl PassiveMachine for PostgresMachine {
    fn expected(&mut self, side: ConnectionSide, are_between: [bool; 2], content: &Content<'_>) -> NextPart {
        let is_between = are_between[side as usize];
        let is_opening = matches!(self.phase, PostgresPhase::Opening | PostgresPhase::Asked);
        match side {
            ConnectionSide::Client if !is_opening => NextPart::Message(MessageLayout::Postgres),
            ConnectionSide::Client
                if is_between && matches!(content, Content::Bytes([TLS_HANDSHAKE, ..])) =>
            {
                // TLS from the first byte; or right behind the request, before the server has answered.
                self.is_eager = self.phase == PostgresPhase::Asked;
                if self.is_eager { NextPart::TlsOfSide } else { NextPart::Tls }
            }
            ConnectionSide::Client => NextPart::Message(MessageLayout::PostgresStartup),
            ConnectionSide::Server => {
                // An error in its place comes from servers before 7.0, or from too many clients.
                let is_error = !is_between || matches!(content, Content::Bytes([b'E', ..]));
                let is_answer = self.phase == PostgresPhase::Asked && !is_error;
                NextPart::Message(if is_answer {
                    MessageLayout::PostgresAnswer
                } else {
                    MessageLayout::Postgres
                })
            }
        }
    }

    fn message(
        &mut self,
        side: ConnectionSide,
        message: &PassiveMessage<'_>,
        events: &mut dyn FnMut(Event),
    ) -> AfterMessage {
        match (side, message.layout) {
            (ConnectionSide::Client, MessageLayout::PostgresStartup) => {
                return self.startup(message, events);
            }
            (ConnectionSide::Client, _) => self.request(message.header[0], events),
            (ConnectionSide::Server, MessageLayout::PostgresAnswer) => {
                return self.answer(message.header[0], events);
            }
            (ConnectionSide::Server, _) => self.response(message, events),
        }
        AfterMessage::More
    }
}

impl PostgresMachine {
    pub(super) fn new(names: AccountNames) -> Self {
        Self { names, ..Self::default() }
    }

    fn startup(&mut self, message: &PassiveMessage<'_>, events: &mut dyn FnMut(Event)) -> AfterMessage {
        self.phase = match number(message.body) {
            Some(SSL_REQUEST | GSSENC_REQUEST) => PostgresPhase::Asked,
            Some(CANCEL_REQUEST) => {
                events(Event::Cancel);
                return AfterMessage::Opaque;
            }
            Some(version) if version >> 16 == MAJOR_VERSION => {
                events(Event::LoginStarted);
                if self.names == AccountNames::Read
                    && let Some(account) = account(message.body)
                {
                    events(Event::Account(account));
                }
                PostgresPhase::Login
            }
            _ => return AfterMessage::Lost,
        };
        AfterMessage::More
    }

    fn request(&mut self, kind: u8, events: &mut dyn FnMut(Event)) {
        match kind {
            // Query, Execute and FunctionCall.
            b'Q' | b'E' | b'F' => {
                self.awaits_answer = true;
                events(Event::Query);
            }
            // A password or a proof.
            b'p' => self.answered(events),
            b'X' => events(Event::Terminate),
            _ => {}
        }
    }

    fn answered(&mut self, events: &mut dyn FnMut(Event)) {
        if let Asked::For(method) = std::mem::replace(&mut self.asked, Asked::Answered) {
            events(Event::Login(method));
        }
    }

    fn response(&mut self, message: &PassiveMessage<'_>, events: &mut dyn FnMut(Event)) {
        let (kind, body) = (message.header[0], message.body);
        let is_login = self.phase != PostgresPhase::Ready;
        match kind {
            b'R' if is_login && number(body) == Some(AUTH_OK) => {
                if self.asked == Asked::Nothing {
                    self.asked = Asked::For(AuthMethod::named(b"trust"));
                }
                self.answered(events);
            }
            b'R' if is_login => {
                if let Some(method) = method(body).filter(|_| self.asked == Asked::Nothing) {
                    self.asked = Asked::For(method);
                }
            }
            b'E' if is_login => {
                if let Some(code) = sql_state(body) {
                    events(Event::Refused(code));
                }
            }
            b'Z' if self.phase == PostgresPhase::Login => {
                self.phase = PostgresPhase::Ready;
                events(Event::LoggedIn);
            }
            // Notices, settings and notifications come at any time.
            b'N' | b'S' | b'A' => {}
            _ if std::mem::take(&mut self.awaits_answer) => events(Event::Answer),
            _ => {}
        }
    }

    /// The server's answer to a request for encryption.
    fn answer(&mut self, kind: u8, events: &mut dyn FnMut(Event)) -> AfterMessage {
        match kind {
            b'S' => AfterMessage::Tls,
            b'N' if !self.is_eager => {
                self.phase = PostgresPhase::Opening;
                events(Event::TlsRefused);
                AfterMessage::More
            }
            b'G' => {
                events(Event::GssEncryption);
                AfterMessage::Opaque
            }
            _ => AfterMessage::Lost,
        }
    }
}

fn number(body: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*body.first_chunk()?))
}

/// The names in a `StartupMessage`, by the rules of servers: the last of several counts, and the database's name is the user's
/// unless the message says otherwise.
fn account(body: &[u8]) -> Option<Account> {
    let mut reader = Reader::new(body.get(size_of::<u32>()..)?, "startup message");
    let (mut user, mut database, mut replication, mut is_whole) = (None, None, None, false);
    while let Ok(name) = reader.nul_terminated() {
        if name.is_empty() {
            is_whole = true;
            break;
        }
        let Ok(value) = reader.nul_terminated() else { break };
        let value = Some(value).filter(|value| !value.is_empty());
        match name {
            b"user" => user = value,
            b"database" => database = value,
            b"replication" => replication = value,
            _ => {}
        }
    }
    let user = user?;
    let database = match replication {
        // Physical replication has no database, whatever the message names.
        Some(b"true" | b"on" | b"yes" | b"1") => None,
        _ if is_whole => database.or(Some(user)),
        _ => database,
    };
    Some(Account::named(user, database))
}

/// The method that the server asks for with an `Authentication` message.
fn method(body: &[u8]) -> Option<AuthMethod> {
    let name: &[u8] = match number(body)? {
        AUTH_CLEARTEXT => b"password",
        AUTH_MD5 => b"md5",
        AUTH_GSS => b"gss",
        AUTH_SSPI => b"sspi",
        // The first mechanism is the one that the server prefers.
        AUTH_SASL => body.get(4..)?.split(|byte| *byte == 0).next()?,
        _ => return None,
    };
    Some(AuthMethod::named(name))
}

/// The field `C` of an error.
fn sql_state(body: &[u8]) -> Option<FailureCode> {
    let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'C'))?;
    Some(FailureCode::SqlState(field.get(1..)?.try_into().ok()?))
}
