//! YCSB's records in a running document database.

use ciphertoll_model::Scale;
use serde_json::json;

use super::Server;
use crate::datasets::progress::LoadProgress;
use crate::documents::commands::{DATABASE, command};
use crate::documents::loading::{self, BATCH_DOCUMENTS, DocumentLoad, LoadCounts};
use crate::documents::removal;
use crate::error::Error;
use crate::servers::control;

impl Server {
    pub fn loading_connections(&self) -> usize {
        self.plan.engine.properties().loading_connections
    }

    pub const LOADING_BATCH: u32 = BATCH_DOCUMENTS;

    pub fn drop_documents(&self) -> Result<(), Error> {
        let drop = command("dropDatabase", &json!(1), &[]);
        let control = self.control.in_database(DATABASE);
        control::execute(&mut control.connect()?, "remove the documents", &drop)
    }

    /// Loads YCSB's records as for a template, and counts them. Continues an interrupted load.
    pub fn load_documents(
        &self,
        records: Scale,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<LoadCounts, Error> {
        let (control, name) = (self.control.in_database(DATABASE), self.plan.build.name());
        let (records, connections) = (records.rows(), self.loading_connections());
        let load = DocumentLoad { control: &control, name: &name, records, connections };
        loading::load(load, &mut LoadProgress { progress, stop })
    }

    /// Removes the records that trials inserted; `firsts` are the numbers of each trial's first record.
    pub fn remove_inserted(&self, firsts: &[u64]) -> Result<(), Error> {
        removal::remove_inserted(&self.control.in_database(DATABASE), firsts)
    }
}
