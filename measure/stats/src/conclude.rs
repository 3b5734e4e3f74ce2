//! Analyses a run and decides whether it may stop early.

use std::collections::BTreeMap;

use ciphertoll_model::{Arm, Metric, Plan, TimestampedEvent};

use crate::analysis::{Analysis, CellAnalysis, CellRole, Comparison, StratumAnalysis};
use crate::assemble::{Pairs, PlannedComparison, Trials, Visited};
use crate::contrast::{Contrast, JudgedStratum, Rules, judge};
use crate::estimate::Estimate;
use crate::interval::{CONFIDENCE, LogSummary};
use crate::stopping::is_precise_enough;
use crate::verdict::headline_metrics;

/// From this share of its limit on, a rate is determined by it.
const LIMITED_SHARE: f64 = 0.9;

/// Analyses a run, finished or not: the same plan and events give the same analysis.
pub fn analyse(plan: &Plan, events: &[TimestampedEvent]) -> Analysis {
    analyse_trials(plan, &Trials::of(plan, events))
}

/// [`analyse`] for events that are folded already.
pub fn analyse_trials(plan: &Plan, trials: &Trials<'_>) -> Analysis {
    let (mut strata, mut comparisons) = (Vec::new(), Vec::new());
    for stratum in 0..plan.strata.len() {
        let (analysed, compared) = analyse_stratum(plan, stratum, trials);
        strata.push(analysed);
        comparisons.extend(compared);
    }
    Analysis {
        confidence_level: CONFIDENCE,
        blocks_completed: trials.blocks_completed(),
        strata,
        comparisons,
    }
}

/// Whether the run may stop before its last block: every headline ratio that its report will show is precise.
pub fn precise_enough(plan: &Plan, events: &[TimestampedEvent]) -> bool {
    let analysis = analyse(plan, events);
    is_precise_enough(analysis.comparisons.iter().flat_map(Comparison::headline).map(|(_, ratio)| ratio))
}

fn analyse_stratum(plan: &Plan, stratum: usize, trials: &Trials<'_>) -> (StratumAnalysis, Vec<Comparison>) {
    let planned = PlannedComparison::of_stratum(plan, stratum);
    let pairs: Vec<Pairs<'_>> = planned.iter().map(|comparison| comparison.pairs(trials)).collect();
    let contrast = |(comparison, pairs): (&PlannedComparison, &Pairs<'_>)| Contrast {
        arm: comparison.visited.arm,
        log_ratios: comparable(plan, comparison.visited.cell, pairs),
        losses: pairs.losses,
    };
    let contrasts: Vec<Contrast> = planned.iter().zip(&pairs).map(contrast).collect();
    let baseline = Visited { cell: plan.strata[stratum].baseline, arm: Arm::Main };
    let headline = headline_metrics(&plan.cells[baseline.cell]);
    let rules = Rules { headline, margins: plan.margins, verdicts: plan.verdicts };
    let JudgedStratum { ratios, noise_floor } = judge(&contrasts, &rules);
    let comparisons = planned.iter().zip(pairs).zip(ratios).map(|((planned, pairs), ratios)| Comparison {
        stratum,
        arm: planned.visited.arm,
        levels: paired_levels(&pairs, headline),
        cell: analyse_cell(plan, planned.visited.cell, planned.role(), pairs, trials),
        ratios,
    });
    // The baseline is paired with itself, so that one rule says which blocks count.
    let alone = trials.pairs(baseline, baseline);
    let baseline = analyse_cell(plan, baseline.cell, CellRole::Baseline, alone, trials);
    (StratumAnalysis { baseline, noise_floor }, comparisons.collect())
}

/// One log-ratio for each paired block, without rates that a limit determines: their ratio says nothing.
fn comparable(plan: &Plan, cell: usize, pairs: &Pairs<'_>) -> BTreeMap<Metric, Vec<f64>> {
    let mut log_ratios = pairs.log_ratios();
    let rates = pairs.observations.iter().flatten().filter_map(|seen| seen.metrics.get(&Metric::RatePerS));
    let limit = plan.rate_limit_per_s(&plan.cells[cell]).map(f64::from);
    if limit.is_some_and(|limit| rates.clone().any(|rate| *rate >= LIMITED_SHARE * limit)) {
        log_ratios.remove(&Metric::RatePerS);
        log_ratios.remove(&Metric::StatementsPerS);
    }
    log_ratios
}

fn analyse_cell(
    plan: &Plan,
    index: usize,
    role: CellRole,
    pairs: Pairs<'_>,
    trials: &Trials<'_>,
) -> CellAnalysis {
    let metrics = levels(&pairs);
    let mut absent = pairs.absences();
    absent.retain(|metric, _| !metrics.contains_key(metric));
    CellAnalysis {
        index,
        id: plan.cells[index].id(),
        cell: plan.cells[index].clone(),
        role,
        blocks_planned: plan.counted_blocks(),
        blocks_used: pairs.observations.len() as u32,
        voided: trials.voided(index),
        flags: trials.flags(index),
        legs: pairs.legs(),
        metrics,
        absent,
        checkpoints: pairs.checkpoints,
    }
}

/// The geometric means of a cell and of its baseline over their pairs.
fn paired_levels(pairs: &Pairs<'_>, metrics: &[Metric]) -> BTreeMap<Metric, [Estimate; 2]> {
    let level = |logs: &[f64]| Some(LogSummary::of(logs)?.estimate());
    let levels = |metric: &Metric| {
        let (own, baseline): (Vec<f64>, Vec<f64>) = pairs.logs(*metric).into_iter().unzip();
        Some((*metric, [level(&own)?, level(&baseline)?]))
    };
    metrics.iter().filter_map(levels).collect()
}

/// Geometric means over blocks, as for ratios. Phases and the mean time that they add up to have arithmetic means, so that
/// they still add up; so have counts, which may be 0.
fn levels(pairs: &Pairs<'_>) -> BTreeMap<Metric, Estimate> {
    let level = |(metric, values): (Metric, Vec<f64>)| {
        if metric == Metric::LatencyNsMean || metric.is_phase() || metric.may_be_zero() {
            return Some((metric, LogSummary::of(&values)?.arithmetic_estimate()));
        }
        let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
        Some((metric, LogSummary::of(&logs)?.estimate()))
    };
    pairs.values().into_iter().filter_map(level).collect()
}
