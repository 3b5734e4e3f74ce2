//! The table of a stratum: the level of each cell and its ratio to the baseline.

use ciphertoll_model::{Metric, Pace, Unit};
use ciphertoll_stats::{CellAnalysis, Comparison, PairedRatio, Verdict, headline_metrics};

use super::{
    Column, ColumnKind, Section, Sentence, StratumView, Table, TableEntry, Tone, certain_ratio, level,
};
use crate::cost_ratio::{cost, noun_of};
use crate::number::{percent, plural, quantity, ratio, ratio_interval, significant, uncertainty};
use crate::{names, sentence};

pub(crate) fn section(stratum: &StratumView<'_>) -> Option<Section> {
    let headline = headline_metrics(stratum.cell());
    let measured: Vec<&CellAnalysis> = stratum.cells().filter(|cell| !cell.metrics.is_empty()).collect();
    if measured.is_empty() {
        return None;
    }
    let levels: Vec<Metric> = shown(headline[0], stratum.cell().pace)
        .filter(|metric| measured.iter().any(|cell| level(cell, *metric).is_some()))
        .collect();
    if levels.is_empty() {
        return None;
    }
    let has_ratio = |metric: &&Metric| {
        stratum.treatments.iter().any(|comparison| certain_ratio(comparison, **metric).is_some())
    };
    let ratios: Vec<Metric> = headline.iter().filter(has_ratio).copied().collect();
    let row = |(cell, comparison): (&CellAnalysis, Option<&Comparison>)| {
        let levels = levels.iter().map(|metric| stratum.level_entry(cell, *metric));
        let ratios = ratios.iter().map(|metric| ratio_entry(*metric, stratum, comparison));
        (stratum.row_label(cell), levels.chain(ratios).collect())
    };
    let rows = stratum.table_rows().filter(|(cell, _)| !cell.metrics.is_empty()).map(row);
    let columns = columns(stratum, &levels, &ratios);
    let mut table = Table::new(&names::factors(&stratum.rows), columns, rows);
    if !stratum.baseline.metrics.is_empty() {
        table.rows[0][0].lines.push("baseline".to_owned());
    }
    let notes = memory(&measured, stratum).into_iter().chain(of_means(stratum)).collect();
    Some(Section { heading: heading(stratum), table: Some(table), notes })
}

/// Why ratios of latencies are not the quotients of the mean latencies beside them, if they differ visibly: a few slow
/// trials raise an arithmetic mean, and phases add up to no other.
fn of_means(stratum: &StratumView<'_>) -> Option<Sentence> {
    const VISIBLE: f64 = 0.03;
    const METRIC: Metric = Metric::LatencyNsMean;
    let unlike = |comparison: &&Comparison| {
        let ratio = certain_ratio(comparison, METRIC)?.ratio.value;
        let quotient = level(&comparison.cell, METRIC)?.value / level(stratum.baseline, METRIC)?.value;
        let row = stratum.row_label(&comparison.cell);
        ((quotient / ratio).ln().abs() > VISIBLE).then(|| format!("{row} {} ×", significant(quotient)))
    };
    let unlike: Vec<String> = stratum.treatments.iter().filter_map(unlike).collect();
    (!unlike.is_empty()).then(|| {
        Sentence::neutral(format!(
            "Ratios are of pairs of trials in one block (geometric means). Mean latencies are arithmetic means, which \
             phases add up to and which slow trials raise more; their quotients are {}.",
            unlike.join(", ")
        ))
    })
}

/// `Peak memory, client and server: plain 7.91 MB (±1 %) and 112 MB (±2 %); …`
fn memory(measured: &[&CellAnalysis], stratum: &StratumView<'_>) -> Option<Sentence> {
    let of_role = |cell: &CellAnalysis, metric| {
        let estimate = level(cell, metric)?;
        let interval = estimate.interval().map(|_| format!(" ({})", uncertainty(metric, estimate)));
        Some(format!("{}{}", quantity(metric, estimate.value), interval.unwrap_or_default()))
    };
    let of_cell = |cell: &&CellAnalysis| {
        let client = of_role(cell, Metric::RssBytesClient)?;
        let server = of_role(cell, Metric::RssBytesServer)?;
        Some(format!("{} {client} and {server}", stratum.row_label(cell)))
    };
    let cells: Vec<String> = measured.iter().filter_map(of_cell).collect();
    (!cells.is_empty())
        .then(|| Sentence::neutral(format!("Peak memory, client and server: {}.", cells.join("; "))))
}

