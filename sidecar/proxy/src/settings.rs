//! The settings of a proxy, parsed and checked.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ciphertoll_net::tls::{AcceptorSettings, Group};
use ciphertoll_wire::Secret;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::console_rules::ConsoleRules;
use crate::credentials::{AnyUserPasswords, PasswordCell, PasswordSources};
use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::group_limits::GroupLimits;
use crate::session_times::SessionTimes;
use crate::url::{ProtocolKind, ServerUrl};

/// Far more than one server's traffic keeps busy.
pub(crate) const MAX_THREADS: usize = 256;

pub struct Settings {
    /// At least one address.
    pub listen: Vec<ListenAddress>,
    pub server: ServerUrl,
    /// Key exchange groups that are offered to the server; empty without TLS.
    pub groups: Vec<Group>,
    pub tls_library: UpstreamTlsLibrary,
    /// The user in the server's URL is first.
    pub users: Vec<DatabaseUser>,
    pub allowed_uids: AllowedUids,
    pub unix_auth: UnixAuth,
    /// TLS for TCP clients; `None` if it is not offered.
    pub tls: Option<AcceptorSettings>,
    pub iterations: ScramIterations,
    pub pooling: Pooling,
    pub reset: ResetPolicy,
    pub access: ClientAccess,
    pub threads: NonZeroUsize,
    pub limits: Limits,
    /// `None` if the console is off.
    pub console: Option<ConsoleRules>,
    /// How often certificate files are looked at; zero: never.
    pub watch_files: Duration,
}

impl Settings {
    /// The passwords that come from commands.
    pub fn password_sources(&self) -> PasswordSources {
        let any_user = match &self.access.unknown_users {
            UnknownUsers::Command(passwords) => Some(Arc::clone(passwords)),
            UnknownUsers::AuthQuery(_) | UnknownUsers::PassThrough | UnknownUsers::Refused => None,
        };
        PasswordSources {
            cells: self.users.iter().filter_map(|user| user.command.clone()).collect(),
            any_user,
        }
    }

    /// Whether clients of TCP, or else those of unix sockets, must know a password.
    pub(crate) fn needs_password(&self, by_tcp: bool) -> bool {
        let has_other_means = if by_tcp {
            self.tls.as_ref().is_some_and(|service| service.clients.is_some())
        } else {
            self.unix_auth == UnixAuth::Peer
        };
        !has_other_means && self.listen.iter().any(|at| matches!(at, ListenAddress::Tcp(_)) == by_tcp)
    }

    /// The users, each with a password that clients can prove to know.
    pub(crate) fn passwords(&self) -> Result<impl Iterator<Item = (&str, &Secret)>, StartError> {
        if let Some(user) = self.users.iter().find(|user| user.password.expose().is_empty()) {
            return Err(StartError::NoPassword(user.name.clone()));
        }
        Ok(self.users.iter().map(|user| (user.name.as_str(), &user.password)))
    }
}

/// How long a client keeps a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// Until it disconnects.
    #[default]
    Session,
    /// Until its transaction ends, so that more clients than connections can be served.
    Transaction,
}

/// When a server connection is reset between two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ResetPolicy {
    /// Unless it is certain that nothing remains.
    #[default]
    Always,
    /// Unless the words of all statements were plain data access and transaction control.
    Tracked,
}

/// What clients may do beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAccess {
    pub replication: ReplicationAccess,
    pub unknown_users: UnknownUsers,
}

/// Whether users whom the settings do not name may log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnknownUsers {
    #[default]
    Refused,
    /// The server's SCRAM secrets are asked for (PostgreSQL).
    AuthQuery(AuthQuery),
    /// The server is asked whether it accepts the client's password (MySQL and MariaDB).
    PassThrough,
    /// A command prints their passwords. Clients authenticate by other means.
    Command(Arc<AnyUserPasswords>),
}

/// How the server is asked for the secrets of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthQuery {
    /// One of the configured users: its login asks.
    pub user: String,
    /// With the parameter `$1`, the user's name.
    pub query: String,
}

