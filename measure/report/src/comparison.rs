//! The comparison of two runs: a summary with a table, and a JSON document.

use ciphertoll_model::{CellId, Metric, Plan, SCHEMA_VERSION};
use ciphertoll_stats::{Change, ChangeVerdict, Estimate, RunComparison};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cost_ratio::{self, noun};
use crate::number::{effect, percent, plural, ratio_with_interval};
use crate::terminal;
use crate::view::{Tone, clean};

/// The input of [`comparison`] and [`comparison_json`].
#[derive(Clone, Copy, Debug)]
pub struct ComparisonReport<'a> {
    /// Name of the base run.
    pub base: &'a str,
    /// Name of the new run.
    pub new: &'a str,
    /// The plans of base and new run.
    pub plans: [&'a Plan; 2],
    pub comparison: &'a RunComparison,
}

/// The comparison for a terminal of `width` columns; ends in a newline.
pub fn comparison(report: &ComparisonReport<'_>, width: u16) -> String {
    let ComparisonReport { base, new, plans, comparison } = *report;
    let mut lines = vec![format!("Costs of {} compared with {}", clean(new), clean(base)), String::new()];
    lines.extend(terminal::wrap(&summary(comparison), usize::from(width)));
    for DifferingCondition { name, base, new } in conditions(plans) {
        let line = format!("Different conditions: {name} {}, before {}.", clean(&new), clean(&base));
        lines.extend(terminal::wrap(&line, usize::from(width)));
    }
    let rows: Vec<[String; COLUMNS]> = comparison.changes.iter().map(row).collect();
    let mut last: Option<String> = None;
    for (change, row) in comparison.changes.iter().zip(&rows) {
        let heading = heading(change);
        if last.as_ref() != Some(&heading) {
            lines.extend([String::new(), heading.clone()]);
            last = Some(heading);
        }
        lines.push(format!("  {}", aligned(row, &rows)));
    }
    for (cells, run) in [(&comparison.only_in_base, base), (&comparison.only_in_new, new)] {
        lines.extend(cells.iter().map(|cell| format!("only in {}: {}", clean(run), clean(&cell.0))));
    }
    lines.join("\n") + "\n"
}

/// The cell, and its baseline if it is not the run's own.
fn heading(change: &Change) -> String {
    let id = clean(&change.id.0);
    match change.factor {
        None => id,
        Some(factor) => {
            format!("{id}, {} compared with {}", factor.label(), clean(&change.compared_with.0))
        }
    }
}

fn conditions(plans: [&Plan; 2]) -> Vec<DifferingCondition> {
    let settings: fn(&Plan) -> String = |plan| match crate::view::plan::settings(plan) {
        settings if settings.is_empty() => "default".to_owned(),
        settings => settings,
    };
    let condition =
        |name, of: fn(&Plan) -> String| DifferingCondition { name, base: of(plans[0]), new: of(plans[1]) };
    let conditions =
        [condition("settings", settings), condition("storage", |plan| plan.storage.to_string())].into_iter();
    conditions.filter(|condition| condition.base != condition.new).collect()
}

/// `6 ratios: 1 worse, 5 the same within the margin.`
fn summary(comparison: &RunComparison) -> String {
    let all = comparison.changes.len();
    if all == 0 {
        return "The two runs have no comparison in common.".to_owned();
    }
    let word = |verdict| match verdict {
        ChangeVerdict::Regression => "worse",
        ChangeVerdict::Improvement => "better",
        ChangeVerdict::SameWithin { .. } | ChangeVerdict::Negligible { .. } => "the same within the margin",
        ChangeVerdict::Inconclusive { .. } => "inconclusive",
    };
    let part = |kind: &str| {
        let count = comparison.changes.iter().filter(|change| word(change.verdict) == kind).count();
        (count > 0).then(|| format!("{count} {kind}"))
    };
    let kinds = ["worse", "better", "the same within the margin", "inconclusive"];
    let parts: Vec<String> = kinds.into_iter().filter_map(part).collect();
    format!("{}: {}.", plural(all as u64, "ratio"), parts.join(", "))
}

/// Mark, metric, ratio before, ratio now, now ÷ before, verdict.
const COLUMNS: usize = 6;

