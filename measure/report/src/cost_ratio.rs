//! Ratios to the baseline as costs: above 1 is always worse, whatever the metric.

use ciphertoll_model::{Metric, MetricDirection, Workload};
use ciphertoll_stats::Estimate;

/// A rate becomes the time per operation, which is its inverse.
pub(crate) fn cost(metric: Metric, ratio: &Estimate) -> Estimate {
    match metric.direction() {
        MetricDirection::LowerIsBetter => *ratio,
        MetricDirection::HigherIsBetter => {
            let [ci_low, ci_high] = [ratio.ci_high, ratio.ci_low].map(|limit| limit.map(f64::recip));
            Estimate { value: ratio.value.recip(), ci_low, ci_high, blocks: ratio.blocks }
        }
    }
}

/// What [`cost`] is a ratio of, after "the".
pub(crate) fn noun(metric: Metric) -> &'static str {
    match metric {
        Metric::RatePerS => "time per operation",
        Metric::LatencyNsMean => "latency",
        Metric::LatencyNsP95 => "p95 latency",
        Metric::CpuUsPerOpTotal => "CPU",
        other => other.title(),
    }
}

/// The same, which names the operation of a load.
pub(crate) fn noun_of(metric: Metric, workload: Workload) -> &'static str {
    match (metric, workload) {
        (Metric::RatePerS, Workload::Connect | Workload::ConnectQuery { .. }) => "time per connect",
        (
            Metric::RatePerS,
            Workload::FirstQuery
            | Workload::PointSelect
            | Workload::SelectOnly
            | Workload::BulkRead { .. }
            | Workload::FindOne
            | Workload::Query,
        ) => "time per query",
        (Metric::RatePerS, Workload::TpcbLike | Workload::OltpReadOnly | Workload::OltpReadWrite) => {
            "time per transaction"
        }
        _ => noun(metric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_half_the_rate_costs_more_than_twice_the_time() {
        let rate = Estimate { value: 0.4, ci_low: Some(0.2), ci_high: Some(0.5), blocks: 6 };
        let time = Estimate { value: 2.5, ci_low: Some(2.0), ci_high: Some(5.0), blocks: 6 };
        assert_eq!(cost(Metric::RatePerS, &rate), time);
        assert_eq!(cost(Metric::LatencyNsP95, &time), time);
    }
}
