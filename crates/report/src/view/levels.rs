//! The table of a stratum: what each cell reached, and its toll.

use ciphertoll_model::{Metric, Pace, Unit};
use ciphertoll_stats::{CellAnalysis, Role, Toll, Verdict};

use super::{Column, Entry, Overflow, Part, Section, Statement, StratumView, Table, Tone};
use crate::number::{is_certain, percent, quantity, ratio, ratio_interval, uncertainty};
use crate::{names, sentence};

pub(crate) fn section(stratum: &StratumView<'_>) -> Option<Section> {
    let headline = names::headline(stratum.cell());
    let measured: Vec<&CellAnalysis> = stratum.cells().filter(|cell| !cell.metrics.is_empty()).collect();
    if measured.is_empty() {
        return None;
    }
    let levels: Vec<Metric> = shown(headline[0], stratum.cell().pace)
        .filter(|metric| measured.iter().any(|cell| cell.metrics.get(metric).is_some_and(is_certain)))
        .collect();
    if levels.is_empty() {
        return None;
    }
    let tolls: Vec<Metric> = headline
        .iter()
        .copied()
        .filter(|metric| {
            measured.iter().any(|cell| cell.tolls.get(metric).is_some_and(|toll| is_certain(&toll.ratio)))
        })
        .collect();
    let row = |cell: &&CellAnalysis| {
        let role = Some(names::role(stratum.role(cell)).to_owned()).filter(|role| !role.is_empty());
        let label = Entry::new(std::iter::once(stratum.row_label(cell)).chain(role));
        let levels = levels.iter().map(|metric| level_entry(*metric, stratum, cell));
        let tolls = tolls.iter().map(|metric| toll_entry(*metric, stratum, cell));
        std::iter::once(label).chain(levels).chain(tolls).collect()
    };
    let table = Table {
        columns: columns(stratum, &levels, &tolls),
        rows: measured.iter().map(row).collect(),
        overflow: Overflow::SplitParts,
    };
    let notes = memory(&measured, stratum).into_iter().collect();
    Some(Section { heading: heading(stratum), table: Some(table), notes })
}

/// `Peak memory, client and server: plain 7.91 MB (±1 %) and 112 MB (±2 %); …`
fn memory(measured: &[&CellAnalysis], stratum: &StratumView<'_>) -> Option<Statement> {
    let of_role = |cell: &CellAnalysis, metric| {
        let estimate = cell.metrics.get(&metric).filter(|estimate| is_certain(estimate))?;
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
        .then(|| Statement::neutral(format!("Peak memory, client and server: {}.", cells.join("; "))))
}

fn heading(stratum: &StratumView<'_>) -> String {
    let server = names::server(stratum.report, &stratum.cell().treatment.server);
    let blocks = stratum.cells().map(|cell| cell.blocks_used).max().unwrap_or(0);
    let few = if stratum.has_intervals() { "" } else { ": no intervals" };
    format!("{} · {server} · {}{few}", stratum.name(), crate::number::plural(u64::from(blocks), "block"))
}

/// The question's own metric first, then the tail, then who pays.
fn shown(first: Metric, pace: Pace) -> impl Iterator<Item = Metric> {
    // Where the rate is given, it is worth a column all the same: was it kept?
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

fn columns(stratum: &StratumView<'_>, levels: &[Metric], tolls: &[Metric]) -> Vec<Column> {
    let factors: Vec<&str> = stratum.rows.iter().map(|factor| factor.label()).collect();
    let divisor = names::divisor(&stratum.row_label(stratum.baseline));
    let level = |metric: &Metric| {
        let heading = match metric {
            Metric::RatePerS => "rate",
            Metric::LatencyNsMean => "time\n(mean)",
            Metric::LatencyNsP95 => "time\n(p95)",
            Metric::ServiceNsP95 => "service\ntime (p95)",
            Metric::CpuUsPerOpClient => "client\nCPU/op",
            Metric::CpuUsPerOpMiddle => "middle\nCPU/op",
            Metric::CpuUsPerOpServer => "server\nCPU/op",
            Metric::CpuUsPerOpTotal => "total\nCPU/op",
            other => other.title(),
        };
        Column::new(Part::Level, heading)
    };
    let toll =
        |metric: &Metric| Column::new(Part::Toll, &format!("{}\n÷ {divisor}", sentence::noun(*metric)));
    std::iter::once(Column::new(Part::Label, &factors.join(", ")))
        .chain(levels.iter().map(level))
        .chain(tolls.iter().map(toll))
        .collect()
}

fn level_entry(metric: Metric, stratum: &StratumView<'_>, cell: &CellAnalysis) -> Entry {
    match cell.metrics.get(&metric).filter(|estimate| is_certain(estimate)) {
        Some(estimate) => {
            let uncertainty = uncertainty(metric, estimate);
            let value = std::iter::once(quantity(metric, estimate.value));
            Entry::new(value.chain(stratum.tells_interval(estimate).then_some(uncertainty)))
        }
        None => Entry::absent(),
    }
}

fn toll_entry(metric: Metric, stratum: &StratumView<'_>, cell: &CellAnalysis) -> Entry {
    if stratum.role(cell) == Role::Baseline {
        return Entry::new([String::new()]);
    }
    let Some(toll) = cell.tolls.get(&metric).filter(|toll| is_certain(&toll.ratio)) else {
        return Entry::absent();
    };
    let interval = stratum.tells_interval(&toll.ratio).then(|| ratio_interval(&toll.ratio));
    let numbers = std::iter::once(format!("{} ×", ratio(&toll.ratio))).chain(interval);
    let word = toll.verdict.map(|verdict| verdict_word(metric, toll, verdict));
    Entry { lines: numbers.chain(word).collect(), tone: sentence::tone(metric, toll) }
}

/// A verdict in two words.
pub(crate) fn verdict_word(metric: Metric, toll: &Toll, verdict: Verdict) -> String {
    match (verdict, sentence::tone(metric, toll)) {
        (Verdict::SameWithin { margin }, _) => format!("same ±{}", percent(margin)),
        (Verdict::RealButNegligible { .. }, _) => "negligible".to_owned(),
        (Verdict::Inconclusive { .. }, _) => "can't tell".to_owned(),
        (Verdict::Differs, Tone::Better) if metric.unit() == Unit::CpuMicroseconds => "less CPU".to_owned(),
        (Verdict::Differs, Tone::Better) => "faster".to_owned(),
        (Verdict::Differs, _) if metric.unit() == Unit::CpuMicroseconds => "more CPU".to_owned(),
        (Verdict::Differs, _) => "slower".to_owned(),
    }
}
