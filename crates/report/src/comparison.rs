//! What two runs say of each other: a line of words, a table, and the same for machines.

use ciphertoll_model::{CellId, Metric, Plan, SCHEMA_VERSION};
use ciphertoll_stats::{Change, ChangeVerdict, Comparison, Estimate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::number::{effect, percent, plural, ratio_with_interval};
use crate::view::{Tone, clean};
use crate::{sentence, terminal};

/// Two runs and what they say of each other.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonReport<'a> {
    /// Name of the run that is compared with.
    pub base: &'a str,
    /// Name of the run that is compared.
    pub new: &'a str,
    /// What was asked of each, in the same order.
    pub plans: [&'a Plan; 2],
    /// What they say.
    pub comparison: &'a Comparison,
}

/// The comparison for a person at a terminal of `width` columns; ends in a newline.
pub fn comparison(report: &ComparisonReport<'_>, width: u16) -> String {
    let ComparisonReport { base, new, plans, comparison } = *report;
    let mut lines = vec![format!("Tolls of {} against those of {}", clean(new), clean(base)), String::new()];
    lines.extend(terminal::wrap(&summary(comparison), usize::from(width)));
    for Condition { name, base, new } in conditions(plans) {
        let line = format!("Not under the same conditions: {name} {}, before {}.", clean(&new), clean(&base));
        lines.extend(terminal::wrap(&line, usize::from(width)));
    }
    let rows: Vec<[String; COLUMNS]> = comparison.changes.iter().map(row).collect();
    let mut last = None;
    for (change, row) in comparison.changes.iter().zip(&rows) {
        if last != Some(&change.id) {
            lines.extend([String::new(), clean(&change.id.0)]);
            last = Some(&change.id);
        }
        lines.push(format!("  {}", aligned(row, &rows)));
    }
    for (cells, run) in [(&comparison.only_in_base, base), (&comparison.only_in_new, new)] {
        lines.extend(cells.iter().map(|cell| format!("only in {}: {}", clean(run), clean(&cell.0))));
    }
    lines.join("\n") + "\n"
}

/// What was the same for all cells of a run, and is not the same in both.
fn conditions(plans: [&Plan; 2]) -> Vec<Condition> {
    let settings: fn(&Plan) -> String = |plan| match crate::plan::settings(plan) {
        said if said.is_empty() => "as they come".to_owned(),
        said => said,
    };
    let condition = |name, of: fn(&Plan) -> String| Condition { name, base: of(plans[0]), new: of(plans[1]) };
    let conditions =
        [condition("settings", settings), condition("storage", |plan| plan.storage.to_string())].into_iter();
    conditions.filter(|condition| condition.base != condition.new).collect()
}

/// `1 of 6 tolls has become worse, 5 are the same within the margins.`
fn summary(comparison: &Comparison) -> String {
    let all = comparison.changes.len();
    if all == 0 {
        return "The two runs have no toll in common: nothing can be compared.".to_owned();
    }
    let count = |is: fn(ChangeVerdict) -> bool| {
        comparison.changes.iter().filter(|change| is(change.verdict)).count() as u64
    };
    let kinds = [
        (count(|verdict| verdict == ChangeVerdict::Regression), "worse"),
        (count(|verdict| verdict == ChangeVerdict::Improvement), "better"),
        (
            count(|verdict| {
                matches!(verdict, ChangeVerdict::SameWithin { .. } | ChangeVerdict::Negligible { .. })
            }),
            "the same within the margin",
        ),
        (count(|verdict| matches!(verdict, ChangeVerdict::Inconclusive { .. })), "not to be told"),
    ];
    let parts: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    format!("{}: {}.", plural(all as u64, "toll"), parts.join(", "))
}

/// Mark, metric, toll before, toll now, what the one is of the other, verdict.
const COLUMNS: usize = 6;

fn row(change: &Change) -> [String; COLUMNS] {
    let toll = |estimate: &Estimate| ratio_with_interval(estimate);
    let (word, tone) = match change.ratio.interval() {
        Some(_) => verdict(change.verdict),
        // What a t test of so few blocks would have seen says nothing.
        None => (format!("can't tell ({})", plural(u64::from(change.ratio.blocks), "block")), Tone::Unsure),
    };
    [
        tone.mark().to_owned(),
        sentence::noun(change.metric).to_owned(),
        format!("before {}", toll(&change.base)),
        format!("now {}", toll(&change.new)),
        format!("now ÷ before {}", toll(&change.ratio)),
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
        ChangeVerdict::Inconclusive { smallest_visible_change } => {
            (format!("can't tell below {}", effect(smallest_visible_change)), Tone::Unsure)
        }
    }
}

/// A comparison for machines.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComparisonDocument {
    /// Version of this format.
    pub schema_version: u32,
    /// Name of the run that is compared with.
    pub base: String,
    /// Name of the run that is compared.
    pub new: String,
    /// What was not the same for all of both: whatever has changed may have changed for that.
    pub conditions: Vec<Condition>,
    /// Every headline toll that both have.
    pub changes: Vec<ChangeDocument>,
    /// Cells of the base run only.
    pub only_in_base: Vec<CellId>,
    /// Cells of the new run only.
    pub only_in_new: Vec<CellId>,
}

/// What was the same for all cells of a run, and is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// `settings` or `storage`.
    pub name: &'static str,
    /// What it was in the base run.
    pub base: String,
    /// What it is in the new run.
    pub new: String,
}

/// One toll, then and now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeDocument {
    /// The cell.
    pub id: CellId,
    /// The metric.
    pub metric: Metric,
    /// The toll in the base run.
    pub base: Estimate,
    /// The toll in the new run.
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
    let Comparison { changes, only_in_base, only_in_new } = report.comparison;
    let change = |change: &Change| ChangeDocument {
        id: change.id.clone(),
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
