//! Which verdicts runs end in, from their events.

use ciphertoll_model::{Arm, Auth, Factor, Metric, Plan, Spec, Verdicts};
use ciphertoll_stats::{Comparison, Doubt, Verdict, analyse, precise_enough};

use crate::fixture::{
    Metrics, Trial, connect_metrics, level, paths_and_auths_plan, plan, pooled_plan, ratios, run, void_trials,
};

/// The verdict on `connect`'s mean time over ten blocks.
fn verdict(ratio: f64, spread: f64) -> Option<Verdict> {
    let plan = plan(10);
    let analysis = analyse(&plan, &run(&plan, |trial| connect_metrics(level(trial, ratio, spread))));
    ratios(&analysis)[&Metric::LatencyNsMean].verdict
}

#[test]
fn each_verdict_is_reachable() {
    assert_eq!(verdict(1.5, 0.01), Some(Verdict::Differs));
    assert_eq!(verdict(1.0, 0.01), Some(Verdict::SameWithin { margin: 0.05 }));
    assert_eq!(verdict(1.02, 0.002), Some(Verdict::RealButNegligible { margin: 0.05 }));
    let unclear = verdict(1.02, 0.2);
    assert!(matches!(unclear, Some(Verdict::Inconclusive { why: Doubt::TooFewBlocks, .. })), "{unclear:?}");
}

#[test]
fn a_difference_below_the_noise_floor_is_not_claimed() {
    let plan = plan(10);
    let events = run(&plan, |trial| {
        // The second copy alone is wild: what it differs by, the treatment cannot exceed.
        let wild = if trial.arm == Arm::Repeat { 40.0 } else { 1.0 };
        connect_metrics(level(trial, 1.1, 0.01 * wild))
    });
    let analysis = analyse(&plan, &events);
    let verdict = ratios(&analysis)[&Metric::LatencyNsMean].verdict;
    assert!(
        matches!(verdict, Some(Verdict::Inconclusive { why: Doubt::BelowNoiseFloor, .. })),
        "{verdict:?}"
    );
    assert!(analysis.strata[0].noise_floor[&Metric::LatencyNsMean] > 0.1);
}

#[test]
fn too_many_voided_trials_are_inconclusive() {
    let plan = plan(10);
    let events = run(&plan, |trial| connect_metrics(level(trial, 1.5, 0.01)));
    let of = |lost_blocks: u32| {
        let lost = |trial: Trial| trial.cell == 1 && trial.block <= lost_blocks;
        let analysis = analyse(&plan, &void_trials(&plan, events.clone(), lost));
        ratios(&analysis)[&Metric::LatencyNsMean].verdict
    };
    assert_eq!(of(2), Some(Verdict::Differs));
    assert!(matches!(of(3), Some(Verdict::Inconclusive { why: Doubt::TooManyVoided, .. })));
}

#[test]
fn few_blocks_carry_numbers_but_no_verdict() {
    let plan = plan(5);
    assert_eq!(plan.verdicts, Verdicts::Withheld);
    let analysis = analyse(&plan, &run(&plan, |trial| connect_metrics(level(trial, 1.5, 0.01))));
    let toll = &ratios(&analysis)[&Metric::LatencyNsMean];
    assert_eq!((toll.pairs, toll.verdict, toll.p_adjusted), (5, None, None));
}

#[test]
fn headline_metrics_alone_get_verdicts_also_in_the_a_a_comparison() {
    let plan = pooled_plan(6);
    let events =
        run(&plan, |trial| Metric::ALL.iter().map(|metric| (*metric, level(trial, 1.2, 0.01))).collect());
    let analysis = analyse(&plan, &events);
    let headline = [Metric::RatePerS, Metric::LatencyNsP95, Metric::CpuUsPerOpTotal];
    assert_eq!(analysis.comparisons.len(), 3, "two treatments and the A/A comparison");
    for Comparison { ratios, levels, .. } in &analysis.comparisons {
        assert_eq!(ratios.len(), Metric::ALL.len());
        assert_eq!(levels.len(), headline.len());
        for (metric, [own, baseline]) in levels {
            let quotient = own.value / baseline.value;
            assert!((quotient / ratios[metric].ratio.value - 1.0).abs() < 1e-9, "{metric}: {quotient}");
        }
        for (metric, ratio) in ratios {
            assert_eq!(ratio.verdict.is_some(), headline.contains(metric), "{metric}");
            assert_eq!(ratio.p_adjusted.is_some(), headline.contains(metric), "{metric}");
        }
    }
}

