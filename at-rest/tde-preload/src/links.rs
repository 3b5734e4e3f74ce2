//! Directories elsewhere that belong to the cluster through symbolic links: `pg_wal`, tablespaces, and what administrators
//! have moved. They may lie in each other, or in the data directory itself. A file is found by the identity of the
//! directories above it, the nearest first, because the text of a link says little.
//!
//! Allocates, and so is only for files that are not known by their path below the data directory.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use ciphertoll_tde::Errno;

use crate::raw;

/// Directory of the links to tablespaces, which are named by OID.
const TABLESPACES: &str = "pg_tblspc";
const WAL: &str = "pg_wal";
/// Directories whose entries may be links; the first is the data directory itself.
const DIRECTORIES: [&str; 6] = ["", "base", TABLESPACES, "pg_multixact", "pg_logical", "pg_replslot"];
/// A directory that changed less than this before it was read may change again without another time stamp.
const RECENT: Duration = Duration::from_secs(1);

/// The links of a cluster, as they were last read.
#[derive(Default)]
pub(crate) struct LinkedDirectories {
    last: Mutex<Option<LinkScan>>,
}

struct LinkScan {
    root: PathBuf,
    read_at: SystemTime,
    directories: Vec<(PathBuf, DirectoryStamp)>,
    /// Relative to the data directory; first those that PostgreSQL makes.
    links: Vec<PathBuf>,
}

/// Changes whenever an entry of a directory is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryStamp {
    Absent,
    Present { device: u64, inode: u64, changed_s: i64, changed_ns: i64 },
}

/// A directory above a file: its device and inode, and the path from there.
pub(crate) struct Ancestor<'a> {
    pub(crate) identity: (u64, u64),
    pub(crate) rest: &'a [u8],
}

/// The directories above a file, the nearest first. Those that this process must not see are left out.
pub(crate) fn ancestors(path: &[u8]) -> Vec<Ancestor<'_>> {
    let slashes = path.iter().enumerate().rev().filter(|(at, byte)| **byte == b'/' && *at > 0);
    let found = slashes.filter_map(|(at, _)| {
        let identity = raw::identity_of_path(&CString::new(&path[..at]).ok()?)?;
        Some(Ancestor { identity, rest: &path[at + 1..] })
    });
    found.collect()
}

impl LinkedDirectories {
    /// The path below the data directory `root` of a file below these directories. Fails if the links cannot be read.
    pub(crate) fn find(&self, root: &Path, ancestors: &[Ancestor<'_>]) -> Result<Option<Vec<u8>>, Errno> {
        // Another thread may hold the lock, or may have been killed with it. Then nothing is remembered.
        let mut locked = self.last.try_lock().ok();
        let mut own = None;
        let last = locked.as_deref_mut().unwrap_or(&mut own);
        let current = last.take().filter(|scan| scan.root == root && scan.is_current());
        let scan = match current {
            Some(scan) => scan,
            None => LinkScan::of(root).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?,
        };
        let scan = last.insert(scan);
        let targets = scan.links.iter().filter_map(|link| {
            let path = CString::new(root.join(link).into_os_string().into_vec()).ok()?;
            Some((raw::identity_of_path(&path)?, link))
        });
        let targets: Vec<_> = targets.collect();
        Ok(ancestors.iter().find_map(|above| {
            let (_, link) = targets.iter().find(|(target, _)| *target == above.identity)?;
            Some([link.as_os_str().as_bytes(), b"/", above.rest].concat())
        }))
    }
}

impl LinkScan {
    fn of(root: &Path) -> io::Result<Self> {
        let mut scan = Self {
            root: root.to_owned(),
            read_at: SystemTime::now(),
            directories: Vec::new(),
            links: Vec::new(),
        };
        for directory in DIRECTORIES {
            scan.read(Path::new(directory), &mut |_| {})?;
        }
        // Directories of databases in tablespaces may be links, too.
        let tablespaces: Vec<PathBuf> =
            scan.links.iter().filter(|link| link.starts_with(TABLESPACES)).cloned().collect();
        for tablespace in tablespaces {
            let mut versions = Vec::new();
            scan.read(&tablespace, &mut |version| versions.push(version))?;
            for version in versions {
                scan.read(&version, &mut |_| {})?;
            }
        }
        scan.links.sort_by_key(|link| !(link.starts_with(TABLESPACES) || link == Path::new(WAL)));
        Ok(scan)
    }

    /// Reads a directory's links; passes its directories on.
    fn read(&mut self, directory: &Path, found: &mut impl FnMut(PathBuf)) -> io::Result<()> {
        let path = self.root.join(directory);
        // Before its entries, so that a later change is noticed.
        self.directories.push((path.clone(), DirectoryStamp::of(&path)));
        let entries = match std::fs::read_dir(&path) {
            // What this process cannot reach, it has not opened.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(());
            }
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let (kind, below) = (entry.file_type()?, directory.join(entry.file_name()));
            if kind.is_symlink() {
                self.links.push(below);
            } else if kind.is_dir() {
                found(below);
            }
        }
        Ok(())
    }

    fn is_current(&self) -> bool {
        self.directories
            .iter()
            .all(|(path, stamp)| DirectoryStamp::of(path) == *stamp && !stamp.is_recent(self.read_at))
    }
}

impl DirectoryStamp {
    fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::Absent, |found| Self::Present {
            device: found.dev(),
            inode: found.ino(),
            changed_s: found.ctime(),
            changed_ns: found.ctime_nsec(),
        })
    }

    fn is_recent(self, read_at: SystemTime) -> bool {
        let Self::Present { changed_s, changed_ns, .. } = self else { return false };
        let changed = Duration::new(changed_s.unsigned_abs(), changed_ns.unsigned_abs() as u32);
        SystemTime::UNIX_EPOCH + changed + RECENT > read_at
    }
}
