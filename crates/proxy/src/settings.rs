//! What the operator has asked for, parsed once.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_net::tls::AcceptorSettings;
use ciphertoll_wire::Secret;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dialect::Pooling;
use crate::url::{Protocol, ServerUrl};

/// Everything that a proxy is told.
pub struct Settings {
    /// Where clients come to: at least one place.
    pub listen: Vec<Listen>,
    /// The server behind.
    pub server: ServerUrl,
    /// Who can be logged in as. The first one is the server's URL's.
    pub users: Vec<User>,
    /// Whose processes may come to a unix socket.
    pub allowed_uids: Uids,
    /// What clients must prove; those who come by TCP always the password.
    pub unix_auth: UnixAuth,
    /// How clients that come by TCP are encrypted; none where they are not.
    pub tls: Option<AcceptorSettings>,
    /// How often clients must hash a password to prove that they know it.
    pub iterations: Iterations,
    /// How long a client has a server connection.
    pub pooling: Pooling,
    /// How many threads serve.
    pub threads: NonZeroUsize,
    /// How much and how long.
    pub limits: Limits,
}

/// How often clients must hash a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations {
    /// Those who come by unix socket.
    pub by_unix: u32,
    /// Those who come by TCP.
    pub by_tcp: u32,
}

/// Whose processes may come to a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uids {
    /// Everybody's.
    All,
    /// Those of these users.
    Only(Vec<u32>),
}

/// How clients that come by unix socket show who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UnixAuth {
    /// The kernel says whose process has come.
    #[default]
    Peer,
    /// They prove that they know the password of the user whom they name, as PostgreSQL does it.
    Scram,
    /// They prove that they know it, as the server's protocol does it.
    Password,
}

impl Uids {
    /// Whether a process of this user may come.
    pub fn allow(&self, uid: u32) -> bool {
        match self {
            Self::All => true,
            Self::Only(uids) => uids.contains(&uid),
        }
    }

    /// The permissions of the socket's file: who may come is for the kernel to say where only we may, and for peer
    /// credentials otherwise.
    pub fn mode(&self) -> u32 {
        let ours = nix::unistd::geteuid().as_raw();
        match self {
            Self::Only(uids) if uids.iter().all(|uid| *uid == ours) => 0o600,
            Self::Only(_) | Self::All => 0o666,
        }
    }
}

/// Somebody whom the server knows. Clients that name him get connections that were logged in as him, and no others do.
#[derive(Clone)]
pub struct User {
    /// The role.
    pub name: String,
    /// The database of clients that name none; none where they have none.
    pub database: Option<String>,
    /// What the server lets him in with; empty where it asks for nothing.
    pub password: Secret,
}

/// Where clients come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Listen {
    /// A unix socket.
    Unix(PathBuf),
    /// An address.
    Tcp(SocketAddr),
}

/// How much and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Server connections, over all databases.
    pub server_connections: usize,
    /// Clients at a time; further ones are refused.
    pub clients: usize,
    /// Clients that wait for others' connections at a time; further ones are refused.
    pub queued: usize,
    /// Server connections of each user, to his database, that are opened before anybody asks for them.
    pub warm: usize,
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
    /// How long a server connection may be idle before the server is asked whether it is there; zero: it never is.
    pub health: Duration,
    /// How long clients have to leave when the proxy is stopped.
    pub drain: Duration,
    /// The most iterations of PBKDF2 that the server may ask for in SCRAM.
    pub scram_iterations: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            server_connections: 20,
            clients: 10_000,
            queued: 10_000,
            warm: 0,
            queue: Duration::from_secs(30),
            login: Duration::from_secs(15),
            connect: Duration::from_secs(10),
            reset: Duration::from_secs(10),
            idle: Duration::from_mins(10),
            age: Duration::from_hours(1),
            health: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            scram_iterations: 1_000_000,
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
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err(ListenError::Relative) };
        }
        let address = text.strip_prefix("tcp:").ok_or(ListenError::Shape)?;
        address.parse().map(Self::Tcp).map_err(|_| ListenError::Shape)
    }
}

