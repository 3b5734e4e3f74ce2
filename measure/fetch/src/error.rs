//! Errors of this crate, and the exit code of each.

use std::path::PathBuf;

use ciphertoll_model::ExitCode;

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
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
    #[error(transparent)]
    Host(#[from] ciphertoll_host::Error),
    /// Files, locks and the ledger.
    #[error(transparent)]
    Record(#[from] ciphertoll_record::Error),
}

impl FetchError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::ClientMissing { .. }
            | Self::NotForProcessor { .. }
            | Self::Download { .. }
            | Self::PackageArchive { .. }
            | Self::Checksum { .. }
            | Self::ModuleChecksum { .. }
            | Self::ClientTooOld { .. }
            | Self::Unpack { .. } => ExitCode::HostResource,
            Self::Host(error) => error.exit_code(),
            Self::Record(error) => error.exit_code(),
        }
    }
}
