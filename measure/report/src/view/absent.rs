//! Why values that a reader looks for are absent.

use ciphertoll_model::Metric;

use super::{Sentence, StratumView, level};
use crate::lists::{grouped, listed};

/// One sentence for each metric and reason: `No p99 latency for plain: 145 samples in a trial, 200 are needed: …`.
pub(crate) fn sentences(stratum: &StratumView<'_>, metrics: &[Metric]) -> Vec<Sentence> {
    let of_metric = |metric: &Metric| {
        let absent = stratum.cells().filter(|cell| level(cell, *metric).is_none());
        let reasons = absent.filter_map(|cell| {
            Some(((*metric, cell.absent.get(metric)?.to_string()), stratum.row_label(cell)))
        });
        reasons.collect::<Vec<_>>()
    };
    let all = grouped(metrics.iter().flat_map(of_metric));
    let sentence = |((metric, reason), labels): ((Metric, String), Vec<String>)| {
        Sentence::neutral(format!("No {} for {}: {reason}.", metric.title(), listed(&labels)))
    };
    all.into_iter().map(sentence).collect()
}
