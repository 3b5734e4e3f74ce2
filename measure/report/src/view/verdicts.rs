//! The answer in words, and the warnings before it.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Baseline, Ending, Metric, Unlike, Verdicts};
use ciphertoll_stats::{CellAnalysis, Comparison, Verdict, headline_metrics};

use super::{Sentence, SentenceGroup, StratumView, Tone, certainty};
use crate::cost_ratio::{cost, noun_of};
use crate::number::{plural, ratio, ratio_interval};
use crate::{RunReport, names, sentence, subject};

pub(crate) fn title(report: &RunReport<'_>) -> String {
    let (effect, baseline) = match &report.plan.baseline {
        Baseline::Path(path) => ("encryption costs", path.to_string()),
        Baseline::Server(server) => ("the server changes", server.short_name()),
        Baseline::Auth(auth) => ("authentication costs", auth.to_string()),
        Baseline::Ctx(ctx) => ("the TLS context costs", ctx.to_string()),
        Baseline::Driver(driver) => ("the driver changes", driver.to_string()),
        Baseline::AtRest(at_rest) => ("encryption at rest costs", format!("at-rest {at_rest}")),
    };
    let servers: Vec<String> =
        report.plan.servers().into_iter().map(|server| names::server(report, server)).collect();
    format!("What {effect} here: {}, compared with {baseline}", servers.join(" and "))
}

pub(crate) fn banner(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Sentence> {
    let unlike = strata.iter().flat_map(unlike_itself);
    [ending(report), certainty::banner(report), withheld(report)]
        .into_iter()
        .flatten()
        .chain(unlike)
        .collect()
}

pub(crate) fn groups(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<SentenceGroup> {
    groups_of(report, strata, |_, _| true)
}

/// The sentences about the `wanted` cells.
pub(crate) fn groups_of(
    report: &RunReport<'_>,
    strata: &[StratumView<'_>],
    wanted: impl Fn(&StratumView<'_>, &CellAnalysis) -> bool,
) -> Vec<SentenceGroup> {
    let mut groups: Vec<SentenceGroup> = Vec::new();
    if report.analysis.blocks_completed <= 1 && !report.has_numbers() {
        return groups;
    }
    for stratum in strata {
        let context = names::context(report.plan, stratum.plan, &stratum.rows).join(", ");
        let heading = (!context.is_empty()).then_some(context);
        let wanted = stratum.treatments.iter().filter(|comparison| wanted(stratum, &comparison.cell));
        let mut sentences: Vec<Sentence> = wanted.map(|comparison| sentence(stratum, comparison)).collect();
        if let (Some(first), Some(reminder)) = (sentences.first_mut(), reminder(stratum)) {
            first.text.push_str(&reminder);
        }
        // Strata of one context need not be adjacent.
        match groups.iter_mut().find(|group| group.heading == heading) {
            Some(group) => group.sentences.extend(sentences),
            None => groups.push(SentenceGroup { heading, sentences }),
        }
    }
    groups.retain(|group| !group.sentences.is_empty());
    groups
}

fn sentence(stratum: &StratumView<'_>, comparison: &Comparison) -> Sentence {
    let cell = &comparison.cell;
    sentence::treatment(stratum, comparison).unwrap_or_else(|| {
        let subject = subject::subject(&cell.cell, &stratum.rows, &stratum.heading_factors());
        let skipped = stratum.report.facts.skipped.iter().find(|skipped| skipped.id == cell.id.0);
        let text = match skipped {
            Some(skipped) => format!("{subject}: not measured, {}.", super::clean(&skipped.reason)),
            None if !cell.voided.is_empty() && cell.metrics.is_empty() => {
                format!("{subject}: no result, every trial was voided (reasons below).")
            }
            None if !comparison.ratios.is_empty() => {
                format!("{subject}: no result yet, one block has no interval.")
            }
            None => format!("{subject}: no result, no block has valid trials of both it and its baseline."),
        };
        Sentence::new(Tone::Unsure, text)
    })
}

/// The definition of an operation that differs from that of other drivers.
fn reminder(stratum: &StratumView<'_>) -> Option<String> {
    let cell = stratum.cell();
    let is_own =
        |unlike: &&Unlike| (&unlike.driver, unlike.workload) == (&cell.treatment.driver, cell.workload);
    let Unlike { driver, workload, reason } = stratum.report.plan.unlike.iter().find(is_own)?;
    Some(format!(" With {driver}, {workload} differs from that of other drivers: {}.", super::clean(reason)))
}

fn ending(report: &RunReport<'_>) -> Option<Sentence> {
    let how = match report.facts.ending {
        Some(Ending::Complete) => return None,
        Some(Ending::Interrupted) => "Interrupted",
        Some(Ending::Terminated) => "Terminated",
        Some(Ending::Failed) => "Stopped by an error",
        None => "Unfinished",
    };
    let (done, planned) = (report.analysis.blocks_completed, report.plan.counted_blocks());
    let text = format!(
        "{how} after {done} of {}. The results so far are kept and shown here.",
        plural(u64::from(planned), "block"),
    );
    Some(Sentence::caution(text))
}

/// Why there are no verdicts.
fn withheld(report: &RunReport<'_>) -> Option<Sentence> {
    let done = report.analysis.blocks_completed;
    let text = match report.plan.verdicts {
        _ if done == 1 && !report.has_numbers() => {
            "No results yet: one block has no interval, and a number without an interval is not printed."
                .to_owned()
        }
        _ if done == 0 => "No results: no block was completed.".to_owned(),
        Verdicts::Withheld => format!(
            "No verdicts: separating a cost from noise takes {MIN_BLOCKS_FOR_VERDICTS} blocks, and this run has {done}. \
             The numbers show that it works, and their order of magnitude.",
        ),
        Verdicts::Rendered if done < MIN_BLOCKS_FOR_VERDICTS => format!(
            "No verdicts yet: separating a cost from noise takes {MIN_BLOCKS_FOR_VERDICTS} blocks, and this run has {done}.",
        ),
        Verdicts::Rendered => return None,
    };
    Some(Sentence::caution(text))
}

/// A baseline that differs from itself: the cause may affect every other number too.
fn unlike_itself(stratum: &StratumView<'_>) -> Vec<Sentence> {
    let line = |metric: &Metric| {
        let repeat = stratum.repeat?.ratios.get(metric)?;
        let cost = cost(*metric, &repeat.ratio);
        (repeat.verdict == Some(Verdict::Differs)).then(|| {
            let text = format!(
                "{}: the second copy of {} has {} × the {} of the first ({}). Something else changes \
                 from trial to trial: repeat this run before relying on it.",
                stratum.name(),
                stratum.baseline_label(),
                ratio(&cost),
                noun_of(*metric, stratum.cell().workload),
                ratio_interval(&cost),
            );
            Sentence::caution(text)
        })
    };
    headline_metrics(stratum.cell()).iter().filter_map(line).collect()
}
