//! Why a load could not be made, and who can fix it.

use std::io;

use ciphertoll_model::{ErrorKind, FailureOrigin};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection failed before the window opened.
    #[error(transparent)]
    Connection(#[from] ciphertoll_net::Error),
    #[error("the trial's specification does not parse: {0}")]
    Spec(#[from] serde_json::Error),
    #[error("the trial's script cannot be run: {0}")]
    Script(String),
    #[error("the trial cannot be made: {0}")]
    Unfit(&'static str),
    #[error(
        "the answer's rows are {bytes} bytes, and {least} were asked for (MySQL and MariaDB give NULL for a value longer \
         than max_allowed_packet)"
    )]
    ShortAnswer { bytes: u64, least: u64 },
    #[error(
        "the answer's documents are {bytes} bytes, and {least} were asked for: a document that must be there was not \
         found, or has lost fields"
    )]
    MissingDocument { bytes: u64, least: u64 },
    #[error("cannot parse the load process's message: {0}")]
    Message(serde_json::Error),
    /// An operation on one of our own files or pipes failed.
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    #[error("{waiting} of {clients} clients were not connected after {seconds} s")]
    NotReady { waiting: usize, clients: usize, seconds: u64 },
    #[error("a load thread panicked")]
    Panicked,
    #[error("the load process ended without a result: {0}")]
    NoResult(String),
    #[error("the load process wrote a line of more than {limit_bytes} bytes")]
    LineTooLong { limit_bytes: usize },
    #[error("the load process was still running {seconds} s after its window should have closed")]
    Overdue { seconds: u64 },
    #[error("{message}")]
    Reported { fault: FailureOrigin, message: String, kind: ErrorKind },
}

impl Error {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// Whether the error needs more than counting.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connection(error) if error.is_too_many_connections() => ErrorKind::TooManyConnections,
            Self::Reported { kind, .. } => *kind,
            _ => ErrorKind::Other,
        }
    }

    /// Whether the server has reached a connection limit, its own or the user's. The load stops then, as others may
    /// need the remaining connections.
    pub fn is_too_many_connections(&self) -> bool {
        self.kind() == ErrorKind::TooManyConnections
    }

    pub fn fault(&self) -> FailureOrigin {
        match self {
            Self::Connection(error) => match error.fault() {
                ciphertoll_net::Fault::Server => FailureOrigin::Server,
                ciphertoll_net::Fault::Tls => FailureOrigin::Tls,
                ciphertoll_net::Fault::Host => FailureOrigin::Host,
                ciphertoll_net::Fault::Caller => FailureOrigin::Internal,
            },
            Self::NotReady { .. } | Self::ShortAnswer { .. } | Self::MissingDocument { .. } => {
                FailureOrigin::Server
            }
            Self::Reported { fault, .. } => *fault,
            Self::Io { .. } => FailureOrigin::Host,
            Self::Spec(_)
            | Self::Script(_)
            | Self::Unfit(_)
            | Self::Message(_)
            | Self::Panicked
            | Self::NoResult(_)
            | Self::LineTooLong { .. }
            | Self::Overdue { .. } => FailureOrigin::Internal,
        }
    }
}
