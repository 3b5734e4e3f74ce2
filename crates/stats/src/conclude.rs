//! What a run says, and whether it has said enough.

use std::collections::BTreeMap;

use ciphertoll_model::{Arm, Metric, Plan, Stratum, TimestampedEvent};

use crate::analysis::{Analysis, CellAnalysis, Estimate, Role, StratumAnalysis, Toll};
use crate::assemble::{Pairs, Trials, Visited};
use crate::contrast::{Contrast, Judged, Rules, judge};
use crate::interval::{CONFIDENCE, Summary};
use crate::stopping::is_precise_enough;
use crate::verdict::headline_metrics;

/// Analyses a run, finished or not: the same plan and events give the same analysis.
pub fn analyse(plan: &Plan, events: &[TimestampedEvent]) -> Analysis {
    let trials = Trials::of(plan, events);
    let judged = judge_strata(plan, &trials);
    let cells = (0..plan.cells.len())
        .map(|cell| analyse_cell(plan, cell, &Place::of(plan, cell), &trials, &judged))
        .collect();
    let also_compared = |index: usize, stratum: &Stratum| {
        let treatments = stratum.treatments.iter().enumerate().filter(|_| stratum.factor.is_some());
        let place = |(position, &cell)| {
            let place = Place { stratum: index, baseline: stratum.baseline, treatment: Some(position) };
            analyse_cell(plan, cell, &place, &trials, &judged)
        };
        treatments.map(place).collect()
    };
    let strata = plan.strata.iter().enumerate().map(|(index, stratum)| StratumAnalysis {
        baseline: plan.cells[stratum.baseline].id(),
        also_compared: also_compared(index, stratum),
        repeat: judged[index].repeat.clone(),
        noise_floor: judged[index].noise_floor.clone(),
        repeat_checkpoints: trials.pairs(repeat(stratum.baseline), main(stratum.baseline)).checkpoints,
    });
    Analysis {
        confidence_level: CONFIDENCE,
        blocks_completed: trials.blocks_completed(),
        strata: strata.collect(),
        cells,
    }
}

/// Whether the run may stop before its last block: every comparison that its report will show is precise.
pub fn precise_enough(plan: &Plan, events: &[TimestampedEvent]) -> bool {
    is_precise_enough(&judge_strata(plan, &Trials::of(plan, events)))
}

fn judge_strata(plan: &Plan, trials: &Trials<'_>) -> Vec<Judged> {
    plan.strata.iter().map(|stratum| judge_stratum(plan, stratum, trials)).collect()
}

fn judge_stratum(plan: &Plan, stratum: &Stratum, trials: &Trials<'_>) -> Judged {
    let contrast = |visited| {
        let pairs = trials.pairs(visited, main(stratum.baseline));
        Contrast { log_ratios: pairs.log_ratios(), losses: pairs.losses }
    };
    let repeat = contrast(repeat(stratum.baseline));
    let treatments: Vec<_> = stratum.treatments.iter().map(|&cell| contrast(main(cell))).collect();
    let baseline = &plan.cells[stratum.baseline];
    let headline = headline_metrics(baseline);
    judge(&repeat, &treatments, &Rules { headline, margins: plan.margins, verdicts: plan.verdicts })
}

fn analyse_cell(
    plan: &Plan,
    cell: usize,
    place: &Place,
    trials: &Trials<'_>,
    judged: &[Judged],
) -> CellAnalysis {
    // The baseline is paired with itself, so that one rule says which blocks count.
    let pairs = trials.pairs(main(cell), main(place.baseline));
    let metrics = levels(&pairs);
    let mut absent = pairs.absences();
    absent.retain(|metric, _| !metrics.contains_key(metric));
    CellAnalysis {
        id: plan.cells[cell].id(),
        cell: plan.cells[cell].clone(),
        stratum: place.stratum,
        role: if place.treatment.is_some() { Role::Treatment } else { Role::Baseline },
        blocks_planned: plan.counted_blocks(),
        blocks_used: pairs.observations.len() as u32,
        voided: trials.voided(cell),
        flags: pairs.flags(),
        legs: pairs.legs(),
        metrics,
        absent,
        checkpoints: pairs.checkpoints,
        tolls: place.tolls(judged),
    }
}

/// Where a cell stands among the strata.
struct Place {
    stratum: usize,
    baseline: usize,
    /// Position among the stratum's treatments; absent for the baseline.
    treatment: Option<usize>,
}

impl Place {
    /// In the first stratum that has it: those of the plan's own baseline come before the others.
    fn of(plan: &Plan, cell: usize) -> Self {
        let stratum = plan.strata.iter().position(|stratum| stratum.has(cell)).unwrap_or_default();
        let members = &plan.strata[stratum];
        let treatment = members.treatments.iter().position(|treatment| *treatment == cell);
        Self { stratum, baseline: treatment.map_or(cell, |_| members.baseline), treatment }
    }

    fn tolls(&self, judged: &[Judged]) -> BTreeMap<Metric, Toll> {
        let tolls = self.treatment.and_then(|position| judged.get(self.stratum)?.treatments.get(position));
        tolls.cloned().unwrap_or_default()
    }
}

/// Geometric means over blocks, as the tolls are; but phases and the mean time they are parts of
/// have arithmetic ones, so that the phases still add up, and so have counts, which may be 0.
fn levels(pairs: &Pairs<'_>) -> BTreeMap<Metric, Estimate> {
    let level = |(metric, values): (Metric, Vec<f64>)| {
        if metric == Metric::LatencyNsMean || metric.is_phase() || metric.may_be_zero() {
            return Some((metric, Summary::of(&values)?.arithmetic_estimate()));
        }
        let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
        Some((metric, Summary::of(&logs)?.estimate()))
    };
    pairs.values().into_iter().filter_map(level).collect()
}

fn main(cell: usize) -> Visited {
    Visited { cell, arm: Arm::Main }
}

fn repeat(cell: usize) -> Visited {
    Visited { cell, arm: Arm::Repeat }
}
