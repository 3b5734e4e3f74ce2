//! Follows a client's session so that its next transaction can run on any server connection with the same
//! prepared statements and settings. Used together with a [`MySqlRelay`], for transaction pooling.
//!
//! A server connection is reset before another client gets it. Servers number prepared statements per
//! connection. The client is given identifiers chosen by the proxy, and a statement is prepared again on a
//! connection that lacks it.

mod numbers;

pub use super::lexer::Escapes;

use std::collections::{HashSet, VecDeque};

use crate::relay::Goodbye;

use super::{
    Error,
    effects::{Count, Effects, Once, TextReader},
    kill::Kill,
    packet::{self, HEADER_BYTES, Header, MAX_PART_BYTES},
    relay::{End, Ended, Relay, Step},
    statements::{MAX_STATEMENT_BYTES, PreparedHere, Statement, Statements},
};

/// Limit of open cursors, and of statements with long data, per client.
const MAX_OPEN: usize = 1 << 12;
const COM_QUIT: u8 = 0x01;
/// The length of a `COM_SET_OPTION` up to its option.
const OPTION_BYTES: usize = 3;

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct Follow {
    escapes: Escapes,
    reading: Reading,
    /// Bytes of the current message before its text.
    skip_bytes: usize,
    /// Commands whose response is pending, in order.
    owed: VecDeque<Owed>,
    /// The size of the texts and payloads in `owed`.
    owed_bytes: usize,
    /// Statements with open cursors, and statements with long data.
    cursors: HashSet<u32>,
    ahead: HashSet<u32>,
    next_transaction: NextTransaction,
    done: Done,
}

/// Session changes that outlive the transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// Effects found in the texts of statements.
    pub effects: Effects,
    /// The last insert id that the server reported.
    pub insert_id: Option<u64>,
    pub option: Option<u16>,
    /// Whether the client sent a `COM_RESET_CONNECTION`. The other fields describe what followed it.
    pub reset: Reset,
    /// The diagnostics of the last command; `None` if no response was read.
    pub diagnostics: Option<Diagnostics>,
    /// Whether the server's last response reported the status flags. An ERR does not.
    pub status: Status,
}

/// Whether the client has reset its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
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
pub enum Status {
    #[default]
    Said,
    /// The server has refused a command since.
    Unknown,
}

/// The state of a `SET TRANSACTION` for the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum NextTransaction {
    #[default]
    Any,
    Described,
}

/// How the payload of the client's current message is read.
#[derive(Debug, Default)]
enum Reading {
    #[default]
    Nothing,
    Query(TextReader),
    Statement {
        reader: TextReader,
        text: Option<Vec<u8>>,
    },
}

#[derive(Debug)]
enum Owed {
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
pub struct Taken {
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
    pub silent: Silent,
}

/// Whether the server will respond to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Silent {
    #[default]
    No,
    Yes,
}

/// What to do with a server's bytes.
#[derive(Debug, Default)]
pub struct Answers {
    /// The number of bytes to forward, from the front.
    pub bytes: usize,
    /// The number of bytes behind those to discard.
    pub drop_bytes: usize,
    /// Bytes to send to the client in place of the discarded ones.
    pub insert: Vec<u8>,
}

/// What to do with a command.
enum Next {
    Passes,
    Waits,
    /// The first `drop_bytes` are replaced; `left_bytes` of the command follow.
    Instead {
        insert: Vec<u8>,
        drop_bytes: usize,
        left_bytes: usize,
    },
    Needs(u32),
}

impl Follow {
    /// `escapes`: how the session treats backslashes.
    pub fn new(escapes: Escapes) -> Self {
        Self { escapes, ..Self::default() }
    }

    /// How the session currently treats backslashes.
    pub fn escapes(&self) -> Escapes {
        self.escapes
    }

