//! For comparisons of encryption at rest: pages between the server's buffers and the system, and the latency of the disk.
//! They show how the cost carries over to another load.

use std::collections::BTreeSet;

use ciphertoll_model::{Arm, Factor, Metric};
use ciphertoll_stats::{CellAnalysis, Comparison, UnevenCheckpoints, UnevenPairs};

use super::{Column, ColumnKind, Section, Sentence, StratumView, Table, TableEntry, level};
use crate::names;
use crate::number::{plural, quantity, uncertainty};

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
/// Both in one column, because tables are wide.
const SYNCS: [Metric; 2] = [Metric::FsyncNsP50, Metric::FsyncNsP99];

/// Whether the stratum compares levels of encryption at rest.
pub(crate) fn are_shown(stratum: &StratumView<'_>) -> bool {
    stratum.rows.contains(&Factor::AtRest)
}

/// A row for each cell.
pub(crate) fn section(stratum: &StratumView<'_>) -> Option<Section> {
    let is_seen = |metric: Metric| stratum.cells().any(|cell| level(cell, metric).is_some());
    let seen: Vec<(Metric, &str)> = SHOWN.into_iter().filter(|(metric, _)| is_seen(*metric)).collect();
    if !are_shown(stratum) || seen.is_empty() {
        return None;
    }
    let syncs = |cell: &CellAnalysis| {
        let known = |metric| level(cell, metric).map(|level| quantity(metric, level.value));
        TableEntry::new(SYNCS.map(|metric| known(metric).unwrap_or_else(|| "–".to_owned())))
    };
    let has_syncs = SYNCS.into_iter().any(is_seen);
    let entry = |cell: &CellAnalysis, metric| match level(cell, metric) {
        None => TableEntry::absent(),
        Some(none) if none.value == 0.0 => TableEntry::text("0"),
        Some(level) => TableEntry::new([quantity(metric, level.value), uncertainty(metric, level)]),
    };
    let row = |cell: &CellAnalysis| {
        let levels = seen.iter().map(|(metric, _)| entry(cell, *metric));
        (stratum.row_label(cell), levels.chain(has_syncs.then(|| syncs(cell))).collect())
    };
    let headings =
        seen.iter().map(|(_, heading)| *heading).chain(has_syncs.then_some("8 KiB sync\np50, p99"));
    let columns = headings.map(|heading| Column::new(ColumnKind::Level, heading));
    let rows = stratum.cells().filter(|cell| !cell.metrics.is_empty()).map(row);
    let table = Table::new(&names::factors(&stratum.rows), columns, rows);
    let heading = format!("Page and log I/O · {}", stratum.name());
    Some(Section { heading, table: Some(table), notes: Vec::new() })
}

/// The explanation of the numbers, once, and every comparison with uneven checkpoints.
pub(crate) fn sentences(strata: &[StratumView<'_>]) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    if strata.iter().any(|stratum| section(stratum).is_some()) {
        sentences.push(Sentence::neutral(
            "Pages, WAL or redo and checkpoints are the server's own counts over whole trials, warm-up included. The sync is a \
             probe before each block: a write of 8 KiB with fdatasync in the server's file system.",
        ));
    }
    let mut listed = BTreeSet::new();
    for stratum in strata {
        let name = |comparison: &Comparison| match comparison.arm {
            Arm::Main => stratum.cell_name(&comparison.cell),
            Arm::Repeat => format!("{} again (A/A), {}", stratum.baseline_label(), stratum.name()),
        };
        sentences.extend(
            stratum
                .comparisons()
                .filter_map(|comparison| said(&name(comparison), &comparison.cell.checkpoints))
                .filter(|text| listed.insert(text.clone()))
                .map(Sentence::caution),
        );
    }
    sentences
}

fn said(name: &str, uneven: &UnevenCheckpoints) -> Option<String> {
    let UnevenCheckpoints { blocks, pairs } = uneven;
    if blocks.is_empty() {
        return None;
    }
    let count = plural(blocks.len() as u64, "block");
    let numbers: Vec<String> = blocks.iter().map(u32::to_string).collect();
    let handling = match pairs {
        UnevenPairs::Dropped => "these pairs do not count",
        UnevenPairs::Counted => {
            "all pairs count, because checkpoints are part of this load or there are too few blocks to drop any. Longer trials \
             have more even checkpoints"
        }
    };
    Some(format!(
        "{name}: in {count} ({}) the two trials of a pair had different numbers of checkpoints: {handling}.",
        numbers.join(", ")
    ))
}

/// The comparisons whose cells have page crossings.
pub(crate) fn treatments<'a>(stratum: &StratumView<'a>) -> impl Iterator<Item = &'a Comparison> {
    let has_any = |found: &&Comparison| level(&found.cell, Metric::PageCrossingsPerOperation).is_some();
    stratum.treatments.iter().copied().filter(has_any)
}
