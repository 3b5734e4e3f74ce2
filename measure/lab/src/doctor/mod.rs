//! Checks of what this machine supports, done by trying it.
//!
//! Each check is a probe: a new, single-threaded process of our own binary, which may leave its namespaces, restrict itself
//! to one processor or hang without affecting anything else. It writes its findings as JSON and ends. A probe that does not
//! end is killed, which is a finding too.

mod accounting;
mod at_rest;
mod basics;
mod checks;
mod directories;
mod finding;
mod machine;
mod namespace;
mod process;
mod servers;
mod tools;

pub use self::checks::{begin_probe, probes, run_probe};
pub use self::finding::{CheckOutcome, CheckPurpose, Finding, Need, PROBE_COMMAND, Probe, can_measure};
pub use self::process::examine;