#[test]
fn more_comparisons_are_held_to_a_stricter_p() {
    let metrics = |trial| Metrics::from([(Metric::RatePerS, level(trial, 1.01, 0.01))]);
    let plan = pooled_plan(6);
    let analysis = analyse(&plan, &run(&plan, metrics));
    let adjusted: Vec<f64> =
        analysis.treatments(0).filter_map(|of| of.ratios[&Metric::RatePerS].p_adjusted).collect();
    let alone =
        ciphertoll_stats::LogSummary::of(&log_ratios(&plan, metrics)).map(|summary| summary.p_value());
    assert_eq!(adjusted.len(), 2);
    assert!(adjusted[0] >= alone.expect("six pairs"), "{adjusted:?}");
}

fn log_ratios(plan: &Plan, metrics: impl Fn(Trial) -> Metrics) -> Vec<f64> {
    let value = |block, cell| metrics(Trial { block, cell, arm: Arm::Main })[&Metric::RatePerS].ln();
    (1..=plan.counted_blocks()).map(|block| value(block, 1) - value(block, 0)).collect()
}

#[test]
fn every_headline_ratio_and_the_a_a_comparison_must_be_precise() {
    let plan = plan(6);
    let precise = |cpu_spread: f64, repeat_spread: f64| {
        let events = run(&plan, |trial| {
            let own = if trial.arm == Arm::Repeat { repeat_spread } else { 0.002 };
            let mut metrics = connect_metrics(level(trial, 1.5, own));
            metrics.insert(Metric::CpuUsPerOpTotal, level(trial, 1.5, own.max(cpu_spread)));
            metrics.insert(Metric::RssBytesClient, level(trial, 1.5, 0.5));
            metrics
        });
        precise_enough(&plan, &events)
    };
    assert!(precise(0.002, 0.002));
    assert!(!precise(0.002, 0.3));
    assert!(!precise(0.1, 0.002));
    assert!(!precise_enough(&plan, &[]));
}

/// The report shows the ratios of authentications as well: a run does not stop while they are wide.
#[test]
fn comparisons_of_authentications_must_be_precise_too() {
    let plan = paths_and_auths_plan(6);
    let is_compared_by_auth = |cell: usize| {
        let mut of_auths = plan.strata.iter().filter(|stratum| stratum.factor == Some(Factor::Auth));
        of_auths.any(|stratum| stratum.has(cell))
    };
    let precise = |auth_spread: f64| {
        let events = run(&plan, |trial| {
            // All paths of a login share its scatter, so that only the comparisons of logins are wide.
            let Trial { block, cell, .. } = trial;
            assert!(is_compared_by_auth(cell), "every cell has both logins");
            let login = plan.cells[cell].treatment.auth == Auth::Trust;
            let shared = if login { auth_spread * f64::from(block % 3) } else { 0.0 };
            connect_metrics(level(trial, 1.5, 0.002) * shared.exp())
        });
        precise_enough(&plan, &events)
    };
    assert!(precise(0.002));
    assert!(!precise(0.2), "paths are precise, logins are not");
}

/// At a URL a limit keeps the load low: near it, a ratio of rates says nothing.
#[test]
fn rates_near_their_limit_are_not_compared() {
    let spec = Spec::quick_at(&["mine=mysql://app@db.example".parse().unwrap()]);
    let plan = Plan::new(&spec, 1).unwrap();
    let rates = |per_s: f64| {
        let metrics = |trial: Trial| {
            let level = level(trial, 1.2, 0.01) / 100.0;
            Metrics::from([(Metric::LatencyNsMean, 1e6 * level), (Metric::RatePerS, per_s / level)])
        };
        let analysis = analyse(&plan, &run(&plan, metrics));
        ratios(&analysis).contains_key(&Metric::RatePerS)
    };
    assert_eq!([rates(5.0), rates(20.0)], [true, false]);
}
