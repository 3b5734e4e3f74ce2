//! The journal of a conversion, which lists the finished files.
//!
//! The first line identifies the source. Each other line has the size, the modification time and the path of a source
//! file. A file whose path contains a newline is not listed, and is converted again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{ConvertError, Result};
use super::plan::PlannedFile;
use crate::error::Doing;

/// An open journal, locked so that only one process converts at a time.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Size and modification time of the source, by path.
    finished: HashMap<Vec<u8>, String>,
}

impl Journal {
    /// Opens or creates a journal. The first line of an existing one must be `identity`.
    pub(super) fn open(path: &Path, identity: &str) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = opened.doing("write", path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(ConvertError::Refused(format!(
                    "{} is locked: another process is converting",
                    path.display()
                )));
            }
            locked => locked.doing("write", path)?,
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).doing("write", path)?;
        // An incomplete last line belongs to an unfinished file.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        text.truncate(whole);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).doing("write", path)?;
        let mut lines = text.split(|&byte| byte == b'\n');
        match lines.next() {
            Some(first) if first == identity.as_bytes() => {}
            Some(b"") | None => {
                let line = format!("{identity}\n");
                file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).doing("write", path)?;
            }
            Some(_) => {
                return Err(ConvertError::Refused(format!(
                    "{} belongs to another conversion, or the source was used since, or the directories differ: remove \
                     the target and start again",
                    path.display()
                )));
            }
        }
        let finished = lines.filter_map(entry).collect();
        Ok(Self { path: path.to_owned(), file, finished })
    }

    /// Whether the target of a file exists and was made from the same source.
    pub(super) fn is_finished(&self, file: &PlannedFile) -> bool {
        let is_listed = self.finished.get(file.below.as_os_str().as_bytes()) == Some(&version(file));
        is_listed && fs::symlink_metadata(&file.to).is_ok_and(|to| to.is_file() && to.len() == file.bytes)
    }

    /// Lists a file, which must be on disk.
    pub(super) fn finish(&mut self, file: &PlannedFile) -> Result<()> {
        let path = file.below.as_os_str().as_bytes();
        if path.contains(&b'\n') {
            return Ok(());
        }
        let line = [version(file).as_bytes(), b" ", path, b"\n"].concat();
        Ok(self.file.write_all(&line).doing("write", &self.path)?)
    }

    pub(super) fn remove(self) -> Result<()> {
        Ok(fs::remove_file(&self.path).doing("remove", &self.path)?)
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
