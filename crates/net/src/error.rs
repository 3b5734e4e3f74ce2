//! What can go wrong between client and server, and whose fault it is.

use std::io;

use ciphertoll_wire::{mongodb, mysql, postgres, session};

/// A connection that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket.
    #[error("{doing}: {source}")]
    Socket {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The server's name says no address, or none of the family that was asked for.
    #[error("cannot resolve {name}: {reason}")]
    Unresolved {
        /// The name.
        name: String,
        /// What the resolver said.
        reason: String,
    },
    /// The peer closed the connection where the protocol goes on.
    #[error("the server closed the connection")]
    Closed,
    /// The peer said nothing for too long.
    #[error("the server did not answer within {seconds} s")]
    TimedOut {
        /// How long was waited.
        seconds: u64,
    },
    /// The TLS handshake or a record.
    #[error("TLS: {0}")]
    Tls(String),
    /// The client's own TLS settings: a CA file that does not read, a name that is none.
    #[error("cannot build the TLS context: {0}")]
    TlsSettings(String),
    /// The database's protocol, or the server's refusal in it.
    #[error(transparent)]
    Protocol(#[from] session::Error),
}

/// Who can do something about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is not there, refused, or broke its protocol.
    Server,
    /// Version, suite or certificate.
    Tls,
    /// This machine ran out of ports, files or memory.
    Host,
    /// The caller's settings.
    Caller,
}

impl Error {
    pub(crate) fn socket(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { doing, source }
    }

    /// Whether the server has no room for one more connection, of anybody's or of this user's.
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Protocol(error) if error.is_too_many_connections())
    }

    /// Whether the server refused the login for its password, or for what it does not tell from that.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Protocol(error) if error.is_wrong_password())
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Socket { source, .. } => match source.kind() {
                io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::AddrInUse
                | io::ErrorKind::PermissionDenied => Fault::Host,
                _ if is_out_of_resources(source) => Fault::Host,
                _ => Fault::Server,
            },
            Self::Unresolved { .. } | Self::Closed | Self::TimedOut { .. } => Fault::Server,
            Self::Tls(_) => Fault::Tls,
            Self::TlsSettings(_) => Fault::Caller,
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

/// Whether the machine lacks descriptors, buffers or memory.
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
