//! What TLS cost a MongoDB driver in 2024: building its client, its first query, both, and a query on an open client.

use crate::{
    Clients, Driver, Engine, FindAny, Grid, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload,
};

use crate::presets::preset::{Measures, Preset, Published, ratio};
use crate::presets::table::{FigureRow, Table};

const PHASES: &str = include_str!("../../data/mongodb-tls-2024.csv");
/// The published driver, as a level.
const DRIVER: &str = "pymongo";

pub(crate) const PRESET: Preset = Preset {
    name: "mongodb-tls-2024",
    about: "what TLS costs a MongoDB driver: building its client, its first query, and a query on an open client",
    source: "a cloud vendor's documentation, December 2024: MongoDB 4.2, three nodes of 1 core and 2 GB, pymongo",
    servers: &["mongodb", "ferretdb"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: a replica set of three nodes over a network, and the driver connects to each; here: one server on this \
         machine, with a direct connection",
        "published: MongoDB 4.2; here: the MongoDB on this machine, or FerretDB, which implements MongoDB's protocol over \
         another store. For FerretDB, only the ratio of the reused query is meaningful",
        "not published: TLS version, key and authentication; here: TLS 1.3 with P-256 and SCRAM-SHA-256, and from the small \
         size on also TLS 1.2 with RSA-2048",
        "not published: the driver's version; here: pymongo 4.20, without background work before the first query",
        "published: the mean of 5,000 repeats without deviation; here: as many as fit into a trial, in blocks",
        "published: 1,000,000 records; here: the same in the full size on MongoDB, fewer in the smaller sizes and on FerretDB, \
         whose SQLite store scans all records to find one by key",
        "here: an operation ends when the client is closed, except for the first query and the reused query",
    ],
    explanation: &[
        "a driver builds its client before it connects: with TLS it reads the CA file then, and sends nothing",
        "the first query waits for the driver's discovery and for its own connection: two handshakes in sequence",
        "native has no client to build: its connect includes the login, and has no published figure",
    ],
    spec,
    published,
};

/// The path that corresponds to the published one.
fn as_then() -> Path {
    Path::tls(TlsVersion::Tls13, ServerKey::P256)
}

/// The workload that corresponds to a published phase.
fn workload(phase: &str) -> Option<Workload> {
    match phase {
        "connect" => Some(Workload::Connect),
        "first-query" => Some(Workload::FindAny(FindAny::First)),
        "connect+first-query" => Some(Workload::FindAny(FindAny::Connect)),
        "reused-query" => Some(Workload::FindAny(FindAny::Open)),
        _ => None,
    }
}

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let older = (size != Size::Smoke).then(|| Path::tls(TlsVersion::Tls12, ServerKey::Rsa2048));
    // The study does not read by key: an addition.
    let table = Table::parse(PHASES);
    let phases = table.rows().filter_map(|row| workload(row.text("phase")));
    let phases: Vec<Workload> = phases.chain([Workload::FindOne]).collect();
    let grid = |server: &ServerLevel| Grid {
        server: vec![server.clone()],
        path: [Path::Plain, as_then()].into_iter().chain(older).collect(),
        driver: [Driver::Native].into_iter().chain(DRIVER.parse()).collect(),
        workload: phases.clone(),
        clients: vec![Clients::ONE],
        scale: records(server.engine, size).parse().into_iter().collect(),
        ..Grid::default()
    };
    Spec { size, grids: servers.iter().map(grid).collect(), ..Spec::quick(&[]) }
}

/// `FerretDB`'s store scans all records to find one by key.
fn records(engine: Engine, size: Size) -> &'static str {
    match (engine, size) {
        (Engine::FerretDb, Size::Smoke | Size::Quick | Size::Small) => "100",
        (Engine::FerretDb, Size::Standard | Size::Full) | (_, Size::Smoke) => "1000",
        (_, Size::Quick | Size::Small) => "10000",
        (_, Size::Standard) => "100000",
        (_, Size::Full) => "1000000",
    }
}

fn published() -> Vec<Published> {
    let of = |row: FigureRow<'_>| {
        let mean = |column| row.number(column).map(|mean| (mean, None));
        let ratio = ratio(mean("tls_on_ms")?, mean("tls_off_ms")?);
        let workload = workload(row.text("phase"))?;
        let driver = DRIVER.parse().ok()?;
        Some(Published { driver, ..Published::new(workload, as_then(), Metric::LatencyNsMean, ratio) })
    };
    Table::parse(PHASES).rows().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_a_latency_of_pymongos() {
        let [first, both, reused] = [FindAny::First, FindAny::Connect, FindAny::Open].map(Workload::FindAny);
        let workloads = [Workload::Connect, first, both, reused];
        for (published, workload) in published().iter().zip(workloads) {
            assert_eq!((published.workload, published.metric), (workload, Metric::LatencyNsMean));
            assert_eq!(published.driver.to_string(), DRIVER);
        }
    }

    #[test]
    fn each_size_has_its_records() {
        let rows = |server: usize| {
            [Size::Smoke, Size::Small, Size::Standard, Size::Full]
                .map(|size| spec(&PRESET.servers(), size).grids[server].scale[0].to_string())
        };
        assert_eq!(
            (rows(0), rows(1)),
            (
                ["1000", "10000", "100000", "1000000"].map(ToOwned::to_owned),
                ["100", "100", "1000", "1000"].map(ToOwned::to_owned)
            )
        );
        assert_eq!(spec(&PRESET.servers(), Size::Smoke).grids[0].path.len(), 2);
    }
}
