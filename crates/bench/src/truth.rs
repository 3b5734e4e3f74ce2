//! Known truths on real servers: two copies of one treatment, one of them perhaps with a delay that
//! we put in ourselves.

use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_experiment::Injection;
use ciphertoll_model::duration::Span;
use ciphertoll_model::{Arm, Grid, Metric, Path, Plan, Size, Spec, Workload};
use ciphertoll_stats::{Analysis, PairedRatio, Verdict, analyse};

use crate::real::RealRuns;

/// Windows of this length: many short runs say more about the rate of errors than few long ones.
const WINDOW: Span = Span::from_millis(300);
const BLOCKS: u32 = 6;

/// One small run: a baseline, its second copy, nothing else.
pub struct NullRun<'a> {
    runs: &'a RealRuns,
}

/// What such a run says of the second copy.
#[derive(Clone, Debug)]
pub struct NullResult {
    /// The ratios that get verdicts.
    pub ratios: Vec<(Metric, PairedRatio)>,
    /// Mean time of the baseline's operation.
    pub baseline_mean_ns: f64,
}

impl<'a> NullRun<'a> {
    /// Carried out by `runs`.
    pub fn new(runs: &'a RealRuns) -> Self {
        Self { runs }
    }

    /// Plain connects against plain connects; with `delay`, the second copy's take that much longer.
    pub fn carry_out(&self, seed: u64, delay: Option<Duration>) -> Result<NullResult> {
        let plan = Plan::new(&spec(), seed)?;
        let injection = delay.map(|delay| Injection::into_arm(Arm::Repeat, delay));
        let events = self.runs.carry_out(&plan, injection)?;
        NullResult::of(&analyse(&plan, &events)).context("the run yielded no numbers")
    }
}

impl NullResult {
    fn of(analysis: &Analysis) -> Option<Self> {
        let ratios = analysis.repeat(0)?.ratios.iter().filter(|(_, ratio)| ratio.verdict.is_some());
        Some(Self {
            ratios: ratios.map(|(metric, ratio)| (*metric, ratio.clone())).collect(),
            baseline_mean_ns: analysis.strata.first()?.baseline.metrics.get(&Metric::LatencyNsMean)?.value,
        })
    }

    /// Whether any verdict claims a difference.
    pub fn claims_difference(&self) -> bool {
        let claims = |verdict| matches!(verdict, Verdict::Differs | Verdict::RealButNegligible { .. });
        self.ratios.iter().any(|(_, ratio)| ratio.verdict.is_some_and(claims))
    }

    /// The ratio of the mean times.
    pub fn time(&self) -> Option<&PairedRatio> {
        self.ratios.iter().find(|(metric, _)| *metric == Metric::LatencyNsMean).map(|(_, ratio)| ratio)
    }
}

fn spec() -> Spec {
    let grid = Grid { path: vec![Path::Plain], workload: vec![Workload::Connect], ..Grid::default() };
    Spec {
        name: "null".to_owned(),
        size: Size::Standard,
        blocks: Some(BLOCKS),
        trial_time: Some(WINDOW),
        grids: vec![grid],
        ..Spec::quick(&[])
    }
}
