//! How far the answer can be trusted: noise, shared cores, dropped trials, what was left out.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_model::{
    Cell, CpuPinning, Environment, Event, Factor, Flag, LookDecision, Metric, NoiseLimits, SecurityLevel,
    TlsPath,
};
use ciphertoll_stats::CellAnalysis;

use super::{Section, Statement, StratumView, Tone, at_rest, capital, clean, crossings, documents};
use crate::number::{effect, is_certain, percent, plural, significant};
use crate::{RunReport, names, sentence};

pub(crate) fn sections(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Section> {
    let mut trust: Vec<Statement> = strata.iter().filter_map(noise).collect();
    trust.extend(robust(strata));
    if report.has_numbers() {
        let elsewhere = report.plan.servers().iter().all(|server| server.url.is_some());
        trust.push(Statement::neutral(match report.plan.pin {
            _ if elsewhere => {
                "From outside: the server was not ours to start, so that only the clients' CPU is known, and the \
                 network in between and whatever else the server did are part of every time."
            }
            CpuPinning::Off => {
                "Whole machine: clients and server share the same cores, so a rate or a time here is what \
                 both cost together. CPU per operation carries over best to other machines."
            }
            CpuPinning::Auto => {
                "Apart: clients and server have processors of their own, half of the machine each (or all, \
                 where there is only one). A rate here is what the server's half can do."
            }
        }));
    }
    // A cell that is compared twice, among paths and among drivers, is told of once.
    let mut told = BTreeSet::new();
    let cells = strata.iter().flat_map(|stratum| stratum.cells().map(move |cell| (stratum, cell)));
    let cells: Vec<_> = cells.filter(|(_, cell)| told.insert(&cell.id.0)).collect();
    trust.extend(at_rest::statements(report));
    trust.extend(crossings::statements(strata));
    trust.extend(documents::statements(report));
    trust.extend(uncached(report));
    trust.extend(allowed_noise(report));
    trust.extend(cells.iter().filter_map(|(stratum, cell)| voided(stratum, cell)));
    trust.extend(cells.iter().flat_map(|(stratum, cell)| flags(stratum, cell)));
    trust.extend(warnings(report));
    trust.extend(lowered(report));
    [("How far to trust this", trust), ("Left out, and why", skipped(report))]
        .into_iter()
        .filter(|(_, notes)| !notes.is_empty())
        .map(|(heading, notes)| Section { heading: heading.to_owned(), table: None, notes })
        .collect()
}

/// What it takes to do it again, in one line.
pub(crate) fn footer(report: &RunReport<'_>) -> String {
    let plan = report.plan;
    let blocks = format!(
        "{} of {}",
        report.analysis.blocks_completed,
        plural(u64::from(plan.counted_blocks()), "block")
    );
    let longer = if plan.longer.is_empty() { "" } else { " (longer over long links)" };
    let trials = format!("trials of {} after {} of warm-up{longer}", plan.timing.window, plan.timing.warm_up);
    let machine = report.environment().map(machine);
    let tool = format!("ciphertoll {}", report.tool_version);
    let settings = (!plan.settings.is_empty()).then(|| format!("settings: {}", crate::plan::settings(plan)));
    let parts = [report.run.to_owned(), tool, format!("seed {}", plan.seed), stopped(report, blocks), trials];
    parts.into_iter().chain(settings).chain(machine).map(|part| clean(&part)).collect::<Vec<_>>().join(" · ")
}

/// Limits that let more noise in than is usual.
fn allowed_noise(report: &RunReport<'_>) -> Vec<Statement> {
    let NoiseLimits { steal, lateness } = report.plan.noise_limits();
    let usual = NoiseLimits::default();
    let caution = |text: String| Statement::new(Tone::Caution, text);
    let stolen = (steal != usual.steal).then(|| {
        let [limit, usual] = [steal, usual.steal].map(|limit| percent(limit.fraction()));
        caution(format!(
            "Trials count here that lost up to {limit} of their CPU time to the hypervisor; usual is {usual}."
        ))
    });
    let has_links = report.plan.cells.iter().any(|cell| cell.treatment.link.shape().is_some());
    let late = (has_links && lateness != usual.lateness).then(|| {
        let [limit, usual] = [lateness, usual.lateness].map(|limit| percent(limit.fraction()));
        caution(format!(
            "Trials count here whose packets were late by up to {limit} of the round trip; usual is {usual}."
        ))
    });
    stolen.into_iter().chain(late).collect()
}

/// Tables that do not fit the buffers: such trials are not void, and their pages come from outside.
fn uncached(report: &RunReport<'_>) -> Vec<Statement> {
    let mut told = BTreeSet::new();
    let settings = &report.plan.settings;
    let larger = report.plan.cells.iter().filter(|cell| !cell.is_meant_to_be_cached(settings));
    let said = larger.filter_map(|cell| {
        let data_to_cache = cell.data_to_cache(settings)?;
        let server = cell.treatment.server.short_name();
        let scale = names::level_in_full(cell, Factor::Scale)?;
        told.insert((server.clone(), cell.workload.to_string(), cell.scale)).then(|| {
            Statement::neutral(format!(
                "{server}, {} with scale {scale}: its tables are about {} × the buffers, and trials that read pages from \
                 outside them count.",
                cell.workload,
                significant(data_to_cache)
            ))
        })
    });
    said.collect()
}

/// What ran below OpenSSL's default strength: a number from there is not one of a server as it should be.
fn lowered(report: &RunReport<'_>) -> Option<Statement> {
    let weak = |cell: &&Cell| {
        let tls = cell.treatment.path.as_tls();
        cell.treatment.server.url.is_none()
            && tls.is_some_and(|tls| tls.security_level() != SecurityLevel::Default)
    };
    let cells: Vec<&Cell> = report.plan.cells.iter().filter(weak).collect();
    let paths: BTreeSet<String> = cells.iter().map(|cell| cell.treatment.path.to_string()).collect();
    let servers: BTreeSet<String> = cells.iter().map(|cell| cell.treatment.server.short_name()).collect();
    let obsolete = cells.iter().filter_map(|cell| cell.treatment.path.as_tls());
    let level =
        i32::from(!obsolete.map(TlsPath::security_level).any(|strength| strength == SecurityLevel::Obsolete));
    let join = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    (!cells.is_empty()).then(|| {
        Statement::new(
            Tone::Caution,
            clean(&format!(
                "Weaker than OpenSSL allows by default: {}. For them the server's process ({}) ran at OpenSSL's \
                 security level {level} throughout, and their clients too; nothing on the system was changed.",
                join(paths),
                join(servers)
            )),
        )
    })
}

fn noise(stratum: &StratumView<'_>) -> Option<Statement> {
    let floors = &stratum.analysis.noise_floor;
    let floor = |metric: &Metric| {
        let floor = floors.get(metric).filter(|floor| floor.is_finite())?;
        Some(format!("{} in {}", effect(*floor), sentence::noun(*metric)))
    };
    let floors: Vec<String> = names::headline(stratum.cell()).iter().filter_map(floor).collect();
    if floors.is_empty() {
        return None;
    }
    let text = format!(
        "{}: two copies of {} differ by up to {} (the noise floor); smaller differences are not claimed.",
        stratum.name(),
        stratum.baseline_label(),
        floors.join(", "),
    );
    Some(Statement::neutral(text))
}

/// Whether a rank estimate, which no single block can carry away, agrees with each headline ratio.
fn robust(strata: &[StratumView<'_>]) -> Vec<Statement> {
    let cells = strata.iter().flat_map(|stratum| stratum.treatments.iter().map(move |cell| (stratum, *cell)));
    let judged: Vec<_> = cells.flat_map(|(stratum, cell)| judged(stratum, cell)).collect();
    if judged.is_empty() {
        return Vec::new();
    }
    let outside: Vec<Statement> = judged.into_iter().flatten().collect();
    if outside.is_empty() {
        let text = "The Hodges–Lehmann estimate of every ratio with a verdict lies within its interval: no \
                    single block carries it.";
        return vec![Statement::neutral(text)];
    }
    outside
}

/// One entry for each ratio with a verdict: what to say where its rank estimate disagrees.
fn judged(stratum: &StratumView<'_>, cell: &CellAnalysis) -> Vec<Option<Statement>> {
    let entry = |metric: &Metric| {
        let toll = cell.tolls.get(metric).filter(|toll| toll.verdict.is_some() && is_certain(&toll.ratio))?;
        let agrees = (toll.ratio.low()..=toll.ratio.high()).contains(&toll.hodges_lehmann);
        Some((!agrees).then(|| {
            let text = format!(
                "{}: the Hodges–Lehmann estimate of the {} ({} ×) lies outside the interval: single blocks \
                 carry the ratio.",
                stratum.cell_name(cell),
                sentence::noun(*metric),
                significant(toll.hodges_lehmann),
            );
            Statement::new(Tone::Caution, text)
        }))
    };
    names::headline(&cell.cell).iter().filter_map(entry).collect()
}

fn voided(stratum: &StratumView<'_>, cell: &CellAnalysis) -> Option<Statement> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for trial in &cell.voided {
        reasons.entry(clean(&trial.reason.to_string())).or_default().push(trial.block.to_string());
    }
    if reasons.is_empty() {
        return None;
    }
    let reason = |(reason, blocks): (String, Vec<String>)| {
        let plural = if blocks.len() == 1 { "" } else { "s" };
        format!("{reason} (block{plural} {})", blocks.join(", "))
    };
    let reasons: Vec<String> = reasons.into_iter().map(reason).collect();
    let text = format!(
        "{}: {} voided: {}.",
        stratum.cell_name(cell),
        plural(cell.voided.len() as u64, "trial"),
        reasons.join("; "),
    );
    Some(Statement::new(Tone::Caution, text))
}

fn flags(stratum: &StratumView<'_>, cell: &CellAnalysis) -> Vec<Statement> {
    let line = |(trials, flag): &(u32, Flag)| {
        let trials = plural(u64::from(*trials), "trial");
        // The number is that of the first such trial: an example, not the worst.
        let what = match flag {
            Flag::Unsteady { second_half_ratio: ratio } => {
                format!("unsteady (as in one whose second half ran at {ratio:.2} × the rate of its first)")
            }
            Flag::CpuElsewhere { share } if *share < 0.0 => overlap(*share),
            Flag::CpuOverlap { share } => overlap(*share),
            Flag::CpuElsewhere { share } => {
                format!(
                    "on a machine that was busy with something else too (as for {} of its CPU time)",
                    percent(*share)
                )
            }
            Flag::DelayedAck => "with a median of 40 ms: Nagle's algorithm met a delayed ACK".to_owned(),
        };
        Statement::new(Tone::Caution, format!("{}: {trials} {what}.", stratum.cell_name(cell)))
    };
    cell.flags.iter().map(line).collect()
}

/// Negative shares of [`Flag::CpuElsewhere`] are of records from before there was a flag of its own.
fn overlap(share: f64) -> String {
    format!(
        "with overlapping CPU attribution (client, server and link claim {} more than the machine was busy)",
        percent(share.abs())
    )
}

fn warnings(report: &RunReport<'_>) -> Vec<Statement> {
    let mut messages: Vec<String> = Vec::new();
    for stamped in report.events {
        if let Event::Warned { message } = &stamped.event
            && !messages.contains(&clean(message))
        {
            messages.push(clean(message));
        }
    }
    messages.into_iter().map(|message| Statement::new(Tone::Caution, capital(&message))).collect()
}

fn skipped(report: &RunReport<'_>) -> Vec<Statement> {
    let line = |(reason, ids): (String, Vec<String>)| {
        Statement::neutral(format!("{}: {}", capital(&reason), ids.join(", ")))
    };
    let cells = super::by_reason(report.plan, report.skipped()).into_iter().map(line);
    cells.chain(super::unlike(report.plan).into_iter().map(Statement::neutral)).collect()
}

/// `6 of 10 blocks (precise enough)`.
pub(crate) fn stopped(report: &RunReport<'_>, blocks: String) -> String {
    let decision = report.events.iter().rev().find_map(|stamped| match stamped.event {
        Event::Looked { decision, .. } => Some(decision),
        _ => None,
    });
    match decision {
        Some(LookDecision::StopPrecise) => format!("{blocks} (precise enough)"),
        Some(LookDecision::StopBudget) => format!("{blocks} (time budget used up)"),
        Some(LookDecision::GoOn | LookDecision::StopPlanned) | None => blocks,
    }
}

fn machine(environment: &Environment) -> String {
    let crypto = super::repeat::crypto(environment);
    let Environment { cpu_model, cpus, memory_bytes, kernel, os, tls_library, cpu_accounting, .. } =
        environment;
    let gibibytes = *memory_bytes as f64 / 1024f64.powi(3);
    format!(
        "{cpus} CPUs of {cpu_model} ({crypto}), {gibibytes:.0} GiB · {os}, {kernel} · {tls_library} · \
         CPU times from {cpu_accounting}"
    )
}
