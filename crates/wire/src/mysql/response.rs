//! Reads a command's response and keeps only counts: the hot path of a load generator.

use super::{
    Capabilities, Error,
    result_set::{ResultEvent, ResultSets, RowEnds},
};

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

/// Reads one response and counts. It allocates nothing, and reads rows as they arrive, so that a whole row is
/// never buffered.
///
/// After [`Response::Done`] or an error it must be [`reset`](Self::reset) before the next command. After
/// [`Error::Server`] the connection awaits the next command; after any other error it is unusable.
#[derive(Debug, Clone)]
pub struct MySqlResponseReader {
    sets: ResultSets,
    summary: ResponseSummary,
}

impl MySqlResponseReader {
    /// `capabilities`: those negotiated on the connection. A row may have up to 1 GiB, the protocol's
    /// maximum.
    pub fn new(kind: ResponseKind, capabilities: Capabilities) -> Self {
        Self { sets: ResultSets::new(kind, capabilities), summary: ResponseSummary::default() }
    }

    /// Refuses rows longer than `limit_bytes`.
    #[must_use]
    pub fn with_row_limit(mut self, limit_bytes: usize) -> Self {
        self.sets.limit_rows(limit_bytes);
        self
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        self.sets.reset();
        self.summary = ResponseSummary::default();
    }

    /// Takes whole packets from the front of `input`, and rows as far as they have arrived.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response, Error> {
        loop {
            match self.sets.step(input)? {
                ResultEvent::NeedInput => return Ok(Response::NeedInput),
                ResultEvent::Row { part, ends, .. } => {
                    self.summary.row_bytes += part.len() as u64;
                    self.summary.rows += u64::from(ends == RowEnds::Here);
                }
                // A hostile server's counts must not overflow.
                ResultEvent::Affected(rows) => {
                    self.summary.affected_rows = self.summary.affected_rows.saturating_add(rows);
                }
                ResultEvent::End => return Ok(Response::Done(self.summary)),
            }
        }
    }
}
