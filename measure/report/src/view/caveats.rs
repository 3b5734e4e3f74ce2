//! The limits of the answer: noise, shared cores, dropped trials, skipped cells.

use std::collections::BTreeSet;
use std::mem::discriminant;

use ciphertoll_model::{
    Cell, CpuPinning, Environment, Factor, Flag, Metric, NoiseLimits, SecurityLevel, TlsPath,
};
use ciphertoll_stats::{CellAnalysis, Comparison, Estimate, headline_metrics};

use super::{
    Section, Sentence, StratumView, at_rest, capital, certain_ratio, certainty, clean, crossings, documents,
    plan, repeat,
};
use crate::cost_ratio::{cost, noun_of};
use crate::lists::{distinct, grouped};
use crate::number::{effect, percent, plural, significant};
use crate::{RunReport, names};

pub(crate) fn sections(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Section> {
    let mut trust: Vec<Sentence> = strata.iter().filter_map(noise).collect();
    trust.extend(robust(strata));
    if report.has_numbers() {
        let elsewhere = report.plan.servers().iter().all(|server| server.url.is_some());
        trust.push(Sentence::neutral(match report.plan.pin {
            _ if elsewhere => {
                "External servers: only the clients' CPU is known. The network and other work on the server are part \
                 of every latency."
            }
            CpuPinning::Off => {
                "Shared cores: clients and server run on the same cores, so rates and latencies include the cost of \
                 both. CPU per operation is the best guide to other machines."
            }
            CpuPinning::Auto => {
                "Separate cores: clients and server each run on half of the processors (on all of them, if there is only \
                 one). Rates show what the server's half can do."
            }
        }));
    }
    // A cell that is compared with two baselines is listed once.
    let mut listed = BTreeSet::new();
    let cells = strata.iter().flat_map(|stratum| stratum.cells().map(move |cell| (stratum, cell)));
    let cells: Vec<_> = cells.filter(|(_, cell)| listed.insert(&cell.id.0)).collect();
    trust.extend(at_rest::sentences(report));
    trust.extend(crossings::sentences(strata));
    trust.extend(documents::sentences(report));
    trust.extend(uncached(report));
    trust.extend(allowed_noise(report));
    trust.extend(certainty::counts(report));
    trust.extend(voided(&cells));
    trust.extend(flags(&cells));
    trust.extend(warnings(report));
    trust.extend(lowered(report));
    [("How far to trust this", trust), ("Not measured", skipped(report))]
        .into_iter()
        .filter(|(_, notes)| !notes.is_empty())
        .map(|(heading, notes)| Section { heading: heading.to_owned(), table: None, notes })
        .collect()
}

/// Run, version, seed, blocks and machine in one line.
pub(crate) fn footer(report: &RunReport<'_>) -> String {
    let plan = report.plan;
    let blocks = format!(
        "{} of {}",
        report.analysis.blocks_completed,
        plural(u64::from(plan.counted_blocks()), "block")
    );
    let longer = if plan.longer.is_empty() { "" } else { " (longer over long links)" };
    let trials = format!("trials of {} after {} of warm-up{longer}", plan.timing.window, plan.timing.warm_up);
    let machine = report.facts.environment.map(machine);
    let tool = format!("ciphertoll {}", report.tool_version());
    let settings = (!plan.settings.is_empty()).then(|| format!("settings: {}", plan::settings(plan)));
    let parts =
        [report.run.to_owned(), tool, format!("seed {}", plan.seed), repeat::stopped(report, blocks), trials];
    parts.into_iter().chain(settings).chain(machine).map(|part| clean(&part)).collect::<Vec<_>>().join(" · ")
}

/// Noise limits above the default.
fn allowed_noise(report: &RunReport<'_>) -> Vec<Sentence> {
    let NoiseLimits { steal, lateness } = report.plan.noise_limits();
    let usual = NoiseLimits::default();
    let stolen = (steal != usual.steal).then(|| {
        let [limit, usual] = [steal, usual.steal].map(|limit| percent(limit.fraction()));
        Sentence::caution(format!(
            "Trials that lost up to {limit} of their CPU time to the hypervisor count (default: {usual})."
        ))
    });
    let has_links = report.plan.cells.iter().any(|cell| cell.treatment.link.shape().is_some());
    let late = (has_links && lateness != usual.lateness).then(|| {
        let [limit, usual] = [lateness, usual.lateness].map(|limit| percent(limit.fraction()));
        Sentence::caution(format!(
            "Trials whose packets were late by up to {limit} of the round trip count (default: {usual})."
        ))
    });
    stolen.into_iter().chain(late).collect()
}

/// Tables larger than the buffers: their trials count although they read pages from outside.
fn uncached(report: &RunReport<'_>) -> Vec<Sentence> {
    let mut listed = BTreeSet::new();
    let settings = &report.plan.settings;
    let larger = report.plan.cells.iter().filter(|cell| !cell.is_meant_to_be_cached(settings));
    let said = larger.filter_map(|cell| {
        let data_to_cache = cell.data_to_cache(settings)?;
        let server = cell.treatment.server.short_name();
        let scale = names::level_in_full(cell, Factor::Scale)?;
        listed.insert((server.clone(), cell.workload.to_string(), cell.scale)).then(|| {
            Sentence::neutral(format!(
                "{server}, {} with scale {scale}: the tables are about {} × the buffers, and trials that read pages from \
                 outside the buffers count.",
                cell.workload,
                significant(data_to_cache)
            ))
        })
    });
    said.collect()
}

/// Paths below OpenSSL's default security level: their numbers are not those of a properly configured server.
fn lowered(report: &RunReport<'_>) -> Option<Sentence> {
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
        Sentence::caution(clean(&format!(
            "Weaker than OpenSSL allows by default: {}. The server process ({}) ran at OpenSSL's security level \
             {level} throughout the run, and so did the clients of these paths. No system setting was changed.",
            join(paths),
            join(servers)
        )))
    })
}

