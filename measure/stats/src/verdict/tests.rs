use ciphertoll_model::{Engine, Plan, ServerLevel, Spec, Workload};

use super::*;

const COMPLETE: Losses = Losses { attempted: 10, lost: 0 };

/// Ten log-ratios around `mean` that lie alternately `spread` above and below.
fn around(mean: f64, spread: f64) -> LogSummary {
    let logs: Vec<f64> = (0..10).map(|index| mean + if index % 2 == 0 { spread } else { -spread }).collect();
    LogSummary::of(&logs).unwrap()
}

fn judge(log_ratio: &LogSummary, repeat: Option<&LogSummary>, losses: Losses) -> Option<Verdict> {
    let p_adjusted = log_ratio.p_value();
    verdict(&Evidence { log_ratio, p_adjusted, family: 1, margin: 0.03, repeat, losses })
}

/// The smallest detectable difference, the blocks needed, and why.
fn doubt(log_ratio: &LogSummary, repeat: Option<&LogSummary>, losses: Losses) -> (f64, Option<u32>, Doubt) {
    match judge(log_ratio, repeat, losses) {
        Some(Verdict::Inconclusive { smallest_detectable_difference, blocks_needed, why }) => {
            (smallest_detectable_difference, blocks_needed, why)
        }
        other => panic!("should be inconclusive: {other:?}"),
    }
}

#[test]
fn clear_ratios_have_clear_verdicts() {
    let (same, small) = (Verdict::SameWithin { margin: 0.03 }, Verdict::RealButNegligible { margin: 0.03 });
    // Mean and spread of the ratio, spread of the A/A comparison.
    for (mean, spread, repeat, expected) in [
        (0.3, 0.01, Some(0.01), Verdict::Differs),
        (0.0, 0.01, Some(0.01), same),
        (0.01, 0.001, Some(0.001), small),
        // Below the floor it is the same, not real.
        (0.01, 0.001, Some(0.1), same),
        // The A/A comparison itself may differ.
        (0.1, 0.01, None, Verdict::Differs),
    ] {
        let repeat = repeat.map(|spread| around(0.0, spread));
        assert_eq!(judge(&around(mean, spread), repeat.as_ref(), COMPLETE), Some(expected), "{mean}");
    }
}

#[test]
fn a_wide_interval_is_inconclusive_with_the_blocks_needed() {
    let wide = around(0.02, 0.1);
    let (smallest, blocks_needed, why) = doubt(&wide, Some(&around(0.0, 0.1)), COMPLETE);
    assert_eq!(why, Doubt::TooFewBlocks);
    // The floor, 2.262157 · (0.1 · √(10/9)) ÷ √10, equals what the t test asks for: their sum with
    // 0.883404 standard errors, as a share.
    assert!((smallest - 0.110_558).abs() < 1e-4, "{smallest}");
    assert_eq!(blocks_needed, wide.blocks_for_half_width(1.03_f64.ln(), 0.90));
    assert!(blocks_needed.is_some_and(|blocks| blocks > 10));
}

#[test]
fn a_difference_below_the_noise_floor_is_not_claimed() {
    let repeat = around(0.02, 0.2);
    let (_, blocks_needed, why) = doubt(&around(0.1, 0.02), Some(&repeat), COMPLETE);
    assert_eq!((why, blocks_needed), (Doubt::BelowNoiseFloor, repeat.blocks_for_half_width(0.08, 0.95)));
}

#[test]
fn more_than_a_fifth_lost_is_inconclusive() {
    let clear = around(0.3, 0.01);
    assert_eq!(judge(&clear, None, Losses { attempted: 10, lost: 2 }), Some(Verdict::Differs));
    let (_, blocks_needed, why) = doubt(&clear, None, Losses { attempted: 10, lost: 3 });
    assert_eq!((why, blocks_needed), (Doubt::TooManyVoided, None));
}

#[test]
fn fewer_than_six_blocks_carry_no_verdict() {
    let clear = LogSummary::of(&[0.3, 0.31, 0.29, 0.3, 0.31]).unwrap();
    assert_eq!(judge(&clear, None, Losses { attempted: 5, lost: 0 }), None);
    assert_eq!(judge(&clear, None, Losses { attempted: 6, lost: 1 }), None);
}

#[test]
fn an_estimate_near_the_edge_of_the_margin_needs_half_the_margin() {
    let edge = around(0.02, 0.024);
    let limit = 1.03_f64.ln();
    assert!(edge.half_width(0.90) < limit, "the margin itself is reached");
    let evidence = Evidence {
        log_ratio: &edge,
        p_adjusted: 0.06,
        family: 1,
        margin: 0.03,
        repeat: None,
        losses: COMPLETE,
    };
    let Some(Verdict::Inconclusive { blocks_needed, .. }) = verdict(&evidence) else {
        panic!("should be inconclusive");
    };
    let goal = edge.blocks_for_half_width(limit / 2.0, 0.90);
    assert_eq!(blocks_needed, goal.filter(|blocks| *blocks > 10));
}

#[test]
fn headlines_follow_the_load() {
    let spec = Spec::quick(&[ServerLevel::of(Engine::MariaDb)]);
    let any = Plan::new(&spec, 1).unwrap().cells.remove(0);
    let eight = Clients::new(8).unwrap();
    let (mean, p95, rate) = (Metric::LatencyNsMean, Metric::LatencyNsP95, Metric::RatePerS);
    for (workload, clients, pace, expected) in [
        (Workload::Connect, Clients::ONE, Pace::Closed, &[mean][..]),
        (Workload::CONNECT_QUERY, eight, Pace::Closed, &[rate]),
        (Workload::PointSelect, eight, Pace::Closed, &[rate, p95]),
        (Workload::Connect, Clients::ONE, Pace::PerSecond(100), &[mean, p95]),
    ] {
        let cell = Cell { workload, clients, pace, ..any.clone() };
        assert_eq!(headline_metrics(&cell), [expected, &[Metric::CpuUsPerOpTotal]].concat());
    }
    // Its limit determines the rate.
    let spec = Spec::quick_at(&["mine=mysql://app@db.example".parse().unwrap()]);
    let at_url = Plan::new(&spec, 1).unwrap().cells.remove(0);
    assert_eq!(headline_metrics(&at_url), [mean, p95, Metric::CpuUsPerOpTotal]);
}

#[test]
fn latencies_have_their_own_margin() {
    let margins = Margins { rate_and_cpu: 0.03, latency: 0.05 };
    let all = Metric::ALL.iter().map(|metric| (*metric, margin(*metric, &margins)));
    for (metric, share) in all {
        let expected = if metric.unit() == Unit::Nanoseconds { 0.05 } else { 0.03 };
        assert!((share - expected).abs() < f64::EPSILON, "{metric}");
    }
}
