//! A value and its interval.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use schemars::JsonSchema;
use serde::Serialize;

/// An interval on the log scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// A value with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// Lower limit of the 95 % interval; absent below six blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci_low: Option<f64>,
    /// Upper limit of the 95 % interval; absent below six blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci_high: Option<f64>,
    /// Number of blocks behind the estimate.
    #[serde(skip)]
    pub blocks: u32,
}

impl Estimate {
    /// Below [`MIN_BLOCKS_FOR_VERDICTS`] the limits are dropped: Student's t would give limits that span many orders of
    /// magnitude.
    pub fn new(value: f64, interval: Interval, blocks: u32) -> Self {
        let has_interval = blocks >= MIN_BLOCKS_FOR_VERDICTS;
        let limit = |limit: f64| has_interval.then_some(limit);
        Self { value, ci_low: limit(interval.low), ci_high: limit(interval.high), blocks }
    }

    /// The 95 % interval; absent below six blocks.
    pub fn interval(&self) -> Option<Interval> {
        Some(Interval { low: self.ci_low?, high: self.ci_high? })
    }

    /// Its absolute value.
    #[must_use]
    pub fn abs(self) -> Self {
        if self.value >= 0.0 {
            return self;
        }
        let negative = |limit: Option<f64>| limit.map(|limit| -limit);
        let (ci_low, ci_high) = (negative(self.ci_high), negative(self.ci_low));
        Self { value: -self.value, ci_low, ci_high, blocks: self.blocks }
    }

    /// Whether the interval of a difference excludes 0.
    pub fn is_known_to_differ(&self) -> bool {
        self.interval().is_some_and(|Interval { low, high }| low > 0.0 || high < 0.0)
    }

    /// The lower limit, or the value if there is no interval.
    pub fn low(&self) -> f64 {
        self.ci_low.unwrap_or(self.value)
    }

    /// The upper limit, or the value if there is no interval.
    pub fn high(&self) -> f64 {
        self.ci_high.unwrap_or(self.value)
    }
}
