//! Reads a command's response and keeps only counts: the hot path of a load generator.

use crate::{
    postgres::{
        client::exchange::{Exchange, ExchangeEvent, RowHandling},
        codec::transaction::TransactionStatus,
        error::Error,
    },
    response::Response,
};

/// The counts of one response, over all its statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExchangeSummary {
    /// Rows received. For COPY TO STDOUT the number of messages, which are rows in text format.
    pub rows: u64,
    /// Rows inserted, updated, deleted, merged or copied in.
    pub affected_rows: u64,
    /// Payload bytes of the received rows.
    pub row_bytes: u64,
    /// Notices received, which are skipped.
    pub notices: u64,
    /// The transaction status after the response.
    pub transaction: TransactionStatus,
}

/// Reads one response, up to its `ReadyForQuery`, and counts. It allocates nothing unless the server reports
/// an error, and reads rows as they arrive, so that a whole row is never buffered.
///
/// After [`Response::Done`] or an error it must be [`reset`](Self::reset) before the next command. After
/// [`Error::Server`] with [`Severity::Error`](crate::postgres::Severity::Error) the connection
/// awaits the next command, as the response has been read to its end. After any other error it is unusable.
#[derive(Debug, Clone)]
pub struct PostgresResponseReader {
    exchange: Exchange,
    summary: ExchangeSummary,
}

impl PostgresResponseReader {
    /// Reads the response to one `Query` or `Sync`.
    pub fn new() -> Self {
        Self { exchange: Exchange::new(RowHandling::Skipped), summary: ExchangeSummary::default() }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        self.exchange.reset();
        self.summary = ExchangeSummary::default();
    }

    /// Takes what it can from the front of `input`.
    #[inline]
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<ExchangeSummary>, Error> {
        loop {
            match self.exchange.step(input)? {
                ExchangeEvent::NeedInput => return Ok(Response::NeedInput),
                ExchangeEvent::RowSkipped { bytes } | ExchangeEvent::CopyData { bytes } => {
                    self.summary.rows += 1;
                    self.summary.row_bytes += bytes as u64;
                }
                // A hostile server's counts must not overflow.
                ExchangeEvent::Affected(rows) => {
                    self.summary.affected_rows = self.summary.affected_rows.saturating_add(rows);
                }
                ExchangeEvent::CopyIn(_) => {
                    self.exchange.fail();
                    return Err(Error::CopyNotExpected);
                }
                ExchangeEvent::End => {
                    self.summary.notices = self.exchange.notices();
                    self.summary.transaction = self.exchange.transaction();
                    return Ok(Response::Done(self.summary));
                }
                _ => {}
            }
        }
    }
}

impl Default for PostgresResponseReader {
    fn default() -> Self {
        Self::new()
    }
}
