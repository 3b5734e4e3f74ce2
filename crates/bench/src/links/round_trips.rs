//! Round trips of every kind of connect to real servers, counted by the time that they take over a long link.

use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_experiment::{BenchError, Interrupt, LabBench, Run, Sink};
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    Arm, Auth, Cell, Event, Grid, Link, LinkKind, LinkShape, Metric, Path, Plan, ServerLevel, Size, Spec,
    TimestampedEvent, Workload, round_trips,
};

use super::{Verdict, shape};
use crate::ciphertoll_program;

/// What the time is divided by. Far more than client and server think.
pub const RTT_MS: f64 = 45.0;
const WINDOW: Span = Span::from_millis(1_000);
/// Further from a whole number than this, a time says little of round trips.
const MOST_RESIDUE: f64 = 0.25;

/// What a kind of connect took.
#[derive(Clone, Debug)]
pub struct Row {
    /// The server.
    pub server: String,
    /// The path.
    pub path: String,
    /// The authentication.
    pub auth: String,
    /// The median time, ms.
    pub time_ms: f64,
    /// The same over a link without length: what client and server do.
    pub local_ms: f64,
    /// Round trips that were expected.
    pub expected: u32,
}

impl Row {
    /// The time in round trips.
    pub fn ratio(&self) -> f64 {
        self.time_ms / RTT_MS
    }

    /// The same of what the link adds.
    pub fn added(&self) -> f64 {
        (self.time_ms - self.local_ms) / RTT_MS
    }

    /// Against what was expected.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let counted = self.added().round();
        verdict
            .over((counted - f64::from(self.expected)).abs() > 0.5, || format!("{} expected", self.expected));
        verdict.over((self.added() - counted).abs() > MOST_RESIDUE, || "no whole number".to_owned());
        verdict
    }
}

/// Connects in every way to the servers found here; a line for each that is not, by `say`.
pub fn measure(kind: Option<LinkKind>, mut say: impl FnMut(&str) -> Result<()>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, kinds) in KINDS {
        let server: ServerLevel = name.parse()?;
        match ciphertoll_lab::find(&server) {
            Ok(build) => {
                rows.extend(measure_one(&server, &build.version, kinds, kind, &mut say)?);
            }
            Err(error) => say(&format!("{name} is left out: {error}"))?,
        }
    }
    Ok(rows)
}

fn measure_one(
    server: &ServerLevel,
    version: &str,
    kinds: &[Kind],
    by: Option<LinkKind>,
    say: &mut impl FnMut(&str) -> Result<()>,
) -> Result<Vec<Row>> {
    let plan = Plan::new(&spec(server, kinds)?, 1)?;
    let events = carry_out(&plan, by)?;
    for event in &events {
        match &event.event {
            Event::Warned { message } => say(&format!("{server}: {message}"))?,
            Event::CellSkipped { skipped } => say(&format!("{server}: {skipped:?}"))?,
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
            say(&format!("{server} {path} {auth}: no trial was valid"))?;
            continue;
        };
        rows.push(Row {
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

/// Those of a connect of this kind, TCP's included; none where nobody has counted, as the server has no such thing.
fn expected(server: &ServerLevel, version: &str, (path, auth): &Kind) -> Option<u32> {
    let (path, auth): (Path, Auth) = (path.parse().ok()?, auth.parse().ok()?);
    let peer = round_trips::ServerProperties { engine: server.engine, version, hello_retry: None };
    Some(round_trips::of_tcp(path) + round_trips::of_session(&peer, path, auth)?)
}

fn is(cell: &Cell, path: &str, auth: &str, is_long: bool) -> bool {
    let treatment = &cell.treatment;
    (treatment.link == Link::Emulated(shape(RTT_MS))) == is_long
        && treatment.path.to_string() == path
        && treatment.auth.to_string() == auth
}

/// The least of the medians of its trials: what takes longer does so by what else the machine has to do.
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

fn carry_out(plan: &Plan, kind: Option<LinkKind>) -> Result<Vec<TimestampedEvent>> {
    let interrupt = Interrupt::default();
    let logs = Logs::make()?;
    let mut bench = LabBench::new(ciphertoll_program()?, interrupt.clone()).with_logs(logs.0.clone());
    if let Some(kind) = kind {
        bench = bench.with_links_by(kind);
    }
    Ok(Run::new(plan, &mut bench, &mut Memory, &interrupt).carry_out(env!("CARGO_PKG_VERSION"))?)
}

/// Where servers log; gone with this.
struct Logs(PathBuf);

impl Logs {
    fn make() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("ciphertoll-links-{}", std::process::id()));
        std::fs::create_dir_all(&path).context("cannot make a directory for logs")?;
        Ok(Self(path))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        // What is left behind is small and in a directory for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Keeps nothing: the events that the run returns are all that is needed.
struct Memory;

impl Sink for Memory {
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, BenchError> {
        Ok(TimestampedEvent { at_unix_ms: 0, event: event.clone() })
    }

    fn histogram(&mut self, _: u32, _: usize, _: Arm, _: &str) -> Result<(), BenchError> {
        Ok(())
    }
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

/// Those that a version does not have are left out when it is asked.
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
    fn every_kind_is_planned_and_known() {
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
    fn a_time_is_a_number_of_round_trips_or_none() {
        let row = |time_ms, expected| Row {
            server: String::new(),
            path: String::new(),
            auth: String::new(),
            time_ms,
            local_ms: 10.0,
            expected,
        };
        assert_eq!(row(146.0, 3).verdict().to_string(), "ok");
        assert_eq!(row(146.0, 4).verdict().to_string(), "over: 4 expected");
        assert_eq!(row(160.0, 3).verdict().to_string(), "over: no whole number");
    }
}
