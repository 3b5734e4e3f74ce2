//! Errors of this crate, and the exit code of each.

use std::path::PathBuf;
use std::time::Duration;

use ciphertoll_model::ExitCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no {wanted} found{found}; {how_to_get}")]
    ServerMissing {
        wanted: String,
        /// Other versions that were found, in parentheses; may be empty.
        found: String,
        how_to_get: String,
    },
    #[error("cannot set up a tunnel ({tunnel}): {reason}")]
    TunnelUnavailable { tunnel: String, reason: String },
    #[error("{what} cannot listen: other processes use all ports that were tried: {tried:?}")]
    PortsTaken { what: String, tried: Vec<u16> },
    #[error("cannot {doing}: {source}")]
    Control { doing: &'static str, source: ciphertoll_net::Error },
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] openssl::error::ErrorStack),
    #[error("the {role} started threads while perf attached to it")]
    ThreadsStarted { role: &'static str },
    #[error("the server does not report its counter {0}")]
    NoCounter(&'static str),
    /// This server does not support the authentication; others may. The reason names the server.
    #[error("{reason}")]
    AuthUnavailable { auth: String, reason: String },
    /// This server does not support the encryption at rest; others may.
    #[error("{0}")]
    AtRestUnavailable(String),
    #[error("{0}")]
    NotEncrypted(String),
    /// A server at a URL cannot be reached or refuses the login.
    #[error("cannot log in to {name}: {reason}")]
    Unreachable { name: String, reason: String },
    #[error(
        "cannot load documents into {name}: it is {is}; load them through a URL with readPreference=primary, and replication copies them to this member"
    )]
    NotPrimary {
        name: String,
        /// The member's role, with its article.
        is: &'static str,
    },
    #[error("cannot log in to {name}: {reason}")]
    WrongPassword { name: String, reason: String },
    #[error("{name} refuses the statement of --query: {reason}")]
    Statement { name: String, reason: String },
    #[error("the counters of {name} were reset between two readings; try again")]
    CountersReset { name: String },
    #[error("cannot read the load of {name}: {reason}")]
    NoLoadCounters { name: String, reason: String },
    #[error("{source} ({option} in the URL of {name})")]
    UrlFile { source: ciphertoll_net::tls::FileError, option: &'static str, name: String },
    #[error("the URL of {name} cannot be used: {reason}")]
    UrlTls { name: String, reason: String },
    #[error("{name}: {reason}; {remedy}")]
    Unverified { name: String, reason: String, remedy: String },
    /// Server or client does not support the TLS settings of a path.
    #[error("{0}")]
    TlsUnavailable(String),
    #[error("{loaded} documents were sent, but the server inserted {counted}")]
    Miscounted { loaded: u64, counted: u64 },
    #[error(
        "the tables need about {:.1} GiB in {}, but only {:.1} GiB are free; choose a smaller --scale",
        gibibytes(*needed_bytes), path.display(), gibibytes(*free_bytes)
    )]
    DiskFull { path: PathBuf, needed_bytes: u64, free_bytes: u64 },
    #[error("interrupted while loading data")]
    Interrupted,
    #[error("the server did not reload its configuration within {limit:?}")]
    NotReloaded { limit: Duration },
    #[error("cannot derive a SCRAM verifier: {0}")]
    Verifier(#[from] ciphertoll_wire::scram::Error),
    #[error(transparent)]
    Host(#[from] ciphertoll_host::Error),
    #[error(transparent)]
    Fetch(#[from] ciphertoll_fetch::FetchError),
    /// Files, locks and the ledger.
    #[error(transparent)]
    Record(#[from] ciphertoll_record::Error),
}

impl Error {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::ServerMissing { .. }
            | Self::AuthUnavailable { .. }
            | Self::AtRestUnavailable(_)
            | Self::TunnelUnavailable { .. }
            | Self::TlsUnavailable(_) => ExitCode::NothingRan,
            Self::Interrupted => ExitCode::Interrupted,
            Self::UrlFile { .. } | Self::UrlTls { .. } | Self::Statement { .. } => ExitCode::Usage,
            Self::NoCounter(_)
            | Self::Miscounted { .. }
            | Self::NotReloaded { .. }
            | Self::NotEncrypted(_)
            | Self::Unreachable { .. }
            | Self::WrongPassword { .. }
            | Self::NotPrimary { .. }
            | Self::CountersReset { .. }
            | Self::NoLoadCounters { .. }
            | Self::Unverified { .. } => ExitCode::ServerRefused,
            Self::PortsTaken { .. } | Self::DiskFull { .. } | Self::ThreadsStarted { .. } => {
                ExitCode::HostResource
            }
            Self::Control { source, .. } => match source.fault() {
                ciphertoll_net::Fault::Server | ciphertoll_net::Fault::Tls => ExitCode::ServerRefused,
                ciphertoll_net::Fault::Host => ExitCode::HostResource,
                ciphertoll_net::Fault::Caller => ExitCode::Internal,
            },
            Self::Certificate(_) | Self::Verifier(_) => ExitCode::Internal,
            Self::Host(error) => error.exit_code(),
            Self::Fetch(error) => error.exit_code(),
            Self::Record(error) => error.exit_code(),
        }
    }
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024f64.powi(3)
}
