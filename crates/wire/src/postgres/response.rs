//! Reads a command's answer and keeps only counts: the hot path of a load generator.

use super::{
    Error, Response, TransactionStatus,
    exchange::{Event, Exchange, Rows},
};

/// The counts of one answer, over all its statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Rows received; of a COPY TO STDOUT its messages, which are rows where its format is text.
    pub rows: u64,
    /// Rows inserted, updated, deleted, merged or copied in.
    pub affected_rows: u64,
    /// Payload bytes of the rows received.
    pub row_bytes: u64,
    /// Notices received, which are skipped.
    pub notices: u64,
    /// Where the session stands now.
    pub transaction: TransactionStatus,
}

/// Reads one answer, up to its `ReadyForQuery`, and counts. It allocates nothing unless the server says no, and takes
/// rows as their bytes come, so that nobody has to hold a whole one.
///
/// After [`Response::Done`] or an error it must be [`reset`](Self::reset) before the next command. After
/// [`Error::Server`] of [`Severity::Error`](super::Severity::Error) the connection awaits the next command, the answer
/// having been read to its end; after any other error it is of no more use.
#[derive(Debug, Clone)]
pub struct ResponseReader {
    exchange: Exchange,
    summary: Summary,
}

impl ResponseReader {
    /// Reads the answer to one `Query` or `Sync`.
    pub fn new() -> Self {
        Self::pipelined(1)
    }

    /// Reads the answers to so many `Query`s and `Sync`s that were sent together, and counts over all of them. Where
    /// the server says no in some, the first error is given back, after all.
    pub fn pipelined(answers: u32) -> Self {
        Self { exchange: Exchange::new(Rows::Skipped, answers), summary: Summary::default() }
    }

    /// Makes it ready for the next answer, or for as many as before.
    pub fn reset(&mut self) {
        self.exchange.reset();
        self.summary = Summary::default();
    }

    /// Takes what it can from the front of `input`.
    #[inline]
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Summary>, Error> {
        loop {
            match self.exchange.step(input)? {
                Event::NeedInput => return Ok(Response::NeedInput),
                Event::RowSkipped { bytes } | Event::CopyData { bytes } => {
                    self.summary.rows += 1;
                    self.summary.row_bytes += bytes as u64;
                }
                // A hostile server's counts must not overflow; a real one's never do.
                Event::Affected(rows) => {
                    self.summary.affected_rows = self.summary.affected_rows.saturating_add(rows);
                }
                Event::CopyIn(_) => {
                    self.exchange.fail();
                    return Err(Error::CopyNotExpected);
                }
                Event::End => {
                    self.summary.notices = self.exchange.notices();
                    self.summary.transaction = self.exchange.transaction();
                    return Ok(Response::Done(self.summary));
                }
                _ => {}
            }
        }
    }
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}