    /// Reads the client's next bytes: those that were neither forwarded nor discarded, and newer ones.
    pub fn from_client(
        &mut self,
        relay: &mut Relay,
        input: &[u8],
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        loop {
            let rest = &input[taken.pass_bytes..];
            match relay.step_client(rest)? {
                Step::Waits => return Ok(taken),
                Step::Goes(bytes) => {
                    self.read(&rest[..bytes]);
                    taken.pass_bytes += bytes;
                }
                Step::Header => taken.pass_bytes += HEADER_BYTES,
                Step::Command(kind, header) => {
                    let payload = &rest[HEADER_BYTES..];
                    taken.silent = Silent::No;
                    match self.command(relay, kind, header, payload, statements, prepared)? {
                        Next::Waits => return Ok(taken),
                        Next::Needs(own) => {
                            taken.needs = Some(own);
                            return Ok(taken);
                        }
                        Next::Passes => match relay.begin_command(kind, header, header.length)? {
                            Goodbye::None => taken.pass_bytes += HEADER_BYTES,
                            goodbye @ (Goodbye::Said | Goodbye::Anew) => {
                                taken.goodbye = Some(goodbye);
                                return Ok(taken);
                            }
                        },
                        Next::Instead { insert, drop_bytes, left_bytes } => {
                            relay.begin_command(kind, header, left_bytes)?;
                            taken.silent = if is_silent(kind) { Silent::Yes } else { Silent::No };
                            (taken.insert, taken.drop_bytes) = (insert, drop_bytes);
                            return Ok(taken);
                        }
                    }
                }
            }
            if relay.client_is_between_messages() {
                self.message_ends(statements);
            }
        }
    }

    /// Replaces the client's next command, if it is complete and will be answered, and returns its length.
    /// The command sent in its place must be answered with an OK or an ERR.
    pub fn replace(&mut self, relay: &mut Relay, input: &[u8]) -> Result<Option<usize>, Error> {
        if !relay.client_is_between_messages() {
            return Ok(None);
        }
        let Some(bytes) = first_command_bytes(input) else { return Ok(None) };
        let Step::Command(kind, header) = relay.step_client(input)? else { return Ok(None) };
        relay.begin_command(kind, header, 0)?;
        self.owed.push_back(Owed::Other);
        Ok(Some(bytes))
    }

    /// The command of `kill` was replaced by one with the same kind of response.
    pub fn replaced(&mut self, kill: &Kill, statements: &Statements) {
        let owed = match kill.text() {
            Some(text) => {
                let mut reader = self.reader(statements);
                reader.read(text);
                Owed::Query(Some(reader.end()))
            }
            None => Owed::Other,
        };
        self.owed.push_back(owed);
    }

