//! What a pooling proxy next to the client saved on MySQL's encrypted connects in 2017.

use crate::{
    Engine, Grid, Link, LinkShape, Metric, Path, ServerKey, ServerLevel, Size, Spec, TlsVersion, Workload,
};

use crate::presets::preset::{Measures, Preset, Published};
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
        "not published: OpenVPN's cipher; here: AES-256-GCM, the default between two ends of version 2.4",
        "a VPN joins two networks, so all paths use an emulated link without delay; proxies run next to the client",
        "the published proxy is compared with ProxySQL and with ciphertoll's own; nothing was published for a connect with a \
         query, for PostgreSQL, or for other proxies",
    ],
    explanation: &[
        "a connect through the proxy exchanges no keys and does not reach the server: the rest is a login over a unix socket. \
         The server connections are encrypted once and kept open",
        "published plain connects were slower than those through OpenVPN, and the proxy's gain is relative to that plain",
    ],
    spec,
    published,
};

/// The published proxy, if its figure is compared with another one.
const PUBLISHED_PROXY: &str = "ProxySQL 1.4.1";

/// The paths that are closest to a published one.
fn as_then(path: &str) -> Vec<(Path, Option<&'static str>)> {
    let levels: &[(&str, Option<&'static str>)] = match path {
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

fn published() -> Vec<Published> {
    let table = Table::parse(CONNECTS);
    let per_s = |row: FigureRow<'_>| Some(row.number("connects")? / row.number("real_s")?);
    let plain = table.rows().find(|row| row.text("path") == "plain-tcp").and_then(per_s);
    let mut all = Vec::new();
    for row in table.rows() {
        let Some((rate, plain)) = per_s(row).zip(plain) else { continue };
        let of_path = |(path, of)| {
            let published = Published::new(Workload::Connect, path, Metric::RatePerS, (rate / plain, None));
            Published { link: link(), of, ..published }
        };
        all.extend(as_then(row.text("path")).into_iter().map(of_path));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_of_another_proxy_says_which() {
        let of: Vec<_> = published().iter().map(|published| published.of).collect();
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