/// What the name of a unix socket begins with where libpq looks for it; the port follows.
const LIBPQ_SOCKET: &str = ".s.PGSQL.";

impl Listen {
    /// Why libpq, which most clients of PostgreSQL use, cannot connect to this place, if so.
    pub fn libpq_warning(&self, protocol: Protocol) -> Option<String> {
        let (Self::Unix(path), Protocol::Postgres) = (self, protocol) else { return None };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let port = name.strip_prefix(LIBPQ_SOCKET).and_then(|port| port.parse::<NonZeroU16>().ok());
        if port.is_some_and(|port| name == format!("{LIBPQ_SOCKET}{port}")) {
            return None;
        }
        let expected = path.with_file_name(format!("{LIBPQ_SOCKET}5432"));
        let expected = expected.display();
        Some(format!(
            "libpq cannot connect to {self}: it expects the name {LIBPQ_SOCKET}PORT, such as unix:{expected}"
        ))
    }

    /// Whether only this machine's own processes can come.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = ListenError;

    fn try_from(text: String) -> Result<Self, ListenError> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

/// As it is read.
impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(address) => write!(formatter, "tcp:{address}"),
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
    /// Clients must prove something, and there is nothing to prove.
    #[error(
        "clients must know the password, and there is none for \"{0}\": set CIPHERTOLL_PASSWORD, PGPASSWORD, \
         .pgpass or MYSQL_PWD"
    )]
    NoPassword(String),
    /// What this protocol does not have.
    #[error("unix-auth \"scram\" is PostgreSQL's way: for MySQL and MariaDB say \"password\"")]
    ScramInMySql,
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
        matches!(self, Self::Tls(_) | Self::NoPassword(_) | Self::ScramInMySql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_libpq_cannot_find_is_warned_of() {
        let warning = |text: &str, protocol| text.parse::<Listen>().unwrap().libpq_warning(protocol);
        for found in ["unix:/x/.s.PGSQL.5432", "unix:/x/.s.PGSQL.1", "tcp:127.0.0.1:6432"] {
            assert_eq!(warning(found, Protocol::Postgres), None);
        }
        for lost in
            ["foo", ".s.PGSQL.", ".s.PGSQL.0", ".s.PGSQL.05432", ".s.PGSQL.65536", ".s.PGSQL.5432.lock"]
        {
            let told = warning(&format!("unix:/x/{lost}"), Protocol::Postgres).unwrap();
            assert!(told.contains("the name .s.PGSQL.PORT, such as unix:/x/.s.PGSQL.5432"), "{told}");
            assert!(!told.contains('\n'), "{told}");
        }
        assert_eq!(warning("unix:/x/foo", Protocol::MySql), None);
    }

    #[test]
    fn a_place_is_local_or_is_known_not_to_be() {
        assert_eq!("unix:/run/x/.s.PGSQL.1".parse(), Ok(Listen::Unix("/run/x/.s.PGSQL.1".into())));
        assert_eq!("unix:run/x".parse::<Listen>(), Err(ListenError::Relative));
        assert!(matches!("tcp:127.0.0.1:6432".parse(), Ok(Listen::Tcp(_))));
        for text in ["tcp:127.0.0.1:6432", "unix:/run/x"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert!(matches!("tcp:[::1]:0".parse(), Ok(Listen::Tcp(_))));
        for wide in ["tcp:0.0.0.0:6432", "tcp:10.0.0.1:6432", "tcp:[::]:6432"] {
            assert!(!wide.parse::<Listen>().unwrap().is_local(), "{wide}");
        }
        for local in ["tcp:127.0.0.2:6432", "tcp:[::1]:6432", "unix:/x"] {
            assert!(local.parse::<Listen>().unwrap().is_local(), "{local}");
        }
        for text in ["/run/x", "tcp:localhost:1", "tcp:1", ""] {
            assert_eq!(text.parse::<Listen>(), Err(ListenError::Shape), "{text}");
        }
    }
}
