//! Errors between client and server, and who can fix them.

use std::fmt;
use std::io;
use std::time::Duration;

use ciphertoll_wire::{mongodb, mysql, postgres, session};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{doing}: {source}")]
    Socket { doing: &'static str, source: io::Error },
    /// The name has no address, or none of the requested family.
    #[error("cannot resolve {name}: {reason}")]
    Unresolved { name: String, reason: String },
    /// The password for the server could not be fetched.
    #[error("no password for {user}: {reason}")]
    NoPassword { user: String, reason: String },
    /// The peer closed the connection in the middle of the protocol.
    #[error("the server closed the connection")]
    Closed,
    #[error("the server did not answer within {seconds} s")]
    TimedOut { seconds: u64 },
    /// What listens there is no server of the login's protocol.
    #[error("this port does not speak {protocol}: {instead}")]
    OtherProtocol { protocol: &'static str, instead: Instead },
    #[error("TLS: {0}")]
    Tls(String),
    /// The client's TLS settings cannot be used: an unreadable CA file, an invalid name.
    #[error("cannot build the TLS context: {0}")]
    TlsSettings(String),
    /// The database protocol was violated, or the server refused.
    #[error(transparent)]
    Protocol(#[from] session::Error),
}

/// What came instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    Silence { first: &'static str, limit: Duration },
    Other { protocol: &'static str, text: String },
}

impl fmt::Display for Instead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence { first, limit } => {
                write!(formatter, "it sent no {first} within {} s", limit.as_secs_f64())
            }
            Self::Other { protocol, text } if text.is_empty() => {
                write!(formatter, "it answered like {protocol}")
            }
            Self::Other { protocol, text } => write!(formatter, "it answered like {protocol}: {text}"),
        }
    }
}

/// Who can fix an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is unreachable, refused, or broke its protocol.
    Server,
    /// TLS version, suite or certificate.
    Tls,
    /// This machine lacks ports, files or memory.
    Host,
    /// The caller's settings.
    Caller,
}

impl Error {
    pub(crate) fn socket(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { doing, source }
    }

    /// Whether the server has reached a connection limit, its own or the user's.
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Protocol(error) if error.is_too_many_connections())
    }

    /// Whether the server refused the password, or a login that it does not distinguish from that.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Protocol(error) if error.is_wrong_password())
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Socket { source, .. } => match source.kind() {
                io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::AddrInUse
                | io::ErrorKind::PermissionDenied => Fault::Host,
                _ if is_out_of_resources(source) => Fault::Host,
                _ => Fault::Server,
            },
            Self::Unresolved { .. } | Self::Closed | Self::TimedOut { .. } | Self::OtherProtocol { .. } => {
                Fault::Server
            }
            Self::Tls(_) => Fault::Tls,
            Self::TlsSettings(_) | Self::NoPassword { .. } => Fault::Caller,
            Self::Protocol(error) => match error.fault() {
                session::Fault::Server | session::Fault::Peer => Fault::Server,
                session::Fault::Caller => Fault::Caller,
            },
        }
    }
}

impl From<mysql::Error> for Error {
    fn from(error: mysql::Error) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<mongodb::Error> for Error {
    fn from(error: mongodb::Error) -> Self {
        Self::Protocol(error.into())
    }
}

/// Whether the machine lacks file descriptors, buffers or memory.
fn is_out_of_resources(error: &io::Error) -> bool {
    use nix::errno::Errno::{self, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let code = error.raw_os_error().map(Errno::from_raw);
    code.is_some_and(|code| matches!(code, EMFILE | ENFILE | ENOBUFS | ENOMEM))
        || error.kind() == io::ErrorKind::OutOfMemory
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_lack_of_resources_is_the_machines_fault() {
        let fault = |errno: Errno| {
            let source = io::Error::from_raw_os_error(errno as i32);
            Error::Socket { doing: "cannot accept", source }.fault()
        };
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            assert_eq!(fault(errno), Fault::Host, "{errno}");
        }
        assert_eq!(fault(Errno::ECONNREFUSED), Fault::Server);
    }
}
