//! YCSB's records, loaded into a server that runs.

use ciphertoll_model::Scale;
use serde_json::json;

use super::Server;
use crate::control;
use crate::documents::{self, DATABASE, Loaded, command};
use crate::error::Error;
use crate::loading::Watcher;

impl Server {
    /// How many connections load YCSB's records at once.
    pub fn loading_connections(&self) -> usize {
        documents::loaders(self.engine)
    }

    /// Records of one command.
    pub const LOADING_BATCH: u32 = documents::BATCH_DOCUMENTS;

    /// Removes YCSB's records and the database that they are in. For servers of documents only.
    pub fn drop_documents(&self) -> Result<(), Error> {
        let drop = command("dropDatabase", &json!(1), &[]);
        let control = self.control.in_database(DATABASE);
        control::execute(&mut control.connect()?, "remove the documents", &drop)
    }

    /// Loads so many of YCSB's records, as it is done for a template, and counts them. What an interrupted load has left is
    /// gone on with. For servers of documents only.
    pub fn load_documents(
        &self,
        records: Scale,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<Loaded, Error> {
        let (control, name) = (self.control.in_database(DATABASE), self.name());
        let (records, connections) = (records.rows(), documents::loaders(self.engine));
        let load = documents::Load { control: &control, name: &name, records, connections };
        documents::load(load, &mut Watcher { progress, stop })
    }

    /// Removes the records that trials have inserted; `firsts` are the numbers of each trial's first. For servers of
    /// documents only.
    pub fn remove_inserted(&self, firsts: &[u64]) -> Result<(), Error> {
        documents::remove_inserted(&self.control.in_database(DATABASE), firsts)
    }
}
