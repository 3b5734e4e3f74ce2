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
    #[error("invalid URL in --server: {0}")]
    Url(#[from] UrlError),
    #[error("user \"{0}\" has both password-file and password-env: keep one of them")]
    TwoPasswords(String),
    #[error("user \"{0}\" is configured twice")]
    TwoUsers(String),
    #[error("a warm-up of {warm} connections for each of {users} users exceeds the pool-size, {limit}")]
    WarmUp { warm: usize, users: usize, limit: usize },
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
    #[error(transparent)]
    Password(#[from] PasswordError),
}
