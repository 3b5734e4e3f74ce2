//! Student's t on the logarithms of measured values, and a rank estimate.

use statrs::function::beta::{beta_reg, inv_beta_reg};

use crate::analysis::Estimate;

/// Confidence level of every printed interval.
pub const CONFIDENCE: f64 = 0.95;
/// Power at which a difference counts as detectable (Cohen 1988).
pub const POWER: f64 = 0.80;
/// Advising more blocks than this is not practicable.
pub const MOST_BLOCKS_ADVISED: u32 = 1_000;

/// Half-width of an interval, as a share, that is precise enough to stop a run.
pub const PRECISE_HALF_WIDTH: f64 = 0.02;

/// Mean and spread of one number per block, on the log scale.
///
/// Reference: Student, *The probable error of a mean*, Biometrika 6 (1908). Assumes that blocks
/// are independent and their log-ratios about normal; heavier symmetric tails make the interval too wide, not too
/// narrow. Minimum n: 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogSummary {
    count: u32,
    mean: f64,
    sd: f64,
}

/// An interval on the log scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl LogSummary {
    /// Summarises the logarithms of one number per block. Absent below two blocks: a single value has no uncertainty.
    pub fn of(logs: &[f64]) -> Option<Self> {
        if logs.len() < 2 {
            return None;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        Some(Self { count: logs.len() as u32, mean, sd: (squares / (count - 1.0)).sqrt() })
    }

    /// Number of blocks, at least 2.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Arithmetic mean of the logs; its exponential is the geometric mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation of the logs over blocks (n − 1 in the denominator).
    pub fn sd(&self) -> f64 {
        self.sd
    }

    /// Half the width of the t interval, on the log scale.
    pub fn half_width(&self, confidence: f64) -> f64 {
        half_width(self.sd, self.count, confidence)
    }

    /// The t interval of the mean, on the log scale.
    pub fn interval(&self, confidence: f64) -> Interval {
        let half_width = self.half_width(confidence);
        Interval { low: self.mean - half_width, high: self.mean + half_width }
    }

    /// The geometric mean with its 95 % interval, on the scale of the measured values.
    pub fn estimate(&self) -> Estimate {
        let Interval { low, high } = self.interval(CONFIDENCE);
        Estimate::new(self.mean.exp(), Interval { low: low.exp(), high: high.exp() }, self.count)
    }

    /// The arithmetic mean with its 95 % interval, if plain values were summarised. No quantity is below 0, so neither is the
    /// lower limit.
    pub fn arithmetic_estimate(&self) -> Estimate {
        let Interval { low, high } = self.interval(CONFIDENCE);
        Estimate::new(self.mean, Interval { low: low.max(0.0), high }, self.count)
    }

    /// Two-sided p of the one-sample t test against a mean log of 0, a ratio of 1. Same reference, assumption and minimum n
    /// as the interval.
    pub fn p_value(&self) -> f64 {
        two_sided_p(self.mean, self.standard_error(), self.degrees_of_freedom())
    }

    /// The smallest detectable difference, on the log scale: claimed four times in five at two-sided `significance`, and
    /// beyond `floor`.
    ///
    /// Reference: Cohen, *Statistical Power Analysis* (1988), with the shifted central t instead of the noncentral one. Assumes
    /// that the observed scatter is the true one. Minimum n: 2.
    pub fn smallest_detectable_difference(&self, significance: f64, floor: f64) -> f64 {
        let degrees = self.degrees_of_freedom();
        let one_sided_power = 2.0 * POWER - 1.0;
        let error = self.standard_error();
        let threshold = (critical_t(1.0 - significance, degrees) * error).max(floor);
        threshold + critical_t(one_sided_power, degrees) * error
    }

    /// The fewest blocks whose interval would be at most ±`target` wide on the log scale with the same scatter. Absent above
    /// [`MOST_BLOCKS_ADVISED`]. Same reference, assumption and minimum n as the interval.
    pub fn blocks_for_half_width(&self, target: f64, confidence: f64) -> Option<u32> {
        let is_narrow = |blocks: u32| half_width(self.sd, blocks, confidence) <= target;
        if !is_narrow(MOST_BLOCKS_ADVISED) {
            return None;
        }
        // Bisection: the half-width shrinks with every block. `enough` blocks are narrow, `too_few` are not.
        let (mut too_few, mut enough) = (1, MOST_BLOCKS_ADVISED);
        while enough - too_few > 1 {
            let middle = u32::midpoint(too_few, enough);
            if is_narrow(middle) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        Some(enough)
    }

    fn standard_error(&self) -> f64 {
        self.sd / f64::from(self.count).sqrt()
    }

    fn degrees_of_freedom(&self) -> f64 {
        f64::from(self.count - 1)
    }
}

/// The difference of two means, on the log scale: its exponential is the ratio of the two.
///
/// Reference: Welch, Biometrika 34 (1947), with Satterthwaite's degrees of freedom. Assumes that the two are independent. Minimum n: 2 of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    mean: f64,
    error: f64,
    degrees: f64,
}

