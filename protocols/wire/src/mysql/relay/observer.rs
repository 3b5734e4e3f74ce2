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
}

impl ResponseObserver {
    pub(crate) fn record_cursor(&mut self) {
        self.cursor = CursorState::Open;
    }

    pub(crate) fn record_ok(&mut self, end: OkPacket) {
        self.end = ResponseEnd::Ok(end);
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
        self.completed.push(CompletedResponse { end, insert_id, cursor: std::mem::take(&mut self.cursor) });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CompletedResponse {
    pub(crate) end: ResponseEnd,
    /// 0 if none was reported.
    pub(crate) insert_id: u64,
    pub(crate) cursor: CursorState,
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
