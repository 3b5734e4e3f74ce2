//! Round trips of every kind of connect to real servers, counted by the time that they take over a long link.

use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_experiment::{BenchError, Interrupt, LabBench, Run, Sink};
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    Arm, Auth, Cell, Engine, Event, Grid, Link, LinkKind, Metric, Path, Plan, ServerLevel, Size, Spec,
    Stamped, Workload,
};

use super::{Verdict, shape};
use crate::ciphertoll_program;

/// What the time is divided by. Far more than client and server think.
pub const RTT_MS: f64 = 45.0;
const WINDOW: Span = Span::from_millis(1_000);
/// Further from a whole number than this, a time says little of round trips.
const MOST_RESIDUE: f64 = 0.25;

/// Kinds of connect to one server, and the round trips of each, TCP's included.
struct Expected {
    server: ServerLevel,
    kinds: Kinds,
}

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
    /// The same without a link: what client and server do.
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
    for (name, kinds) in expected_by_name() {
        let server: ServerLevel = name.parse()?;
        match ciphertoll_lab::find(&server) {
            Ok(build) => {
                let kinds = kinds(&build.version);
                rows.extend(measure_one(&Expected { server, kinds }, kind, &mut say)?);
            }
            Err(error) => say(&format!("{name} is left out: {error}"))?,
        }
    }
    Ok(rows)
}

fn measure_one(
    expected: &Expected,
    kind: Option<LinkKind>,
    say: &mut impl FnMut(&str) -> Result<()>,
) -> Result<Vec<Row>> {
    let plan = Plan::new(&spec(expected)?, 1)?;
    let events = carry_out(&plan, kind)?;
    for event in &events {
        match &event.event {
            Event::Warned { message } => say(&format!("{}: {message}", expected.server))?,
            Event::CellSkipped { skipped } => say(&format!("{}: {skipped:?}", expected.server))?,
            _ => {}
        }
    }
    let mut rows = Vec::new();
    for (path, auth, round_trips) in &expected.kinds {
        let time_ms = |is_long| {
            let cell = plan.cells.iter().find(|cell| is(cell, path, auth, is_long));
            cell.and_then(|cell| median_ms(&events, cell))
        };
        let Some((time_ms, local_ms)) = time_ms(true).zip(time_ms(false)) else {
            say(&format!("{} {path} {auth}: no trial was valid", expected.server))?;
            continue;
        };
        rows.push(Row {
            server: expected.server.to_string(),
            path: (*path).to_owned(),
            auth: (*auth).to_owned(),
            time_ms,
            local_ms,
            expected: *round_trips,
        });
    }
    Ok(rows)
}

fn is(cell: &Cell, path: &str, auth: &str, is_long: bool) -> bool {
    let treatment = &cell.treatment;
    treatment.link.shape().is_some() == is_long
        && treatment.path.to_string() == path
        && treatment.auth.to_string() == auth
}

/// The least of the medians of its trials: what takes longer does so by what else the machine has to do.
fn median_ms(events: &[Stamped], wanted: &Cell) -> Option<f64> {
    let medians = events.iter().filter_map(|stamped| match &stamped.event {
        Event::TrialFinished { cell, observation, .. } if *cell == wanted.id() => {
            observation.metrics.get(&Metric::LatencyNsP50).copied()
        }
        _ => None,
    });
    medians.min_by(f64::total_cmp).map(|nanos| nanos * 1e-6)
}

