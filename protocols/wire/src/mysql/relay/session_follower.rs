//! Follows a client's session so that its next transaction can run on any server connection with the same
//! prepared statements and settings. Used together with a [`MySqlRelay`], for transaction pooling.
//!
//! A server connection is reset before another client gets it. Servers number prepared statements per
//! connection. The client is given identifiers chosen by the proxy, and a statement is prepared again on a
//! connection that lacks it.

mod no_database;
mod responses;
mod statement_commands;
mod transaction_state;

pub use transaction_state::SettingFlags;

use std::{collections::VecDeque, sync::Arc};

use foldhash::{HashMap, HashSet};

use crate::{
    mysql::{
        codec::{
            change_user,
            command::{encode_ping, encode_statement_close},
            packet::{self, HEADER_BYTES, Header, MAX_PART_BYTES},
        },
        error::Error,
        relay::{
            commands::CommandStart,
            kill::KillCommand,
            prepared_statements::{
                ClientStatements, ConnectionStatements, MAX_STATEMENT_BYTES, ParameterTypes,
                UNKNOWN_STATEMENT,
            },
            traffic::{ClientEvent, MySqlRelay},
        },
        sql::effects::{CHARACTER_SETS, DefaultDatabase, Effects, NextTransaction, TextReader},
    },
    relay::Goodbye,
};
use transaction_state::TransactionState;

/// Limit of open cursors, and of statements with long data, per client.
const MAX_OPEN: usize = 1 << 12;
const COM_QUIT: u8 = 0x01;
/// The length of a `COM_SET_OPTION` up to its option.
const OPTION_BYTES: usize = 3;

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct SessionFollower {
    /// The flags that the server reported last.
    flags: SettingFlags,
    transaction: TransactionState,
    payload_reader: PayloadReader,
    /// Bytes of the current message before its text.
    skip_bytes: usize,
    /// Commands whose response is pending, in order.
    pending: VecDeque<PendingCommand>,
    /// The size of the texts and payloads in `pending`.
    pending_bytes: usize,
    /// Statements with open cursors, and statements with long data.
    cursors: HashSet<u32>,
    long_data: HashSet<u32>,
    /// Statements that could not be prepared again here, each with the server's ERR: its next execution fails with it.
    failed: HashMap<u32, Vec<u8>>,
    next_transaction: NextTransaction,
    /// The ERR that commands get until the client has chosen another default database.
    no_database: Option<Vec<u8>>,
    changes: SessionChanges,
}

/// Session changes that outlive the transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionChanges {
    /// Effects found in the texts of statements.
    pub effects: Effects,
    /// The last insert id that the server reported.
    pub insert_id: Option<u64>,
    /// Whether that need not be the value of `LAST_INSERT_ID()`.
    pub insert_id_query: InsertIdQuery,
    pub option: Option<u16>,
    /// Whether the client sent a `COM_RESET_CONNECTION`. The other fields describe what followed it.
    pub reset: SessionReset,
    /// The diagnostics of the last command; `None` if no response was read.
    pub diagnostics: Option<Diagnostics>,
    /// Whether a command that has changed settings left diagnostics.
    pub diagnostics_of_settings: Diagnostics,
    /// Whether the server's last response reported the status flags. An ERR does not.
    pub status: StatusFlags,
}

/// Whether the server must be asked for `LAST_INSERT_ID()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum InsertIdQuery {
    #[default]
    None,
    /// A statement has failed that may have generated a key before.
    AfterError,
    Needed,
}

/// Whether the client has reset its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionReset {
    #[default]
    No,
    Yes,
}

/// Whether `SHOW WARNINGS` would return rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Diagnostics {
    #[default]
    None,
    Some,
}

impl Diagnostics {
    fn of(warnings: u16) -> Self {
        if warnings > 0 { Self::Some } else { Self::None }
    }
}

/// Whether the session's status flags are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusFlags {
    #[default]
    Reported,
    /// The server has refused a command since.
    Unknown,
}

/// How the payload of the client's current message is read.
#[derive(Debug, Default)]
enum PayloadReader {
    #[default]
    Nothing,
    /// The message is not forwarded. At its end the server gets a command in its place.
    Discard(Reply),
    Query(TextReader),
    Statement {
        reader: TextReader,
        text: Option<Vec<u8>>,
    },
}

