//! The ledger of effects: everything that a run changes outside its memory, written before the change, so that a later run
//! can undo it if this run is killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::disk::{Durability, Lines};
use crate::error::{Context, Error};
use crate::kubernetes_job::KubernetesJob;
use crate::process::ProcessIdentity;
use crate::read::unreadable;

/// Increased if an older reader could undo the wrong thing.
const LEDGER_VERSION: u32 = 1;

/// A change that outlives its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// A process is about to be started. Until its identity follows, the parent-death signal guards it.
    ProcessIntended { what: String, program: PathBuf },
    /// A process was started.
    Process {
        #[serde(flatten)]
        identity: ProcessIdentity,
        what: String,
        program: PathBuf,
    },
    /// A file system is about to be mounted.
    Mount { path: PathBuf },
    /// A control group is about to be created. Undoing ends all its processes.
    ControlGroup { path: PathBuf },
    /// A directory is about to be created. Undoing removes all its contents.
    Directory { path: PathBuf },
    /// A Job is about to be created in a Kubernetes cluster.
    KubernetesJob(KubernetesJob),
}

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    lines: Mutex<Lines>,
}

/// The contents of a ledger.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Whether its process ids belong to this boot of this machine.
    pub(crate) boot: Boot,
    /// Oldest first.
    pub(crate) effects: Vec<Effect>,
}

/// The boot in which a ledger was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    This,
    /// An earlier one or another machine's: its processes are gone.
    Other,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    schema_version: u32,
    boot_id: String,
}

impl Ledger {
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        let mut lines = Lines::open(path, 0o600)?;
        lines.append(&Head { schema_version: LEDGER_VERSION, boot_id: boot_id()? }, Durability::Durable)?;
        Ok(Self { lines: Mutex::new(lines) })
    }

    /// Writes `effect` to disk. Only then may the caller bring it about.
    pub fn note(&self, effect: &Effect) -> Result<(), Error> {
        // Lines are written completely or not at all, so a poisoned lock does no harm.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.append(effect, Durability::Durable)
    }
}

impl Contents {
    /// Reads the ledger at `path`. The effect of a torn last line was not brought about.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            // Killed before the first line and so before any effect.
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.context("read", path)?,
        };
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mut lines = whole.lines();
        let Some(head) = lines.next() else { return Ok(Self { boot: Boot::Other, effects: Vec::new() }) };
        let unreadable = |error: serde_json::Error| {
            unreadable(path, &format_args!("not a ledger that this version understands ({error})"))
        };
        let head: Head = serde_json::from_str(head).map_err(unreadable)?;
        if head.schema_version > LEDGER_VERSION {
            return Err(Error::Newer { path: path.to_owned(), found: head.schema_version.into() });
        }
        let effects = lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(unreadable)?;
        Ok(Self { boot: if head.boot_id == boot_id()? { Boot::This } else { Boot::Other }, effects })
    }
}

fn boot_id() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    Ok(fs::read_to_string(path).context("read", path)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects() -> [Effect; 5] {
        let program = PathBuf::from("/usr/sbin/mariadbd");
        let identity = ProcessIdentity { pid: 7, start_time_ticks: 42 };
        [
            Effect::Directory { path: "/var/tmp/x".into() },
            Effect::Mount { path: "/var/tmp/x/clear".into() },
            Effect::ProcessIntended { what: "MariaDB".into(), program: program.clone() },
            Effect::KubernetesJob(KubernetesJob {
                kubeconfig: None,
                context: Some("staging".into()),
                namespace: "load".into(),
                name: "ciphertoll-07".into(),
                run: "07".into(),
                expires_unix_s: 1,
            }),
            Effect::Process { identity, what: "MariaDB".into(), program },
        ]
    }

    #[test]
    fn what_is_noted_is_read_without_a_torn_last_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        let ledger = Ledger::create(path.clone()).unwrap();
        for effect in effects() {
            ledger.note(&effect).unwrap();
        }
        let contents = Contents::read(&path).unwrap();
        assert_eq!(contents.boot, Boot::This);
        assert_eq!(contents.effects, effects());
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        assert_eq!(Contents::read(&path).unwrap().effects, effects()[..4]);
    }

    #[test]
    fn another_boot_and_a_newer_version_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        fs::write(&path, "{\"schema_version\":1,\"boot_id\":\"elsewhere\"}\n").unwrap();
        assert_eq!(Contents::read(&path).unwrap().boot, Boot::Other);
        fs::write(&path, "{\"schema_version\":2,\"boot_id\":\"elsewhere\"}\n").unwrap();
        assert!(matches!(Contents::read(&path), Err(Error::Newer { found: 2, .. })));
    }
}
