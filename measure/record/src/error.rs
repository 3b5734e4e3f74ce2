//! Errors of files that outlive a process, with their exit codes.

use std::io;
use std::path::{Path, PathBuf};

use ciphertoll_model::{ExitCode, SCHEMA_VERSION};

/// An error of a file or directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} is in use by another ciphertoll; wait until it ends", path.display())]
    Locked { path: PathBuf },
    #[error(
        "{} was written by a newer ciphertoll (format {found}, this one reads up to {SCHEMA_VERSION}): update this one",
        path.display()
    )]
    Newer { path: PathBuf, found: u64 },
    #[error("no run \"{asked}\" in {}{hint}", runs.display())]
    NotFound {
        asked: String,
        runs: PathBuf,
        /// A suggestion, or empty.
        hint: String,
    },
    #[error("{} is not a run: {reason}", path.display())]
    NotARun { path: PathBuf, reason: &'static str },
    /// No space is left. Earlier lines stay readable.
    #[error("disk full: cannot {action} {}", path.display())]
    DiskFull { action: &'static str, path: PathBuf },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot use the scratch directory {}: {reason}", path.display())]
    ScratchUnusable { path: PathBuf, reason: String },
    #[error(
        "cannot delete the Kubernetes Job {name} in the namespace {namespace}: {source}; the next run tries again, and the Job has a deadline"
    )]
    JobLeft { name: String, namespace: String, source: io::Error },
    /// Another user could change a directory that must be private.
    #[error("{} {problem}; remove it, or ask its owner to", path.display())]
    Untrusted { path: PathBuf, problem: &'static str },
}

impl Error {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unreadable { .. } | Self::Locked { .. } | Self::Newer { .. } | Self::NotARun { .. } => {
                ExitCode::RecordUnusable
            }
            Self::NotFound { .. } => ExitCode::Usage,
            Self::DiskFull { .. }
            | Self::Io { .. }
            | Self::ScratchUnusable { .. }
            | Self::JobLeft { .. }
            | Self::Untrusted { .. } => ExitCode::HostResource,
        }
    }

    /// An operating system error of `action` on `path`. A full disk or quota is a separate error.
    pub fn from_io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { action, path },
            _ => Self::Io { action, path, source },
        }
    }
}

/// Adds verb and object to an operating system error.
pub trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::from_io(action, path, source))
    }
}
