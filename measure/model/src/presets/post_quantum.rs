//! What ML-KEM key exchange and ML-DSA certificates cost a database connect, without published figures.

use crate::duration::Span;
use crate::{Baseline, Clients, Engine, Grid, Link, Path, QueryLanguage, ServerLevel, Size, Spec, Workload};

use crate::presets::preset::{Measures, Preset};

pub(crate) const PRESET: Preset = Preset {
    name: "post-quantum",
    about: "what hybrid key exchange (X25519MLKEM768) and ML-DSA certificates cost a connect, over local and long links",
    source: "no published study: published claims contradict one another, and none is of a database's connect",
    servers: &["mariadb-11.8", "debian-sid:postgres-18", "mysql-9.7"],
    measures: Measures::EveryServer,
    deviations: &[],
    explanation: &[],
    spec,
    study: None,
};

/// Every other path is compared with it.
const BASELINE: &str = "tls1.3-p256+group=x25519+client=openssl-3.5";
const HYBRID: &str = "tls1.3-p256+group=x25519mlkem768+client=openssl-3.5";
/// Of OpenSSL's client: P-256, its defaults, and post-quantum certificates, whose chain of two exceeds a TCP connection's
/// initial window.
const OPENSSL: [&str; 4] = [
    "tls1.3-p256+group=p256+client=openssl-3.5",
    "tls1.3-p256+client=openssl-3.5",
    "tls1.3-mldsa65+group=x25519mlkem768+client=openssl-3.5",
    "tls1.3-mldsa65+group=x25519mlkem768+chain=2+client=openssl-3.5",
];
const RUSTLS: [&str; 3] = [
    "tls1.3-p256+group=x25519+client=rustls",
    "tls1.3-p256+group=x25519mlkem768+client=rustls",
    "tls1.3-mldsa65+group=x25519mlkem768+client=rustls",
];
/// `PostgreSQL` never resumes.
const RESUMED: [&str; 2] = [
    "tls1.3-p256+resume+group=x25519+client=openssl-3.5",
    "tls1.3-p256+resume+group=x25519mlkem768+client=openssl-3.5",
];
const SIDECAR: &str = "proxy+group=x25519mlkem768";

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    const WINDOW_PER_ROUND_TRIP: u64 = 24;
    const LONGEST_MS: u64 = 170;
    let links: &[&str] = match size {
        Size::Smoke => &["local"],
        Size::Quick | Size::Small => &["local", "10ms", "45ms"],
        Size::Standard | Size::Full => &["local", "10ms", "45ms", "170ms", "45ms+loss=1%"],
    };
    let links: Vec<Link> = links.iter().filter_map(|link| link.parse().ok()).collect();
    let sql = servers.iter().filter(|server| server.engine.query_language() == QueryLanguage::Sql);
    let grid = |server: &ServerLevel| Grid {
        server: vec![server.clone()],
        path: paths(server.engine, size),
        workload: vec![Workload::CONNECT_QUERY],
        clients: vec![Clients::ONE],
        link: links.clone(),
        ..Grid::default()
    };
    let trial_time = match size {
        Size::Smoke => None,
        // For the CPU time of each role.
        Size::Quick | Size::Small => Some(Span::from_millis(600)),
        // Long enough for a mean on the longest link, too.
        Size::Standard | Size::Full => Some(Span::from_millis(LONGEST_MS * WINDOW_PER_ROUND_TRIP)),
    };
    // A hybrid key exchange costs a few per cent.
    let blocks = match size {
        Size::Quick | Size::Small => Some(10),
        Size::Smoke | Size::Standard | Size::Full => None,
    };
    let baseline = BASELINE.parse().ok().map(Baseline::Path);
    Spec { size, trial_time, blocks, baseline, grids: sql.map(grid).collect(), ..Spec::quick(&[]) }
}

fn paths(engine: Engine, size: Size) -> Vec<Path> {
    let resumed: &[&str] = match engine {
        Engine::MariaDb | Engine::MySql => &RESUMED,
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => &[],
    };
    let names = [BASELINE, HYBRID].into_iter().chain(OPENSSL).chain(RUSTLS);
    let names: Vec<&str> = names.chain(resumed.iter().copied()).chain([SIDECAR]).collect();
    let parsed = names.iter().filter_map(|name| name.parse().ok());
    match size {
        // One of each client, key and group.
        Size::Smoke => parsed.filter(|path: &Path| path.as_proxy().is_none()).take(9).collect(),
        Size::Quick | Size::Small | Size::Standard | Size::Full => parsed.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_one() {
        let names = [BASELINE, HYBRID, SIDECAR].into_iter().chain(OPENSSL).chain(RUSTLS).chain(RESUMED);
        for name in names {
            assert!(name.parse::<Path>().is_ok_and(|path| path.to_string() == name), "{name}");
        }
    }
}
