//! The journal of a conversion: which files are finished, and of what they were made.
//!
//! A line names the source; one follows for each file: its size, its time of modification, its path. A file whose path has
//! a newline is never listed, and is converted again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::files::fault;
use super::plan::PlannedFile;
use super::{ConvertError, Result};

/// An open journal. It is locked: one process converts at a time.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// By path: size and time of modification of the source.
    finished: HashMap<Vec<u8>, String>,
}

impl Journal {
    /// Opens one, or begins it. One that was begun must have the same first line.
    pub(super) fn open(path: &Path, identity: &str) -> Result<Self> {
        let failed = |error| fault("write", path, error);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = opened.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                return Err(ConvertError::Refused(format!(
                    "{} is locked: it is being converted",
                    path.display()
                )));
            }
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        // A line that was cut off is of a file that is not finished.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        text.truncate(whole);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        let mut lines = text.split(|&byte| byte == b'\n');
        match lines.next() {
            Some(first) if first == identity.as_bytes() => {}
            Some(b"") | None => {
                file.write_all(format!("{identity}\n").as_bytes())
                    .and_then(|()| file.sync_all())
                    .map_err(failed)?;
            }
            Some(_) => {
                return Err(ConvertError::Refused(format!(
                    "{} belongs to another conversion, or the source was used since it began, or the directories \
                     differ: remove the target and begin again",
                    path.display()
                )));
            }
        }
        let finished = lines.filter_map(entry).collect();
        Ok(Self { path: path.to_owned(), file, finished })
    }

    /// Whether a file was made of the same source, and is there.
    pub(super) fn is_finished(&self, file: &PlannedFile) -> bool {
        let is_listed = self.finished.get(file.below.as_os_str().as_bytes()) == Some(&version(file));
        is_listed && fs::symlink_metadata(&file.to).is_ok_and(|to| to.is_file() && to.len() == file.bytes)
    }

    /// Lists a file that is on disk.
    pub(super) fn finish(&mut self, file: &PlannedFile) -> Result<()> {
        let path = file.below.as_os_str().as_bytes();
        if path.contains(&b'\n') {
            return Ok(());
        }
        let line = [version(file).as_bytes(), b" ", path, b"\n"].concat();
        self.file.write_all(&line).map_err(|error| fault("write", &self.path, error))
    }

    /// The conversion is complete.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|error| fault("remove", &self.path, error))
    }
}

fn version(file: &PlannedFile) -> String {
    format!("{} {}.{:09}", file.bytes, file.modified.0, file.modified.1)
}

fn entry(line: &[u8]) -> Option<(Vec<u8>, String)> {
    let mut spaces = line.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(at, _)| at);
    let second = spaces.nth(1)?;
    let version = String::from_utf8(line[..second].to_vec()).ok()?;
    Some((line[second + 1..].to_vec(), version))
}
