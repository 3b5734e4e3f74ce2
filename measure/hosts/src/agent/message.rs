//! What the parts of the agent tell each other, and what they tell the coordinator about a trial.

use std::io;

use ciphertoll_model::{ErrorKind, FailureOrigin, LoadMessage};

use crate::protocol::{FromHost, ToHost};

/// What the agent waits for.
pub(crate) enum Input {
    /// A message, and when it was read.
    Said { at_ns: u64, message: ToHost },
    /// The end of stdin, or something that is no message.
    Ended(Option<io::Error>),
    /// Of the running load process.
    Load(FromHost),
}

/// Why a trial did not start on this host.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStarted {
    #[error(transparent)]
    Scratch(#[from] ciphertoll_record::Error),
    #[error("cannot write a file of the trial: {0}")]
    File(io::Error),
    #[error(transparent)]
    Load(#[from] ciphertoll_load::Error),
}

/// The message that ends a trial without a result.
pub(super) fn ended(trial: u64, error: &NotStarted) -> FromHost {
    let (fault, kind) = match error {
        NotStarted::Scratch(_) | NotStarted::File(_) => (FailureOrigin::Host, ErrorKind::Other),
        NotStarted::Load(error) => (error.fault(), error.kind()),
    };
    FromHost::LoadEnded { trial, reason: error.to_string(), fault, kind }
}

/// The trial that a message is about.
pub(super) fn trial_of(message: &FromHost) -> Option<u64> {
    match message {
        FromHost::Load { trial, .. } | FromHost::Window { trial, .. } | FromHost::LoadEnded { trial, .. } => {
            Some(*trial)
        }
        _ => None,
    }
}

/// Whether a trial says no more.
pub(super) fn is_last(message: &FromHost) -> bool {
    matches!(message, FromHost::LoadEnded { .. } | FromHost::Load { message: LoadMessage::Finished(_), .. })
}
