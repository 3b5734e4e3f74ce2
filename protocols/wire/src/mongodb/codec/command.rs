//! Commands besides those of a [`CommandTemplate`](crate::mongodb::CommandTemplate): reading the next batch, and
//! inserting many documents.

use bson::{cstr, rawdoc};

use crate::mongodb::{
    codec::message::{self, write_command},
    error::Error,
};

/// A result with more batches; the arguments of `getMore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub id: i64,
    pub collection: String,
}

/// Requests the next batch of a result: at most `batch_size` documents, or as many as fit in a message.
pub fn encode_get_more(
    out: &mut Vec<u8>,
    request_id: i32,
    database: &str,
    cursor: &Cursor,
    batch_size: Option<u32>,
) -> Result<(), Error> {
    let mut command = rawdoc! { "getMore": cursor.id, "collection": cursor.collection.as_str() };
    if let Some(documents) = batch_size {
        command.append(cstr!("batchSize"), i64::from(documents));
    }
    write_command(out, request_id, command, database)
}

/// Inserts documents, which are concatenated in `documents`, unordered. The documents are not checked.
pub fn encode_insert(
    out: &mut Vec<u8>,
    request_id: i32,
    database: &str,
    collection: &str,
    documents: &[u8],
) -> Result<(), Error> {
    let command = rawdoc! { "insert": collection, "ordered": false, "$db": database };
    message::write(out, request_id, |out| {
        out.extend_from_slice(command.as_bytes());
        message::put_sequence(out, "documents", documents);
        Ok(())
    })
}