/// Types that a bulk execute has sent, and whether the connection knew those of the statement before.
#[derive(Debug)]
struct BulkTypes {
    types: Vec<u8>,
    before: ParameterTypes,
}

#[derive(Debug)]
enum PendingCommand {
    Other,
    /// `None` until the command is complete.
    Query(Option<Effects>),
    Prepare {
        effects: Option<Effects>,
        text: Option<Vec<u8>>,
    },
    /// The effects are those of the statement, which the client may close before the response.
    /// Also the types of a bulk execute.
    Execute(u32, Arc<Effects>, Option<Box<BulkTypes>>),
    /// Executes the statement whose prepare is pending: command and payload, which is empty if it was too
    /// long.
    ExecuteLast(u8, Vec<u8>),
    Fetch(u32),
    /// `COM_STMT_RESET`.
    ResetStatement {
        own: u32,
        data: ResetData,
    },
    Option(u16),
    Reset,
    /// The client gets this ERR in place of the server's OK.
    Refused(Vec<u8>),
}

/// When the data were sent that the client has sent ahead of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResetData {
    /// Before the `COM_STMT_RESET`, which removes them.
    Earlier,
    Later,
}

/// What to do with a client's bytes.
#[derive(Debug, Default)]
pub struct ClientBytes {
    /// The number of bytes to forward, from the front.
    pub pass_bytes: usize,
    /// The number of bytes behind those to discard.
    pub drop_bytes: usize,
    /// Bytes to send to the server in place of the discarded ones.
    pub insert: Vec<u8>,
    /// Whether the session ends after the forwarded bytes.
    pub goodbye: Option<Goodbye>,
    /// The client's identifier of a statement that must be prepared before the rest is read.
    pub needs: Option<u32>,
    /// Whether the server responds to the last command.
    pub reply: Reply,
}

/// Whether the server will respond to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reply {
    #[default]
    None,
    Expected,
}

/// What to do with a server's bytes.
#[derive(Debug, Default)]
pub struct ServerBytes {
    /// The number of bytes to forward, from the front.
    pub bytes: usize,
    /// The number of bytes behind those to discard.
    pub drop_bytes: usize,
    /// Bytes to send to the client in place of the discarded ones.
    pub insert: Vec<u8>,
}

/// What to do with a command.
enum CommandAction {
    Forward,
    NeedInput,
    /// The first `drop_bytes` are replaced; `left_bytes` of the command follow.
    Replace {
        insert: Vec<u8>,
        drop_bytes: usize,
        left_bytes: usize,
    },
    /// This statement must be prepared first.
    Prepare(u32),
    /// The command is not forwarded. If a response is expected, the client gets this ERR.
    Discard(Option<Vec<u8>>),
}

impl SessionFollower {
    /// `flags`: those of the session when its settings are restored.
    pub fn new(flags: SettingFlags) -> Self {
        Self { flags, ..Self::default() }
    }

    /// The same, before the first command.
    pub fn begin_with(&mut self, flags: SettingFlags) {
        self.flags = flags;
    }

    /// The flags that the server reported last.
    pub fn flags(&self) -> SettingFlags {
        self.flags
    }

