//! What the steps of a fetch have in common.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ciphertoll_record::Context;

use crate::error::FetchError;

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
        self.downloads.join(format!("{}.log", self.file_name()))
    }

    pub(super) fn append_to_log(&self, text: &[u8]) -> Result<(), FetchError> {
        let log = self.log();
        let file = File::options().append(true).create(true).open(&log);
        Ok(file.and_then(|mut file| file.write_all(text)).context("write", &log)?)
    }

    /// The name, without characters that have a meaning in search paths.
    pub(super) fn file_name(&self) -> String {
        file_name(self.name)
    }
}

/// `debian-13-postgres-17` of `debian-13:postgres-17`. A colon separates directories in search paths.
pub(super) fn file_name(name: &str) -> String {
    name.replace(':', "-")
}

pub(super) fn remove_directory(path: &Path) -> Result<(), FetchError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Ok(Err(error).context("remove", path)?),
        _ => Ok(()),
    }
}
