//! What a pooling proxy next to the client saved on MySQL's encrypted connects in 2017.

use crate::{
    Engine, Grid, Link, LinkShape, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload,
};

use crate::presets::preset::{Measures, Preset};
use crate::presets::published::Published;
use crate::presets::study::{Claim, Conclusion, PublishedNumber, Study};
use crate::presets::table::{FigureRow, Table};

const CONNECTS: &str = include_str!("../../data/proxysql-2017-connect.csv");

pub(crate) const PRESET: Preset = Preset {
    name: "proxysql-2017",
    about: "what a pooling proxy next to the client saves on encrypted connects, compared with TLS and OpenVPN",
    source: "a post of 2017 on ProxySQL and TLS: MySQL 5.7.19, ProxySQL 1.4.1, OpenVPN 2.4.3, OpenSSL 1.0.1e",
    servers: &["mysql-8.0", "mariadb", "postgres"],
    measures: Measures::EveryServer,
    deviations: &[
        "published: 10,000 connects of one PHP thread, timed once as a whole; here: one client connects during each trial, in \
         blocks, and rates are compared",
        "published: TLS as both sides negotiated it, with an unknown key; here: TLS 1.2 with RSA-2048, which servers of that time \
         generated",
        "published: user and system CPU time of the PHP process; here: their sum per connect of ciphertoll's own client. The CPU time \
         of a proxy next to it is not in either",
        "not published: OpenVPN's cipher; here: AES-256-GCM, the default between two ends of version 2.4",
        "a VPN joins two networks, so all paths use an emulated link without delay; proxies run next to the client",
        "the published proxy is compared with ProxySQL and with ciphertoll's own; nothing was published for a connect with a \
         query, for PostgreSQL, or for other proxies",
    ],
    explanation: &[
        "a connect through the proxy exchanges no keys and does not reach the server: the rest is a login over a unix socket. \
         The server connections are encrypted once and kept open",
        "the author says that TLS costs about 400 %: the connects took 3.91 times as long, which is 291 % more",
        "published plain connects were slower than those through OpenVPN, and the proxy's gain is relative to that plain",
    ],
    spec,
    study: Some(Study {
        sentences: [
            "Jervin Real of Percona published it in the Percona blog on 19 September 2017",
            "One PHP thread connected 10,000 times to MySQL 5.7.19 on another machine, in plaintext, with TLS (OpenSSL 1.0.1e), \
             through OpenVPN 2.4.3, and through ProxySQL 1.4.1 on the client's machine",
            "He asked whether a pooling proxy next to the application, with TLS to the server, spares applications without a pool the \
             handshakes",
            "The connects took 20.4 s in plaintext, 79.9 s with TLS, 15.2 s through OpenVPN and 2.8 s through ProxySQL; the client spent \
             39.5 s of CPU time with TLS and 3.6 s without",
            "He advised ProxySQL on the application's machine, and warned that the OpenVPN server, a machine of its own, is a single point \
             of failure",
        ],
        conclusions: CONCLUSIONS,
        numbers,
    }),
};

const CONCLUSIONS: &[Conclusion] = &[
    Conclusion {
        said: "TLS costs about 400 % (3 to 5 times the time)",
        claim: Claim::Costs { which: |one| is_time(one) && is_tls(one), least: 3.0, most: 5.0 },
    },
    Conclusion {
        said: "OpenVPN is cheaper than TLS",
        claim: Claim::Dearer {
            more: |one| is_time(one) && is_tls(one),
            less: |one| is_time(one) && is_openvpn(one),
        },
    },
    Conclusion {
        said: "connects through OpenVPN are even faster than plain ones",
        claim: Claim::Costs { which: |one| is_time(one) && is_openvpn(one), least: 0.0, most: 1.0 },
    },
    Conclusion {
        said: "through a pooling proxy on the client's machine connects are the fastest, faster than plain ones",
        claim: Claim::Costs {
            which: |one| is_time(one) && one.path.as_proxy().is_some(),
            least: 0.0,
            most: 1.0,
        },
    },
    Conclusion {
        said: "TLS costs the client ten times the CPU time (5 × or more)",
        claim: Claim::Costs { which: |one| !is_time(one) && is_tls(one), least: 5.0, most: f64::INFINITY },
    },
    Conclusion {
        said: "an OpenVPN server of its own is a single point of failure",
        claim: Claim::NotTested("an argument about operation, not a measurement"),
    },
];

fn is_time(one: &Published) -> bool {
    one.metric == Metric::RatePerS
}

fn is_tls(one: &Published) -> bool {
    one.path.as_tls().is_some()
}

