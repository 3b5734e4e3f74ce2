//! What a PostgreSQL server does with the messages that it was sent, as its main loop and its COPY do it
//! ("Message Flow"): which message each answer belongs to, which messages the server skips after an error, and whether
//! another answer follows. Nothing is derived from the number of messages sent.
//!
//! Each message has a note, which the model keeps until the server has executed or skipped the message.

use std::collections::VecDeque;

use crate::postgres::codec::{kind, transaction::TransactionStatus};

/// Limit of messages without an answer. At the limit the client's next message waits. A server may hold back answers
/// until its buffer of 8 KiB is full, and the shortest has five bytes: with a limit below 1,639 the two sides could
/// deadlock.
const MAX_SENT: usize = 1 << 12;

const UNSOLICITED: &str = "the server sent an unsolicited message";
const COPY_FAILED: &str = "a COPY failed between commands that were sent behind it";

/// The messages that a server was sent and has not answered yet.
#[derive(Debug)]
pub(crate) struct BackendModel<N> {
    /// The message that the server executes now or next. Most sessions have no other.
    front: Option<Sent<N>>,
    rest: VecDeque<Sent<N>>,
    /// Whether the server has answered something to the front.
    front_progress: FrontAnswer,
    copy: Copy,
    /// What was sent behind `rest` while the server awaited data: most are many, and need no entries.
    late_data: LateData,
    skip: Skip,
    batch: ImplicitTransaction,
    /// `ReadyForQuery`s that may come in addition: for `Sync`s that a failed COPY has ignored, or has not.
    spare_ready: u32,
    transaction: TransactionStatus,
    doubt: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Sent<N> {
    pub(crate) kind: SentKind,
    pub(crate) note: N,
}

/// The messages that matter to the model. A `Flush` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentKind {
    Query,
    FunctionCall,
    Sync,
    Parse,
    Bind,
    Describe,
    Execute,
    Close,
    /// Any number of consecutive `CopyData`s. Outside of a COPY the server ignores them.
    CopyData,
    /// `CopyDone` or `CopyFail`. Outside of a COPY the server ignores it.
    CopyEnd,
}

/// What an error shows of a COPY that it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFailure {
    /// It may have come at any time.
    AtAnyTime,
    /// The server had read data, or their end.
    InData,
    /// By the client's `CopyFail`: the server had read everything up to it.
    ByClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrontAnswer {
    None,
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copy {
    None,
    /// The front reads data. The server ignores each `Sync`.
    In,
}

/// Messages within the data of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LateData {
    has_begun: bool,
    syncs_before: u32,
    syncs_within: u32,
}

/// Whether the server skips messages after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    None,
    /// Up to the next `Sync`, which was not sent yet.
    ToSync,
    /// Perhaps: a `Sync` may have ended it.
    PerhapsToSync,
}

/// Whether the server needs a `Sync` to end an implicit transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImplicitTransaction {
    Ended,
    Open,
}

/// What is known of the answers to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Everything is answered; the server awaits commands.
    Clean,
    /// The same, unless another `ReadyForQuery` follows.
    CleanUnlessMore,
    /// A `ReadyForQuery` is owed.
    Owed,
    /// The client must send more before the server answers.
    Unfinished,
    Unknown(&'static str),
}

impl<N> Default for BackendModel<N> {
    fn default() -> Self {
        Self {
            front: None,
            rest: VecDeque::new(),
            front_progress: FrontAnswer::None,
            copy: Copy::None,
            late_data: LateData::default(),
            skip: Skip::None,
            batch: ImplicitTransaction::Ended,
            spare_ready: 0,
            transaction: TransactionStatus::Idle,
            doubt: None,
        }
    }
}

impl SentKind {
    /// `None` if the message changes nothing.
    #[inline]
    pub(crate) fn of(kind: u8) -> Option<Self> {
        Some(match kind {
            kind::QUERY => Self::Query,
            kind::FUNCTION_CALL => Self::FunctionCall,
            kind::SYNC => Self::Sync,
            kind::PARSE => Self::Parse,
            kind::BIND => Self::Bind,
            kind::DESCRIBE => Self::Describe,
            kind::EXECUTE => Self::Execute,
            kind::CLOSE => Self::Close,
            kind::COPY_DATA => Self::CopyData,
            kind::COPY_DONE | kind::COPY_FAIL => Self::CopyEnd,
            _ => return None,
        })
    }

