//! Errors of this crate, and the exit code of each.

use std::io;
use std::path::{Path, PathBuf};
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
    #[error(
        "fetching {name} requires {client}{version}, which is not on the PATH; install it (Debian and Ubuntu: the package {package})"
    )]
    ClientMissing {
        name: String,
        client: &'static str,
        /// The required version after a blank; may be empty.
        version: &'static str,
        package: &'static str,
    },
    #[error(
        "{name} is available for {known} only; install {engine} yourself and name its directory: {engine}=DIR"
    )]
    NotForProcessor { name: &'static str, engine: &'static str, known: &'static str },
    #[error("cannot {step} {name}: {client} failed ({status}): {said} (log: {})", log.display())]
    Download {
        /// What failed: `fetch` or `build`.
        step: &'static str,
        name: &'static str,
        client: &'static str,
        status: String,
        said: String,
        log: PathBuf,
    },
    #[error(
        "the fetched file {file} was removed: its SHA-256 is {found}, expected {expected}; if this repeats, remove the file from {client}'s own repository too"
    )]
    Checksum { file: String, expected: &'static str, found: String, client: &'static str },
    #[error(
        "the fetched module {module} is not used: its checksum is {found}, expected {expected}; do not trust its source (GOPROXY)"
    )]
    ModuleChecksum { module: String, expected: &'static str, found: String },
    #[error(
        "building {name} requires {client} {wanted} or newer, found {found}; install a newer version, or name the directory of an installed server"
    )]
    ClientTooOld { name: String, client: &'static str, found: String, wanted: String },
    /// The machine's or the user's settings do not lead to a package archive, or it lacks a package.
    #[error("cannot fetch {name}: {reason}")]
    PackageArchive { name: &'static str, reason: String },
    #[error("cannot unpack {}: {reason}", archive.display())]
    Unpack { archive: PathBuf, reason: String },
    /// A program of an installed server is missing or does not run.
    #[error("{} does not work: {reason}", program.display())]
    Program { program: PathBuf, reason: String },
    /// A tool, tunnel or proxy is not installed.
    #[error("{program} not found; {how_to_get}")]
    ProgramMissing { program: &'static str, how_to_get: String },
    #[error("cannot set up a tunnel ({tunnel}): {reason}")]
    TunnelUnavailable { tunnel: String, reason: String },
    /// A process got SIGSTOP.
    #[error("{what} was stopped")]
    Stopped { what: String },
    /// A process ended unexpectedly.
    #[error("{what} ended ({status}); its log ends: {log_end}")]
    Died { what: String, status: String, log_end: String },
    #[error("{what} did not finish within {limit:?} ({last}); its log ends: {log_end}")]
    TooSlow { what: String, limit: Duration, last: String, log_end: String },
    #[error("{what} cannot listen: other processes use all ports that were tried: {tried:?}")]
    PortsTaken { what: String, tried: Vec<u16> },
    #[error("cannot {doing}: {source}")]
    Control { doing: &'static str, source: ciphertoll_net::Error },
    #[error("servers must not run as root, and {0}")]
    NoServerUser(String),
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] openssl::error::ErrorStack),
    /// The `__exec` helper could not execute the program.
    #[error("cannot start {}: {reason}", program.display())]
    Exec { program: PathBuf, reason: String },
    #[error("the server does not report its counter {0}")]
    NoCounter(&'static str),
    /// This server does not support the authentication; others may. The reason names the server.
    #[error("{reason}")]
    AuthUnavailable { auth: String, reason: String },
    /// This server does not support the encryption at rest; others may.
    #[error("{0}")]
    AtRestUnavailable(String),
    #[error("{0}")]
    StorageUnavailable(String),
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
    #[error("cannot create {}: {source}; set XDG_CACHE_HOME or HOME to a directory that you can write to", path.display())]
    Cache { path: PathBuf, source: io::Error },
    #[error("{source} ({option} in the URL of {name})")]
    UrlFile { source: ciphertoll_net::tls::FileError, option: &'static str, name: String },
    #[error("the URL of {name} cannot be used: {reason}")]
    UrlTls { name: String, reason: String },
    #[error(
        "{name}: {reason}; name the CA that signed the certificate by {authority}=FILE in the URL, or verify less: {mode}"
    )]
    Unverified { name: String, reason: String, authority: &'static str, mode: &'static str },
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
    /// Files, locks and the ledger.
    #[error(transparent)]
    Record(#[from] ciphertoll_record::Error),
}

impl Error {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::ServerMissing { .. }
            | Self::Program { .. }
            | Self::AuthUnavailable { .. }
            | Self::AtRestUnavailable(_)
            | Self::StorageUnavailable(_)
            | Self::ProgramMissing { .. }
            | Self::TunnelUnavailable { .. }
            | Self::TlsUnavailable(_) => ExitCode::NothingRan,
            Self::Interrupted => ExitCode::Interrupted,
            Self::UrlFile { .. } | Self::UrlTls { .. } | Self::Statement { .. } => ExitCode::Usage,
            Self::Died { .. }
            | Self::Stopped { .. }
            | Self::TooSlow { .. }
            | Self::NoCounter(_)
            | Self::Miscounted { .. }
            | Self::NotReloaded { .. }
            | Self::NotEncrypted(_)
            | Self::Unreachable { .. }
            | Self::WrongPassword { .. }
            | Self::NotPrimary { .. }
            | Self::CountersReset { .. }
            | Self::NoLoadCounters { .. }
            | Self::Unverified { .. } => ExitCode::ServerRefused,
            Self::PortsTaken { .. }
            | Self::DiskFull { .. }
            | Self::NoServerUser(_)
            | Self::ClientMissing { .. }
            | Self::NotForProcessor { .. }
            | Self::Download { .. }
            | Self::PackageArchive { .. }
            | Self::Checksum { .. }
            | Self::ModuleChecksum { .. }
            | Self::ClientTooOld { .. }
            | Self::Cache { .. }
            | Self::Unpack { .. } => ExitCode::HostResource,
            Self::Control { source, .. } => match source.fault() {
                ciphertoll_net::Fault::Server | ciphertoll_net::Fault::Tls => ExitCode::ServerRefused,
                ciphertoll_net::Fault::Host => ExitCode::HostResource,
                ciphertoll_net::Fault::Caller => ExitCode::Internal,
            },
            Self::Certificate(_) | Self::Exec { .. } | Self::Verifier(_) => ExitCode::Internal,
            Self::Record(error) => error.exit_code(),
        }
    }
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024f64.powi(3)
}

/// Adds the failed action and its path to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Record(ciphertoll_record::Error::from_io(action, path, source)))
    }
}
