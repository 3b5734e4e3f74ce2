//! Counts the round trips of every kind of connect to real servers, by their duration over a long link.

use anyhow::Result;
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    Auth, Cell, Event, Grid, Link, LinkKind, LinkShape, Metric, Path, Plan, ServerLevel, Size, Spec,
    TimestampedEvent, Workload, round_trips,
};

use super::{LinkVerdict, shape};
use crate::real::RealRuns;

/// Round-trip time of the link; much longer than the processing time of client and server.
pub const RTT_MS: f64 = 45.0;
const WINDOW: Span = Span::from_millis(1_000);
/// Maximum distance from a whole number of round trips.
const MAX_RESIDUE: f64 = 0.25;

/// The duration of one kind of connect.
#[derive(Clone, Debug)]
pub struct RoundTripRow {
    pub server: String,
    pub path: String,
    pub auth: String,
    pub time_ms: f64,
    /// Median duration over a link without delay: the processing time.
    pub local_ms: f64,
    pub expected: u32,
}

impl RoundTripRow {
    /// The total duration in round trips.
    pub fn ratio(&self) -> f64 {
        self.time_ms / RTT_MS
    }

    /// The duration that the link adds, in round trips.
    pub fn added(&self) -> f64 {
        (self.time_ms - self.local_ms) / RTT_MS
    }

    pub fn verdict(&self) -> LinkVerdict {
        let mut verdict = LinkVerdict::default();
        let counted = self.added().round();
        verdict.add_if((counted - f64::from(self.expected)).abs() > 0.5, || {
            format!("{} expected", self.expected)
        });
        verdict.add_if((self.added() - counted).abs() > MAX_RESIDUE, || "not a whole number".to_owned());
        verdict
    }
}

/// Measures all kinds of connects to the installed servers; prints a line for each missing server.
pub fn measure(
    kind: Option<LinkKind>,
    mut print_line: impl FnMut(&str) -> Result<()>,
) -> Result<Vec<RoundTripRow>> {
    let runs = RealRuns::begin("links", kind)?;
    let mut rows = Vec::new();
    for (name, kinds) in KINDS {
        let server: ServerLevel = name.parse()?;
        match ciphertoll_lab::find(&server) {
            Ok(build) => {
                rows.extend(measure_one(&server, &build.version, kinds, &runs, &mut print_line)?);
            }
            Err(error) => print_line(&format!("{name} is skipped: {error}"))?,
        }
    }
    runs.end()?;
    Ok(rows)
}

fn measure_one(
    server: &ServerLevel,
    version: &str,
    kinds: &[Kind],
    runs: &RealRuns,
    print_line: &mut impl FnMut(&str) -> Result<()>,
) -> Result<Vec<RoundTripRow>> {
    let plan = Plan::new(&spec(server, kinds)?, 1)?;
    let events = runs.carry_out(&plan, None)?;
    for event in &events {
        match &event.event {
            Event::Warned { message } => print_line(&format!("{server}: {message}"))?,
            Event::CellSkipped { skipped } => print_line(&format!("{server}: {skipped:?}"))?,
            _ => {}
        }
    }
    let mut rows = Vec::new();
    for kind @ (path, auth) in kinds {
        let Some(expected) = expected(server, version, kind) else { continue };
        let time_ms = |is_long| {
            let cell = plan.cells.iter().find(|cell| is(cell, path, auth, is_long));
            cell.and_then(|cell| median_ms(&events, cell))
        };
        let Some((time_ms, local_ms)) = time_ms(true).zip(time_ms(false)) else {
            print_line(&format!("{server} {path} {auth}: no trial was valid"))?;
            continue;
        };
        rows.push(RoundTripRow {
            server: server.to_string(),
            path: (*path).to_owned(),
            auth: (*auth).to_owned(),
            time_ms,
            local_ms,
            expected,
        });
    }
    Ok(rows)
}

/// The expected round trips, including TCP's. `None` if the server does not support this kind of connect.
fn expected(server: &ServerLevel, version: &str, (path, auth): &Kind) -> Option<u32> {
    let (path, auth): (Path, Auth) = (path.parse().ok()?, auth.parse().ok()?);
    let peer = round_trips::ServerProperties {
        engine: server.engine,
        version,
        hello_retry: None,
        first_flight_bytes: None,
    };
    Some(round_trips::of_tcp(path) + round_trips::of_session(&peer, path, auth)?)
}

fn is(cell: &Cell, path: &str, auth: &str, is_long: bool) -> bool {
    let treatment = &cell.treatment;
    (treatment.link == Link::Emulated(shape(RTT_MS))) == is_long
        && treatment.path.to_string() == path
        && treatment.auth.to_string() == auth
}

/// The minimum of the trials' medians, because other load on the machine can only lengthen them.
fn median_ms(events: &[TimestampedEvent], wanted: &Cell) -> Option<f64> {
    let medians = events.iter().filter_map(|stamped| match &stamped.event {
        Event::TrialFinished { cell, observation, .. } if *cell == wanted.id() => {
            observation.metrics.get(&Metric::LatencyNsP50).copied()
        }
        _ => None,
    });
    medians.min_by(f64::total_cmp).map(|nanos| nanos * 1e-6)
}

