//! Follows a client's session so that its next transaction can run on any server connection with the same
//! prepared statements and settings, for transaction pooling. Observes the messages of a
//! [`PostgresRelay`](super::PostgresRelay).
//!
//! A server connection is reset before another client gets it, so it has only this client's prepared
//! statements. They keep the client's names, and are prepared when the client first uses them on the
//! connection, with the parameter types that the server gave them first. Their columns must be the same as before.
//!
//! What a message changes is a [`Note`] on it, which takes effect when the server has confirmed the message.

mod answers;
mod commands;
mod constants;
mod names;
mod notes;
mod own_messages;
mod provision;
mod shape;
mod statements;

use std::sync::Arc;

use foldhash::HashMap;

use crate::postgres::codec::{
    kind,
    message::{HEADER_BYTES, Header},
};
use crate::postgres::{
    codec::{parameters::Parameters, text_rules::StringSyntax},
    relay::{
        backend_model::{BackendModel, SentKind},
        framer::{Piece, checked_header},
        session_follower::{notes::Note, statements::ClientStatement},
    },
    sql::effects::{ArrivingText, Effects, ReadingChange, Remains},
};

pub(crate) use answers::{ReplyAction, needed_bytes, write_probe};
pub use statements::{ClientStatements, ConnectionStatements};

/// What to do with a client's message that starts.
pub(crate) enum MessageAction {
    Forward(Option<Box<Note>>),
    /// Not enough of it has arrived, or it must wait for answers.
    NeedInput,
    /// These messages must be sent before it.
    InsertBefore(Vec<u8>),
}

/// Limit for the texts of all prepared statements of a client. A client that exceeds it is pinned to its
/// connection.
const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// Limit for a text that is held back until it is known which prepared statements it names. Only a connection that
/// lacks some of the client's statements needs that.
const MAX_HELD_BYTES: usize = 64 << 20;
/// Longer messages of a client without a connection are passed on while they arrive.
const MAX_WAITING_BYTES: usize = 16 << 10;
const LONG_STATEMENTS: &str = "prepared statements that are too long";
/// The server compares names in its own character set.
const ENCODED_NAME: &str = "a prepared statement whose name is not ASCII";
const NOT_PORTABLE: &str = "a prepared statement with a constant such as 'now', or that executes another one";

/// The messages that a server has not answered, with what they will change.
pub(crate) type FollowedModel = BackendModel<Option<Box<Note>>>;

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct SessionFollower {
    payload_reader: PayloadReader,
    /// Effects that outlive the transaction, if there are any. The server has confirmed their commands.
    effects: Option<Box<Effects>>,
    /// What the session may have left on the connection, transactions included.
    remains: Remains,
    /// How commands that are not answered yet may change how later texts are read.
    unanswered: ReadingChange,
    /// How those of this transaction may have changed it, as far as the server does not report it.
    unreported: ReadingChange,
    /// The reported settings with which the server reads the constants of a statement that was not answered yet, unless
    /// they change with the same answers.
    parsed_with: Option<Parameters>,
    /// The statement of the last `Parse`, if the server will not be asked to describe it otherwise.
    undescribed: Option<Arc<ClientStatement>>,
    /// Portals of statements with effects.
    portals: HashMap<Vec<u8>, Arc<ClientStatement>>,
    /// Whether there may be such portals.
    notes_portals: bool,
    /// Whether the client's next message must wait for answers.
    wait: Wait,
    speculation: Speculation,
    /// Whether the columns of a statement are compared before the client's next message is sent.
    verifies: bool,
    batch: BatchExecution,
    batch_commands: BatchCommands,
    /// Whether statements are prepared for the client's next text, which waits.
    is_preparing: bool,
    /// Statements that cannot be used on this connection, each with the error that the client gets.
    unusable: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A client's session on a server connection: what its messages may change.
#[derive(Debug)]
pub struct Followed<'a> {
    pub follower: &'a mut SessionFollower,
    pub statements: &'a mut ClientStatements,
    pub prepared: &'a mut ConnectionStatements,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Wait {
    #[default]
    No,
    ForAnswers,
}

