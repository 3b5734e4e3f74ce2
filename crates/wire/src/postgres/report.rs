//! `ErrorResponse` and `NoticeResponse` ("Error and Notice Message Fields").

use std::fmt;

use super::{
    Error,
    codec::{Reader, printable, put_nul_terminated},
};

/// More than any server writes in earnest; a longer message is cut.
const MAX_MESSAGE_CHARACTERS: usize = 1024;
/// "XX000", the state of an error that has none of its own (`internal_error`).
const INTERNAL_ERROR: [u8; 5] = *b"XX000";

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The whole server stops.
    Panic,
    /// The session ends.
    Fatal,
    /// The command failed.
    Error,
    /// A notice that is worth a look.
    Warning,
    /// A notice.
    Notice,
    /// A notice that was asked for.
    Info,
    /// A notice meant for the server's log.
    Log,
    /// A notice meant for developers.
    Debug,
}

impl Severity {
    /// All of them.
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

    /// The protocol's name.
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

    /// Whether the session is over. The server then closes the connection without another word.
    pub(super) fn ends_session(self) -> bool {
        matches!(self, Self::Panic | Self::Fatal)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

/// An error or notice as the server sends it; the fields that nobody here asks for are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<'a> {
    /// How bad it is.
    pub severity: Severity,
    /// The SQL state.
    pub sqlstate: [u8; 5],
    /// The primary message, in whatever bytes the server chose.
    pub message: &'a [u8],
}

/// A notice that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How bad it is.
    pub severity: Severity,
    /// The SQL state.
    pub sqlstate: String,
    /// The server's words, made printable.
    pub message: String,
}

impl<'a> Report<'a> {
    /// Reads the payload of an `ErrorResponse` or `NoticeResponse`.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "error or notice");
        let mut report = Self { severity: Severity::Error, sqlstate: INTERNAL_ERROR, message: b"" };
        loop {
            let field = reader.u8()?;
            if field == 0 {
                break;
            }
            let value = reader.nul_terminated()?;
            match field {
                // `S` may be translated, `V` never is; servers before 9.6 have the first alone.
                b'S' | b'V' => {
                    let mut known = Severity::ALL.into_iter();
                    if let Some(severity) = known.find(|severity| severity.label().as_bytes() == value) {
                        report.severity = severity;
                    }
                }
                b'C' => {
                    report.sqlstate =
                        value.try_into().map_err(|_| reader.error("an SQL state that is not 5 bytes"))?;
                }
                b'M' => report.message = value,
                _ => {}
            }
        }
        reader.end()?;
        Ok(report)
    }

    /// Appends the payload. The message must have no NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let label = self.severity.label().as_bytes();
        for (field, value) in [(b'S', label), (b'V', label), (b'C', &self.sqlstate), (b'M', self.message)] {
            out.push(field);
            put_nul_terminated(out, value);
        }
        out.push(0);
    }

    /// What is kept of a notice.
    pub(super) fn to_notice(self) -> Notice {
        Notice {
            severity: self.severity,
            sqlstate: printable(&self.sqlstate, self.sqlstate.len()),
            message: printable(self.message, MAX_MESSAGE_CHARACTERS),
        }
    }
}

impl From<Report<'_>> for Error {
    fn from(report: Report<'_>) -> Self {
        let Notice { severity, sqlstate, message } = report.to_notice();
        Self::Server { severity, sqlstate, message }
    }
}
