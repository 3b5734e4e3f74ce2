//! Every term of the cost model, for `predict` and `advise`.

use crate::duration::Span;
use crate::{
    Bytes, Clients, Engine, Grid, Link, LinkShape, Path, Queries, QueryLanguage, SAFE_CLIENTS, ServerLevel,
    Size, Spec, TlsVersion, Workload,
};

use crate::presets::preset::{Measures, Preset};

pub(crate) const PRESET: Preset = Preset {
    name: "calibrate",
    about: "what a connect, a query and a byte cost by each path: for `ciphertoll predict` and `ciphertoll advise`",
    source: "no published study: measures the terms of the cost model",
    servers: &["mariadb", "postgres"],
    measures: Measures::OneServer,
    deviations: &[],
    explanation: &[],
    spec,
    study: None,
};

/// With all workloads.
const PATHS: [&str; 4] = ["plain", "tls1.3-p256", "ssh-aes256-gcm", "proxy"];
/// Its results of any length cost what those of TLS 1.3 cost.
const OLDER: &str = "tls1.2-p256";
/// Once connected, it is the same as without resumption. `PostgreSQL` never resumes.
const RESUMED: &str = "tls1.3-p256+resume";

const FEW: u16 = 1;
const MANY: u16 = 8;
/// Queries per connection: so many that the noise of the connect hardly affects the cost of each.
const SEVERAL: u16 = 100;
const ROW_BYTES: [u32; 3] = [1 << 10, 16 << 10, 256 << 10];
const RTTS_MS: [u32; 2] = [10, 45];

fn spec(servers: &[ServerLevel], size: Size) -> Spec {
    let sql = servers.iter().filter(|server| server.engine.query_language() == QueryLanguage::Sql);
    let grids =
        sql.flat_map(|server| if server.url.is_some() { grids_at_url(server) } else { grids(server) });
    let grids = grids.collect();
    // A role's CPU time is reported from 200 ms on.
    let trial_time = match size {
        Size::Smoke => None,
        Size::Quick | Size::Small | Size::Standard => Some(Span::from_millis(600)),
        Size::Full => Some(Span::from_millis(5_000)),
    };
    let blocks = match size {
        Size::Quick | Size::Small | Size::Standard => Some(6),
        Size::Smoke | Size::Full => None,
    };
    Spec { size, blocks, trial_time, grids, ..Spec::quick(&[]) }
}

fn grids(server: &ServerLevel) -> Vec<Grid> {
    let several = Queries::new(SEVERAL).map(|queries| Workload::ConnectQuery { queries });
    let rows = ROW_BYTES.iter().filter_map(|bytes| Some(Workload::BulkRead { bytes: Bytes::new(*bytes)? }));
    let links = RTTS_MS.iter().map(|ms| Link::Emulated(LinkShape::of_rtt_us(ms * 1_000)));
    let links: Vec<Link> = links.collect();
    let longest: Vec<Link> = links.last().copied().into_iter().collect();
    let local = vec![Link::Local];
    let paths = |names: &[&str]| -> Vec<Path> { names.iter().filter_map(|name| name.parse().ok()).collect() };
    let with_older = paths(&[&PATHS[..], &[OLDER]].concat());
    let with_resumed = match server.engine {
        Engine::MariaDb | Engine::MySql => [&with_older[..], &paths(&[RESUMED])].concat(),
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => with_older.clone(),
    };
    let grid = |path: &[Path], workload: Vec<Workload>, clients: &[u16], link: &[Link]| Grid {
        server: vec![server.clone()],
        path: path.to_vec(),
        workload,
        clients: clients.iter().filter_map(|count| Clients::new(*count)).collect(),
        link: link.to_vec(),
        ..Grid::default()
    };
    vec![
        grid(&with_resumed, vec![Workload::Connect], &[FEW, MANY], &local),
        grid(&with_resumed, vec![Workload::CONNECT_QUERY], &[FEW], &[&local[..], &links].concat()),
        grid(&with_older, several.into_iter().chain([Workload::PointSelect]).collect(), &[FEW, MANY], &local),
        grid(&paths(&PATHS), rows.collect(), &[FEW], &local),
        grid(&with_older, vec![Workload::PointSelect], &[FEW], &longest),
    ]
}

/// What the server at a URL has: its own key, and no link, proxy or tunnel of ours.
fn grids_at_url(server: &ServerLevel) -> Vec<Grid> {
    let several = Queries::new(SEVERAL).map(|queries| Workload::ConnectQuery { queries });
    let rows = ROW_BYTES.iter().filter_map(|bytes| Some(Workload::BulkRead { bytes: Bytes::new(*bytes)? }));
    let path = match server.url.as_ref().and_then(|url| url.host()) {
        Some(_) => {
            [&[Path::Plain][..], &[TlsVersion::Tls13, TlsVersion::Tls12].map(Path::tls_as_served)].concat()
        }
        None => vec![Path::Unix],
    };
    let grid = |workload: Vec<Workload>, clients: &[u16]| Grid {
        server: vec![server.clone()],
        path: path.clone(),
        workload,
        clients: clients.iter().filter_map(|count| Clients::new(*count)).collect(),
        ..Grid::default()
    };
    let queries = [Workload::CONNECT_QUERY].into_iter().chain(several);
    vec![
        grid([Workload::Connect].into_iter().chain(queries).collect(), &[FEW]),
        grid(vec![Workload::Connect], &[SAFE_CLIENTS]),
        grid([Workload::PointSelect].into_iter().chain(rows).collect(), &[FEW]),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Plan;

    use super::*;

    #[test]
    fn a_server_at_a_url_is_measured_with_its_own_tls() {
        let paths = |url: &str| {
            let plan = Plan::new(&spec(&[format!("st={url}").parse().unwrap()], Size::Small), 1).unwrap();
            let paths: std::collections::BTreeSet<String> =
                plan.cells.iter().map(|cell| cell.treatment.path.to_string()).collect();
            paths.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(paths("postgres://a@h?sslmode=compare"), "plain tls1.2 tls1.3");
        assert_eq!(paths("postgres://a@h?sslmode=verify-full"), "tls1.2 tls1.3");
        assert_eq!(paths("mysql://a@localhost?socket=/s"), "unix");
    }

    #[test]
    fn every_term_of_one_server_takes_less_than_ten_minutes() {
        /// Starting servers, tunnels and proxies.
        const SET_UP: Duration = Duration::from_secs(25);
        for server in ["mariadb", "postgres"] {
            let plan = Plan::new(&spec(&[server.parse().unwrap()], Size::Standard), 1).unwrap();
            let expected = plan.expected_duration() + SET_UP;
            assert!(expected < Duration::from_mins(10), "{server}: {expected:?}");
            assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
        }
    }
}
