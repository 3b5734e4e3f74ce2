//! What the numbers say: the shapes that [`crate::analyse`] fills and reports only read.

use std::collections::BTreeMap;

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Absence, Cell, CellId, Flag, LegCount, Metric, VoidReason};
use schemars::JsonSchema;
use serde::Serialize;

use crate::interval::Interval;

/// What a run says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// Of every printed interval: 0.95.
    pub confidence_level: f64,
    /// Blocks that were completed, calibration excluded.
    pub blocks_completed: u32,
    /// One for each planned cell, in the plan's order.
    pub cells: Vec<CellAnalysis>,
    /// One for each planned stratum, in the plan's order.
    pub strata: Vec<StratumAnalysis>,
}

/// What a run says about one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellAnalysis {
    /// Its id.
    pub id: CellId,
    /// The cell.
    pub cell: Cell,
    /// Index of its stratum.
    pub stratum: usize,
    /// Whether it is what the others of its stratum are compared with.
    pub role: Role,
    /// Blocks that were planned.
    pub blocks_planned: u32,
    /// Blocks that count for it: its own trial and its baseline's are both there.
    pub blocks_used: u32,
    /// Trials that were dropped.
    pub voided: Vec<VoidedTrial>,
    /// Flags of its trials and the number of trials that carry each kind.
    pub flags: Vec<(u32, Flag)>,
    /// Pairs with its baseline of which one trial had more checkpoints than the other; empty on the baseline.
    pub checkpoints: UnevenCheckpoints,
    /// What was negotiated, summed over its trials.
    pub legs: Vec<LegCount>,
    /// Its level: geometric mean over blocks.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Why levels that apply are absent, as in the trial that was farthest from having them.
    pub absent: BTreeMap<Metric, Absence>,
    /// Its ratio to the baseline, paired in blocks; empty on the baseline.
    pub tolls: BTreeMap<Metric, Toll>,
}

/// Whether a cell compares or is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Compared with.
    Baseline,
    /// Compared.
    Treatment,
}

/// A trial that was dropped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VoidedTrial {
    /// Its block.
    pub block: u32,
    /// Why.
    pub reason: VoidReason,
}

/// Pairs of trials of which one had more checkpoints than the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnevenCheckpoints {
    /// Their blocks.
    pub blocks: Vec<u32>,
    /// What became of them.
    pub pairs: UnevenPairs,
}

/// What becomes of pairs whose checkpoints are uneven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnevenPairs {
    /// They do not count: so few are the accident of a block.
    #[default]
    Dropped,
    /// They count: so many are what the load is like.
    Counted,
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
    /// Blocks that it rests on.
    #[serde(skip)]
    pub blocks: u32,
}

impl Estimate {
    /// A value from so many blocks. Below [`MIN_BLOCKS_FOR_VERDICTS`] the limits are dropped: Student's t would print some that
    /// span many orders of magnitude and say nothing.
    pub fn new(value: f64, interval: Interval, blocks: u32) -> Self {
        let is_told = blocks >= MIN_BLOCKS_FOR_VERDICTS;
        let limit = |limit: f64| is_told.then_some(limit);
        Self { value, ci_low: limit(interval.low), ci_high: limit(interval.high), blocks }
    }

    /// The 95 % interval, where there is one.
    pub fn interval(&self) -> Option<Interval> {
        Some(Interval { low: self.ci_low?, high: self.ci_high? })
    }

    /// The lower limit; the value itself where there is no interval.
    pub fn low(&self) -> f64 {
        self.ci_low.unwrap_or(self.value)
    }

    /// The upper limit; the value itself where there is no interval.
    pub fn high(&self) -> f64 {
        self.ci_high.unwrap_or(self.value)
    }
}

/// A cell ÷ its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Toll {
    /// Ratio with its 95 % interval: Student t on paired log-ratios.
    pub ratio: Estimate,
    /// Hodges–Lehmann estimate of the same ratio: a check that no single block carries it.
    pub hodges_lehmann: f64,
    /// Paired blocks.
    pub pairs: u32,
    /// Holm-adjusted p; only for headline metrics.
    pub p_adjusted: Option<f64>,
    /// Only for headline metrics of a run that renders verdicts.
    pub verdict: Option<Verdict>,
}

/// What can be said of a toll.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// It differs from the baseline (Holm-adjusted p < 0.05, and beyond the noise floor).
    Differs,
    /// It is the same within ±margin (90 % interval inside).
    SameWithin {
        /// The margin δ, as a share.
        margin: f64,
    },
    /// It differs, by less than the margin.
    RealButNegligible {
        /// The margin δ, as a share.
        margin: f64,
    },
    /// This run cannot tell.
    Inconclusive {
        /// The smallest effect it would have seen (80 % power), as a share.
        smallest_visible_effect: f64,
        /// Blocks it would take to see the margin, if that is practicable at all.
        blocks_needed: Option<u32>,
        /// Why it cannot tell.
        why: Doubt,
    },
}

/// Why a run cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The interval is too wide.
    TooFewBlocks,
    /// The difference is smaller than what two copies of the baseline differ by.
    BelowNoiseFloor,
    /// More than 20 % of the trials were voided.
    TooManyVoided,
}

/// What a run says about a stratum as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StratumAnalysis {
    /// Id of its baseline cell.
    pub baseline: CellId,
    /// Where authentications are compared beside paths: the cells compared, with their tolls here, since
    /// a cell has other tolls among the paths. Empty elsewhere.
    pub also_compared: Vec<CellAnalysis>,
    /// As [`CellAnalysis::checkpoints`], of the baseline's second copy.
    pub repeat_checkpoints: UnevenCheckpoints,
    /// The baseline's second copy ÷ the baseline, by metric: what it differs from 1 by is noise.
    pub repeat: BTreeMap<Metric, Toll>,
    /// Upper 95 % limit of |A/A|, as a share, by metric: claims below it are not made.
    pub noise_floor: BTreeMap<Metric, f64>,
}
