//! Restricts `pg_basebackup` to writing a data directory in plain format, which is encrypted as a server encrypts it.
//!
//! The key of a tablespace's files depends on the tablespace's OID. `pg_basebackup` writes them to the mapped directory, so
//! that directory must have the OID as its name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ciphertoll_tde::{ClearFile, FileClass};

use crate::paths::{ClusterPath, Intent};

/// Terminals and descriptors, most of which are not files.
const DEVICES: [&[u8]; 2] = [b"/dev/", b"/proc/"];

const OUTSIDE: &[u8] =
    b"a file outside of CIPHERTOLL_TDE_DATA would not be encrypted; a tablespace's directory must have the tablespace's \
      OID as its name: --tablespace-mapping=OLD=NEW/OID";

/// The class of a path of a backup, or why the file is refused.
pub(crate) fn classify(below: &ClusterPath, intent: Intent) -> Result<FileClass, &'static [u8]> {
    let class = class_of(below, intent == Intent::Create)?;
    let is_elsewhere = below.as_bytes().is_empty() && in_tablespace(below).is_none();
    if is_elsewhere && intent == Intent::Create && !is_device(below.absolute()) {
        return Err(OUTSIDE);
    }
    Ok(class)
}

/// The class of a file, or why it is refused. Files elsewhere are not encrypted: which of them a backup may create,
/// [`classify`] decides.
pub(crate) fn class_of(below: &ClusterPath, writes: bool) -> Result<FileClass, &'static [u8]> {
    let mapped = in_tablespace(below);
    let path = mapped.as_deref().unwrap_or(below.as_bytes());
    let class = class_below(path)?;
    if writes && ClearFile::is_unknown(class, path) {
        return Err(b"a file of an unknown kind among the encrypted ones would not be encrypted: remove it from the server's data \
                     directory");
    }
    if writes && ClearFile::of(path) == ClearFile::Other {
        if has_version_directory(path) {
            return Err(OUTSIDE);
        }
        if FileClass::of_wal_elsewhere(path).is_some() {
            return Err(b"WAL in another directory than pg_wal would not be encrypted: move it out of the server's data directory");
        }
    }
    Ok(class)
}

/// The path below the data directory of a file in a mapped tablespace, which may also be in the data directory. There are no
/// links yet.
fn in_tablespace(below: &ClusterPath) -> Option<Vec<u8>> {
    let path = below.as_bytes();
    let may_be = path.is_empty() || !FileClass::of(path).is_encrypted() && ClearFile::may_be_linked(path);
    may_be.then(|| FileClass::path_of_tablespace_elsewhere(below.absolute()))?
}

/// Whether a path has a directory like those that a server makes in tablespaces, `PG_15_202209061`.
fn has_version_directory(path: &[u8]) -> bool {
    let mut directories = path.split(|&byte| byte == b'/').rev().skip(1);
    directories.any(|part| {
        part.strip_prefix(b"PG_").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit))
    })
}

/// Whether this is a terminal, a pipe or the like, and no file that could be created.
fn is_device(path: &[u8]) -> bool {
    let is_no_file = || std::fs::metadata(OsStr::from_bytes(path)).is_ok_and(|found| !found.is_file());
    DEVICES.iter().any(|devices| path.starts_with(devices)) && is_no_file()
}

/// The class of a path below the data directory.
fn class_below(path: &[u8]) -> Result<FileClass, &'static [u8]> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if name == path && path.windows(4).any(|part| part == b".tar") {
        return Err(b"a base backup in tar format would not be encrypted: use plain format (-Fp)");
    }
    if name.starts_with(b"INCREMENTAL.") {
        return Err(b"an incremental base backup would not be encrypted");
    }
    Ok(FileClass::of(path))
}

/// Whether a tablespace link points to a directory that is named by the tablespace's OID.
pub(crate) fn is_valid_tablespace_link(below: &[u8], target: &[u8]) -> bool {
    let Some(number) = below.strip_prefix(b"pg_tblspc/") else { return true };
    target.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()) == Some(number)
}

/// Options of `pg_basebackup` without a value, in all versions.
const FLAGS: &[u8] = b"CRnNzwWkvPV?";
/// Other options with a value, in all versions.
const WITH_VALUE: &[u8] = b"FrSTXlZdchpUsi";
const LONG_WITH_VALUE: [&str; 18] = [
    "format",
    "max-rate",
    "slot",
    "tablespace-mapping",
    "wal-method",
    "xlog-method",
    "label",
    "compress",
    "dbname",
    "checkpoint",
    "host",
    "port",
    "username",
    "status-interval",
    "waldir",
    "incremental",
    "manifest-checksums",
    "sync-method",
];

/// Whether the arguments name this directory, and no other, as the target: `-D DIR`, `-PDDIR`, `--pgdata=DIR`. The program
/// uses the last of several, and abbreviated names. An argument that cannot be told apart from a target counts as one.
pub(crate) fn is_target(arguments: &[u8], configured: &Path, canonical: &Path) -> bool {
    let names = |text: &[u8]| {
        let Ok(path) = std::path::absolute(OsStr::from_bytes(text)) else { return false };
        let path: PathBuf = path.components().collect();
        !text.is_empty() && (path == configured || path == canonical)
    };
    let Ok(targets) = targets(arguments) else { return false };
    !targets.is_empty() && targets.into_iter().all(names)
}

/// A target on the server (`--target`).
struct ServerTarget;

/// All values of `-D`.
fn targets(arguments: &[u8]) -> Result<Vec<&[u8]>, ServerTarget> {
    // The last argument ends with a NUL, too.
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments);
    let mut arguments = arguments.split(|&byte| byte == 0).skip(1);
    let mut targets = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument {
            b"--" => break,
            [b'-', b'-', long @ ..] => {
                let mut parts = long.splitn(2, |&byte| byte == b'=');
                let (name, value) = (parts.next().unwrap_or_default(), parts.next());
                if b"target".starts_with(name) {
                    return Err(ServerTarget);
                }
                let is_target = b"pgdata".starts_with(name);
                let takes_value =
                    is_target || LONG_WITH_VALUE.iter().any(|long| long.as_bytes().starts_with(name));
                let value = if takes_value { value.or_else(|| arguments.next()) } else { value };
                targets.extend(value.filter(|_| is_target));
            }
            [b'-', short @ ..] => {
                let Some(at) = short.iter().position(|letter| !FLAGS.contains(letter)) else { continue };
                let attached = Some(&short[at + 1..]).filter(|value| !value.is_empty());
                match short[at] {
                    b't' => return Err(ServerTarget),
                    b'D' => targets.push(attached.or_else(|| arguments.next()).unwrap_or_default()),
                    letter if WITH_VALUE.contains(&letter) && attached.is_none() => drop(arguments.next()),
                    _ => {}
                }
            }
            // The program refuses it.
            _ => {}
        }
    }
    Ok(targets)
}
