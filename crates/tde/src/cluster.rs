//! A data directory as a whole: whether it is encrypted, with which keys, and whether stock programs refuse it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::seal::{CONTROL_BYTES, Seal, VersionText, version_seal};
use crate::{Engine, Errno, Format, KeyError, MAP_MAGIC, Opened, Place, Storage};

/// `pg_control`, below the data directory.
pub const CONTROL_PATH: &str = "global/pg_control";
/// `PG_VERSION`, below the data directory.
pub const VERSION_PATH: &str = "PG_VERSION";
pub(crate) const MAP_PATH: &str = "global/pg_filenode.map";
/// The lock file of a running server; its first line is the postmaster's process ID.
pub(crate) const LOCK_PATH: &str = "postmaster.pid";
/// Where the checksum of `pg_control` can be, in any version.
const CHECKSUM_AT: std::ops::Range<usize> = 200..460;

/// What a data directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No cluster, or one that `initdb` is making under the library.
    Empty,
    /// A cluster that is encrypted with these keys and that stock programs refuse.
    Sealed,
    /// A cluster that is encrypted with these keys, and in which this file is as a stock program would write it.
    Unsealed(&'static str),
    /// A part of a cluster that is encrypted with these keys: this file is missing.
    Incomplete(&'static str),
    /// A cluster that is not encrypted.
    Plain,
    /// A cluster that is encrypted with other keys.
    OtherKeys,
    /// A cluster that is encrypted with these keys, whose `pg_control` is not authentic.
    Forged,
}

impl Condition {
    /// Why no program may work on it with these keys; `None` if one may.
    pub fn refusal(self, data: &Path, format: Format) -> Option<String> {
        let data = data.display();
        match (self, format) {
            (Self::Empty | Self::Sealed, _) => None,
            (Self::Incomplete(file), _) => {
                Some(format!("{data}/{file} is missing: the cluster is incomplete"))
            }
            (Self::Plain, _) => Some(format!("the cluster in {data} is not encrypted")),
            (Self::OtherKeys, _) => Some(format!("these are not the keys of the cluster in {data}")),
            (Self::Unsealed(_), Format::MayBeUnsealed) => Some(format!(
                "an earlier version of ciphertoll encrypted the cluster in {data} and did not seal it: seal it once, \
                 `ciphertoll tde exec -D {data} --key-file KEK -- true`"
            )),
            (Self::Unsealed(file), Format::Sealed) => {
                Some(format!("{data}/{file} is not sealed: it was replaced by one from elsewhere"))
            }
            (Self::Forged, _) => Some(format!("{data}/{CONTROL_PATH} was changed, or is another cluster's")),
        }
    }
}

/// What a data directory holds. Reads three small files; the directory need not exist.
pub fn examine(data: &Path, engine: &mut Engine) -> Result<Condition, KeyError> {
    let version = version_seal(&beginning::<16>(&data.join(VERSION_PATH))?);
    let control = match open(&data.join(CONTROL_PATH))? {
        None => Seal::Absent,
        Some(file) => engine.control_seal(&file).map_err(|error| failed(data, CONTROL_PATH, error))?,
    };
    let map = open(&data.join(MAP_PATH))?;
    let Some(map) = map else {
        return match (version, control) {
            (Seal::Absent | Seal::Sealed, Seal::Absent) => Ok(Condition::Empty),
            (_, Seal::Absent) => Ok(Condition::Plain),
            _ => Ok(Condition::Incomplete(MAP_PATH)),
        };
    };
    let mut magic = [0; MAP_MAGIC.len()];
    let bad_map = |error| failed(data, MAP_PATH, error);
    map.read_at(&mut magic, 0).map_err(bad_map)?;
    if magic == MAP_MAGIC {
        return Ok(Condition::Plain);
    }
    engine.read_at(&mut Opened::new(Place::of(MAP_PATH.as_bytes())), &map, &mut magic, 0).map_err(bad_map)?;
    Ok(match (version, control) {
        _ if magic != MAP_MAGIC => Condition::OtherKeys,
        (_, Seal::Forged) => Condition::Forged,
        (_, Seal::Clear) => Condition::Unsealed(CONTROL_PATH),
        (_, Seal::Absent) => Condition::Incomplete(CONTROL_PATH),
        (Seal::Absent, _) => Condition::Incomplete(VERSION_PATH),
        (Seal::Sealed, Seal::Sealed) => Condition::Sealed,
        _ => Condition::Unsealed(VERSION_PATH),
    })
}

/// Seals a cluster that an earlier version encrypted. What is sealed already stays as it is, so that an attempt that was
/// interrupted can be repeated. No server may be running.
pub fn seal(data: &Path, engine: &mut Engine) -> Result<(), KeyError> {
    if let Some(process) = running_server(data) {
        return Err(KeyError::Running { data: data.to_owned(), process });
    }
    let path = data.join(VERSION_PATH);
    let stored = beginning::<16>(&path)?;
    if version_seal(&stored) != Seal::Sealed {
        let sealed = VersionText::sealed(&stored)
            .ok_or(KeyError::BadCluster { path: path.clone(), why: "it does not hold a major version" })?;
        overwrite(&path, |file| file.write_all_at(sealed.as_bytes(), 0))?;
    }
    let path = data.join(CONTROL_PATH);
    let Some(file) = open(&path)? else { return Err(unreadable(path, io::ErrorKind::NotFound.into())) };
    let seal = engine.control_seal(&file).map_err(|error| failed(data, CONTROL_PATH, error))?;
    if seal == Seal::Sealed {
        return Ok(());
    }
    let mut plaintext = [0; CONTROL_BYTES];
    let held = file.read_at(&mut plaintext, 0).map_err(|error| failed(data, CONTROL_PATH, error))?;
    if seal != Seal::Clear || held != CONTROL_BYTES || !has_checksum(&plaintext) {
        return Err(KeyError::BadCluster { path, why: "its checksum is wrong" });
    }
    overwrite(&path, |file| {
        let mut opened = Opened::new(Place::Control);
        let written = engine.write_at(&mut opened, &Stored(file.try_clone()?), &plaintext.as_slice(), 0);
        written.map(drop).map_err(|error| io::Error::from_raw_os_error(error.0))
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
        // Whose process it is cannot be told: it is taken for the server.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    is_here.then_some(process)
}

/// Whether the CRC-32C that ends PostgreSQL's structure is right. Its place differs between versions.
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

/// A file on disk.
pub(crate) struct Stored(pub(crate) File);

impl Storage for Stored {
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

fn open(path: &Path) -> Result<Option<Stored>, KeyError> {
    match File::open(path) {
        Ok(file) => Ok(Some(Stored(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path.to_owned(), error)),
    }
}

/// At most `N` bytes; none of a file that does not exist.
fn beginning<const N: usize>(path: &Path) -> Result<Vec<u8>, KeyError> {
    let Some(file) = open(path)? else { return Ok(Vec::new()) };
    let mut bytes = vec![0; N];
    let held = file
        .read_at(&mut bytes, 0)
        .map_err(|error| unreadable(path.to_owned(), io::Error::from_raw_os_error(error.0)))?;
    bytes.truncate(held);
    Ok(bytes)
}

fn overwrite(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> Result<(), KeyError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let written = file.and_then(|file| write(&file).and_then(|()| file.sync_all()));
    written.map_err(|error| KeyError::Io { doing: "write", path: path.to_owned(), error })
}

fn failed(data: &Path, name: &str, error: Errno) -> KeyError {
    unreadable(data.join(name), io::Error::from_raw_os_error(error.0))
}

fn unreadable(path: PathBuf, error: io::Error) -> KeyError {
    KeyError::Io { doing: "read", path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3720_crc32c() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
