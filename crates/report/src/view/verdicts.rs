//! The answer in words, and what must be known before it.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Baseline, Ending, Metric, Unlike, Verdicts};
use ciphertoll_stats::{CellAnalysis, Verdict};

use super::{Group, Statement, StratumView, Tone};
use crate::number::{plural, ratio, ratio_interval};
use crate::{RunReport, names, sentence, subject};

pub(crate) fn title(report: &RunReport<'_>) -> String {
    let servers: Vec<String> =
        report.plan.servers().into_iter().map(|server| names::server(report, server)).collect();
    let servers = servers.join(" and ");
    match &report.plan.baseline {
        Baseline::Path(path) => format!("What encryption costs here: {servers}, compared with {path}"),
        Baseline::Server(server) => {
            format!("What the server changes here: {servers}, compared with {}", server.short_name())
        }
        Baseline::Auth(auth) => format!("What authentication costs here: {servers}, compared with {auth}"),
        Baseline::Ctx(ctx) => format!("What the TLS context costs here: {servers}, compared with {ctx}"),
        Baseline::Driver(driver) => {
            format!("What the driver changes here: {servers}, compared with {driver}")
        }
        Baseline::AtRest(at_rest) => {
            format!("What encryption at rest costs here: {servers}, compared with at-rest {at_rest}")
        }
    }
}

pub(crate) fn banner(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Statement> {
    let unlike = strata.iter().flat_map(unlike_itself);
    [ending(report), withheld(report)].into_iter().flatten().chain(unlike).collect()
}

pub(crate) fn groups(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Group> {
    groups_of(report, strata, |_, _| true)
}

/// The sentences about the cells that are `wanted`.
pub(crate) fn groups_of(
    report: &RunReport<'_>,
    strata: &[StratumView<'_>],
    wanted: impl Fn(&StratumView<'_>, &CellAnalysis) -> bool,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    if report.analysis.blocks_completed <= 1 && !report.has_numbers() {
        return groups;
    }
    for stratum in strata {
        let context = names::context(report.plan, stratum.plan, &stratum.rows).join(", ");
        let heading = (!context.is_empty()).then_some(context);
        let treatments = stratum.treatments.iter().filter(|cell| wanted(stratum, cell));
        let mut statements: Vec<Statement> = treatments.map(|cell| statement(stratum, cell)).collect();
        if let (Some(first), Some(reminder)) = (statements.first_mut(), reminder(stratum)) {
            first.text.push_str(&reminder);
        }
        // Workloads alternate between the levels of what the heading names, which is said once.
        match groups.iter_mut().find(|group| group.heading == heading) {
            Some(group) => group.statements.extend(statements),
            None => groups.push(Group { heading, statements }),
        }
    }
    groups.retain(|group| !group.statements.is_empty());
    groups
}

fn statement(stratum: &StratumView<'_>, cell: &CellAnalysis) -> Statement {
    sentence::treatment(stratum, cell).unwrap_or_else(|| {
        let subject = subject::subject(&cell.cell, &stratum.rows, &stratum.heading_factors());
        let skipped = stratum.report.skipped().into_iter().find(|skipped| skipped.id == cell.id.0);
        let text = match skipped {
            Some(skipped) => format!("{subject}: not measured, {}.", super::clean(&skipped.reason)),
            None if !cell.voided.is_empty() && cell.metrics.is_empty() => {
                format!("{subject}: nothing to say, every trial was voided (reasons below).")
            }
            None if !cell.tolls.is_empty() => {
                format!("{subject}: no numbers yet, because one block has no interval.")
            }
            None => format!("{subject}: nothing to say, no block has both it and its baseline."),
        };
        Statement::new(Tone::Unsure, text)
    })
}

/// What an operation is, where it is not what its name says.
fn reminder(stratum: &StratumView<'_>) -> Option<String> {
    let cell = stratum.cell();
    let is_own =
        |unlike: &&Unlike| (&unlike.driver, unlike.workload) == (&cell.treatment.driver, cell.workload);
    let Unlike { driver, workload, reason } = stratum.report.plan.unlike.iter().find(is_own)?;
    Some(format!(" By {driver}, {workload} is something of its own: {}.", super::clean(reason)))
}

fn ending(report: &RunReport<'_>) -> Option<Statement> {
    let how = match report.ending() {
        Some(Ending::Complete) => return None,
        Some(Ending::Interrupted) => "Interrupted",
        Some(Ending::Terminated) => "Terminated",
        Some(Ending::Failed) => "Stopped by an error",
        None => "Unfinished",
    };
    let (done, planned) = (report.analysis.blocks_completed, report.plan.counted_blocks());
    let text = format!(
        "{how} after {done} of {}. What was measured is kept and shown here.",
        plural(u64::from(planned), "block"),
    );
    Some(Statement::new(Tone::Caution, text))
}

/// Why there are numbers and no verdicts, where that is so.
fn withheld(report: &RunReport<'_>) -> Option<Statement> {
    let done = report.analysis.blocks_completed;
    let text = match report.plan.verdicts {
        _ if done == 1 && !report.has_numbers() => {
            "No numbers yet: one block gives no interval, and a number without one is not printed.".to_owned()
        }
        _ if done == 0 => "No block was completed, so there is nothing to report yet.".to_owned(),
        Verdicts::Withheld => format!(
            "No verdicts: {} cannot tell a cost from noise (it takes {MIN_BLOCKS_FOR_VERDICTS}). \
             The numbers show that it works, and their order of magnitude.",
            plural(u64::from(done), "block"),
        ),
        Verdicts::Rendered if done < MIN_BLOCKS_FOR_VERDICTS => format!(
            "No verdicts yet: {} cannot tell a cost from noise (it takes {MIN_BLOCKS_FOR_VERDICTS}).",
            plural(u64::from(done), "block"),
        ),
        Verdicts::Rendered => return None,
    };
    Some(Statement::new(Tone::Caution, text))
}

/// A baseline that differs from itself: whatever makes it do so may be in every other number too.
fn unlike_itself(stratum: &StratumView<'_>) -> Vec<Statement> {
    let line = |metric: &Metric| {
        let repeat = stratum.analysis.repeat.get(metric)?;
        (repeat.verdict == Some(Verdict::Differs)).then(|| {
            let text = format!(
                "{}: the second copy of {} shows {} × the {} of the first ({}). Something else changes \
                 from trial to trial; repeat this run before building on it.",
                stratum.name(),
                stratum.baseline_label(),
                ratio(&repeat.ratio),
                sentence::noun(*metric),
                ratio_interval(&repeat.ratio),
            );
            Statement::new(Tone::Caution, text)
        })
    };
    names::headline(stratum.cell()).iter().filter_map(line).collect()
}
