//! What one between client and server must follow so that a client finds its prepared statements and its settings on
//! whichever connection its next transaction gets: beside [`Relay`](super::relay::Relay), for sessions that are parted
//! after each transaction.
//!
//! A connection that was another client's is reset before it is given to this one, and so has no statements but this
//! client's: they keep the names that the client has given them, and are prepared anew when it first uses them there.

mod names;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{
    Error, Parameters,
    command::encode_close_statement,
    effects::{Discards, Effects, Forgets, Strings, TextReader},
    kind,
    message::{HEADER_BYTES, Header},
    relay::{FUNCTION_CALL, checked_header},
};
use names::{Used, name_at, used};

/// A client's prepared statements, all texts taken together; one with more keeps its connection.
const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// Answers that may be owed at a time, those to commands in a row that end in `ReadyForQuery` counted as one; then a
/// client's next command waits. A server may keep answers back until its buffer of 8 KiB is full, and none is shorter
/// than five bytes: with fewer than 1,639 the two could wait for one another.
const MAX_OWED: usize = 1 << 12;

/// What a client has prepared, and may use on any connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statements {
    by_name: HashMap<Vec<u8>, Arc<Statement>>,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Statement {
    /// The whole `Parse`.
    message: Vec<u8>,
    effects: Effects,
}

/// The names of the statements that a server connection has.
#[derive(Debug, Default)]
pub struct Prepared(HashSet<Vec<u8>>);

/// Follows one client on one connection.
#[derive(Debug, Default)]
pub struct Follow {
    /// Of the client's current message.
    up_left_bytes: usize,
    reading: Reading,
    /// Of the server's current message.
    down_left_bytes: usize,
    /// Answers that are to come, in their order.
    owed: VecDeque<Owed>,
    skips: Skips,
    /// What was done that outlives the transaction.
    effects: Effects,
    /// `ReadyForQuery`s that were asked for, and those of them that are to come.
    asked: u64,
    unready: u64,
    /// Until this many have come, `standard_conforming_strings` may be another than was reported.
    strings_known_from: u64,
}

/// Whether the server ignores what the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Skips {
    #[default]
    No,
    /// Up to the next `Sync`, which the client has not sent yet.
    ToSync,
}

/// What is read of the client's current message beyond its header.
#[derive(Debug, Default)]
enum Reading {
    #[default]
    Nothing,
    Text(TextReader),
    /// A `Parse`, with its header.
    Statement {
        message: Vec<u8>,
        strings: Strings,
    },
}

#[derive(Debug)]
enum Owed {
    /// `ParseComplete`, for the client's own `Parse`.
    Own {
        name: Vec<u8>,
        /// Whether the statement is no more if this fails.
        creation: Creation,
    },
    /// `ParseComplete`, for one that the client has not sent this time.
    Inserted(Vec<u8>),
    /// `CloseComplete`, for the client's own `Close`.
    OwnClose,
    /// The same, in front of one that is inserted again.
    InsertedClose,
    /// `ReadyForQuery`, so many in a row.
    Ready(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    First,
    /// There is one of this name, and the server will say so.
    Repeated,
}

/// How far a client's bytes may be passed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Until {
    /// So many from the front.
    pub bytes: usize,
    /// What the server must be told behind those, before anything else. If this is empty, the rest has to wait for more.
    pub insert: Vec<u8>,
}

/// How far a server's bytes may be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answers {
    /// So many from the front.
    pub bytes: usize,
    /// So many behind those are nobody's. If there are none, the rest has to wait for more.
    pub skip_bytes: usize,
}

impl Prepared {
    /// The connection was reset.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The proxy has used the unnamed statement for itself.
    pub fn forget_unnamed(&mut self) {
        self.0.remove(&b""[..]);
    }
}

impl Statements {
    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(statement) = self.by_name.remove(name) {
            self.bytes -= statement.message.len();
        }
    }

    fn insert(&mut self, name: Vec<u8>, statement: Statement) {
        self.bytes += statement.message.len();
        if let Some(old) = self.by_name.insert(name, Arc::new(statement)) {
            self.bytes -= old.message.len();
        }
    }

    fn forget(&mut self, forgets: &Forgets, prepared: &mut Prepared) {
        match forgets {
            Forgets::None => {}
            Forgets::Named(names) => {
                for name in names {
                    self.remove(name);
                    prepared.0.remove(name);
                }
            }
            Forgets::All => {
                *self = Self::default();
                prepared.clear();
            }
        }
    }
}

