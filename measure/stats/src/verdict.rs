//! The verdict on a ratio: differs, same, real but negligible, or inconclusive.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Cell, Clients, ConnectionUse, Margins, Metric, Pace, Unit};
use schemars::JsonSchema;
use serde::Serialize;

use crate::estimate::Interval;
use crate::interval::{CONFIDENCE, LogSummary};

/// Holm-adjusted p below which a ratio counts as different from 1.
pub const SIGNIFICANCE: f64 = 0.05;
/// Level of the interval that must lie within the margins for "the same": two one-sided tests at
/// 5 % each (Schuirmann 1987).
pub const EQUIVALENCE_CONFIDENCE: f64 = 0.90;

/// The conclusion about one ratio.
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
    /// Neither a difference nor sameness is shown.
    Inconclusive {
        /// The smallest detectable difference (80 % power), as a share.
        smallest_detectable_difference: f64,
        /// Blocks needed to detect the margin; absent if no practicable number is enough.
        blocks_needed: Option<u32>,
        why: Doubt,
    },
}

/// Why a verdict is inconclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The interval is too wide.
    TooFewBlocks,
    /// The difference is smaller than the difference between two copies of the baseline.
    BelowNoiseFloor,
    /// More than 20 % of the trials were voided.
    TooManyVoided,
}

/// The metrics that get verdicts and share one Holm family: few, so that the adjustment costs little power.
pub fn headline_metrics(cell: &Cell) -> &'static [Metric] {
    match cell.workload.connection_use() {
        // In an open loop, and at a URL by its limit, the rate is given, and the question is the latency.
        _ if cell.pace != Pace::Closed || cell.treatment.server.url.is_some() => {
            &[Metric::LatencyNsMean, Metric::LatencyNsP95, Metric::CpuUsPerOpTotal]
        }
        ConnectionUse::PerOperation if cell.clients == Clients::ONE => {
            &[Metric::LatencyNsMean, Metric::CpuUsPerOpTotal]
        }
        ConnectionUse::PerOperation => &[Metric::RatePerS, Metric::CpuUsPerOpTotal],
        ConnectionUse::Pooled => &[Metric::RatePerS, Metric::LatencyNsP95, Metric::CpuUsPerOpTotal],
    }
}

/// The margin δ of `metric`, as a share: latencies scatter more and have their own.
pub fn margin(metric: Metric, margins: &Margins) -> f64 {
    match metric.unit() {
        Unit::Nanoseconds => margins.latency,
        Unit::PerSecond | Unit::CpuMicroseconds | Unit::Bytes | Unit::Count => margins.rate_and_cpu,
    }
}

/// The noise floor on the log scale: the farther limit of the 95 % interval of the A/A comparison. A smaller difference of a
/// treatment is not claimed.
pub fn noise_floor(repeat: &LogSummary) -> f64 {
    let interval = repeat.interval(CONFIDENCE);
    interval.low.abs().max(interval.high.abs())
}

/// The number of pairs that were tried, and that gates voided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Completed blocks in which both cells were tried.
    pub attempted: u32,
    /// Of these, blocks in which one of the two had no valid trial, even after its repetition.
    pub lost: u32,
}

impl Losses {
    /// Above 20 % the remaining pairs may be a biased selection, because gates do not void at random.
    pub fn are_too_many(self) -> bool {
        self.lost * 5 > self.attempted
    }
}

/// The input of [`verdict`].
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub log_ratio: &'a LogSummary,
    /// p of the t test, adjusted within the stratum.
    pub p_adjusted: f64,
    /// Number of ratios it was adjusted for.
    pub family: u32,
    /// δ, as a share.
    pub margin: f64,
    /// The A/A log-ratios of the stratum. Absent for the A/A comparison itself: it cannot exceed its own interval, and a
    /// baseline that differs from itself must be reported.
    pub repeat: Option<&'a LogSummary>,
    pub losses: Losses,
}

