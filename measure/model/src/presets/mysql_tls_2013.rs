//! What TLS cost MySQL 5.6 in 2013: connection churn by one client, and pooled read-only transactions.

use crate::{
    Clients, Grid, Metric, Path, ScaleLevel, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload,
};

use crate::presets::preset::{Measures, Preset, Published, ratio, tls_of_2013};
use crate::presets::table::{FigureRow, Table};

const CONNECTS: &str = include_str!("../../data/mysql-tls-2013-connect.csv");
const POOLED: &str = include_str!("../../data/mysql-tls-2013-pooled.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "mysql-tls-2013",
    about: "what TLS costs MySQL's connects and pooled queries, by RSA key length",
    source: "MySQL Performance Blog, 10 October 2013: MySQL 5.6.13 on an i7-2600K (4 cores, 8 threads)",
    servers: &["mysql-8.0", "mariadb"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: connects by a Perl client and reads by sysbench 0.5; here: ciphertoll's own client",
        "published: MySQL 5.6 with yaSSL and TLS 1.0; here: a newer server and TLS 1.2 with the same cipher, DHE-RSA-AES256-SHA",
        "published: 8 tables of 100,000 rows; here: one table, with fewer rows in the smaller sizes, also cached",
        "published: client and server on 8 threads of one processor; here: on the processors of this machine",
        "published: queries/s per statement and p95 per transaction; the comparison of ratios is not affected",
    ],
    explanation: &[],
    spec,
    published,
};

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let rsa_bits: &[&str] = if size == Size::Smoke { &["2048"] } else { &["1024", "2048", "4096"] };
    let modern = [
        Path::tls(TlsVersion::Tls12, ServerKey::P256),
        Path::tls(TlsVersion::Tls13, ServerKey::Rsa2048),
        Path::tls(TlsVersion::Tls13, ServerKey::P256),
    ];
    let path: Vec<Path> = [Path::Plain]
        .into_iter()
        .chain(rsa_bits.iter().filter_map(|bits| tls_of_2013(bits)))
        .chain(modern)
        .collect();
    let clients = |counts: &[u16]| counts.iter().copied().filter_map(Clients::new).collect();
    let (pooled_clients, rows): (&[u16], _) = match size {
        Size::Smoke => (&[4], "10000"),
        Size::Quick | Size::Small => (&[1, 8, 32], "100000"),
        Size::Standard => (&[1, 2, 4, 8, 16, 32], "100000"),
        Size::Full => (&[1, 2, 4, 8, 16, 32], "800000"),
    };
    let scale: Vec<ScaleLevel> = rows.parse().into_iter().collect();
    let grid = |workload, clients| Grid {
        server: servers.to_vec(),
        path: path.clone(),
        workload: vec![workload],
        clients,
        scale: scale.clone(),
        ..Grid::default()
    };
    Spec {
        size,
        grids: vec![
            grid(Workload::Connect, clients(&[1])),
            grid(Workload::OltpReadOnly, clients(pooled_clients)),
        ],
        ..Spec::quick(&[])
    }
}

fn published() -> Vec<Published> {
    let connects = Table::parse(CONNECTS);
    let pooled = Table::parse(POOLED);
    let mut all = Vec::new();
    all.extend(against_plain(&connects, Workload::Connect, "connects_per_s", Metric::RatePerS));
    all.extend(against_plain(&pooled, Workload::OltpReadOnly, "qps", Metric::RatePerS));
    all.extend(against_plain(&pooled, Workload::OltpReadOnly, "p95_ms", Metric::LatencyNsP95));
    all
}

/// Each encrypted row ÷ the plain row with the same number of clients.
fn against_plain(table: &Table, workload: Workload, column: &str, metric: Metric) -> Vec<Published> {
    let plain = |row: FigureRow<'_>| {
        let like = |other: &FigureRow<'_>| {
            other.text("tls") == "off" && other.text("threads") == row.text("threads")
        };
        table.rows().find(like)
    };
    let of = |row: FigureRow<'_>| {
        let ratio = ratio(row.mean_and_sd(column)?, plain(row)?.mean_and_sd(column)?);
        let clients = row.number("threads").map_or(Some(Clients::ONE), |count| Clients::new(count as u16))?;
        let path = tls_of_2013(row.text("rsa_bits"))?;
        Some(Published { clients, ..Published::new(workload, path, metric, ratio) })
    };
    table.rows().filter(|row| row.text("tls") == "on").filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smoke_run_is_short_and_has_the_cipher_of_then() {
        let spec = spec(&PRESET.servers(), Size::Smoke);
        assert!(spec.grids[0].path.iter().any(|path| path.to_string().contains("DHE-RSA-AES256-SHA")));
        assert_eq!(spec.grids[1].clients.len(), 1);
    }
}
