//! The list of checks.

use std::path::Path;

use ciphertoll_model::Engine;
use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::finding::{CheckPurpose, Finding, IDLE, Need, Probe};
use super::{accounting, at_rest, basics, directories, machine, namespace, servers, tools};

struct Check {
    name: &'static str,
    purpose: CheckPurpose,
    need: Need,
    run: fn() -> Vec<Finding>,
}

const CHECKS: [Check; 18] = [
    Check::of("mariadb", Need::OneServer, || vec![servers::engine(Engine::MariaDb)]),
    Check::of("mysql", Need::OneServer, || vec![servers::engine(Engine::MySql)]),
    Check::of("postgres", Need::OneServer, || vec![servers::engine(Engine::Postgres)]),
    Check::of("mongodb", Need::OneServer, || vec![servers::engine(Engine::MongoDb)]),
    Check::of("ferretdb", Need::OneServer, || vec![servers::engine(Engine::FerretDb)]),
    Check::of("fetch", Need::Sometimes, servers::fetchable),
    Check::of("server user", Need::Always, || vec![basics::server_user()]),
    Check::of("TLS", Need::Always, || vec![basics::tls()]),
    Check::of("places", Need::Always, directories::all),
    Check::of("ports", Need::Always, || vec![basics::ports()]),
    Check::of("processors", Need::Sometimes, || vec![machine::processors()]),
    Check::of("CPU accounting", Need::Sometimes, || vec![accounting::cpu_accounting()]),
    Check::of("machine", Need::Sometimes, machine::all),
    Check::of("perf", Need::Sometimes, || vec![machine::perf()]),
    Check::of("namespaces", Need::Sometimes, namespace::all).purpose(CheckPurpose::LongLinks),
    Check::of("sidecar", Need::Sometimes, || vec![tools::sidecar()]).purpose(CheckPurpose::Tunnels),
    Check::of("files", Need::Sometimes, at_rest::all).purpose(CheckPurpose::AtRest),
    Check::of("keys", Need::Sometimes, at_rest::plugins).purpose(CheckPurpose::AtRest),
];

impl Check {
    const fn of(name: &'static str, need: Need, run: fn() -> Vec<Finding>) -> Self {
        Self { name, purpose: CheckPurpose::Measure, need, run }
    }

    const fn purpose(self, purpose: CheckPurpose) -> Self {
        Self { purpose, ..self }
    }
}

pub fn probes() -> Vec<Probe> {
    let checks = CHECKS.iter().map(|check| Probe {
        name: check.name.to_owned(),
        purpose: check.purpose,
        need: check.need,
    });
    let tools = tools::tools().into_iter().map(|tool| Probe {
        name: tool.name.to_owned(),
        purpose: tool.purpose,
        need: Need::Sometimes,
    });
    checks.chain(tools).collect()
}

/// A probe must call this first, so that it does not outlive its parent.
pub fn begin_probe() {
    // If this fails, the coordinator's time limit remains.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Runs the check `name` in a single-threaded process; `None` if it is unknown. `directory` is for temporary files.
pub fn run_probe(name: &str, directory: &Path) -> Option<Vec<Finding>> {
    if name == IDLE {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        return Some(Vec::new());
    }
    if let Some(check) = CHECKS.iter().find(|check| check.name == name) {
        return Some((check.run)());
    }
    tools::tools().into_iter().find(|tool| tool.name == name).map(|tool| vec![tool.check(directory)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_checks_are_unique() {
        let mut names: Vec<String> = probes().into_iter().map(|probe| probe.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(run_probe("no such check", Path::new("/")), None);
    }
}
