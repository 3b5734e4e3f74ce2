//! What TLS cost a MongoDB driver in 2024: building its client, its first query, both, and a query on an open client.

use crate::{
    Clients, Driver, Engine, FindAny, Grid, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion,
    Workload,
};

use crate::presets::preset::{Measures, Preset};
use crate::presets::published::{Published, ratio};
use crate::presets::study::{Claim, Conclusion, PublishedNumber, Study};
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
        "published: a replica set of three nodes and a read-only node over a network, and the driver connects to each \
         (readPreference=secondary); here: one server on this machine, with a direct connection",
        "published: the client's certificate check ignored the host name (tlsAllowInvalidHostnames); here: it is checked",
        "published: a client of 2 cores and 4 GB (ecs.e-c1m2.large); here: client and server on this machine",
        "`find_one()` without a filter is the published query; `find-one`, which reads by key, is an addition",
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
    study: Some(Study {
        sentences: [
            "A cloud vendor, Alibaba, published it in the documentation of its MongoDB service (last changed in 2024)",
            "MongoDB 4.2 ran as a replica set of three nodes and a read-only node of 1 core and 2 GB each, and the client, pymongo, on \
             2 cores and 4 GB",
            "It asked what TLS adds to each phase of a driver's life: building its client, its first query, both, and a query of a client \
             that is kept, each `find_one()` without a filter on 1,000,000 YCSB records, as the mean of 5,000 repeats",
            "With TLS, building the client took 19.9 ms instead of 3.7, the first query 43.6 instead of 20.7, both 63.4 instead of 24.4, \
             and a query of a kept client 0.764 instead of 0.751",
            "It advised to keep the client, whose queries TLS hardly slows down",
        ],
        conclusions: CONCLUSIONS,
        numbers,
    }),
};

const CONCLUSIONS: &[Conclusion] = &[
    Conclusion {
        said: "TLS makes building a client and its first query at least twice as slow",
        claim: Claim::Costs { which: |one| !is_reused(one), least: 2.0, most: f64::INFINITY },
    },
    Conclusion {
        said: "TLS hardly slows down the query of a kept client (by 5 % at most)",
        claim: Claim::Costs { which: is_reused, least: 0.95, most: 1.05 },
    },
    Conclusion {
        said: "keep the client: TLS costs less in a query of a kept client than in any other phase",
        claim: Claim::Dearer { more: |one| !is_reused(one), less: is_reused },
    },
];

fn is_reused(one: &Published) -> bool {
    one.workload == Workload::FindAny(FindAny::Open)
}

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

fn numbers() -> Vec<PublishedNumber> {
    let of = |row: FigureRow<'_>| {
        let mean = |column| row.number(column).map(|mean| (mean, None));
        let (workload, driver) = (workload(row.text("phase"))?, DRIVER.parse().ok()?);
        let off = mean("tls_off_ms")?;
        let levels = [("tls_off_ms", "no TLS", Path::Plain), ("tls_on_ms", "TLS", as_then())];
        Some(levels.map(|(column, tls, path)| {
            let ratio = ratio(mean(column).unwrap_or(off), off);
            let driver = Driver::clone(&driver);
            let place = Published { driver, ..Published::new(workload, path, Metric::LatencyNsMean, ratio) };
            let (subject, printed) =
                (format!("{}, {tls}", row.text("phase")), format!("{} ms", row.text(column)));
            PublishedNumber::new(subject, printed, place, path == Path::Plain)
        }))
    };
    Table::parse(PHASES).rows().filter_map(of).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_a_latency_of_pymongos() {
        let [first, both, reused] = [FindAny::First, FindAny::Connect, FindAny::Open].map(Workload::FindAny);
        let workloads = [Workload::Connect, first, both, reused];
        for (published, workload) in PRESET.published().iter().zip(workloads) {
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
