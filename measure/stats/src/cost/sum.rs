//! Sums of measured means. Every term of the cost model is one, so that a cell that contributes twice counts once in the
//! uncertainty.

use std::collections::BTreeMap;
use std::ops::{Add, Mul, Sub};

use ciphertoll_model::Metric;
use serde::Serialize;

use crate::estimate::Estimate;
use crate::interval::{CONFIDENCE, LogSummary, critical_t};

/// With fewer blocks a term has no interval. Lower than for verdicts: of the many cells that a term can need, the one with the
/// most voided trials decides.
pub const MIN_BLOCKS: u32 = 4;
/// Half of the width of the normal distribution's 95 % interval, in standard deviations.
const NORMAL_95: f64 = 1.96;

/// One metric of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    /// Index into [`ciphertoll_model::Plan::cells`].
    pub cell: usize,
    pub metric: Metric,
}

/// The arithmetic mean of a source over blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredMean {
    pub value: f64,
    /// Of the mean: the squared standard error.
    pub variance: f64,
    pub blocks: u32,
}

/// What was measured, by source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Means(pub(super) BTreeMap<Source, MeasuredMean>);

/// Measured means, each times a weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct WeightedSum(#[serde(serialize_with = "as_pairs")] pub(super) BTreeMap<Source, f64>);

/// A value with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertain {
    pub value: f64,
    pub variance: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub degrees: f64,
    /// The fewest blocks of any source.
    pub blocks: u32,
}

impl MeasuredMean {
    /// `None` below two blocks.
    pub fn of(values: &[f64]) -> Option<Self> {
        let summary = LogSummary::of(values)?;
        let blocks = summary.count();
        Some(Self { value: summary.mean(), variance: summary.sd().powi(2) / f64::from(blocks), blocks })
    }
}

impl Means {
    pub fn get(&self, source: Source) -> Option<&MeasuredMean> {
        self.0.get(&source)
    }

    /// The value of a sum; sources are independent.
    pub fn value(&self, sum: &WeightedSum) -> Uncertain {
        let mut result = Uncertain { value: 0.0, variance: 0.0, degrees: 1.0, blocks: u32::MAX };
        let mut spread = 0.0;
        for (source, weight) in &sum.0 {
            let Some(mean) = self.0.get(source).filter(|_| *weight != 0.0) else { continue };
            let variance = weight.powi(2) * mean.variance;
            result.value += weight * mean.value;
            result.variance += variance;
            result.blocks = result.blocks.min(mean.blocks);
            spread += variance.powi(2) / f64::from(mean.blocks - 1);
        }
        if spread > 0.0 {
            result.degrees = result.variance.powi(2) / spread;
        }
        result
    }

    /// The covariance of two sums: that of the sources which they share.
    pub(super) fn covariance(&self, one: &WeightedSum, other: &WeightedSum) -> f64 {
        let shared = |(source, weight): (&Source, &f64)| {
            let variance = self.0.get(source)?.variance;
            Some(weight * other.0.get(source)? * variance)
        };
        one.0.iter().filter_map(shared).sum()
    }
}

impl Uncertain {
    /// Half of the width of the 95 % interval.
    pub fn half_width(&self) -> f64 {
        critical_t(CONFIDENCE, self.degrees) * self.variance.sqrt()
    }

    /// The value with the 95 % interval of its mean.
    pub fn estimate(&self) -> Estimate {
        self.with_half_width(self.half_width())
    }

    /// The value with an interval for a repetition of the measurement: both scatter, and the model itself is wrong by
    /// `error`, a share of the value with the meaning of a standard deviation.
    pub fn prediction(&self, error: f64) -> Estimate {
        let scatter = self.half_width() * std::f64::consts::SQRT_2;
        let predicted = self.with_half_width(scatter.hypot(NORMAL_95 * error * self.value));
        // No time and no CPU time is below 0.
        Estimate { ci_low: predicted.ci_low.map(|limit| limit.max(0.0)), ..predicted }
    }

    /// The same for a difference, which may be below 0. `error` is the model's own, in the difference's unit.
    pub fn predicted_difference(&self, error: f64) -> Estimate {
        let scatter = self.half_width() * std::f64::consts::SQRT_2;
        self.with_half_width(scatter.hypot(NORMAL_95 * error))
    }

    fn with_half_width(&self, half_width: f64) -> Estimate {
        let Self { value, blocks, .. } = *self;
        let limit = |limit: f64| (blocks >= MIN_BLOCKS).then_some(limit);
        Estimate { value, ci_low: limit(value - half_width), ci_high: limit(value + half_width), blocks }
    }
}

impl WeightedSum {
    pub fn of(source: Source) -> Self {
        Self(BTreeMap::from([(source, 1.0)]))
    }

    fn add(mut self, other: &Self, factor: f64) -> Self {
        for (source, weight) in &other.0 {
            *self.0.entry(*source).or_default() += factor * weight;
        }
        self
    }
}

impl Add<&Self> for WeightedSum {
    type Output = Self;

    fn add(self, other: &Self) -> Self {
        Self::add(self, other, 1.0)
    }
}

impl Sub<&Self> for WeightedSum {
    type Output = Self;

    fn sub(self, other: &Self) -> Self {
        Self::add(self, other, -1.0)
    }
}

impl Mul<f64> for WeightedSum {
    type Output = Self;

    fn mul(mut self, factor: f64) -> Self {
        self.0.values_mut().for_each(|weight| *weight *= factor);
        self
    }
}

fn as_pairs<S: serde::Serializer>(sum: &BTreeMap<Source, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sum.iter().map(|(source, weight)| (source.cell, source.metric, weight)))
}
