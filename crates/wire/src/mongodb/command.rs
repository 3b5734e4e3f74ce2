//! Commands that go with a [`Template`](super::Template)'s: asking for more, and for what the server is.

use super::{Cursor, Error, message::write_command};

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

/// Asks what the server is; the answer is for [`version_of`](super::version_of).
pub fn encode_build_info(out: &mut Vec<u8>, request_id: i32) -> Result<(), Error> {
    write_command(out, request_id, |command| {
        command.int32("buildInfo", 1);
        command.string("$db", "admin");
    })
}
