//! Files the way a record needs them: locked, appended to line by line, and never half-visible.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;

use crate::error::{Context, Error};

/// Whether what is appended must be on the disk before going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The next durable line takes this one with it.
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
    /// Opens `path` for appending, making it where it does not exist.
    pub(crate) fn open(path: PathBuf, mode: u32) -> Result<Self, Error> {
        let file =
            OpenOptions::new().append(true).create(true).mode(mode).open(&path).context("open", &path)?;
        Ok(Self { file, path })
    }

    /// Cuts the file to `bytes`: what follows was torn.
    pub(crate) fn cut(&self, bytes: u64) -> Result<(), Error> {
        self.file.set_len(bytes).context("repair", &self.path)
    }

    /// Appends one line. Where the disk is full, nothing of the line is left behind.
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

/// Takes the lock file at `path`, or says at once that somebody else holds it (`None`).
pub(crate) fn try_lock(path: &Path) -> Result<Option<Flock<File>>, Error> {
    match Flock::lock(open_lock(path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(io::Error::from(errno)).context("lock", path),
    }
}

/// Takes the lock file at `path`, waiting for whoever holds it.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, Error> {
    Flock::lock(open_lock(path)?, FlockArg::LockExclusive)
        .map_err(|(_, errno)| io::Error::from(errno))
        .context("lock", path)
}

/// Makes the file and writes it through to the disk.
pub(crate) fn write_new(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let mut file = File::create_new(path).context("make", path)?;
    file.write_all(contents).context("write", path)?;
    file.sync_all().context("write", path)
}

/// Makes the names in `directory` survive a power cut.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|opened| opened.sync_all()).context("write", directory)
}

fn open_lock(path: &Path) -> Result<File, Error> {
    // A lock file is never read or written; not following links keeps others' files out of it.
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(no_follow);
    options.open(path).context("open", path)
}
