//! The response to COPY FROM STDIN ("COPY Operations").

use crate::{
    postgres::{
        client::exchange::{Exchange, ExchangeEvent, RowHandling},
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
        Self { exchange: Exchange::new(RowHandling::Skipped), awaited: None }
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
