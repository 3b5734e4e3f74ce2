//! The state of a data directory: whether it is encrypted and sealed, and whether it matches the keys.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::error::Doing;
use crate::error::OTHER_VERSION_ADVICE;
use crate::seal::{CONTROL_BYTES, SealState, version_seal};
use crate::{EncryptionEngine, Errno, FileClass, KeyError, MAP_MAGIC, OpenFile, Storage};

/// Relative to the data directory, as are the other paths.
pub const CONTROL_PATH: &str = "global/pg_control";
pub const VERSION_PATH: &str = "PG_VERSION";
pub(crate) const MAP_PATH: &str = "global/pg_filenode.map";
/// The lock file of a running server; its first line is the postmaster's process ID.
pub(crate) const LOCK_PATH: &str = "postmaster.pid";
/// Where an earlier version kept the files of an upgrade that was interrupted.
const UPGRADE_PATH: &str = "ciphertoll-tde-upgrade";
/// Range of the checksum's offset in `pg_control`, over all versions.
const CHECKSUM_AT: std::ops::Range<usize> = 200..460;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// No cluster, or one that `initdb` has just begun to create with the library.
    Empty,
    /// Encrypted with these keys and sealed, so that stock programs refuse it.
    Sealed,
    /// Encrypted with these keys, but this file is not sealed.
    Unsealed(&'static str),
    /// Encrypted with these keys, but this file is missing or incomplete.
    Incomplete(&'static str),
    /// Not encrypted.
    Plain,
    /// Encrypted with other keys.
    OtherKeys,
    /// Encrypted with these keys, but `pg_control` is not authentic.
    Forged,
    /// This file is of another version of the format.
    OtherVersion(&'static str),
}

impl ClusterState {
    /// Why programs must not use the cluster with these keys; `None` if they may.
    pub fn refusal(self, data: &Path) -> Option<String> {
        let data = data.display();
        match self {
            Self::Empty | Self::Sealed => None,
            Self::Incomplete(file) => {
                Some(format!("{data}/{file} is missing or empty: the cluster is incomplete"))
            }
            Self::Plain => Some(format!("the cluster in {data} is not encrypted")),
            Self::OtherKeys => Some(format!("the keys do not match the cluster in {data}")),
            Self::Unsealed(file) => {
                Some(format!("{data}/{file} is not sealed: it was replaced by another file"))
            }
            Self::Forged => Some(format!("{data}/{CONTROL_PATH} was changed, or belongs to another cluster")),
            Self::OtherVersion(file) => {
                Some(format!("{data}/{file} is of another version of ciphertoll: {OTHER_VERSION_ADVICE}"))
            }
        }
    }
}

/// What a data directory holds. Reads three small files; the directory need not exist.
pub fn examine(data: &Path, engine: &mut EncryptionEngine) -> Result<ClusterState, KeyError> {
    let version = version_seal(&read_start::<16>(&data.join(VERSION_PATH))?);
    let control = match open(&data.join(CONTROL_PATH))? {
        None => SealState::Absent,
        Some(file) => engine.control_seal(&file).doing("read", &data.join(CONTROL_PATH))?,
    };
    let path = data.join(MAP_PATH);
    let Some(map) = open(&path)? else {
        return match (version, control) {
            (SealState::Absent | SealState::Sealed, SealState::Absent) => Ok(ClusterState::Empty),
            (_, SealState::Absent) => Ok(ClusterState::Plain),
            _ => Ok(ClusterState::Incomplete(MAP_PATH)),
        };
    };
    let mut magic = [0; MAP_MAGIC.len()];
    if map.read_at(&mut magic, 0).doing("read", &path)? < magic.len() {
        return Ok(ClusterState::Incomplete(MAP_PATH));
    }
    if magic == MAP_MAGIC {
        return Ok(ClusterState::Plain);
    }
    let mut opened = OpenFile::new(FileClass::of(MAP_PATH.as_bytes()));
    engine.read_at(&mut opened, &map, &mut magic, 0).doing("read", &path)?;
    Ok(match (version, control) {
        _ if magic != MAP_MAGIC => ClusterState::OtherKeys,
        (_, SealState::Forged) => ClusterState::Forged,
        (_, SealState::OtherVersion) => ClusterState::OtherVersion(CONTROL_PATH),
        _ if data.join(UPGRADE_PATH).exists() => ClusterState::OtherVersion(UPGRADE_PATH),
        (_, SealState::Unsealed) => ClusterState::Unsealed(CONTROL_PATH),
        (_, SealState::Absent) => ClusterState::Incomplete(CONTROL_PATH),
        (SealState::Absent, _) => ClusterState::Incomplete(VERSION_PATH),
        (SealState::Sealed, SealState::Sealed) => ClusterState::Sealed,
        _ => ClusterState::Unsealed(VERSION_PATH),
    })
}

/// The process ID of the server that runs in a data directory.
pub fn running_server(data: &Path) -> Option<u32> {
    let text = fs::read_to_string(data.join(LOCK_PATH)).ok()?;
    // A single-user server writes its own process ID as a negative number.
    let process: u32 = text.lines().next()?.trim().trim_start_matches('-').parse().ok()?;
    let directory = fs::read_link(format!("/proc/{process}/cwd"));
    let is_here = match directory {
        Ok(directory) => fs::canonicalize(data).is_ok_and(|data| data == directory),
        // Another user's process: assume that it is the server.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    is_here.then_some(process)
}

/// Whether the CRC-32C at the end of `ControlFileData` is correct. Its offset differs between versions.
pub(crate) fn has_checksum(control: &[u8; CONTROL_BYTES]) -> bool {
    CHECKSUM_AT.step_by(4).any(|at| {
        let (content, rest) = control.split_at(at);
        rest.starts_with(&crc32c(content).to_le_bytes())
    })
}

/// CRC-32C (Castagnoli), bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8)
            .fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ POLYNOMIAL })
    })
}

