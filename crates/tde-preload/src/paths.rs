//! Resolves the path of a call to a file of the cluster.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ciphertoll_tde::FileClass;
use libc::c_int;

use crate::raw;

const MAX_PATH: usize = libc::PATH_MAX as usize;

/// Directory of the links to tablespaces, which are named by OID.
const TABLESPACES: &str = "pg_tblspc";
/// Prefix of the version directory in a tablespace.
const VERSION: &[u8] = b"/PG_";

/// The data directory: as configured, and its canonical path.
pub(crate) struct ClusterDirectory {
    configured: Vec<u8>,
    canonical: Vec<u8>,
}

/// An absolute path without `.`, `..` and double slashes.
struct AbsolutePath {
    bytes: [u8; MAX_PATH],
    length: usize,
}

/// A path relative to the data directory; empty for files elsewhere.
pub(crate) struct ClusterPath {
    absolute: AbsolutePath,
    start: usize,
}

impl ClusterDirectory {
    /// Both paths are absolute, without a slash at the end.
    pub(crate) fn new(configured: Vec<u8>, canonical: Vec<u8>) -> Self {
        Self { configured, canonical }
    }

    /// Resolves a path relative to an open directory or the working directory.
    pub(crate) fn below(&self, directory: c_int, path: &CStr) -> ClusterPath {
        let absolute = AbsolutePath::of(directory, path.to_bytes());
        let path = absolute.as_bytes();
        let start = [&self.canonical, &self.configured].into_iter().find_map(|root| {
            let rest = path.strip_prefix(root.as_slice())?;
            rest.starts_with(b"/").then_some(root.len() + 1)
        });
        let start = start.unwrap_or(absolute.length);
        ClusterPath { absolute, start }
    }

    pub(crate) fn classify(&self, below: &ClusterPath) -> FileClass {
        if below.as_bytes().is_empty() {
            self.in_tablespace(below.absolute()).unwrap_or(FileClass::Unencrypted)
        } else {
            FileClass::of(below.as_bytes())
        }
    }

    /// The class of a file whose path goes through a tablespace's own directory. The server uses such paths only for base
    /// backups, so the links are read each time.
    fn in_tablespace(&self, path: &[u8]) -> Option<FileClass> {
        path.windows(VERSION.len()).find(|part| *part == VERSION)?;
        let links = Path::new(OsStr::from_bytes(&self.canonical)).join(TABLESPACES);
        fs::read_dir(links).ok()?.flatten().find_map(|link| {
            let target = fs::read_link(link.path()).ok()?;
            let rest = path.strip_prefix(target.as_os_str().as_bytes())?;
            let name = link.file_name();
            let parts = [TABLESPACES.as_bytes(), b"/", name.as_bytes(), rest];
            rest.starts_with(b"/").then(|| FileClass::of(&parts.concat()))
        })
    }
}

impl ClusterPath {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.absolute.as_bytes().get(self.start..).unwrap_or_default()
    }

    pub(crate) fn absolute(&self) -> &[u8] {
        self.absolute.as_bytes()
    }
}

impl AbsolutePath {
    /// Returns an empty path if it is too long, which the kernel also refuses.
    fn of(directory: c_int, path: &[u8]) -> Self {
        let mut absolute = Self { bytes: [0; MAX_PATH], length: 0 };
        let mut base = [0; MAX_PATH];
        if !path.starts_with(b"/") {
            let base = match directory {
                libc::AT_FDCWD => raw::working_directory(&mut base),
                other => directory_of(other, &mut base),
            };
            absolute.extend(base.unwrap_or_default());
        }
        absolute.extend(path);
        absolute
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn extend(&mut self, path: &[u8]) {
        for part in path.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    self.length = self.as_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                }
                _ => {
                    let end = self.length + 1 + part.len();
                    let Some(target) = self.bytes.get_mut(self.length..end) else {
                        self.length = 0;
                        return;
                    };
                    let (slash, name) = target.split_at_mut(1);
                    slash.copy_from_slice(b"/");
                    name.copy_from_slice(part);
                    self.length = end;
                }
            }
        }
    }
}

/// The path of an open directory, without allocating.
fn directory_of(descriptor: c_int, bytes: &mut [u8]) -> Option<&[u8]> {
    let mut link = [0; 32];
    // Leaves one byte for the NUL.
    write!(&mut link[..31], "/proc/self/fd/{descriptor}").ok()?;
    raw::readlink(CStr::from_bytes_until_nul(&link).ok()?, bytes)
}
