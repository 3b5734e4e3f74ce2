//! Where the files of a server are stored, and how they are encrypted there.

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::storage;
use ciphertoll_model::{AtRest, Storage};

use crate::at_rest::fscrypt::Fscrypt;
use crate::at_rest::gocryptfs::Gocryptfs;
use crate::at_rest::mount::{EncryptedMount, MountPaths};
use crate::error::Error;
use crate::servers::directory::ServerDirectory;
use crate::servers::launch::ServerStart;
use crate::workspace::Workspace;

/// The size of the server's tmpfs, with additional space for an encrypting file system; 0 on a disk.
pub(super) fn tmpfs_bytes(workspace: &Workspace, start: &ServerStart<'_>) -> Result<u64, Error> {
    match workspace.storage {
        Storage::Disk => Ok(0),
        Storage::Tmpfs => Ok(storage::space_for(&start.template.path).map(|bytes| bytes + bytes / 4)?),
    }
}

/// Copies the template and its keys to the server's directory, into a new encrypting file system if the level requires one.
pub(super) fn copy_template(
    workspace: &Workspace,
    start: &ServerStart<'_>,
    directory: &ServerDirectory,
) -> Result<Option<Box<dyn EncryptedMount>>, Error> {
    let ServerDirectory { stored, clear, gate, root, .. } = directory;
    let paths = MountPaths { cipher: stored, clear, gate, auxiliary: root };
    let mount: Option<Box<dyn EncryptedMount>> = match start.template.at_rest {
        AtRest::None | AtRest::AsIs | AtRest::Native | AtRest::Tde(_) => None,
        AtRest::Gocryptfs => Some(Box::new(Gocryptfs::mount(workspace, paths, start.processors.as_deref())?)),
        AtRest::Fscrypt => {
            let bytes = storage::space_for(&start.template.path)?;
            Some(Box::new(Fscrypt::mount(workspace, paths, bytes)?))
        }
    };
    if mount.is_some() {
        files::make_directory(&directory.temporary, PRIVATE_DIRECTORY, workspace.run_as)?;
    }
    files::copy_directory(&start.template.path, &directory.data, workspace.run_as)?;
    if let Some(keys) = &start.template.keys {
        files::copy_directory(keys, &directory.keys, workspace.run_as)?;
    }
    Ok(mount)
}
