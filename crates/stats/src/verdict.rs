//! The verdict on a ratio: differs, same, real but negligible, or inconclusive.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Cell, Clients, ConnectionUse, Margins, Metric, Pace, Unit};

use crate::analysis::{Doubt, Verdict};
use crate::interval::{CONFIDENCE, Interval, LogSummary};

/// Holm-adjusted p below which a ratio counts as different from 1.
pub const SIGNIFICANCE: f64 = 0.05;
/// Level of the interval that must lie within the margins for "the same": two one-sided tests at
/// 5 % each (Schuirmann 1987).
pub const EQUIVALENCE_CONFIDENCE: f64 = 0.90;

/// The metrics that get verdicts and share one Holm family: few, so that the adjustment costs little power.
pub fn headline_metrics(cell: &Cell) -> &'static [Metric] {
    match cell.workload.connection_use() {
        // In an open loop the rate is given, and the question is the latency.
        _ if cell.pace != Pace::Closed => {
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
mod tests {
    use ciphertoll_model::{Engine, Plan, ServerLevel, Spec, Workload};

    use super::*;

    const COMPLETE: Losses = Losses { attempted: 10, lost: 0 };

    /// Ten log-ratios around `mean` that lie alternately `spread` above and below.
    fn around(mean: f64, spread: f64) -> LogSummary {
        let logs: Vec<f64> =
            (0..10).map(|index| mean + if index % 2 == 0 { spread } else { -spread }).collect();
        LogSummary::of(&logs).unwrap()
    }

    fn judge(log_ratio: &LogSummary, repeat: Option<&LogSummary>, losses: Losses) -> Option<Verdict> {
        let p_adjusted = log_ratio.p_value();
        verdict(&Evidence { log_ratio, p_adjusted, family: 1, margin: 0.03, repeat, losses })
    }

    /// The smallest detectable difference, the blocks needed, and why.
    fn doubt(
        log_ratio: &LogSummary,
        repeat: Option<&LogSummary>,
        losses: Losses,
    ) -> (f64, Option<u32>, Doubt) {
        match judge(log_ratio, repeat, losses) {
            Some(Verdict::Inconclusive { smallest_detectable_difference, blocks_needed, why }) => {
                (smallest_detectable_difference, blocks_needed, why)
            }
            other => panic!("should be inconclusive: {other:?}"),
        }
    }

    #[test]
    fn clear_ratios_have_clear_verdicts() {
        let (same, small) =
            (Verdict::SameWithin { margin: 0.03 }, Verdict::RealButNegligible { margin: 0.03 });
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
            (Workload::ConnectQuery, eight, Pace::Closed, &[rate]),
            (Workload::PointSelect, eight, Pace::Closed, &[rate, p95]),
            (Workload::Connect, Clients::ONE, Pace::PerSecond(100), &[mean, p95]),
        ] {
            let cell = Cell { workload, clients, pace, ..any.clone() };
            assert_eq!(headline_metrics(&cell), [expected, &[Metric::CpuUsPerOpTotal]].concat());
        }
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
}
