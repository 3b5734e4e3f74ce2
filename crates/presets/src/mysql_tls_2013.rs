//! What TLS cost MySQL 5.6 in 2013: connection churn by one client, and pooled read-only transactions.

use ciphertoll_model::{
    AtRest, Clients, Driver, Grid, Link, Metric, Path, ScaleLevel, ServerKey, ServerLevel, Size, Spec,
    TlsVersion, Workload,
};

use crate::table::{FigureRow, Table};
use crate::{Preset, Published, ratio};

const CONNECTS: &str = include_str!("../data/mysql-tls-2013-connect.csv");
const POOLED: &str = include_str!("../data/mysql-tls-2013-pooled.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "mysql-tls-2013",
    about: "what TLS costs MySQL's connects and pooled queries, by RSA key length",
    source: "MySQL Performance Blog, 10 October 2013: MySQL 5.6.13 on an i7-2600K (4 cores, 8 threads)",
    servers: &["mysql-8.0", "mariadb"],
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

/// The path that is closest to the published one.
fn as_then(key: ServerKey) -> Option<Path> {
    let path: Path = format!("tls1.2-{key}+suite=DHE-RSA-AES256-SHA").parse().ok()?;
    Some(path)
}

fn key(bits: &str) -> Option<ServerKey> {
    ServerKey::ALL.into_iter().find(|key| key.rsa_bits().is_some_and(|own| own.to_string() == bits))
}

const KEYS: [ServerKey; 3] = [ServerKey::Rsa1024, ServerKey::Rsa2048, ServerKey::Rsa4096];

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let keys: &[ServerKey] = if size == Size::Smoke { &KEYS[1..2] } else { &KEYS };
    let modern = [
        Path::tls(TlsVersion::Tls12, ServerKey::P256),
        Path::tls(TlsVersion::Tls13, ServerKey::Rsa2048),
        Path::tls(TlsVersion::Tls13, ServerKey::P256),
    ];
    let path: Vec<Path> =
        [Path::Plain].into_iter().chain(keys.iter().copied().filter_map(as_then)).chain(modern).collect();
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
        let (mean, sd) = ratio(row.mean_and_sd(column)?, plain(row)?.mean_and_sd(column)?);
        let clients = row.number("threads").map_or(Some(Clients::ONE), |count| Clients::new(count as u16))?;
        let path = as_then(key(row.text("rsa_bits"))?)?;
        Some(Published {
            workload,
            clients,
            path,
            driver: Driver::Native,
            link: Link::Local,
            at_rest: AtRest::None,
            data_to_cache: None,
            of: None,
            metric,
            ratio: mean,
            ratio_sd: sd,
        })
    };
    table.rows().filter(|row| row.text("tls") == "on").filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_is_a_ratio() {
        let all = published();
        // 3 keys; 6 numbers of threads, in rate and time.
        assert_eq!(all.len(), 3 + 2 * 3 * 6);
        let connect = &all[1];
        assert_eq!(connect.path.to_string(), "tls1.2-rsa2048+suite=DHE-RSA-AES256-SHA");
        // 28.183 ÷ 2701.75, by hand.
        assert!((connect.ratio - 0.010_431_4).abs() < 1e-6, "{connect:?}");
        assert!(connect.ratio_sd.is_some_and(|sd| sd > 0.0));
    }

    #[test]
    fn a_smoke_run_is_short_and_has_the_cipher_of_then() {
        let spec = spec(&PRESET.servers(), Size::Smoke);
        assert!(spec.grids[0].path.iter().any(|path| path.to_string().contains("DHE-RSA-AES256-SHA")));
        assert_eq!(spec.grids[1].clients.len(), 1);
    }
}