    /// Reads the client's next bytes: those that were neither forwarded nor discarded, and newer ones.
    pub fn process_client(
        &mut self,
        relay: &mut MySqlRelay,
        input: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<ClientBytes, Error> {
        let mut client_bytes = ClientBytes::default();
        loop {
            let rest = &input[client_bytes.pass_bytes + client_bytes.drop_bytes..];
            let is_discarded = matches!(self.payload_reader, PayloadReader::Discard(_));
            match relay.next_client_event(rest) {
                ClientEvent::NeedInput => return Ok(client_bytes),
                ClientEvent::Payload(bytes) if is_discarded => client_bytes.drop_bytes += bytes,
                ClientEvent::Header if is_discarded => client_bytes.drop_bytes += HEADER_BYTES,
                ClientEvent::Payload(bytes) => {
                    self.read(&rest[..bytes]);
                    client_bytes.pass_bytes += bytes;
                }
                ClientEvent::Header => client_bytes.pass_bytes += HEADER_BYTES,
                ClientEvent::Command(_) if relay.is_full() || self.awaits_reset() => return Ok(client_bytes),
                ClientEvent::Command(command) => {
                    let arrived = command.header.arrived(rest);
                    client_bytes.reply = Reply::Expected;
                    let action = self.command(relay, command, arrived, statements, prepared)?;
                    if self.begin_command(relay, command, action, &mut client_bytes)? == NextStep::Stop {
                        return Ok(client_bytes);
                    }
                }
            }
            if relay.client_is_between_messages() {
                if let PayloadReader::Discard(reply) = self.payload_reader {
                    self.payload_reader = PayloadReader::Nothing;
                    client_bytes.reply = reply;
                    put_in_place_of_discarded(reply, &mut client_bytes.insert);
                    return Ok(client_bytes);
                }
                self.end_message(statements);
            }
        }
    }

    /// Starts a command as decided.
    fn begin_command(
        &mut self,
        relay: &mut MySqlRelay,
        command: CommandStart,
        action: CommandAction,
        client_bytes: &mut ClientBytes,
    ) -> Result<NextStep, Error> {
        match action {
            CommandAction::NeedInput => return Ok(NextStep::Stop),
            CommandAction::Prepare(own) => {
                client_bytes.needs = Some(own);
                return Ok(NextStep::Stop);
            }
            CommandAction::Forward => match relay.begin_command(command, command.header.length)? {
                Goodbye::None => client_bytes.pass_bytes += HEADER_BYTES,
                goodbye @ (Goodbye::Said | Goodbye::ChangeUser) => {
                    client_bytes.goodbye = Some(goodbye);
                    return Ok(NextStep::Stop);
                }
            },
            CommandAction::Replace { insert, drop_bytes, left_bytes } => {
                relay.begin_command(command, left_bytes)?;
                client_bytes.reply = if is_silent(command.kind) { Reply::None } else { Reply::Expected };
                (client_bytes.insert, client_bytes.drop_bytes) = (insert, drop_bytes);
                return Ok(NextStep::Stop);
            }
            CommandAction::Discard(err) => {
                let reply = if err.is_some() { Reply::Expected } else { Reply::None };
                match err {
                    Some(err) => {
                        relay.begin_refused(command);
                        self.pending.push_back(PendingCommand::Refused(err));
                    }
                    None => drop(relay.begin_command(command, command.header.length)?),
                }
                self.payload_reader = PayloadReader::Discard(reply);
                client_bytes.drop_bytes += HEADER_BYTES;
            }
        }
        Ok(NextStep::Continue)
    }

    /// This statement cannot be prepared on this connection, for which the server sent this ERR.
    pub fn preparation_failed(&mut self, own: u32, err: Vec<u8>) {
        self.failed.insert(own, err);
    }

    /// The server has refused the client's default database with this ERR. The connection has that of the login: no
    /// command unsets it, and the client's texts must not be read with it.
    pub fn database_refused(&mut self, err: Vec<u8>) {
        self.no_database = Some(err);
    }

    pub fn has_no_database(&self) -> bool {
        self.no_database.is_some()
    }

    /// Replaces the client's next command, if it is complete and will be answered, and returns its length.
    /// The command sent in its place must be answered with an OK or an ERR.
    pub fn replace(&mut self, relay: &mut MySqlRelay, input: &[u8]) -> Result<Option<usize>, Error> {
        if !relay.client_is_between_messages() {
            return Ok(None);
        }
        let Some(bytes) = first_command_bytes(input) else { return Ok(None) };
        let ClientEvent::Command(command) = relay.next_client_event(input) else { return Ok(None) };
        relay.begin_command(command, 0)?;
        self.pending.push_back(PendingCommand::Other);
        Ok(Some(bytes))
    }

    /// The command of `kill` was replaced by one with the same kind of response.
    pub fn replaced(&mut self, kill: &KillCommand, statements: &ClientStatements) {
        let pending = match kill.text() {
            Some(text) => {
                let mut reader = self.reader(statements);
                reader.read(text);
                PendingCommand::Query(Some(reader.end()))
            }
            None => PendingCommand::Other,
        };
        self.pending.push_back(pending);
    }

    fn read(&mut self, piece: &[u8]) {
        let skip = self.skip_bytes.min(piece.len());
        self.skip_bytes -= skip;
        let piece = &piece[skip..];
        match &mut self.payload_reader {
            PayloadReader::Nothing | PayloadReader::Discard(_) => {}
            PayloadReader::Query(reader) => reader.read(piece),
            PayloadReader::Statement { reader, text } => {
                reader.read(piece);
                match text {
                    Some(kept) if kept.len() + piece.len() <= MAX_STATEMENT_BYTES => {
                        kept.extend_from_slice(piece);
                    }
                    _ => *text = None,
                }
            }
        }
    }

    fn end_message(&mut self, statements: &ClientStatements) {
        match (std::mem::take(&mut self.payload_reader), self.pending.back_mut()) {
            (PayloadReader::Query(reader), Some(PendingCommand::Query(effects))) => {
                *effects = Some(reader.end());
            }
            (
                PayloadReader::Statement { reader, text: read },
                Some(PendingCommand::Prepare { effects, text }),
            ) => {
                let mut read_effects = reader.end();
                *text = read.filter(|read| statements.has_room(self.pending_bytes + read.len()));
                self.pending_bytes += text.as_ref().map_or(0, Vec::len);
                if text.is_none() {
                    read_effects.pins("prepared statements that are too long");
                    self.changes.effects.pins("prepared statements that are too long");
                }
                *effects = Some(read_effects);
            }
            (PayloadReader::Nothing, _) => {}
            // The response came before the end of the command.
            _ => self.changes.effects.pins("a command that was answered before its end"),
        }
    }

    /// A scanner for the client's next text.
    fn reader(&mut self, statements: &ClientStatements) -> TextReader {
        if self.pending_sets("sql_mode", statements) {
            self.changes.effects.pins("a command behind one that sets sql_mode");
        }
        let mut reader = TextReader::new(self.flags.escapes());
        let character_set = CHARACTER_SETS[0];
        if self.changes.effects.settings.iter().any(|name| name == character_set)
            || self.pending_sets(character_set, statements)
        {
            reader.behind_character_set();
        }
        reader
    }

    /// Whether a pending command may change this setting.
    fn pending_sets(&self, setting: &str, statements: &ClientStatements) -> bool {
        let changes = |effects: &Effects| effects.settings.iter().any(|name| name == setting);
        let may_change = |pending: &PendingCommand| match pending {
            PendingCommand::Query(effects) | PendingCommand::Prepare { effects, .. } => {
                effects.as_ref().is_some_and(changes)
            }
            PendingCommand::Execute(_, effects, _) => changes(effects),
            PendingCommand::ExecuteLast(..) => statements
                .last
                .and_then(|own| statements.get(own))
                .is_some_and(|statement| changes(&statement.effects)),
            _ => false,
        };
        self.pending.iter().any(may_change)
    }

    /// Whether the next command waits for the answer to a `COM_RESET_CONNECTION`, which shows how texts are read then.
    pub fn awaits_reset(&self) -> bool {
        matches!(self.pending.back(), Some(PendingCommand::Reset))
    }

    /// Decides what to do with a command that starts. `arrived` is the part of it that has arrived.
    fn command(
        &mut self,
        relay: &MySqlRelay,
        command: CommandStart,
        arrived: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<CommandAction, Error> {
        let CommandStart { kind, header, .. } = command;
        if relay.may_be_kill(header, arrived) {
            return Ok(CommandAction::NeedInput);
        }
        if self.no_database.is_some()
            && let Some(action) = self.without_database(kind, header, arrived)
        {
            return Ok(action);
        }
        let pending = match kind {
            COM_QUIT | change_user::HEADER => return Ok(CommandAction::Forward),
            // COM_QUERY.
            0x03 => {
                self.payload_reader = PayloadReader::Query(self.reader(statements));
                self.skip_bytes = 1;
                PendingCommand::Query(None)
            }
            // COM_INIT_DB, and COM_DROP_DB.
            0x02 | 0x06 => PendingCommand::Query(Some(Effects {
                database: DefaultDatabase::MayDiffer,
                ..Effects::default()
            })),
            // COM_STMT_PREPARE.
            0x16 => {
                self.payload_reader =
                    PayloadReader::Statement { reader: self.reader(statements), text: Some(Vec::new()) };
                self.skip_bytes = 1;
                PendingCommand::Prepare { effects: None, text: None }
            }
            // COM_SET_OPTION.
            0x1b => match *arrived {
                [_, low, high, ..] => PendingCommand::Option(u16::from_le_bytes([low, high])),
                _ if header.length >= OPTION_BYTES => return Ok(CommandAction::NeedInput),
                _ => PendingCommand::Other,
            },
            // COM_RESET_CONNECTION.
            0x1f => PendingCommand::Reset,
            0x17..=0x1a | 0x1c | 0xfa => {
                return self.statement_command(kind, header, arrived, statements, prepared);
            }
            _ => PendingCommand::Other,
        };
        self.pending.push_back(pending);
        Ok(CommandAction::Forward)
    }

    /// Whether the server's last response reported the status flags.
    pub fn status(&self) -> StatusFlags {
        self.changes.status
    }

    /// Whether a savepoint may exist although no transaction is reported.
    pub fn may_have_savepoint(&self) -> bool {
        self.transaction.may_have_savepoint()
    }

    /// Whether something is open that a reset would discard: a cursor, long data, or a `SET TRANSACTION`.
    pub fn is_open(&self) -> bool {
        !self.cursors.is_empty()
            || !self.long_data.is_empty()
            || self.next_transaction == NextTransaction::Configured
    }

    /// All responses were read: the session changes since the last call.
    pub fn settle(&mut self) -> SessionChanges {
        std::mem::take(&mut self.changes)
    }
}

/// Whether the client's bytes are read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Continue,
    Stop,
}

/// What the server gets in place of a command that is not forwarded. A `COM_STMT_CLOSE` has no response.
fn put_in_place_of_discarded(reply: Reply, insert: &mut Vec<u8>) {
    match reply {
        Reply::Expected => encode_ping(insert),
        Reply::None => encode_statement_close(insert, UNKNOWN_STATEMENT),
    }
}

/// The length of the first command, if it is complete and will be answered.
pub fn first_command_bytes(input: &[u8]) -> Option<usize> {
    let (header, payload) = packet::peek_header(input)?;
    let kind = *payload.first()?;
    let bytes = HEADER_BYTES + header.length;
    let is_whole = header.length > 0 && header.length < MAX_PART_BYTES && input.len() >= bytes;
    (is_whole && !is_silent(kind) && kind != COM_QUIT).then_some(bytes)
}

/// Whether there is a complete command that the server answers, also behind others that it does not answer. It answers an
/// empty command; a command of several packets counts as complete.
pub fn has_answered_command(mut input: &[u8]) -> bool {
    while let Some((header, payload)) = packet::peek_header(input)
        && header.length > 0
        && payload.first().is_some_and(|kind| is_silent(*kind))
        && let Some(rest) = input.get(HEADER_BYTES + header.length..)
    {
        input = rest;
    }
    let is_special = |length: usize| length == 0 || length == MAX_PART_BYTES;
    packet::peek_header(input).is_some_and(|(header, _)| is_special(header.length))
        || first_command_bytes(input).is_some()
}

/// Whether the bytes of an idle client start with a `COM_QUIT`.
pub fn begins_with_quit(input: &[u8]) -> bool {
    matches!(packet::peek_header(input), Some((Header { length: 1, .. }, &[COM_QUIT, ..])))
}

/// Whether the bytes of an idle client start with a `COM_RESET_CONNECTION` or a `COM_CHANGE_USER`, which set its settings
/// back.
pub fn begins_with_reset(input: &[u8]) -> bool {
    matches!(packet::peek_header(input), Some((_, &[0x1f | change_user::HEADER, ..])))
}

/// `COM_STMT_SEND_LONG_DATA` and `COM_STMT_CLOSE`.
fn is_silent(kind: u8) -> bool {
    matches!(kind, 0x18 | 0x19)
}

#[cfg(test)]
mod tests;
