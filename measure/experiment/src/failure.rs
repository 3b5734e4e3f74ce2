//! Classifies errors: the exit code, and whether the error ends a trial or the run.

use ciphertoll_lab::Server;
use ciphertoll_model::{ExitCode, FailureOrigin, VoidReason};

use crate::trial::{TestbedError, TrialError};

/// Why a server was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    /// It is missing, or did not start.
    #[error(transparent)]
    Lab(#[from] ciphertoll_lab::Error),
    /// It runs with other settings than requested.
    #[error("{0}")]
    Settings(String),
    /// It runs, but its files are not encrypted as planned.
    #[error("{0}")]
    AtRest(String),
}

impl NotStarted {
    /// Whether only the cells of this server are skipped and the rest of the plan runs.
    pub(crate) fn concerns_one_server(&self) -> bool {
        matches!(self.exit_code(), ExitCode::NothingRan | ExitCode::ServerRefused)
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Lab(error) => error.exit_code(),
            Self::Settings(_) | Self::AtRest(_) => ExitCode::ServerRefused,
        }
    }
}

impl From<NotStarted> for TestbedError {
    fn from(error: NotStarted) -> Self {
        Self { message: error.to_string(), exit_code: error.exit_code() }
    }
}

/// A failed load voids its trial. A load that this machine cannot start ends the run.
#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
pub(crate) fn load_failed(error: ciphertoll_load::Error) -> TrialError {
    match error.fault() {
        FailureOrigin::Server | FailureOrigin::Tls | FailureOrigin::Internal => {
            TrialError::Void(VoidReason::LoadFailed { message: error.to_string() })
        }
        FailureOrigin::Host => {
            TrialError::Fatal(TestbedError { message: error.to_string(), exit_code: ExitCode::HostResource })
        }
    }
}

/// A failed control connection of a dead server voids only the trial.
pub(crate) fn control_failed(server: &mut Server, error: ciphertoll_lab::Error) -> TrialError {
    match server.check_survived() {
        Err(died) => server_died(&died),
        Ok(()) => fatal(error),
    }
}

pub(crate) fn server_died(died: &ciphertoll_lab::Error) -> TrialError {
    TrialError::Void(VoidReason::ServerDied { message: died.to_string() })
}

pub(crate) fn fatal(error: ciphertoll_lab::Error) -> TrialError {
    TrialError::Fatal(testbed_error(error))
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
pub(crate) fn testbed_error(error: ciphertoll_lab::Error) -> TestbedError {
    TestbedError { message: error.to_string(), exit_code: error.exit_code() }
}

pub(crate) fn internal(message: String) -> TestbedError {
    TestbedError { message, exit_code: ExitCode::Internal }
}
