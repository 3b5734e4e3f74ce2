//! What can go wrong with real servers on a real machine, and whose fault it is.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_model::ExitCode;

/// A server, tool or resource that is not there or does not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No build on this machine is what was asked for.
    #[error("no {wanted} found{found}; {how_to_get}")]
    ServerMissing {
        /// The level asked for.
        wanted: String,
        /// What was found instead, or nothing.
        found: String,
        /// How to get one.
        how_to_get: String,
    },
    /// The program that fetches builds is missing.
    #[error(
        "fetching {name} takes {client}{version}, which is not on the PATH; install it (Debian and Ubuntu: the package {package})"
    )]
    ClientMissing {
        /// What was to be fetched.
        name: String,
        /// The program.
        client: &'static str,
        /// A blank and which of it, where that matters.
        version: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// Nobody has built it for this machine's kind of processor.
    #[error(
        "{name} can be fetched for {known} only, and this machine is none; name a build of your own: {engine}=DIR"
    )]
    NotForProcessor {
        /// What was to be fetched.
        name: &'static str,
        /// Its engine, as levels name it.
        engine: &'static str,
        /// The processors that it is there for.
        known: &'static str,
    },
    /// The program that fetches builds failed.
    #[error("cannot {doing} {name}: {client} ended ({status}) and said: {said} (all of it: {})", log.display())]
    Download {
        /// What it was to do.
        doing: Doing,
        /// What was to be fetched.
        name: String,
        /// The program.
        client: &'static str,
        /// How it ended.
        status: String,
        /// What it said of the reason.
        said: String,
        /// Where its output is.
        log: PathBuf,
    },
    /// What was fetched is not what this version of ciphertoll was made for.
    #[error(
        "{file} was fetched, but is not the file expected, and was removed: its SHA-256 is {found}, not {expected}; if that comes again, remove it from {client}'s own repository, too"
    )]
    Checksum {
        /// The file's name.
        file: String,
        /// The SHA-256 that it should have had.
        expected: &'static str,
        /// The SHA-256 that it had.
        found: String,
        /// The program that fetched it.
        client: &'static str,
    },
    /// What was fetched is not what this version of ciphertoll was made for.
    #[error(
        "{module} was fetched, but is not what was expected, and is not used: its checksum is {found}, not {expected}; where the module comes from (GOPROXY) is not to be trusted"
    )]
    ModuleChecksum {
        /// The Go module and its version.
        module: String,
        /// The checksum that it should have had.
        expected: &'static str,
        /// The checksum that it had.
        found: String,
    },
    /// The program that builds a server is older than what the server needs.
    #[error(
        "building {name} takes {client} {wanted} or newer, and this is {found}; install a newer one, or name a build of your own"
    )]
    ClientTooOld {
        /// What was to be built.
        name: String,
        /// The program.
        client: &'static str,
        /// What it says it is.
        found: String,
        /// The version needed.
        wanted: String,
    },
    /// What was fetched could not be unpacked.
    #[error("cannot unpack {}: {reason}", archive.display())]
    Unpack {
        /// The archive.
        archive: PathBuf,
        /// Why.
        reason: String,
    },
    /// A program that a build needs is missing or does not run.
    #[error("{} does not work: {reason}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// A program that a path goes through is missing.
    #[error("{program} not found; {how_to_get}")]
    ProgramMissing {
        /// What it is called.
        program: &'static str,
        /// How to get it.
        how_to_get: String,
    },
    /// A tunnel cannot be made here.
    #[error("{tunnel} cannot be made here: {reason}")]
    TunnelUnavailable {
        /// Which.
        tunnel: String,
        /// Why, and what would help.
        reason: String,
    },
    /// A process was stopped (SIGSTOP) that should have gone on.
    #[error("{what} was stopped")]
    Stopped {
        /// Which.
        what: String,
    },
    /// A process ended that should have gone on.
    #[error("{what} ended ({status}); its log ends: {log_end}")]
    Died {
        /// Which.
        what: String,
        /// How.
        status: String,
        /// The last lines of its log that say something.
        log_end: String,
    },
    /// A process did not do its work in time.
    #[error("{what} was not done after {limit:?} ({last}); its log ends: {log_end}")]
    TooSlow {
        /// Which.
        what: String,
        /// The deadline.
        limit: Duration,
        /// The last failure seen from outside.
        last: String,
        /// The last lines of its log that say something.
        log_end: String,
    },
    /// Every port tried was taken by somebody else.
    #[error("{what} found every port that it tried taken: {tried:?}")]
    PortsTaken {
        /// Who wanted one.
        what: String,
        /// The ports.
        tried: Vec<u16>,
    },
    /// A server refused what the lab asked of it.
    #[error("cannot {doing}: {source}")]
    Control {
        /// What the lab wanted.
        doing: &'static str,
        /// What the server or the connection said.
        source: ciphertoll_net::Error,
    },
    /// Servers must not run as root, and there is no other user to run them as.
    #[error("servers must not run as root, and {0}")]
    NoServerUser(String),
    /// Keys or certificates could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] openssl::error::ErrorStack),
    /// The `__exec` helper could not turn itself into the program.
    #[error("cannot start {}: {reason}", program.display())]
    Exec {
        /// The program.
        program: PathBuf,
        /// Which step failed and why.
        reason: String,
    },
    /// The server does not tell what every server of its kind counts.
    #[error("the server does not tell its {0}")]
    NoCounter(&'static str),
    /// This server cannot be logged in to like that; others may.
    #[error("{reason}")]
    AuthUnavailable {
        /// The authentication asked for.
        auth: String,
        /// A sentence that names the server and says why not.
        reason: String,
    },
    /// This server cannot encrypt its files like that; others may.
    #[error("{0}")]
    AtRestUnavailable(String),
    /// Files cannot lie where they were asked to.
    #[error("{0}")]
    StorageUnavailable(String),
    /// Files are not encrypted that should be.
    #[error("{0}")]
    NotEncrypted(String),
    /// A server at a URL cannot be reached, or does not let us in.
    #[error("{name} cannot be logged in to: {reason}")]
    Unreachable {
        /// What the server is called.
        name: String,
        /// What the server, the network or the resolver said.
        reason: String,
    },
    /// A server at a URL is to be loaded, and is no member that takes writes.
    #[error(
        "{name} is {is}, which takes no documents: load them once by a URL with readPreference=primary, and this member has them, too"
    )]
    TakesNoDocuments {
        /// What the server is called.
        name: String,
        /// What it is, with its article.
        is: &'static str,
    },
    /// A server at a URL refuses the password.
    #[error("{name} cannot be logged in to: {reason}")]
    WrongPassword {
        /// What the server is called.
        name: String,
        /// What it said.
        reason: String,
    },
    /// A server at a URL refuses the statement of `--query`.
    #[error("{name} refuses the statement of --query: {reason}")]
    Statement {
        /// What the server is called.
        name: String,
        /// What it said.
        reason: String,
    },
    /// The directory for templates and fetched servers.
    #[error("cannot make {}: {source}; set XDG_CACHE_HOME or HOME to a directory that you can write to", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that a URL names for TLS cannot be used.
    #[error("{source} ({option} in the URL of {name})")]
    UrlFile {
        /// Which file, and what is wrong with it.
        source: ciphertoll_net::tls::FileError,
        /// The URL's option.
        option: &'static str,
        /// What the server is called.
        name: String,
    },
    /// What a URL says of TLS cannot be done.
    #[error("the URL of {name} cannot be used: {reason}")]
    UrlTls {
        /// What the server is called.
        name: String,
        /// What the TLS library said.
        reason: String,
    },
    /// A server at a URL has a certificate that we do not trust.
    #[error(
        "{name}: {reason}; give the authority that signed it by {authority} in the URL, or ask for less there: {mode}"
    )]
    Unverified {
        /// What the server is called.
        name: String,
        /// What is wrong with the certificate.
        reason: String,
        /// The option that names an authority.
        authority: &'static str,
        /// The options that ask for less.
        mode: &'static str,
    },
    /// Server or client has no such TLS.
    #[error("{0}")]
    TlsUnavailable(String),
    /// A server does not have what it said it took.
    #[error("{loaded} documents were loaded, and the server counts {counted}")]
    Miscounted {
        /// How many were sent.
        loaded: u64,
        /// How many it has.
        counted: u64,
    },
    /// The tables that were asked for do not fit on a disk.
    #[error(
        "the tables take about {:.1} GiB in {}, where {:.1} GiB are free: ask for a smaller --scale",
        gibibytes(*needed_bytes), path.display(), gibibytes(*free_bytes)
    )]
    NoRoom {
        /// Where they would be.
        path: PathBuf,
        /// What they take there.
        needed_bytes: u64,
        /// What is free there.
        free_bytes: u64,
    },
    /// Whoever asked for it wants it no more.
    #[error("interrupted while data were made")]
    Interrupted,
    /// A server was asked to read its files again and has not.
    #[error("the server has not read its configuration again within {limit:?}")]
    NotReloaded {
        /// The deadline.
        limit: Duration,
    },
    /// A password could not be turned into what a server stores of it.
    #[error("cannot make a verifier: {0}")]
    Verifier(#[from] ciphertoll_wire::scram::Error),
    /// Files, locks and the ledger.
    #[error(transparent)]
    Record(#[from] ciphertoll_record::Error),
}

/// What a program that fetches builds was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Fetch something.
    Fetch,
    /// Build it.
    Build,
}

impl fmt::Display for Doing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Fetch => "fetch",
            Self::Build => "build",
        })
    }
}

impl Error {
    /// What the process should answer when this ends it.
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
            | Self::TakesNoDocuments { .. }
            | Self::Unverified { .. } => ExitCode::ServerRefused,
            Self::PortsTaken { .. }
            | Self::NoRoom { .. }
            | Self::NoServerUser(_)
            | Self::ClientMissing { .. }
            | Self::NotForProcessor { .. }
            | Self::Download { .. }
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

/// Puts verb and object to an error of the operating system.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Record(ciphertoll_record::Error::from_io(action, path, source)))
    }
}
