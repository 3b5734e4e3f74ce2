//! The scratch directory of a run, and the sweep that removes those of killed runs.
//!
//! Each run has `/var/tmp/ciphertoll-UID/XXXXXXXX/` with a `lock` that it holds while it lives and a
//! ledger of its effects. Ledgers lie here and not in the run directory, because a later run finds
//! all of them here, whatever directory the earlier one was started in. Directories are made, swept
//! and removed one at a time, under a lock on their root: else one could be swept while it is born.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::Flock;
use nix::unistd::geteuid;

use crate::control_group::remove_control_group;
use crate::disk;
use crate::error::{Context, Error};
use crate::ledger::{Boot, Contents, Effect, Ledger};
use crate::mount;
use crate::process::{ProcessEnd, ProcessIdentity};

/// Other users may traverse it, because servers run as another user, but not list it.
const PASS_THROUGH: u32 = 0o711;
/// The time that a left-over process gets for its own clean-up.
const GRACE: Duration = Duration::from_secs(3);
const LOCK: &str = "lock";
const LEDGER: &str = "ledger.jsonl";

/// A run's scratch directory, removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch {
    root: PathBuf,
    path: PathBuf,
    ledger: Ledger,
    /// Held during the run. Dropped after the directory is removed.
    _lock: Flock<File>,
}

/// The result of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Ended processes of killed runs.
    pub processes_killed: usize,
    /// Removed scratch directories of killed runs.
    pub directories_removed: usize,
    /// Directories that could not be removed.
    pub left: Vec<Left>,
}

/// A scratch directory that a sweep could not remove.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    pub path: PathBuf,
    /// One line.
    pub reason: String,
}

/// The root of this user's scratch directories: `/var/tmp/ciphertoll-UID`.
pub fn scratch_root() -> PathBuf {
    PathBuf::from(format!("/var/tmp/ciphertoll-{}", geteuid()))
}

/// Removes the scratch directories of dead runs under `root`: ends their processes, by process id *and* start time, and removes
/// their files. Does not touch a directory whose lock is held.
pub fn sweep(root: &Path) -> Result<SweepReport, Error> {
    let mut report = SweepReport::default();
    if fs::symlink_metadata(root).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(report);
    }
    check_ours(root)?;
    let _one_at_a_time = disk::lock(&root.join(LOCK))?;
    for entry in fs::read_dir(root).context("list", root)? {
        let entry = entry.context("list", root)?;
        let path = entry.path();
        if !entry.file_type().context("look at", &path)?.is_dir() {
            continue;
        }
        let Some(_lock) = disk::try_lock(&path.join(LOCK))? else { continue };
        match clear(&path, &mut report) {
            Ok(()) => report.directories_removed += 1,
            Err(error) => report.left.push(Left { path, reason: error.to_string() }),
        }
    }
    Ok(report)
}

impl Scratch {
    /// Creates a directory under `root`, usually [`scratch_root`].
    pub fn create(root: &Path) -> Result<Self, Error> {
        make_root(root)?;
        check_ours(root)?;
        let _one_at_a_time = disk::lock(&root.join(LOCK))?;
        let path = root.join(format!("{:08x}", rand::random::<u32>()));
        make_directory(&path, PASS_THROUGH)?;
        let lock = disk::try_lock(&path.join(LOCK))?.ok_or_else(|| Error::Locked { path: path.clone() })?;
        let ledger = Ledger::create(path.join(LEDGER))?;
        Ok(Self { root: root.to_owned(), path, ledger, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger in which every effect is written before it is brought about.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Creates a directory for a server or tool, with exactly `mode`, whatever the umask.
    pub fn make_directory(&self, name: &str, mode: u32) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        self.ledger.note(&Effect::Directory { path: path.clone() })?;
        make_directory(&path, mode)?;
        Ok(path)
    }

    /// Removes the directory and returns errors, which dropping ignores.
    pub fn close(self) -> Result<(), Error> {
        self.remove()
    }

    fn remove(&self) -> Result<(), Error> {
        let _one_at_a_time = disk::lock(&self.root.join(LOCK))?;
        remove(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next run's sweep removes the rest.
        let _ = self.remove();
    }
}

fn make_root(root: &Path) -> Result<(), Error> {
    match make_directory(root, PASS_THROUGH) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Fails if another user can write to the directory or has created it: `/var/tmp` is writable for all users.
pub fn check_ours(root: &Path) -> Result<(), Error> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let metadata = fs::symlink_metadata(root).context("look at", root)?;
    let untrusted = |problem| Err(Error::Untrusted { path: root.to_owned(), problem });
    if !metadata.is_dir() {
        return untrusted("is not a directory");
    }
    if metadata.uid() != geteuid().as_raw() {
        return untrusted("belongs to another user");
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return untrusted("can be written to by others");
    }
    Ok(())
}

/// Undoes the effects, newest first, then removes the directory.
fn clear(path: &Path, report: &mut SweepReport) -> Result<(), Error> {
    let contents = Contents::read(&path.join(LEDGER))?;
    for effect in contents.effects.iter().rev() {
        match effect {
            Effect::Process { identity, .. } if contents.boot == Boot::This => {
                report.processes_killed += usize::from(end(*identity)? != ProcessEnd::AlreadyGone);
            }
            Effect::ControlGroup { path } if contents.boot == Boot::This => remove_control_group(path)?,
            // They ended with their boot.
            Effect::Process { .. } | Effect::ControlGroup { .. } | Effect::ProcessIntended { .. } => {}
            // The process started after this effect and was ended before.
            Effect::Mount { path } => mount::unmount(path)?,
            Effect::Directory { path } => remove(path)?,
        }
    }
    remove(path)
}

fn end(identity: ProcessIdentity) -> Result<ProcessEnd, Error> {
    identity.end(GRACE).context("end", &PathBuf::from(format!("/proc/{}", identity.pid)))
}

fn make_directory(path: &Path, mode: u32) -> Result<(), Error> {
    DirBuilder::new().mode(0o700).create(path).context("make", path)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).context("make", path)
}

/// Removes a directory with its contents. Succeeds if it does not exist.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}
