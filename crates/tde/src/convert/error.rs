//! Errors of a conversion.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Errno, KeyError};

#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source or the target cannot be used.
    #[error("{0}")]
    Refused(String),
    #[error("cannot {doing} {path}: {error}")]
    Io {
        /// A verb, such as `read`.
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// A file of the target is not equal to that of the source.
    #[error("{path} is not verified: {why}")]
    Differs { path: PathBuf, why: String },
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The caller stopped the conversion.
    #[error("interrupted")]
    Interrupted,
}

pub(super) type Result<T> = std::result::Result<T, ConvertError>;

pub(super) fn io_error(doing: &'static str, path: &Path, error: io::Error) -> ConvertError {
    ConvertError::Io { doing, path: path.to_owned(), error }
}

/// Converts an [`Errno`] of an operation on `path`.
pub(super) fn errno_error(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> ConvertError {
    let path = path.to_owned();
    move |error| ConvertError::Io { doing, path, error: io::Error::from_raw_os_error(error.0) }
}

pub(super) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| io_error("read", path, error))
}