impl Follow {
    /// Looks at the client's next bytes: those beyond the last [`Until::bytes`], and newer ones. `parameters` are what the
    /// server has reported.
    pub fn from_client(
        &mut self,
        input: &[u8],
        parameters: &Parameters,
        statements: &mut Statements,
        prepared: &mut Prepared,
    ) -> Result<Until, Error> {
        let mut at = 0;
        loop {
            self.read_on(input, &mut at, statements, prepared);
            if self.up_left_bytes > 0 {
                return Ok(Until { bytes: at, insert: Vec::new() });
            }
            let Some(header) = checked_header(&input[at..])? else {
                return Ok(Until { bytes: at, insert: Vec::new() });
            };
            match self.begin(header, &input[at..], parameters, statements, prepared)? {
                Begun::Passes => at += HEADER_BYTES,
                Begun::Waits => return Ok(Until { bytes: at, insert: Vec::new() }),
                Begun::After(insert) => return Ok(Until { bytes: at, insert }),
            }
            self.up_left_bytes = header.payload_bytes;
        }
    }

    /// Goes on with the current message.
    fn read_on(
        &mut self,
        input: &[u8],
        at: &mut usize,
        statements: &mut Statements,
        prepared: &mut Prepared,
    ) {
        let bytes = self.up_left_bytes.min(input.len() - *at);
        let piece = &input[*at..*at + bytes];
        *at += bytes;
        self.up_left_bytes -= bytes;
        match &mut self.reading {
            Reading::Nothing => return,
            Reading::Text(reader) => reader.read(piece),
            Reading::Statement { message, .. } => {
                if message.len() <= MAX_STATEMENT_BYTES {
                    message.extend_from_slice(piece);
                }
            }
        }
        if self.up_left_bytes > 0 {
            return;
        }
        match std::mem::take(&mut self.reading) {
            Reading::Nothing => {}
            Reading::Text(reader) => {
                let effects = reader.end();
                // The server reports it before it says that it is ready again.
                self.apply(&effects, self.asked, statements, prepared);
            }
            Reading::Statement { message, strings } => self.prepares(message, strings, statements, prepared),
        }
    }

    /// A command has these effects, which are done when `known_from` times `ReadyForQuery` was sent.
    fn apply(
        &mut self,
        effects: &Effects,
        known_from: u64,
        statements: &mut Statements,
        prepared: &mut Prepared,
    ) {
        if effects.is_none() {
            return;
        }
        if effects.may_change_strings() {
            self.strings_known_from = known_from;
        }
        statements.forget(&effects.forgets, prepared);
        if effects.discards == Discards::All {
            statements.forget(&Forgets::All, prepared);
            // What was done before is undone.
            self.effects = Effects::default();
        }
        self.effects.merge(effects);
    }

    /// How the server will read the client's next text.
    fn strings(&self, parameters: &Parameters) -> Strings {
        let is_known = self.asked - self.unready >= self.strings_known_from;
        if is_known { Strings::of(parameters) } else { Strings::Unknown }
    }

    /// Whether the client must be answered before it may say more.
    pub fn is_full(&self) -> bool {
        self.owed.len() >= MAX_OWED
    }

    fn owes_ready(&mut self) {
        self.asked += 1;
        self.unready += 1;
        match self.owed.back_mut() {
            Some(Owed::Ready(count)) if *count < u32::MAX => *count += 1,
            _ => self.owed.push_back(Owed::Ready(1)),
        }
    }

    /// The first of the answers that are owed is not to come any more.
    fn pop_owed(&mut self) -> Option<Owed> {
        let owed = self.owed.pop_front()?;
        if let Owed::Ready(count) = owed {
            self.unready -= u64::from(count);
        }
        Some(owed)
    }

