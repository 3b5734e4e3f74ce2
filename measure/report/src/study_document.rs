//! The published study of a run, as a part of the JSON document.

use schemars::JsonSchema;
use serde::Serialize;

use crate::RunReport;
use crate::view::published::{self, StudyRow, StudyView, Tested};

/// A published study compared with the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyDocument {
    /// The preset.
    pub name: &'static str,
    /// Who, on what machine, what was asked, what was found, what was advised.
    pub told: [&'static str; 5],
    /// Every published number, for each server.
    pub numbers: Vec<StudyNumberDocument>,
    /// The authors' conclusions.
    pub conclusions: Vec<ConclusionDocument>,
}

/// A published number and the same number here.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StudyNumberDocument {
    /// The server here.
    pub server: String,
    /// The configuration in the study's words.
    pub configuration: String,
    /// As printed, with its unit.
    pub published: String,
    /// The published cost: time per operation ÷ that of the study's baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_cost: Option<f64>,
    /// The cost here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// `agree`, `differ` or `not comparable`.
    pub comparison: &'static str,
    /// Why.
    pub reason: String,
}

/// A conclusion of the authors.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConclusionDocument {
    /// The conclusion.
    pub said: &'static str,
    /// The server here; absent if there is only one, or if no server can test it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// `holds here`, `does not hold here` or `not tested`.
    pub standing: &'static str,
    /// Why.
    pub reason: String,
}

pub(crate) fn of_report(report: &RunReport<'_>) -> Option<StudyDocument> {
    let StudyView { preset, rows, .. } = published::of_report(report)?;
    let study = preset.study.as_ref()?;
    let conclusion = |Tested { said, server, standing, reason }: Tested| ConclusionDocument {
        said,
        server,
        standing: standing.label(),
        reason,
    };
    Some(StudyDocument {
        name: preset.name,
        told: study.sentences,
        conclusions: published::tested(report, study, &rows).into_iter().map(conclusion).collect(),
        numbers: rows.into_iter().flatten().map(number).collect(),
    })
}

fn number(row: StudyRow<'_>) -> StudyNumberDocument {
    StudyNumberDocument {
        server: row.server.short_name(),
        published_cost: row.published_cost().map(|(cost, _)| cost),
        cost: row.cost().map(|cost| cost.value),
        comparison: row.agreement.label(),
        configuration: row.number.subject,
        published: row.number.printed,
        reason: row.reason,
    }
}
