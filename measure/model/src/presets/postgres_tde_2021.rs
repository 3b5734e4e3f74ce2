//! What encryption at rest cost PostgreSQL's transactions in 2021, by the share of the data in its buffers.

use crate::cache::tables_bytes;
use crate::{
    AtRest, Baseline, Clients, Dataset, Engine, Grid, Metric, Path, Scale, ScaleLevel, ServerLevel, Setting,
    Size, Spec, Tde, TdeCipher, TdeTarget, Workload,
};

use crate::presets::preset::{Measures, Preset};
use crate::presets::published::{Published, ratio};
use crate::presets::study::{BASELINE, Claim, Conclusion, PublishedNumber, Study};
use crate::presets::table::{FigureRow, Table};

const TRANSACTIONS: &str = include_str!("../../data/postgres-tde-2021.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "postgres-tde-2021",
    about: "what encryption at rest costs PostgreSQL's transactions, by the share of the data in its buffers",
    source: "a PostgreSQL vendor's performance analysis of 2021: PostgreSQL 13.1, 16 cores, 16 GB of buffers",
    servers: &["postgres"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: a server built to encrypt its own pages; here: a library under an unmodified server (tde, AES-256-XTS). In both, \
         a page is encrypted when it leaves the server's buffers, and the page cache holds it encrypted",
        "published: 793 MB, 8 GB and 78 GB of data and 16 GB of buffers; here: both are smaller by the same factor, as far as a \
         pgbench branch can be divided. With few branches, more clients wait for the same one",
        "published: 78 GB of data and 64 GB of memory, so that scale 5000 reads from an SSD; here: if memory is large enough, the page \
         cache holds all data, and reads come from there instead of a disk",
        "published: an SSD without TRIM, which the authors name as a flaw; they announced a second edition with TRIM and the scales 12, \
         900, 1600 and 5000 (far below the buffers, 90 % and 120 % of them, and 120 % of memory), which is not repeated here",
        "published: 12 to 48 clients on 16 cores; here: 2 to 6, the same number per core on two cores. Only the published counts that \
         give a whole number of clients are compared: 16, 24, 32, 40 and 48",
        "published: load by pgbench; here: ciphertoll's own client in a closed loop, which sends the same transactions as prepared \
         statements (`--driver pgbench` uses pgbench, without a comparison with published figures)",
        "published: a new cluster and re-indexed tables for each run; here: one new cluster for the whole run, tables re-indexed before \
         each block, and trials in random order on the data that the previous trial left",
        "published: pg_stat_statements, which not every build of PostgreSQL has, and settings for parallel queries, which pgbench's \
         transactions are not; here: both are left out, and track_io_timing, track_functions and bgwriter_flush_after are the study's",
        "memory settings are the study's, scaled with the buffers; WAL sizes are scaled with the cores (64 to 128 MB instead of 512 MB \
         to 1 GB); max_connections is the lab's. Machine, disk and PostgreSQL version differ",
    ],
    explanation: &[
        "a ratio is of one build, encryption on ÷ off: tde-gcc4.8, or tde-gcc9.3-znver2, built with -march=znver2",
        "builds without encryption differ more than encryption on and off: with TPC-B at scale 50 and 12 clients, the packaged build \
         made 3,580 transactions per second, and that of gcc 9.3 with encryption off 2,014; overall, such builds differ by up to a \
         factor of 2.0. With encryption on they made 2,015 and 2,024: on ÷ off is 0.57 for one and 1.00 for the other, which says \
         little about TPC-B",
        "without encryption the gcc 4.8 build made 0.87 to 1.43 times the TPC-B transactions of the packaged build, and the gcc 9.3 \
         build 0.52 to 1.00 times; with SELECT only both made 0.91 to 1.12 times",
        "no standard deviation was published",
    ],
    spec,
    study: Some(Study {
        sentences: [
            "CYBERTEC, which sells a PostgreSQL with page encryption, published it in 2021",
            "PostgreSQL 13.1 as packaged, and two builds of PostgreSQL TDE (gcc 4.8, and gcc 9.3 for znver2), ran on a Ryzen 5950X with \
             16 cores, 64 GB of memory, 16 GB of buffers and an NVMe SSD",
            "It asked what encryption costs pgbench's SELECT and TPC-B transactions with data far below the buffers, half of them, and \
             more than memory (scales 50, 500 and 5000), with 12 to 48 clients",
            "Encryption changed the SELECT rate by -5 to +7 %, and TPC-B by -52 to +5.5 %, where builds without encryption also differ by \
             up to a factor of 2",
            "It advised to weigh the compiler as well as the encryption, and announced a second edition because the SSD had no TRIM",
        ],
        conclusions: CONCLUSIONS,
        numbers,
    }),
};