    /// A whole `Parse` has passed.
    fn prepares(
        &mut self,
        message: Vec<u8>,
        strings: Strings,
        statements: &mut Statements,
        prepared: &mut Prepared,
    ) {
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let mut parts = payload.splitn(3, |byte| *byte == 0);
        let (Some(name), Some(text)) = (parts.next(), parts.next()) else { return };
        let (name, effects) = (name.to_vec(), Effects::of(text, strings));
        let creation = if !name.is_empty() && statements.by_name.contains_key(&name) {
            Creation::Repeated
        } else {
            prepared.0.remove(&name);
            statements.remove(&name);
            if statements.bytes + message.len() > MAX_STATEMENT_BYTES {
                // It stays where it is, and so does its client: nothing more is kept of it.
                self.effects.pin.get_or_insert("prepared statements that are too long");
            } else {
                statements.insert(name.clone(), Statement { message, effects });
            }
            Creation::First
        };
        self.owed.push_back(Owed::Own { name, creation });
    }

    /// The client begins a message.
    fn begin(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        statements: &mut Statements,
        prepared: &mut Prepared,
    ) -> Result<Begun, Error> {
        if self.skips == Skips::ToSync && header.kind != kind::SYNC {
            return Ok(Begun::Passes);
        }
        if self.is_full() {
            return Ok(Begun::Waits);
        }
        match header.kind {
            kind::QUERY => {
                statements.remove(b"");
                prepared.forget_unnamed();
                self.reading = Reading::Text(TextReader::new(self.strings(parameters)));
                self.owes_ready();
            }
            FUNCTION_CALL => self.owes_ready(),
            kind::SYNC => {
                self.skips = Skips::No;
                self.owes_ready();
            }
            kind::PARSE => {
                let payload = &input[HEADER_BYTES..];
                let Some(name) = name_at(payload, header)? else { return Ok(Begun::Waits) };
                if !name.is_empty()
                    && let Some(insert) = self.missing(name, statements, prepared)
                {
                    return Ok(Begun::After(insert));
                }
                let strings = self.strings(parameters);
                self.reading = Reading::Statement { message: input[..HEADER_BYTES].to_vec(), strings };
            }
            kind::BIND | kind::DESCRIBE | kind::CLOSE => {
                let name = match used(header, &input[HEADER_BYTES..])? {
                    Used::Statement(name) => name,
                    Used::Portal => {
                        if header.kind == kind::CLOSE {
                            self.owed.push_back(Owed::OwnClose);
                        }
                        return Ok(Begun::Passes);
                    }
                    Used::Unknown => return Ok(Begun::Waits),
                };
                if header.kind == kind::CLOSE {
                    statements.remove(name);
                    prepared.0.remove(name);
                    self.owed.push_back(Owed::OwnClose);
                } else if let Some(insert) = self.missing(name, statements, prepared) {
                    return Ok(Begun::After(insert));
                }
                if header.kind == kind::BIND
                    && let Some(statement) = statements.by_name.get(name)
                    && !statement.effects.is_none()
                {
                    let statement = Arc::clone(statement);
                    // Its `Sync` is still to come.
                    self.apply(&statement.effects, self.asked + 1, statements, prepared);
                }
            }
            _ => {}
        }
        Ok(Begun::Passes)
    }

    /// What has a statement prepared that the client has, and the connection has not.
    fn missing(&mut self, name: &[u8], statements: &Statements, prepared: &Prepared) -> Option<Vec<u8>> {
        if prepared.0.contains(name) {
            return None;
        }
        let statement = statements.by_name.get(name)?;
        let mut insert = Vec::new();
        match self.coming(name) {
            Coming::Surely => return None,
            Coming::No => {}
            // Closing what there may be is no error if there is nothing.
            Coming::Perhaps => {
                encode_close_statement(&mut insert, std::str::from_utf8(name).ok()?).ok()?;
                self.owed.push_back(Owed::InsertedClose);
            }
        }
        insert.extend_from_slice(&statement.message);
        self.owed.push_back(Owed::Inserted(name.to_vec()));
        Some(insert)
    }

    /// Whether the server is about to prepare a statement of this name.
    fn coming(&self, name: &[u8]) -> Coming {
        let mut earlier = false;
        for owed in self.owed.iter().rev() {
            match owed {
                Owed::Ready(_) => earlier = true,
                Owed::Own { name: own, .. } if own == name => return Coming::Surely,
                // Not if an error comes before it, of which the client would not expect this.
                Owed::Inserted(inserted) if inserted == name && earlier => return Coming::Perhaps,
                Owed::Inserted(inserted) if inserted == name => return Coming::Surely,
                _ => {}
            }
        }
        Coming::No
    }

