//! What this machine can do, found out by doing it.
//!
//! Each check is a probe: a fresh, single-threaded process of our own binary, which may leave its namespaces,
//! keep to one processor or hang without harm to anybody. It writes what it found as JSON and ends; one that
//! does not is killed, and that is a finding, too.

mod account;
mod at_rest;
mod basics;
mod machine;
mod namespace;
mod places;
mod process;
mod servers;
mod tools;

use std::fmt;
use std::path::Path;

use ciphertoll_model::Engine;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

pub use process::examine;

/// The hidden command that must lead to [`run_probe`].
pub const PROBE_COMMAND: &str = "__probe";
/// What [`account`] starts and puts into a group: a process that waits for the end of its stdin.
const IDLE: &str = "idle";

/// What an ability is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To measure at all, and well.
    Measure,
    /// For links that are longer than loopback.
    LongLinks,
    /// For tunnels and proxies.
    Tunnels,
    /// For encryption at rest.
    AtRest,
    /// For drivers other than our own.
    Drivers,
}

/// Whether measuring at all depends on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// One server is enough, whichever it is.
    OneServer,
    /// Nothing can be measured without.
    Always,
    /// Only what asks for it.
    Sometimes,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Verdict {
    /// It can.
    Ok,
    /// It can, but not as well as it could.
    Limited {
        /// What would make it better, in one line.
        cure: String,
    },
    /// It cannot.
    No {
        /// The package, command or setting that would change that, in one line.
        cure: String,
    },
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is needed for.
    pub purpose: Purpose,
    /// What was looked at: `mariadb`, `veth`.
    pub name: String,
    /// Whether measuring depends on it.
    pub need: Need,
    /// Whether it is there.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What was seen, in one line.
    pub seen: String,
}

/// A check that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its name, the argument of [`PROBE_COMMAND`].
    pub name: String,
    /// What it is needed for.
    pub purpose: Purpose,
    /// Whether measuring depends on it.
    pub need: Need,
}

impl Finding {
    /// That something can be done.
    pub fn ok(purpose: Purpose, name: &str, seen: impl fmt::Display) -> Self {
        Self::new(purpose, name, seen, Verdict::Ok)
    }

    /// That something can be done, but not as well as it could.
    pub fn limited(purpose: Purpose, name: &str, seen: impl fmt::Display, cure: impl fmt::Display) -> Self {
        Self::new(purpose, name, seen, Verdict::Limited { cure: one_line(&cure.to_string()) })
    }

    /// That something cannot be done.
    pub fn no(purpose: Purpose, name: &str, seen: impl fmt::Display, cure: impl fmt::Display) -> Self {
        Self::new(purpose, name, seen, Verdict::No { cure: one_line(&cure.to_string()) })
    }

    /// The same, but measuring depends on it.
    #[must_use]
    pub fn needed(self, need: Need) -> Self {
        Self { need, ..self }
    }

    fn new(purpose: Purpose, name: &str, seen: impl fmt::Display, verdict: Verdict) -> Self {
        let seen = one_line(&seen.to_string());
        Self { purpose, name: name.to_owned(), need: Need::Sometimes, verdict, seen }
    }

    fn is_no(&self) -> bool {
        matches!(self.verdict, Verdict::No { .. })
    }
}

/// Whether something can be measured: one server is here, and all that every run stands on.
pub fn can_measure(findings: &[Finding]) -> bool {
    let mut servers = findings.iter().filter(|finding| finding.need == Need::OneServer);
    let mut always = findings.iter().filter(|finding| finding.need == Need::Always);
    servers.any(|finding| !finding.is_no()) && always.all(|finding| !finding.is_no())
}

/// A check and what it does.
struct Check {
    name: &'static str,
    purpose: Purpose,
    need: Need,
    run: fn() -> Vec<Finding>,
}