fn noise(stratum: &StratumView<'_>) -> Option<Sentence> {
    let floor = |metric: &Metric| {
        let floor = stratum.noise_floor_of(*metric)?;
        Some(format!("{} in {}", effect(floor), noun_of(*metric, stratum.cell().workload)))
    };
    let floors: Vec<String> = headline_metrics(stratum.cell()).iter().filter_map(floor).collect();
    if floors.is_empty() {
        return None;
    }
    let text = format!(
        "{}: the noise floor is {} ({} measured against itself). Smaller differences are not claimed.",
        stratum.name(),
        floors.join(", "),
        stratum.baseline_label(),
    );
    Some(Sentence::neutral(text))
}

/// Whether a rank estimate, which is robust against single blocks, agrees with each headline ratio.
fn robust(strata: &[StratumView<'_>]) -> Vec<Sentence> {
    let judged: Vec<_> = strata
        .iter()
        .flat_map(|stratum| stratum.treatments.iter().flat_map(move |comparison| judged(stratum, comparison)))
        .collect();
    if judged.is_empty() {
        return Vec::new();
    }
    let outside: Vec<Sentence> = judged.into_iter().flatten().collect();
    if outside.is_empty() {
        let text = "The Hodges–Lehmann estimate of every ratio with a verdict lies within its interval: no single \
                    block dominates it.";
        return vec![Sentence::neutral(text)];
    }
    outside
}

/// One entry for each ratio with a verdict: a sentence if its rank estimate disagrees.
fn judged(stratum: &StratumView<'_>, comparison: &Comparison) -> Vec<Option<Sentence>> {
    let entry = |metric: &Metric| {
        let ratio = certain_ratio(comparison, *metric).filter(|ratio| ratio.verdict.is_some())?;
        let agrees = (ratio.ratio.low()..=ratio.ratio.high()).contains(&ratio.hodges_lehmann);
        let of_ranks = Estimate { value: ratio.hodges_lehmann, ci_low: None, ci_high: None, blocks: 0 };
        let of_ranks = cost(*metric, &of_ranks).value;
        Some((!agrees).then(|| {
            let text = format!(
                "{}: the Hodges–Lehmann estimate of the {} ({} ×) lies outside the interval: single blocks dominate \
                 the ratio.",
                stratum.cell_name(&comparison.cell),
                noun_of(*metric, comparison.cell.cell.workload),
                significant(of_ranks),
            );
            Sentence::caution(text)
        }))
    };
    headline_metrics(&comparison.cell.cell).iter().filter_map(entry).collect()
}

/// Configurations named in a sentence about a cause.
const NAMED_CONFIGURATIONS: usize = 3;

type NamedCell<'a, 'b> = (&'a StratumView<'b>, &'a CellAnalysis);

/// Voided trials, a sentence for each cause.
fn voided(cells: &[NamedCell<'_, '_>]) -> Vec<Sentence> {
    let all = cells.iter().flat_map(|(stratum, cell)| {
        let reasons = cell.voided.iter().map(|trial| &trial.reason);
        reasons.map(move |reason| {
            (discriminant(reason), (stratum.cell_name(cell), 1, clean(&reason.to_string())))
        })
    });
    let sentence = |trials: Vec<(String, u32, String)>| {
        let reason = trials.first().map_or("", |(.., reason)| reason);
        let is_common = trials.iter().all(|(.., other)| other == reason);
        let example = if is_common { "" } else { "for example: " };
        Sentence::caution(format!(
            "{} voided ({example}{reason}): {}.",
            total(&trials),
            by_configuration(&trials)
        ))
    };
    grouped(all).into_iter().map(|(_, trials)| sentence(trials)).collect()
}

/// Flagged trials, a sentence for each kind of flag.
fn flags(cells: &[NamedCell<'_, '_>]) -> Vec<Sentence> {
    let all = cells.iter().flat_map(|(stratum, cell)| {
        let text = move |(trials, flag): &(u32, Flag)| (stratum.cell_name(cell), *trials, words_of(flag));
        cell.flags.iter().map(move |counted| (discriminant(&counted.1), text(counted)))
    });
    let sentence = |trials: Vec<(String, u32, String)>| {
        let what = trials.first().map_or("", |(.., what)| what);
        Sentence::caution(format!("{} {what}: {}.", total(&trials), by_configuration(&trials)))
    };
    grouped(all).into_iter().map(|(_, trials)| sentence(trials)).collect()
}

fn total(trials: &[(String, u32, String)]) -> String {
    plural(trials.iter().map(|(_, count, _)| u64::from(*count)).sum(), "trial")
}

/// The configurations with the most trials.
fn by_configuration(trials: &[(String, u32, String)]) -> String {
    let counts = grouped(trials.iter().map(|(name, count, _)| (name, *count)));
    let mut counts: Vec<(&String, u32)> =
        counts.into_iter().map(|(name, counts)| (name, counts.iter().sum())).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others = counts.len().saturating_sub(NAMED_CONFIGURATIONS);
    let named = counts.iter().take(NAMED_CONFIGURATIONS);
    let mut parts: Vec<String> = match counts.as_slice() {
        [(name, _)] => vec![(*name).clone()],
        _ => named.map(|(name, count)| format!("{name} ({count})")).collect(),
    };
    if others > 0 {
        parts.push(format!("and {}", plural(others as u64, "other configuration")));
    }
    parts.join("; ")
}

/// The number is that of the first such trial, not of the worst.
fn words_of(flag: &Flag) -> String {
    match flag {
        Flag::Unsteady { second_half_ratio: ratio } => {
            format!("unsteady (for example, the second half ran at {ratio:.2} × the rate of the first)")
        }
        Flag::CpuElsewhere { share } if *share < 0.0 => overlap(*share),
        Flag::CpuOverlap { share } => overlap(*share),
        Flag::CpuElsewhere { share } => {
            format!("disturbed by other processes (for example with {} of the CPU time)", percent(*share))
        }
        Flag::DelayedAck => "with a median of 40 ms: Nagle's algorithm and delayed ACK".to_owned(),
    }
}

/// Old records have a negative share in [`Flag::CpuElsewhere`] instead of a flag of its own.
fn overlap(share: f64) -> String {
    format!(
        "with overlapping CPU attribution (client, server and link add up to {} more than the busy time)",
        percent(share.abs())
    )
}

fn warnings(report: &RunReport<'_>) -> Vec<Sentence> {
    let messages = distinct(report.facts.warnings.iter().map(|message| clean(message)));
    messages.iter().map(|message| Sentence::caution(capital(message))).collect()
}

fn skipped(report: &RunReport<'_>) -> Vec<Sentence> {
    let line = |(reason, ids): (String, Vec<String>)| {
        Sentence::neutral(format!("{}: {}", capital(&reason), ids.join(", ")))
    };
    let cells = super::by_reason(report.plan, report.facts.skipped.iter().copied()).into_iter().map(line);
    cells.chain(super::unlike(report.plan).into_iter().map(Sentence::neutral)).collect()
}

fn machine(environment: &Environment) -> String {
    let crypto = repeat::crypto(environment);
    let Environment { cpu_model, cpus, memory_bytes, kernel, os, tls_library, cpu_accounting, .. } =
        environment;
    let gibibytes = *memory_bytes as f64 / 1024f64.powi(3);
    format!(
        "{cpus} CPUs of {cpu_model} ({crypto}), {gibibytes:.0} GiB · {os}, {kernel} · {tls_library} · \
         CPU times from {cpu_accounting}"
    )
}
