//! What can go wrong with files that outlive a process, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

use ciphertoll_model::{ExitCode, SCHEMA_VERSION};

/// Something that should have been on disk is not, or cannot be put there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A record is damaged or is none.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else writes this record now.
    #[error("{} is in use by another ciphertoll; wait until that one ends", path.display())]
    Locked {
        /// The run directory.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error(
        "{} was written by a newer ciphertoll (format {found}, this one reads up to {SCHEMA_VERSION}): update this one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// No run goes by that name.
    #[error("no run \"{asked}\" in {}{hint}", runs.display())]
    NotFound {
        /// What was asked for.
        asked: String,
        /// Where it was looked for.
        runs: PathBuf,
        /// The nearest right thing, or nothing.
        hint: String,
    },
    /// No space is left. What was written before stays readable.
    #[error("disk full: cannot {action} {}", path.display())]
    DiskFull {
        /// Verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else could meddle with a directory that must be ours.
    #[error("{} {problem}; remove it, or ask its owner to", path.display())]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Error {
    /// What the process should answer when this ends it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unreadable { .. } | Self::Locked { .. } | Self::Newer { .. } => ExitCode::RecordUnusable,
            Self::NotFound { .. } => ExitCode::Usage,
            Self::DiskFull { .. } | Self::Io { .. } | Self::Untrusted { .. } => ExitCode::HostResource,
        }
    }

    /// An error of the operating system while doing `action` to `path`; a full disk or quota is told apart.
    pub fn from_io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { action, path },
            _ => Self::Io { action, path, source },
        }
    }
}

/// Puts verb and object to an error of the operating system.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::from_io(action, path, source))
    }
}
