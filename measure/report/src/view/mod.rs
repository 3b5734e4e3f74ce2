//! The view model: everything a report says, as sentences and tables, before layout.

pub(crate) mod absent;
pub(crate) mod advice;
pub(crate) mod at_rest;
pub(crate) mod caveats;
pub(crate) mod connect_cost;
pub(crate) mod crossings;
pub(crate) mod decision;
mod documents;
pub(crate) mod headline;
pub(crate) mod hosts;
pub(crate) mod key_exchange;
pub(crate) mod levels;
pub(crate) mod matrix;
pub(crate) mod negotiated;
pub(crate) mod phases;
pub(crate) mod published;
pub(crate) mod repeat;
pub(crate) mod round_trips;
pub(crate) mod verdicts;

use std::collections::BTreeMap;

use ciphertoll_model::{
    Cell, Driver, Factor, Metric, Pace, Plan, ServerLevel, Skipped, Stratum, Unlike, Workload, labelled,
};
use ciphertoll_stats::{CellAnalysis, Comparison, Estimate, PairedRatio, StratumAnalysis};

use crate::lists::grouped;
use crate::number::{is_certain, plural, quantity, uncertainty};
use crate::{RunReport, names};

/// Statements that share a context.
#[derive(Debug)]
pub(crate) struct SentenceGroup {
    /// The context; absent if there is only one.
    pub(crate) heading: Option<String>,
    pub(crate) sentences: Vec<Sentence>,
}

/// One sentence or a few.
#[derive(Debug)]
pub(crate) struct Sentence {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

labelled! {
    /// The meaning of a sentence or number, shown by a mark and a colour.
    pub(crate) enum Tone {
        Neutral = "neutral",
        Caution = "caution",
        /// No difference.
        Same = "same",
        /// A difference below the margin.
        Negligible = "negligible",
        Unsure = "unsure",
        /// A lower cost than the baseline.
        Better = "better",
        /// A higher cost than the baseline.
        Worse = "worse",
    }
}

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

/// A stratum with everything that its sentences and tables need.
pub(crate) struct StratumView<'a> {
    pub(crate) report: &'a RunReport<'a>,
    pub(crate) plan: &'a Stratum,
    pub(crate) baseline: &'a CellAnalysis,
    /// By metric, as a share.
    pub(crate) noise_floor: &'a BTreeMap<Metric, f64>,
    pub(crate) treatments: Vec<&'a Comparison>,
    pub(crate) repeat: Option<&'a Comparison>,
    /// The factors that name a row.
    pub(crate) rows: Vec<Factor>,
}

/// The evidence for the answer.
pub(crate) fn sections(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for stratum in strata {
        sections.extend(levels::section(stratum));
        sections.extend(phases::section(stratum));
        sections.extend(crossings::section(stratum));
    }
    sections.extend(key_exchange::section(report, strata));
    sections.extend(connect_cost::sections(report));
    sections.extend(round_trips::sections(report));
    sections.extend(published::section(report));
    sections.extend(hosts::section(report));
    sections.extend(negotiated::section(strata));
    sections.extend(caveats::sections(report, strata));
    sections
}

impl Sentence {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }

    pub(crate) fn neutral(text: impl Into<String>) -> Self {
        Self::new(Tone::Neutral, text)
    }

    pub(crate) fn caution(text: impl Into<String>) -> Self {
        Self::new(Tone::Caution, text)
    }
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

impl Tone {
    /// The class in style sheets.
    pub(crate) fn class(self) -> String {
        format!("tone-{}", self.label())
    }

    /// The mark in front of a sentence: colour alone carries no meaning.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Neutral => "·",
            Self::Caution => "!",
            Self::Same => "=",
            Self::Negligible => "≈",
            Self::Unsure => "?",
            Self::Better => "▼",
            Self::Worse => "▲",
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

impl<'a> StratumView<'a> {
    /// Every cell, the baseline first.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a CellAnalysis> {
        std::iter::once(self.baseline).chain(self.treatments.iter().map(|comparison| &comparison.cell))
    }

    /// The rows of a table: the baseline, then every comparison with its cell.
    pub(crate) fn table_rows(&self) -> impl Iterator<Item = (&'a CellAnalysis, Option<&'a Comparison>)> {
        let treatments = self.treatments.iter().map(|comparison| (&comparison.cell, Some(*comparison)));
        std::iter::once((self.baseline, None)).chain(treatments)
    }

