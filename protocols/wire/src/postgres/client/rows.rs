//! Reads a query's response and keeps the rows, up to a limit: for control connections.

use crate::response::Row;
use crate::{
    postgres::{
        client::exchange::{Exchange, ExchangeEvent, RowHandling},
        codec::{
            reader::Reader,
            report::{Notice, Report},
        },
        error::Error,
    },
    response::Response,
};

/// Further notices are only counted.
const MAX_NOTICES: usize = 32;

/// Collects the rows of all statements of one response as sent, and the first notices. The data of a COPY TO
/// STDOUT are not rows and are skipped.
///
/// After an error the same holds as for [`super::PostgresResponseReader`].
#[derive(Debug, Clone)]
pub struct PostgresRowsReader {
    exchange: Exchange,
    rows: Vec<Row>,
    notices: Vec<Notice>,
    held_bytes: usize,
    limit_bytes: usize,
}

impl PostgresRowsReader {
    /// `limit_bytes` includes the size of the vectors.
    pub fn new(limit_bytes: usize) -> Self {
        let exchange = Exchange::new(RowHandling::Whole { limit_bytes });
        Self { exchange, rows: Vec::new(), notices: Vec::new(), held_bytes: 0, limit_bytes }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        self.exchange.reset();
        self.rows.clear();
        self.notices.clear();
        self.held_bytes = 0;
    }

    /// The first notices of the response.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Takes whole messages from the front of `input`. The rows are returned once.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Vec<Row>>, Error> {
        loop {
            let kept = match self.exchange.step(input)? {
                ExchangeEvent::NeedInput => return Ok(Response::NeedInput),
                ExchangeEvent::Row(payload) => self.keep(payload),
                ExchangeEvent::Notice(payload) => self.keep_notice(payload),
                ExchangeEvent::CopyIn(_) => Err(Error::CopyNotExpected),
                ExchangeEvent::End => return Ok(Response::Done(std::mem::take(&mut self.rows))),
                _ => Ok(()),
            };
            if kept.is_err() {
                self.exchange.fail();
            }
            kept?;
        }
    }

    fn keep(&mut self, payload: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(payload, "row");
        let columns = usize::from(reader.u16()?);
        self.held_bytes += size_of::<Row>() + columns * size_of::<Option<Vec<u8>>>() + payload.len();
        if self.held_bytes > self.limit_bytes {
            return Err(Error::ResultTooLarge { limit: self.limit_bytes });
        }
        let mut row = Row::with_capacity(columns);
        for _ in 0..columns {
            row.push(reader.nullable_bytes()?.map(<[u8]>::to_vec));
        }
        reader.end()?;
        self.rows.push(row);
        Ok(())
    }

    fn keep_notice(&mut self, payload: &[u8]) -> Result<(), Error> {
        let report = Report::parse(payload)?;
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(report.to_notice());
        }
        Ok(())
    }
}
