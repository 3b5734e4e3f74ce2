//! What must be known of servers that are asked for documents.

use ciphertoll_model::{Cell, Dataset, Engine};

use super::{Statement, Tone};
use crate::RunReport;

/// The series of `FerretDB` whose finds were looked into.
const SCANNING_SERIES: &str = "1.";

/// Of `FerretDB`: that it is not `MongoDB`, and what its first series makes of a key.
pub(crate) fn statements(report: &RunReport<'_>) -> Vec<Statement> {
    let of_ferretdb = |cell: &&Cell| cell.treatment.server.engine == Engine::FerretDb;
    let cells: Vec<&Cell> = report.plan.cells.iter().filter(of_ferretdb).collect();
    if cells.is_empty() {
        return Vec::new();
    }
    let identity = "FerretDB, not MongoDB: it speaks MongoDB's protocol, and what is behind that is its own (Go, with Go's \
                    TLS, over another database). What a connect or an operation costs says nothing of MongoDB's server.";
    let reads_by_key = cells.iter().any(|cell| {
        let version = report.server_version(&cell.treatment.server.short_name());
        // Of one at a URL it is not known what is behind it.
        cell.treatment.server.url.is_none()
            && cell.workload.dataset(Engine::FerretDb) == Some(Dataset::Ycsb)
            && version.is_some_and(|version| version.starts_with(SCANNING_SERIES))
    });
    let scan = "Finds by key grow with the collection: FerretDB 1 on SQLite reads it through, as the index that it makes of \
                _id is of another expression than its queries are. Beside that, encryption is a small part of a find.";
    let scan = reads_by_key.then_some(scan);
    [Some(identity), scan].into_iter().flatten().map(|text| Statement::new(Tone::Caution, text)).collect()
}
