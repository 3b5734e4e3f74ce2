//! Reports, made only from the record: the same plan, facts and analysis give the same bytes.
//!
//! `view` turns data into a view model of sentences and tables, which `terminal`, `html` and `markdown` lay out. `chart` draws
//! it with the shapes of `svg`. `document` and `csv` are the machine-readable formats. All of them read the events only through
//! [`RunFacts`]. No clock, no I/O, no environment variable.
//!
//! # Where to change what
//!
//! - the lines that end a run: `report::summary`, `report::view::decision`
//! - a sentence of the report: `report::sentence`, `report::subject`
//! - the first screen of the HTML page: `report::html::answer`; its sentence, `report::view::headline`; its matrix,
//!   `report::view::matrix`
//! - the what-if panel of the HTML page: `report::html::what_if` and `assets/what-if.js`, which interpolates
//!   between the predictions of `report::costs::page_model`; a test compares it with `predict`
//! - a plot: `report::chart` from the shapes in `report::svg`, in two widths; its numbers, `report::csv`
//! - the breakdown of connect time: `report::view::connect_cost`; the timed primitives, `experiment::primitives` and
//!   `experiment::lab_bench::primitives`

mod chart;
mod comparison;
mod costs;
mod csv;
mod document;
mod html;
mod lists;
mod markdown;
mod markup;
mod names;
mod number;
mod plan;
mod sentence;
mod subject;
mod summary;
mod svg;
mod terminal;
mod view;

use ciphertoll_model::Plan;
use ciphertoll_stats::{Analysis, RunFacts};

pub use comparison::{ChangeDocument, ComparisonDocument, ComparisonReport, comparison, comparison_json};
pub use costs::{
    AdviceReport, CostReport, CurrentTransport, advice, advice_json, predictions, predictions_json, terms,
    terms_json,
};
pub use csv::{Plot, csv};
pub use document::{
    CellDocument, Document, FlagDocument, LegDocument, PrimitivesDocument, PublishedDocument, TollDocument,
    VerdictDocument, VoidedDocument, json, json_schema,
};
pub use html::html;
pub use markdown::markdown;
pub use plan::{dry_run, plan_summary};
pub use summary::summary;
pub use view::connect_cost::CostPart;

/// The input of every report format.
#[derive(Debug)]
pub struct RunReport<'a> {
    /// Name of the run's directory.
    pub run: &'a str,
    pub plan: &'a Plan,
    pub facts: RunFacts<'a>,
    pub analysis: &'a Analysis,
}

/// Whether text output may contain ANSI colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Colour,
    Plain,
}

/// The report for a terminal of `width` columns; ends in a newline.
pub fn terminal(report: &RunReport<'_>, style: Style, width: u16) -> String {
    terminal::render(report, style, width)
}

impl<'a> RunReport<'a> {
    /// The version of ciphertoll that measured.
    fn tool_version(&self) -> &'a str {
        self.facts.tool_version.unwrap_or("unknown")
    }

    /// Whether anything was measured often enough to have an interval.
    fn has_numbers(&self) -> bool {
        self.analysis.cells().iter().any(|cell| cell.metrics.values().any(number::is_certain))
    }
}
