//! What it takes to do it again: the command, and where it was done.

use std::collections::BTreeMap;

use ciphertoll_model::{CryptoInstruction, Ending, Environment, Event, Timing};

use super::{caveats, clean};
use crate::RunReport;
use crate::number::plural;

/// Something about where or how a run was done.
#[derive(Debug)]
pub(crate) struct Fact {
    /// What.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
}

/// A server as it was run.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    /// Its name in cell ids.
    pub(crate) name: String,
    /// Its version, in full.
    pub(crate) version: String,
    /// Its TLS library, where it told.
    pub(crate) tls_library: Option<String>,
    /// Settings that differ from the server's defaults.
    pub(crate) settings: BTreeMap<String, String>,
}

/// The command that does the same again: the recorded specification with the recorded seed. Settings are in
/// the specification, too; here whoever reads the command sees them.
pub(crate) fn command(report: &RunReport<'_>) -> String {
    let spec = quoted(&clean(&format!("ciphertoll-runs/{}/spec.toml", report.run)));
    let mut words = vec![format!("ciphertoll run {spec} --seed {}", report.plan.seed)];
    let settings = report.plan.settings.iter();
    words.extend(settings.map(|setting| format!("--set {}", quoted(&clean(&setting.to_string())))));
    words.join(" ")
}

/// What the command assumes: a record does not know where it is kept.
pub(crate) const WHERE: &str = "The same specification in the same random order. The path is where a run lies by default, from the \
     directory in which ciphertoll was started; of a run that lies elsewhere (--run-dir, a copy), name its own \
     spec.toml.";

/// The machine.
pub(crate) fn machine(report: &RunReport<'_>) -> Vec<Fact> {
    let Some(environment) = report.environment() else { return Vec::new() };
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

/// How the run was done.
pub(crate) fn run(report: &RunReport<'_>) -> Vec<Fact> {
    let plan = report.plan;
    let planned = plural(u64::from(plan.counted_blocks()), "block");
    let blocks = caveats::stopped(report, format!("{} of {planned}", report.analysis.blocks_completed));
    let ending = match report.ending() {
        Some(Ending::Complete) => "complete",
        Some(Ending::Interrupted) => "interrupted",
        Some(Ending::Terminated) => "terminated",
        Some(Ending::Failed) => "stopped by an error",
        None => "unfinished",
    };
    let Timing { warm_up, window } = plan.timing;
    let trials = format!("{window} counted, after {warm_up} of warm-up{}", crate::plan::longer(plan));
    vec![
        fact("Run", report.run),
        fact("Experiment", &plan.name),
        fact("ciphertoll", report.tool_version),
        fact("Seed", plan.seed.to_string()),
        fact("Compared with", plan.baseline.to_string()),
        fact("Blocks", format!("{blocks}, {ending}")),
        fact("Trials", trials),
    ]
}

/// The servers, as each was last started.
pub(crate) fn servers(report: &RunReport<'_>) -> Vec<ServerFacts> {
    let mut servers: Vec<ServerFacts> = Vec::new();
    for stamped in report.events {
        let Event::ServerReady { server, version, tls_library, settings, .. } = &stamped.event else {
            continue;
        };
        let facts = ServerFacts {
            name: clean(server),
            version: clean(version),
            tls_library: tls_library.as_deref().map(clean),
            settings: settings.iter().map(|(name, value)| (clean(name), clean(value))).collect(),
        };
        match servers.iter_mut().find(|other| other.name == facts.name) {
            Some(other) => *other = facts,
            None => servers.push(facts),
        }
    }
    servers
}

/// The instruction sets that encryption runs on, by the kernel's names.
pub(crate) fn crypto(environment: &Environment) -> String {
    let names: Vec<&str> = CryptoInstruction::ALL
        .into_iter()
        .filter(|(instruction, _)| environment.crypto_instructions.contains(instruction))
        .map(|(_, name)| name)
        .collect();
    if names.is_empty() { "no AES instructions".to_owned() } else { names.join(" ") }
}

fn fact(name: &str, value: impl AsRef<str>) -> Fact {
    Fact { name: name.to_owned(), value: clean(value.as_ref()) }
}

/// As a shell reads one word.
fn quoted(word: &str) -> String {
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
