//! What the operator has asked for, parsed once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_wire::Secret;

use crate::dialect::Pooling;
use crate::password::PasswordError;
use crate::url::ServerUrl;

/// Everything that a proxy is told.
pub struct Settings {
    /// Where clients come to.
    pub listen: Listen,
    /// The server behind.
    pub server: ServerUrl,
    /// What the server lets the proxy in with; empty where it asks for nothing.
    pub password: Secret,
    /// Whose processes may come to a unix socket.
    pub allowed_uids: Vec<u32>,
    /// How long a client has a server connection.
    pub pooling: Pooling,
    /// How much and how long.
    pub limits: Limits,
}

/// Where clients come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket.
    Unix(PathBuf),
    /// An address of this machine's own network.
    Tcp(SocketAddr),
}

/// How much and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Server connections, over all databases.
    pub server_connections: usize,
    /// Clients at a time; further ones are refused.
    pub clients: usize,
    /// How long a client waits for a server connection.
    pub queue: Duration,
    /// How long a client may take to say who it is.
    pub login: Duration,
    /// How long opening a server connection may take.
    pub connect: Duration,
    /// How long a reset may take, or a cancel.
    pub reset: Duration,
    /// How long a server connection may be idle.
    pub idle: Duration,
    /// How old a server connection may be when it is handed to the next client.
    pub age: Duration,
    /// How long clients have to leave when the proxy is stopped.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            server_connections: 20,
            clients: 10_000,
            queue: Duration::from_secs(30),
            login: Duration::from_secs(15),
            connect: Duration::from_secs(10),
            reset: Duration::from_secs(10),
            idle: Duration::from_mins(10),
            age: Duration::from_hours(1),
            drain: Duration::from_secs(30),
        }
    }
}

/// A place that cannot be listened at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Neither of the two ways to say it.
    #[error("it is written unix:/PATH/.s.PGSQL.6432 or tcp:127.0.0.1:6432")]
    Shape,
    /// A unix socket is named from the root on.
    #[error("the path of the unix socket must begin with /")]
    Relative,
    /// What is not loopback is somebody else's network.
    #[error("{0} is not loopback: in front there is no encryption, and it is not offered to a network")]
    NotLoopback(SocketAddr),
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(ListenError::Relative) };
        }
        let address = text.strip_prefix("tcp:").ok_or(ListenError::Shape)?;
        let address: SocketAddr = address.parse().map_err(|_| ListenError::Shape)?;
        if address.ip().is_loopback() {
            Ok(Self::Tcp(address))
        } else {
            Err(ListenError::NotLoopback(address))
        }
    }
}

/// A proxy that does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operator's settings for TLS.
    #[error(transparent)]
    Tls(ciphertoll_net::Error),
    /// This machine: the socket, its directory, epoll.
    #[error("{what}: {source}")]
    Host {
        /// What it was needed for.
        what: String,
        /// What went wrong.
        source: ciphertoll_net::Error,
    },
    /// The socket's directory.
    #[error("cannot make the directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The password file.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// Clients by TCP must prove something, and there is nothing to prove.
    #[error(
        "clients that come by TCP must know the password, and there is none: set CIPHERTOLL_PASSWORD, \
         PGPASSWORD or MYSQL_PWD"
    )]
    NoPassword,
    /// What this protocol is not pooled by.
    #[error("--mode transaction is for PostgreSQL; MySQL and MariaDB are pooled by session")]
    SessionsOnly,
    /// OpenSSL has no random bytes.
    #[error("OpenSSL has no random bytes")]
    NoRandomBytes,
    /// OpenSSL could not make the verifier.
    #[error(transparent)]
    Scram(#[from] ciphertoll_wire::scram::Error),
}

impl StartError {
    /// Whether the operator's settings are to blame, and not the machine.
    pub fn is_of_settings(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Password(_) | Self::NoPassword | Self::SessionsOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_to() {
        assert_eq!("unix:/run/x/.s.PGSQL.1".parse(), Ok(Listen::Unix("/run/x/.s.PGSQL.1".into())));
        assert_eq!("unix:run/x".parse::<Listen>(), Err(ListenError::Relative));
        assert!(matches!("tcp:127.0.0.1:6432".parse(), Ok(Listen::Tcp(_))));
        assert!(matches!("tcp:[::1]:0".parse(), Ok(Listen::Tcp(_))));
        for wide in ["tcp:0.0.0.0:6432", "tcp:10.0.0.1:6432", "tcp:[::]:6432"] {
            assert!(matches!(wide.parse::<Listen>(), Err(ListenError::NotLoopback(_))), "{wide}");
        }
        for text in ["/run/x", "tcp:localhost:1", "tcp:1", ""] {
            assert_eq!(text.parse::<Listen>(), Err(ListenError::Shape), "{text}");
        }
    }
}