fn is_openvpn(one: &Published) -> bool {
    one.path.as_tunnel().is_some()
}

/// The published proxy, if its figure is compared with another one.
const PUBLISHED_PROXY: &str = "ProxySQL 1.4.1";

/// The paths that are closest to a published one.
fn as_then(path: &str) -> Vec<(Path, Option<&'static str>)> {
    let levels: &[(&str, Option<&'static str>)] = match path {
        "plain-tcp" => &[("plain", None)],
        "tls" => &[("tls1.2-rsa2048", None)],
        "openvpn" => &[("openvpn-aes256-gcm", None)],
        "proxysql-unix-socket" => &[("proxysql", None), ("proxy", Some(PUBLISHED_PROXY))],
        _ => &[],
    };
    levels.iter().filter_map(|(path, of)| Some((path.parse().ok()?, *of))).collect()
}

/// Two networks without delay.
fn link() -> Link {
    Link::Emulated(LinkShape::of_rtt_us(0))
}

fn proxies(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::MySql => &["proxy", "proxysql", "mysqlrouter"],
        Engine::MariaDb => &["proxy", "proxysql"],
        Engine::Postgres => &["proxy", "pgbouncer"],
        Engine::MongoDb | Engine::FerretDb => &[],
    }
}

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let with_query = (size != Size::Smoke).then_some(Workload::CONNECT_QUERY);
    let grid = |server: &ServerLevel| {
        let then = ["tls", "openvpn"].into_iter().flat_map(as_then).map(|(path, _)| path);
        let modern = Path::tls(TlsVersion::Tls13, ServerKey::P256);
        let proxies = proxies(server.engine).iter().filter_map(|path| path.parse().ok());
        Grid {
            server: vec![server.clone()],
            path: [Path::Plain].into_iter().chain(then).chain([modern]).chain(proxies).collect(),
            workload: [Workload::Connect].into_iter().chain(with_query).collect(),
            link: vec![link()],
            ..Grid::default()
        }
    };
    Spec { size, grids: servers.iter().map(grid).collect(), ..Spec::quick(&[]) }
}

/// The time of each path, and the CPU time of its client.
fn numbers() -> Vec<PublishedNumber> {
    let table = Table::parse(CONNECTS);
    let plain = table.rows().find(|row| row.text("path") == "plain-tcp");
    let per_s = |row: FigureRow<'_>| Some(row.number("connects")? / row.number("real_s")?);
    let cpu_s = |row: FigureRow<'_>| Some(row.number("user_s")? + row.number("sys_s")?);
    let mut all = Vec::new();
    for row in table.rows() {
        let [connects, real, user, sys] =
            ["connects", "real_s", "user_s", "sys_s"].map(|column| row.text(column));
        let time = (
            Metric::RatePerS,
            format!("{real} s for {connects} connects"),
            per_s(row),
            plain.and_then(per_s),
        );
        let cpu = (
            Metric::CpuUsPerOpClient,
            format!("{user} s user + {sys} s system for {connects} connects"),
            cpu_s(row),
            plain.and_then(cpu_s),
        );
        for (metric, printed, here, plain) in [time, cpu] {
            let Some((here, plain)) = here.zip(plain) else { continue };
            let of_path = |(path, of): (Path, Option<&'static str>)| {
                let published = Published::new(Workload::Connect, path, metric, (here / plain, None));
                let what = if metric == Metric::RatePerS { "connects" } else { "client CPU" };
                let beside = if of.is_some() { " compared with ciphertoll's own proxy" } else { "" };
                let subject = format!("{what}, {}{beside}", row.text("path"));
                let place = Published { link: link(), of, ..published };
                PublishedNumber::new(subject, printed.clone(), place, path == Path::Plain)
            };
            all.extend(as_then(row.text("path")).into_iter().map(of_path));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_of_another_proxy_says_which() {
        let published = PRESET.published();
        let of: Vec<_> = published.iter().filter(|one| is_time(one)).map(|published| published.of).collect();
        assert_eq!(of, [None, None, None, Some(PUBLISHED_PROXY)]);
    }

    #[test]
    fn each_engine_has_its_proxies() {
        let spec = spec(&PRESET.servers(), Size::Full);
        for grid in &spec.grids {
            let engine = grid.server[0].engine;
            let impossible =
                |path: &&Path| path.as_proxy().is_some_and(|proxy| proxy.impossible(engine).is_some());
            assert_eq!(grid.path.iter().find(impossible), None, "{engine}");
            assert!(grid.path.iter().filter(|path| path.as_proxy().is_some()).count() > 1, "{engine}");
        }
    }
}
