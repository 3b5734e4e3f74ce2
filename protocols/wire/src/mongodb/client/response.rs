//! Reads a command's reply and keeps only counts: the hot path of a load generator.

use crate::response::ResponseSummary;
use crate::{
    mongodb::{
        client::reply::{self, Reply},
        codec::{
            compression::{Compressor, Inflater},
            message::MAX_MESSAGE_BYTES,
        },
        error::Error,
    },
    response::Response,
};

/// Reads one reply and counts. It allocates nothing unless the reply is an error or compressed.
///
/// After [`Response::Done`] or an error it must be [`reset`](Self::reset) before the next command. After
/// [`Error::Server`] the connection awaits the next command; after any other error it is unusable.
#[derive(Debug, Clone)]
pub struct MongoDbResponseReader {
    request_id: i32,
    inflater: Inflater,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Open,
    Ended(ResponseSummary),
    Failed,
}

impl MongoDbResponseReader {
    /// `request_id`: that of the command.
    pub fn new(request_id: i32) -> Self {
        Self { request_id, inflater: Inflater::default(), state: State::Open }
    }

    /// The same on a connection with this negotiated compressor.
    #[must_use]
    pub fn compressed_by(self, agreed: Option<Compressor>) -> Self {
        Self { inflater: Inflater::of(agreed), ..self }
    }

    /// Prepares for the next reply.
    #[inline]
    pub fn reset(&mut self) {
        self.state = State::Open;
    }

    /// Takes a whole message from the front of `input`.
    #[inline]
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<ResponseSummary>, Error> {
        match self.state {
            State::Open => {}
            State::Ended(summary) => return Ok(Response::Done(summary)),
            State::Failed => return Err(Error::NotReset),
        }
        self.state = State::Failed;
        let Some(reply) =
            reply::take_inflated(input, self.request_id, MAX_MESSAGE_BYTES, &mut self.inflater)?
        else {
            self.state = State::Open;
            return Ok(Response::NeedInput);
        };
        let summary = count(&reply)?;
        self.state = State::Ended(summary);
        Ok(Response::Done(summary))
    }
}

#[inline]
fn count(reply: &Reply<'_>) -> Result<ResponseSummary, Error> {
    let mut summary = ResponseSummary { affected_rows: reply.affected, ..ResponseSummary::default() };
    if let Some(cursor) = reply.cursor {
        for document in reply::documents(reply::batch(cursor)?.documents) {
            summary.rows += 1;
            summary.row_bytes += document?.as_bytes().len() as u64;
        }
    }
    Ok(summary)
}
