//! Known effects on real servers: an A/A comparison, optionally with an injected slowdown.

use std::io::{Write, stderr};
use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_experiment::Injection;
use ciphertoll_model::duration::Span;
use ciphertoll_model::{Arm, Grid, Metric, Path, Plan, Size, Spec, StealLimit, TimestampedEvent, Workload};
use ciphertoll_stats::{Analysis, PairedRatio, Verdict, analyse};

use crate::real::RealRuns;

/// Short, because many short trials estimate a ratio better than few long ones.
const WINDOW: Span = Span::from_millis(300);
/// A run that fails is made again this often at most, each time after a pause.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_secs(15);

/// How small runs of a baseline and its A/A copy are made.
pub struct NullRuns {
    pub real: RealRuns,
    pub max_steal: StealLimit,
}

/// A run of a baseline and its A/A copy.
#[derive(Clone, Debug)]
pub struct NullResult {
    /// The costs of the copy that have a verdict.
    pub ratios: Vec<(Metric, PairedRatio)>,
}

impl NullRuns {
    /// Compares plain connects with plain connects. A share `slowed` of the copy's connects do their work twice.
    pub fn measure(&self, seed: u64, blocks: u32, slowed: f64) -> Result<NullResult> {
        let plan = Plan::new(&Spec { blocks: Some(blocks), max_steal: self.max_steal, ..spec() }, seed)?;
        let injection = (slowed > 0.0).then(|| Injection::into_arm(Arm::Repeat, slowed));
        let events = self.carry_out(&plan, injection)?;
        NullResult::of(&analyse(&plan, &events)).context("the run has no results")
    }

    /// Waits for a machine that is too busy: others' load comes and goes, and many runs are behind this one.
    fn carry_out(&self, plan: &Plan, injection: Option<Injection>) -> Result<Vec<TimestampedEvent>> {
        for _ in 1..ATTEMPTS {
            match self.real.carry_out(plan, injection) {
                Ok(events) => return Ok(events),
                Err(error) => writeln!(stderr(), "{error}; trying again in {} s", PAUSE.as_secs())?,
            }
            std::thread::sleep(PAUSE);
        }
        self.real.carry_out(plan, injection)
    }
}

impl NullResult {
    fn of(analysis: &Analysis) -> Option<Self> {
        let ratios = analysis.repeat(0)?.ratios.iter().filter(|(_, ratio)| ratio.verdict.is_some());
        Some(Self { ratios: ratios.map(|(metric, ratio)| (*metric, ratio.clone())).collect() })
    }

    pub fn claims_difference(&self) -> bool {
        let claims = |verdict| matches!(verdict, Verdict::Differs | Verdict::RealButNegligible { .. });
        self.ratios.iter().any(|(_, ratio)| ratio.verdict.is_some_and(claims))
    }

    pub fn time(&self) -> Option<&PairedRatio> {
        self.ratios.iter().find(|(metric, _)| *metric == Metric::LatencyNsMean).map(|(_, ratio)| ratio)
    }
}

fn spec() -> Spec {
    let grid = Grid { path: vec![Path::Plain], workload: vec![Workload::Connect], ..Grid::default() };
    Spec {
        name: "null".to_owned(),
        size: Size::Standard,
        trial_time: Some(WINDOW),
        grids: vec![grid],
        ..Spec::quick(&[])
    }
}