impl AuthQuery {
    /// The user's name and secret. An expired password does not count as a secret. Names are qualified, so
    /// that other schemas of the server cannot change their meaning.
    pub const DEFAULT: &str = "SELECT rolname, \
        CASE WHEN rolvaliduntil OPERATOR(pg_catalog.<) pg_catalog.now() THEN NULL ELSE rolpassword END \
        FROM pg_catalog.pg_authid WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin";
}

/// Whether clients may open replication connections (PostgreSQL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicationAccess {
    #[default]
    Refused,
    Allowed,
}

impl ReplicationAccess {
    pub(crate) fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Refused }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScramIterations {
    pub by_unix: u32,
    pub by_tcp: u32,
}

/// The library that encrypts connections to the server. OpenSSL verifies the server's certificate in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum UpstreamTlsLibrary {
    /// rustls: fewer instructions per message, and post-quantum key exchange with any OpenSSL.
    #[default]
    Rustls,
    /// The system's OpenSSL, with all that its configuration allows and forbids.
    OpenSsl,
}

/// The UIDs whose processes may connect to a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedUids {
    All,
    Only(Vec<u32>),
}

/// How clients on a unix socket authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UnixAuth {
    /// By their kernel-verified peer UID.
    #[default]
    Peer,
    /// By SCRAM with the password of the user that they name (PostgreSQL).
    Scram,
    /// By the password of the user that they name, as the server's protocol does it.
    Password,
}

impl AllowedUids {
    pub fn allow(&self, uid: u32) -> bool {
        match self {
            Self::All => true,
            Self::Only(uids) => uids.contains(&uid),
        }
    }

    /// The mode of the socket file. If only the proxy's own UID may connect, the kernel admits only that and root. The
    /// proxy checks peer credentials in any case.
    pub fn mode(&self) -> u32 {
        let ours = nix::unistd::geteuid().as_raw();
        match self {
            Self::Only(uids) if uids.iter().all(|uid| *uid == ours) => 0o600,
            Self::Only(_) | Self::All => 0o666,
        }
    }
}

/// A user that the proxy logs in as. Only clients that name this user get its connections.
#[derive(Clone)]
pub struct DatabaseUser {
    pub name: String,
    /// The database of clients that name none.
    pub database: Option<String>,
    /// Empty if the server requires none.
    pub password: Secret,
    /// In place of `password`.
    pub command: Option<Arc<PasswordCell>>,
}

