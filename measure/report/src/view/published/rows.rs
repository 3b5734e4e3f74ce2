//! Each published number beside the same number here.

use ciphertoll_model::presets::{Preset, Published, PublishedNumber};
use ciphertoll_model::{Metric, MetricDirection, ServerLevel, labelled};
use ciphertoll_stats::{CellAnalysis, Estimate};

use crate::RunReport;
use crate::number::{no_interval, significant};
use crate::view::{certain_ratio, level};

/// A published cost agrees with an interval within this many of its standard deviations.
const AGREEING_SDS: f64 = 2.0;
/// Costs agree if one is at most this many times the other.
const AGREEING_FACTOR: f64 = 1.1;
/// A cost agrees with almost anything if one limit of its interval is this many times the other.
const WIDE: f64 = 2.0;

/// How rows are judged, for readers.
pub(super) const RULE: &str = "Cost is the time (or CPU time) per operation ÷ that of the baseline, so more is worse; for \
    rates it is baseline ÷ measured. A cost agrees if the 95 % interval here contains the published cost, give or take two of \
    its standard deviations, or if the two differ by at most 10 %. It is not comparable without an interval, or if the \
    interval spans more than a factor of 2.";

labelled! {
    /// Whether a number here is the published one.
    pub(crate) enum Agreement {
        Agree = "agree",
        Differ = "differ",
        NotComparable = "not comparable",
    }
}

/// A value with its limits; the limits are the value where it has no interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A published number, and what a server here has to it.
pub(crate) struct StudyRow<'a> {
    pub(crate) server: &'a ServerLevel,
    pub(crate) number: PublishedNumber,
    pub(crate) cell: Option<&'a CellAnalysis>,
    pub(crate) level: Option<&'a Estimate>,
    pub(crate) ratio: Option<&'a Estimate>,
    pub(crate) agreement: Agreement,
    pub(crate) reason: String,
}

impl StudyRow<'_> {
    /// The place of a number that is compared, wherever it was measured.
    pub(crate) fn compared(&self) -> Option<&Published> {
        self.number.place.as_ref().filter(|_| self.number.unlike.is_none())
    }

    /// Whether the run has the cell of a number that is compared.
    pub(crate) fn is_repeated(&self) -> bool {
        self.compared().is_some() && self.cell.is_some()
    }

    pub(crate) fn is_compared(&self) -> bool {
        self.agreement != Agreement::NotComparable
    }

    /// The cost here, if it has an interval.
    pub(crate) fn cost(&self) -> Option<Span> {
        let (place, ratio) = (self.number.place.as_ref()?, self.ratio?);
        ratio.interval().map(|_| cost(place.metric, ratio))
    }

    /// The published cost and its standard deviation.
    pub(crate) fn published_cost(&self) -> Option<(f64, Option<f64>)> {
        self.number.place.as_ref().map(published_cost)
    }
}

/// Costs of a run, with the measured estimate as its limits.
pub(crate) fn cost(metric: Metric, ratio: &Estimate) -> Span {
    let (value, low, high) = (ratio.value, ratio.low(), ratio.high());
    match metric.direction() {
        MetricDirection::LowerIsBetter => Span { value, low, high },
        MetricDirection::HigherIsBetter => Span { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low },
    }
}

fn published_cost(published: &Published) -> (f64, Option<f64>) {
    let Published { metric, ratio, ratio_sd, .. } = *published;
    match metric.direction() {
        MetricDirection::LowerIsBetter => (ratio, ratio_sd),
        MetricDirection::HigherIsBetter => (1.0 / ratio, ratio_sd.map(|sd| sd / (ratio * ratio))),
    }
}

/// The servers to which the study's numbers apply, in the plan's order.
pub(super) fn servers<'a>(report: &RunReport<'a>, preset: &Preset) -> Vec<&'a ServerLevel> {
    let mut servers: Vec<&ServerLevel> = Vec::new();
    for cell in report.analysis.cells() {
        let server = &cell.cell.treatment.server;
        if preset.is_of(server.engine) && !servers.contains(&server) {
            servers.push(server);
        }
    }
    servers
}

/// Every published number on `server`.
pub(super) fn of_server<'a>(
    report: &RunReport<'a>,
    preset: &Preset,
    server: &'a ServerLevel,
) -> Vec<StudyRow<'a>> {
    let cells: Vec<&CellAnalysis> = report.analysis.cells();
    let row = |number: PublishedNumber| {
        let is_it = |place: &Published, cell: &CellAnalysis| {
            cell.cell.treatment.server == *server && place.has_equal(&cell.cell, &report.plan.settings)
        };
        let place = number.place.as_ref();
        let cell = place.and_then(|place| cells.iter().copied().find(|cell| is_it(place, cell)));
        let found = place.zip(cell);
        let ratio = found.and_then(|(place, cell)| {
            Some(&certain_ratio(report.analysis.comparison_of(cell)?, place.metric)?.ratio)
        });
        let (agreement, reason) = judged(&number, cell, ratio);
        let level = found.and_then(|(place, cell)| level(cell, shown(&number.printed, place.metric)));
        StudyRow { server, number, cell, level, ratio, agreement, reason }
    };
    preset.numbers().into_iter().map(row).collect()
}

/// Published queries stand beside queries, not beside transactions of several; their ratios are the same.
fn shown(printed: &str, metric: Metric) -> Metric {
    if metric == Metric::RatePerS && printed.ends_with("queries/s") { Metric::StatementsPerS } else { metric }
}

fn judged(
    number: &PublishedNumber,
    cell: Option<&CellAnalysis>,
    ratio: Option<&Estimate>,
) -> (Agreement, String) {
    let not_comparable = |why: &str| (Agreement::NotComparable, why.to_owned());
    if let Some(why) = number.unlike {
        return not_comparable(why);
    }
    let (Some(place), Some(_)) = (&number.place, cell) else {
        return not_comparable("not in this run; a larger --size has more");
    };
    let Some(ratio) = ratio else { return not_comparable("not measured here: too few trials count") };
    if ratio.interval().is_none() {
        return not_comparable(&no_interval(ratio));
    }
    let (here, (then, sd)) = (cost(place.metric, ratio), published_cost(place));
    if here.high > here.low * WIDE {
        return not_comparable("the interval here spans more than a factor of 2");
    }
    let reach = AGREEING_SDS * sd.unwrap_or(0.0);
    let factor = here.value / then;
    if then + reach >= here.low && then - reach <= here.high {
        (Agreement::Agree, "the interval here contains it".to_owned())
    } else if factor.ln().abs() <= AGREEING_FACTOR.ln() {
        (Agreement::Agree, "within 10 %".to_owned())
    } else {
        (Agreement::Differ, format!("{} times the published cost", significant(factor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_queries_stand_beside_queries() {
        assert_eq!(shown("50078 queries/s", Metric::RatePerS), Metric::StatementsPerS);
        for (printed, metric) in [("3580", Metric::RatePerS), ("12.5 ms", Metric::LatencyNsP95)] {
            assert_eq!(shown(printed, metric), metric);
        }
    }
}
