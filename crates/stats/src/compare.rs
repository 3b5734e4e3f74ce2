//! Two runs of the same cells: has a toll changed? Each cell is held against its own run's baseline
//! first, in paired blocks, so that a machine that was slower on one of the days takes no part in it.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Arm, CellId, Margins, Metric, MetricDirection, Plan, TimestampedEvent};

use crate::analysis::Estimate;
use crate::assemble::{Trials, Visited};
use crate::holm::holm;
use crate::interval::{CONFIDENCE, Interval, Summary, Welch};
use crate::verdict::{EQUIVALENCE_CONFIDENCE, SIGNIFICANCE, headline_metrics, margin};

/// A run, as far as it is compared.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What was planned.
    pub plan: &'a Plan,
    /// What happened.
    pub events: &'a [TimestampedEvent],
}

/// What two runs say of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Every headline toll that both runs have, in the order of the new run's cells.
    pub changes: Vec<Change>,
    /// Cells with a toll in the base run only.
    pub only_in_base: Vec<CellId>,
    /// Cells with a toll in the new run only.
    pub only_in_new: Vec<CellId>,
}

/// One cell's toll in one metric, then and now.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The cell.
    pub id: CellId,
    /// The metric.
    pub metric: Metric,
    /// The toll in the base run, with its 95 % interval.
    pub base: Estimate,
    /// The toll in the new run, with its 95 % interval.
    pub new: Estimate,
    /// New ÷ base, with its 95 % interval.
    pub ratio: Estimate,
    /// Holm-adjusted over all changes.
    pub p_adjusted: f64,
    /// What can be said.
    pub verdict: ChangeVerdict,
}

/// What can be said of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeVerdict {
    /// The toll has become worse (Holm-adjusted p < 0.05), by more than the margin may hide.
    Regression,
    /// It has become better.
    Improvement,
    /// It has changed, by less than the margin.
    Negligible {
        /// δ, as a share.
        margin: f64,
    },
    /// It is the same within ±margin.
    SameWithin {
        /// δ, as a share.
        margin: f64,
    },
    /// The two runs cannot tell.
    Inconclusive {
        /// The smallest change they would have seen (80 % power), as a share.
        smallest_visible_change: f64,
    },
}

/// A change before all are adjusted together.
struct Candidate {
    id: CellId,
    metric: Metric,
    base: Summary,
    new: Summary,
    difference: Welch,
    margin: f64,
}

/// Compares the headline tolls of the cells that both runs have.
///
/// Reference: Welch, *The generalization of "Student's" problem when several different population
/// variances are involved*, Biometrika 34 (1947), on paired log-ratios. Assumes what [`Summary`] does,
/// and that the runs are independent. Minimum n: 2 blocks in each run.
pub fn compare(base: &Run<'_>, new: &Run<'_>) -> Comparison {
    let (base_tolls, new_tolls) = (tolls(base), tolls(new));
    let missing_from = |there: &[CellTolls], here: &[CellTolls]| {
        let is_there = |cell: &&CellTolls| there.iter().any(|other| other.id == cell.id);
        here.iter().filter(|cell| !is_there(cell)).map(|cell| cell.id.clone()).collect()
    };
    let candidates: Vec<Candidate> =
        new_tolls.iter().flat_map(|cell| candidates(cell, &base_tolls, wider(base, new))).collect();
    let p_values: Vec<f64> = candidates.iter().map(|candidate| candidate.difference.p_value()).collect();
    let family = p_values.len();
    let changes = candidates.into_iter().zip(holm(&p_values));
    Comparison {
        changes: changes.map(|(candidate, p_adjusted)| candidate.judged(p_adjusted, family)).collect(),
        only_in_base: missing_from(&new_tolls, &base_tolls),
        only_in_new: missing_from(&base_tolls, &new_tolls),
    }
}

/// A cell's log-ratios to its baseline, one for each paired block.
struct CellTolls {
    id: CellId,
    logs: Vec<(Metric, Vec<f64>)>,
}

fn tolls(run: &Run<'_>) -> Vec<CellTolls> {
    let trials = Trials::of(run.plan, run.events);
    let main = |cell| Visited { cell, arm: Arm::Main };
    let of_stratum = |stratum: &ciphertoll_model::Stratum| {
        let headline = headline_metrics(&run.plan.cells[stratum.baseline]);
        let of_cell = |&cell: &usize| {
            let mut by_metric = trials.pairs(main(cell), main(stratum.baseline)).log_ratios();
            let logs = headline.iter().filter_map(|metric| Some((*metric, by_metric.remove(metric)?)));
            CellTolls { id: run.plan.cells[cell].id(), logs: logs.collect() }
        };
        stratum.treatments.iter().map(of_cell).collect::<Vec<_>>()
    };
    let own = run.plan.strata.iter().filter(|stratum| stratum.factor.is_none());
    own.flat_map(of_stratum).filter(|cell| !cell.logs.is_empty()).collect()
}

/// A quick run's margins are wider: it promised no more.
fn wider(base: &Run<'_>, new: &Run<'_>) -> Margins {
    Margins {
        rate_and_cpu: base.plan.margins.rate_and_cpu.max(new.plan.margins.rate_and_cpu),
        latency: base.plan.margins.latency.max(new.plan.margins.latency),
    }
}

fn candidates(cell: &CellTolls, base: &[CellTolls], margins: Margins) -> Vec<Candidate> {
    let Some(other) = base.iter().find(|other| other.id == cell.id) else { return Vec::new() };
    let candidate = |(metric, logs): &(Metric, Vec<f64>)| {
        let (_, base_logs) = other.logs.iter().find(|(known, _)| known == metric)?;
        let (base, new) = (Summary::of(base_logs)?, Summary::of(logs)?);
        let difference = Welch::between(&base, &new);
        let margin = margin(*metric, &margins);
        Some(Candidate { id: cell.id.clone(), metric: *metric, base, new, difference, margin })
    };
    cell.logs.iter().filter_map(candidate).collect()
}

impl Candidate {
    fn judged(self, p_adjusted: f64, family: usize) -> Change {
        let verdict = self.verdict(p_adjusted, family);
        let interval = self.difference.interval(CONFIDENCE);
        Change {
            id: self.id,
            metric: self.metric,
            base: self.base.estimate(),
            new: self.new.estimate(),
            ratio: Estimate::new(
                self.difference.mean().exp(),
                Interval { low: interval.low.exp(), high: interval.high.exp() },
                self.base.count().min(self.new.count()),
            ),
            p_adjusted,
            verdict,
        }
    }

    fn verdict(&self, p_adjusted: f64, family: usize) -> ChangeVerdict {
        let enough = self.base.count().min(self.new.count()) >= MIN_BLOCKS_FOR_VERDICTS;
        let interval = self.difference.interval(EQUIVALENCE_CONFIDENCE);
        let limit = self.margin.ln_1p();
        let within = -limit < interval.low && interval.high < limit;
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
                let smallest = self.difference.smallest_visible_effect(significance);
                ChangeVerdict::Inconclusive { smallest_visible_change: smallest.exp_m1() }
            }
        }
    }
}
