//! The questions of 2013 for today's protocols, without published figures.

use crate::duration::Span;
use crate::{Engine, Grid, Link, LinkShape, Path, ServerLevel, Size, Spec, Workload};

use crate::presets::preset::{Measures, Preset};

pub(crate) const PRESET: Preset = Preset {
    name: "wan-modern",
    about: "what TLS 1.2 and 1.3, resumed, direct and eager, SSH, WireGuard and OpenVPN cost a connect over long links",
    source: "no published study: the questions of 2013 for today's protocols",
    servers: &["mariadb", "postgres"],
    measures: Measures::EveryServer,
    deviations: &[],
    explanation: &[],
    spec,
    study: None,
};

/// For both engines.
const PATHS: [&str; 7] = [
    "plain",
    "tls1.2-p256",
    "tls1.3-p256",
    "tls1.3-p256+group=p256",
    "ssh-aes256-gcm",
    "wireguard",
    "openvpn-aes256-gcm",
];

/// For one engine only: `PostgreSQL` never resumes, and MySQL's protocol begins in plaintext.
fn own_paths(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::MariaDb | Engine::MySql => &["tls1.2-p256+resume", "tls1.3-p256+resume", "tls1.3-p256+eager"],
        Engine::Postgres => &["tls1.3-p256+direct", "tls1.3-p256+direct+group=p256", "tls1.3-p256+eager"],
        Engine::MongoDb | Engine::FerretDb => &[],
    }
}

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    const WINDOW_PER_ROUND_TRIP: u64 = 24;
    let rtts_ms: &[u32] = match size {
        Size::Smoke => &[10],
        Size::Quick | Size::Small => &[1, 45],
        Size::Standard | Size::Full => &[1, 10, 45, 170],
    };
    let longest_ms = rtts_ms.iter().copied().max().unwrap_or_default();
    let grid = |server: &ServerLevel| {
        let paths = PATHS.iter().chain(own_paths(server.engine)).filter_map(|path| path.parse().ok());
        let path: Vec<Path> = match size {
            Size::Smoke => paths.filter(|path: &Path| path.as_tunnel().is_none()).take(3).collect(),
            Size::Quick | Size::Small | Size::Standard | Size::Full => paths.collect(),
        };
        Grid {
            server: vec![server.clone()],
            path,
            workload: vec![Workload::CONNECT_QUERY],
            link: rtts_ms.iter().map(|ms| Link::Emulated(LinkShape::of_rtt_us(ms * 1_000))).collect(),
            ..Grid::default()
        }
    };
    // Long enough for a mean on the longest link.
    let trial_time = Some(Span::from_millis(u64::from(longest_ms).max(25) * WINDOW_PER_ROUND_TRIP));
    Spec { size, trial_time, grids: servers.iter().map(grid).collect(), ..Spec::quick(&[]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_one() {
        let of = |engine| PATHS.iter().chain(own_paths(engine)).map(|path| path.parse::<Path>());
        assert!([Engine::MariaDb, Engine::Postgres].into_iter().flat_map(of).all(|path| path.is_ok()));
    }
}