fn spec(expected: &Expected) -> Result<Spec> {
    let mut auths: Vec<&str> = expected.kinds.iter().map(|(_, auth, _)| *auth).collect();
    auths.sort_unstable();
    auths.dedup();
    let grids = auths.into_iter().map(|auth| {
        let paths = expected.kinds.iter().filter(|kind| kind.1 == auth);
        let paths: Result<Vec<Path>, _> = paths.map(|(path, ..)| path.parse::<Path>()).collect();
        Ok(Grid {
            server: vec![expected.server.clone()],
            path: paths?,
            auth: Some(vec![auth.parse::<Auth>()?]),
            link: vec![Link::Local, Link::Made(shape(RTT_MS))],
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

fn carry_out(plan: &Plan, kind: Option<LinkKind>) -> Result<Vec<Stamped>> {
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
    fn event(&mut self, event: &Event) -> Result<Stamped, BenchError> {
        Ok(Stamped { at_unix_ms: 0, event: event.clone() })
    }

    fn histogram(&mut self, _: u32, _: usize, _: Arm, _: &str) -> Result<(), BenchError> {
        Ok(())
    }
}

/// Path, authentication, round trips.
type Kinds = Vec<(&'static str, &'static str, u32)>;
/// Those of a server of this version.
type KindsOf = fn(&str) -> Kinds;

/// Servers, and the kinds of connect to one of this version. How often each waits is counted on a capture by the lab's
/// own tests; here it is TCP's round trip more.
fn expected_by_name() -> [(&'static str, KindsOf); 4] {
    [
        (Engine::MariaDb.label(), |_| mariadb()),
        ("mysql-8.0", |_| mysql_8_0()),
        (Engine::Postgres.label(), postgres),
        ("postgres-18", postgres),
    ]
}

fn mariadb() -> Kinds {
    vec![
        ("plain", "native", 3),
        ("tls1.2-p256", "native", 5),
        ("tls1.2-p256+resume", "native", 4),
        ("tls1.2-p256+resume=id", "native", 4),
        ("tls1.3-p256", "native", 4),
        ("tls1.3-p256+resume", "native", 4),
        ("tls1.2-p256+eager", "native", 4),
        ("tls1.3-p256+eager", "native", 3),
        ("tls1.3-p256+eager+client=rustls", "native", 3),
        ("tls1.3-p256+mtls", "native", 4),
        ("tls1.3-p256+client=rustls", "native", 4),
        ("plain", "trust", 3),
        ("tls1.3-rsa4096", "trust", 4),
    ]
}

fn mysql_8_0() -> Kinds {
    vec![
        ("plain", "caching-sha2", 3),
        ("tls1.2-p256", "caching-sha2", 5),
        ("tls1.2-p256+resume", "caching-sha2", 4),
        ("tls1.3-p256", "caching-sha2", 4),
        ("tls1.3-p256+resume", "caching-sha2", 4),
        ("tls1.3-p256+mtls", "caching-sha2", 4),
        ("tls1.3-p256+eager", "caching-sha2", 3),
    ]
}

/// One of version 18 takes TLS at once, and any group; older ones take one group only, and others cost a round trip.
fn postgres(version: &str) -> Kinds {
    let is_18 =
        version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 18);
    let retry = u32::from(!is_18);
    let mut kinds = Vec::new();
    for (auth, more) in [("trust", 0), ("scram-4096", 2)] {
        kinds.extend([
            ("plain", auth, 2 + more),
            ("tls1.2-p256", auth, 5 + more),
            ("tls1.3-p256", auth, 4 + retry + more),
            ("tls1.3-p256+group=p256", auth, 4 + more),
        ]);
        if is_18 {
            kinds.extend([
                ("tls1.3-p256+direct", auth, 3 + more),
                ("tls1.3-p256+eager", auth, 3 + more),
                ("tls1.2-p256+eager", auth, 4 + more),
            ]);
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_planned() {
        for (name, kinds) in expected_by_name() {
            let expected = Expected { server: name.parse().unwrap(), kinds: kinds("18.1") };
            let plan = Plan::new(&spec(&expected).unwrap(), 1).unwrap();
            for (path, auth, _) in expected.kinds {
                assert!(plan.cells.iter().any(|cell| is(cell, path, auth, true)), "{name} {path} {auth}");
            }
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

    #[test]
    fn an_older_postgres_asks_again_for_a_group() {
        let of = |version, path| postgres(version).iter().find(|kind| kind.0 == path).map(|kind| kind.2);
        assert_eq!(of("15.18", "tls1.3-p256"), Some(5));
        assert_eq!(of("18.1", "tls1.3-p256"), Some(4));
        assert_eq!(of("15.18", "tls1.3-p256+direct"), None);
    }
}
