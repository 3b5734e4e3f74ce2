//! Reads a command's response and keeps only counts: the hot path of a load generator.

use crate::mysql::{
    client::result_sets::{ResultEvent, ResultSets, RowEnds},
    codec::capabilities::Capabilities,
    error::Error,
};
use crate::response::{Response, ResponseKind, ResponseSummary};

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
