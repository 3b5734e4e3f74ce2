//! Operations of MongoDB only: results in batches that must be requested one by one, and bulk inserts.

use ciphertoll_wire::mongodb::command::{encode_get_more, encode_insert};
use ciphertoll_wire::mongodb::{
    self, COMMAND_REQUEST_ID, Documents, DocumentsReader, MongoDbResponseReader, MongoDbServerInfo,
};
use ciphertoll_wire::session::{self, Row};

use crate::Error;
use crate::blocking::{Client, Deadline, RESULT_LIMIT_BYTES};

impl Client {
    /// Sends BSON documents, concatenated, for insertion into a collection of the login's database in any order.
    /// Nothing else may be sent before [`Client::await_insert`]; the next documents may be prepared meanwhile.
    pub fn send_insert(&mut self, collection: &str, documents: &[u8]) -> Result<(), Error> {
        let session::ServerInfo::MongoDb(server) = &self.server else {
            return Err(mongodb::Error::NoDocuments.into());
        };
        let output = self.channel.output();
        encode_insert(output, COMMAND_REQUEST_ID, &server.database, collection, documents)?;
        self.channel.send().map(|_| ())
    }

    /// Waits for the result of an insert and returns the number of documents. After a server error, such as a
    /// duplicate key, the other documents have been inserted and the connection is ready for the next command.
    pub fn await_insert(&mut self) -> Result<u64, Error> {
        // These loads are not measured, so they offer no compressor.
        let mut reader = MongoDbResponseReader::new(COMMAND_REQUEST_ID);
        Ok(self.await_response(|input| reader.step(input))?.affected_rows)
    }

    /// Sends the command in the output and reads its whole result.
    pub(crate) fn await_documents(&mut self, server: &MongoDbServerInfo) -> Result<Vec<Row>, Error> {
        let MongoDbServerInfo { database, compressor, .. } = server;
        // A server may send any number of empty batches.
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