/// Absent below six blocks, which are too few for a verdict.
pub fn verdict(evidence: &Evidence<'_>) -> Option<Verdict> {
    let Evidence { log_ratio, margin, losses, .. } = *evidence;
    if losses.attempted < MIN_BLOCKS_FOR_VERDICTS {
        return None;
    }
    if losses.are_too_many() {
        return Some(inconclusive(evidence, Doubt::TooManyVoided));
    }
    if log_ratio.count() < MIN_BLOCKS_FOR_VERDICTS {
        return None;
    }
    let significance = Significance::of(evidence);
    let is_same = is_within_margin(log_ratio.interval(EQUIVALENCE_CONFIDENCE), margin);
    Some(match (significance, is_same) {
        (Significance::Real, true) => Verdict::RealButNegligible { margin },
        (Significance::Real, false) => Verdict::Differs,
        // The floor forbids claims of a difference; sameness may still be claimed.
        (Significance::BelowNoiseFloor | Significance::None, true) => Verdict::SameWithin { margin },
        (Significance::BelowNoiseFloor, false) => inconclusive(evidence, Doubt::BelowNoiseFloor),
        (Significance::None, false) => inconclusive(evidence, Doubt::TooFewBlocks),
    })
}

/// Whether a difference is significant and exceeds the noise floor.
#[derive(Clone, Copy)]
enum Significance {
    None,
    BelowNoiseFloor,
    Real,
}

impl Significance {
    fn of(evidence: &Evidence<'_>) -> Self {
        let floor = evidence.repeat.map_or(0.0, noise_floor);
        match (evidence.p_adjusted < SIGNIFICANCE, evidence.log_ratio.mean().abs() < floor) {
            (false, _) => Self::None,
            (true, true) => Self::BelowNoiseFloor,
            (true, false) => Self::Real,
        }
    }
}

/// Whether an interval on the log scale lies within the margin, a share.
pub(crate) fn is_within_margin(interval: Interval, margin: f64) -> bool {
    let limit = margin.ln_1p();
    -limit < interval.low && interval.high < limit
}

fn inconclusive(evidence: &Evidence<'_>, why: Doubt) -> Verdict {
    // The smallest p of a family must pass Bonferroni's limit, Holm's first step.
    let significance = SIGNIFICANCE / f64::from(evidence.family.max(1));
    let floor = evidence.repeat.map_or(0.0, noise_floor);
    Verdict::Inconclusive {
        smallest_detectable_difference: evidence
            .log_ratio
            .smallest_detectable_difference(significance, floor)
            .exp_m1(),
        blocks_needed: blocks_needed(evidence, why),
        why,
    }
}

/// Blocks that would resolve the doubt if scatter and means stay the same.
fn blocks_needed(evidence: &Evidence<'_>, why: Doubt) -> Option<u32> {
    let log_ratio = evidence.log_ratio;
    let limit = evidence.margin.ln_1p();
    let blocks = match why {
        // An interval of half the margin cannot both contain 1 and leave the margin. It is the next goal if the margin
        // itself is reached and the estimate lies near its edge.
        Doubt::TooFewBlocks => [limit, limit / 2.0]
            .into_iter()
            .filter_map(|goal| log_ratio.blocks_for_half_width(goal, EQUIVALENCE_CONFIDENCE))
            .find(|blocks| *blocks > log_ratio.count()),
        // The floor must fall below the estimate.
        Doubt::BelowNoiseFloor => evidence.repeat.and_then(|repeat| {
            let room = log_ratio.mean().abs() - repeat.mean().abs();
            repeat.blocks_for_half_width(room, CONFIDENCE)
        }),
        // Further blocks would be voided for the same reasons.
        Doubt::TooManyVoided => None,
    };
    blocks.map(|blocks| blocks.max(MIN_BLOCKS_FOR_VERDICTS))
}

#[cfg(test)]
mod tests;