    /// Every comparison, the A/A comparison last.
    pub(crate) fn comparisons(&self) -> impl Iterator<Item = &'a Comparison> {
        self.treatments.iter().copied().chain(self.repeat)
    }

    /// The finite noise floor of a metric, as a share.
    pub(crate) fn noise_floor_of(&self, metric: Metric) -> Option<f64> {
        self.noise_floor.get(&metric).copied().filter(|floor| floor.is_finite())
    }

    pub(crate) fn cell(&self) -> &'a Cell {
        &self.baseline.cell
    }

    /// Whether any cell has enough blocks for an interval. If none has, the headings say so.
    pub(crate) fn has_intervals(&self) -> bool {
        self.cells().any(|cell| cell.metrics.values().any(|estimate| estimate.interval().is_some()))
    }

    /// Whether a table shows the interval of a value, or that it has none.
    pub(crate) fn shows_interval(&self, estimate: &Estimate) -> bool {
        estimate.interval().is_some() || self.has_intervals()
    }

    /// The measured value and, if the table shows it, its uncertainty.
    pub(crate) fn level_entry(&self, cell: &CellAnalysis, metric: Metric) -> TableEntry {
        level(cell, metric).map_or_else(TableEntry::absent, |estimate| {
            let uncertainty = self.shows_interval(estimate).then(|| uncertainty(metric, estimate));
            TableEntry::new([quantity(metric, estimate.value)].into_iter().chain(uncertainty))
        })
    }

    pub(crate) fn row_label(&self, cell: &CellAnalysis) -> String {
        names::row_label(&cell.cell, &self.rows)
    }

    pub(crate) fn baseline_label(&self) -> String {
        self.row_label(self.baseline)
    }

    /// `tls1.3-p256, connect at 1 client`.
    pub(crate) fn cell_name(&self, cell: &CellAnalysis) -> String {
        format!("{}, {}", self.row_label(cell), self.name())
    }

    /// The factors in the heading above its sentences.
    pub(crate) fn heading_factors(&self) -> Vec<Factor> {
        names::context_factors(self.report.plan, self.plan, &self.rows)
    }

    pub(crate) fn name(&self) -> String {
        names::stratum(self.report.plan, self.plan, &self.rows)
    }
}

/// Skipped cells by reason. A server whose cells are all skipped is named alone, with the number of its cells.
pub(crate) fn by_reason<'a>(
    plan: &Plan,
    skipped: impl IntoIterator<Item = &'a Skipped>,
) -> Vec<(String, Vec<String>)> {
    let all = grouped(skipped.into_iter().map(|skipped| (clean(&skipped.reason), skipped)));
    let servers: Vec<String> = plan.servers().into_iter().map(ServerLevel::short_name).collect();
    all.into_iter().map(|(reason, alike)| (reason, without_absent(&servers, &alike))).collect()
}

/// Cells of a server that the plan does not contain are counted, not listed.
fn without_absent(present: &[String], skipped: &[&Skipped]) -> Vec<String> {
    let name = |Skipped { id, server, .. }: &Skipped| {
        let absent = server.as_ref().filter(|server| !present.contains(server));
        absent.map_or_else(|| clean(id), |server| format!("all of {}", clean(server)))
    };
    let names = grouped(skipped.iter().map(|skipped| (name(skipped), ())));
    let line = |(name, all): (String, Vec<()>)| match all.len() {
        1 => name,
        count => format!("{name} ({})", plural(count as u64, "configuration")),
    };
    names.into_iter().map(line).collect()
}

/// Why drivers are not compared under a workload that several of them run.
pub(crate) fn unlike(plan: &Plan) -> Vec<String> {
    let line = |unlike: &Unlike| {
        let Unlike { driver, workload, reason } = unlike;
        format!("Drivers are not compared under {workload}: with {driver}, {}.", clean(reason))
    };
    plan.unlike.iter().map(line).collect()
}

pub(crate) fn strata<'a>(report: &'a RunReport<'a>) -> Vec<StratumView<'a>> {
    let RunReport { plan, analysis, .. } = *report;
    let view = |(number, (stratum, analysed)): (usize, (&'a Stratum, &'a StratumAnalysis))| StratumView {
        report,
        plan: stratum,
        baseline: &analysed.baseline,
        noise_floor: &analysed.noise_floor,
        treatments: analysis.treatments(number).collect(),
        repeat: analysis.repeat(number),
        rows: names::row_factors(plan, stratum),
    };
    plan.strata.iter().zip(&analysis.strata).enumerate().map(view).collect()
}

/// The measured value of `metric`, if it can be printed.
pub(crate) fn level(cell: &CellAnalysis, metric: Metric) -> Option<&Estimate> {
    cell.metrics.get(&metric).filter(|estimate| is_certain(estimate))
}

/// Whether `cell` runs `workload` on `server` by our own client in a closed loop. In an open loop, latencies include
/// waiting, and phases do not add up to them.
pub(crate) fn is_plain_load(cell: &Cell, server: &ServerLevel, workload: Workload) -> bool {
    cell.treatment.server == *server
        && cell.workload == workload
        && cell.pace == Pace::Closed
        && cell.treatment.driver == Driver::Native
}

/// The ratio in `metric`, if it can be printed.
pub(crate) fn certain_ratio(comparison: &Comparison, metric: Metric) -> Option<&PairedRatio> {
    comparison.ratios.get(&metric).filter(|ratio| is_certain(&ratio.ratio))
}

pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// Foreign text, such as a server's error message, without control characters.
pub(crate) fn clean(text: &str) -> String {
    text.trim_end_matches(['.', '\n']).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
