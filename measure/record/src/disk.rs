//! File operations of a record: locks, appended lines, durable files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;

use crate::error::{Context, Error};

const LOCK_POLL: Duration = Duration::from_millis(10);

/// Whether an appended line must be on disk when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Written with the next durable line.
    Buffered,
    /// On the disk when the call returns.
    Durable,
}

/// A file of JSON lines that only grows.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    path: PathBuf,
}

impl Lines {
    /// Opens or creates `path` for appending.
    pub(crate) fn open(path: PathBuf, mode: u32) -> Result<Self, Error> {
        let file =
            OpenOptions::new().append(true).create(true).mode(mode).open(&path).context("open", &path)?;
        Ok(Self { file, path })
    }

    /// Truncates the file to `bytes`, before a torn line.
    pub(crate) fn cut(&self, bytes: u64) -> Result<(), Error> {
        self.file.set_len(bytes).context("repair", &self.path)
    }

    /// Appends one line. If the disk is full, no part of the line stays.
    pub(crate) fn append(&mut self, value: &impl Serialize, durability: Durability) -> Result<(), Error> {
        let mut line =
            serde_json::to_vec(value).map_err(io::Error::other).context("encode a line for", &self.path)?;
        line.push(b'\n');
        let before = self.file.metadata().context("inspect", &self.path)?.len();
        if let Err(failure) = self.file.write_all(&line) {
            // Best effort: a reader drops a torn last line anyway.
            let _ = self.file.set_len(before);
            return Err(failure).context("write to", &self.path);
        }
        match durability {
            Durability::Durable => self.file.sync_data().context("write to", &self.path),
            Durability::Buffered => Ok(()),
        }
    }
}

/// Takes the lock file at `path`; `None` if another process holds it.
pub(crate) fn try_lock(path: &Path) -> Result<Option<Flock<File>>, Error> {
    match Flock::lock(open_lock(path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(io::Error::from(errno)).context("lock", path),
    }
}

/// Takes the lock file at `path`; `None` if another process still holds it after `patience`.
pub(crate) fn lock_within(patience: Duration, path: &Path) -> Result<Option<Flock<File>>, Error> {
    let deadline = Instant::now() + patience;
    loop {
        let taken = try_lock(path)?;
        if taken.is_some() || Instant::now() >= deadline {
            return Ok(taken);
        }
        thread::sleep(LOCK_POLL);
    }
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockHolder {
    Nobody,
    AnotherProcess,
}

/// Finds out whether the lock file at `path` is held. Creates no file; a missing one is not held.
pub(crate) fn lock_holder(path: &Path) -> Result<LockHolder, Error> {
    let opened = OpenOptions::new().read(true).custom_flags(no_follow()).open(path);
    let file = match opened {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(LockHolder::Nobody),
        opened => opened.context("open", path)?,
    };
    // Shared, so that two readers do not take each other for a writer.
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(LockHolder::Nobody),
        Err((_, Errno::EWOULDBLOCK)) => Ok(LockHolder::AnotherProcess),
        Err((_, errno)) => Err(io::Error::from(errno)).context("lock", path),
    }
}

/// Takes the lock file at `path`; waits if another process holds it.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, Error> {
    Flock::lock(open_lock(path)?, FlockArg::LockExclusive)
        .map_err(|(_, errno)| io::Error::from(errno))
        .context("lock", path)
}

/// Creates the file and syncs it.
pub(crate) fn write_new(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let mut file = File::create_new(path).context("make", path)?;
    file.write_all(contents).context("write", path)?;
    file.sync_all().context("write", path)
}

/// Syncs `directory`, so that its names survive a power cut.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|opened| opened.sync_all()).context("write", directory)
}

fn open_lock(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(no_follow());
    options.open(path).context("open", path)
}

/// A lock file is never read or written. Without `O_NOFOLLOW`, a link could make it another user's file.
fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}
