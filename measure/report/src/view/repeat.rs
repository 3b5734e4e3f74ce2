//! How to repeat the run: the command and the environment.

use std::collections::BTreeMap;

use ciphertoll_model::{CryptoInstruction, Ending, Environment, LookDecision, Timing};
use ciphertoll_stats::StartedServer;

use super::{clean, plan};
use crate::RunReport;
use crate::number::plural;

/// A named value of the environment or the run.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A server as it was last started, cleaned for display.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    /// Its name in cell ids.
    pub(crate) name: String,
    pub(crate) version: String,
    /// Absent if the server does not report it.
    pub(crate) tls_library: Option<String>,
    /// Settings that differ from the server's defaults.
    pub(crate) settings: BTreeMap<String, String>,
}

/// The command that repeats the run: the recorded specification with the recorded seed. The specification contains the
/// settings as well; the command repeats them for the reader.
pub(crate) fn command(report: &RunReport<'_>) -> String {
    let spec = quoted(&clean(&format!("ciphertoll-runs/{}/spec.toml", report.run)));
    let mut words = vec![format!("ciphertoll run {spec} --seed {}", report.plan.seed)];
    let settings = report.plan.settings.iter();
    words.extend(settings.map(|setting| format!("--set {}", quoted(&clean(&setting.to_string())))));
    words.join(" ")
}

/// The assumption of the command: a record does not know its own directory.
pub(crate) const WHERE: &str = "This repeats the same specification in the same random order. The path is the default one, relative to the directory in \
     which ciphertoll was started. For a run in another directory (--run-dir, a copy), name its own spec.toml.";

pub(crate) fn machine(report: &RunReport<'_>) -> Vec<Fact> {
    let Some(environment) = report.facts.environment else { return Vec::new() };
    let Environment { cpu_model, cpus, memory_bytes, kernel, os, tls_library, cpu_accounting, .. } =
        environment;
    let gibibytes = *memory_bytes as f64 / 1024f64.powi(3);
    vec![
        fact("CPU", format!("{cpu_model}, {}", plural(u64::from(*cpus), "processor"))),
        fact("Crypto instructions", crypto(environment)),
        fact("Memory", format!("{gibibytes:.0} GiB")),
        fact("Operating system", os),
        fact("Kernel", kernel),
        fact("Client's TLS library", tls_library),
        fact("CPU times from", cpu_accounting),
    ]
}

pub(crate) fn run(report: &RunReport<'_>) -> Vec<Fact> {
    let plan = report.plan;
    let planned = plural(u64::from(plan.counted_blocks()), "block");
    let blocks = stopped(report, format!("{} of {planned}", report.analysis.blocks_completed));
    let ending = match report.facts.ending {
        Some(Ending::Complete) => "complete",
        Some(Ending::Interrupted) => "interrupted",
        Some(Ending::Terminated) => "terminated",
        Some(Ending::Failed) => "stopped by an error",
        None => "unfinished",
    };
    let Timing { warm_up, window } = plan.timing;
    let trials = format!("window of {window} after {warm_up} of warm-up{}", plan::longer(plan));
    vec![
        fact("Run", report.run),
        fact("Experiment", &plan.name),
        fact("ciphertoll", report.tool_version()),
        fact("Seed", plan.seed.to_string()),
        fact("Compared with", plan.baseline.to_string()),
        fact("Blocks", format!("{blocks}, {ending}")),
        fact("Trials", trials),
    ]
}

pub(crate) fn servers(report: &RunReport<'_>) -> Vec<ServerFacts> {
    let facts = |server: &StartedServer<'_>| ServerFacts {
        name: clean(server.name),
        version: clean(server.version),
        tls_library: server.tls_library.map(clean),
        settings: server.settings.iter().map(|(name, value)| (clean(name), clean(value))).collect(),
    };
    report.facts.servers.iter().map(facts).collect()
}

/// `6 of 10 blocks (precise enough)`.
pub(crate) fn stopped(report: &RunReport<'_>, blocks: String) -> String {
    match report.facts.last_look {
        Some(LookDecision::StopPrecise) => format!("{blocks} (precise enough)"),
        Some(LookDecision::StopBudget) => format!("{blocks} (time budget used up)"),
        Some(LookDecision::GoOn | LookDecision::StopPlanned) | None => blocks,
    }
}

/// The crypto instruction sets, as the kernel names them.
pub(crate) fn crypto(environment: &Environment) -> String {
    let names: Vec<&str> = CryptoInstruction::ALL
        .into_iter()
        .filter(|instruction| environment.crypto_instructions.contains(instruction))
        .map(CryptoInstruction::label)
        .collect();
    if names.is_empty() { "no AES instructions".to_owned() } else { names.join(" ") }
}

fn fact(name: &str, value: impl AsRef<str>) -> Fact {
    Fact { name: name.to_owned(), value: clean(value.as_ref()) }
}

/// Quoted so that a shell reads one word.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+=:,@%".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_sees_one_word() {
        assert_eq!(quoted("ciphertoll-runs/20261121T0930-quick-7f3a/spec.toml").matches('\'').count(), 0);
        assert_eq!(quoted("my runs/$(reboot)'s"), r"'my runs/$(reboot)'\''s'");
    }
}
