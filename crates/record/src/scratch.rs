//! The scratch directory of a run, and the sweep that clears those of runs that were killed.
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
use crate::process::{Ended, ProcessIdentity};

/// Others may pass through, as servers run under another user, but not look around.
const PASS_THROUGH: u32 = 0o711;
/// How long a left-over process has for its own clean-up; its data are thrown away in any case.
const GRACE: Duration = Duration::from_secs(3);
const LOCK: &str = "lock";
const LEDGER: &str = "ledger.jsonl";

/// A run's scratch directory; gone, with everything in it, when dropped.
#[derive(Debug)]
pub struct Scratch {
    root: PathBuf,
    path: PathBuf,
    ledger: Ledger,
    /// Held while the run lives. Dropped after the directory was removed.
    _lock: Flock<File>,
}

/// What a sweep did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Processes of killed runs that were still alive.
    pub processes_killed: usize,
    /// Scratch directories of killed runs.
    pub directories_removed: usize,
    /// What could not be cleared.
    pub left: Vec<Left>,
}

/// A scratch directory that a sweep could not clear.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    /// Where.
    pub path: PathBuf,
    /// Why, in one line.
    pub reason: String,
}

/// Where this user's scratch directories are: `/var/tmp/ciphertoll-UID`.
pub fn scratch_root() -> PathBuf {
    PathBuf::from(format!("/var/tmp/ciphertoll-{}", geteuid()))
}

/// Clears the scratch directories under `root` whose runs are dead: ends the processes they left, by
/// process id *and* start time, and removes their files. A directory whose lock is held is not touched.
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
    /// A fresh directory under `root`, most often [`scratch_root`].
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

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where every effect is noted before it is brought about.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Makes a directory for one server or tool. `mode` is exact, whatever the umask.
    pub fn make_directory(&self, name: &str, mode: u32) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        self.ledger.note(&Effect::Directory { path: path.clone() })?;
        make_directory(&path, mode)?;
        Ok(path)
    }

    /// Removes the directory, and says so if that fails; dropping does the same in silence.
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
        // The next run's sweep finds what could not be removed.
        let _ = self.remove();
    }
}

fn make_root(root: &Path) -> Result<(), Error> {
    match make_directory(root, PASS_THROUGH) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Refuses a directory that somebody else could write to, or put in our way: `/var/tmp` is everybody's.
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
                report.processes_killed += usize::from(end(*identity)? != Ended::AlreadyGone);
            }
            Effect::ControlGroup { path } if contents.boot == Boot::This => remove_control_group(path)?,
            // They are gone with the boot that they were of.
            Effect::Process { .. } | Effect::ControlGroup { .. } | Effect::ProcessIntended { .. } => {}
            // Its process is among those that were ended before: it was started later.
            Effect::Mount { path } => mount::unmount(path)?,
            Effect::Directory { path } => remove(path)?,
        }
    }
    remove(path)
}

fn end(identity: ProcessIdentity) -> Result<Ended, Error> {
    identity.end(GRACE).context("end", &PathBuf::from(format!("/proc/{}", identity.pid)))
}

fn make_directory(path: &Path, mode: u32) -> Result<(), Error> {
    DirBuilder::new().mode(0o700).create(path).context("make", path)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).context("make", path)
}

/// Removes a directory with its contents; one that is gone already is fine.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}
