//! Commands that go with a [`Template`](super::Template)'s: asking for more, inserting many documents, and asking what the
//! server is.

use super::{
    Cursor, Error,
    bson::write_document,
    message::{self, write_command},
};

/// Asks for the next documents of a result, at most so many; for as many as fit where that is `None`.
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

/// Gives up the rest of a result.
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

/// Inserts documents that lie one after the other in `documents`, in whatever order the server likes. Their insides are not
/// looked at.
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

/// Asks what the server is; the answer is for [`version_of`](super::version_of).
pub fn encode_build_info(out: &mut Vec<u8>, request_id: i32) -> Result<(), Error> {
    write_command(out, request_id, |command| {
        command.int32("buildInfo", 1);
        command.string("$db", "admin");
    })
}