fn heading(stratum: &StratumView<'_>) -> String {
    let server = names::server(stratum.report, &stratum.cell().treatment.server);
    let blocks = stratum.cells().map(|cell| cell.blocks_used).max().unwrap_or(0);
    let few = if stratum.has_intervals() { "" } else { ": no intervals" };
    format!("{} · {server} · {}{few}", stratum.name(), plural(u64::from(blocks), "block"))
}

/// The headline metric first, then the tail, then the CPU by role.
fn shown(first: Metric, pace: Pace) -> impl Iterator<Item = Metric> {
    // In an open loop the rate column shows whether the given rate was kept.
    let rate = (pace != Pace::Closed).then_some(Metric::RatePerS);
    let others = [
        Metric::StatementsPerS,
        Metric::LatencyNsP95,
        Metric::ServiceNsP95,
        Metric::CpuUsPerOpClient,
        Metric::CpuUsPerOpMiddle,
        Metric::CpuUsPerOpServer,
        Metric::CpuUsPerOpTotal,
        Metric::SetUpNs,
    ];
    rate.into_iter().chain([first]).chain(others)
}

fn columns(stratum: &StratumView<'_>, levels: &[Metric], ratios: &[Metric]) -> Vec<Column> {
    let divisor = names::divisor(&stratum.row_label(stratum.baseline));
    let level = |metric: &Metric| {
        let heading = match metric {
            Metric::RatePerS => "rate",
            Metric::LatencyNsMean => "latency\n(mean)",
            Metric::LatencyNsP95 => "latency\n(p95)",
            Metric::ServiceNsP95 => "service\ntime (p95)",
            Metric::CpuUsPerOpClient => "client\nCPU/op",
            Metric::CpuUsPerOpMiddle => "middle\nCPU/op",
            Metric::CpuUsPerOpServer => "server\nCPU/op",
            Metric::CpuUsPerOpTotal => "total\nCPU/op",
            other => other.title(),
        };
        Column::new(ColumnKind::Level, heading)
    };
    let ratio = |metric: &Metric| {
        Column::new(
            ColumnKind::Ratio,
            &format!(
                "{}\n÷ {divisor}",
                noun_of(*metric, stratum.cell().workload).replace("time per ", "time per\n")
            ),
        )
    };
    levels.iter().map(level).chain(ratios.iter().map(ratio)).collect()
}

/// Blank in the row of the baseline.
fn ratio_entry(metric: Metric, stratum: &StratumView<'_>, comparison: Option<&Comparison>) -> TableEntry {
    let Some(comparison) = comparison else { return TableEntry::blank() };
    let Some(found) = certain_ratio(comparison, metric) else { return TableEntry::absent() };
    let cost = cost(metric, &found.ratio);
    let interval = stratum.shows_interval(&cost).then(|| ratio_interval(&cost));
    let numbers = std::iter::once(format!("{} ×", ratio(&cost))).chain(interval);
    let word = found.verdict.map(|verdict| verdict_word(metric, found, verdict));
    TableEntry { lines: numbers.chain(word).collect(), tone: sentence::tone(metric, found) }
}

/// A verdict in one or two words.
pub(crate) fn verdict_word(metric: Metric, ratio: &PairedRatio, verdict: Verdict) -> String {
    match (verdict, sentence::tone(metric, ratio)) {
        (Verdict::SameWithin { margin }, _) => format!("same ±{}", percent(margin)),
        (Verdict::RealButNegligible { .. }, _) => "negligible".to_owned(),
        (Verdict::Inconclusive { .. }, _) => "inconclusive".to_owned(),
        (Verdict::Differs, Tone::Better) if metric.unit() == Unit::CpuMicroseconds => "less CPU".to_owned(),
        (Verdict::Differs, Tone::Better) => "faster".to_owned(),
        (Verdict::Differs, _) if metric.unit() == Unit::CpuMicroseconds => "more CPU".to_owned(),
        (Verdict::Differs, _) => "slower".to_owned(),
    }
}
