//! Whose fault an error is, and whether it ends a trial or the run.

use ciphertoll_lab::Server;
use ciphertoll_model::{ExitCode, FailureOrigin, VoidReason};

use crate::bench::{BenchError, TrialError};

/// No server to measure.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStarted {
    /// It is missing, or did not start.
    #[error(transparent)]
    Lab(#[from] ciphertoll_lab::Error),
    /// It runs, but not as it was asked to.
    #[error("{0}")]
    Settings(String),
    /// It runs, but its files are not what they should be.
    #[error("{0}")]
    AtRest(String),
}

impl NotStarted {
    /// A server that is missing or does not start is left out; the rest of the plan still runs.
    pub(super) fn concerns_one_server(&self) -> bool {
        matches!(self.exit_code(), ExitCode::NothingRan | ExitCode::ServerRefused)
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::Settings(_) | Self::AtRest(_) => ExitCode::ServerRefused,
        }
    }
}

impl From<NotStarted> for BenchError {
    fn from(error: NotStarted) -> Self {
        Self { message: error.to_string(), exit_code: error.exit_code() }
    }
}

/// A load that failed voids its trial; one that this machine cannot make ends the run.
#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
pub(super) fn load_failed(error: ciphertoll_load::Error) -> TrialError {
    match error.fault() {
        FailureOrigin::Server | FailureOrigin::Tls | FailureOrigin::Internal => {
            TrialError::Void(VoidReason::LoadFailed { message: error.to_string() })
        }
        FailureOrigin::Host => {
            TrialError::Fatal(BenchError { message: error.to_string(), exit_code: ExitCode::HostResource })
        }
    }
}

/// A control connection that failed because the server died voids the trial only.
pub(super) fn control_failed(server: &mut Server, error: ciphertoll_lab::Error) -> TrialError {
    match server.check_survived() {
        Err(died) => server_died(&died),
        Ok(()) => fatal(error),
    }
}

/// Voids a trial whose server's files were not encrypted as its level says.
pub(super) fn not_encrypted(error: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::AtRest { message: error.to_string() })
}

pub(super) fn server_died(died: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::ServerDied { message: died.to_string() })
}

pub(super) fn fatal(error: ciphertoll_lab::Error) -> TrialError {
    TrialError::Fatal(bench_error(error))
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
pub(super) fn bench_error(error: ciphertoll_lab::Error) -> BenchError {
    BenchError { message: error.to_string(), exit_code: error.exit_code() }
}

pub(super) fn internal(message: String) -> BenchError {
    BenchError { message, exit_code: ExitCode::Internal }
}
