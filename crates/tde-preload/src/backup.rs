//! Restricts `pg_basebackup` to writing a data directory in plain format, which is encrypted as a server encrypts it.
//!
//! The key of a tablespace's files depends on the tablespace's OID. `pg_basebackup` writes them to the mapped directory, so
//! that directory must have the OID as its name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ciphertoll_tde::FileClass;

use crate::descriptors::Intent;
use crate::paths::ClusterPath;

/// Terminals and descriptors, which are not files.
const DEVICES: [&[u8]; 2] = [b"/dev/", b"/proc/"];

/// The class of a path of a backup, or why the file is refused.
pub(crate) fn classify(below: &ClusterPath, intent: Intent) -> Result<FileClass, &'static [u8]> {
    let path = below.as_bytes();
    if path.is_empty() {
        return elsewhere(below.absolute(), intent);
    }
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if name == path && path.windows(4).any(|part| part == b".tar") {
        return Err(b"a base backup in tar format would not be encrypted: use plain format (-Fp)");
    }
    if name.starts_with(b"INCREMENTAL.") {
        return Err(b"an incremental base backup would not be encrypted");
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
    Err(b"a file outside of CIPHERTOLL_TDE_DATA would not be encrypted; a tablespace's directory must have the tablespace's \
          OID as its name: --tablespace-mapping=OLD=NEW/OID")
}

/// Whether a tablespace link points to a directory that is named by the tablespace's OID.
pub(crate) fn is_valid_tablespace_link(below: &[u8], target: &[u8]) -> bool {
    let Some(number) = below.strip_prefix(b"pg_tblspc/") else { return true };
    target.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()) == Some(number)
}

/// Whether the arguments name this directory as the target: `-D DIR`, `-DDIR`, `--pgdata=DIR`.
pub(crate) fn is_target(arguments: &[u8], configured: &Path, canonical: &Path) -> bool {
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
