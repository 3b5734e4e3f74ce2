//! Reads a query's response and keeps the rows, up to a limit: for control connections.

use crate::response::Row;
use crate::{
    mysql::{
        client::result_sets::{ResultEvent, ResultSets, RowEnds},
        codec::{capabilities::Capabilities, reader::Reader},
        error::Error,
    },
    response::{Response, ResponseKind},
};

/// Collects the text rows of all result sets of one response. After an error the same holds as for
/// [`super::MySqlResponseReader`].
#[derive(Debug, Clone)]
pub struct MySqlRowsReader {
    sets: ResultSets,
    rows: Vec<Row>,
    /// The part of an incomplete row that has arrived.
    partial: Vec<u8>,
    held_bytes: usize,
    limit_bytes: usize,
}

impl MySqlRowsReader {
    /// `limit_bytes` includes the size of the vectors.
    pub fn new(capabilities: Capabilities, limit_bytes: usize) -> Self {
        let sets = ResultSets::new(ResponseKind::Text, capabilities);
        Self { sets, rows: Vec::new(), partial: Vec::new(), held_bytes: 0, limit_bytes }
    }

    /// The status flags at the end of the last result.
    pub(crate) fn status(&self) -> u16 {
        self.sets.status()
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        self.sets.reset();
        self.rows.clear();
        self.partial.clear();
        self.held_bytes = 0;
    }

    /// Takes whole packets from the front of `input`, and rows as far as they have arrived. The rows are
    /// returned once.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Vec<Row>>, Error> {
        loop {
            match self.sets.step(input)? {
                ResultEvent::NeedInput => return Ok(Response::NeedInput),
                ResultEvent::Row { part, columns, ends } => {
                    if let Err(error) = self.part(part, columns, ends) {
                        self.sets.fail();
                        return Err(error);
                    }
                }
                ResultEvent::Affected(_) => {}
                ResultEvent::End => return Ok(Response::Done(std::mem::take(&mut self.rows))),
            }
        }
    }

    fn part(&mut self, part: &[u8], columns: u16, ends: RowEnds) -> Result<(), Error> {
        match ends {
            RowEnds::Here if self.partial.is_empty() => self.keep(part, columns),
            RowEnds::Here => {
                self.hold(part)?;
                let mut row = std::mem::take(&mut self.partial);
                let kept = self.keep(&row, columns);
                row.clear();
                // Its memory is reused for the next row.
                self.partial = row;
                kept
            }
            RowEnds::Later => self.hold(part),
        }
    }

    fn hold(&mut self, part: &[u8]) -> Result<(), Error> {
        if self.held_bytes + self.partial.len() + part.len() > self.limit_bytes {
            return Err(Error::ResultTooLarge { limit: self.limit_bytes });
        }
        self.partial.extend_from_slice(part);
        Ok(())
    }

    fn keep(&mut self, payload: &[u8], columns: u16) -> Result<(), Error> {
        let columns = usize::from(columns);
        self.held_bytes += size_of::<Row>() + columns * size_of::<Option<Vec<u8>>>() + payload.len();
        if self.held_bytes > self.limit_bytes {
            return Err(Error::ResultTooLarge { limit: self.limit_bytes });
        }
        let mut reader = Reader::new(payload, "row");
        let mut row = Row::with_capacity(columns);
        for _ in 0..columns {
            row.push(reader.nullable_bytes()?.map(<[u8]>::to_vec));
        }
        reader.end()?;
        self.rows.push(row);
        Ok(())
    }
}
