//! Why a load could not be made, and whose fault it is.

use std::io;

use ciphertoll_model::{ErrorKind, Fault};

/// A load that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection failed before the window could open.
    #[error(transparent)]
    Connection(#[from] ciphertoll_net::Error),
    /// The specification on stdin is not one.
    #[error("the trial's specification does not parse: {0}")]
    Spec(#[from] serde_json::Error),
    /// The script on stdin cannot be run.
    #[error("the trial's script cannot be run: {0}")]
    Script(String),
    /// The specification asks for what there is none of.
    #[error("the trial cannot be made: {0}")]
    Unfit(&'static str),
    /// A transaction's rows were fewer bytes than its script says.
    #[error(
        "the answer's rows are {bytes} bytes, and {least} were asked for (MySQL and MariaDB give NULL for a value longer \
         than max_allowed_packet)"
    )]
    ShortAnswer {
        /// What came.
        bytes: u64,
        /// What the script says, at the least.
        least: u64,
    },
    /// A transaction's documents were fewer bytes than its script says.
    #[error(
        "the answer's documents are {bytes} bytes, and {least} were asked for: a document that must be there was not \
         found, or has lost fields"
    )]
    MissingDocument {
        /// What came.
        bytes: u64,
        /// What the script says, at the least.
        least: u64,
    },
    /// A line from the load process is no message.
    #[error("the load process wrote what is no message: {0}")]
    Message(serde_json::Error),
    /// A file or pipe of our own.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The clients were not ready in time.
    #[error("{waiting} of {clients} clients were not connected after {seconds} s")]
    NotReady {
        /// Clients still connecting.
        waiting: usize,
        /// All clients.
        clients: usize,
        /// How long was waited.
        seconds: u64,
    },
    /// A thread of the load process died.
    #[error("a load thread panicked")]
    Panicked,
    /// The load process ended without a result.
    #[error("the load process ended without a result: {0}")]
    NoResult(String),
    /// A line from the load process is longer than any message.
    #[error("the load process wrote a line of more than {limit_bytes} bytes")]
    LineTooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// The load process outlived its deadline and was killed.
    #[error("the load process was still running {seconds} s after its window should have closed")]
    Overdue {
        /// How long was waited.
        seconds: u64,
    },
    /// The load process reported a failure.
    #[error("{message}")]
    Reported {
        /// Whose fault.
        fault: Fault,
        /// What it said.
        message: String,
        /// What kind of failure.
        kind: ErrorKind,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// Whether it calls for more than being counted.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connection(error) if error.is_too_many_connections() => ErrorKind::TooManyConnections,
            Self::Reported { kind, .. } => *kind,
            _ => ErrorKind::Other,
        }
    }

    /// Whether the server has no room for one more connection, of anybody's or of this user's. A load that hears it
    /// stops: others may need the connections that are left.
    pub fn is_too_many_connections(&self) -> bool {
        self.kind() == ErrorKind::TooManyConnections
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Connection(error) => match error.fault() {
                ciphertoll_net::Fault::Server => Fault::Server,
                ciphertoll_net::Fault::Tls => Fault::Tls,
                ciphertoll_net::Fault::Host => Fault::Host,
                ciphertoll_net::Fault::Caller => Fault::Internal,
            },
            Self::NotReady { .. } | Self::ShortAnswer { .. } | Self::MissingDocument { .. } => Fault::Server,
            Self::Reported { fault, .. } => *fault,
            Self::Io { .. } => Fault::Host,
            Self::Spec(_)
            | Self::Script(_)
            | Self::Unfit(_)
            | Self::Message(_)
            | Self::Panicked
            | Self::NoResult(_)
            | Self::LineTooLong { .. }
            | Self::Overdue { .. } => Fault::Internal,
        }
    }
}