const CHECKS: [Check; 17] = [
    Check::of("mariadb", Need::OneServer, || vec![servers::engine(Engine::MariaDb)]),
    Check::of("mysql", Need::OneServer, || vec![servers::engine(Engine::MySql)]),
    Check::of("postgres", Need::OneServer, || vec![servers::engine(Engine::Postgres)]),
    Check::of("mongodb", Need::OneServer, || vec![servers::engine(Engine::MongoDb)]),
    Check::of("ferretdb", Need::OneServer, || vec![servers::engine(Engine::FerretDb)]),
    Check::of("fetch", Need::Sometimes, servers::fetchable),
    Check::of("server user", Need::Always, || vec![basics::server_user()]),
    Check::of("TLS", Need::Always, || vec![basics::tls()]),
    Check::of("places", Need::Always, places::all),
    Check::of("ports", Need::Always, || vec![basics::ports()]),
    Check::of("processors", Need::Sometimes, || vec![machine::processors()]),
    Check::of("CPU accounting", Need::Sometimes, || vec![account::cpu_accounting()]),
    Check::of("machine", Need::Sometimes, machine::all),
    Check { name: "namespaces", purpose: Purpose::LongLinks, need: Need::Sometimes, run: namespace::all },
    Check {
        name: "sidecar",
        purpose: Purpose::Tunnels,
        need: Need::Sometimes,
        run: || vec![tools::sidecar()],
    },
    Check { name: "files", purpose: Purpose::AtRest, need: Need::Sometimes, run: at_rest::all },
    Check { name: "keys", purpose: Purpose::AtRest, need: Need::Sometimes, run: at_rest::native },
];

impl Check {
    const fn of(name: &'static str, need: Need, run: fn() -> Vec<Finding>) -> Self {
        Self { name, purpose: Purpose::Measure, need, run }
    }
}

/// Every check of this crate.
pub fn probes() -> Vec<Probe> {
    let checks = CHECKS.iter().map(|check| Probe {
        name: check.name.to_owned(),
        purpose: check.purpose,
        need: check.need,
    });
    let tools = tools::TOOLS.iter().map(|tool| Probe {
        name: tool.name.to_owned(),
        purpose: tool.purpose,
        need: Need::Sometimes,
    });
    checks.chain(tools).collect()
}

/// A probe's first act: it must not outlive who asked.
pub fn begin_probe() {
    // Where this fails, the coordinator's limit still holds.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// The probe's side: does the check `name`, in a single-threaded process; `place` is a directory to
/// write to. None where there is no such check.
pub fn run_probe(name: &str, place: &Path) -> Option<Vec<Finding>> {
    if name == IDLE {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        return Some(Vec::new());
    }
    if let Some(check) = CHECKS.iter().find(|check| check.name == name) {
        return Some((check.run)());
    }
    tools::TOOLS.iter().find(|tool| tool.name == name).map(|tool| vec![tool.look(place)])
}

/// Without ends of lines, and no longer than a person reads.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 240;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(verdict: Verdict) -> Finding {
        Finding::new(Purpose::Measure, "server", "seen", verdict).needed(Need::OneServer)
    }

    #[test]
    fn one_server_and_everything_that_is_always_needed_make_a_measurement() {
        let no = || Verdict::No { cure: "install it".to_owned() };
        let user = |verdict| Finding { need: Need::Always, ..server(verdict) };
        assert!(can_measure(&[server(no()), server(Verdict::Ok), user(Verdict::Ok)]));
        assert!(can_measure(&[server(Verdict::Limited { cure: String::new() })]));
        assert!(!can_measure(&[server(no()), user(Verdict::Ok)]));
        assert!(!can_measure(&[server(Verdict::Ok), user(no())]));
        assert!(can_measure(&[server(Verdict::Ok), Finding::no(Purpose::Tunnels, "ssh", "", "")]));
        assert!(!can_measure(&[]));
    }

    #[test]
    fn a_finding_reads_back_as_it_was_written() {
        let finding = Finding::no(Purpose::LongLinks, "veth", "EPERM\n twice", "load veth");
        let json = serde_json::to_string(&finding).unwrap();
        assert_eq!(
            json,
            r#"{"purpose":"long_links","name":"veth","need":"sometimes","state":"no","cure":"load veth","seen":"EPERM twice"}"#
        );
        assert_eq!(serde_json::from_str::<Finding>(&json).unwrap(), finding);
    }

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let mut names: Vec<String> = probes().into_iter().map(|probe| probe.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(run_probe("no such check", Path::new("/")), None);
    }
}
