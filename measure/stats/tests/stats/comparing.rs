//! Comparing two runs: false regressions must be rare, real ones must be found.

use ciphertoll_model::{Auth, Factor, Metric, Plan, TimestampedEvent};
use ciphertoll_stats::interval::Welch;
use ciphertoll_stats::{ChangeVerdict, ComparedRun, LogSummary, RunComparison, compare};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::fixture::{connect_metrics, level, paths_and_auths_plan, plan, run};

/// Standard deviation of a trial's log-noise, as on a quiet machine.
const NOISE: f64 = 0.012;
const TOLL: f64 = 3.0;

/// A run whose treatment costs `toll` times its baseline, on a machine that is `slowness` times as slow.
fn simulated(plan: &Plan, toll: f64, slowness: f64, seed: u64) -> Vec<TimestampedEvent> {
    let random = std::cell::RefCell::new(Pcg64Mcg::seed_from_u64(seed));
    run(plan, |trial| {
        let normal = (0..12).map(|_| random.borrow_mut().random::<f64>()).sum::<f64>() - 6.0;
        let effect = if trial.cell == 0 { 1.0 } else { toll };
        connect_metrics(slowness * effect * (NOISE * normal).exp())
    })
}

fn compared(base_toll: f64, new_toll: f64, seed: u64) -> RunComparison {
    let plan = plan(10);
    let base = simulated(&plan, base_toll, 1.0, seed);
    // The other day the machine was a tenth slower.
    let new = simulated(&plan, new_toll, 1.1, seed + 1);
    compare(&ComparedRun { plan: &plan, events: &base }, &ComparedRun { plan: &plan, events: &new })
}

fn regressions(comparison: &RunComparison) -> usize {
    comparison.changes.iter().filter(|change| change.verdict == ChangeVerdict::Regression).count()
}

#[test]
fn of_a_thousand_identical_pairs_few_are_called_a_regression() {
    let called = (0..1_000).filter(|pair| regressions(&compared(TOLL, TOLL, pair * 2)) > 0).count();
    // Half of the false alarms at 5 % are improvements.
    assert!(called <= 45, "{called} of 1000");
}

#[test]
fn a_planted_slowdown_of_five_percent_is_found_and_a_speedup_is_none() {
    let found = (0..200).filter(|pair| regressions(&compared(TOLL, TOLL * 1.05, pair * 2)) > 0).count();
    assert!(found >= 190, "{found} of 200");
    let faster = compared(TOLL, TOLL / 1.10, 1);
    assert!(faster.changes.iter().all(|change| change.verdict == ChangeVerdict::Improvement), "{faster:?}");
}

#[test]
fn a_ratio_is_new_divided_by_base_whatever_the_machines_speed() {
    let comparison = compared(2.0, 3.0, 5);
    assert_eq!(comparison.changes.len(), 2, "both headline metrics");
    for change in &comparison.changes {
        assert!((change.ratio.value - 1.5).abs() < 0.05, "{change:?}");
        assert!(change.ratio.low() < 1.5 && 1.5 < change.ratio.high(), "{change:?}");
        assert!((change.base.value - 2.0).abs() < 0.1 && (change.new.value - 3.0).abs() < 0.1);
    }
}

#[test]
fn too_few_blocks_say_nothing() {
    let plan = plan(4);
    let [base, new] = [1.0, 2.0].map(|toll| simulated(&plan, toll, 1.0, 9));
    let comparison =
        compare(&ComparedRun { plan: &plan, events: &base }, &ComparedRun { plan: &plan, events: &new });
    for change in &comparison.changes {
        assert!(matches!(change.verdict, ChangeVerdict::Inconclusive { .. }), "{change:?}");
    }
}

#[test]
fn cells_of_one_run_only_are_named() {
    let (small, large) = (plan(6), crate::fixture::pooled_plan(6));
    let base = simulated(&small, TOLL, 1.0, 3);
    let new = run(&large, |_| {
        [Metric::RatePerS, Metric::LatencyNsP95, Metric::CpuUsPerOpTotal].map(|metric| (metric, 1.0)).into()
    });
    let comparison =
        compare(&ComparedRun { plan: &small, events: &base }, &ComparedRun { plan: &large, events: &new });
    assert!(comparison.changes.is_empty());
    assert_eq!((comparison.only_in_base.len(), comparison.only_in_new.len()), (1, 2));
}

/// Comparisons of authentications are compared between runs like comparisons of paths.
#[test]
fn comparisons_of_authentications_are_compared_too() {
    let plan = paths_and_auths_plan(10);
    let is_trust = |cell: usize| plan.cells[cell].treatment.auth == Auth::Trust;
    // Only the native login becomes slower.
    let [base, new] = [1.0, 1.5].map(|slowdown| {
        run(&plan, |trial| {
            let login = if is_trust(trial.cell) { 1.0 } else { slowdown };
            connect_metrics(level(trial, 3.0, 0.005) * login)
        })
    });
    let comparison =
        compare(&ComparedRun { plan: &plan, events: &base }, &ComparedRun { plan: &plan, events: &new });
    let of_auths: Vec<_> =
        comparison.changes.iter().filter(|change| change.factor == Some(Factor::Auth)).collect();
    let planned = plan.strata.iter().filter(|stratum| stratum.factor == Some(Factor::Auth));
    let planned: usize = planned.map(|stratum| stratum.treatments.len()).sum();
    assert_eq!((planned, of_auths.len()), (2, 4), "two paths, two headline metrics");
    for change in of_auths {
        assert_ne!(change.id, change.compared_with);
        assert_eq!(change.verdict, ChangeVerdict::Regression, "{change:?}");
        assert!((change.ratio.value - 1.5).abs() < 0.05, "{change:?}");
    }
    let of_paths = comparison.changes.iter().filter(|change| change.factor.is_none());
    assert!(of_paths.clone().count() > 0);
    for change in of_paths {
        assert_ne!(change.verdict, ChangeVerdict::Regression, "both sides are as slow: {change:?}");
    }
    assert!(comparison.only_in_base.is_empty() && comparison.only_in_new.is_empty());
}

#[test]
fn welch_is_rs() {
    // R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776, p-value = 0.07939
    let first = LogSummary::of(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]).unwrap();
    let second = LogSummary::of(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]).unwrap();
    let difference = Welch::between(&first, &second);
    assert!((difference.mean() - 1.58).abs() < 1e-9);
    assert!((difference.p_value() - 0.079_394).abs() < 1e-5, "{}", difference.p_value());
    let interval = difference.interval(0.95);
    assert!((interval.low + 0.205_483).abs() < 1e-5 && (interval.high - 3.365_483).abs() < 1e-5);
}
