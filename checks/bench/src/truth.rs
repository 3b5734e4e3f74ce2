//! Known effects on real servers: an A/A comparison, optionally with an injected delay.

use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_experiment::Injection;
use ciphertoll_model::duration::Span;
use ciphertoll_model::{Arm, Grid, Metric, Path, Plan, Size, Spec, Workload};
use ciphertoll_stats::{Analysis, PairedRatio, Verdict, analyse};

use crate::real::RealRuns;

/// Short, because many short runs estimate the error rate better than few long ones.
const WINDOW: Span = Span::from_millis(300);
const BLOCKS: u32 = 6;

/// A small run of a baseline and its A/A copy.
#[derive(Clone, Debug)]
pub struct NullResult {
    /// The costs of the copy that have a verdict.
    pub ratios: Vec<(Metric, PairedRatio)>,
    pub baseline_mean_ns: f64,
}

impl NullResult {
    /// Compares plain connects with plain connects; `delay` is injected into the copy.
    pub fn measure(runs: &RealRuns, seed: u64, delay: Option<Duration>) -> Result<Self> {
        let plan = Plan::new(&spec(), seed)?;
        let injection = delay.map(|delay| Injection::into_arm(Arm::Repeat, delay));
        let events = runs.carry_out(&plan, injection)?;
        Self::of(&analyse(&plan, &events)).context("the run has no results")
    }

    fn of(analysis: &Analysis) -> Option<Self> {
        let ratios = analysis.repeat(0)?.ratios.iter().filter(|(_, ratio)| ratio.verdict.is_some());
        Some(Self {
            ratios: ratios.map(|(metric, ratio)| (*metric, ratio.clone())).collect(),
            baseline_mean_ns: analysis.strata.first()?.baseline.metrics.get(&Metric::LatencyNsMean)?.value,
        })
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
        blocks: Some(BLOCKS),
        trial_time: Some(WINDOW),
        grids: vec![grid],
        ..Spec::quick(&[])
    }
}