/// What the client's batch of messages up to a `Sync` has of portals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BatchExecution {
    #[default]
    Fresh,
    /// Some, of which none was executed. A `Sync` would close them.
    HasPortal,
    HasExecuted,
}

/// What the portals do that the client's batch of messages executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BatchCommands {
    #[default]
    DataAccess,
    /// They may end the transaction, and with it what was set for it.
    Any,
}

/// A statement that only reads is executed on another connection before the server has described it there. If its
/// columns have changed, the client does not get the rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Speculation {
    #[default]
    None,
    /// The statement is prepared, and executed next by the portal without a name.
    Prepared,
    /// It is executed. Nothing but the end of the batch may follow.
    Running,
    /// The same, and nothing at all may follow.
    Ending(BatchEnd),
    /// The columns have changed: the answers to the batch are dropped.
    Failed { name: Vec<u8> },
    /// Now the server must fail, in the batch or after it.
    Due { name: Vec<u8>, batch: BatchEnd },
    /// Its error is next, behind answers that are dropped.
    Failing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchEnd {
    /// The client has not sent its `Sync`.
    Open,
    Over,
}

/// How the payload of the client's current message is read.
#[derive(Debug, Default)]
enum PayloadReader {
    #[default]
    Nothing,
    Text(ArrivingText),
    /// With the header.
    Parse {
        message: Vec<u8>,
        string_syntax: StringSyntax,
        parameters: Parameters,
    },
}

impl SessionFollower {
    /// How the server will read the client's next text.
    fn string_syntax(&self, parameters: &Parameters) -> StringSyntax {
        match self.unanswered {
            ReadingChange::None => parameters.string_syntax(),
            _ => StringSyntax::Unknown,
        }
    }

    /// The server will execute a command with these effects.
    fn reads_after(&mut self, effects: &Effects) {
        let reading = effects.reading();
        self.unanswered = self.unanswered.max(reading);
        if reading.is_unreported() {
            self.unreported = self.unreported.max(reading);
        }
    }

    /// Whether the client's next command must wait for what the server will answer.
    pub fn is_waiting(&self) -> bool {
        self.wait == Wait::ForAnswers
    }

    /// Whether the client's next command must be executed on this connection, which was prepared for it.
    pub fn is_preparing(&self) -> bool {
        self.is_preparing
    }

    /// Whether the proxy must send [`Self::write_failure`] before anything else.
    pub fn owes_failure(&self) -> bool {
        matches!(self.speculation, Speculation::Due { .. })
    }

    /// What the session may have left on the connection.
    pub fn remains(&self) -> Remains {
        self.remains
    }

    fn leave(&mut self, remains: Remains) {
        self.remains = self.remains.max(remains);
    }

    /// Everything is answered: reported settings are the server's.
    fn is_answered(&mut self) {
        self.unanswered = ReadingChange::None;
        self.parsed_with = None;
    }

    /// The server has executed a command with these effects.
    fn apply(&mut self, effects: &Effects) {
        self.leave(effects.remains);
        if !effects.is_none() {
            self.effects.get_or_insert_default().merge(effects);
        }
    }

    /// The server has executed a `DISCARD ALL`.
    fn discard_all(&mut self) {
        let before = self.effects.take().unwrap_or_default();
        self.effects = Some(Box::new(before.discarded()));
        self.portals.clear();
    }

    /// Whether a transaction that has not ended may have defined custom settings. They exist until the session ends.
    pub fn may_have_defined_custom(&self) -> bool {
        self.effects.as_deref().is_some_and(Effects::may_define_custom)
    }

    fn pins(&mut self, what: &'static str) {
        self.effects.get_or_insert_default().pin.get_or_insert(what);
    }

    /// All replies were read and no transaction is open: the effects since the last call, if there are any.
    pub fn settle(&mut self) -> Option<Box<Effects>> {
        if !self.portals.is_empty() {
            self.portals.clear();
        }
        self.notes_portals = false;
        self.unusable.clear();
        self.is_answered();
        self.unreported = ReadingChange::None;
        self.effects.take()
    }
}

