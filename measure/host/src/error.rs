//! Errors of this crate, and the exit code of each.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ciphertoll_model::ExitCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of an installed server is missing or does not run.
    #[error("{} does not work: {reason}", program.display())]
    Program { program: PathBuf, reason: String },
    /// A tool, tunnel or proxy is not installed.
    #[error("{program} not found; {how_to_get}")]
    ProgramMissing { program: &'static str, how_to_get: String },
    /// A process got SIGSTOP.
    #[error("{what} was stopped")]
    Stopped { what: String },
    /// A process ended unexpectedly.
    #[error("{what} ended ({status}); its log ends: {log_end}")]
    Died { what: String, status: String, log_end: String },
    #[error("{what} did not finish within {limit:?} ({last}); its log ends: {log_end}")]
    TooSlow { what: String, limit: Duration, last: String, log_end: String },
    #[error("servers must not run as root, and {0}")]
    NoServerUser(String),
    /// The `__exec` helper could not execute the program.
    #[error("cannot start {}: {reason}", program.display())]
    Exec { program: PathBuf, reason: String },
    #[error("{0}")]
    StorageUnavailable(String),
    #[error("cannot create {}: {source}; set XDG_CACHE_HOME or HOME to a directory that you can write to", path.display())]
    Cache { path: PathBuf, source: io::Error },
    /// Files, locks and the ledger.
    #[error(transparent)]
    Record(#[from] ciphertoll_record::Error),
}

impl Error {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Program { .. } | Self::ProgramMissing { .. } | Self::StorageUnavailable(_) => {
                ExitCode::NothingRan
            }
            Self::Died { .. } | Self::Stopped { .. } | Self::TooSlow { .. } => ExitCode::ServerRefused,
            Self::NoServerUser(_) | Self::Cache { .. } => ExitCode::HostResource,
            Self::Exec { .. } => ExitCode::Internal,
            Self::Record(error) => error.exit_code(),
        }
    }
}
