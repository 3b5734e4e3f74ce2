//! Why a driver cannot be used, and whose fault it is.

use std::io;
use std::path::PathBuf;

use ciphertoll_model::Fault;

/// A driver that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none of this name.
    #[error("there is no driver \"{name}\"; {}", hint(.nearest.as_deref(), .known))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The closest name, if any is close.
        nearest: Option<String>,
        /// Every name.
        known: Vec<String>,
    },
    /// The file does not say what a driver's file must say.
    #[error("driver {name}: {reason}")]
    File {
        /// Which driver.
        name: String,
        /// What is wrong, in one line.
        reason: String,
    },
    /// Something that the driver needs is not here.
    #[error("driver {name} needs {needs}: {reason}")]
    Missing {
        /// Which driver.
        name: String,
        /// How to get what is missing.
        needs: String,
        /// What was found out.
        reason: String,
    },
    /// The trial is not one for this driver.
    #[error("{0}")]
    Trial(String),
    /// The tool failed.
    #[error("{tool}: {reason}")]
    Tool {
        /// The program.
        tool: String,
        /// What it said last, without secrets.
        reason: String,
    },
    /// The tool said something else than its driver's file expects.
    #[error("cannot read what the tool printed: {0}")]
    Output(String),
    /// A file or process of our own.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Tool { .. } => Fault::Server,
            Self::Missing { .. } | Self::Io { .. } => Fault::Host,
            Self::Unknown { .. } | Self::File { .. } | Self::Trial(_) | Self::Output(_) => Fault::Internal,
        }
    }
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    nearest.map_or_else(
        || format!("it is one of: {}", known.join(", ")),
        |name| format!("did you mean \"{name}\"?"),
    )
}