    fn read(&mut self, piece: &[u8]) {
        let skip = self.skip_bytes.min(piece.len());
        self.skip_bytes -= skip;
        let piece = &piece[skip..];
        match &mut self.reading {
            Reading::Nothing => {}
            Reading::Query(reader) => reader.read(piece),
            Reading::Statement { reader, text } => {
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

    fn message_ends(&mut self, statements: &Statements) {
        match (std::mem::take(&mut self.reading), self.owed.back_mut()) {
            (Reading::Query(reader), Some(Owed::Query(effects))) => *effects = Some(reader.end()),
            (Reading::Statement { reader, text: read }, Some(Owed::Prepare { effects, text })) => {
                let mut read_effects = reader.end();
                *text = read.filter(|read| statements.has_room(self.owed_bytes + read.len()));
                self.owed_bytes += text.as_ref().map_or(0, Vec::len);
                if text.is_none() {
                    read_effects.pins("prepared statements that are too long");
                    self.done.effects.pins("prepared statements that are too long");
                }
                *effects = Some(read_effects);
            }
            (Reading::Nothing, _) => {}
            // The response came before the end of the command.
            _ => self.done.effects.pins("a command whose response came before its end"),
        }
    }

    /// A scanner for the client's next text, if no pending command may change how texts are read.
    fn reader(&mut self, statements: &Statements) -> TextReader {
        let changes = |effects: &Effects| effects.settings.iter().any(|name| name == "sql_mode");
        let may_change = |owed: &Owed| match owed {
            Owed::Query(effects) | Owed::Prepare { effects, .. } => effects.as_ref().is_some_and(changes),
            Owed::Execute(own) => statements.get(*own).is_some_and(|statement| changes(&statement.effects)),
            Owed::ExecuteLast(..) => statements
                .last
                .and_then(|own| statements.get(own))
                .is_some_and(|statement| changes(&statement.effects)),
            _ => false,
        };
        if self.owed.iter().any(may_change) {
            self.done.effects.pins("a command pipelined after one that sets sql_mode");
        }
        TextReader::new(self.escapes)
    }

    /// Decides what to do with a command that starts. `payload` is the part that has arrived.
    fn command(
        &mut self,
        relay: &Relay,
        kind: u8,
        header: Header,
        payload: &[u8],
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) -> Result<Next, Error> {
        let here = &payload[..payload.len().min(header.length)];
        if relay.may_be_kill(header, payload) {
            return Ok(Next::Waits);
        }
        let owed = match kind {
            COM_QUIT => return Ok(Next::Passes),
            // COM_QUERY.
            0x03 => {
                self.reading = Reading::Query(self.reader(statements));
                self.skip_bytes = 1;
                Owed::Query(None)
            }
            // COM_INIT_DB, and COM_DROP_DB.
            0x02 | 0x06 => {
                Owed::Query(Some(Effects { database: super::effects::Database::Other, ..Effects::default() }))
            }
            // COM_STMT_PREPARE.
            0x16 => {
                self.reading = Reading::Statement { reader: self.reader(statements), text: Some(Vec::new()) };
                self.skip_bytes = 1;
                Owed::Prepare { effects: None, text: None }
            }
            // COM_SET_OPTION.
            0x1b => match *here {
                [_, low, high, ..] => Owed::Option(u16::from_le_bytes([low, high])),
                _ if header.length >= OPTION_BYTES => return Ok(Next::Waits),
                _ => Owed::Other,
            },
            // COM_RESET_CONNECTION.
            0x1f => Owed::Reset,
            0x17..=0x1a | 0x1c | 0xfa => {
                return self.of_statement(kind, header, here, statements, prepared);
            }
            _ => Owed::Other,
        };
        self.owed.push_back(owed);
        Ok(Next::Passes)
    }

    /// Reads the server's next bytes: those that were neither forwarded nor discarded, and newer ones.
    pub fn from_server(
        &mut self,
        relay: &mut Relay,
        input: &[u8],
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) -> Result<Answers, Error> {
        let bytes = relay.from_server(input)?;
        for ended in relay.take_ended() {
            self.ended(ended, statements, prepared);
        }
        let rest = &input[bytes..];
        let mut answers = Answers { bytes, ..Answers::default() };
        if let Some(here) = relay.take_prepared(rest)? {
            let own = self.is_prepared(here.prepared.params, statements);
            prepared.insert(own, here.prepared.statement_id);
            answers.drop_bytes = here.bytes;
            answers.insert = rest[..here.bytes].to_vec();
            answers.insert[HEADER_BYTES + 1..HEADER_BYTES + 5].copy_from_slice(&own.to_le_bytes());
            for ended in relay.take_ended() {
                self.ended(ended, statements, prepared);
            }
        }
        Ok(answers)
    }

    /// The pending prepare has succeeded; returns the client's identifier of the statement.
    fn is_prepared(&mut self, params: u16, statements: &mut Statements) -> u32 {
        let (text, effects) = match self.owed.front_mut() {
            Some(Owed::Prepare { effects, text }) => (text.take(), effects.take().unwrap_or_default()),
            _ => (None, Effects::default()),
        };
        match &text {
            Some(text) => self.owed_bytes -= text.len(),
            None => self.done.effects.pins("prepared statements that are too long"),
        }
        statements.add(Statement { text, effects, params, types: None })
    }

    fn ended(&mut self, ended: Ended, statements: &mut Statements, prepared: &mut PreparedHere) {
        let Ended { end, insert_id } = ended;
        if insert_id != 0 {
            self.done.insert_id = Some(insert_id);
        }
        let (status, diagnostics) = match end {
            End::Silent => (self.done.status, Diagnostics::None),
            End::Refused => (Status::Unknown, Diagnostics::Some),
            End::Said(ok) if ok.warnings > 0 => (Status::Said, Diagnostics::Some),
            End::Said(_) => (Status::Said, Diagnostics::None),
        };
        (self.done.status, self.done.diagnostics) = (status, Some(diagnostics));
        self.transaction_begins(end);
        match (self.owed.pop_front(), end) {
            (Some(Owed::Query(Some(effects))), _) => self.has(&effects, end),
            (Some(Owed::Query(None)), _) => {
                self.done.effects.pins("a command whose response came before its end");
            }
            (Some(Owed::Prepare { text, .. }), End::Refused) => {
                self.owed_bytes -= text.map_or(0, |text| text.len());
                statements.last = None;
            }
            (Some(Owed::Execute(own)), _) => self.executed(own, end, statements),
            (Some(Owed::ExecuteLast(kind, payload)), _) => {
                self.owed_bytes -= payload.len();
                if let Some(own) = statements.last {
                    self.learns_types(own, kind, &payload, statements, prepared);
                    self.executed(own, end, statements);
                }
            }
            (Some(Owed::Fetch(own)), End::Said(ok)) if ok.last_row_was_sent() => {
                self.cursors.remove(&own);
            }
            (Some(Owed::Option(option)), End::Said(_)) => self.done.option = Some(option),
            (Some(Owed::Reset), End::Said(_)) => {
                statements.clear();
                prepared.clear();
                (self.cursors, self.ahead) = (HashSet::new(), HashSet::new());
                self.next_transaction = NextTransaction::Any;
                self.done = Done {
                    reset: Reset::Yes,
                    option: self.done.option,
                    diagnostics: Some(diagnostics),
                    ..Done::default()
                };
            }
            _ => {}
        }
        if let End::Said(ok) = end {
            self.escapes =
                if ok.takes_backslashes_as_they_are() { Escapes::None } else { Escapes::Backslash };
        }
    }

    /// A `SET TRANSACTION` applies to the next command that starts a transaction.
    fn transaction_begins(&mut self, end: End) {
        if self.next_transaction == NextTransaction::Described {
            self.next_transaction = NextTransaction::Any;
            if !matches!(end, End::Said(ok) if ok.is_in_transaction()) {
                self.done.effects.pins("SET TRANSACTION");
            }
        }
    }

    fn executed(&mut self, own: u32, end: End, statements: &Statements) {
        if let End::Said(ok) = end
            && ok.cursor_exists()
        {
            if self.cursors.len() < MAX_OPEN {
                self.cursors.insert(own);
            } else {
                self.done.effects.pins("many cursors");
            }
        }
        if let Some(statement) = statements.get(own)
            && !statement.effects.is_none()
        {
            let effects = statement.effects.clone();
            self.has(&effects, end);
        }
    }

    /// A command with these effects has completed.
    fn has(&mut self, effects: &Effects, end: End) {
        if end == End::Refused && effects.count == Count::One {
            // Connection-bound state may exist although the command failed.
            return self.done.effects.merge(&Effects { pin: effects.pin, ..Effects::default() });
        }
        self.done.effects.merge(effects);
        if effects.once == Once::NextTransaction && !matches!(end, End::Said(ok) if ok.is_in_transaction()) {
            self.next_transaction = NextTransaction::Described;
        }
    }

    /// Whether something is open that a reset would discard: a cursor, long data, or a `SET TRANSACTION`.
    pub fn is_open(&self) -> bool {
        !self.cursors.is_empty()
            || !self.ahead.is_empty()
            || self.next_transaction == NextTransaction::Described
    }

    /// All responses were read: the session changes since the last call.
    pub fn settle(&mut self) -> Done {
        std::mem::take(&mut self.done)
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
