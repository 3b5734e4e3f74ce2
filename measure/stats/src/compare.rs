//! Compares two runs of the same cells: has a ratio changed? Each cell is first divided by its own run's baseline, in
//! paired blocks, so that a machine that was slower on one of the days does not matter.

use std::collections::BTreeSet;

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Arm, CellId, Factor, Margins, Metric, MetricDirection, Plan, TimestampedEvent};

use crate::assemble::{PlannedComparison, Trials};
use crate::estimate::Estimate;
use crate::estimate::Interval;
use crate::holm::holm;
use crate::interval::{CONFIDENCE, LogSummary, Welch};
use crate::verdict::{EQUIVALENCE_CONFIDENCE, SIGNIFICANCE, headline_metrics, is_within_margin, margin};

/// One of the two runs.
#[derive(Clone, Copy, Debug)]
pub struct ComparedRun<'a> {
    pub plan: &'a Plan,
    pub events: &'a [TimestampedEvent],
}

/// The result of [`compare`].
#[derive(Clone, Debug, PartialEq)]
pub struct RunComparison {
    /// Every headline ratio that both runs have, in the order of the new run's comparisons.
    pub changes: Vec<Change>,
    /// Cells with a comparison that only the base run has.
    pub only_in_base: Vec<CellId>,
    /// Cells with a comparison that only the new run has.
    pub only_in_new: Vec<CellId>,
}

/// The change of one comparison in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The compared cell.
    pub id: CellId,
    /// The baseline of the new run that the cell is compared with.
    pub compared_with: CellId,
    /// The factor whose levels are compared, if it is not that of the run's own baseline.
    pub factor: Option<Factor>,
    pub metric: Metric,
    /// The ratio in the base run, with its 95 % interval.
    pub base: Estimate,
    /// The ratio in the new run, with its 95 % interval.
    pub new: Estimate,
    /// New ÷ base, with its 95 % interval.
    pub ratio: Estimate,
    /// Holm-adjusted over all changes.
    pub p_adjusted: f64,
    pub verdict: ChangeVerdict,
}

/// The conclusion about a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeVerdict {
    /// The cost has risen (Holm-adjusted p < 0.05), by more than the margin.
    Regression,
    /// The cost has fallen.
    Improvement,
    /// The cost has changed by less than the margin.
    Negligible {
        /// δ, as a share.
        margin: f64,
    },
    /// The cost is the same within ±margin.
    SameWithin {
        /// δ, as a share.
        margin: f64,
    },
    /// Neither a change nor sameness is shown.
    Inconclusive {
        /// The smallest detectable change (80 % power), as a share.
        smallest_detectable_change: f64,
    },
}

/// A change before all changes are adjusted together.
struct Candidate<'a> {
    ratios: &'a LogRatios,
    metric: Metric,
    base: LogSummary,
    new: LogSummary,
    difference: Welch,
    margin: f64,
}

/// Compares the headline ratios of every comparison that both runs have.
///
/// Reference: Welch, *The generalization of "Student's" problem when several different population variances are involved*,
/// Biometrika 34 (1947), on paired log-ratios. Assumes what [`LogSummary`] assumes, and independent runs. Minimum n: 2 blocks
/// in each run.
pub fn compare(base: &ComparedRun<'_>, new: &ComparedRun<'_>) -> RunComparison {
    let (base_ratios, new_ratios) = (log_ratios(base), log_ratios(new));
    let candidates: Vec<Candidate<'_>> =
        new_ratios.iter().flat_map(|ratios| candidates(ratios, &base_ratios, wider(base, new))).collect();
    let p_values: Vec<f64> = candidates.iter().map(|candidate| candidate.difference.p_value()).collect();
    let family = p_values.len();
    let changes = candidates.into_iter().zip(holm(&p_values));
    RunComparison {
        changes: changes.map(|(candidate, p_adjusted)| candidate.judged(p_adjusted, family)).collect(),
        only_in_base: missing_from(&new_ratios, &base_ratios),
        only_in_new: missing_from(&base_ratios, &new_ratios),
    }
}

/// The log-ratios of one comparison, one for each paired block.
struct LogRatios {
    id: CellId,
    compared_with: CellId,
    factor: Option<Factor>,
    logs: Vec<(Metric, Vec<f64>)>,
}

impl LogRatios {
    /// The baseline cell may differ between the runs, for example if a server has refused plaintext since.
    fn is_same_comparison(&self, other: &Self) -> bool {
        self.id == other.id && self.factor == other.factor
    }
}

