//! Paths of a mounted encrypting file system.

use std::path::Path;

/// The directory of an fscrypt file system that is encrypted. ext4 has unencrypted files of its own outside it.
pub(crate) const ENCRYPTED_DIRECTORY: &str = "files";

#[derive(Clone, Copy, Debug)]
pub(crate) struct MountPaths<'a> {
    /// The encrypted files on the disk.
    pub(crate) cipher: &'a Path,
    /// The mount point that the server uses.
    pub(crate) clear: &'a Path,
    /// Contains both; only the server's user can enter it.
    pub(crate) gate: &'a Path,
    /// For passwords and logs.
    pub(crate) auxiliary: &'a Path,
}
