//! The matrix: the cost of each configuration under each load, in the most important metric.

use ciphertoll_model::Metric;
use ciphertoll_stats::headline_metrics;

use super::advice::{Levels, is_at};
use super::levels::verdict_word;
use super::{Column, ColumnKind, StratumView, Table, TableEntry, certain_ratio, level};
use crate::lists::distinct;
use crate::number::{quantity, ratio, ratio_interval};
use crate::{names, sentence};

/// A row for each configuration, a column for each load and context; `None` without numbers.
pub(crate) fn table(strata: &[StratumView<'_>]) -> Option<Table> {
    laid_out(strata, heading, entry)
}

/// The same with a line for each configuration: the ratio and its interval.
pub(crate) fn short(strata: &[StratumView<'_>]) -> Option<Table> {
    laid_out(strata, heading, |stratum, levels| {
        let TableEntry { lines, tone } = entry(stratum, levels);
        let shown: Vec<&str> = lines.iter().take(2).map(String::as_str).collect();
        let line = match shown.as_slice() {
            [value, interval] if interval.contains('–') => format!("{value} ({interval})"),
            [value, ..] => (*value).to_owned(),
            [] => String::new(),
        };
        TableEntry { lines: vec![line], tone }
    })
}

fn laid_out(
    strata: &[StratumView<'_>],
    heading: impl Fn(&StratumView<'_>) -> String,
    entry: impl Fn(&StratumView<'_>, &Levels) -> TableEntry,
) -> Option<Table> {
    let is_shown = |stratum: &&StratumView<'_>| stratum.plan.factor.is_none() && metric(stratum).is_some();
    let shown: Vec<&StratumView<'_>> = strata.iter().filter(is_shown).collect();
    let rows = rows(&shown);
    let row = |levels: &Levels| {
        let label: Vec<&str> = levels.iter().filter_map(|(_, level)| level.as_deref()).collect();
        (label.join(" "), shown.iter().map(|stratum| entry(stratum, levels)).collect())
    };
    let columns = shown.iter().map(|stratum| Column::new(ColumnKind::Ratio, &heading(stratum)));
    let factors = distinct(shown.iter().flat_map(|stratum| stratum.rows.iter().copied()));
    let table = Table::new(&names::factors(&factors), columns, rows.iter().map(row));
    (!shown.is_empty()).then_some(table)
}

/// The levels of each configuration in the factors that vary. Those with the most factors come first: a cell of another
/// stratum, in which fewer vary, then belongs to several rows.
fn rows(strata: &[&StratumView<'_>]) -> Vec<Levels> {
    let mut strata = strata.to_vec();
    strata.sort_by_key(|stratum| std::cmp::Reverse(stratum.rows.len()));
    let mut rows: Vec<Levels> = Vec::new();
    for (stratum, cell) in
        strata.into_iter().flat_map(|stratum| stratum.cells().map(move |cell| (stratum, cell)))
    {
        if !rows.iter().any(|known| is_at(known, stratum, cell)) {
            rows.push(stratum.rows.iter().map(|factor| (*factor, cell.cell.level(*factor))).collect());
        }
    }
    rows
}

/// The most important metric, if any treatment has a ratio in it.
fn metric(stratum: &StratumView<'_>) -> Option<Metric> {
    let first = *headline_metrics(stratum.cell()).first()?;
    stratum.treatments.iter().any(|comparison| certain_ratio(comparison, first).is_some()).then_some(first)
}

/// `connect at 1 client`, `mariadb`, `latency ÷ plain`.
fn heading(stratum: &StratumView<'_>) -> String {
    let context = names::context(stratum.report.plan, stratum.plan, &stratum.rows).join(", ");
    let noun = metric(stratum).map_or("", sentence::noun);
    let ratio = format!("{noun} ÷ {}", names::divisor(&stratum.baseline_label()));
    let lines = [names::load(stratum.cell()), context, ratio];
    lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn entry(stratum: &StratumView<'_>, levels: &Levels) -> TableEntry {
    let Some(metric) = metric(stratum) else { return TableEntry::absent() };
    if is_at(levels, stratum, stratum.baseline) {
        let value = level(stratum.baseline, metric).map(|estimate| quantity(metric, estimate.value));
        return value
            .map_or_else(TableEntry::absent, |value| TableEntry::new([value, "baseline".to_owned()]));
    }
    let found = stratum.treatments.iter().find(|comparison| is_at(levels, stratum, &comparison.cell));
    let Some(found) = found.and_then(|comparison| certain_ratio(comparison, metric)) else {
        return TableEntry::new(["–".to_owned(), "not measured".to_owned()]);
    };
    let tone = sentence::tone(metric, found);
    let mark = found.verdict.map(|_| format!("{} ", tone.mark())).unwrap_or_default();
    let word = found.verdict.map(|verdict| verdict_word(metric, found, verdict));
    let lines = [
        format!("{mark}{} ×", ratio(&found.ratio)),
        ratio_interval(&found.ratio),
        word.unwrap_or_else(|| "no verdict".to_owned()),
    ];
    TableEntry { lines: lines.into(), tone }
}
