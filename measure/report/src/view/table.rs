//! Tables, and the parts of a report that hold them.

use super::text::{Sentence, Tone};

/// A part of the report under a heading.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) table: Option<Table>,
    /// Below the table.
    pub(crate) notes: Vec<Sentence>,
}

/// Rows under columns; the first column names the row.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<TableEntry>>,
    pub(crate) overflow: Overflow,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) lines: Vec<String>,
    pub(crate) kind: ColumnKind,
}

/// Columns of the same kind stay together if a table is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Names the row.
    Label,
    /// Describes the row.
    Text,
    /// A measured value.
    Level,
    /// A ratio to the baseline.
    Ratio,
}

/// An entry of a table: a number over its uncertainty.
#[derive(Clone, Debug)]
pub(crate) struct TableEntry {
    pub(crate) lines: Vec<String>,
    pub(crate) tone: Tone,
}

/// How to lay out a table that is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// One table for each kind of columns.
    SplitKinds,
    /// Rows become columns.
    Transpose,
}

impl Table {
    /// `label` heads the first column, which names the rows.
    pub(crate) fn new(
        label: &str,
        columns: impl IntoIterator<Item = Column>,
        rows: impl IntoIterator<Item = (String, Vec<TableEntry>)>,
    ) -> Self {
        let row = |(label, entries)| [vec![TableEntry::text(label)], entries].concat();
        Self {
            columns: [Column::new(ColumnKind::Label, label)].into_iter().chain(columns).collect(),
            rows: rows.into_iter().map(row).collect(),
            overflow: Overflow::SplitKinds,
        }
    }
}

impl Column {
    pub(crate) fn new(kind: ColumnKind, heading: &str) -> Self {
        Self { lines: heading.split('\n').map(str::to_owned).collect(), kind }
    }
}

impl TableEntry {
    pub(crate) fn new(lines: impl IntoIterator<Item = String>) -> Self {
        Self { lines: lines.into_iter().collect(), tone: Tone::Neutral }
    }

    pub(crate) fn text(line: impl Into<String>) -> Self {
        Self::new([line.into()])
    }

    /// A value that does not apply or could not be measured.
    pub(crate) fn absent() -> Self {
        Self::text("–")
    }

    pub(crate) fn blank() -> Self {
        Self::text("")
    }
}
