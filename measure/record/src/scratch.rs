//! The scratch directory of a run, and the sweep that removes those of killed runs.
//!
//! Each run has `/var/tmp/ciphertoll-UID/XXXXXXXX/` with a `lock` that it holds while it lives and a
//! ledger of its effects; the user may choose another directory than `/var/tmp`. Ledgers lie here and not in the run
//! directory, because a later run finds all of them here, whatever directory the earlier one was started in. Directories are made, swept
//! and removed one at a time, under a lock on their root: else one could be swept while it is born.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::Flock;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, eaccess, geteuid};

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
/// The environment variable that chooses the directory.
pub const SCRATCH_DIRECTORY_VARIABLE: &str = "CIPHERTOLL_SCRATCH_DIR";
const DEFAULT_DIRECTORY: &str = "/var/tmp";
/// The longest path of a Unix socket: `sun_path` without its terminating zero.
pub const MAX_SOCKET_BYTES: usize = 107;
/// The longest path of a socket below a root: `/0123abcd/template-0123/run/mongodb-65535.sock`.
pub const LONGEST_SOCKET_BELOW_ROOT: usize = 46;
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
    /// Deleted Kubernetes Jobs of killed runs.
    pub jobs_deleted: usize,
    /// Scratch directories of runs and labs that are in progress.
    pub in_progress: usize,
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

/// What scratch files are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScratchUse {
    Data,
    /// Also code that is executed: the library of page encryption.
    Code,
}

/// The default root of this user's scratch directories: `/var/tmp/ciphertoll-UID`.
pub fn scratch_root() -> PathBuf {
    scratch_root_below(Path::new(DEFAULT_DIRECTORY))
}

/// The root of this user's scratch directories in `directory`.
pub fn scratch_root_below(directory: &Path) -> PathBuf {
    directory.join(format!("ciphertoll-{}", geteuid()))
}

/// Checks the directory that the user has chosen, and returns the root of scratch directories in it, as an absolute path
/// without links. Creates nothing.
pub fn prepare_scratch_directory(directory: &Path, used_for: ScratchUse) -> Result<PathBuf, Error> {
    // Servers and later runs have other working directories.
    let absolute = fs::canonicalize(directory).map_err(|error| unusable(directory, &error))?;
    check_scratch_directory(&absolute, used_for)?;
    Ok(scratch_root_below(&absolute))
}

/// Fails unless scratch files can be in `directory`, an absolute path: it must be writable, no other user may replace our
/// files, paths of sockets must fit, and code must be executable if there is any. Creates nothing.
pub fn check_scratch_directory(directory: &Path, used_for: ScratchUse) -> Result<(), Error> {
    let metadata = fs::metadata(directory).map_err(|error| unusable(directory, &error))?;
    if !metadata.is_dir() {
        return Err(unusable(directory, &"it is not a directory"));
    }
    // The specification and the ledger are text.
    if directory.to_str().is_none() {
        return Err(unusable(directory, &"its path is not UTF-8"));
    }
    check_writers(directory)?;
    let root = scratch_root_below(directory);
    let longest = MAX_SOCKET_BYTES - LONGEST_SOCKET_BELOW_ROOT;
    if let Some(excess) = root.as_os_str().len().checked_sub(longest).filter(|&excess| excess > 0) {
        let reason = format!(
            "its path is {excess} bytes too long for Unix sockets below it ({MAX_SOCKET_BYTES} bytes); use a shorter one"
        );
        return Err(unusable(directory, &reason));
    }
    if used_for == ScratchUse::Code && is_noexec(directory)? {
        let reason =
            "it is on a file system that is mounted noexec, but page encryption (tde) runs a library from it";
        return Err(unusable(directory, &reason));
    }
    if fs::symlink_metadata(&root).is_ok() {
        // Its parent need not be writable.
        return check_ours(&root).and_then(|()| check_writable(directory, &root));
    }
    check_writable(directory, directory)
}

fn check_writable(directory: &Path, path: &Path) -> Result<(), Error> {
    eaccess(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| {
        let what = if path == directory { "it".to_owned() } else { path.display().to_string() };
        unusable(directory, &format!("{what} is not writable: {}", errno.desc()))
    })
}

/// Whether files in `directory` cannot be executed.
pub fn is_noexec(directory: &Path) -> Result<bool, Error> {
    let found = statvfs(directory).map_err(io::Error::from).context("look at", directory)?;
    Ok(found.flags().contains(FsFlags::ST_NOEXEC))
}

/// A user that can rename entries of the directory, or of one above it, can replace our files: its owner, and those who can
/// write to it, unless the sticky bit prevents that, as in `/tmp`.
fn check_writers(directory: &Path) -> Result<(), Error> {
    const STICKY: u32 = 0o1000;
    const WRITABLE_BY_ALL: u32 = 0o002;
    const WRITABLE_BY_GROUP: u32 = 0o020;
    for ancestor in directory.ancestors() {
        let metadata = fs::metadata(ancestor).map_err(|error| unusable(directory, &error))?;
        let (mode, owner) = (metadata.mode(), metadata.uid());
        let is_ours = owner == geteuid().as_raw();
        let which = if ancestor == directory { "it".into() } else { ancestor.to_string_lossy() };
        if !is_ours && owner != 0 {
            let reason = format!(
                "{which} belongs to the user with the id {owner}, who could replace files; use a directory of your own"
            );
            return Err(unusable(directory, &reason));
        }
        // On many systems each user has a private group, which may write to all directories of the user.
        let forbidden = if is_ours { WRITABLE_BY_ALL } else { WRITABLE_BY_ALL | WRITABLE_BY_GROUP };
        if mode & STICKY == 0 && mode & forbidden != 0 {
            let reason = format!(
                "other users can write to {which} and could replace files; make it private, or set its sticky bit"
            );
            return Err(unusable(directory, &reason));
        }
    }
    Ok(())
}

fn unusable(directory: &Path, reason: &dyn Display) -> Error {
    Error::ScratchUnusable { path: directory.to_owned(), reason: reason.to_string() }
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
    for path in directories(root)? {
        let Some(_lock) = disk::try_lock(&path.join(LOCK))? else {
            report.in_progress += 1;
            continue;
        };
        match clear(&path, &mut report) {
            Ok(()) => report.directories_removed += 1,
            Err(error) => report.left.push(Left { path, reason: error.to_string() }),
        }
    }
    Ok(report)
}

fn directories(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).context("list", root)? {
        let entry = entry.context("list", root)?;
        let path = entry.path();
        if entry.file_type().context("look at", &path)?.is_dir() {
            found.push(path);
        }
    }
    Ok(found)
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

    /// Scratch directories of other runs and labs that are in progress.
    pub fn others_in_progress(&self) -> Result<BTreeSet<PathBuf>, Error> {
        let _one_at_a_time = disk::lock(&self.root.join(LOCK))?;
        let mut others = BTreeSet::new();
        for path in directories(&self.root)?.into_iter().filter(|path| *path != self.path) {
            if disk::try_lock(&path.join(LOCK))?.is_none() {
                others.insert(path);
            }
        }
        Ok(others)
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
    let mut unreachable = None;
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
            Effect::KubernetesJob(job) if job.is_expired() => {}
            Effect::KubernetesJob(job) => match job.delete() {
                Ok(()) => report.jobs_deleted += 1,
                Err(source) => unreachable = Some((job, source)),
            },
        }
    }
    match unreachable {
        None => remove(path),
        // The ledger stays, so that a later sweep tries again.
        Some((job, source)) => {
            Err(Error::JobLeft { name: job.name.clone(), namespace: job.namespace.clone(), source })
        }
    }
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
