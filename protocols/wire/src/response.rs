//! What the readers of responses return in every protocol.

/// The row format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// As in the response to `COM_QUERY`.
    Text,
    /// As in the response to `COM_STMT_EXECUTE`.
    Binary,
}

/// The result of a reader's step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response<T = ResponseSummary> {
    /// Call again with more input.
    NeedInput,
    /// The response is complete. Bytes left in the input are not part of it.
    Done(T),
}

/// The counts of one response, over all its result sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseSummary {
    pub rows: u64,
    /// Rows inserted, changed or deleted.
    pub affected_rows: u64,
    /// Payload bytes of the received rows.
    pub row_bytes: u64,
}

/// The values of a text row; `None` is NULL.
pub type Row = Vec<Option<Vec<u8>>>;
