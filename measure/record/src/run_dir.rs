//! Writes a run directory: `UTC-NAME-XXXX/` with specification, plan and events.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_model::{Event, Plan, Spec, TimestampedEvent};
use jiff::Timestamp;
use nix::fcntl::Flock;

use crate::caller::{Caller, make_directories, open_own_directory};
use crate::disk::{self, Durability, Lines};
use crate::error::{Context, Error};
use crate::read::{EVENTS, PLAN, Record, SPEC, unreadable};

/// The default directory of runs.
pub const DEFAULT_RUNS: &str = "ciphertoll-runs";

pub(crate) const LOCK: &str = "lock";
pub(crate) const HISTOGRAMS: &str = "histograms";
pub(crate) const LOGS: &str = "logs";
const LONGEST_NAME: usize = 40;

/// A process that is killed while it starts a child leaves its locks to the child, until that executes its program.
const LOCK_TIME_LIMIT: Duration = Duration::from_secs(2);

/// A run directory that only this process writes.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    events: Lines,
    _lock: Flock<File>,
    /// The user who owns the directory when the run has ended. Until then this process must own it, because
    /// files in it are opened by name.
    heir: Option<(Caller, File)>,
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Some((caller, directory)) = &self.heir {
            // Best effort: the record is complete.
            let _ = caller.give_all(directory);
        }
    }
}

impl RunDirectory {
    /// Creates `RUNS/UTC-NAME-XXXX/` with the specification and the plan. Leaves nothing behind on failure.
    pub fn create(runs: &Path, spec: &Spec, plan: &Plan, now: Timestamp) -> Result<Self, Error> {
        make_directories(runs).context("make", runs)?;
        let path = runs.join(directory_name(&plan.name, now));
        fs::create_dir(&path).context("make", &path)?;
        let heir = match Caller::owning(runs) {
            Some(caller) => Some((caller, open_own_directory(&path)?)),
            None => None,
        };
        Self::fill(&path, spec, plan, heir).inspect_err(|_| {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&path);
        })
    }

    /// Opens an interrupted run to resume it. Truncates a torn last line.
    pub fn resume(path: &Path) -> Result<(Self, Record), Error> {
        if !path.join(EVENTS).is_file() {
            return Err(unreadable(&path.join(EVENTS), &"no such file"));
        }
        let lock = take_lock(path)?;
        let record = Record::open(path)?;
        let events = Lines::open(path.join(EVENTS), 0o644)?;
        events.cut(record.whole_bytes)?;
        // A process that was killed has not given its directory away. One that another user owns stays as it is.
        let heir = Caller::owning_parent(path).zip(open_own_directory(path).ok());
        Ok((Self { path: path.to_owned(), events, _lock: lock, heir }, record))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event with the current time and returns it with that. Events that end a unit of work are on disk when this
    /// returns.
    pub fn append(&mut self, event: &Event) -> Result<TimestampedEvent, Error> {
        let at_unix_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        let stamped = TimestampedEvent { at_unix_ms, event: event.clone() };
        self.events.append(&stamped, durability(event))?;
        Ok(stamped)
    }

    pub fn store_histogram(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path.join(HISTOGRAMS).join(file_name(name));
        fs::write(&path, text).context("write", &path)
    }

    fn fill(path: &Path, spec: &Spec, plan: &Plan, heir: Option<(Caller, File)>) -> Result<Self, Error> {
        let lock = take_lock(path)?;
        disk::write_new(&path.join(SPEC), spec.to_toml().as_bytes())?;
        let plan_path = path.join(PLAN);
        let plan = serde_json::to_vec(plan).map_err(std::io::Error::other).context("encode", &plan_path)?;
        disk::write_new(&plan_path, &plan)?;
        for name in [HISTOGRAMS, LOGS] {
            fs::create_dir(path.join(name)).context("make", &path.join(name))?;
        }
        let events = Lines::open(path.join(EVENTS), 0o644)?;
        disk::sync_directory(path)?;
        Ok(Self { path: path.to_owned(), events, _lock: lock, heir })
    }
}

/// Whether an event must survive a power cut: resuming starts from events that end a unit of work.
fn durability(event: &Event) -> Durability {
    match event {
        Event::RunStarted { .. }
        | Event::RunResumed { .. }
        | Event::CapacityFound { .. }
        | Event::PrimitivesMeasured { .. }
        | Event::Profiled { .. }
        | Event::TrialFinished { .. }
        | Event::TrialVoided { .. }
        | Event::BlockFinished { .. }
        | Event::Looked { .. }
        | Event::Finished { .. } => Durability::Durable,
        Event::EnvironmentSeen { .. }
        | Event::HostConnected { .. }
        | Event::LinkMade { .. }
        | Event::TunnelTried { .. }
        | Event::ProxyTried { .. }
        | Event::AtRestProven { .. }
        | Event::Preparing { .. }
        | Event::ServerReady { .. }
        | Event::CellSkipped { .. }
        | Event::BlockStarted { .. }
        | Event::TrialStarted { .. }
        | Event::Warned { .. } => Durability::Buffered,
    }
}

pub(crate) fn take_lock(path: &Path) -> Result<Flock<File>, Error> {
    disk::lock_within(LOCK_TIME_LIMIT, &path.join(LOCK))?
        .ok_or_else(|| Error::Locked { path: path.to_owned() })
}

/// `20261121T011500Z-quick-a3f1`: sorts by time, and two runs of one second differ.
pub(crate) fn directory_name(name: &str, now: Timestamp) -> String {
    let mut name = file_name(name);
    name.truncate(LONGEST_NAME);
    format!("{}-{name}-{:04x}", now.strftime("%Y%m%dT%H%M%SZ"), rand::random::<u16>())
}

/// `name` as a file name: no directory, not hidden, no special characters of a shell.
fn file_name(name: &str) -> String {
    let harmless = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = name.chars().map(harmless).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_harmless() {
        let now: Timestamp = "2026-11-21T01:15:00Z".parse().unwrap();
        let name = directory_name("../../etc/pass wd", now);
        assert!(name.starts_with("20261121T011500Z-etc-pass-wd-"), "{name}");
        assert_eq!(name.len(), "20261121T011500Z-etc-pass-wd-".len() + 4);
        assert!(directory_name("...", now).starts_with("20261121T011500Z-run-"));
        assert!(directory_name(&"x".repeat(300), now).len() < 64);
    }
}