fn spec(server: &ServerLevel, kinds: &[Kind]) -> Result<Spec> {
    let mut auths: Vec<&str> = kinds.iter().map(|(_, auth)| *auth).collect();
    auths.sort_unstable();
    auths.dedup();
    let grids = auths.into_iter().map(|auth| {
        let paths = kinds.iter().filter(|kind| kind.1 == auth);
        let paths: Result<Vec<Path>, _> = paths.map(|(path, ..)| path.parse::<Path>()).collect();
        Ok(Grid {
            server: vec![server.clone()],
            path: paths?,
            auth: Some(vec![auth.parse::<Auth>()?]),
            link: vec![Link::Emulated(LinkShape::of_rtt_us(0)), Link::Emulated(shape(RTT_MS))],
            workload: vec![Workload::Connect],
            ..Grid::default()
        })
    });
    Ok(Spec {
        name: "round trips".to_owned(),
        size: Size::Standard,
        blocks: Some(1),
        trial_time: Some(WINDOW),
        grids: grids.collect::<Result<_>>()?,
        ..Spec::quick(&[])
    })
}

/// Path and authentication.
type Kind = (&'static str, &'static str);

/// Servers, and the kinds of connect to each.
const KINDS: [(&str, &[Kind]); 4] = [
    (
        "mariadb",
        &[
            ("plain", "native"),
            ("tls1.2-p256", "native"),
            ("tls1.2-p256+resume", "native"),
            ("tls1.2-p256+resume=id", "native"),
            ("tls1.3-p256", "native"),
            ("tls1.3-p256+resume", "native"),
            ("tls1.2-p256+eager", "native"),
            ("tls1.3-p256+eager", "native"),
            ("tls1.3-p256+eager+client=rustls", "native"),
            ("tls1.3-p256+mtls", "native"),
            ("tls1.3-p256+client=rustls", "native"),
            ("plain", "trust"),
            ("tls1.3-rsa4096", "trust"),
            ("ssh-aes256-gcm", "native"),
            ("ssh-aes256-gcm+N", "native"),
            ("openvpn-aes256-gcm", "native"),
            ("wireguard", "native"),
            ("stunnel", "native"),
        ],
    ),
    (
        "mysql-8.0",
        &[
            ("plain", "caching-sha2"),
            ("tls1.2-p256", "caching-sha2"),
            ("tls1.2-p256+resume", "caching-sha2"),
            ("tls1.3-p256", "caching-sha2"),
            ("tls1.3-p256+resume", "caching-sha2"),
            ("tls1.3-p256+eager", "caching-sha2"),
        ],
    ),
    ("postgres-15", POSTGRES),
    ("postgres-18", POSTGRES),
];

/// Kinds that a version does not support are skipped.
const POSTGRES: &[Kind] = &[
    ("plain", "trust"),
    ("tls1.2-p256", "trust"),
    ("tls1.3-p256", "trust"),
    ("tls1.3-p256+group=p256", "trust"),
    ("tls1.3-p256+direct", "trust"),
    ("tls1.3-p256+eager", "trust"),
    ("tls1.2-p256+eager", "trust"),
    ("plain", "scram-4096"),
    ("tls1.2-p256", "scram-4096"),
    ("tls1.3-p256", "scram-4096"),
    ("tls1.3-p256+group=p256", "scram-4096"),
    ("tls1.3-p256+direct", "scram-4096"),
    ("tls1.3-p256+eager", "scram-4096"),
    ("ssh-aes256-gcm", "scram-4096"),
    ("wireguard", "scram-4096"),
    ("stunnel", "scram-4096"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_planned_and_has_an_expected_number() {
        for (name, kinds) in KINDS {
            let server: ServerLevel = name.parse().unwrap();
            let plan = Plan::new(&spec(&server, kinds).unwrap(), 1).unwrap();
            for (path, auth) in kinds {
                assert!(plan.cells.iter().any(|cell| is(cell, path, auth, true)), "{name} {path} {auth}");
            }
            let version = if name == "mariadb" { "10.11.6-MariaDB" } else { "18.1" };
            let known = kinds.iter().filter(|kind| expected(&server, version, kind).is_some());
            assert!(name == "mysql-8.0" || known.count() == kinds.len(), "{name}");
        }
    }

    #[test]
    fn a_duration_must_be_a_whole_number_of_round_trips() {
        let row = |time_ms, expected| RoundTripRow {
            server: String::new(),
            path: String::new(),
            auth: String::new(),
            time_ms,
            local_ms: 10.0,
            expected,
        };
        assert_eq!(row(146.0, 3).verdict().to_string(), "ok");
        assert_eq!(row(146.0, 4).verdict().to_string(), "over: 4 expected");
        assert_eq!(row(160.0, 3).verdict().to_string(), "over: not a whole number");
    }
}
