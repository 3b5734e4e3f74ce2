//! What a run says, and whether it has said enough.

use std::collections::BTreeMap;

use ciphertoll_model::{Arm, Metric, Plan, Stamped, Stratum};

use crate::analysis::{Analysis, CellAnalysis, Estimate, Role, StratumAnalysis, Toll};
use crate::assemble::{Pairs, Trials, Visited};
use crate::contrast::{Contrast, Judged, Rules, judge};
use crate::interval::{CONFIDENCE, Summary, is_precise};
use crate::verdict::headline_metrics;

/// Analyses a run, finished or not: the same plan and events give the same analysis.
pub fn analyse(plan: &Plan, events: &[Stamped]) -> Analysis {
    let trials = Trials::of(plan, events);
    let judged: Vec<Judged> =
        plan.strata.iter().map(|stratum| judge_stratum(plan, stratum, &trials)).collect();
    let cells = (0..plan.cells.len()).map(|cell| cell_analysis(plan, cell, &trials, &judged)).collect();
    let strata = plan.strata.iter().zip(judged).map(|(stratum, judged)| StratumAnalysis {
        baseline: plan.cells[stratum.baseline].id(),
        repeat: judged.repeat,
        noise_floor: judged.noise_floor,
    });
    Analysis {
        confidence_level: CONFIDENCE,
        blocks_completed: trials.blocks_completed(),
        strata: strata.collect(),
        cells,
    }
}

/// Whether the run may stop: the 95 % interval of every headline toll, and of the A/A arm beside it,
/// is at most ±2 % wide. False where there is none. Looks at widths alone: stopping on significance
/// would find differences where there are none. The A/A arm is asked too, because a single toll
/// would now and then stop on a luckily small scatter (92–93 % coverage simulated without it,
/// 94–96 % with it, see [`crate::simulate`]).
pub fn precise_enough(analysis: &Analysis) -> bool {
    let of_cells = analysis.cells.iter().flat_map(|cell| {
        let headline = headline_metrics(cell.cell.workload, cell.cell.clients);
        let repeat = analysis.strata.get(cell.stratum).map(|stratum| &stratum.repeat);
        let repeat = repeat.filter(|_| cell.role == Role::Baseline);
        [Some(&cell.tolls), repeat]
            .into_iter()
            .flatten()
            .flat_map(|tolls| headline.iter().filter_map(|metric| tolls.get(metric)))
    });
    let mut headline_tolls = of_cells.peekable();
    headline_tolls.peek().is_some() && headline_tolls.all(|toll| is_precise(&toll.ratio))
}

fn judge_stratum(plan: &Plan, stratum: &Stratum, trials: &Trials<'_>) -> Judged {
    let contrast = |visited| {
        let pairs = trials.pairs(visited, main(stratum.baseline));
        Contrast { log_ratios: pairs.log_ratios(), losses: pairs.losses }
    };
    let repeat = contrast(Visited { cell: stratum.baseline, arm: Arm::Repeat });
    let treatments: Vec<_> = stratum.treatments.iter().map(|&cell| contrast(main(cell))).collect();
    let baseline = &plan.cells[stratum.baseline];
    let headline = headline_metrics(baseline.workload, baseline.clients);
    judge(&repeat, &treatments, &Rules { headline, margins: plan.margins, verdicts: plan.verdicts })
}

fn cell_analysis(plan: &Plan, cell: usize, trials: &Trials<'_>, judged: &[Judged]) -> CellAnalysis {
    let place = Place::of(plan, cell);
    // The baseline is paired with itself, so that one rule says which blocks count.
    let pairs = trials.pairs(main(cell), main(place.baseline));
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
        metrics: levels(&pairs),
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
    fn of(plan: &Plan, cell: usize) -> Self {
        let as_treatment = plan.strata.iter().enumerate().find_map(|(stratum, members)| {
            let position = members.treatments.iter().position(|treatment| *treatment == cell)?;
            Some(Self { stratum, baseline: members.baseline, treatment: Some(position) })
        });
        // A plan puts each cell in one stratum: what is no treatment is a baseline.
        let stratum = plan.strata.iter().position(|stratum| stratum.baseline == cell);
        as_treatment.unwrap_or(Self { stratum: stratum.unwrap_or_default(), baseline: cell, treatment: None })
    }

    fn tolls(&self, judged: &[Judged]) -> BTreeMap<Metric, Toll> {
        let tolls = self.treatment.and_then(|position| judged.get(self.stratum)?.treatments.get(position));
        tolls.cloned().unwrap_or_default()
    }
}

/// Geometric means over blocks, as the tolls are; but phases and the mean time they are parts of
/// have arithmetic ones, so that the phases still add up.
fn levels(pairs: &Pairs<'_>) -> BTreeMap<Metric, Estimate> {
    let level = |(metric, values): (Metric, Vec<f64>)| {
        if metric == Metric::LatencyNsMean || metric.is_phase() {
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
