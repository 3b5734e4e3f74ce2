//! The response of a hostile server, on a connection with zlib compression. It is read at once and in portions, with the
//! same result.
//!
//! Input: one byte for the portion size, then the response.

use ciphertoll_wire::mongodb::bson::RawDocument;
use ciphertoll_wire::mongodb::document::{to_json, validate};
use ciphertoll_wire::mongodb::{
    COMMAND_REQUEST_ID, Compressor, DocumentsReader, Error, Inflater, MongoDbResponseReader, Response,
    message,
};

const LIMIT_BYTES: usize = 1 << 16;

pub fn run(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let size = usize::from(size).max(1);

    let zlib = Some(Compressor::Zlib);
    let new = || MongoDbResponseReader::new(COMMAND_REQUEST_ID).compressed_by(zlib);
    let (mut whole, mut portions) = (new(), new());
    let counted = whole.step(&mut &*bytes);
    assert_eq!(counted, feed(bytes, size, |input| portions.step(input)));

    let new = || DocumentsReader::new(COMMAND_REQUEST_ID, LIMIT_BYTES).compressed_by(zlib);
    let (mut whole, mut portions) = (new(), new());
    let collected = whole.step(&mut &*bytes);
    assert_eq!(collected, feed(bytes, size, |input| portions.step(input)));
    if let Ok(Response::Done(documents)) = &collected {
        let Ok(Response::Done(summary)) = counted else { panic!("collected and not counted") };
        // A reply without a cursor is a single document.
        assert!(summary.rows == documents.documents.len() as u64 || summary.rows == 0);
        // The kept document was validated.
        assert!(documents.to_rows().is_ok());
    }

    if let Ok(Some(message)) = message::take_inflated(&mut &*bytes, LIMIT_BYTES, &mut Inflater::of(zlib)) {
        for sequence in message.sequences {
            sequence.documents().for_each(|document| drop(document.map(validate)));
        }
    }
    if let Ok(document) = RawDocument::from_bytes(bytes) {
        assert_eq!(validate(document).is_ok(), to_json(document).is_ok());
    }
}

fn feed<T>(
    bytes: &[u8],
    size: usize,
    mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, Error>,
) -> Result<Response<T>, Error> {
    let mut received = Vec::new();
    for portion in bytes.chunks(size) {
        received.extend_from_slice(portion);
        let mut input = received.as_slice();
        match step(&mut input)? {
            Response::NeedInput => {
                let unread = input.len();
                received.drain(..received.len() - unread);
            }
            done @ Response::Done(_) => return Ok(done),
        }
    }
    Ok(Response::NeedInput)
}
