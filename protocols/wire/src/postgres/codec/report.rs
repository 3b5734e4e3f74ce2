//! `ErrorResponse` and `NoticeResponse` ("Error and Notice Message Fields").

use crate::{
    postgres::{
        codec::{
            reader::{Reader, put_nul_terminated},
            severity::Severity,
        },
        error::Error,
    },
    printable::printable,
};

/// Longer than any server's message; the rest is cut.
const MAX_MESSAGE_CHARACTERS: usize = 1024;
/// "XX000": the SQL state of an error without a specific one (`internal_error`).
const INTERNAL_ERROR: [u8; 5] = *b"XX000";

/// The fields of an error or notice that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report<'a> {
    pub severity: Severity,
    pub sqlstate: [u8; 5],
    /// The primary message; not necessarily UTF-8.
    pub message: &'a [u8],
}

/// A notice that a reader keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    pub sqlstate: String,
    /// Made printable.
    pub message: String,
}

impl<'a> Report<'a> {
    /// Parses the payload of an `ErrorResponse` or `NoticeResponse`.
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
                // `S` may be localized, `V` never is; servers before 9.6 send only the first.
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

    pub(crate) fn to_notice(self) -> Notice {
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
