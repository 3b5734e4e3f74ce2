//! The responses to COPY FROM STDIN and COPY TO STDOUT ("COPY Operations").

use crate::{
    postgres::{
        client::{
            exchange::{Exchange, ExchangeEvent, RowHandling},
            response::ExchangeSummary,
        },
        codec::copy_start::CopyStart,
        error::Error,
    },
    response::Response,
};

/// Reads up to the point where the server waits for the data of a COPY FROM STDIN. Send them with
/// [`encode_copy_data`](crate::postgres::codec::command::encode_copy_data), end with
/// [`encode_copy_done`](crate::postgres::codec::command::encode_copy_done), and read the response with
/// [`PostgresResponseReader`](super::PostgresResponseReader).
///
/// After an error the same holds as for that reader. A statement that is not such a COPY is
/// [`Error::NotACopy`], after which the connection awaits the next command.
#[derive(Debug, Clone)]
pub struct CopyInReader {
    exchange: Exchange,
    awaited: Option<CopyStart>,
}

impl CopyInReader {
    /// Reads the response to one `Query`.
    pub fn new() -> Self {
        Self { exchange: Exchange::new(RowHandling::Skipped, 1), awaited: None }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes what it can from the front of `input`.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<CopyStart>, Error> {
        if let Some(awaited) = self.awaited {
            return Ok(Response::Done(awaited));
        }
        loop {
            let parsed = match self.exchange.step(input)? {
                ExchangeEvent::NeedInput => return Ok(Response::NeedInput),
                ExchangeEvent::CopyIn(payload) => CopyStart::parse(payload),
                ExchangeEvent::End => Err(Error::NotACopy),
                _ => continue,
            };
            match parsed {
                Ok(copy) => self.awaited = Some(copy),
                Err(_) => self.exchange.fail(),
            }
            return parsed.map(Response::Done);
        }
    }
}

impl Default for CopyInReader {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads the response to a COPY TO STDOUT and passes the data on as they arrive, cut anywhere.
///
/// After an error the same holds as for [`super::PostgresResponseReader`]. A statement that is not such a
/// COPY is [`Error::NotACopy`], after which the connection awaits the next command.
#[derive(Debug, Clone)]
pub struct CopyOutReader {
    exchange: Exchange,
    /// Whether the server has sent its `CopyOutResponse`.
    has_started: bool,
    summary: ExchangeSummary,
}

impl CopyOutReader {
    /// Reads the response to one `Query`.
    pub fn new() -> Self {
        let exchange = Exchange::new(RowHandling::Skipped, 1);
        Self { exchange, has_started: false, summary: ExchangeSummary::default() }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes what it can from the front of `input` and passes data to `sink`.
    pub fn step(
        &mut self,
        input: &mut &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<Response<ExchangeSummary>, Error> {
        loop {
            match self.exchange.step(input)? {
                ExchangeEvent::NeedInput => return Ok(Response::NeedInput),
                ExchangeEvent::CopyOut => self.has_started = true,
                ExchangeEvent::CopyData { bytes } => {
                    self.summary.rows += 1;
                    self.summary.row_bytes += bytes as u64;
                }
                ExchangeEvent::CopyPiece(piece) => sink(piece),
                ExchangeEvent::CopyIn(_) => {
                    self.exchange.fail();
                    return Err(Error::CopyNotExpected);
                }
                ExchangeEvent::End if !self.has_started => {
                    self.exchange.fail();
                    return Err(Error::NotACopy);
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

impl Default for CopyOutReader {
    fn default() -> Self {
        Self::new()
    }
}