pub(crate) struct DiskFile(pub(crate) File);

impl Storage for DiskFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], offset + done as u64).map_err(|error| errno(&error))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        self.0.write_all_at(bytes, offset).map_err(|error| errno(&error))?;
        Ok(bytes.len())
    }

    fn size(&self) -> Result<u64, Errno> {
        self.0.metadata().map(|metadata| metadata.len()).map_err(|error| errno(&error))
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        self.0.set_len(size).map_err(|error| errno(&error))
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno)
}

fn open(path: &Path) -> Result<Option<DiskFile>, KeyError> {
    match File::open(path) {
        Ok(file) => Ok(Some(DiskFile(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("read", path),
    }
}

/// Reads at most `N` bytes from the start of a file; none if the file does not exist.
fn read_start<const N: usize>(path: &Path) -> Result<Vec<u8>, KeyError> {
    let Some(file) = open(path)? else { return Ok(Vec::new()) };
    let mut bytes = vec![0; N];
    let held = file.read_at(&mut bytes, 0).doing("read", path)?;
    bytes.truncate(held);
    Ok(bytes)
}

/// Device and inode of the directories to which the links of tablespaces and of WAL lead. They may be in the data directory,
/// or in each other.
pub(crate) fn linked_directories(data: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut links = vec![data.join("pg_wal")];
    for entry in fs::read_dir(data.join("pg_tblspc"))? {
        links.push(entry?.path());
    }
    let mut found = Vec::new();
    for link in links.iter().filter(|link| link.is_symlink()) {
        let metadata = fs::metadata(link)?;
        found.push((metadata.dev(), metadata.ino()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_map_means_an_incomplete_cluster_and_not_other_keys() {
        let data = tempfile::tempdir().expect("a directory");
        fs::create_dir(data.path().join("global")).expect("a directory");
        fs::write(data.path().join(MAP_PATH), "").expect("an empty map");
        let keys = crate::DataKeys::generate(crate::CipherKind::Aes256).expect("keys");
        let mut engine = EncryptionEngine::new(keys).expect("an engine");
        let state = examine(data.path(), &mut engine).expect("a state");
        assert_eq!(state, ClusterState::Incomplete(MAP_PATH));
        fs::write(data.path().join(MAP_PATH), [1; 512]).expect("a map of other keys");
        let state = examine(data.path(), &mut engine).expect("a state");
        assert_eq!(state, ClusterState::OtherKeys);
    }

    #[test]
    fn rfc_3720_crc32c() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
