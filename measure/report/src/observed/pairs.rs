//! The table of pairs of a client and a server.

use ciphertoll_observe::{Estimated, Observation, Pair, Quantiles, SidecarSaving, encryption_words};

use super::words::{place_of, rest};
use crate::number::{count, plural, significant};
use crate::view::{Column, ColumnKind, Section, Table, TableEntry, clean};

/// A column of the table.
struct PairFigure {
    heading: &'static str,
    kind: ColumnKind,
    of: fn(&Pair) -> Option<TableEntry>,
}

const fn figure(heading: &'static str, of: fn(&Pair) -> Option<TableEntry>) -> PairFigure {
    PairFigure { heading, kind: ColumnKind::Level, of }
}

const fn described(heading: &'static str, of: fn(&Pair) -> Option<TableEntry>) -> PairFigure {
    PairFigure { heading, kind: ColumnKind::Text, of }
}

/// The columns, in their order. One that no pair has is not shown.
const FIGURES: [PairFigure; 11] = [
    described("protocol", |pair| Some(TableEntry::text(clean(pair.protocol.as_deref()?)))),
    described("encryption of most", |pair| {
        let most = pair.encryption.first()?;
        let words = clean(&encryption_words(most));
        let (kind, detail) =
            words.split_once(", ").or_else(|| words.split_once(": ")).unwrap_or((&words, ""));
        let others = match pair.encryption.len() - 1 {
            0 => None,
            others => Some(plural(others as u64, "other kind")),
        };
        let besides =
            Some(detail).filter(|detail| !detail.is_empty()).map(str::to_owned).into_iter().chain(others);
        Some(TableEntry::new([kind.to_owned(), besides.collect::<Vec<_>>().join("; ")]))
    }),
    figure("new\nconnections", |pair| {
        let rate = pair.connects_per_s.map(|rate| format!("{} /s", significant(rate)));
        Some(TableEntry::new([count(pair.connections.begun)].into_iter().chain(rate)))
    }),
    figure("began\nbefore", |pair| {
        let before = Some(pair.connections.began_before).filter(|before| *before > 0)?;
        Some(TableEntry::text(count(before)))
    }),
    figure("queries per\nconnection", |pair| {
        let queries = pair.queries.as_ref()?;
        let about = if queries.by_turns { "≈ " } else { "" };
        let highest = format!("p95 {}, max {}", count(queries.p95), count(queries.max));
        Some(TableEntry::new([format!("{about}{}", count(queries.median)), highest]))
    }),
    figure("connect\nms", |pair| pair.connect_ms.as_ref().map(time)),
    figure("round trip\nms", |pair| pair.round_trip_ms.as_ref().map(time)),
    figure("cost\ncores", |pair| pair.cost.as_ref()?.cores.as_ref().map(estimated)),
    figure("sidecar saves\ncores", |pair| saving(pair)?.cores.as_ref().map(estimated)),
    figure("sidecar saves\nms per connect", |pair| saving(pair)?.connect_ms.as_ref().map(estimated)),
    figure("failed", |pair| {
        let failed: u64 = pair.failures.iter().map(|failure| failure.connections).sum();
        (failed > 0).then(|| TableEntry::text(count(failed)))
    }),
];

/// The first `most` pairs; the median stands over the 95th percentile.
pub(crate) fn section(observation: &Observation, most: usize) -> Section {
    let pairs = &observation.pairs[..observation.pairs.len().min(most)];
    let shown: Vec<&PairFigure> =
        FIGURES.iter().filter(|figure| pairs.iter().any(|pair| (figure.of)(pair).is_some())).collect();
    let columns = shown.iter().map(|figure| Column::new(figure.kind, figure.heading));
    let row = |pair: &Pair| {
        let entries = shown.iter().map(|figure| (figure.of)(pair).unwrap_or_else(TableEntry::absent));
        (place_of(pair), entries.collect())
    };
    Section {
        heading: "Connections".to_owned(),
        table: (!pairs.is_empty()).then(|| Table::new("client → server", columns, pairs.iter().map(row))),
        notes: rest(observation.pairs.len(), pairs.len(), "pair").into_iter().collect(),
    }
}

fn saving(pair: &Pair) -> Option<&SidecarSaving> {
    pair.cost.as_ref()?.sidecar.as_ref()
}

/// The value over its 95 % interval.
fn estimated(found: &Estimated) -> TableEntry {
    let limits = found.low.zip(found.high);
    let limits = limits.map(|(low, high)| format!("{} to {}", significant(low), significant(high)));
    TableEntry::new([significant(found.value)].into_iter().chain(limits))
}

/// The median over the 95th percentile.
pub(super) fn time(quantiles: &Quantiles) -> TableEntry {
    TableEntry::new([significant(quantiles.median), format!("p95 {}", significant(quantiles.p95))])
}