impl Followed<'_> {
    /// Continues with the client's current message.
    #[inline]
    pub(crate) fn read(&mut self, piece: Piece<'_>, model: &mut FollowedModel) {
        match &mut self.follower.payload_reader {
            PayloadReader::Nothing => {}
            PayloadReader::Text(text) => {
                if let Some(effects) = text.read(piece.bytes, piece.is_last) {
                    self.follower.payload_reader = PayloadReader::Nothing;
                    self.end_query(effects, model);
                }
            }
            PayloadReader::Parse { message, string_syntax, parameters } => {
                if message.len() <= MAX_STATEMENT_BYTES {
                    message.extend_from_slice(piece.bytes);
                }
                if piece.is_last {
                    let (message, string_syntax) = (std::mem::take(message), *string_syntax);
                    let parameters = std::mem::take(parameters);
                    self.follower.payload_reader = PayloadReader::Nothing;
                    self.end_parse(message, string_syntax, &parameters, model);
                }
            }
        }
    }
}

/// What preparing a statement of this name leaves, whatever its text.
fn left_by_parse(name: &[u8]) -> Remains {
    if name.is_empty() { Remains::UnnamedStatement } else { Remains::Anything }
}

/// What a client sends first between two transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstMessage {
    /// More of it must arrive.
    Incomplete,
    /// A message of so many bytes that changes nothing and is not answered. Not all of it may have arrived.
    Ignored(usize),
    /// A message for the server.
    Command,
}

/// The first message of a client for which the server has nothing to do.
pub fn first_message(input: &[u8]) -> FirstMessage {
    let mut at = 0;
    loop {
        let rest = &input[at..];
        let header = match checked_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) if at + HEADER_BYTES > MAX_WAITING_BYTES => return FirstMessage::Command,
            Ok(None) => return FirstMessage::Incomplete,
            // It is refused where messages are passed on.
            Err(_) => return FirstMessage::Command,
        };
        let bytes = HEADER_BYTES + header.payload_bytes;
        match header.kind {
            // What is left of a COPY that has failed.
            kind::COPY_DATA | kind::COPY_DONE | kind::COPY_FAIL if at == 0 => {
                return FirstMessage::Ignored(bytes);
            }
            kind::FLUSH if header.payload_bytes == 0 && at == 0 => return FirstMessage::Ignored(bytes),
            kind if SentKind::of(kind).is_some() && rest.len() < bytes && at + bytes <= MAX_WAITING_BYTES => {
                return FirstMessage::Incomplete;
            }
            _ if is_quiet_close(header, rest) => at += bytes,
            _ => return FirstMessage::Command,
        }
    }
}

/// Whether it is a complete `Close` that the server answers only together with what follows. It refuses a name that it cannot
/// read at once.
fn is_quiet_close(header: Header, input: &[u8]) -> bool {
    let bytes = HEADER_BYTES + header.payload_bytes;
    header.kind == kind::CLOSE
        && bytes <= MAX_WAITING_BYTES
        && matches!(
            input.get(HEADER_BYTES..bytes),
            Some([b'S' | b'P', name @ .., 0]) if name.is_ascii() && !name.contains(&0)
        )
}

/// Whether the first message is complete and may be answered. An error is answered at once, without a `Sync`.
pub fn has_answered_message(input: &[u8]) -> bool {
    checked_header(input).is_ok_and(|header| {
        header.is_some_and(|header| {
            header.kind != kind::TERMINATE && input.len() >= HEADER_BYTES + header.payload_bytes
        })
    })
}

/// The length of the first command, up to the message that `ReadyForQuery` answers; `None` if it is
/// incomplete.
pub fn first_command_bytes(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let header = checked_header(input.get(at..)?).ok()??;
        at += HEADER_BYTES + header.payload_bytes;
        if matches!(header.kind, kind::QUERY | kind::SYNC | kind::FUNCTION_CALL) {
            return (at <= input.len()).then_some(at);
        }
    }
}