const CONCLUSIONS: &[Conclusion] = &[
    Conclusion {
        said: "encryption does not slow down SELECT on data in the buffers (by 5 % at most)",
        claim: Claim::Costs { which: |one| is_select(one) && is_cached(one), least: 0.0, most: 1.05 },
    },
    Conclusion {
        said: "encryption slows down SELECT by 6 % at most, also on data larger than memory",
        claim: Claim::Costs { which: is_select, least: 0.0, most: 1.06 },
    },
    Conclusion {
        said: "the compiler and its options matter as much as the encryption",
        claim: Claim::NotTested("here one build of PostgreSQL is measured"),
    },
    Conclusion {
        said: "an SSD without TRIM blurs the results, above all of TPC-B",
        claim: Claim::NotTested("the disk of this machine is not a factor of the run"),
    },
];

fn is_select(one: &Published) -> bool {
    one.workload == Workload::SelectOnly
}

fn is_cached(one: &Published) -> bool {
    one.data_to_cache.is_some_and(|data| data < 1.0)
}

const BRANCHES_THEN: [u32; 3] = [50, 500, 5_000];
const BUFFERS_MB_THEN: u32 = 16 * 1024;
const CORES_THEN: u16 = 16;
/// The cores that the numbers of clients apply to.
const CORES_HERE: u16 = 2;
/// The closest level to the published encryption.
const ENCRYPTED: AtRest = AtRest::Tde(Tde { cipher: TdeCipher::Aes256, target: TdeTarget::Best });
/// The build without encryption.
const PACKAGED: &str = "pgdg";
/// The builds with encryption off and on.
const BUILDS: [&str; 2] = ["tde-gcc4.8", "tde-gcc9.3-znver2"];

/// The scale with the published share of the buffers.
fn scale(branches_then: u32) -> Option<ScaleLevel> {
    format!("{:.4}cache", data_to_cache(f64::from(branches_then))?).parse().ok()
}

/// The study's postgresql.conf, with memory scaled by the buffers.
fn settings(buffers_mb: u32) -> [String; 20] {
    let mb = |gb_then: u32| format!("{}MB", gb_then * buffers_mb * 1024 / BUFFERS_MB_THEN);
    let kb = |mb_then: u32| format!("{}kB", mb_then * buffers_mb / (BUFFERS_MB_THEN / 1024));
    [
        ("shared_buffers", format!("{buffers_mb}MB")),
        ("work_mem", kb(64)),
        ("maintenance_work_mem", kb(620)),
        ("effective_cache_size", mb(45)),
        // Scaled with the cores and so with the write rate: checkpoints are as frequent.
        ("min_wal_size", "64MB".to_owned()),
        ("max_wal_size", "128MB".to_owned()),
        ("effective_io_concurrency", "100".to_owned()),
        ("huge_pages", "try".to_owned()),
        ("wal_level", "logical".to_owned()),
        ("synchronous_commit", "on".to_owned()),
        ("checkpoint_timeout", "15min".to_owned()),
        ("checkpoint_completion_target", "0.9".to_owned()),
        ("wal_compression", "on".to_owned()),
        ("wal_writer_delay", "200ms".to_owned()),
        ("bgwriter_delay", "200ms".to_owned()),
        ("bgwriter_lru_maxpages", "100".to_owned()),
        ("bgwriter_flush_after", "0".to_owned()),
        ("track_io_timing", "on".to_owned()),
        ("track_functions", "pl".to_owned()),
        ("jit", "on".to_owned()),
    ]
    .map(|(name, value)| format!("postgres.{name}={value}"))
}

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let (buffers_mb, branches_then, clients): (u32, &[u32], &[u16]) = match size {
        // A branch is half of that.
        Size::Smoke => (32, &BRANCHES_THEN[1..2], &[2]),
        Size::Quick | Size::Small => (256, &BRANCHES_THEN, &[2, 6]),
        Size::Standard => (256, &BRANCHES_THEN, &[2, 4, 6]),
        Size::Full => (1024, &BRANCHES_THEN, &[2, 3, 4, 5, 6]),
    };
    let mut spec = Spec {
        size,
        baseline: Some(Baseline::AtRest(AtRest::None)),
        grids: vec![Grid {
            server: servers.to_vec(),
            path: vec![Path::Plain],
            at_rest: vec![AtRest::None, ENCRYPTED],
            workload: vec![Workload::SelectOnly, Workload::TpcbLike],
            clients: clients.iter().filter_map(|&count| Clients::new(count)).collect(),
            scale: branches_then.iter().filter_map(|&then| scale(then)).collect(),
            ..Grid::default()
        }],
        ..Spec::quick(&[])
    };
    // Other engines have none of these settings.
    if servers.iter().any(|server| server.engine == Engine::Postgres) {
        spec.config = Some(PRESET.name.to_owned());
        spec.settings.extend(settings(buffers_mb).iter().filter_map(|line| line.parse::<Setting>().ok()));
    }
    spec
}