impl DatabaseUser {
    /// The database of clients that name none. With PostgreSQL, it is that of the user's name if none is configured.
    pub(crate) fn default_database(&self, protocol: ProtocolKind) -> &str {
        match (&self.database, protocol) {
            (Some(database), _) => database,
            (None, ProtocolKind::Postgres) => &self.name,
            (None, ProtocolKind::MySql) => "",
        }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        if let Some(cell) = &self.command {
            return cell.command().fingerprint();
        }
        let mut fingerprint = FingerprintBuilder::default();
        fingerprint.add(self.name.as_bytes());
        fingerprint.add(self.password.expose());
        fingerprint.finish()
    }
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum ListenAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Limits of size and time; see [`crate::LimitsSection`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Over all users and databases.
    pub server_connections: usize,
    /// Further ones are refused.
    pub clients: usize,
    /// Clients that wait for a server connection; further ones are refused.
    pub queued: usize,
    pub warm: usize,
    pub queue: Duration,
    pub login: Duration,
    pub connect: Duration,
    pub reset: Duration,
    pub idle: Duration,
    pub age: Duration,
    /// A server connection that has been idle for this long is checked; zero disables the check.
    pub health: Duration,
    /// How often the names of hosts are resolved again, also without connects; `None`: when connections are opened.
    pub dns: Option<Duration>,
    pub drain: Duration,
    pub scram_iterations: u32,
    pub groups: GroupLimits,
    pub times: SessionTimes,
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
            dns: None,
            drain: Duration::from_secs(30),
            scram_iterations: 1_000_000,
            groups: GroupLimits::default(),
            times: SessionTimes::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    #[error("expected unix:/PATH/.s.PGSQL.6432 or tcp:127.0.0.1:6432")]
    Shape,
    #[error("the path of a unix socket must begin with /")]
    Relative,
}

impl FromStr for ListenAddress {
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

/// libpq appends the port to this name of a unix socket.
const LIBPQ_SOCKET: &str = ".s.PGSQL.";

impl ListenAddress {
    /// Why libpq, which most PostgreSQL clients use, cannot connect to this address, if so.
    pub fn libpq_warning(&self, protocol: ProtocolKind) -> Option<String> {
        let (Self::Unix(path), ProtocolKind::Postgres) = (self, protocol) else { return None };
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

    /// Whether the kernel chooses the port.
    pub(crate) fn is_any_port(&self) -> bool {
        matches!(self, Self::Tcp(address) if address.port() == 0)
    }

    /// Whether only processes on this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = ListenError;

    fn try_from(text: String) -> Result<Self, ListenError> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(listen: ListenAddress) -> Self {
        listen.to_string()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(address) => write!(formatter, "tcp:{address}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Tls(ciphertoll_net::Error),
    /// A resource of this machine: a socket, a thread, epoll.
    #[error("{what}: {source}")]
    Host { what: String, source: ciphertoll_net::Error },
    #[error("cannot create the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error(
        "clients must know a password, and none was found for \"{0}\": set CIPHERTOLL_PASSWORD, PGPASSWORD, \
         .pgpass or MYSQL_PWD"
    )]
    NoPassword(String),
    #[error("unix-auth \"scram\" applies to PostgreSQL only: set \"password\" for MySQL and MariaDB")]
    ScramInMySql,
    #[error("OpenSSL has no random bytes")]
    NoRandomBytes,
    #[error("--take-over is for the process that a running proxy starts on SIGUSR2: {0}")]
    NothingToTakeOver(String),
    #[error("the running proxy did not hand over its sockets: {0}")]
    NotHandedOver(std::io::Error),
    #[error(transparent)]
    Scram(#[from] ciphertoll_wire::scram::Error),
}

impl StartError {
    /// Whether the settings are the cause, and not the machine.
    pub fn is_configuration_error(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::NoPassword(_) | Self::ScramInMySql | Self::NothingToTakeOver(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_name_that_libpq_does_not_look_for_causes_a_warning() {
        let warning = |text: &str, protocol| text.parse::<ListenAddress>().unwrap().libpq_warning(protocol);
        for found in ["unix:/x/.s.PGSQL.5432", "unix:/x/.s.PGSQL.1", "tcp:127.0.0.1:6432"] {
            assert_eq!(warning(found, ProtocolKind::Postgres), None);
        }
        for lost in
            ["foo", ".s.PGSQL.", ".s.PGSQL.0", ".s.PGSQL.05432", ".s.PGSQL.65536", ".s.PGSQL.5432.lock"]
        {
            let message = warning(&format!("unix:/x/{lost}"), ProtocolKind::Postgres).unwrap();
            assert!(message.contains("the name .s.PGSQL.PORT, such as unix:/x/.s.PGSQL.5432"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert_eq!(warning("unix:/x/foo", ProtocolKind::MySql), None);
    }

    #[test]
    fn addresses_are_parsed_and_known_to_be_local_or_not() {
        assert_eq!("unix:/run/x/.s.PGSQL.1".parse(), Ok(ListenAddress::Unix("/run/x/.s.PGSQL.1".into())));
        assert_eq!("unix:run/x".parse::<ListenAddress>(), Err(ListenError::Relative));
        assert!(matches!("tcp:127.0.0.1:6432".parse(), Ok(ListenAddress::Tcp(_))));
        for text in ["tcp:127.0.0.1:6432", "unix:/run/x"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        assert!(matches!("tcp:[::1]:0".parse(), Ok(ListenAddress::Tcp(_))));
        for exposed in ["tcp:0.0.0.0:6432", "tcp:10.0.0.1:6432", "tcp:[::]:6432"] {
            assert!(!exposed.parse::<ListenAddress>().unwrap().is_local(), "{exposed}");
        }
        for local in ["tcp:127.0.0.2:6432", "tcp:[::1]:6432", "unix:/x"] {
            assert!(local.parse::<ListenAddress>().unwrap().is_local(), "{local}");
        }
        for text in ["/run/x", "tcp:localhost:1", "tcp:1", ""] {
            assert_eq!(text.parse::<ListenAddress>(), Err(ListenError::Shape), "{text}");
        }
    }
}
