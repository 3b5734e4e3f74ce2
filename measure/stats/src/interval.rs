//! Student's t on the logarithms of measured values, and a rank estimate.

use statrs::function::beta::{beta_reg, inv_beta_reg};

use crate::estimate::{Estimate, Interval};

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
pub(crate) fn critical_t(confidence: f64, degrees: f64) -> f64 {
    // Abramowitz & Stegun 26.7.1 solved for t.
    let share = inv_beta_reg(degrees / 2.0, 0.5, 1.0 - confidence);
    (degrees * (1.0 / share - 1.0)).sqrt()
}

#[cfg(test)]
mod tests;