impl Welch {
    /// `new` − `base`.
    pub fn between(base: &LogSummary, new: &LogSummary) -> Self {
        let square = |summary: &LogSummary| summary.standard_error().powi(2);
        let (of_base, of_new) = (square(base), square(new));
        let sum = of_base + of_new;
        let spread = of_base.powi(2) / base.degrees_of_freedom() + of_new.powi(2) / new.degrees_of_freedom();
        // Without any scatter the degrees do not matter, as long as they are a number.
        let degrees = if spread > 0.0 { sum.powi(2) / spread } else { 1.0 };
        Self { mean: new.mean - base.mean, error: sum.sqrt(), degrees }
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The t interval of the difference.
    pub fn interval(&self, confidence: f64) -> Interval {
        let half_width = critical_t(confidence, self.degrees) * self.error;
        Interval { low: self.mean - half_width, high: self.mean + half_width }
    }

    /// Two-sided p against no difference.
    pub fn p_value(&self) -> f64 {
        two_sided_p(self.mean, self.error, self.degrees)
    }

    /// [`LogSummary::smallest_detectable_difference`] without a floor.
    pub fn smallest_detectable_difference(&self, significance: f64) -> f64 {
        let one_sided_power = 2.0 * POWER - 1.0;
        (critical_t(1.0 - significance, self.degrees) + critical_t(one_sided_power, self.degrees))
            * self.error
    }
}

/// The two tails of a t test beyond ±mean ÷ error.
fn two_sided_p(mean: f64, error: f64, degrees: f64) -> f64 {
    if mean == 0.0 {
        return 1.0;
    }
    let t = mean / error;
    // Abramowitz & Stegun 26.7.1; 0 if the blocks do not scatter.
    beta_reg(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// Median of the means of all pairs of values, each paired with itself as well: an estimate of the centre that is robust
/// against single outliers.
///
/// Reference: Hodges & Lehmann, *Estimates of location based on rank tests*, Annals of
/// Mathematical Statistics 34 (1963). Assumes a symmetric distribution. Minimum n: 1.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    let mut means: Vec<f64> = values
        .iter()
        .enumerate()
        .flat_map(|(index, first)| values[index..].iter().map(move |second| f64::midpoint(*first, *second)))
        .collect();
    means.sort_by(f64::total_cmp);
    let middle = means.len() / 2;
    let upper = means.get(middle)?;
    if means.len().is_multiple_of(2) { Some(f64::midpoint(means[middle - 1], *upper)) } else { Some(*upper) }
}

/// Whether a ratio is known within ±2 %, on the log scale. False without an interval.
pub(crate) fn is_precise(ratio: &Estimate) -> bool {
    let interval = ratio.interval();
    interval.is_some_and(|Interval { low, high }| (high / low).ln() / 2.0 <= PRECISE_HALF_WIDTH.ln_1p())
}

fn half_width(sd: f64, count: u32, confidence: f64) -> f64 {
    critical_t(confidence, f64::from(count - 1)) * sd / f64::from(count).sqrt()
}

/// The two-sided critical value of Student's t.
fn critical_t(confidence: f64, degrees: f64) -> f64 {
    // Abramowitz & Stegun 26.7.1 solved for t.
    let share = inv_beta_reg(degrees / 2.0, 0.5, 1.0 - confidence);
    (degrees * (1.0 / share - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
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
}