fn row(change: &Change) -> [String; COLUMNS] {
    let (word, tone) = match change.ratio.interval() {
        Some(_) => verdict(change.verdict),
        // The smallest detectable difference of so few blocks is meaningless.
        None => (format!("inconclusive ({})", plural(u64::from(change.ratio.blocks), "block")), Tone::Unsure),
    };
    let cost = |ratio| cost_ratio::cost(change.metric, ratio);
    [
        tone.mark().to_owned(),
        noun(change.metric).to_owned(),
        format!("before {}", ratio_with_interval(&cost(&change.base))),
        format!("now {}", ratio_with_interval(&cost(&change.new))),
        format!("now ÷ before {}", ratio_with_interval(&cost(&change.ratio))),
        word,
    ]
}

/// The row's entries, each as wide as the widest of its column.
fn aligned(row: &[String; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let entries = row.iter().enumerate().map(|(column, entry)| format!("{entry:<0$}", width(column)));
    entries.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn verdict(verdict: ChangeVerdict) -> (String, Tone) {
    match verdict {
        ChangeVerdict::Regression => ("worse".to_owned(), Tone::Worse),
        ChangeVerdict::Improvement => ("better".to_owned(), Tone::Better),
        ChangeVerdict::SameWithin { margin } => (format!("same ±{}", percent(margin)), Tone::Same),
        ChangeVerdict::Negligible { .. } => ("negligible".to_owned(), Tone::Negligible),
        ChangeVerdict::Inconclusive { smallest_detectable_change } => {
            let smallest = effect(smallest_detectable_change);
            (format!("inconclusive (smallest detectable change: {smallest})"), Tone::Unsure)
        }
    }
}

/// The comparison of two runs as JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComparisonDocument {
    /// Version of this format.
    pub schema_version: u32,
    /// Name of the base run.
    pub base: String,
    /// Name of the new run.
    pub new: String,
    /// Conditions that differ between the runs: changes may be due to them.
    pub conditions: Vec<DifferingCondition>,
    /// Every headline ratio that both runs have.
    pub changes: Vec<ChangeDocument>,
    /// Cells with a comparison that only the base run has.
    pub only_in_base: Vec<CellId>,
    /// Cells with a comparison that only the new run has.
    pub only_in_new: Vec<CellId>,
}

/// A condition that applies to all cells of a run and differs between the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DifferingCondition {
    /// `settings` or `storage`.
    pub name: &'static str,
    /// Its value in the base run.
    pub base: String,
    /// Its value in the new run.
    pub new: String,
}

/// The change of one ratio.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeDocument {
    /// The compared cell.
    pub id: CellId,
    /// The cell that it is compared with in the new run.
    pub compared_with: CellId,
    /// The metric.
    pub metric: Metric,
    /// The ratio in the base run.
    pub base: Estimate,
    /// The ratio in the new run.
    pub new: Estimate,
    /// New ÷ base.
    pub ratio: Estimate,
    /// Holm-adjusted over all changes.
    pub p_adjusted: f64,
    /// `regression`, `improvement`, `negligible`, `same`, `inconclusive`.
    pub verdict: &'static str,
}

/// The comparison as one JSON document.
pub fn comparison_json(report: &ComparisonReport<'_>) -> Result<String, serde_json::Error> {
    let RunComparison { changes, only_in_base, only_in_new } = report.comparison;
    let change = |change: &Change| ChangeDocument {
        id: change.id.clone(),
        compared_with: change.compared_with.clone(),
        metric: change.metric,
        base: change.base,
        new: change.new,
        ratio: change.ratio,
        p_adjusted: change.p_adjusted,
        verdict: match change.verdict {
            ChangeVerdict::Regression => "regression",
            ChangeVerdict::Improvement => "improvement",
            ChangeVerdict::Negligible { .. } => "negligible",
            ChangeVerdict::SameWithin { .. } => "same",
            ChangeVerdict::Inconclusive { .. } => "inconclusive",
        },
    };
    serde_json::to_string_pretty(&ComparisonDocument {
        schema_version: SCHEMA_VERSION,
        base: report.base.to_owned(),
        new: report.new.to_owned(),
        conditions: conditions(report.plans),
        changes: changes.iter().map(change).collect(),
        only_in_base: only_in_base.clone(),
        only_in_new: only_in_new.clone(),
    })
}
