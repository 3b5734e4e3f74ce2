//! Where the encryption of files is compared: what crosses between the server's buffers and the system, and how long the disk
//! takes. It is by this that such a toll carries over to another load.

use std::collections::BTreeSet;

use ciphertoll_model::{Factor, Metric};
use ciphertoll_stats::{CellAnalysis, Role, UnevenCheckpoints, UnevenPairs};

use super::{Column, Entry, Overflow, Part, Section, Statement, StratumView, Table, Tone};
use crate::number::{is_certain, plural, quantity, uncertainty};

/// In the order of the columns, with their headings.
const SHOWN: [(Metric, &str); 7] = [
    (Metric::PagesReadPerOperation, "pages\nread/op"),
    (Metric::PagesWrittenPerOperation, "pages\nwritten/op"),
    (Metric::WalBytesPerOperation, "WAL or\nredo/op"),
    (Metric::FullPageImagesPerOperation, "page\nimages/op"),
    (Metric::WalSyncsPerOperation, "syncs\nof it/op"),
    (Metric::CheckpointsBegun, "checkpoints\nbegun"),
    (Metric::CheckpointAgeBytes, "checkpoint\nage"),
];
/// Both in one column: a table has only so much room.
const SYNCS: [Metric; 2] = [Metric::FsyncNsP50, Metric::FsyncNsP99];

/// Whether files that are encrypted in several ways are among what is compared.
pub(crate) fn are_told(stratum: &StratumView<'_>) -> bool {
    stratum.rows.contains(&Factor::AtRest)
}

/// What crossed, a row for each cell.
pub(crate) fn section(stratum: &StratumView<'_>) -> Option<Section> {
    let level = |cell: &CellAnalysis, metric| cell.metrics.get(&metric).copied().filter(is_certain);
    let is_seen = |metric: Metric| stratum.cells().any(|cell| level(cell, metric).is_some());
    let seen: Vec<(Metric, &str)> = SHOWN.into_iter().filter(|(metric, _)| is_seen(*metric)).collect();
    if !are_told(stratum) || seen.is_empty() {
        return None;
    }
    let syncs = |cell: &CellAnalysis| {
        let told = |metric| level(cell, metric).map(|level| quantity(metric, level.value));
        Entry::new(SYNCS.map(|metric| told(metric).unwrap_or_else(|| "–".to_owned())))
    };
    let has_syncs = SYNCS.into_iter().any(is_seen);
    let entry = |cell: &CellAnalysis, metric| match level(cell, metric) {
        None => Entry::absent(),
        Some(none) if none.value == 0.0 => Entry::new(["0".to_owned()]),
        Some(level) => Entry::new([quantity(metric, level.value), uncertainty(metric, &level)]),
    };
    let row = |cell: &CellAnalysis| {
        let levels = seen.iter().map(|(metric, _)| entry(cell, *metric));
        let label = Entry::new([stratum.row_label(cell)]);
        std::iter::once(label).chain(levels).chain(has_syncs.then(|| syncs(cell))).collect()
    };
    let factors: Vec<&str> = stratum.rows.iter().map(|factor| factor.label()).collect();
    let headings =
        seen.iter().map(|(_, heading)| *heading).chain(has_syncs.then_some("8 KiB sync\np50, p99"));
    let columns = headings.map(|heading| Column::new(Part::Level, heading));
    let table = Table {
        columns: std::iter::once(Column::new(Part::Label, &factors.join(", "))).chain(columns).collect(),
        rows: stratum.cells().filter(|cell| !cell.metrics.is_empty()).map(row).collect(),
        overflow: Overflow::SplitParts,
    };
    let heading = format!("What crosses to the files · {}", stratum.name());
    Some(Section { heading, table: Some(table), notes: Vec::new() })
}

/// What such numbers are, once in a report that has any; and wherever checkpoints fell unevenly.
pub(crate) fn statements(strata: &[StratumView<'_>]) -> Vec<Statement> {
    let mut statements = Vec::new();
    if strata.iter().any(|stratum| section(stratum).is_some()) {
        statements.push(Statement::neutral(
            "Pages, WAL or redo and checkpoints are what the server itself counted in whole trials, their warm-up included, by all \
             operations of it. The sync is a probe of ours: 8 KiB and fdatasync where the server's files are, before each block.",
        ));
    }
    let mut told = BTreeSet::new();
    for stratum in strata {
        let treatments = stratum.treatments.iter().map(|cell| (stratum.cell_name(cell), &cell.checkpoints));
        let again = format!("{} again (A/A), {}", stratum.baseline_label(), stratum.name());
        let all = treatments.chain([(again, &stratum.analysis.repeat_checkpoints)]);
        statements.extend(
            all.filter_map(|(name, uneven)| said(&name, uneven))
                .filter(|text| told.insert(text.clone()))
                .map(|text| Statement::new(Tone::Caution, text)),
        );
    }
    statements
}

fn said(name: &str, uneven: &UnevenCheckpoints) -> Option<String> {
    let UnevenCheckpoints { blocks, pairs } = uneven;
    if blocks.is_empty() {
        return None;
    }
    let count = plural(blocks.len() as u64, "block");
    let numbers: Vec<String> = blocks.iter().map(u32::to_string).collect();
    let handling = match pairs {
        UnevenPairs::Dropped => "these pairs of trials do not count",
        UnevenPairs::Counted => {
            "so often that they are a part of the load, or in too few blocks to spare any: all pairs count. Longer trials have \
             more alike"
        }
    };
    Some(format!(
        "{name}: in {count} ({}) one trial of the pair had another number of checkpoints than the other: {handling}.",
        numbers.join(", ")
    ))
}

/// Every cell with its crossings beside its toll: what is plotted against each other.
pub(crate) fn treatments<'a>(stratum: &StratumView<'a>) -> Vec<&'a CellAnalysis> {
    let of = stratum.cells().filter(|cell| stratum.role(cell) == Role::Treatment);
    of.filter(|cell| cell.metrics.get(&Metric::PageCrossingsPerOperation).is_some_and(is_certain)).collect()
}