/// The headline metrics of every comparison of a run, A/A comparisons excluded.
fn log_ratios(run: &ComparedRun<'_>) -> Vec<LogRatios> {
    let trials = Trials::of(run.plan, run.events);
    let id = |cell: usize| run.plan.cells[cell].id();
    let of_comparison = |comparison: PlannedComparison| {
        let mut by_metric = comparison.pairs(&trials).log_ratios();
        let headline = headline_metrics(&run.plan.cells[comparison.baseline]).iter();
        LogRatios {
            id: id(comparison.visited.cell),
            compared_with: id(comparison.baseline),
            factor: run.plan.strata[comparison.stratum].factor,
            logs: headline.filter_map(|metric| Some((*metric, by_metric.remove(metric)?))).collect(),
        }
    };
    let planned = PlannedComparison::all(run.plan).into_iter();
    let treatments = planned.filter(|comparison| comparison.visited.arm == Arm::Main);
    treatments.map(of_comparison).filter(|ratios| !ratios.logs.is_empty()).collect()
}

/// The cells of comparisons that are `here` and not `there`, each once.
fn missing_from(there: &[LogRatios], here: &[LogRatios]) -> Vec<CellId> {
    let mut seen = BTreeSet::new();
    here.iter()
        .filter(|ratios| !there.iter().any(|other| other.is_same_comparison(ratios)))
        .filter(|ratios| seen.insert(&ratios.id))
        .map(|ratios| ratios.id.clone())
        .collect()
}

/// The wider margins of the two runs: a quick run has wider ones.
fn wider(base: &ComparedRun<'_>, new: &ComparedRun<'_>) -> Margins {
    Margins {
        rate_and_cpu: base.plan.margins.rate_and_cpu.max(new.plan.margins.rate_and_cpu),
        latency: base.plan.margins.latency.max(new.plan.margins.latency),
    }
}

fn candidates<'a>(ratios: &'a LogRatios, base: &[LogRatios], margins: Margins) -> Vec<Candidate<'a>> {
    let Some(other) = base.iter().find(|other| other.is_same_comparison(ratios)) else { return Vec::new() };
    let candidate = |(metric, logs): &(Metric, Vec<f64>)| {
        let (_, base_logs) = other.logs.iter().find(|(known, _)| known == metric)?;
        let (base, new) = (LogSummary::of(base_logs)?, LogSummary::of(logs)?);
        Some(Candidate {
            ratios,
            metric: *metric,
            base,
            new,
            difference: Welch::between(&base, &new),
            margin: margin(*metric, &margins),
        })
    };
    ratios.logs.iter().filter_map(candidate).collect()
}

impl Candidate<'_> {
    fn judged(&self, p_adjusted: f64, family: usize) -> Change {
        let verdict = self.verdict(p_adjusted, family);
        let interval = self.difference.interval(CONFIDENCE);
        Change {
            id: self.ratios.id.clone(),
            compared_with: self.ratios.compared_with.clone(),
            factor: self.ratios.factor,
            metric: self.metric,
            base: self.base.estimate(),
            new: self.new.estimate(),
            ratio: Estimate::new(
                self.difference.mean().exp(),
                Interval { low: interval.low.exp(), high: interval.high.exp() },
                self.blocks(),
            ),
            p_adjusted,
            verdict,
        }
    }

    fn blocks(&self) -> u32 {
        self.base.count().min(self.new.count())
    }

    fn verdict(&self, p_adjusted: f64, family: usize) -> ChangeVerdict {
        let enough = self.blocks() >= MIN_BLOCKS_FOR_VERDICTS;
        let within = is_within_margin(self.difference.interval(EQUIVALENCE_CONFIDENCE), self.margin);
        let worse = match self.metric.direction() {
            MetricDirection::HigherIsBetter => self.difference.mean() < 0.0,
            MetricDirection::LowerIsBetter => self.difference.mean() > 0.0,
        };
        match (enough && p_adjusted < SIGNIFICANCE, enough && within) {
            (true, true) => ChangeVerdict::Negligible { margin: self.margin },
            (true, false) if worse => ChangeVerdict::Regression,
            (true, false) => ChangeVerdict::Improvement,
            (false, true) => ChangeVerdict::SameWithin { margin: self.margin },
            (false, false) => {
                let significance = SIGNIFICANCE / family.max(1) as f64;
                let smallest = self.difference.smallest_detectable_difference(significance);
                ChangeVerdict::Inconclusive { smallest_detectable_change: smallest.exp_m1() }
            }
        }
    }
}
