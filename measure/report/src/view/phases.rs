//! The breakdown of connect time by phase: means, so that the phases add up.

use ciphertoll_model::{ConnectionUse, Engine, Metric, Phase, QueryLanguage};
use ciphertoll_stats::CellAnalysis;

use super::{Column, ColumnKind, Overflow, Section, Sentence, StratumView, Table, TableEntry, level};
use crate::number::{percent, quantity, significant, uncertainty_in};

const NS_PER_US: f64 = 1e3;
const HELLO: &str = "hello";

pub(crate) fn section(stratum: &StratumView<'_>) -> Option<Section> {
    if stratum.cell().workload.connection_use() != ConnectionUse::PerOperation {
        return None;
    }
    let cells: Vec<&CellAnalysis> = stratum.cells().filter(|cell| biggest(cell).is_some()).collect();
    let happens = |phase: &Phase| cells.iter().any(|cell| level(cell, Metric::of_phase(*phase)).is_some());
    let engine = stratum.cell().treatment.server.engine;
    let phases: Vec<Phase> = Phase::in_order_of(engine).into_iter().filter(happens).collect();
    // A single phase needs no breakdown.
    if phases.len() < 2 {
        return None;
    }
    // Strata of drivers and authentications show phases only if there is something to compare.
    if stratum.plan.factor.is_some() && cells.len() < 2 {
        return None;
    }
    let biggest: Vec<String> = cells.iter().filter_map(|cell| biggest_part(stratum, cell)).collect();
    let columns = phases.iter().map(|phase| heading(*phase, engine)).chain(["= total"]);
    let columns = columns.map(|heading| Column::new(ColumnKind::Level, heading));
    let row = |cell: &&CellAnalysis| {
        let metrics = phases.iter().map(|phase| Metric::of_phase(*phase)).chain([Metric::LatencyNsMean]);
        let entries = metrics.map(|metric| entry(stratum, cell, metric));
        (stratum.row_label(cell), entries.collect())
    };
    let few = if stratum.has_intervals() { "" } else { "; no intervals" };
    Some(Section {
        heading: format!("Breakdown of connect time · {} · means, which add up{few}", stratum.name()),
        table: Some(Table {
            overflow: Overflow::Transpose,
            ..Table::new("µs", columns, cells.iter().map(row))
        }),
        notes: vec![Sentence::neutral(format!("Largest part: {}.", biggest.join("; ")))],
    })
}

/// The name of a phase in a sentence.
pub(crate) fn title(phase: Phase, engine: Engine) -> &'static str {
    if is_hello(phase, engine) { HELLO } else { Metric::of_phase(phase).title() }
}

/// Clients of document databases request the greeting.
fn is_hello(phase: Phase, engine: Engine) -> bool {
    phase == Phase::ServerGreeting && engine.query_language() == QueryLanguage::Documents
}

fn heading(phase: Phase, engine: Engine) -> &'static str {
    match phase {
        phase if is_hello(phase, engine) => HELLO,
        Phase::Dns => "DNS",
        Phase::TcpConnect => "TCP\nconnect",
        Phase::ServerGreeting => "greeting",
        Phase::TlsContext => "TLS\ncontext",
        Phase::TlsRequest => "TLS\nrequest",
        Phase::TlsHandshake => "TLS\nhandshake",
        Phase::Auth => "auth",
        Phase::Ready => "ready",
        Phase::FirstQuery => "first\nquery",
        Phase::Close => "close",
    }
}

/// Blank for a phase that this path does not have, which is not the same as 0.
fn entry(stratum: &StratumView<'_>, cell: &CellAnalysis, metric: Metric) -> TableEntry {
    level(cell, metric).map_or_else(TableEntry::blank, |estimate| {
        let uncertainty = stratum.shows_interval(estimate).then(|| uncertainty_in(NS_PER_US, estimate));
        TableEntry::new([significant(estimate.value / NS_PER_US)].into_iter().chain(uncertainty))
    })
}

/// `tls1.3-p256, TLS handshake (224 µs of 612 µs, 37 %)`.
fn biggest_part(stratum: &StratumView<'_>, cell: &CellAnalysis) -> Option<String> {
    let (phase, spent) = biggest(cell)?;
    let total = level(cell, Metric::LatencyNsMean)?;
    Some(format!(
        "{}, {} ({} of {}, {})",
        stratum.row_label(cell),
        title(phase, stratum.cell().treatment.server.engine),
        quantity(Metric::LatencyNsMean, spent),
        quantity(Metric::LatencyNsMean, total.value),
        percent(spent / total.value),
    ))
}

fn biggest(cell: &CellAnalysis) -> Option<(Phase, f64)> {
    let spent = |phase: Phase| Some((phase, level(cell, Metric::of_phase(phase))?.value));
    Phase::ALL.into_iter().filter_map(spent).max_by(|left, right| left.1.total_cmp(&right.1))
}
