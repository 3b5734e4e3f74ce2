//! Why a driver cannot be used, and who can fix it.

use std::io;
use std::path::PathBuf;

use ciphertoll_model::FailureOrigin;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no driver \"{name}\"; {}", hint(.nearest.as_deref(), .known))]
    Unknown { name: String, nearest: Option<String>, known: Vec<String> },
    #[error("driver {name}: {reason}")]
    File {
        name: String,
        /// In one line.
        reason: String,
    },
    #[error("driver {name} needs {needs}: {reason}")]
    Missing {
        name: String,
        /// How to get what is missing.
        needs: String,
        /// In one line.
        reason: String,
    },
    #[error("{0}")]
    Trial(String),
    #[error("{tool}: {reason}")]
    Tool {
        tool: String,
        /// Its last complaint, without secrets.
        reason: String,
    },
    /// The tool's output differs from what its driver's file expects.
    #[error("cannot read what the tool printed: {0}")]
    Output(String),
    /// The trial cannot be read, or not be reported on.
    #[error(transparent)]
    Load(#[from] crate::Error),
    /// An operation on one of our own files or processes failed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }

    pub fn fault(&self) -> FailureOrigin {
        match self {
            Self::Load(error) => error.fault(),
            Self::Tool { .. } => FailureOrigin::Server,
            Self::Missing { .. } | Self::Io { .. } => FailureOrigin::Host,
            Self::Unknown { .. } | Self::File { .. } | Self::Trial(_) | Self::Output(_) => {
                FailureOrigin::Internal
            }
        }
    }
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    nearest.map_or_else(
        || format!("it is one of: {}", known.join(", ")),
        |name| format!("did you mean \"{name}\"?"),
    )
}
