//! Commands besides those of a [`CommandTemplate`](crate::mongodb::CommandTemplate): reading
//! the next batch, inserting many documents, and reading the server's version.

use crate::mongodb::{
    codec::{
        bson::writer::write_document,
        message::{self, write_command},
    },
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
    write_command(out, request_id, |command| {
        command.int64("getMore", cursor.id);
        command.string("collection", &cursor.collection);
        if let Some(documents) = batch_size {
            command.int64("batchSize", documents.into());
        }
        command.string("$db", database);
    })
}

/// Discards the rest of a result.
pub fn encode_kill_cursors(
    out: &mut Vec<u8>,
    request_id: i32,
    database: &str,
    cursor: &Cursor,
) -> Result<(), Error> {
    write_command(out, request_id, |command| {
        command.string("killCursors", &cursor.collection);
        command.array("cursors", |cursors| cursors.int64("0", cursor.id));
        command.string("$db", database);
    })
}

/// Inserts documents, which are concatenated in `documents`, unordered. The documents are not checked.
pub fn encode_insert(
    out: &mut Vec<u8>,
    request_id: i32,
    database: &str,
    collection: &str,
    documents: &[u8],
) -> Result<(), Error> {
    message::write(out, request_id, 0, |out| {
        write_document(out, |command| {
            command.string("insert", collection);
            command.boolean("ordered", false);
            command.string("$db", database);
        });
        message::put_sequence(out, "documents", documents);
        Ok(())
    })
}

/// Requests the server's build information; read the reply with [`version_of`](crate::mongodb::version_of).
pub fn encode_build_info(out: &mut Vec<u8>, request_id: i32) -> Result<(), Error> {
    write_command(out, request_id, |command| {
        command.int32("buildInfo", 1);
        command.string("$db", "admin");
    })
}
