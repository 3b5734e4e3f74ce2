//! What must hold whatever the numbers are.

use std::collections::BTreeMap;

use ciphertoll_model::{Arm, Metric, Phase, Plan, TimestampedEvent};
use ciphertoll_stats::{Analysis, Estimate, PairedRatio, Verdict, analyse};
use proptest::prelude::*;

use crate::fixture::{Metrics, Trial, connect_metrics, plan, ratios, repeat, run, scatter, treatment};

const BLOCKS: u32 = 8;

/// One value for each block of baseline, its second copy and the treatment.
fn values() -> impl Strategy<Value = Vec<[f64; 3]>> {
    prop::collection::vec([1.0..1e6_f64, 1.0..1e6, 1.0..1e6], BLOCKS as usize)
}

fn arm_of(trial: Trial) -> usize {
    match (trial.cell, trial.arm) {
        (0, Arm::Main) => 0,
        (_, Arm::Repeat) => 1,
        _ => 2,
    }
}

fn events(plan: &Plan, values: &[[f64; 3]]) -> Vec<TimestampedEvent> {
    run(plan, |trial| {
        let of_block = values.get(trial.block.wrapping_sub(1) as usize).unwrap_or(&[1.0; 3]);
        connect_metrics(of_block[arm_of(trial)])
    })
}

fn analysed(values: &[[f64; 3]]) -> Analysis {
    let plan = plan(BLOCKS);
    analyse(&plan, &events(&plan, values))
}

fn time(analysis: &Analysis) -> &PairedRatio {
    &ratios(analysis)[&Metric::LatencyNsMean]
}

fn is_near(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
}

fn are_near(left: &Estimate, right: &Estimate) -> bool {
    is_near(left.value, right.value) && is_near(left.low(), right.low()) && is_near(left.high(), right.high())
}

fn kind(verdict: Option<Verdict>) -> Option<std::mem::Discriminant<Verdict>> {
    verdict.as_ref().map(std::mem::discriminant)
}

proptest! {
    #[test]
    fn the_unit_does_not_matter(values in values(), factor in 1e-6..1e6_f64) {
        let scaled: Vec<[f64; 3]> = values.iter().map(|block| block.map(|value| value * factor)).collect();
        let (before, after) = (analysed(&values), analysed(&scaled));
        prop_assert!(are_near(&time(&before).ratio, &time(&after).ratio));
        prop_assert!(is_near(time(&before).hodges_lehmann, time(&after).hodges_lehmann));
        prop_assert_eq!(kind(time(&before).verdict), kind(time(&after).verdict));
    }

    #[test]
    fn swapping_the_arms_inverts_the_ratio(values in values()) {
        let swapped: Vec<[f64; 3]> = values.iter().map(|[base, repeat, own]| [*own, *repeat, *base]).collect();
        let (before, after) = (analysed(&values), analysed(&swapped));
        let (ratio, inverse) = (time(&before).ratio, time(&after).ratio);
        prop_assert!(is_near(ratio.value, 1.0 / inverse.value));
        prop_assert!(is_near(ratio.low(), 1.0 / inverse.high()));
        prop_assert!(is_near(time(&before).hodges_lehmann, 1.0 / time(&after).hodges_lehmann));
    }

    #[test]
    fn the_order_of_blocks_does_not_matter(values in values().prop_shuffle(), seed in 0..BLOCKS as usize) {
        let mut rotated = values.clone();
        rotated.rotate_left(seed);
        let (before, after) = (analysed(&values), analysed(&rotated));
        prop_assert!(are_near(&time(&before).ratio, &time(&after).ratio));
        prop_assert!(is_near(time(&before).hodges_lehmann, time(&after).hodges_lehmann));
    }

    #[test]
    fn intervals_hold_their_estimate_and_the_floor_holds_the_repeat(values in values()) {
        let analysis = analysed(&values);
        let (ratio, level) = (time(&analysis).ratio, treatment(&analysis).metrics[&Metric::LatencyNsMean]);
        for estimate in [ratio, level] {
            prop_assert!(estimate.low() <= estimate.value && estimate.value <= estimate.high());
        }
        // A mean time is an arithmetic mean, whose interval may reach down to 0; a ratio's never does.
        prop_assert!(0.0 < ratio.low() && 0.0 <= level.low());
        let stratum = &analysis.strata[0];
        let repeat = repeat(&analysis, 0)[&Metric::LatencyNsMean].ratio;
        let floor = 1.0 + stratum.noise_floor[&Metric::LatencyNsMean];
        prop_assert!(repeat.value.max(1.0 / repeat.value) <= floor * (1.0 + 1e-9));
    }
}

/// Phases sum to the mean time in every trial, and over blocks as well.
#[test]
fn phases_add_up_to_the_mean_time() {
    let plan = plan(10);
    let trial_metrics = |trial: Trial| -> Metrics {
        let mut metrics: Metrics = Phase::ALL
            .iter()
            .enumerate()
            .map(|(index, phase)| {
                let own = scatter(Trial { block: trial.block * 31 + index as u32, ..trial });
                (Metric::of_phase(*phase), 10_000.0 * (index + 1) as f64 * (0.02 * own).exp())
            })
            .collect();
        metrics.insert(Metric::LatencyNsMean, metrics.values().sum());
        metrics
    };
    let analysis = analyse(&plan, &run(&plan, trial_metrics));
    let levels: BTreeMap<Metric, f64> =
        treatment(&analysis).metrics.iter().map(|(metric, level)| (*metric, level.value)).collect();
    let sum: f64 = Phase::ALL.iter().map(|phase| levels[&Metric::of_phase(*phase)]).sum();
    let mean = levels[&Metric::LatencyNsMean];
    assert!((sum / mean - 1.0).abs() < 1e-12, "{sum} is not {mean}");
}
