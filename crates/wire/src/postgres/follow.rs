//! Follows a client's session so that its next transaction can run on any server connection with the same
//! prepared statements and settings. Used together with a [`PostgresRelay`](super::PostgresRelay), for
//! transaction pooling.
//!
//! A server connection is reset before another client gets it, so it has only this client's prepared
//! statements. They keep the client's names, and are prepared when the client first uses them on the
//! connection.

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

/// Limit for the texts of all prepared statements of a client. A client that exceeds it is pinned to its
/// connection.
const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// Limit of pending replies; consecutive `ReadyForQuery`s count as one. At the limit the client's next
/// command waits. A server may hold back replies until its buffer of 8 KiB is full, and the shortest has five
/// bytes: with a limit below 1,639 the two sides could deadlock.
const MAX_OWED: usize = 1 << 12;

/// The statements that a client has prepared and may use on any connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statements {
    by_name: HashMap<Vec<u8>, Arc<Statement>>,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Statement {
    /// The complete `Parse`.
    message: Vec<u8>,
    effects: Effects,
}

/// The names of the statements prepared on a server connection.
#[derive(Debug, Default)]
pub struct Prepared(HashSet<Vec<u8>>);

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct Follow {
    /// Of the client's current message.
    up_left_bytes: usize,
    reading: Reading,
    /// Of the server's current message.
    down_left_bytes: usize,
    /// Replies that are pending, in order.
    owed: VecDeque<Owed>,
    skips: Skips,
    /// Effects that outlive the transaction.
    effects: Effects,
    /// The number of requested `ReadyForQuery`s, and of those still pending.
    asked: u64,
    unready: u64,
    /// `standard_conforming_strings` is unknown until this many have arrived.
    strings_known_from: u64,
}

/// Whether the server skips the client's messages after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Skips {
    #[default]
    No,
    /// Up to the next `Sync`, which the client has not sent yet.
    ToSync,
}

/// How the payload of the client's current message is read.
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
    /// `ParseComplete`, for the client's `Parse`.
    Own {
        name: Vec<u8>,
        /// Whether a failure removes the statement.
        creation: Creation,
    },
    /// `ParseComplete`, for a `Parse` that the proxy inserted.
    Inserted(Vec<u8>),
    /// `CloseComplete`, for the client's `Close`.
    OwnClose,
    /// `CloseComplete`, for a `Close` that the proxy inserted before a `Parse`.
    InsertedClose,
    /// This many consecutive `ReadyForQuery`s.
    Ready(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    First,
    /// The name is in use; the server will refuse the `Parse`.
    Repeated,
}

/// What to do with a client's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Until {
    /// The number of bytes to forward, from the front.
    pub bytes: usize,
    /// Messages to send to the server next. If empty, the rest waits for more input.
    pub insert: Vec<u8>,
}

/// What to do with a server's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answers {
    /// The number of bytes to forward, from the front.
    pub bytes: usize,
    /// The number of bytes behind those to discard. If 0, the rest waits for more input.
    pub skip_bytes: usize,
}

impl Prepared {
    /// Call it when the connection was reset.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The proxy has replaced the unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.0.remove(&b""[..]);
    }
}

impl Statements {
    /// The memory that all of them take.
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
    /// Reads the client's next bytes: those beyond the last [`ClientBytes::bytes`], and newer ones.
    /// `parameters` are the server's reported settings.
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

    /// Continues with the current message.
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
                // The server reports the setting before its `ReadyForQuery`.
                self.apply(&effects, self.asked, statements, prepared);
            }
            Reading::Statement { message, strings } => self.prepares(message, strings, statements, prepared),
        }
    }

    /// Applies the effects of a command. They are complete after `known_from` `ReadyForQuery`s.
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
            // A `DISCARD ALL` undoes earlier effects.
            self.effects = Effects::default();
        }
        self.effects.merge(effects);
    }

    /// How the server will read the client's next text.
    fn strings(&self, parameters: &Parameters) -> Strings {
        let is_known = self.asked - self.unready >= self.strings_known_from;
        if is_known { Strings::of(parameters) } else { Strings::Unknown }
    }

    /// Whether the client's next command must wait for replies.
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

    /// Removes the first pending reply.
    fn pop_owed(&mut self) -> Option<Owed> {
        let owed = self.owed.pop_front()?;
        if let Owed::Ready(count) = owed {
            self.unready -= u64::from(count);
        }
        Some(owed)
    }

    /// A complete `Parse` was forwarded.
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
                // The client is pinned, so the statement need not be kept.
                self.effects.pin.get_or_insert("prepared statements that are too long");
            } else {
                statements.insert(name.clone(), Statement { message, effects });
            }
            Creation::First
        };
        self.owed.push_back(Owed::Own { name, creation });
    }

    /// The client starts a message.
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
                    // Its `Sync` follows.
                    self.apply(&statement.effects, self.asked + 1, statements, prepared);
                }
            }
            _ => {}
        }
        Ok(Begun::Passes)
    }

    /// The messages that prepare a statement that the client has and the connection lacks.
    fn missing(&mut self, name: &[u8], statements: &Statements, prepared: &Prepared) -> Option<Vec<u8>> {
        if prepared.0.contains(name) {
            return None;
        }
        let statement = statements.by_name.get(name)?;
        let mut insert = Vec::new();
        match self.coming(name) {
            Coming::Surely => return None,
            Coming::No => {}
            // Closing a missing statement is not an error.
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
                // Not if an earlier command fails: the server then skips this `Parse`.
                Owed::Inserted(inserted) if inserted == name && earlier => return Coming::Perhaps,
                Owed::Inserted(inserted) if inserted == name => return Coming::Surely,
                _ => {}
            }
        }
        Coming::No
    }

    /// Reads the server's next bytes: those beyond the last [`ServerBytes`], and newer ones.
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
            // The part of the payload that the relay needs.
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
                // `Sync`s that the server ignored while it waited for COPY data.
                Some(Owed::Ready(_)) => {}
                Some(Owed::Own { name, .. }) => {
                    // Otherwise the set would grow without limit.
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

    /// The server skips everything up to the next `Sync`.
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

    /// All replies were read and no transaction is open: the effects since the last call.
    pub fn settle(&mut self) -> Effects {
        self.owed.clear();
        self.unready = 0;
        std::mem::take(&mut self.effects)
    }
}

/// Whether a prepare is pending.
enum Coming {
    No,
    Perhaps,
    Surely,
}

/// The recipient of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Clients,
    Nobodys,
}

/// What to do with a message that starts.
enum Begun {
    Passes,
    /// Not enough of it has arrived.
    Waits,
    /// These messages must be sent before it.
    After(Vec<u8>),
}

/// The length of the first command, up to the message that `ReadyForQuery` answers; `None` if it is
/// incomplete.
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
