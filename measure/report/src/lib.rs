//! Reports, made only from the record: the same plan, facts and analysis give the same bytes.
//!
//! `view` turns data into a view model of sentences and tables, which `terminal`, `html` and `markdown` lay out. `chart` draws
//! it with the shapes of `svg`. `document` and `csv` are the machine-readable formats. All of them read the events only through
//! [`ciphertoll_stats::RunFacts`]. No clock, no I/O, no environment variable.
//!
//! What `ciphertoll observe` saw has the same layouts: `observed` turns an [`Observation`](ciphertoll_observe::Observation)
//! into sections, and `html::observation` makes its page.
//!
//! # Where to change what
//!
//! - the lines that end a run: `report::summary`, `report::view::decision`
//! - a sentence of the report: `report::sentence`, `report::subject`
//! - the first screen of the HTML page: `report::html::answer`; its sentence, `report::view::headline`; its matrix,
//!   `report::view::matrix`
//! - the what-if panel of the HTML page: `report::html::what_if` and `assets/what-if.js`, which interpolates
//!   between the predictions of `report::costs::page_model`; a test compares it with `predict`
//! - a column of an observation: `report::observed::pairs` for the page and Markdown, `report::observed::csv`
//! - a plot: `report::chart` from the shapes in `report::svg`, in two widths; its numbers, `report::csv`
//! - the breakdown of connect time: `report::view::connect_cost`; the timed primitives, `experiment::primitives`,
//!   emitted by `experiment::primitives::events`

mod chart;
mod comparison;
mod cost_ratio;
mod costs;
mod csv;
mod document;
mod html;
mod lists;
mod markdown;
mod markup;
mod names;
mod number;
mod observed;
mod plan;
mod run_report;
mod sentence;
mod study_document;
mod subject;
mod summary;
mod svg;
mod terminal;
mod view;

pub use comparison::{ChangeDocument, ComparisonDocument, ComparisonReport, comparison, comparison_json};
pub use costs::{
    AdviceReport, CostReport, advice, advice_json, predictions, predictions_json, terms, terms_json,
};
pub use csv::{Plot, csv};
pub use document::{
    CellDocument, CpuProfileDocument, Document, FlagDocument, LegDocument, PrimitivesDocument,
    PublishedDocument, TollDocument, TrialsDocument, VerdictDocument, VoidedDocument, json, json_schema,
    observation_schema,
};
pub use html::{html, observation_html};
pub use markdown::markdown;
pub use number::significant;
pub use observed::{observation_csv, observation_markdown};
pub use plan::{dry_run, plan_summary};
pub use run_report::{RunReport, Style};
pub use study_document::{ConclusionDocument, StudyDocument, StudyNumberDocument};
pub use summary::summary;
pub use terminal::render as terminal;
pub use view::connect_cost::CostPart;
