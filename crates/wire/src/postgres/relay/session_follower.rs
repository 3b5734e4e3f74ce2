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

use crate::postgres::{
    codec::{
        command::encode_close_statement,
        kind,
        message::{HEADER_BYTES, Header},
        parameters::Parameters,
    },
    error::Error,
    relay::{
        framer::{Framer, checked_header},
        session_follower::names::{ReferencedName, name_at, referenced_name},
    },
    sql::{
        effects::{Deallocated, Discard, Effects, TextReader},
        lexer::StringSyntax,
    },
};

/// Limit for the texts of all prepared statements of a client. A client that exceeds it is pinned to its
/// connection.
const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// Limit of pending replies; consecutive `ReadyForQuery`s count as one. At the limit the client's next
/// command waits. A server may hold back replies until its buffer of 8 KiB is full, and the shortest has five
/// bytes: with a limit below 1,639 the two sides could deadlock.
const MAX_PENDING: usize = 1 << 12;

/// The statements that a client has prepared and may use on any connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientStatements {
    by_name: HashMap<Vec<u8>, Arc<ClientStatement>>,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct ClientStatement {
    /// The complete `Parse`.
    message: Vec<u8>,
    effects: Effects,
}

/// The names of the statements prepared on a server connection.
#[derive(Debug, Default)]
pub struct ConnectionStatements(HashSet<Vec<u8>>);

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct SessionFollower {
    client_framer: Framer,
    payload_reader: PayloadReader,
    server_framer: Framer,
    /// Replies that are pending, in order.
    pending: VecDeque<PendingReply>,
    recovery: ErrorRecovery,
    /// Effects that outlive the transaction.
    effects: Effects,
    /// The number of requested `ReadyForQuery`s, and of those still pending.
    requested_ready: u64,
    pending_ready: u64,
    /// `standard_conforming_strings` is unknown until this many have arrived.
    strings_known_from: u64,
}

/// Whether the server skips the client's messages after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ErrorRecovery {
    #[default]
    None,
    /// Up to the next `Sync`, which the client has not sent yet.
    SkipToSync,
}

/// How the payload of the client's current message is read.
#[derive(Debug, Default)]
enum PayloadReader {
    #[default]
    Nothing,
    Text(TextReader),
    /// With the header.
    Parse {
        message: Vec<u8>,
        string_syntax: StringSyntax,
    },
}

#[derive(Debug)]
enum PendingReply {
    /// `ParseComplete`, for the client's `Parse`.
    ClientParse {
        name: Vec<u8>,
        /// Whether a failure removes the statement.
        name_use: NameUse,
    },
    /// `ParseComplete`, for a `Parse` that the proxy inserted.
    InsertedParse(Vec<u8>),
    /// `CloseComplete`, for the client's `Close`.
    ClientClose,
    /// `CloseComplete`, for a `Close` that the proxy inserted before a `Parse`.
    InsertedClose,
    /// This many consecutive `ReadyForQuery`s.
    Ready(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameUse {
    New,
    /// The name is in use; the server will refuse the `Parse`.
    Taken,
}

/// What to do with a client's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientBytes {
    /// The number of bytes to forward, from the front.
    pub bytes: usize,
    /// Messages to send to the server next. If empty, the rest waits for more input.
    pub insert: Vec<u8>,
}

/// What to do with a server's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerBytes {
    /// The number of bytes to forward, from the front.
    pub bytes: usize,
    /// The number of bytes behind those to discard. If 0, the rest waits for more input.
    pub skip_bytes: usize,
}

impl ConnectionStatements {
    /// Call it when the connection was reset.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The proxy has replaced the unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.0.remove(&b""[..]);
    }
}

impl ClientStatements {
    /// The memory that all of them take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(statement) = self.by_name.remove(name) {
            self.bytes -= statement.message.len();
        }
    }

    fn insert(&mut self, name: Vec<u8>, statement: ClientStatement) {
        self.bytes += statement.message.len();
        if let Some(old) = self.by_name.insert(name, Arc::new(statement)) {
            self.bytes -= old.message.len();
        }
    }

    fn deallocate(&mut self, deallocated: &Deallocated, prepared: &mut ConnectionStatements) {
        match deallocated {
            Deallocated::None => {}
            Deallocated::Named(names) => {
                for name in names {
                    self.remove(name);
                    prepared.0.remove(name);
                }
            }
            Deallocated::All => {
                *self = Self::default();
                prepared.clear();
            }
        }
    }
}

