//! YCSB's records, loaded into a server that runs.

use ciphertoll_model::Scale;
use serde_json::json;

use super::Server;
use crate::control;
use crate::documents::{self, DATABASE, command};
use crate::error::Error;
use crate::loading::Watcher;

impl Server {
    /// Connections that load YCSB's records at once.
    pub const LOADING_CONNECTIONS: usize = documents::LOADERS;
    /// Records of one command.
    pub const LOADING_BATCH: u32 = documents::BATCH_DOCUMENTS;

    /// Removes YCSB's records and the database that they are in. For servers of documents only.
    pub fn drop_documents(&self) -> Result<(), Error> {
        let drop = command("dropDatabase", &json!(1), &[]);
        let control = self.control.in_database(DATABASE);
        control::execute(&mut control.connect()?, "remove the documents", &drop)
    }

    /// Makes YCSB's collection and loads so many records, as it is done for a template, and counts them. For servers of
    /// documents without that collection only.
    pub fn load_documents(&self, records: Scale) -> Result<(), Error> {
        let mut watcher = Watcher { progress: &mut |_| (), stop: &|| false };
        documents::load(&self.control, &self.name(), records.rows(), &mut watcher)
    }
}
