//! The view model: everything a report says, as strings and tones, before anything is laid out.

pub(crate) mod advice;
pub(crate) mod at_rest;
pub(crate) mod caveats;
pub(crate) mod connect_cost;
pub(crate) mod crossings;
mod documents;
pub(crate) mod levels;
pub(crate) mod negotiated;
pub(crate) mod phases;
pub(crate) mod published;
pub(crate) mod repeat;
pub(crate) mod round_trips;
pub(crate) mod verdicts;

use ciphertoll_model::{Cell, Factor, Plan, ServerLevel, Skipped, Stratum, Unlike};
use ciphertoll_stats::{CellAnalysis, Estimate, Role, StratumAnalysis};

use crate::number::plural;
use crate::{RunReport, names};

/// A whole report.
#[derive(Debug)]
pub(crate) struct View {
    /// What is being answered.
    pub(crate) title: String,
    /// What must be known before the answer: interrupted, no verdicts.
    pub(crate) banner: Vec<Statement>,
    /// The answer.
    pub(crate) verdicts: Vec<Group>,
    /// What it rests on.
    pub(crate) sections: Vec<Section>,
    /// What it takes to do it again.
    pub(crate) footer: String,
}

/// Statements that share a context.
#[derive(Debug)]
pub(crate) struct Group {
    /// The context, where there is more than one.
    pub(crate) heading: Option<String>,
    /// The statements.
    pub(crate) statements: Vec<Statement>,
}

/// A sentence or two.
#[derive(Debug)]
pub(crate) struct Statement {
    /// How it is meant.
    pub(crate) tone: Tone,
    /// What it says.
    pub(crate) text: String,
}

/// How something is meant; it is shown by a mark and a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tone {
    /// Nothing to be glad or sorry about.
    Neutral,
    /// Something to know before believing the rest.
    Caution,
    /// No difference.
    Same,
    /// A difference that does not matter.
    Negligible,
    /// Not known.
    Unsure,
    /// Cheaper than the baseline.
    Better,
    /// Dearer than the baseline.
    Worse,
}

/// A part of the report under a heading.
#[derive(Debug)]
pub(crate) struct Section {
    /// The heading.
    pub(crate) heading: String,
    /// A table, where there is one.
    pub(crate) table: Option<Table>,
    /// What is to be said below it.
    pub(crate) notes: Vec<Statement>,
}

/// Rows under columns; the first column names the row.
#[derive(Debug)]
pub(crate) struct Table {
    /// What stands over the columns.
    pub(crate) columns: Vec<Column>,
    /// One entry for each column.
    pub(crate) rows: Vec<Vec<Entry>>,
    /// What to do where it is too wide.
    pub(crate) overflow: Overflow,
}

/// A column's heading.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// One or more lines.
    pub(crate) lines: Vec<String>,
    /// What it belongs to.
    pub(crate) part: Part,
}

/// What a column belongs to: parts stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Names the row.
    Label,
    /// Describes the row.
    Text,
    /// What was measured.
    Level,
    /// What was compared.
    Toll,
}

/// An entry of a table: a number over its uncertainty.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// One or more lines.
    pub(crate) lines: Vec<String>,
    /// How it is meant.
    pub(crate) tone: Tone,
}

/// What to do with a table that is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// One table for each part.
    SplitParts,
    /// Rows become columns.
    Transpose,
}

/// A stratum with everything that its sentences and tables need.
pub(crate) struct StratumView<'a> {
    pub(crate) report: &'a RunReport<'a>,
    pub(crate) plan: &'a Stratum,
    pub(crate) analysis: &'a StratumAnalysis,
    pub(crate) baseline: &'a CellAnalysis,
    pub(crate) treatments: Vec<&'a CellAnalysis>,
    pub(crate) rows: Vec<Factor>,
}

impl View {
    pub(crate) fn of(report: &RunReport<'_>) -> Self {
        let strata = strata(report);
        let mut sections: Vec<Section> = Vec::new();
        for stratum in &strata {
            sections.extend(levels::section(stratum));
            sections.extend(phases::section(stratum));
            sections.extend(crossings::section(stratum));
        }
        sections.extend(connect_cost::sections(report));
        sections.extend(round_trips::sections(report));
        sections.extend(published::section(report));
        sections.extend(negotiated::section(&strata));
        sections.extend(caveats::sections(report, &strata));
        Self {
            title: verdicts::title(report),
            banner: verdicts::banner(report, &strata),
            verdicts: verdicts::groups(report, &strata),
            sections,
            footer: caveats::footer(report),
        }
    }
}

impl Statement {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }

    pub(crate) fn neutral(text: impl Into<String>) -> Self {
        Self::new(Tone::Neutral, text)
    }
}