impl SessionFollower {
    /// Reads the client's next bytes: those beyond the last [`ClientBytes::bytes`], and newer ones.
    /// `parameters` are the server's reported settings.
    pub fn process_client(
        &mut self,
        input: &[u8],
        parameters: &Parameters,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<ClientBytes, Error> {
        let mut at = 0;
        loop {
            self.read_on(input, &mut at, statements, prepared);
            let Some(header) = self.client_framer.next_header(&input[at..])? else {
                return Ok(ClientBytes { bytes: at, insert: Vec::new() });
            };
            match self.begin(header, &input[at..], parameters, statements, prepared)? {
                MessageAction::Forward => self.client_framer.begin(header, &mut at),
                MessageAction::NeedInput => return Ok(ClientBytes { bytes: at, insert: Vec::new() }),
                MessageAction::InsertBefore(insert) => return Ok(ClientBytes { bytes: at, insert }),
            }
        }
    }

    /// Continues with the current message.
    fn read_on(
        &mut self,
        input: &[u8],
        at: &mut usize,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        let piece = self.client_framer.read(input, at);
        match &mut self.payload_reader {
            PayloadReader::Nothing => return,
            PayloadReader::Text(reader) => reader.read(piece),
            PayloadReader::Parse { message, .. } => {
                if message.len() <= MAX_STATEMENT_BYTES {
                    message.extend_from_slice(piece);
                }
            }
        }
        if !self.client_framer.is_between_messages() {
            return;
        }
        match std::mem::take(&mut self.payload_reader) {
            PayloadReader::Nothing => {}
            PayloadReader::Text(reader) => {
                let effects = reader.end();
                // The server reports the setting before its `ReadyForQuery`.
                self.apply(&effects, self.requested_ready, statements, prepared);
            }
            PayloadReader::Parse { message, string_syntax } => {
                self.end_parse(message, string_syntax, statements, prepared);
            }
        }
    }

    /// Applies the effects of a command. They are complete after `known_from` `ReadyForQuery`s.
    fn apply(
        &mut self,
        effects: &Effects,
        known_from: u64,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        if effects.is_none() {
            return;
        }
        if effects.may_change_strings() {
            self.strings_known_from = known_from;
        }
        statements.deallocate(&effects.deallocated, prepared);
        if effects.discard == Discard::All {
            statements.deallocate(&Deallocated::All, prepared);
            // A `DISCARD ALL` undoes earlier effects.
            self.effects = Effects::default();
        }
        self.effects.merge(effects);
    }

    /// How the server will read the client's next text.
    fn string_syntax(&self, parameters: &Parameters) -> StringSyntax {
        let is_known = self.requested_ready - self.pending_ready >= self.strings_known_from;
        if is_known { StringSyntax::of(parameters) } else { StringSyntax::Unknown }
    }

    /// Whether the client's next command must wait for replies.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= MAX_PENDING
    }

    fn expect_ready(&mut self) {
        self.requested_ready += 1;
        self.pending_ready += 1;
        match self.pending.back_mut() {
            Some(PendingReply::Ready(count)) if *count < u32::MAX => *count += 1,
            _ => self.pending.push_back(PendingReply::Ready(1)),
        }
    }

    /// Removes the first pending reply.
    fn pop_pending(&mut self) -> Option<PendingReply> {
        let pending = self.pending.pop_front()?;
        if let PendingReply::Ready(count) = pending {
            self.pending_ready -= u64::from(count);
        }
        Some(pending)
    }

