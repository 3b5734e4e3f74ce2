//! Pairs of which one trial had another number of checkpoints.

use ciphertoll_model::{Arm, Metric, Plan, TimestampedEvent};
use ciphertoll_stats::{Analysis, UnevenPairs, analyse};

use crate::fixture::{Metrics, Trial, pooled_plan, ratios, repeat, run, treatment, voided, writing_plan};

/// The treatment is 1.1 × as fast, and 3 × as slow where it had a checkpoint more than the baseline: in `blocks`.
fn with_checkpoints_in(plan: &Plan, blocks: &[u32]) -> Vec<TimestampedEvent> {
    run(plan, |Trial { block, cell, arm }| {
        let has_one = cell == 1 && arm == Arm::Main && blocks.contains(&block);
        let scatter = 1.0 + f64::from(block % 3) * 0.001;
        let rate = if cell == 1 { 1_100.0 * scatter } else { 1_000.0 };
        Metrics::from([
            (Metric::RatePerS, if has_one { rate / 3.0 } else { rate }),
            (Metric::PagesReadPerOperation, if cell == 1 { 0.0 } else { 2.0 }),
            (Metric::CheckpointsBegun, f64::from(u8::from(has_one))),
            (Metric::CheckpointsCompleted, 0.0),
        ])
    })
}

fn rate(analysis: &Analysis) -> (f64, u32) {
    let rate = &ratios(analysis)[&Metric::RatePerS];
    (rate.ratio.value, rate.pairs)
}

#[test]
fn a_rare_checkpoint_takes_its_pair_along_and_nothing_else() {
    let plan = writing_plan(10);
    let analysis = analyse(&plan, &with_checkpoints_in(&plan, &[3, 8]));
    let cell = treatment(&analysis);
    assert_eq!((cell.checkpoints.blocks.clone(), cell.checkpoints.pairs), (vec![3, 8], UnevenPairs::Dropped));
    assert_eq!((cell.blocks_used, cell.voided.len()), (8, 0));
    let (ratio, pairs) = rate(&analysis);
    assert!((ratio - 1.1).abs() < 0.01 && pairs == 8, "{ratio} of {pairs} pairs");
    assert!(ratios(&analysis)[&Metric::RatePerS].verdict.is_some());
    // The copies of the baseline had none.
    assert!(analysis.repeat(0).unwrap().cell.checkpoints.blocks.is_empty());
    assert_eq!(repeat(&analysis, 0)[&Metric::RatePerS].pairs, 10);
}

#[test]
fn frequent_checkpoints_count_as_part_of_the_load() {
    let plan = writing_plan(10);
    let analysis = analyse(&plan, &with_checkpoints_in(&plan, &[2, 5, 9]));
    let checkpoints = &treatment(&analysis).checkpoints;
    assert_eq!((checkpoints.blocks.as_slice(), checkpoints.pairs), (&[2, 5, 9][..], UnevenPairs::Counted));
    assert_eq!(rate(&analysis).1, 10);
}

#[test]
fn pairs_that_a_verdict_needs_are_not_dropped() {
    let plan = writing_plan(6);
    let analysis = analyse(&plan, &with_checkpoints_in(&plan, &[4]));
    assert_eq!(treatment(&analysis).checkpoints.pairs, UnevenPairs::Counted);
    assert_eq!(rate(&analysis).1, 6);
}

/// Pairs voided by other gates are added: together they leave too few.
#[test]
fn lost_pairs_and_uneven_ones_are_added_up() {
    let plan = writing_plan(10);
    let mut events = with_checkpoints_in(&plan, &[3, 8]);
    let lost = Trial { block: 5, cell: 1, arm: Arm::Main };
    let of_lost = |stamped: &TimestampedEvent| {
        matches!(&stamped.event, ciphertoll_model::Event::TrialFinished { block: 5, cell, arm: Arm::Main, .. }
            if *cell == plan.cells[1].id())
    };
    let at = events.iter().position(of_lost).unwrap();
    events[at] = voided(&plan, lost, 2);
    let analysis = analyse(&plan, &events);
    assert_eq!(treatment(&analysis).checkpoints.pairs, UnevenPairs::Counted);
    assert_eq!(rate(&analysis).1, 9);
}

#[test]
fn checkpoints_of_reading_loads_do_not_matter() {
    let plan = pooled_plan(10);
    let analysis = analyse(&plan, &with_checkpoints_in(&plan, &[3]));
    assert!(treatment(&analysis).checkpoints.blocks.is_empty());
    assert_eq!(treatment(&analysis).blocks_used, 10);
}

#[test]
fn a_count_of_nothing_is_a_level_and_no_ratio() {
    let plan = writing_plan(10);
    let analysis = analyse(&plan, &with_checkpoints_in(&plan, &[]));
    let cell = treatment(&analysis);
    let read = cell.metrics[&Metric::PagesReadPerOperation];
    assert_eq!((read.value, read.ci_low, read.ci_high), (0.0, Some(0.0), Some(0.0)));
    assert!(!ratios(&analysis).contains_key(&Metric::PagesReadPerOperation));
    let baseline = analysis.strata[0].baseline.metrics[&Metric::PagesReadPerOperation].value;
    assert!((baseline - 2.0).abs() < f64::EPSILON, "{baseline}");
}
