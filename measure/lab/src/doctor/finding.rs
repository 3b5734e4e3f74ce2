//! The results of checks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The hidden command that must call [`super::run_probe`].
pub const PROBE_COMMAND: &str = "__probe";
/// The probe that waits for the end of its stdin, for the check of CPU accounting.
pub(super) const IDLE: &str = "idle";

/// What a check is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckPurpose {
    /// All measurements, and their precision.
    Measure,
    /// Links that are longer than loopback.
    LongLinks,
    /// Tunnels and proxies.
    Tunnels,
    /// Encryption at rest.
    AtRest,
    /// Drivers other than our own.
    Drivers,
}

/// Whether all measurements depend on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// At least one check of a server must succeed.
    OneServer,
    Always,
    Sometimes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CheckOutcome {
    Ok,
    Limited {
        /// What to do about it, in one line.
        cure: String,
    },
    No {
        /// The package, command or setting that would change that, in one line.
        cure: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub purpose: CheckPurpose,
    /// The subject of the check: `mariadb`, `veth`.
    pub name: String,
    pub need: Need,
    #[serde(flatten)]
    pub verdict: CheckOutcome,
    /// The observation, in one line.
    pub seen: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The argument of [`PROBE_COMMAND`].
    pub name: String,
    pub purpose: CheckPurpose,
    pub need: Need,
}

impl Finding {
    pub fn ok(purpose: CheckPurpose, name: &str, seen: impl fmt::Display) -> Self {
        Self::new(purpose, name, seen, CheckOutcome::Ok)
    }

    pub fn limited(
        purpose: CheckPurpose,
        name: &str,
        seen: impl fmt::Display,
        cure: impl fmt::Display,
    ) -> Self {
        Self::new(purpose, name, seen, CheckOutcome::Limited { cure: one_line(&cure.to_string()) })
    }

    pub fn no(purpose: CheckPurpose, name: &str, seen: impl fmt::Display, cure: impl fmt::Display) -> Self {
        Self::new(purpose, name, seen, CheckOutcome::No { cure: one_line(&cure.to_string()) })
    }

    #[must_use]
    pub fn needed(self, need: Need) -> Self {
        Self { need, ..self }
    }

    fn new(purpose: CheckPurpose, name: &str, seen: impl fmt::Display, verdict: CheckOutcome) -> Self {
        let seen = one_line(&seen.to_string());
        Self { purpose, name: name.to_owned(), need: Need::Sometimes, verdict, seen }
    }

    pub(super) fn is_no(&self) -> bool {
        matches!(self.verdict, CheckOutcome::No { .. })
    }
}

/// Whether anything can be measured: there is a server, and everything that every run requires.
pub fn can_measure(findings: &[Finding]) -> bool {
    let mut servers = findings.iter().filter(|finding| finding.need == Need::OneServer);
    let mut always = findings.iter().filter(|finding| finding.need == Need::Always);
    servers.any(|finding| !finding.is_no()) && always.all(|finding| !finding.is_no())
}

fn one_line(text: &str) -> String {
    const LONGEST: usize = 240;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(verdict: CheckOutcome) -> Finding {
        Finding::new(CheckPurpose::Measure, "server", "seen", verdict).needed(Need::OneServer)
    }

    #[test]
    fn a_server_and_all_required_checks_permit_measurements() {
        let no = || CheckOutcome::No { cure: "install it".to_owned() };
        let user = |verdict| Finding { need: Need::Always, ..server(verdict) };
        assert!(can_measure(&[server(no()), server(CheckOutcome::Ok), user(CheckOutcome::Ok)]));
        assert!(can_measure(&[server(CheckOutcome::Limited { cure: String::new() })]));
        assert!(!can_measure(&[server(no()), user(CheckOutcome::Ok)]));
        assert!(!can_measure(&[server(CheckOutcome::Ok), user(no())]));
        assert!(can_measure(&[server(CheckOutcome::Ok), Finding::no(CheckPurpose::Tunnels, "ssh", "", "")]));
        assert!(!can_measure(&[]));
    }

    #[test]
    fn a_finding_survives_serialization() {
        let finding = Finding::no(CheckPurpose::LongLinks, "veth", "EPERM\n twice", "load veth");
        let json = serde_json::to_string(&finding).unwrap();
        assert_eq!(
            json,
            r#"{"purpose":"long_links","name":"veth","need":"sometimes","state":"no","cure":"load veth","seen":"EPERM twice"}"#
        );
        assert_eq!(serde_json::from_str::<Finding>(&json).unwrap(), finding);
    }
}
