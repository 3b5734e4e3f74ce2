//! Errors of a conversion.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::KeyError;
use crate::error::Doing;

#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source or the target cannot be used.
    #[error("{0}")]
    Refused(String),
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

pub(super) fn open(path: &Path) -> Result<File> {
    Ok(File::open(path).doing("read", path)?)
}
