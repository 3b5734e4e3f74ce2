//! Follows a client's session so that its next transaction can run on any server connection with the same
//! prepared statements and settings. Used together with a [`MySqlRelay`], for transaction pooling.
//!
//! A server connection is reset before another client gets it. Servers number prepared statements per
//! connection. The client is given identifiers chosen by the proxy, and a statement is prepared again on a
//! connection that lacks it.

mod statement_commands;

pub(crate) use crate::mysql::sql::lexer::Escapes;

use std::collections::VecDeque;

use foldhash::HashSet;

use crate::{
    mysql::{
        codec::packet::{self, HEADER_BYTES, Header, MAX_PART_BYTES},
        error::Error,
        relay::{
            kill::KillCommand,
            observer::{CompletedResponse, ResponseEnd},
            prepared_statements::{
                ClientStatement, ClientStatements, ConnectionStatements, MAX_STATEMENT_BYTES,
            },
            traffic::{ClientEvent, MySqlRelay},
        },
        sql::effects::{DefaultDatabase, Effects, NextTransaction, StatementCount, TextReader},
    },
    relay::Goodbye,
};

/// Limit of open cursors, and of statements with long data, per client.
const MAX_OPEN: usize = 1 << 12;
const COM_QUIT: u8 = 0x01;
/// The length of a `COM_SET_OPTION` up to its option.
const OPTION_BYTES: usize = 3;

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct SessionFollower {
    escapes: Escapes,
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
    next_transaction: NextTransaction,
    changes: SessionChanges,
}

/// Session changes that outlive the transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionChanges {
    /// Effects found in the texts of statements.
    pub effects: Effects,
    /// The last insert id that the server reported.
    pub insert_id: Option<u64>,
    pub option: Option<u16>,
    /// Whether the client sent a `COM_RESET_CONNECTION`. The other fields describe what followed it.
    pub reset: SessionReset,
    /// The diagnostics of the last command; `None` if no response was read.
    pub diagnostics: Option<Diagnostics>,
    /// Whether the server's last response reported the status flags. An ERR does not.
    pub status: StatusFlags,
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
    Query(TextReader),
    Statement {
        reader: TextReader,
        text: Option<Vec<u8>>,
    },
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
    Execute(u32),
    /// Executes the statement whose prepare is pending: command and payload, which is empty if it was too
    /// long.
    ExecuteLast(u8, Vec<u8>),
    Fetch(u32),
    Option(u16),
    Reset,
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
}

impl SessionFollower {
    /// `escapes`: how the session treats backslashes.
    pub fn new(escapes: Escapes) -> Self {
        Self { escapes, ..Self::default() }
    }

