//! What one between client and server must follow so that a client finds its prepared statements and its settings on
//! whichever connection its next transaction gets: beside [`Relay`], for sessions that are parted after each transaction.
//!
//! A connection that was another client's is reset before it is given to this one. Statements have other numbers on each
//! connection; a client is told numbers of the proxy's own, and what it names is prepared anew where it is not there.

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

/// Cursors, and statements with data that was sent ahead, of one client at a time.
const MAX_OPEN: usize = 1 << 12;
const COM_QUIT: u8 = 0x01;
/// What of a `COM_SET_OPTION` says what it sets.
const OPTION_BYTES: usize = 3;

/// Follows one client on one connection.
#[derive(Debug, Default)]
pub struct Follow {
    escapes: Escapes,
    reading: Reading,
    /// Of the message that is read, bytes in front of its text.
    skip_bytes: usize,
    /// Answers that are to come, in their order.
    owed: VecDeque<Owed>,
    /// Of texts and payloads in those.
    owed_bytes: usize,
    /// Statements with open cursors, and with data for what comes next.
    cursors: HashSet<u32>,
    ahead: HashSet<u32>,
    next_transaction: NextTransaction,
    done: Done,
}

/// What was done that outlives the transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// As texts tell.
    pub effects: Effects,
    /// The last key that the server has told of.
    pub insert_id: Option<u64>,
    /// The last `COM_SET_OPTION`.
    pub option: Option<u16>,
    /// A `COM_RESET_CONNECTION`, behind which the rest was done.
    pub reset: Reset,
    /// What the last command has left to be asked for; none if nothing was answered.
    pub diagnostics: Option<Diagnostics>,
    /// Whether the server's last word told how the session is: an ERR does not.
    pub status: Status,
}

/// Whether a client has given up all that its session had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
    /// It has not.
    #[default]
    No,
    /// It has.
    Yes,
}

/// What `SHOW WARNINGS` would say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Diagnostics {
    /// Nothing.
    #[default]
    None,
    /// Something.
    Some,
}

/// Whether it is known how a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// The server has said it.
    #[default]
    Said,
    /// The server has refused something since.
    Unknown,
}

/// What was said of the next transaction alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum NextTransaction {
    #[default]
    Any,
    Described,
}

/// What is read of the client's current message beyond its header.
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
    /// Its effects, when all of it has come.
    Query(Option<Effects>),
    Prepare {
        effects: Option<Effects>,
        text: Option<Vec<u8>>,
    },
    Execute(u32),
    /// What is being prepared is executed at once, by a command of this kind and payload, if that is not long.
    ExecuteLast(u8, Vec<u8>),
    Fetch(u32),
    Option(u16),
    Reset,
}

/// What is to become of a client's bytes.
#[derive(Debug, Default)]
pub struct Taken {
    /// So many from the front are the server's.
    pub pass_bytes: usize,
    /// So many behind those are nobody's.
    pub drop_bytes: usize,
    /// What the server is to be told behind those that are its own, in place of them.
    pub insert: Vec<u8>,
    /// Whether a goodbye follows.
    pub goodbye: Option<Goodbye>,
    /// This statement of the client's must be prepared before the rest is looked at.
    pub needs: Option<u32>,
    /// Whether the last of it is something that nobody answers.
    pub silent: Silent,
}

/// Whether a command will be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Silent {
    /// It will.
    #[default]
    No,
    /// It will not.
    Yes,
}

/// What is to become of a server's bytes.
#[derive(Debug, Default)]
pub struct Answers {
    /// So many from the front are the client's.
    pub bytes: usize,
    /// So many behind those are nobody's.
    pub drop_bytes: usize,
    /// What the client is told in place of them.
    pub insert: Vec<u8>,
}

/// What is to be done with a command.
enum Next {
    Passes,
    Waits,
    /// Something else is sent in place of its front; so much of it follows.
    Instead {
        insert: Vec<u8>,
        drop_bytes: usize,
        left_bytes: usize,
    },
    Needs(u32),
}

impl Follow {
    /// Follows a client that reads and writes so.
    pub fn new(escapes: Escapes) -> Self {
        Self { escapes, ..Self::default() }
    }

    /// How the session takes backslashes now.
    pub fn escapes(&self) -> Escapes {
        self.escapes
    }

    /// Looks at the client's next bytes: those that were not passed on or dropped, and newer ones.
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

    /// Has another command sent in place of the client's next one, if all of that is here and will be answered: its
    /// length. What is sent must be answered with an OK or an ERR.
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

    /// A command with other KILLs is sent in place of this one, and is answered alike.
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
            // It was answered before it was said.
            _ => self.done.effects.pins("a command that was answered before its end"),
        }
    }

    /// Reads a text as the session will, if nothing that is asked changes that.
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
            self.done.effects.pins("a command behind one that sets sql_mode");
        }
        TextReader::new(self.escapes)
    }

    /// A command is about to begin, of which this is here.
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

    /// Looks at the server's next bytes: those that were not passed on or dropped, and newer ones.
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

    /// The next answer's statement is prepared: the client's number for it.
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

    /// An answer has ended.
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
                self.done.effects.pins("a command that was answered before its end");
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

    /// What was said of the next transaction must not be lost before that has begun.
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

    /// A command with these effects has been answered so.
    fn has(&mut self, effects: &Effects, end: End) {
        if end == End::Refused && effects.count == Count::One {
            // What only its connection has may be there all the same.
            return self.done.effects.merge(&Effects { pin: effects.pin, ..Effects::default() });
        }
        self.done.effects.merge(effects);
        if effects.once == Once::NextTransaction && !matches!(end, End::Said(ok) if ok.is_in_transaction()) {
            self.next_transaction = NextTransaction::Described;
        }
    }

    /// Whether something is open that a reset would end: a cursor, data that was sent ahead, the description of a
    /// transaction to come.
    pub fn is_open(&self) -> bool {
        !self.cursors.is_empty()
            || !self.ahead.is_empty()
            || self.next_transaction == NextTransaction::Described
    }

    /// All was answered: what was done since the last time that outlives the transaction.
    pub fn settle(&mut self) -> Done {
        std::mem::take(&mut self.done)
    }
}

/// The first command of these bytes, if all of it is here and will be answered: its length.
pub fn first_command_bytes(input: &[u8]) -> Option<usize> {
    let (header, payload) = packet::peek_header(input)?;
    let kind = *payload.first()?;
    let bytes = HEADER_BYTES + header.length;
    let is_whole = header.length > 0 && header.length < MAX_PART_BYTES && input.len() >= bytes;
    (is_whole && !is_silent(kind) && kind != COM_QUIT).then_some(bytes)
}

/// Whether these bytes of a client that rests begin with a `COM_QUIT`.
pub fn begins_with_quit(input: &[u8]) -> bool {
    matches!(packet::peek_header(input), Some((Header { length: 1, .. }, &[COM_QUIT, ..])))
}

/// `COM_STMT_SEND_LONG_DATA` and `COM_STMT_CLOSE`.
fn is_silent(kind: u8) -> bool {
    matches!(kind, 0x18 | 0x19)
}

#[cfg(test)]
mod tests;
