//! What only MongoDB has: results that come in batches which are asked for one by one, and inserts of many documents.

use ciphertoll_wire::mongodb::command::{encode_get_more, encode_insert};
use ciphertoll_wire::mongodb::{
    self, COMMAND_REQUEST_ID, Documents, DocumentsReader, MongoDbResponseReader, MongoDbServerInfo,
};
use ciphertoll_wire::session::{self, Row};

use crate::Error;
use crate::blocking::{Client, Deadline, RESULT_LIMIT_BYTES};

impl Client {
    /// Sends documents of BSON, which lie one after the other, to be inserted into a collection of the login's database in
    /// whatever order. Nothing else may be sent before [`Client::await_insert`]; documents may be made meanwhile.
    pub fn send_insert(&mut self, collection: &str, documents: &[u8]) -> Result<(), Error> {
        let session::ServerInfo::MongoDb(server) = &self.server else {
            return Err(mongodb::Error::NoDocuments.into());
        };
        let output = self.channel.output();
        encode_insert(output, COMMAND_REQUEST_ID, &server.database, collection, documents)?;
        self.channel.send().map(|_| ())
    }

    /// Waits until the server has inserted what was sent; how many documents. After an error of the server's, such as
    /// for a key that is there already, the others have been inserted and the connection awaits the next command.
    pub fn await_insert(&mut self) -> Result<u64, Error> {
        // Loads offer no compressor: what they send is not what is measured.
        let mut reader = MongoDbResponseReader::new(COMMAND_REQUEST_ID);
        Ok(self.await_response(|input| reader.step(input))?.affected_rows)
    }

    /// Sends the command that waits in the output and reads its result to the end.
    pub(crate) fn await_documents(&mut self, server: &MongoDbServerInfo) -> Result<Vec<Row>, Error> {
        let MongoDbServerInfo { database, compressor, .. } = server;
        // A server may send batches without documents for as long as it likes.
        let deadline = Deadline::from_now();
        let mut rows = Vec::new();
        let mut left_bytes = RESULT_LIMIT_BYTES;
        loop {
            deadline.check()?;
            self.channel.send()?;
            let reader = DocumentsReader::new(COMMAND_REQUEST_ID, left_bytes);
            let mut reader = reader.compressed_by(*compressor);
            let batch: Documents = self.await_response(|input| reader.step(input))?;
            left_bytes = left_bytes.saturating_sub(batch.documents.iter().map(Vec::len).sum());
            rows.extend(batch.to_rows()?);
            let Some(cursor) = batch.cursor else { return Ok(rows) };
            encode_get_more(self.channel.output(), COMMAND_REQUEST_ID, database, &cursor, None)?;
        }
    }
}