    fn is_of_copy(self) -> bool {
        matches!(self, Self::CopyData | Self::CopyEnd)
    }

    /// Whether its answer ends with a `ReadyForQuery`, whatever was sent before.
    pub(crate) fn ends_with_ready(self) -> bool {
        matches!(self, Self::Query | Self::FunctionCall | Self::Sync)
    }
}

impl<N> BackendModel<N> {
    /// The client's next message was sent. Returns whether the server will execute it, as far as is known.
    #[inline]
    pub(crate) fn send(&mut self, kind: SentKind, note: N) -> bool {
        if self.skip != Skip::None && !self.send_while_skipping(kind) {
            return false;
        }
        if self.copy == Copy::In && self.send_data(kind) {
            return true;
        }
        match kind {
            SentKind::Query | SentKind::FunctionCall | SentKind::Sync => {
                self.batch = ImplicitTransaction::Ended;
            }
            // Ignored if there is nothing that could be a COPY.
            kind if kind.is_of_copy() && self.front.is_none() => return false,
            SentKind::CopyData if self.rest.back().is_some_and(|last| last.kind == kind) => return true,
            kind if kind.is_of_copy() => {}
            // It needs no transaction.
            SentKind::Close => {}
            _ => self.batch = ImplicitTransaction::Open,
        }
        if self.doubt.is_some() {
            return false;
        }
        let sent = Sent { kind, note };
        if self.front.is_none() {
            self.front = Some(sent);
            self.front_progress = FrontAnswer::None;
        } else {
            self.rest.push_back(sent);
        }
        true
    }

    /// Records a message that a COPY reads. Returns false for others.
    fn send_data(&mut self, kind: SentKind) -> bool {
        if !self.awaits_data() {
            return false;
        }
        let late = &mut self.late_data;
        match kind {
            SentKind::CopyData => late.has_begun = true,
            SentKind::Sync if late.has_begun => late.syncs_within = late.syncs_within.saturating_add(1),
            SentKind::Sync => late.syncs_before = late.syncs_before.saturating_add(1),
            _ => return false,
        }
        true
    }

    /// Whether the server reads the data of a COPY, whose end was not sent.
    pub(crate) fn awaits_data(&self) -> bool {
        self.copy == Copy::In && !self.rest.iter().any(|sent| sent.kind == SentKind::CopyEnd)
    }

    /// Whether the message is more than skipped.
    fn send_while_skipping(&mut self, kind: SentKind) -> bool {
        match kind {
            SentKind::Sync => {
                self.skip = Skip::None;
                true
            }
            kind if kind.is_of_copy() => false,
            _ if self.skip == Skip::PerhapsToSync => {
                self.give_up(COPY_FAILED);
                false
            }
            _ => false,
        }
    }

