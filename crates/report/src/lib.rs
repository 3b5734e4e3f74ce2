//! Reports, made only from the record: the same plan, events and analysis give the same bytes.
//!
//! Data become a view model of strings and tones (`view`), which `terminal`, `html` and `markdown` lay
//! out; `chart` draws it with the shapes of `svg`. `document` and `csv` are the same run for machines. No
//! clock, no I/O, no environment variable.

mod chart;
mod comparison;
mod csv;
mod document;
mod html;
mod markdown;
mod markup;
mod names;
mod number;
mod plan;
mod sentence;
mod subject;
mod svg;
mod terminal;
mod view;

use ciphertoll_model::{Ending, Environment, Event, Plan, Skipped, TimestampedEvent};
use ciphertoll_stats::Analysis;

pub use comparison::{ChangeDocument, ComparisonDocument, ComparisonReport, comparison, comparison_json};
pub use csv::{Plot, csv};
pub use document::{
    CellDocument, Document, FlagDocument, LegDocument, PrimitivesDocument, PublishedDocument, TollDocument,
    VerdictDocument, VoidedDocument, json, json_schema,
};
pub use html::html;
pub use markdown::markdown;
pub use plan::{dry_run, plan_summary};
pub use view::connect_cost::CostPart;

/// A run, as far as its reports need it.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// Name of the run's directory.
    pub run: &'a str,
    /// Version of the ciphertoll that reports.
    pub tool_version: &'a str,
    /// What was to be done.
    pub plan: &'a Plan,
    /// What happened.
    pub events: &'a [TimestampedEvent],
    /// What the numbers say.
    pub analysis: &'a Analysis,
}

/// Whether a text may carry ANSI colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With ANSI escapes.
    Colour,
    /// Without.
    Plain,
}

/// The report for a person at a terminal of `width` columns; ends in a newline.
pub fn terminal(report: &RunReport<'_>, style: Style, width: u16) -> String {
    terminal::render(&view::View::of(report), style, width)
}

impl<'a> RunReport<'a> {
    /// How the run ended; a resumed run ends more than once, and the last one counts.
    fn ending(&self) -> Option<Ending> {
        self.events.iter().rev().find_map(|stamped| match stamped.event {
            Event::Finished { ending } => Some(ending),
            _ => None,
        })
    }

    fn environment(&self) -> Option<&'a Environment> {
        self.events.iter().rev().find_map(|stamped| match &stamped.event {
            Event::EnvironmentSeen { environment } => Some(environment),
            _ => None,
        })
    }

    /// The version a server gave when it was last started.
    fn server_version(&self, server: &str) -> Option<&'a str> {
        self.events.iter().rev().find_map(|stamped| match &stamped.event {
            Event::ServerReady { server: name, version, .. } if name == server => Some(version.as_str()),
            _ => None,
        })
    }

    /// What the program of a tunnel or a proxy said that it is; none where it did not.
    fn program_version(&self, path: ciphertoll_model::Path) -> Option<&'a str> {
        let versions = self.events.iter().rev().filter_map(|stamped| match &stamped.event {
            Event::TunnelTried { path: tried, version, .. }
            | Event::ProxyTried { path: tried, version, .. }
                if *tried == path =>
            {
                Some(version.as_str())
            }
            _ => None,
        });
        versions.into_iter().find(|version| !version.is_empty())
    }

    /// Whether anything was measured often enough to have an interval.
    fn has_numbers(&self) -> bool {
        self.analysis.cells.iter().any(|cell| cell.metrics.values().any(number::is_certain))
    }

    /// What was asked and not measured: known before the run, or found out in it.
    fn skipped(&self) -> Vec<&'a Skipped> {
        let in_the_run = self.events.iter().filter_map(|stamped| match &stamped.event {
            Event::CellSkipped { skipped } => Some(skipped),
            _ => None,
        });
        let mut all: Vec<&Skipped> = Vec::new();
        for skipped in self.plan.skipped.iter().chain(in_the_run) {
            // A resumed run finds the same cell unmeasurable again.
            if !all.contains(&skipped) {
                all.push(skipped);
            }
        }
        all
    }
}
