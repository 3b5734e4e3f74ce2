//! How sure the answer is, and whether the machine was too busy for it. The only place that counts disturbed trials.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Flag, VoidReason};
use ciphertoll_stats::assemble::TrialCounts;
use ciphertoll_stats::{VoidedTrial, headline_metrics};

use super::{Sentence, StratumView, headline};
use crate::RunReport;
use crate::lists::grouped;
use crate::number::{effect, percent, plural, significant};

/// `How sure: 7 of 8 comparisons are conclusive (95 % intervals, 6 paired blocks); 21 of 134 trials were disturbed; …`
pub(crate) fn how_sure(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> String {
    let mut parts = headline::conclusive(strata).map(|conclusive| {
        let level = percent(report.analysis.confidence_level);
        let blocks = plural(u64::from(report.analysis.blocks_completed), "paired block");
        format!("{conclusive} ({level} intervals, {blocks})")
    });
    if report.analysis.blocks_completed < MIN_BLOCKS_FOR_VERDICTS {
        parts = Some(format!("no verdicts and no advice before {MIN_BLOCKS_FOR_VERDICTS} blocks"));
    }
    let floor = strata.iter().filter_map(|stratum| {
        let metric = headline_metrics(stratum.cell()).first()?;
        stratum.noise_floor_of(*metric)
    });
    let floor = floor
        .max_by(f64::total_cmp)
        .map(|floor| format!("differences below {} are not claimed (noise floor)", effect(floor)));
    let all: Vec<String> = parts.into_iter().chain([disturbed(report)]).chain(floor).collect();
    format!("How sure: {}.", all.join("; "))
}

/// `21 of 134 trials were disturbed, 3 of them repeated`.
pub(crate) fn disturbed(report: &RunReport<'_>) -> String {
    let counts = report.facts.trials.counts();
    match counts.disturbed() {
        _ if counts.attempts == 0 => "no trial counts yet".to_owned(),
        0 => format!("none of {} trials was disturbed", counts.attempts),
        disturbed if counts.voided == 0 => {
            format!("{disturbed} of {} trials were disturbed", counts.attempts)
        }
        disturbed => {
            format!(
                "{disturbed} of {} trials were disturbed, {} of them repeated",
                counts.attempts, counts.voided
            )
        }
    }
}

/// Before everything else, if most trials were disturbed: verdicts look certain all the same.
pub(crate) fn banner(report: &RunReport<'_>) -> Option<Sentence> {
    let counts @ TrialCounts { attempts, voided, .. } = report.facts.trials.counts();
    if counts.disturbed() * 2 <= attempts {
        return None;
    }
    let cells = report.analysis.cells();
    let is_stolen = |trial: &&VoidedTrial| matches!(trial.reason, VoidReason::Steal { .. });
    let stolen = cells.iter().flat_map(|cell| &cell.voided).filter(is_stolen).count() as u32;
    let flags = cells.into_iter().flat_map(|cell| &cell.flags);
    let causes = flags
        .map(|(trials, flag)| (cause(flag), *trials))
        .chain([(STOLEN, stolen), ("voided by a gate", voided - stolen.min(voided))]);
    let causes = grouped(causes).into_iter().map(|(cause, trials)| (cause, trials.iter().sum::<u32>()));
    let mostly = causes.max_by_key(|(_, trials)| *trials).map_or("", |(cause, _)| cause);
    Some(Sentence::caution(format!(
        "{} of {attempts} trials were disturbed (mostly: {mostly}): the intervals do not show this. Repeat the run on \
         a quiet machine before relying on it{}.",
        counts.disturbed(),
        if mostly == STOLEN { KEEP_STOLEN } else { "" }
    )))
}

const STOLEN: &str = "the hypervisor took CPU time";
/// A shared machine may never be quiet, and without these trials there is often no result at all.
const KEEP_STOLEN: &str = ", or keep such trials (--max-steal 100%), which makes the intervals wide";

fn cause(flag: &Flag) -> &'static str {
    match flag {
        Flag::Unsteady { .. } => "the rate changed during a trial",
        Flag::CpuElsewhere { share } if *share < 0.0 => OVERLAP,
        Flag::CpuOverlap { .. } => OVERLAP,
        Flag::CpuElsewhere { .. } => "other processes used the CPU",
        Flag::DelayedAck => "Nagle's algorithm and delayed ACK",
    }
}

const OVERLAP: &str = "overlapping CPU attribution";

/// How the flags below add up.
pub(crate) fn counts(report: &RunReport<'_>) -> Option<Sentence> {
    let counts = report.facts.trials.counts();
    let flags = report.analysis.cells().into_iter().flat_map(|cell| &cell.flags);
    let listed: u32 = flags.map(|(trials, _)| *trials).sum();
    let several =
        if listed > counts.flagged { ". A trial with two flags is in two of these lines" } else { "" };
    (counts.disturbed() > 0).then(|| {
        let text = super::capital(&disturbed(report));
        Sentence::neutral(format!("{text}, as listed below with the copies of baselines{several}."))
    })
}

/// What makes other machines differ.
pub(crate) fn machine(report: &RunReport<'_>) -> Option<Sentence> {
    const SHOWN: usize = 2;
    let signatures = report.facts.primitives?.signatures.iter();
    let microseconds = |ns: u64| significant(ns as f64 * 1e-3);
    let times: Vec<String> = signatures
        .map(|(key, time)| format!("{} {} µs", key_name(key), microseconds(time.sign_ns)))
        .take(SHOWN)
        .collect();
    // `OpenSSL 3.0.19` of `OpenSSL 3.0.19 27 Jan 2026`.
    let library = &report.facts.environment?.tls_library;
    let library = library.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let text = format!("Machines differ: here a signature takes {} ({library}).", times.join(", "));
    (!times.is_empty()).then(|| Sentence::neutral(super::clean(&text) + "."))
}

/// `P-256` of `p256`, `RSA-2048` of `rsa2048`.
fn key_name(label: &str) -> String {
    let at = label.find(|letter: char| letter.is_ascii_digit()).unwrap_or(label.len());
    let (family, number) = label.split_at(at);
    match family {
        "p" | "rsa" => format!("{}-{number}", family.to_uppercase()),
        _ => label.to_owned(),
    }
}