    /// A complete `Parse` was forwarded.
    fn end_parse(
        &mut self,
        message: Vec<u8>,
        string_syntax: StringSyntax,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let mut parts = payload.splitn(3, |byte| *byte == 0);
        let (Some(name), Some(text)) = (parts.next(), parts.next()) else { return };
        let (name, effects) = (name.to_vec(), Effects::of(text, string_syntax));
        let name_use = if !name.is_empty() && statements.by_name.contains_key(&name) {
            NameUse::Taken
        } else {
            prepared.0.remove(&name);
            statements.remove(&name);
            if statements.bytes + message.len() > MAX_STATEMENT_BYTES {
                // The client is pinned, so the statement need not be kept.
                self.effects.pin.get_or_insert("prepared statements that are too long");
            } else {
                statements.insert(name.clone(), ClientStatement { message, effects });
            }
            NameUse::New
        };
        self.pending.push_back(PendingReply::ClientParse { name, name_use });
    }

    /// The client starts a message.
    fn begin(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<MessageAction, Error> {
        if self.recovery == ErrorRecovery::SkipToSync && header.kind != kind::SYNC {
            return Ok(MessageAction::Forward);
        }
        if self.is_full() {
            return Ok(MessageAction::NeedInput);
        }
        match header.kind {
            kind::QUERY => {
                statements.remove(b"");
                prepared.forget_unnamed();
                self.payload_reader = PayloadReader::Text(TextReader::new(self.string_syntax(parameters)));
                self.expect_ready();
            }
            kind::FUNCTION_CALL => self.expect_ready(),
            kind::SYNC => {
                self.recovery = ErrorRecovery::None;
                self.expect_ready();
            }
            kind::PARSE => {
                let payload = &input[HEADER_BYTES..];
                let Some(name) = name_at(payload, header)? else { return Ok(MessageAction::NeedInput) };
                if !name.is_empty()
                    && let Some(insert) = self.missing(name, statements, prepared)
                {
                    return Ok(MessageAction::InsertBefore(insert));
                }
                let string_syntax = self.string_syntax(parameters);
                self.payload_reader =
                    PayloadReader::Parse { message: input[..HEADER_BYTES].to_vec(), string_syntax };
            }
            kind::BIND | kind::DESCRIBE | kind::CLOSE => {
                let name = match referenced_name(header, &input[HEADER_BYTES..])? {
                    ReferencedName::Statement(name) => name,
                    ReferencedName::Portal => {
                        if header.kind == kind::CLOSE {
                            self.pending.push_back(PendingReply::ClientClose);
                        }
                        return Ok(MessageAction::Forward);
                    }
                    ReferencedName::Unknown => return Ok(MessageAction::NeedInput),
                };
                if header.kind == kind::CLOSE {
                    statements.remove(name);
                    prepared.0.remove(name);
                    self.pending.push_back(PendingReply::ClientClose);
                } else if let Some(insert) = self.missing(name, statements, prepared) {
                    return Ok(MessageAction::InsertBefore(insert));
                }
                if header.kind == kind::BIND
                    && let Some(statement) = statements.by_name.get(name)
                    && !statement.effects.is_none()
                {
                    let statement = Arc::clone(statement);
                    // Its `Sync` follows.
                    self.apply(&statement.effects, self.requested_ready + 1, statements, prepared);
                }
            }
            _ => {}
        }
        Ok(MessageAction::Forward)
    }

    /// The messages that prepare a statement that the client has and the connection lacks.
    fn missing(
        &mut self,
        name: &[u8],
        statements: &ClientStatements,
        prepared: &ConnectionStatements,
    ) -> Option<Vec<u8>> {
        if prepared.0.contains(name) {
            return None;
        }
        let statement = statements.by_name.get(name)?;
        let mut insert = Vec::new();
        match self.pending_parse(name) {
            PendingParse::Certain => return None,
            PendingParse::None => {}
            // Closing a missing statement is not an error.
            PendingParse::Conditional => {
                encode_close_statement(&mut insert, std::str::from_utf8(name).ok()?).ok()?;
                self.pending.push_back(PendingReply::InsertedClose);
            }
        }
        insert.extend_from_slice(&statement.message);
        self.pending.push_back(PendingReply::InsertedParse(name.to_vec()));
        Some(insert)
    }

    /// Whether the server is about to prepare a statement of this name.
    fn pending_parse(&self, name: &[u8]) -> PendingParse {
        let mut earlier = false;
        for pending in self.pending.iter().rev() {
            match pending {
                PendingReply::Ready(_) => earlier = true,
                PendingReply::ClientParse { name: own, .. } if own == name => return PendingParse::Certain,
                // Not if an earlier command fails: the server then skips this `Parse`.
                PendingReply::InsertedParse(inserted) if inserted == name && earlier => {
                    return PendingParse::Conditional;
                }
                PendingReply::InsertedParse(inserted) if inserted == name => return PendingParse::Certain,
                _ => {}
            }
        }
        PendingParse::None
    }

    /// Reads the server's next bytes: those beyond the last [`ServerBytes`], and newer ones.
    pub fn process_server(
        &mut self,
        input: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<ServerBytes, Error> {
        let mut at = 0;
        loop {
            self.server_framer.read(input, &mut at);
            let rest = &input[at..];
            let Some(header) = self.server_framer.next_header(rest)? else {
                return Ok(ServerBytes { bytes: at, skip_bytes: 0 });
            };
            // The part of the payload that the relay needs.
            let needed_bytes = match header.kind {
                kind::READY_FOR_QUERY | kind::PARAMETER_STATUS => header.payload_bytes,
                kind::NOTIFICATION_RESPONSE => header.payload_bytes.min(size_of::<u32>()),
                _ => 0,
            };
            if rest.len() < HEADER_BYTES + needed_bytes {
                return Ok(ServerBytes { bytes: at, skip_bytes: 0 });
            }
            match header.kind {
                kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE if header.payload_bytes > 0 => {
                    return Err(Error::protocol("ParseComplete", "it has a payload"));
                }
                kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE if self.complete_reply(statements, prepared) => {
                    return Ok(ServerBytes { bytes: at, skip_bytes: HEADER_BYTES });
                }
                kind::ERROR_RESPONSE => self.fail_pending(statements),
                kind::READY_FOR_QUERY => self.ready(),
                _ => {}
            }
            self.server_framer.begin(header, &mut at);
        }
    }

    /// The server has answered everything up to a `Query` or `Sync`.
    fn ready(&mut self) {
        loop {
            match self.pending.front_mut() {
                Some(PendingReply::Ready(count)) if *count > 1 => {
                    *count -= 1;
                    self.pending_ready -= 1;
                    return;
                }
                None => return,
                Some(_) => {}
            }
            if let Some(PendingReply::Ready(_)) = self.pop_pending() {
                return;
            }
        }
    }

    /// The server has prepared or closed the next statement. Returns whether the reply is for the proxy.
    fn complete_reply(&mut self, statements: &ClientStatements, prepared: &mut ConnectionStatements) -> bool {
        loop {
            match self.pop_pending() {
                // `Sync`s that the server ignored while it waited for COPY data.
                Some(PendingReply::Ready(_)) => {}
                Some(PendingReply::ClientParse { name, .. }) => {
                    // Otherwise the set would grow without limit.
                    if statements.by_name.contains_key(&name) {
                        prepared.0.insert(name);
                    }
                    return false;
                }
                Some(PendingReply::InsertedParse(name)) => {
                    prepared.0.insert(name);
                    return true;
                }
                Some(PendingReply::InsertedClose) => return true,
                Some(PendingReply::ClientClose) | None => return false,
            }
        }
    }

    /// The server skips everything up to the next `Sync`.
    fn fail_pending(&mut self, statements: &mut ClientStatements) {
        while self.pending.front().is_some_and(|pending| !matches!(pending, PendingReply::Ready(_))) {
            if let Some(PendingReply::ClientParse { name, name_use: NameUse::New }) = self.pending.pop_front()
            {
                statements.remove(&name);
            }
        }
        if self.pending.is_empty() {
            self.recovery = ErrorRecovery::SkipToSync;
        }
    }

    /// All replies were read and no transaction is open: the effects since the last call.
    pub fn settle(&mut self) -> Effects {
        self.pending.clear();
        self.pending_ready = 0;
        std::mem::take(&mut self.effects)
    }
}

/// Whether a prepare is pending.
enum PendingParse {
    None,
    Conditional,
    Certain,
}

/// What to do with a message that starts.
enum MessageAction {
    Forward,
    /// Not enough of it has arrived.
    NeedInput,
    /// These messages must be sent before it.
    InsertBefore(Vec<u8>),
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
