//! Results of MongoDB's, which come in batches that are asked for one by one.

use ciphertoll_wire::mongodb::command::encode_get_more;
use ciphertoll_wire::mongodb::{COMMAND_REQUEST_ID, Documents, DocumentsReader};
use ciphertoll_wire::session::Row;

use crate::Error;
use crate::blocking::{Client, Deadline, RESULT_LIMIT_BYTES};

impl Client {
    /// Sends the command that waits in the output and reads its result to the end.
    pub(crate) fn await_documents(&mut self, database: &str) -> Result<Vec<Row>, Error> {
        // A server may send batches without documents for as long as it likes.
        let deadline = Deadline::from_now();
        let mut rows = Vec::new();
        let mut left_bytes = RESULT_LIMIT_BYTES;
        loop {
            deadline.check()?;
            self.channel.send()?;
            let mut reader = DocumentsReader::new(COMMAND_REQUEST_ID, left_bytes);
            let batch: Documents = self.await_response(|input| reader.step(input))?;
            left_bytes = left_bytes.saturating_sub(batch.documents.iter().map(Vec::len).sum());
            rows.extend(batch.to_rows()?);
            let Some(cursor) = batch.cursor else { return Ok(rows) };
            encode_get_more(self.channel.output(), COMMAND_REQUEST_ID, database, &cursor, None)?;
        }
    }
}