    /// How the session currently treats backslashes.
    pub fn escapes(&self) -> Escapes {
        self.escapes
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
            let rest = &input[client_bytes.pass_bytes..];
            match relay.next_client_event(rest)? {
                ClientEvent::NeedInput => return Ok(client_bytes),
                ClientEvent::Payload(bytes) => {
                    self.read(&rest[..bytes]);
                    client_bytes.pass_bytes += bytes;
                }
                ClientEvent::Header => client_bytes.pass_bytes += HEADER_BYTES,
                ClientEvent::Command(kind, header) => {
                    let payload = &rest[HEADER_BYTES..];
                    client_bytes.reply = Reply::Expected;
                    match self.command(relay, kind, header, payload, statements, prepared)? {
                        CommandAction::NeedInput => return Ok(client_bytes),
                        CommandAction::Prepare(own) => {
                            client_bytes.needs = Some(own);
                            return Ok(client_bytes);
                        }
                        CommandAction::Forward => match relay.begin_command(kind, header, header.length)? {
                            Goodbye::None => client_bytes.pass_bytes += HEADER_BYTES,
                            goodbye @ (Goodbye::Said | Goodbye::Anew) => {
                                client_bytes.goodbye = Some(goodbye);
                                return Ok(client_bytes);
                            }
                        },
                        CommandAction::Replace { insert, drop_bytes, left_bytes } => {
                            relay.begin_command(kind, header, left_bytes)?;
                            client_bytes.reply = if is_silent(kind) { Reply::None } else { Reply::Expected };
                            (client_bytes.insert, client_bytes.drop_bytes) = (insert, drop_bytes);
                            return Ok(client_bytes);
                        }
                    }
                }
            }
            if relay.client_is_between_messages() {
                self.end_message(statements);
            }
        }
    }

    /// Replaces the client's next command, if it is complete and will be answered, and returns its length.
    /// The command sent in its place must be answered with an OK or an ERR.
    pub fn replace(&mut self, relay: &mut MySqlRelay, input: &[u8]) -> Result<Option<usize>, Error> {
        if !relay.client_is_between_messages() {
            return Ok(None);
        }
        let Some(bytes) = first_command_bytes(input) else { return Ok(None) };
        let ClientEvent::Command(kind, header) = relay.next_client_event(input)? else { return Ok(None) };
        relay.begin_command(kind, header, 0)?;
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
            PayloadReader::Nothing => {}
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

    /// A scanner for the client's next text, if no pending command may change how texts are read.
    fn reader(&mut self, statements: &ClientStatements) -> TextReader {
        let changes = |effects: &Effects| effects.settings.iter().any(|name| name == "sql_mode");
        let may_change = |pending: &PendingCommand| match pending {
            PendingCommand::Query(effects) | PendingCommand::Prepare { effects, .. } => {
                effects.as_ref().is_some_and(changes)
            }
            PendingCommand::Execute(own) => {
                statements.get(*own).is_some_and(|statement| changes(&statement.effects))
            }
            PendingCommand::ExecuteLast(..) => statements
                .last
                .and_then(|own| statements.get(own))
                .is_some_and(|statement| changes(&statement.effects)),
            _ => false,
        };
        if self.pending.iter().any(may_change) {
            self.changes.effects.pins("a command behind one that sets sql_mode");
        }
        TextReader::new(self.escapes)
    }

    /// Decides what to do with a command that starts. `payload` is the part that has arrived.
    fn command(
        &mut self,
        relay: &MySqlRelay,
        kind: u8,
        header: Header,
        payload: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<CommandAction, Error> {
        let here = &payload[..payload.len().min(header.length)];
        if relay.may_be_kill(header, payload) {
            return Ok(CommandAction::NeedInput);
        }
        let pending = match kind {
            COM_QUIT => return Ok(CommandAction::Forward),
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
            0x1b => match *here {
                [_, low, high, ..] => PendingCommand::Option(u16::from_le_bytes([low, high])),
                _ if header.length >= OPTION_BYTES => return Ok(CommandAction::NeedInput),
                _ => PendingCommand::Other,
            },
            // COM_RESET_CONNECTION.
            0x1f => PendingCommand::Reset,
            0x17..=0x1a | 0x1c | 0xfa => {
                return self.statement_command(kind, header, here, statements, prepared);
            }
            _ => PendingCommand::Other,
        };
        self.pending.push_back(pending);
        Ok(CommandAction::Forward)
    }

    /// Reads the server's next bytes: those that were neither forwarded nor discarded, and newer ones.
    pub fn process_server(
        &mut self,
        relay: &mut MySqlRelay,
        input: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<ServerBytes, Error> {
        let bytes = relay.process_server(input)?;
        for complete in relay.take_completed() {
            self.complete(complete, statements, prepared);
        }
        let rest = &input[bytes..];
        let mut server_bytes = ServerBytes { bytes, ..ServerBytes::default() };
        if let Some(here) = relay.take_prepared(rest)? {
            let own = self.complete_prepare(here.prepare_ok.params, statements);
            prepared.insert(own, here.prepare_ok.statement_id);
            server_bytes.drop_bytes = here.bytes;
            server_bytes.insert = rest[..here.bytes].to_vec();
            server_bytes.insert[HEADER_BYTES + 1..HEADER_BYTES + 5].copy_from_slice(&own.to_le_bytes());
            for complete in relay.take_completed() {
                self.complete(complete, statements, prepared);
            }
        }
        Ok(server_bytes)
    }

    /// The pending prepare has succeeded; returns the client's identifier of the statement.
    fn complete_prepare(&mut self, params: u16, statements: &mut ClientStatements) -> u32 {
        let (text, effects) = match self.pending.front_mut() {
            Some(PendingCommand::Prepare { effects, text }) => {
                (text.take(), effects.take().unwrap_or_default())
            }
            _ => (None, Effects::default()),
        };
        match &text {
            Some(text) => self.pending_bytes -= text.len(),
            None => self.changes.effects.pins("prepared statements that are too long"),
        }
        statements.add(ClientStatement { text, effects, params, types: None })
    }

    fn complete(
        &mut self,
        complete: CompletedResponse,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        let CompletedResponse { end, insert_id } = complete;
        if insert_id != 0 {
            self.changes.insert_id = Some(insert_id);
        }
        let (status, diagnostics) = match end {
            ResponseEnd::NoStatus => (self.changes.status, Diagnostics::None),
            ResponseEnd::Err => (StatusFlags::Unknown, Diagnostics::Some),
            ResponseEnd::Ok(ok) if ok.warnings > 0 => (StatusFlags::Reported, Diagnostics::Some),
            ResponseEnd::Ok(_) => (StatusFlags::Reported, Diagnostics::None),
        };
        (self.changes.status, self.changes.diagnostics) = (status, Some(diagnostics));
        self.check_next_transaction(end);
        match (self.pending.pop_front(), end) {
            (Some(PendingCommand::Query(Some(effects))), _) => self.apply_effects(&effects, end),
            (Some(PendingCommand::Query(None)), _) => {
                self.changes.effects.pins("a command that was answered before its end");
            }
            (Some(PendingCommand::Prepare { text, .. }), ResponseEnd::Err) => {
                self.pending_bytes -= text.map_or(0, |text| text.len());
                statements.last = None;
            }
            (Some(PendingCommand::Execute(own)), _) => self.executed(own, end, statements),
            (Some(PendingCommand::ExecuteLast(kind, payload)), _) => {
                self.pending_bytes -= payload.len();
                if let Some(own) = statements.last {
                    self.learn_types(own, kind, &payload, statements, prepared);
                    self.executed(own, end, statements);
                }
            }
            (Some(PendingCommand::Fetch(own)), ResponseEnd::Ok(ok)) if ok.last_row_was_sent() => {
                self.cursors.remove(&own);
            }
            (Some(PendingCommand::Option(option)), ResponseEnd::Ok(_)) => self.changes.option = Some(option),
            (Some(PendingCommand::Reset), ResponseEnd::Ok(_)) => {
                statements.clear();
                prepared.clear();
                (self.cursors, self.long_data) = (HashSet::default(), HashSet::default());
                self.next_transaction = NextTransaction::Unchanged;
                self.changes = SessionChanges {
                    reset: SessionReset::Yes,
                    option: self.changes.option,
                    diagnostics: Some(diagnostics),
                    ..SessionChanges::default()
                };
            }
            _ => {}
        }
        if let ResponseEnd::Ok(ok) = end {
            self.escapes =
                if ok.takes_backslashes_as_they_are() { Escapes::None } else { Escapes::Backslash };
        }
    }

    /// A `SET TRANSACTION` applies to the next command that starts a transaction.
    fn check_next_transaction(&mut self, end: ResponseEnd) {
        if self.next_transaction == NextTransaction::Configured {
            self.next_transaction = NextTransaction::Unchanged;
            if !matches!(end, ResponseEnd::Ok(ok) if ok.is_in_transaction()) {
                self.changes.effects.pins("SET TRANSACTION");
            }
        }
    }

    fn executed(&mut self, own: u32, end: ResponseEnd, statements: &ClientStatements) {
        if let ResponseEnd::Ok(ok) = end
            && ok.cursor_exists()
        {
            if self.cursors.len() < MAX_OPEN {
                self.cursors.insert(own);
            } else {
                self.changes.effects.pins("many cursors");
            }
        }
        if let Some(statement) = statements.get(own)
            && !statement.effects.is_none()
        {
            let effects = statement.effects.clone();
            self.apply_effects(&effects, end);
        }
    }

    /// A command with these effects has completed.
    fn apply_effects(&mut self, effects: &Effects, end: ResponseEnd) {
        if end == ResponseEnd::Err && effects.count == StatementCount::One {
            // Connection-bound state may exist although the command failed.
            return self.changes.effects.merge(&Effects { pin: effects.pin, ..Effects::default() });
        }
        self.changes.effects.merge(effects);
        if effects.next_transaction == NextTransaction::Configured
            && !matches!(end, ResponseEnd::Ok(ok) if ok.is_in_transaction())
        {
            self.next_transaction = NextTransaction::Configured;
        }
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

/// The length of the first command, if it is complete and will be answered.
pub fn first_command_bytes(input: &[u8]) -> Option<usize> {
    let (header, payload) = packet::peek_header(input)?;
    let kind = *payload.first()?;
    let bytes = HEADER_BYTES + header.length;
    let is_whole = header.length > 0 && header.length < MAX_PART_BYTES && input.len() >= bytes;
    (is_whole && !is_silent(kind) && kind != COM_QUIT).then_some(bytes)
}

/// Whether the bytes of an idle client start with a `COM_QUIT`.
pub fn begins_with_quit(input: &[u8]) -> bool {
    matches!(packet::peek_header(input), Some((Header { length: 1, .. }, &[COM_QUIT, ..])))
}

/// `COM_STMT_SEND_LONG_DATA` and `COM_STMT_CLOSE`.
fn is_silent(kind: u8) -> bool {
    matches!(kind, 0x18 | 0x19)
}

#[cfg(test)]
mod tests;
