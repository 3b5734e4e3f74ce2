//! What a descriptor really is, as the kernel says: the file's type, and its path in the cluster.
//!
//! A descriptor may come from anywhere: a call that this library did not see, another process, or a child that shares
//! this memory. If it cannot be told which file it is, it is refused. The path is that of the name by which the file was
//! opened; another name of the same file outside the cluster (a hard link) is not recognised.

use std::ffi::CStr;

use ciphertoll_tde::{ClearFile, Errno, FileClass, OpenFile};
use libc::c_int;

use crate::paths::{ClusterDirectory, ClusterPath, MAX_PATH, NOT_TOLD, path_of};
use crate::program::ProgramRole;
use crate::{archive, backup, raw};

/// What the kernel appends to the path of a file without this name.
const DELETED: &[u8] = b" (deleted)";
const NOT_PERMITTED: Errno = Errno(libc::EPERM);

/// What does not change after the start, and so needs no lock: a child that shares this memory may be killed at any time.
pub(crate) struct ProcessCluster {
    pub(crate) directory: ClusterDirectory,
    pub(crate) program: ProgramRole,
}

/// An open file that is encrypted.
#[derive(Clone, Copy)]
pub(crate) struct TrackedFile {
    pub(crate) opened: OpenFile,
    /// Whether the descriptor has `O_APPEND`, with which the kernel ignores offsets.
    pub(crate) appends: bool,
}

/// The encrypted file that a descriptor is; `None` if it is something else. Fails if that cannot be told, or if the file
/// must not be used.
pub(crate) fn examine(cluster: &ProcessCluster, descriptor: c_int) -> Result<Option<TrackedFile>, Errno> {
    let status = raw::status(descriptor)?;
    // Sockets, pipes, terminals, directories, and what has no name.
    if status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(None);
    }
    let flags = raw::flags(descriptor)?;
    let mut bytes = [0; MAX_PATH];
    let path = path_of(descriptor, &mut bytes).ok_or(NOT_TOLD)?;
    let path = named(path, (status.st_dev, status.st_ino));
    // Outside the root directory of this process.
    if !path.starts_with(b"/") {
        return Err(NOT_TOLD);
    }
    let below = cluster.directory.locate(path)?;
    let class = class_of(cluster, &below, descriptor, flags)?;
    let appends = flags & libc::O_APPEND != 0;
    Ok(class.is_encrypted().then(|| TrackedFile { opened: OpenFile::new(class), appends }))
}

/// The path without the kernel's remark that the name is gone. A file may also really be called like that.
fn named(path: &CStr, file: (u64, u64)) -> &[u8] {
    match path.to_bytes().strip_suffix(DELETED) {
        Some(name) if raw::identity_of_path(path) != Some(file) => name,
        _ => path.to_bytes(),
    }
}

fn class_of(
    cluster: &ProcessCluster,
    below: &ClusterPath,
    descriptor: c_int,
    flags: c_int,
) -> Result<FileClass, Errno> {
    let only_reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let is_outside = below.as_bytes().is_empty();
    if cluster.program == ProgramRole::Backup {
        return backup::class_of(below, !only_reads).map_err(|_| NOT_PERMITTED);
    }
    let class = FileClass::of(below.as_bytes());
    let is_unknown = !only_reads && ClearFile::is_unknown(class, below.as_bytes());
    match cluster.program {
        ProgramRole::Server if is_unknown => Err(NOT_PERMITTED),
        ProgramRole::Copier if class != FileClass::Control || !only_reads => Ok(FileClass::Unencrypted),
        ProgramRole::Tool if is_outside && only_reads => Ok(archive::classify(below.absolute(), descriptor)),
        _ => Ok(class),
    }
}
