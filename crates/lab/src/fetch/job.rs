//! What the steps of a fetch have in common.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error};

/// Suffix of incomplete files and directories.
pub(super) const PARTIAL: &str = ".partial";

pub(super) struct FetchJob<'a, 'p> {
    pub(super) name: &'static str,
    pub(super) downloads: &'a Path,
    pub(super) progress: &'p mut dyn FnMut(&str),
}

impl FetchJob<'_, '_> {
    pub(super) fn report(&mut self, step: &str) {
        (self.progress)(&format!("{}: {step}", self.name));
    }

    /// The file with the client's output.
    pub(super) fn log(&self) -> PathBuf {
        self.downloads.join(format!("{}.log", self.name))
    }
}

pub(super) fn remove_directory(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", path),
        _ => Ok(()),
    }
}
