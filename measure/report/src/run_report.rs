//! The input of every report format.

use ciphertoll_model::Plan;
use ciphertoll_stats::{Analysis, RunFacts};

use crate::number::is_certain;

/// The input of every report format.
#[derive(Debug)]
pub struct RunReport<'a> {
    /// Name of the run's directory.
    pub run: &'a str,
    pub plan: &'a Plan,
    pub facts: RunFacts<'a>,
    pub analysis: &'a Analysis,
    /// Price of one core per month.
    pub core_price: Option<f64>,
}

/// Whether text output may contain ANSI colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Colour,
    Plain,
}

impl<'a> RunReport<'a> {
    /// The version of ciphertoll that measured.
    pub(crate) fn tool_version(&self) -> &'a str {
        self.facts.tool_version.unwrap_or("unknown")
    }

    /// Whether anything was measured often enough to have an interval.
    pub(crate) fn has_numbers(&self) -> bool {
        self.analysis.cells().iter().any(|cell| cell.metrics.values().any(is_certain))
    }
}
