use super::*;

#[track_caller]
fn assert_near(left: f64, right: f64, tolerance: f64) {
    assert!((left - right).abs() <= tolerance, "{left} is not {right} ± {tolerance}");
}

/// Student's sleep data, differences of the paired groups: R's `t.test(extra ~ group, paired)`.
const SLEEP: [f64; 10] = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];

#[test]
fn critical_values_are_those_of_the_printed_tables() {
    for (confidence, degrees, printed) in [
        (0.95, 1.0, 12.706_205),
        (0.95, 5.0, 2.570_582),
        (0.95, 9.0, 2.262_157),
        (0.90, 5.0, 2.015_048),
        (0.90, 29.0, 1.699_127),
        (0.60, 5.0, 0.919_544),
        (0.99, 9.0, 3.249_836),
        (0.95, 999.0, 1.962_341),
    ] {
        assert_near(critical_t(confidence, degrees), printed, 1e-6);
    }
}

#[test]
fn the_sleep_data_give_what_r_prints() {
    let summary = LogSummary::of(&SLEEP).unwrap();
    assert_near(summary.mean(), 1.58, 1e-12);
    assert_near(summary.sd(), 1.229_995, 1e-6);
    let interval = summary.interval(0.95);
    assert_near(interval.low, 0.700_114_2, 1e-6);
    assert_near(interval.high, 2.459_885_8, 1e-6);
    assert_near(summary.p_value(), 0.002_832_89, 1e-8);
}

#[test]
fn a_single_block_has_no_summary() {
    assert_eq!(LogSummary::of(&[]), None);
    assert_eq!(LogSummary::of(&[0.1]), None);
}

#[test]
fn blocks_that_do_not_scatter_leave_no_doubt() {
    let same = LogSummary::of(&[0.0; 6]).unwrap();
    assert_near(same.p_value(), 1.0, 0.0);
    assert_near(same.half_width(0.95), 0.0, 0.0);
    let shifted = LogSummary::of(&[0.5; 6]).unwrap();
    assert_near(shifted.p_value(), 0.0, 0.0);
    assert_eq!(shifted.blocks_for_half_width(0.01, 0.9), Some(2));
}

#[test]
fn estimates_are_geometric_means() {
    let logs = [2.0_f64, 8.0].map(f64::ln);
    let estimate = LogSummary::of(&logs.repeat(3)).unwrap().estimate();
    assert_near(estimate.value, 4.0, 1e-12);
    // ln 4 ± 2.5706 · sd ÷ √6, where six values lie ±ln 2 around their mean.
    let half_width = 2.570_582 * 2.0_f64.ln() * (6.0_f64 / 5.0).sqrt() / 6.0_f64.sqrt();
    assert_near(estimate.ci_high.unwrap().ln(), 4.0_f64.ln() + half_width, 1e-5);
}

#[test]
fn below_six_blocks_there_is_a_value_and_no_interval() {
    let logs = [2.0_f64, 8.0].map(f64::ln).repeat(3);
    for blocks in 2..=6 {
        let summary = LogSummary::of(&logs[..blocks]).unwrap();
        for estimate in [summary.estimate(), summary.arithmetic_estimate()] {
            assert_eq!((estimate.interval().is_some(), estimate.blocks), (blocks == 6, blocks as u32));
            assert!(is_precise(&estimate) <= (blocks == 6));
        }
    }
    // Not even blocks that agree to the last digit.
    assert!(!is_precise(&LogSummary::of(&[0.0; 5]).unwrap().estimate()));
}

#[test]
fn visible_effect_is_the_textbook_sum_of_quantiles() {
    let summary = LogSummary::of(&SLEEP).unwrap();
    let expected = (2.262_157 + 0.883_404) * 1.229_995 / 10.0_f64.sqrt();
    assert_near(summary.smallest_detectable_difference(0.05, 0.0), expected, 1e-5);
    let above_floor = 2.0 + 0.883_404 * 1.229_995 / 10.0_f64.sqrt();
    assert_near(summary.smallest_detectable_difference(0.05, 2.0), above_floor, 1e-5);
}

#[test]
fn advised_blocks_are_the_fewest_that_do() {
    let summary = LogSummary::of(&[-0.1, 0.1, -0.1, 0.1, -0.1, 0.1]).unwrap();
    let blocks = summary.blocks_for_half_width(0.03, 0.90).unwrap();
    assert!(half_width(summary.sd(), blocks, 0.90) <= 0.03);
    assert!(half_width(summary.sd(), blocks - 1, 0.90) > 0.03);
    assert_eq!(summary.blocks_for_half_width(0.001, 0.90), None);
    assert_eq!(summary.blocks_for_half_width(-0.1, 0.90), None);
}

#[test]
fn hodges_lehmann_is_the_median_of_walsh_averages() {
    // Walsh averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6.
    assert_eq!(hodges_lehmann(&[6.0, 1.0, 2.0]), Some(2.75));
    assert_eq!(hodges_lehmann(&[3.0]), Some(3.0));
    assert_eq!(hodges_lehmann(&[]), None);
    // The 28th of the 55 averages, sorted.
    assert_near(hodges_lehmann(&SLEEP).unwrap(), 1.3, 1e-12);
}

#[test]
fn one_wild_block_moves_the_mean_but_not_hodges_lehmann() {
    let values = [0.01, 0.02, 0.0, -0.01, 0.01, 0.0, 0.02, 0.01, 3.0];
    assert!(LogSummary::of(&values).unwrap().mean() > 0.3);
    assert!(hodges_lehmann(&values).unwrap() < 0.05);
}
