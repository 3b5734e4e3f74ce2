//! What a [`SessionFollower`](crate::mysql::relay::SessionFollower) learns from the relay: how each response ended, and
//! where commands start.

use crate::mysql::codec::ok::OkPacket;

/// What is recorded for the session follower.
#[derive(Debug, Default)]
pub(crate) struct ResponseObserver {
    /// The responses that have ended, in order.
    pub(crate) completed: Vec<CompletedResponse>,
    /// The last OK or EOF of the current response, or its ERR.
    end: ResponseEnd,
    /// The last insert id of the current response.
    insert_id: u64,
    cursor: CursorState,
    statuses: Statuses,
}

impl ResponseObserver {
    pub(crate) fn record_cursor(&mut self) {
        self.cursor = CursorState::Open;
    }

    pub(crate) fn record_ok(&mut self, end: OkPacket) {
        self.end = ResponseEnd::Ok(end);
        self.statuses.add(end.status);
    }

    pub(crate) fn record_err(&mut self, code: u16) {
        self.end = ResponseEnd::Err(code);
    }

    pub(crate) fn record_insert_id(&mut self, ok: OkPacket) {
        if ok.last_insert_id != 0 {
            self.insert_id = ok.last_insert_id;
        }
    }

    pub(crate) fn end_response(&mut self) {
        let (end, insert_id) = (std::mem::take(&mut self.end), std::mem::take(&mut self.insert_id));
        let (cursor, statuses) = (std::mem::take(&mut self.cursor), std::mem::take(&mut self.statuses));
        self.completed.push(CompletedResponse { end, insert_id, cursor, statuses });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CompletedResponse {
    pub(crate) end: ResponseEnd,
    /// 0 if none was reported.
    pub(crate) insert_id: u64,
    pub(crate) cursor: CursorState,
    pub(crate) statuses: Statuses,
}

/// The status flags of all OKs and EOFs of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statuses {
    /// Set in all of them.
    all: u16,
    /// Set in any of them.
    any: u16,
}

impl Default for Statuses {
    fn default() -> Self {
        Self { all: u16::MAX, any: 0 }
    }
}

impl Statuses {
    fn add(&mut self, status: u16) {
        self.all &= status;
        self.any |= status;
    }

    /// The flags that were not always the same as in `status`.
    pub(crate) fn differences(self, status: u16) -> u16 {
        (!self.all & status) | (self.any & !status)
    }
}

/// Whether a response has opened a cursor for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CursorState {
    #[default]
    None,
    Open,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ResponseEnd {
    /// Without an OK, EOF or ERR.
    #[default]
    NoStatus,
    Ok(OkPacket),
    /// With this error code.
    Err(u16),
}
