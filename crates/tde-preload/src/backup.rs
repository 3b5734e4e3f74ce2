//! What `pg_basebackup` may write: a data directory in plain format, which is encrypted as a server would, and nothing else
//! that holds a cluster's data.
//!
//! A tablespace's files get their key by the tablespace's number, which their path does not say while they are written:
//! they lie where the tablespace was mapped to. Its directory must have the number as its name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ciphertoll_tde::FileClass;

use crate::descriptors::Intent;
use crate::paths::ClusterPath;

/// What is no file of anybody's: terminals, descriptors.
const DEVICES: [&[u8]; 2] = [b"/dev/", b"/proc/"];

/// What a path of a backup holds, or why it may not be made.
pub(crate) fn class(below: &ClusterPath, intent: Intent) -> Result<FileClass, &'static [u8]> {
    let path = below.as_bytes();
    if path.is_empty() {
        return elsewhere(below.absolute(), intent);
    }
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if name == path && path.windows(4).any(|part| part == b".tar") {
        return Err(b"a base backup in tar format would be plaintext; plain format is encrypted: -Fp");
    }
    if name.starts_with(b"INCREMENTAL.") {
        return Err(b"an incremental base backup would be plaintext");
    }
    Ok(FileClass::of(path))
}

fn elsewhere(path: &[u8], intent: Intent) -> Result<FileClass, &'static [u8]> {
    if let Some(class) = FileClass::of_tablespace_elsewhere(path) {
        return Ok(class);
    }
    if intent == Intent::Use || DEVICES.iter().any(|devices| path.starts_with(devices)) {
        return Ok(FileClass::Unencrypted);
    }
    Err(b"a file outside of CIPHERTOLL_TDE_DATA would be plaintext; a tablespace's directory must have the tablespace's \
          number as its name: --tablespace-mapping=OLD=NEW/NUMBER")
}

/// Whether a link to a tablespace leads to a directory with its number, by which its files were encrypted.
pub(crate) fn is_valid_tablespace_link(below: &[u8], target: &[u8]) -> bool {
    let Some(number) = below.strip_prefix(b"pg_tblspc/") else { return true };
    target.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()) == Some(number)
}

/// Whether the arguments say that it is this directory which is written: `-D DIR`, `-DDIR`, `--pgdata=DIR`.
pub(crate) fn is_into(arguments: &[u8], configured: &Path, canonical: &Path) -> bool {
    let names = |text: &[u8]| {
        let Ok(path) = std::path::absolute(OsStr::from_bytes(text)) else { return false };
        let path: PathBuf = path.components().collect();
        path == configured || path == canonical
    };
    arguments.split(|&byte| byte == 0).skip(1).any(|argument| {
        let after =
            |mark: u8| argument.iter().position(|&byte| byte == mark).and_then(|at| argument.get(at + 1..));
        let value = match argument {
            [b'-', b'-', ..] => after(b'='),
            [b'-', ..] => after(b'D'),
            _ => Some(argument),
        };
        value.is_some_and(|value| !value.is_empty() && names(value))
    })
}
