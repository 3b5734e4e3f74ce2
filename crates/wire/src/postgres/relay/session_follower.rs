//! Follows a client's session so that its next transaction can run on any server connection with the same
//! prepared statements and settings, for transaction pooling. Observes the messages of a
//! [`PostgresRelay`](super::PostgresRelay).
//!
//! A server connection is reset before another client gets it, so it has only this client's prepared
//! statements. They keep the client's names, and are prepared when the client first uses them on the
//! connection.

mod names;
mod statements;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::postgres::{
    codec::{
        command::encode_close_statement,
        kind,
        message::{HEADER_BYTES, Header},
        parameters::Parameters,
        text_rules::StringSyntax,
    },
    error::Error,
    relay::{
        framer::{Piece, checked_header},
        session_follower::names::{ReferencedName, name_at, referenced_name},
        session_follower::statements::ClientStatement,
    },
    sql::effects::{ArrivingText, Deallocated, Discard, Effects, Remains},
};

pub use statements::{ClientStatements, ConnectionStatements};

/// Limit for the texts of all prepared statements of a client. A client that exceeds it is pinned to its
/// connection.
const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// Limit of pending replies; consecutive `ReadyForQuery`s count as one. At the limit the client's next
/// command waits. A server may hold back replies until its buffer of 8 KiB is full, and the shortest has five
/// bytes: with a limit below 1,639 the two sides could deadlock.
const MAX_PENDING: usize = 1 << 12;
/// The payload of the `CommandComplete` of a `DISCARD ALL`.
pub(crate) const DISCARD_ALL_TAG: &[u8] = b"DISCARD ALL\0";

/// Follows one client on one server connection.
#[derive(Debug, Default)]
pub struct SessionFollower {
    payload_reader: PayloadReader,
    /// `ReadyForQuery`s that come first: most sessions expect nothing else.
    first_ready: u32,
    /// The other pending replies, in order.
    pending: VecDeque<PendingReply>,
    recovery: ErrorRecovery,
    /// Effects that outlive the transaction.
    effects: Effects,
    /// What the session may have left on the connection, transactions included.
    remains: Remains,
    /// The last `DISCARD ALL` that was sent. Until the server confirms it, earlier effects stand: it fails in a
    /// transaction block.
    sent_discard: Option<SentDiscard>,
    /// The number of requested `ReadyForQuery`s, and of those still pending.
    requested_ready: u64,
    pending_ready: u64,
    /// `standard_conforming_strings` is unknown until this many have arrived.
    strings_known_from: u64,
}

/// A client's session on a server connection: what its messages may change.
#[derive(Debug)]
pub struct Followed<'a> {
    pub follower: &'a mut SessionFollower,
    pub statements: &'a mut ClientStatements,
    pub prepared: &'a mut ConnectionStatements,
}

#[derive(Debug)]
struct SentDiscard {
    /// The number of the `ReadyForQuery` that ends its replies.
    ready: u64,
    /// The effects of later commands.
    later: Effects,
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
    Text(ArrivingText),
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

impl SessionFollower {
    /// How the server will read the client's next text.
    fn string_syntax(&self, parameters: &Parameters) -> StringSyntax {
        let is_known = self.received_ready() >= self.strings_known_from;
        if is_known { parameters.string_syntax() } else { StringSyntax::Unknown }
    }

    /// Whether the client's next command must wait for replies.
    pub fn is_full(&self) -> bool {
        self.pending.len() + usize::from(self.first_ready > 0) >= MAX_PENDING
    }

    fn expect_ready(&mut self) {
        self.requested_ready += 1;
        self.pending_ready += 1;
        match self.pending.back_mut() {
            Some(PendingReply::Ready(count)) if *count < u32::MAX => *count += 1,
            None if self.first_ready < u32::MAX => self.first_ready += 1,
            _ => self.pending.push_back(PendingReply::Ready(1)),
        }
    }

    fn received_ready(&self) -> u64 {
        self.requested_ready - self.pending_ready
    }

