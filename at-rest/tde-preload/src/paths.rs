//! Resolves the path of a call to a file of the cluster.

use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use ciphertoll_tde::{ClearFile, Errno, FileClass};
use libc::c_int;

use crate::links::{Ancestor, LinkedDirectories, ancestors};
use crate::raw;

/// What an open file is cannot be told.
pub(crate) const NOT_TOLD: Errno = Errno(libc::EACCES);

pub(crate) const MAX_PATH: usize = libc::PATH_MAX as usize;

/// Prefix of the version directory in a tablespace.
const VERSION: &[u8] = b"/PG_";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Open an existing file.
    Use,
    /// Possibly create or truncate a file.
    Create,
}

impl Intent {
    /// From the flags of `open`.
    pub(crate) fn of(flags: c_int) -> Self {
        if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 { Self::Use } else { Self::Create }
    }
}

/// The data directory: as configured, and its canonical path.
pub(crate) struct ClusterDirectory {
    configured: Vec<u8>,
    canonical: Vec<u8>,
    /// Device and inode, once the directory exists. It may be renamed while a server runs.
    identity: OnceLock<(u64, u64)>,
    links: LinkedDirectories,
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
        Self { configured, canonical, identity: OnceLock::new(), links: LinkedDirectories::default() }
    }

    /// Resolves a path relative to an open directory or the working directory. Does not follow links of files. If the links
    /// of directories cannot be read, the first use of the file fails.
    pub(crate) fn below(&self, directory: c_int, path: &CStr) -> ClusterPath {
        let path = path.to_bytes();
        let is_here = directory == libc::AT_FDCWD
            && !path.starts_with(b"/")
            && raw::identity_of_path(c".").is_some_and(|here| self.identity() == Some(here));
        let mut absolute = AbsolutePath::EMPTY;
        if is_here {
            absolute.extend(&self.canonical);
        } else if !path.starts_with(b"/") {
            absolute.extend_with_base(directory);
        }
        absolute.extend(path);
        let found = self.within(absolute);
        let inside = if found.as_bytes().is_empty() {
            self.below_identity(&ancestors(found.absolute())).map(|rest| self.inside(rest))
        } else {
            None
        };
        let linked = self.linked_inside(inside.as_ref().unwrap_or(&found), found.absolute());
        linked.ok().flatten().or(inside).unwrap_or(found)
    }

    /// Finds the place of an open file from its path without links. Fails if it cannot be told.
    pub(crate) fn locate(&self, path: &[u8]) -> Result<ClusterPath, Errno> {
        let mut found = self.within(AbsolutePath::of(path));
        if found.as_bytes().is_empty() {
            let ancestors = ancestors(path);
            let Some(rest) = self.below_identity(&ancestors) else {
                return Ok(self.through_links(&ancestors)?.map_or(found, |rest| self.inside(&rest)));
            };
            found = self.inside(rest);
        }
        Ok(self.linked_inside(&found, path)?.unwrap_or(found))
    }

    /// The place of a file below the data directory that is in a directory there to which a link leads, such as a
    /// tablespace. `None` for all others. `path` is the same file's path, with existing directories.
    fn linked_inside(&self, found: &ClusterPath, path: &[u8]) -> Result<Option<ClusterPath>, Errno> {
        let below = found.as_bytes();
        if FileClass::of(below).is_encrypted() || !ClearFile::may_be_linked(below) {
            return Ok(None);
        }
        let mut ancestors = ancestors(path);
        // The data directory itself, and what is above it, belongs to nothing else.
        let root = self.identity();
        if let Some(at) = ancestors.iter().position(|above| Some(above.identity) == root) {
            ancestors.truncate(at);
        }
        let linked = self.through_links(&ancestors)?.map(|rest| self.inside(&rest));
        let is_of_server = |linked: &ClusterPath| {
            let class = FileClass::of(linked.as_bytes());
            class.is_encrypted() || ClearFile::is_unknown(class, linked.as_bytes())
        };
        Ok(linked.filter(is_of_server))
    }

    fn inside(&self, below: &[u8]) -> ClusterPath {
        let mut absolute = AbsolutePath::of(&self.canonical);
        absolute.extend(below);
        self.within(absolute)
    }

    fn identity(&self) -> Option<(u64, u64)> {
        if let Some(identity) = self.identity.get() {
            return Some(*identity);
        }
        let mut bytes = [0; MAX_PATH];
        let identity = raw::identity_of_path(c_string(&self.canonical, &mut bytes)?)?;
        Some(*self.identity.get_or_init(|| identity))
    }

    /// The rest of a path below the data directory, which may have been renamed, or be mounted in two places.
    fn below_identity<'a>(&self, ancestors: &[Ancestor<'a>]) -> Option<&'a [u8]> {
        let identity = self.identity()?;
        ancestors.iter().find(|above| above.identity == identity).map(|above| above.rest)
    }

    /// The path below the data directory of a file in a directory that a link there names. Fails if that cannot be told.
    fn through_links(&self, ancestors: &[Ancestor<'_>]) -> Result<Option<Vec<u8>>, Errno> {
        // Before `initdb` there is no directory.
        let Some(identity) = self.identity() else { return Ok(None) };
        let mut bytes = [0; MAX_PATH];
        let is_there = |path: &CStr| raw::identity_of_path(path) == Some(identity);
        let root = if c_string(&self.canonical, &mut bytes).is_some_and(is_there) {
            OsStr::from_bytes(&self.canonical)
        } else if is_there(c".") {
            // It was renamed; the working directory of a server is its data directory.
            OsStr::new(".")
        } else {
            return Err(NOT_TOLD);
        };
        self.links.find(Path::new(root), ancestors)
    }

    fn within(&self, absolute: AbsolutePath) -> ClusterPath {
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
        // If the links cannot be read, the first use of the file fails.
        self.through_links(&ancestors(path)).ok()?.map(|below| FileClass::of(&below))
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
    const EMPTY: Self = Self { bytes: [0; MAX_PATH], length: 0 };

    /// Returns an empty path if it is too long, which the kernel also refuses.
    fn of(path: &[u8]) -> Self {
        let mut absolute = Self::EMPTY;
        absolute.extend(path);
        absolute
    }

    fn extend_with_base(&mut self, directory: c_int) {
        let mut base = [0; MAX_PATH];
        let base = match directory {
            libc::AT_FDCWD => raw::working_directory(&mut base),
            other => path_of(other, &mut base).map(CStr::to_bytes),
        };
        self.extend(base.unwrap_or_default());
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

/// The path of an open file, without allocating. `None` if it is too long or `/proc` is missing.
pub(crate) fn path_of(descriptor: c_int, bytes: &mut [u8; MAX_PATH]) -> Option<&CStr> {
    let mut link = [0; 48];
    // Leaves one byte for the NUL. Threads may have different descriptors.
    write!(&mut link[..47], "/proc/thread-self/fd/{descriptor}").ok()?;
    let (path, last) = bytes.split_at_mut(MAX_PATH - 1);
    let length = raw::readlink(CStr::from_bytes_until_nul(&link).ok()?, path)?.len();
    if length == path.len() {
        return None;
    }
    last[0] = 0;
    bytes[length] = 0;
    CStr::from_bytes_until_nul(bytes).ok()
}

fn c_string<'a>(path: &[u8], bytes: &'a mut [u8; MAX_PATH]) -> Option<&'a CStr> {
    bytes.get_mut(..path.len())?.copy_from_slice(path);
    *bytes.get_mut(path.len())? = 0;
    CStr::from_bytes_until_nul(bytes).ok()
}