impl Tone {
    /// The mark in front of what is meant so: no colour is needed to know it.
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
    pub(crate) fn new(part: Part, heading: &str) -> Self {
        Self { lines: heading.split('\n').map(str::to_owned).collect(), part }
    }
}

impl Entry {
    pub(crate) fn new(lines: impl IntoIterator<Item = String>) -> Self {
        Self { lines: lines.into_iter().collect(), tone: Tone::Neutral }
    }

    /// What does not apply, or could not be measured.
    pub(crate) fn absent() -> Self {
        Self::new(["–".to_owned()])
    }
}

impl<'a> StratumView<'a> {
    /// Every cell, the baseline first.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a CellAnalysis> {
        std::iter::once(self.baseline).chain(self.treatments.iter().copied())
    }

    pub(crate) fn cell(&self) -> &'a Cell {
        &self.baseline.cell
    }

    /// Whether any cell has enough blocks for an interval. Where none has, headings say so for all of them.
    pub(crate) fn has_intervals(&self) -> bool {
        self.cells().any(|cell| cell.metrics.values().any(|estimate| estimate.interval().is_some()))
    }

    /// Whether its interval, or that it has none, stands beside a value in a table.
    pub(crate) fn tells_interval(&self, estimate: &Estimate) -> bool {
        estimate.interval().is_some() || self.has_intervals()
    }

    /// What a cell is here: a treatment among the paths may be the baseline among the authentications.
    pub(crate) fn role(&self, cell: &CellAnalysis) -> Role {
        if cell.id == self.baseline.id { Role::Baseline } else { Role::Treatment }
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

    /// What the heading above its sentences names.
    pub(crate) fn heading_factors(&self) -> Vec<Factor> {
        names::context_factors(self.report.plan, self.plan, &self.rows)
    }

    pub(crate) fn name(&self) -> String {
        names::stratum(self.report.plan, self.plan, &self.rows)
    }
}

/// What was left out, by reason, each with the ids that it holds for.
///
/// A server of which nothing is left is named by itself, with the number of its cells.
pub(crate) fn by_reason<'a>(
    plan: &Plan,
    skipped: impl IntoIterator<Item = &'a Skipped>,
) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<&Skipped>)> = Vec::new();
    for one in skipped {
        let reason = clean(&one.reason);
        match all.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, alike)) => alike.push(one),
            None => all.push((reason, vec![one])),
        }
    }
    let servers: Vec<String> = plan.servers().into_iter().map(ServerLevel::short_name).collect();
    all.into_iter().map(|(reason, alike)| (reason, without_absent(&servers, &alike))).collect()
}

/// Cells of a server that the plan does not have are counted, not listed.
fn without_absent(present: &[String], skipped: &[&Skipped]) -> Vec<String> {
    let mut told: Vec<(String, u64)> = Vec::new();
    for Skipped { id, server, .. } in skipped {
        let absent = server.as_ref().filter(|server| !present.contains(server));
        let name = absent.map_or_else(|| clean(id), |server| format!("all of {}", clean(server)));
        match told.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => told.push((name, 1)),
        }
    }
    let line = |(name, count)| if count > 1 { format!("{name} ({})", plural(count, "cell")) } else { name };
    told.into_iter().map(line).collect()
}

/// Why drivers are not compared by a workload that several do.
pub(crate) fn unlike(plan: &Plan) -> Vec<String> {
    let line = |unlike: &Unlike| {
        let Unlike { driver, workload, reason } = unlike;
        format!("Drivers are not compared by {workload}: by {driver}, {}.", clean(reason))
    };
    plan.unlike.iter().map(line).collect()
}

/// The plan's strata beside what was found in them.
pub(crate) fn strata<'a>(report: &'a RunReport<'a>) -> Vec<StratumView<'a>> {
    let RunReport { plan, analysis, .. } = report;
    let find = |plan: &'a Plan, index: usize| {
        let id = plan.cells.get(index)?.id();
        analysis.cells.iter().find(|cell| cell.id == id)
    };
    let view = |(stratum, analysed): (&'a Stratum, &'a StratumAnalysis)| {
        Some(StratumView {
            report,
            plan: stratum,
            analysis: analysed,
            baseline: find(plan, stratum.baseline)?,
            treatments: match stratum.factor {
                Some(_) => analysed.also_compared.iter().collect(),
                None => stratum.treatments.iter().filter_map(|&index| find(plan, index)).collect(),
            },
            rows: names::row_factors(plan, stratum),
        })
    };
    plan.strata.iter().zip(&analysis.strata).filter_map(view).collect()
}

/// As a sentence begins.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// Text that others wrote (a server's error message), without what could steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.trim_end_matches(['.', '\n']).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
