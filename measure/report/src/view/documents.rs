//! Caveats of document databases.

use ciphertoll_model::{Cell, Dataset, Engine};

use super::Sentence;
use crate::RunReport;

/// The series of `FerretDB` whose finds by key scan the collection.
const SCANNING_SERIES: &str = "1.";

pub(crate) fn sentences(report: &RunReport<'_>) -> Vec<Sentence> {
    let of_ferretdb = |cell: &&Cell| cell.treatment.server.engine == Engine::FerretDb;
    let cells: Vec<&Cell> = report.plan.cells.iter().filter(of_ferretdb).collect();
    if cells.is_empty() {
        return Vec::new();
    }
    let identity = "FerretDB is not MongoDB: it implements MongoDB's protocol in Go, with Go's TLS, over another database. \
                    Its costs do not apply to MongoDB.";
    let reads_by_key = cells.iter().any(|cell| {
        let version = report.facts.server_version(&cell.treatment.server.short_name());
        // The database behind an external FerretDB is unknown.
        cell.treatment.server.url.is_none()
            && cell.workload.dataset(Engine::FerretDb) == Some(Dataset::Ycsb)
            && version.is_some_and(|version| version.starts_with(SCANNING_SERIES))
    });
    let scan = "Finds by key take longer in larger collections: FerretDB 1 on SQLite scans the collection, because its queries \
                do not use its index of _id. Encryption is a small part of such a find.";
    let scan = reads_by_key.then_some(scan);
    [Some(identity), scan].into_iter().flatten().map(Sentence::caution).collect()
}
