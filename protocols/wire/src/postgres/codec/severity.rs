//! The severity of an error or notice.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The whole server stops.
    Panic,
    /// The session ends.
    Fatal,
    /// The command failed.
    Error,
    Warning,
    Notice,
    /// A notice that the client requested.
    Info,
    /// A notice for the server's log.
    Log,
    /// A notice for developers.
    Debug,
}

impl Severity {
    pub const ALL: [Self; 8] = [
        Self::Panic,
        Self::Fatal,
        Self::Error,
        Self::Warning,
        Self::Notice,
        Self::Info,
        Self::Log,
        Self::Debug,
    ];

    /// The name in the protocol.
    pub fn label(self) -> &'static str {
        match self {
            Self::Panic => "PANIC",
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
            Self::Info => "INFO",
            Self::Log => "LOG",
            Self::Debug => "DEBUG",
        }
    }

    /// Whether the session is over. The server then closes the connection.
    pub(crate) fn ends_session(self) -> bool {
        matches!(self, Self::Panic | Self::Fatal)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}
