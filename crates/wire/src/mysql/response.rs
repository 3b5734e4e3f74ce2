//! Reads a command's answer and keeps only counts: the hot path of a load generator.

use super::{
    Capabilities, Error,
    result_set::{Event, ResultSets, RowEnds},
};

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// As the answer to `COM_QUERY`.
    Text,
    /// As the answer to `COM_STMT_EXECUTE`.
    Binary,
}

/// What a reader has: not enough yet, or the whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response<T = Summary> {
    /// Call again with more input.
    NeedInput,
    /// The answer is complete; bytes left in the input are not part of it.
    Done(T),
}

/// The counts of one answer, over all its result sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Rows received.
    pub rows: u64,
    /// Rows changed.
    pub affected_rows: u64,
    /// Payload bytes of the rows received.
    pub row_bytes: u64,
}

/// Reads one answer and counts; allocates nothing, and takes rows as they come, so that whoever drives it never has to
/// hold a whole one.
///
/// After [`Response::Done`] or an error it must be [`reset`](Self::reset) before the next command. After
/// [`Error::Server`] the connection awaits the next command; after any other error it is of no more use.
#[derive(Debug, Clone)]
pub struct ResponseReader {
    sets: ResultSets,
    summary: Summary,
}

impl ResponseReader {
    /// Reads answers of one kind on a connection with these agreed capabilities; a row may have 1 GiB, more than which
    /// no server sends.
    pub fn new(kind: ResponseKind, capabilities: Capabilities) -> Self {
        Self { sets: ResultSets::new(kind, capabilities), summary: Summary::default() }
    }

    /// Refuses rows of more than `limit_bytes`.
    #[must_use]
    pub fn with_row_limit(mut self, limit_bytes: usize) -> Self {
        self.sets.limit_rows(limit_bytes);
        self
    }

    /// Makes it ready for the next command's answer.
    pub fn reset(&mut self) {
        self.sets.reset();
        self.summary = Summary::default();
    }

    /// Takes from the front of `input` whole packets, and of rows what is there.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response, Error> {
        loop {
            match self.sets.step(input)? {
                Event::NeedInput => return Ok(Response::NeedInput),
                Event::Row { part, ends, .. } => {
                    self.summary.row_bytes += part.len() as u64;
                    self.summary.rows += u64::from(ends == RowEnds::Here);
                }
                // A hostile server's counts must not overflow; a real one's never do.
                Event::Affected(rows) => {
                    self.summary.affected_rows = self.summary.affected_rows.saturating_add(rows);
                }
                Event::End => return Ok(Response::Done(self.summary)),
            }
        }
    }
}