    /// Looks at the server's next bytes: those beyond the last [`Answers`], and newer ones.
    pub fn from_server(
        &mut self,
        input: &[u8],
        statements: &mut Statements,
        prepared: &mut Prepared,
    ) -> Result<Answers, Error> {
        let mut at = 0;
        loop {
            let bytes = self.down_left_bytes.min(input.len() - at);
            at += bytes;
            self.down_left_bytes -= bytes;
            let rest = &input[at..];
            let Some(header) = (if self.down_left_bytes == 0 { checked_header(rest)? } else { None }) else {
                return Ok(Answers { bytes: at, skip_bytes: 0 });
            };
            // As much as the relay needs of them.
            let needed_bytes = match header.kind {
                kind::READY_FOR_QUERY | kind::PARAMETER_STATUS => header.payload_bytes,
                kind::NOTIFICATION_RESPONSE => header.payload_bytes.min(size_of::<u32>()),
                _ => 0,
            };
            if rest.len() < HEADER_BYTES + needed_bytes {
                return Ok(Answers { bytes: at, skip_bytes: 0 });
            }
            match header.kind {
                kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE if header.payload_bytes > 0 => {
                    let reason = "it has a payload";
                    return Err(Error::Protocol { message: "ParseComplete", reason });
                }
                kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE
                    if self.done(statements, prepared) == Whose::Nobodys =>
                {
                    return Ok(Answers { bytes: at, skip_bytes: HEADER_BYTES });
                }
                kind::ERROR_RESPONSE => self.failed(statements),
                kind::READY_FOR_QUERY => self.ready(),
                _ => {}
            }
            at += HEADER_BYTES;
            self.down_left_bytes = header.payload_bytes;
        }
    }

    /// The server has answered everything up to a `Query` or `Sync`.
    fn ready(&mut self) {
        loop {
            match self.owed.front_mut() {
                Some(Owed::Ready(count)) if *count > 1 => {
                    *count -= 1;
                    self.unready -= 1;
                    return;
                }
                None => return,
                Some(_) => {}
            }
            if let Some(Owed::Ready(_)) = self.pop_owed() {
                return;
            }
        }
    }

    /// The server has prepared or closed the next statement.
    fn done(&mut self, statements: &Statements, prepared: &mut Prepared) -> Whose {
        loop {
            match self.pop_owed() {
                // `Sync`s that the server has not answered, as it waited for a COPY's data.
                Some(Owed::Ready(_)) => {}
                Some(Owed::Own { name, .. }) => {
                    // Names of which nothing is kept would only pile up.
                    if statements.by_name.contains_key(&name) {
                        prepared.0.insert(name);
                    }
                    return Whose::Clients;
                }
                Some(Owed::Inserted(name)) => {
                    prepared.0.insert(name);
                    return Whose::Nobodys;
                }
                Some(Owed::InsertedClose) => return Whose::Nobodys,
                Some(Owed::OwnClose) | None => return Whose::Clients,
            }
        }
    }

    /// The server ignores everything up to the next `Sync`.
    fn failed(&mut self, statements: &mut Statements) {
        while self.owed.front().is_some_and(|owed| !matches!(owed, Owed::Ready(_))) {
            if let Some(Owed::Own { name, creation: Creation::First }) = self.owed.pop_front() {
                statements.remove(&name);
            }
        }
        if self.owed.is_empty() {
            self.skips = Skips::ToSync;
        }
    }

    /// All was answered, and no transaction is open: what was done since the last time that outlives it.
    pub fn settle(&mut self) -> Effects {
        self.owed.clear();
        self.unready = 0;
        std::mem::take(&mut self.effects)
    }
}

/// Whether something is about to be.
enum Coming {
    No,
    Perhaps,
    Surely,
}

/// Whose an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Clients,
    Nobodys,
}

/// What is to be done with a message that begins.
enum Begun {
    Passes,
    /// Too little of it is there.
    Waits,
    /// This must come before.
    After(Vec<u8>),
}

/// The bytes of the first command, up to where the server answers that it is ready; none if they are not all there.
pub fn first_command_bytes(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let header = checked_header(input.get(at..)?).ok()??;
        at += HEADER_BYTES + header.payload_bytes;
        if matches!(header.kind, kind::QUERY | kind::SYNC | FUNCTION_CALL) {
            return (at <= input.len()).then_some(at);
        }
    }
}