/// The same number of clients per core; absent if it is not a whole number.
fn clients(then: &str) -> Option<Clients> {
    let scaled = then.parse::<u16>().ok()?.checked_mul(CORES_HERE)?;
    (scaled % CORES_THEN == 0).then(|| Clients::new(scaled / CORES_THEN)).flatten()
}

fn numbers() -> Vec<PublishedNumber> {
    const FRACTION: &str = "its clients per core are not a whole number of clients on two cores";
    const BUILD: &str = "its ratio is to the packaged build, and here one build is measured";
    let table = Table::parse(TRANSACTIONS);
    let of = |row: FigureRow<'_>| {
        let rate = |row: FigureRow<'_>| row.number("tps").map(|rate| (rate, None));
        let [build, encryption] = ["build", "encryption"].map(|column| row.text(column));
        let is_off = encryption == "off";
        // A build with encryption on is compared with itself, and one without with the packaged build.
        let base_build = if is_off { PACKAGED } else { build };
        let is_base = |other: &FigureRow<'_>| {
            let is_same = ["workload", "scale", "clients"].iter().all(|it| other.text(it) == row.text(it));
            is_same && other.text("build") == base_build && other.text("encryption") == "off"
        };
        let base = table.rows().find(is_base)?;
        let (workload, ratio) = (row.text("workload").parse().ok()?, ratio(rate(row)?, rate(base)?));
        let place = |clients| -> Option<Published> {
            Some(Published {
                clients,
                at_rest: if is_off { AtRest::None } else { ENCRYPTED },
                data_to_cache: Some(data_to_cache(row.number("scale")?)?),
                of: BUILDS.into_iter().find(|name| *name == build),
                ..Published::new(workload, Path::Plain, Metric::RatePerS, ratio)
            })
        };
        let place = clients(row.text("clients")).and_then(place);
        let unlike = match (build == PACKAGED, is_off, &place) {
            (_, _, None) => Some(FRACTION),
            (true, ..) => Some(BASELINE),
            (false, true, _) => Some(BUILD),
            (false, false, _) => None,
        };
        let [workload, scale, clients] = ["workload", "scale", "clients"].map(|column| row.text(column));
        let encryption = if build == PACKAGED { String::new() } else { format!(", encryption {encryption}") };
        let subject = format!("{workload}, scale {scale}, {clients} clients, {build}{encryption}");
        Some(PublishedNumber { subject, printed: format!("{} tps", row.text("tps")), place, unlike })
    };
    table.rows().filter_map(of).collect()
}

/// A branch is as large as published: 50 branches of 784 MB and 9 MB of the server itself are the study's 793 MB.
fn data_to_cache(branches: f64) -> Option<f64> {
    let a_branch = tables_bytes(Engine::Postgres, Dataset::Pgbench, Scale::new(Scale::ROWS_PER_BRANCH)?)?;
    Some(branches * a_branch / (f64::from(BUFFERS_MB_THEN) * 1024.0 * 1024.0))
}

#[cfg(test)]
mod tests;
