//! Upgrades a stopped cluster of an earlier version in place.
//!
//! Earlier versions did not seal clusters (key files of version 1), and encrypted a tail of less than 16 bytes as a unit of
//! its own (version 2). Few files have such a tail: prepared transactions and files of replication slots. They are written
//! anew to a directory of drafts; then the key file gets its new version; then the drafts replace the files. So the version
//! of the key file always says how the files are encrypted, together with the drafts.

use std::fs::{self, File};
use std::io;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::cluster::{self, ClusterState};
use crate::error::Doing;
use crate::units::LastUnit;
use crate::{EncryptionEngine, FileClass, Kek, KeyError, KeyFile, KeyFileFormat, OpenFile, Replace};

/// Directory of drafts, in the data directory.
const DRAFTS: &str = "ciphertoll-tde-upgrade";
/// Directories whose files may have tails.
const STATE_DIRECTORIES: [&str; 3] = ["pg_twophase", "pg_replslot", "pg_logical"];

/// Whether a cluster must be upgraded before it is used: the version of its key file is an earlier one, or an upgrade was
/// interrupted.
pub fn is_needed(data: &Path, format: KeyFileFormat) -> bool {
    format != KeyFileFormat::NEWEST || data.join(DRAFTS).exists()
}

/// Why programs must not use a cluster that must be upgraded.
pub fn refusal(data: &Path) -> String {
    let data = data.display();
    format!(
        "the cluster in {data} was encrypted by an earlier version of ciphertoll; to upgrade it, run \
         `ciphertoll tde exec -D {data} --key-file KEK -- true`"
    )
}

/// Upgrades a cluster. Can be repeated after an interruption. Returns the new key file, or `None` if the old one is still
/// right. Fails if a server is running.
pub fn upgrade(
    data: &Path,
    engine: &mut EncryptionEngine,
    key_file: (&Path, &KeyFile),
    kek: &Kek,
) -> Result<Option<KeyFile>, KeyError> {
    if let Some(process) = cluster::running_server(data) {
        return Err(KeyError::Running { data: data.to_owned(), process });
    }
    let (path, file) = key_file;
    if file.format() == KeyFileFormat::NEWEST {
        replace_by_drafts(data)?;
        return Ok(None);
    }
    let state = cluster::examine(data, engine)?;
    if matches!(state, ClusterState::Unsealed(_)) && file.format() == KeyFileFormat::MayBeUnsealed {
        cluster::seal(data, engine)?;
    }
    // Without the new key file, they are not valid.
    remove_drafts(data)?;
    let mut tails = Vec::new();
    for directory in STATE_DIRECTORIES {
        find_tails(data, Path::new(directory), &mut tails)?;
    }
    for below in &tails {
        write_draft(data, below, engine)?;
    }
    let upgraded = file.in_format(KeyFileFormat::NEWEST, kek)?;
    upgraded.store(path, Replace::Atomically)?;
    replace_by_drafts(data)?;
    Ok(Some(upgraded))
}

fn remove_drafts(data: &Path) -> Result<(), KeyError> {
    let drafts = data.join(DRAFTS);
    match fs::remove_dir_all(&drafts) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.doing("remove", &drafts),
    }
}

/// Entries of a directory that may be missing.
fn entries(directory: &Path) -> Result<Vec<fs::DirEntry>, KeyError> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.and_then(Iterator::collect).doing("read", directory),
    }
}

/// Finds the files whose tail joins the unit before it.
fn find_tails(data: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), KeyError> {
    for entry in entries(&data.join(below))? {
        let below = below.join(entry.file_name());
        let metadata = entry.metadata().doing("read", &entry.path())?;
        let class = FileClass::of(below.as_os_str().as_bytes());
        if metadata.is_dir() {
            find_tails(data, &below, found)?;
        } else if class.joins_tail() && LastUnit::of(class, metadata.len()).length > class.unit_bytes() {
            found.push(below);
        }
    }
    Ok(())
}

fn write_draft(data: &Path, below: &Path, engine: &mut EncryptionEngine) -> Result<(), KeyError> {
    let (from, to) = (data.join(below), data.join(DRAFTS).join(below));
    let mut content = fs::read(&from).doing("read", &from)?;
    let mut opened = OpenFile::new(FileClass::of(below.as_os_str().as_bytes()));
    engine.join_tail(&mut opened, &mut content).doing("encrypt", &from)?;
    let directory = to.parent().unwrap_or(data);
    fs::create_dir_all(directory).doing("create", directory)?;
    let metadata = fs::metadata(&from).doing("read", &from)?;
    let mut options = fs::OpenOptions::new();
    let draft = options.write(true).create_new(true).mode(metadata.mode() & 0o7777).open(&to);
    let written = draft.and_then(|mut file| {
        file.write_all(&content)?;
        if nix::unistd::geteuid().is_root() {
            fchown(&file, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        file.sync_all()?;
        sync(directory)
    });
    written.and_then(|()| sync(data)).doing("write", &to)
}

/// Replaces the files by their drafts.
fn replace_by_drafts(data: &Path) -> Result<(), KeyError> {
    let drafts = data.join(DRAFTS);
    if !drafts.exists() {
        return Ok(());
    }
    replace_below(data, &drafts, Path::new(""))?;
    remove_drafts(data)?;
    sync(data).doing("write", data)
}

fn replace_below(data: &Path, drafts: &Path, below: &Path) -> Result<(), KeyError> {
    for entry in entries(&drafts.join(below))? {
        let below = below.join(entry.file_name());
        let to = data.join(&below);
        if entry.file_type().doing("read", &entry.path())?.is_dir() {
            replace_below(data, drafts, &below)?;
            sync(&to).doing("write", &to)?;
        } else {
            fs::rename(entry.path(), &to).doing("write", &to)?;
        }
    }
    Ok(())
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
