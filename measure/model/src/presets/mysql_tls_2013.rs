//! What TLS cost MySQL 5.6 in 2013: connection churn by one client, and pooled read-only transactions.

use crate::{
    Clients, Grid, Metric, Path, ScaleLevel, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload,
};

use crate::presets::preset::{Measures, Preset};
use crate::presets::published::{Published, ratio, tls_of_2013};
use crate::presets::study::{Claim, Conclusion, PublishedNumber, Study};
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
        "published: connects by a Perl client and reads by sysbench 0.5, in runs of 10 minutes after a warm-up; here: \
         ciphertoll's own client, in shorter trials, in blocks",
        "published: MySQL 5.6.13 with the TLS library and version of its community build, which the post does not name; here: a \
         newer server with OpenSSL and TLS 1.2, with the cipher that the author names as the default in his second post, \
         DHE-RSA-AES256-SHA",
        "published: 8 tables of 100,000 rows (256 MB) in a buffer pool of 4 GB; here: one table, with fewer rows in the smaller \
         sizes, also cached",
        "published: client and server on 8 threads of one processor; here: on the processors of this machine",
        "published: queries per second; here: ratios of transactions per second, which are equal, beside queries per second. p95 is of \
         a transaction in both",
    ],
    explanation: &[
        "yaSSL is not a finding of the study. The author had promised 25 % because of slides by yaSSL, and wonders whether yaSSL is \
         faster than OpenSSL or was measured with another cipher",
    ],
    spec,
    study: Some(Study {
        sentences: [
            "Ernie Souhrada of Percona published it in the MySQL Performance Blog on 10 October 2013",
            "MySQL 5.6.13, sysbench 0.5 and a Perl client shared an i7-2600K (4 cores, 8 threads, 32 GB), with all data in a buffer \
             pool of 4 GB",
            "He asked what TLS costs with RSA keys of 1024, 2048 and 4096 bits: for connections that stay open, at 1 to 32 threads for \
             10 minutes each, and for connecting; he had expected 25 %",
            "Open connections lost 48 to 74 % of their queries, whatever the key; connects fell from 2,702 per second to 77, 28 and \
             5.5, and p95 with TLS was lowest at 8 threads, which he could not explain",
            "He advised a connection pool; without one, encryption in a layer below MySQL, such as a VPN, OpenVPN or an SSH tunnel; and \
             in any case a benchmark of one's own",
        ],
        conclusions: CONCLUSIONS,
        numbers,
    }),
};

const CONCLUSIONS: &[Conclusion] = &[
    Conclusion {
        said: "TLS costs a lot more than the expected 25 %, on open connections too",
        claim: Claim::Costs {
            which: |one| one.metric == Metric::RatePerS,
            least: 1.0 / 0.75,
            most: f64::INFINITY,
        },
    },
    Conclusion {
        said: "connects with 4096 bits are three orders of magnitude slower (more than 300 ×)",
        claim: Claim::Costs {
            which: |one| is_connect(one) && has_bits(one, 4096),
            least: 300.0,
            most: f64::INFINITY,
        },
    },
    Conclusion {
        said: "on open connections the key length hardly matters (within 10 %)",
        claim: Claim::Alike { which: |one| is_pooled(one) && one.clients == Clients::ONE, within: 1.1 },
    },
    Conclusion {
        said: "p95 with TLS is lower at 8 threads than at 1",
        claim: Claim::Higher { more: |one| is_p95(one, 1), less: |one| is_p95(one, 8) },
    },
    Conclusion {
        said: "use a connection pool: TLS costs open connections far less than connects",
        claim: Claim::Dearer { more: is_connect, less: is_pooled },
    },
    Conclusion {
        said: "without a pool, encrypt below MySQL: a VPN or an SSH tunnel might be faster",
        claim: Claim::NotTested("mysql-tunnel-2013 and wan-modern measure these"),
    },
    Conclusion {
        said: "perhaps yaSSL is faster than OpenSSL",
        claim: Claim::NotTested("no current server has yaSSL"),
    },
];

fn is_connect(one: &Published) -> bool {
    one.workload == Workload::Connect
}

fn is_pooled(one: &Published) -> bool {
    one.workload == Workload::OltpReadOnly && one.metric == Metric::RatePerS
}

fn is_p95(one: &Published, clients: u16) -> bool {
    one.metric == Metric::LatencyNsP95 && one.clients.count() == clients
}

fn has_bits(one: &Published, bits: u16) -> bool {
    tls_of_2013(&bits.to_string()).is_some_and(|path| path == one.path)
}

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

fn numbers() -> Vec<PublishedNumber> {
    let connects = Table::parse(CONNECTS);
    let pooled = Table::parse(POOLED);
    let connect =
        against_plain(&connects, Workload::Connect, ("connects_per_s", "connects/s"), Metric::RatePerS);
    let rate = against_plain(&pooled, Workload::OltpReadOnly, ("qps", "queries/s"), Metric::RatePerS);
    let p95 = against_plain(&pooled, Workload::OltpReadOnly, ("p95_ms", "ms p95"), Metric::LatencyNsP95);
    [connect, rate, p95].concat()
}

/// Each row, and its ratio to the plain row with the same number of clients.
fn against_plain(
    table: &Table,
    workload: Workload,
    (column, unit): (&str, &str),
    metric: Metric,
) -> Vec<PublishedNumber> {
    let plain = |row: FigureRow<'_>| {
        let like = |other: &FigureRow<'_>| {
            other.text("tls") == "off" && other.text("threads") == row.text("threads")
        };
        table.rows().find(like)
    };
    let of = |row: FigureRow<'_>| {
        let ratio = ratio(row.mean_and_sd(column)?, plain(row)?.mean_and_sd(column)?);
        let clients = row.number("threads").map_or(Some(Clients::ONE), |count| Clients::new(count as u16))?;
        let is_plain = row.text("tls") == "off";
        let path = if is_plain { Path::Plain } else { tls_of_2013(row.text("rsa_bits"))? };
        let encryption = if is_plain { "no TLS".to_owned() } else { format!("RSA-{}", row.text("rsa_bits")) };
        let load = match workload {
            Workload::Connect => "connects".to_owned(),
            _ => format!("read-only, {}", plural_threads(clients)),
        };
        let place = Published { clients, ..Published::new(workload, path, metric, ratio) };
        let subject = format!("{load}, {encryption}");
        Some(PublishedNumber::new(subject, row.printed(column, unit), place, is_plain))
    };
    table.rows().filter_map(of).collect()
}

fn plural_threads(clients: Clients) -> String {
    if clients == Clients::ONE { "1 thread".to_owned() } else { format!("{clients} threads") }
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