    /// Whether the server skips everything up to a `Sync` that was not sent yet, or may do so.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skip != Skip::None
    }

    /// Whether no transaction of messages without a `Sync` is open, if everything sent succeeds.
    pub(crate) fn is_between_batches(&self) -> bool {
        self.batch == ImplicitTransaction::Ended
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rest.len() + usize::from(self.front.is_some()) >= MAX_SENT
    }

    pub(crate) fn is_copying_in(&self) -> bool {
        self.copy == Copy::In
    }

    /// The message that the server executes now or next.
    #[inline]
    pub(crate) fn current(&mut self) -> Option<&mut Sent<N>> {
        self.drop_ignored();
        self.front.as_mut()
    }

    /// Whether the server has answered a part of the message that it executes now.
    pub(crate) fn has_begun(&mut self) -> bool {
        self.drop_ignored();
        self.front_progress == FrontAnswer::Answered
    }

    /// The newest message.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Sent<N>> {
        self.rest.back_mut().or(self.front.as_mut())
    }

    /// The messages that were not answered, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Sent<N>> {
        self.rest.iter().rev().chain(&self.front)
    }

    pub(crate) fn transaction(&self) -> TransactionStatus {
        self.transaction
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// What is known is no longer certain, for this reason.
    fn give_up(&mut self, reason: &'static str) {
        self.doubt.get_or_insert(reason);
        self.front = None;
        self.rest.clear();
    }

    /// The server sends a message that is not a `ReadyForQuery`. Returns the client's message that it completes.
    #[inline]
    pub(crate) fn receive(&mut self, kind: u8) -> Option<Sent<N>> {
        match kind {
            kind::DATA_ROW
            | kind::NOTICE_RESPONSE
            | kind::NOTIFICATION_RESPONSE
            | kind::PARAMETER_STATUS
            | kind::COPY_DATA
            | kind::COPY_DONE => None,
            kind::ERROR_RESPONSE => self.fail(CopyFailure::AtAnyTime),
            kind => self.answer(kind),
        }
    }

    /// The messages in front of the next answer that the server ignores.
    #[inline]
    fn drop_ignored(&mut self) {
        while self.copy == Copy::None && self.front.as_ref().is_some_and(|front| front.kind.is_of_copy()) {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<Sent<N>> {
        self.front_progress = FrontAnswer::None;
        std::mem::replace(&mut self.front, self.rest.pop_front())
    }

    fn answer(&mut self, kind: u8) -> Option<Sent<N>> {
        self.drop_ignored();
        let front = self.front.as_ref().map(|front| front.kind);
        let ends = match (front, kind) {
            (Some(SentKind::Parse), kind::PARSE_COMPLETE)
            | (Some(SentKind::Bind), kind::BIND_COMPLETE)
            | (Some(SentKind::Close), kind::CLOSE_COMPLETE)
            | (Some(SentKind::Describe), kind::NO_DATA | kind::ROW_DESCRIPTION)
            | (
                Some(SentKind::Execute),
                kind::COMMAND_COMPLETE | kind::EMPTY_QUERY_RESPONSE | kind::PORTAL_SUSPENDED,
            ) => true,
            (Some(SentKind::Describe), kind::PARAMETER_DESCRIPTION)
            | (Some(SentKind::FunctionCall), kind::FUNCTION_CALL_RESPONSE)
            | (
                Some(SentKind::Query),
                kind::COMMAND_COMPLETE | kind::EMPTY_QUERY_RESPONSE | kind::ROW_DESCRIPTION,
            )
            | (Some(SentKind::Query | SentKind::Execute), kind::COPY_IN_RESPONSE | kind::COPY_OUT_RESPONSE) => {
                false
            }
            _ => {
                if self.doubt.is_none() {
                    self.give_up(UNSOLICITED);
                }
                return None;
            }
        };
        self.spare_ready = 0;
        self.front_progress = FrontAnswer::Answered;
        match kind {
            kind::COPY_IN_RESPONSE => self.copy = Copy::In,
            kind::COMMAND_COMPLETE if self.copy == Copy::In => self.end_copy(),
            _ => {}
        }
        if ends { self.pop() } else { None }
    }

    /// A COPY has read its data up to the first `CopyDone`, and has ignored each `Sync` before it.
    fn end_copy(&mut self) {
        self.copy = Copy::None;
        self.take_data();
        let is_of_batch = self.front.as_ref().is_some_and(|front| front.kind == SentKind::Execute);
        if is_of_batch && !self.rest.iter().any(|sent| sent.kind.ends_with_ready()) {
            // If its batch had a `Sync`, it was ignored.
            self.batch = ImplicitTransaction::Open;
        }
    }

    /// Removes what a COPY has read: everything up to the first `CopyDone` or `CopyFail`.
    fn take_data(&mut self) {
        self.late_data = LateData::default();
        while let Some(sent) = self.rest.pop_front() {
            if sent.kind == SentKind::CopyEnd {
                return;
            }
        }
        self.give_up("a COPY ended before its data");
    }

    /// The front has failed. Returns it unless its `ReadyForQuery` follows.
    pub(crate) fn fail(&mut self, failure: CopyFailure) -> Option<Sent<N>> {
        self.drop_ignored();
        let Some(front) = &self.front else {
            if self.doubt.is_none() {
                self.give_up(UNSOLICITED);
            }
            return None;
        };
        let ends_with_ready = front.kind.ends_with_ready();
        self.spare_ready = 0;
        self.front_progress = FrontAnswer::Answered;
        let copy = std::mem::replace(&mut self.copy, Copy::None);
        // The server has ignored those that it had read when the COPY failed.
        let doubtful = match (copy, failure) {
            (Copy::None, _) => 0,
            (Copy::In, CopyFailure::ByClient) => {
                self.take_data();
                0
            }
            (Copy::In, _) => self.take_syncs_in_copy(failure),
        };
        if ends_with_ready {
            self.spare_ready = doubtful;
            return None;
        }
        let failed = self.pop();
        self.skip_to_sync(doubtful);
        failed
    }

    /// Removes the `Sync`s that were sent within a COPY's data. Returns how many the server may not have ignored.
    fn take_syncs_in_copy(&mut self, failure: CopyFailure) -> u32 {
        let (mut count, mut has_data) = (0, false);
        while let Some(next) =
            self.rest.pop_front_if(|next| matches!(next.kind, SentKind::Sync | SentKind::CopyData))
        {
            has_data |= next.kind == SentKind::CopyData;
            if next.kind == SentKind::Sync && (has_data || failure == CopyFailure::AtAnyTime) {
                count += 1;
            }
        }
        let late = std::mem::take(&mut self.late_data);
        if has_data || failure == CopyFailure::AtAnyTime {
            count += late.syncs_before;
        }
        count.saturating_add(late.syncs_within)
    }

    /// The server skips the messages up to a `Sync`; one of `doubtful` earlier ones may have ended that.
    fn skip_to_sync(&mut self, doubtful: u32) {
        self.spare_ready = doubtful;
        while let Some(front) = &self.front {
            match front.kind {
                SentKind::Sync => return,
                kind if kind.is_of_copy() => {}
                _ if doubtful > 0 => return self.give_up(COPY_FAILED),
                _ => {}
            }
            self.pop();
        }
        self.skip = if doubtful > 0 { Skip::PerhapsToSync } else { Skip::ToSync };
    }

    /// The server sends a `ReadyForQuery`. Returns the client's message that it completes.
    pub(crate) fn receive_ready(&mut self, transaction: TransactionStatus) -> Option<Sent<N>> {
        self.transaction = transaction;
        self.drop_ignored();
        let front = self.front.as_ref().map(|front| front.kind);
        match front {
            Some(SentKind::Sync) => return self.pop(),
            Some(SentKind::Query | SentKind::FunctionCall)
                if self.front_progress == FrontAnswer::Answered =>
            {
                self.copy = Copy::None;
                return self.pop();
            }
            _ if self.spare_ready > 0 => {
                self.spare_ready -= 1;
                if self.skip == Skip::PerhapsToSync {
                    (self.skip, self.batch) = (Skip::None, ImplicitTransaction::Ended);
                }
            }
            _ if self.doubt.is_none() => self.give_up(UNSOLICITED),
            _ => {}
        }
        None
    }

    pub(crate) fn outlook(&self) -> Outlook {
        if let Some(reason) = self.doubt {
            return Outlook::Unknown(reason);
        }
        if self.is_at_rest() {
            return if self.spare_ready > 0 { Outlook::CleanUnlessMore } else { Outlook::Clean };
        }
        let mut is_copying_in = self.copy == Copy::In;
        // Of a COPY that needs more data nothing is answered, nor of a `Sync` in its data.
        let is_owed = |sent: &Sent<N>| {
            let is_owed = !is_copying_in && sent.kind.ends_with_ready();
            is_copying_in &= sent.kind != SentKind::CopyEnd;
            is_owed
        };
        let is_front_owed =
            !self.awaits_data() && self.front.as_ref().is_some_and(|front| front.kind.ends_with_ready());
        if is_front_owed || self.rest.iter().any(is_owed) {
            return Outlook::Owed;
        }
        let has_commands = || self.front.iter().chain(&self.rest).any(|sent| !sent.kind.is_of_copy());
        let is_unfinished = self.copy == Copy::In
            || self.skip != Skip::None
            || self.batch == ImplicitTransaction::Open
            || has_commands();
        match is_unfinished {
            true => Outlook::Unfinished,
            false if self.spare_ready > 0 => Outlook::CleanUnlessMore,
            false => Outlook::Clean,
        }
    }

    /// Whether the server has read everything and awaits commands: most of the time.
    fn is_at_rest(&self) -> bool {
        self.front.is_none()
            && self.rest.is_empty()
            && self.copy == Copy::None
            && self.skip == Skip::None
            && self.batch == ImplicitTransaction::Ended
    }
}

#[cfg(test)]
mod tests;