    /// Removes the first pending reply.
    fn pop_pending(&mut self) -> Option<PendingReply> {
        let pending = match std::mem::take(&mut self.first_ready) {
            0 => self.pending.pop_front()?,
            count => PendingReply::Ready(count),
        };
        if let PendingReply::Ready(count) = pending {
            self.pending_ready -= u64::from(count);
        }
        Some(pending)
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

    /// The server has answered everything up to a `Query` or `Sync`.
    fn ready(&mut self) {
        if self.first_ready > 0 {
            self.first_ready -= 1;
            self.pending_ready -= 1;
            return;
        }
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

    /// What the session may have left on the connection.
    pub fn remains(&self) -> Remains {
        self.remains
    }

    fn leave(&mut self, remains: Remains) {
        self.remains = self.remains.max(remains);
    }

    /// The effects of the commands since the last `DISCARD ALL`.
    fn latest_effects(&mut self) -> &mut Effects {
        self.sent_discard.as_mut().map_or(&mut self.effects, |discard| &mut discard.later)
    }

    /// A `DISCARD ALL` was sent, whose replies end with the `ReadyForQuery` of this number.
    fn send_discard(&mut self, ready: u64) {
        let discard = SentDiscard { ready, later: Effects::default() };
        if let Some(earlier) = self.sent_discard.replace(discard) {
            self.effects.merge(&earlier.later);
        }
    }

    /// The server has executed a `DISCARD ALL`.
    fn confirm_discard(&mut self) {
        let ready = self.received_ready() + 1;
        if let Some(discard) = self.sent_discard.take_if(|discard| discard.ready == ready) {
            self.effects = Effects { discard: Discard::All, ..discard.later };
        }
    }

    /// All replies were read and no transaction is open: the effects since the last call.
    pub fn settle(&mut self) -> Effects {
        self.pending.clear();
        (self.first_ready, self.pending_ready) = (0, 0);
        if let Some(failed) = self.sent_discard.take() {
            self.effects.merge(&failed.later);
        }
        std::mem::take(&mut self.effects)
    }
}

impl Followed<'_> {
    /// Continues with the client's current message.
    #[inline]
    pub(crate) fn read(&mut self, piece: Piece<'_>) {
        match &mut self.follower.payload_reader {
            PayloadReader::Nothing => {}
            PayloadReader::Text(text) => {
                if let Some(effects) = text.read(piece.bytes, piece.is_last) {
                    self.follower.payload_reader = PayloadReader::Nothing;
                    // The server reports the setting before its `ReadyForQuery`.
                    self.apply(&effects, self.follower.requested_ready);
                }
            }
            PayloadReader::Parse { message, string_syntax } => {
                if message.len() <= MAX_STATEMENT_BYTES {
                    message.extend_from_slice(piece.bytes);
                }
                if piece.is_last {
                    let (message, string_syntax) = (std::mem::take(message), *string_syntax);
                    self.follower.payload_reader = PayloadReader::Nothing;
                    self.end_parse(message, string_syntax);
                }
            }
        }
    }

    /// Applies the effects of a command, whose replies end with the `ReadyForQuery` of this number.
    fn apply(&mut self, effects: &Effects, ready: u64) {
        self.follower.leave(effects.remains);
        if effects.is_none() {
            return;
        }
        if effects.may_change_strings() {
            self.follower.strings_known_from = ready;
        }
        self.statements.deallocate(&effects.deallocated, self.prepared);
        if effects.discard == Discard::All {
            // If it fails, the client's statements are missing on its next connection, which the client sees. Kept,
            // they could hide the statements that it prepares next.
            self.statements.deallocate(&Deallocated::All, self.prepared);
            self.follower.send_discard(ready);
        }
        self.follower.latest_effects().merge(effects);
    }

    /// A complete `Parse` was forwarded.
    fn end_parse(&mut self, message: Vec<u8>, string_syntax: StringSyntax) {
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let mut parts = payload.splitn(3, |byte| *byte == 0);
        let (Some(name), Some(text)) = (parts.next(), parts.next()) else {
            return self.follower.leave(Remains::Anything);
        };
        let (name, effects) = (name.to_vec(), Effects::of(text, string_syntax));
        self.follower.leave(effects.remains.max(left_by_parse(&name)));
        let name_use = if !name.is_empty() && self.statements.by_name.contains_key(&name) {
            NameUse::Taken
        } else {
            self.prepared.remove(&name);
            self.statements.remove(&name);
            if self.statements.bytes + message.len() > MAX_STATEMENT_BYTES {
                // The client is pinned, so the statement need not be kept.
                let effects = self.follower.latest_effects();
                effects.pin.get_or_insert("prepared statements that are too long");
            } else {
                self.statements.insert(name.clone(), ClientStatement { message, effects });
            }
            NameUse::New
        };
        self.follower.pending.push_back(PendingReply::ClientParse { name, name_use });
    }

    /// The client starts a message. `input` starts with it.
    pub(crate) fn begin(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
    ) -> Result<MessageAction, Error> {
        if self.follower.recovery == ErrorRecovery::SkipToSync && header.kind != kind::SYNC {
            // The server skips it; if not, it was not scanned.
            self.follower.leave(Remains::Anything);
            return Ok(MessageAction::Forward);
        }
        if self.follower.is_full() {
            return Ok(MessageAction::NeedInput);
        }
        match header.kind {
            kind::QUERY => {
                self.statements.remove(b"");
                self.prepared.forget_unnamed();
                let text = ArrivingText::Begins(self.follower.string_syntax(parameters));
                self.follower.payload_reader = PayloadReader::Text(text);
                self.follower.expect_ready();
            }
            kind::FUNCTION_CALL => {
                self.follower.leave(Remains::Anything);
                self.follower.expect_ready();
            }
            kind::SYNC => {
                self.follower.recovery = ErrorRecovery::None;
                self.follower.expect_ready();
            }
            kind::PARSE => return self.begin_parse(header, input, parameters),
            kind::BIND | kind::DESCRIBE | kind::CLOSE => return self.begin_reference(header, input),
            _ => {}
        }
        Ok(MessageAction::Forward)
    }

    fn begin_parse(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
    ) -> Result<MessageAction, Error> {
        let Some(name) = name_at(&input[HEADER_BYTES..], header)? else {
            return Ok(MessageAction::NeedInput);
        };
        if !name.is_empty()
            && let Some(insert) = self.missing(name)
        {
            return Ok(MessageAction::InsertBefore(insert));
        }
        let string_syntax = self.follower.string_syntax(parameters);
        self.follower.payload_reader =
            PayloadReader::Parse { message: input[..HEADER_BYTES].to_vec(), string_syntax };
        Ok(MessageAction::Forward)
    }

    /// The client starts a `Bind`, `Describe` or `Close`.
    fn begin_reference(&mut self, header: Header, input: &[u8]) -> Result<MessageAction, Error> {
        let name = match referenced_name(header, &input[HEADER_BYTES..])? {
            ReferencedName::Statement(name) => name,
            ReferencedName::Portal => {
                if header.kind == kind::CLOSE {
                    self.follower.pending.push_back(PendingReply::ClientClose);
                }
                return Ok(MessageAction::Forward);
            }
            ReferencedName::Unknown => return Ok(MessageAction::NeedInput),
        };
        if header.kind == kind::CLOSE {
            self.statements.remove(name);
            self.prepared.remove(name);
            self.follower.pending.push_back(PendingReply::ClientClose);
        } else if let Some(insert) = self.missing(name) {
            return Ok(MessageAction::InsertBefore(insert));
        }
        if header.kind == kind::BIND
            && let Some(statement) = self.statements.by_name.get(name)
            && !statement.effects.is_none()
        {
            let statement = Arc::clone(statement);
            // Its `Sync` follows.
            self.apply(&statement.effects, self.follower.requested_ready + 1);
        }
        Ok(MessageAction::Forward)
    }

    /// The messages that prepare a statement that the client has and the connection lacks.
    fn missing(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        if self.prepared.0.contains(name) {
            return None;
        }
        let statement = self.statements.by_name.get(name)?;
        let mut insert = Vec::new();
        match self.follower.pending_parse(name) {
            PendingParse::Certain => return None,
            PendingParse::None => {}
            // Closing a missing statement is not an error.
            PendingParse::Conditional => {
                encode_close_statement(&mut insert, std::str::from_utf8(name).ok()?).ok()?;
                self.follower.pending.push_back(PendingReply::InsertedClose);
            }
        }
        insert.extend_from_slice(&statement.message);
        self.follower.leave(left_by_parse(name));
        self.follower.pending.push_back(PendingReply::InsertedParse(name.to_vec()));
        Some(insert)
    }

    /// Whether [`Self::read_reply`] needs the tag of the next `CommandComplete`.
    pub(crate) fn awaits_discard(&self) -> bool {
        self.follower.sent_discard.is_some()
    }

    /// The server sends a message, with this much of its payload: up to [`DISCARD_ALL_TAG`] if
    /// [`Self::awaits_discard`].
    pub(crate) fn read_reply(&mut self, header: Header, payload: &[u8]) -> Result<ReplyAction, Error> {
        match header.kind {
            kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE if header.payload_bytes > 0 => {
                Err(Error::protocol("ParseComplete", "it has a payload"))
            }
            kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE => Ok(self.complete_reply()),
            kind::COMMAND_COMPLETE if payload == DISCARD_ALL_TAG => {
                self.follower.confirm_discard();
                Ok(ReplyAction::Forward)
            }
            kind::ERROR_RESPONSE => {
                self.fail_pending();
                Ok(ReplyAction::Forward)
            }
            kind::READY_FOR_QUERY => {
                self.follower.ready();
                Ok(ReplyAction::Forward)
            }
            _ => Ok(ReplyAction::Forward),
        }
    }

    /// The server has prepared or closed the next statement.
    fn complete_reply(&mut self) -> ReplyAction {
        loop {
            match self.follower.pop_pending() {
                // `Sync`s that the server ignored while it waited for COPY data.
                Some(PendingReply::Ready(_)) => {}
                Some(PendingReply::ClientParse { name, .. }) => {
                    // Otherwise the set would grow without limit.
                    if self.statements.by_name.contains_key(&name) {
                        self.prepared.0.insert(name);
                    }
                    return ReplyAction::Forward;
                }
                Some(PendingReply::InsertedParse(name)) => {
                    self.prepared.0.insert(name);
                    return ReplyAction::Discard;
                }
                Some(PendingReply::InsertedClose) => return ReplyAction::Discard,
                Some(PendingReply::ClientClose) | None => return ReplyAction::Forward,
            }
        }
    }

    /// The server skips everything up to the next `Sync`.
    fn fail_pending(&mut self) {
        if self.follower.first_ready > 0 {
            return;
        }
        let pending = &mut self.follower.pending;
        while pending.front().is_some_and(|pending| !matches!(pending, PendingReply::Ready(_))) {
            if let Some(PendingReply::ClientParse { name, name_use: NameUse::New }) = pending.pop_front() {
                self.statements.remove(&name);
            }
        }
        if pending.is_empty() {
            self.follower.recovery = ErrorRecovery::SkipToSync;
        }
    }
}

/// What preparing a statement of this name leaves, whatever its text.
fn left_by_parse(name: &[u8]) -> Remains {
    if name.is_empty() { Remains::UnnamedStatement } else { Remains::Anything }
}

/// Whether a prepare is pending.
enum PendingParse {
    None,
    Conditional,
    Certain,
}

/// What to do with a client's message that starts.
pub(crate) enum MessageAction {
    Forward,
    /// Not enough of it has arrived.
    NeedInput,
    /// These messages must be sent before it.
    InsertBefore(Vec<u8>),
}

/// What to do with a server's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyAction {
    Forward,
    /// It answers a message that the proxy inserted.
    Discard,
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
