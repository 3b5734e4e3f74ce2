//! Reads a command's reply and keeps the documents, up to a limit: for control connections.

use bson::{RawBsonRef, RawDocument};

use crate::{
    mongodb::{
        client::reply::{self, Reply},
        codec::{
            command::Cursor,
            compression::{Compressor, Inflater},
            document::{to_json, validate},
            message::MAX_MESSAGE_BYTES,
        },
        error::Error,
    },
    printable::printable,
    response::{Response, Row},
};

/// Longer than any server's version; the rest is cut.
const MAX_VERSION_CHARACTERS: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Documents {
    /// As sent, and validated.
    pub documents: Vec<Vec<u8>>,
    /// Present if there are more.
    pub cursor: Option<Cursor>,
}

impl Documents {
    /// One row per document with one column: its relaxed extended JSON.
    pub fn to_rows(&self) -> Result<Vec<Row>, Error> {
        let row =
            |document: &Vec<u8>| Ok(vec![Some(to_json(RawDocument::from_bytes(document)?)?.into_bytes())]);
        self.documents.iter().map(row).collect()
    }
}

/// Collects the documents of one reply. A reply without a cursor is itself the only document.
///
/// After an error the same holds as for [`super::MongoDbResponseReader`]. The documents are returned once.
#[derive(Debug, Clone)]
pub struct DocumentsReader {
    request_id: i32,
    limit_bytes: usize,
    inflater: Inflater,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    Failed,
}

impl DocumentsReader {
    /// `request_id` is that of the command. `limit_bytes` includes the size of the vectors.
    pub fn new(request_id: i32, limit_bytes: usize) -> Self {
        Self { request_id, limit_bytes, inflater: Inflater::default(), state: State::Open }
    }

    /// The same on a connection with this negotiated compressor.
    #[must_use]
    pub fn compressed_by(self, agreed: Option<Compressor>) -> Self {
        Self { inflater: Inflater::of(agreed), ..self }
    }

    /// Prepares for the next reply.
    pub fn reset(&mut self) {
        self.state = State::Open;
    }

    /// Takes a whole message from the front of `input`.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Documents>, Error> {
        match self.state {
            State::Open => {}
            State::Ended => return Ok(Response::Done(Documents::default())),
            State::Failed => return Err(Error::NotReset),
        }
        self.state = State::Failed;
        let Self { request_id, limit_bytes, inflater, .. } = self;
        let Some(reply) = reply::take_inflated(input, *request_id, MAX_MESSAGE_BYTES, inflater)? else {
            self.state = State::Open;
            return Ok(Response::NeedInput);
        };
        let documents = collect(&reply, *limit_bytes)?;
        self.state = State::Ended;
        Ok(Response::Done(documents))
    }
}

/// Collects documents up to a limit.
fn collect(reply: &Reply<'_>, limit_bytes: usize) -> Result<Documents, Error> {
    let mut kept = Documents::default();
    let mut held_bytes = 0;
    let mut keep = |document: &RawDocument| {
        held_bytes += size_of::<Vec<u8>>() + document.as_bytes().len();
        if held_bytes > limit_bytes {
            return Err(Error::ResultTooLarge { limit: limit_bytes });
        }
        validate(document)?;
        kept.documents.push(document.as_bytes().to_vec());
        Ok(())
    };
    let Some(cursor) = reply.cursor else {
        keep(reply.body)?;
        return Ok(kept);
    };
    let batch = reply::batch(cursor)?;
    for document in reply::documents(batch.documents) {
        keep(document?)?;
    }
    if batch.cursor_id != 0 {
        let collection = batch.namespace.split_once('.').map(|(_, collection)| collection);
        let collection = collection.filter(|collection| !collection.is_empty());
        let collection = collection.ok_or(Error::protocol("reply", "a cursor without a collection"))?;
        kept.cursor = Some(Cursor { id: batch.cursor_id, collection: collection.to_owned() });
    }
    Ok(kept)
}

/// The server's version in the reply to `buildInfo`.
pub fn version_of(build_info: &[u8]) -> Result<String, Error> {
    let version = RawDocument::from_bytes(build_info)?.get("version")?.and_then(RawBsonRef::as_str);
    let version = version.map(|version| printable(version.as_bytes(), MAX_VERSION_CHARACTERS));
    version.ok_or(Error::protocol("reply to buildInfo", "no version"))
}
