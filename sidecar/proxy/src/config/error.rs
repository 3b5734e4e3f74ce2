//! Errors in the operator's settings.

use std::io;
use std::path::PathBuf;

use ciphertoll_wire::scram::MAX_ITERATIONS;

use crate::duration::HumanDuration;
use crate::password::PasswordError;
use crate::settings::{ListenAddress, MAX_THREADS};
use crate::url::UrlError;

/// An error in the operator's settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    File {
        path: PathBuf,
        /// One line: position, error, suggestion.
        reason: String,
    },
    #[error("\"{0}\" is not set: set it in the configuration file or with --{0}")]
    Missing(&'static str),
    #[error("reset = \"tracked\" needs mode = \"transaction\" with PostgreSQL")]
    TrackedReset,
    #[error("replication = true applies to PostgreSQL only: remove it for MySQL and MariaDB")]
    ReplicationInMySql,
    #[error("auth-query needs auth-user: the configured user whose login runs it")]
    AuthQueryWithoutUser,
    #[error("auth-query needs the parameter $1, which is the user's name")]
    AuthQueryWithoutName,
    #[error("auth-user is \"{0}\", which is neither the user of --server nor the name of a [[user]]")]
    UnknownAuthUser(String),
    #[error("auth-user \"{0}\" cannot have a password-command: the query needs a password that stays")]
    AuthUserWithCommand(String),
    #[error("{0} needs a URL with one host and without target_session_attrs")]
    NeedsOneHost(&'static str),
    #[error("auth-user and auth-query apply to PostgreSQL only: use pass-through-auth for MySQL and MariaDB")]
    AuthQueryInMySql,
    #[error("pass-through-auth applies to MySQL and MariaDB only: use auth-user for PostgreSQL")]
    PassThroughInPostgres,
    #[error("invalid URL in --server: {0}")]
    Url(#[from] UrlError),
    #[error("user \"{0}\" has several of password-file, password-env and password-command: keep one of them")]
    SeveralPasswords(String),
    #[error("password-command of user \"{user}\": {reason}")]
    Command { user: String, reason: CommandSettingError },
    #[error("user \"*\", which is any user, needs a password-command")]
    AnyUser,
    #[error("the user of --server cannot be \"*\": it is one user")]
    AnyUserInUrl,
    #[error("user \"*\" is any user: min-pool-size cannot be kept for it")]
    AnyUserInAdvance,
    #[error("{0} and user \"*\" both say how users log in that are not configured: use one of them")]
    AnyUserTwice(&'static str),
    #[error("watch-files cannot be {0}: it must be 0 or at least 1s")]
    WatchFiles(HumanDuration),
    #[error("user \"{0}\" is configured twice")]
    TwoUsers(String),
    #[error("a warm-up of {warm} connections for each of {users} users exceeds the pool-size, {limit}")]
    WarmUp { warm: usize, users: usize, limit: usize },
    #[error("database \"{0}\" is configured twice")]
    TwoDatabases(String),
    #[error("{kind} \"{name}\": {reason}")]
    Group { kind: &'static str, name: String, reason: String },
    #[error(
        "the connections that are opened in advance (warm-up, min-pool-size) are {kept} in all, which exceeds the \
         pool-size, {limit}"
    )]
    MinPoolSizes { kept: usize, limit: usize },
    #[error("dns-time cannot be {0}: it must be at least 1s")]
    DnsTime(HumanDuration),
    #[error("listen cannot be {0}: an address that is not loopback needs tls-cert and tls-key")]
    NotLoopback(ListenAddress),
    #[error("admin cannot be {0}: status and metrics are served on loopback addresses only")]
    AdminNotLoopback(ListenAddress),
    #[error("TLS for clients needs both tls-cert and tls-key")]
    IncompleteTls,
    #[error("tls-cert needs a TCP address in listen: unix sockets have no TLS")]
    TlsWithoutTcp,
    #[error("tls-library needs TLS to the server, which the URL of --server disables")]
    LibraryWithoutTls,
    #[error("tls-groups needs TLS to the server, which the URL of --server disables")]
    GroupsWithoutTls,
    #[error("threads cannot be {0}: it must be from 1 to {MAX_THREADS}")]
    Threads(usize),
    #[error("scram-iterations cannot be {value}: it must be from {min} to {MAX_ITERATIONS}")]
    Iterations {
        value: u32,
        /// 4096 if clients connect over TCP, otherwise 1.
        min: u32,
    },
    #[error("limits.max-scram-iterations cannot be {0}: it must be from 1 to {MAX_ITERATIONS}")]
    MaxIterations(u32),
    #[error("{0} does not apply to MySQL and MariaDB, whose logins do not use SCRAM: remove it")]
    NotScram(&'static str),
    #[error(
        "the settings of [console] apply to PostgreSQL only: with MySQL and MariaDB it is used by the admin address"
    )]
    ConsoleUsersInMySql,
    #[error("[console] has no effect: it needs admin-users, stats-users, own-uid = true or an admin address")]
    ConsoleUnreachable,
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("two servers listen on {0}, or a server and admin do")]
    TwoListeners(ListenAddress),
    #[error("--{0} is for one server: the file has [[server]]")]
    SeveralServers(&'static str),
    #[error("server \"{name}\": {source}")]
    OfServer { name: String, source: Box<Self> },
}

/// An error in the settings of a `password-command`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandSettingError {
    #[error("{0} applies to a password-command only")]
    WithoutCommand(&'static str),
    #[error("the first word must be the name of a program in PATH, or an absolute path")]
    Program,
    #[error("a word contains a NUL character")]
    Nul,
    #[error("unknown {0} in {1:?}: there are %u, %h, %p, %d and %%")]
    Substitution(String, String),
    #[error("%p in {0:?}, but the server has a unix socket and no port")]
    NoPort(String),
    #[error("\"{0}\": the URL of --server has several hosts, whose passwords may differ")]
    SeveralHosts(String),
    #[error("%d in {0:?}, but the user has no database")]
    NoDatabase(String),
    #[error("password-command-time cannot be {0}: it must be from 100ms to 1m")]
    Time(HumanDuration),
    #[error("password-lifetime cannot be {0}: it must be at least 2s")]
    Lifetime(HumanDuration),
    #[error(
        "the server is not verified, so that it could be another that asks for the password: use \
         sslmode=verify-full (ssl-mode=VERIFY_IDENTITY)"
    )]
    Unverified,
    #[error("the passwords of all users would be the same: none of its words has %u, the user's name")]
    WithoutUser,
    #[error("clients cannot know the password: use unix-auth = \"peer\" and unix sockets, or tls-client-ca")]
    ClientsMustKnow,
}
