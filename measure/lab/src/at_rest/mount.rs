//! A mounted file system that encrypts a server's files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::exec::Provisions;
use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;

use crate::error::Error;
use crate::workspace::Workspace;

/// The directory of an fscrypt file system that is encrypted. ext4 has unencrypted files of its own outside it.
pub(crate) const ENCRYPTED_DIRECTORY: &str = "files";

/// Unmounted on drop, even if files in it are open.
pub(crate) trait EncryptedMount {
    /// Fails if it is no longer mounted or no longer encrypts.
    fn check(&mut self) -> Result<(), Error>;

    /// Unmounts it and reports failures, which drop ignores.
    fn unmount(&mut self) -> Result<(), Error>;

    /// Writes everything to the encrypted files on the disk. Not needed if a write returns only after that.
    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The CPU time of its process, if it has one.
    fn cpu_meter(&self) -> Option<CpuMeter> {
        None
    }

    /// The kernel's name of its cipher driver, if the kernel encrypts.
    fn kernel_cipher(&self) -> Option<String> {
        None
    }
}

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

impl MountPaths<'_> {
    pub(super) fn make_directories(self, owner: RunAs) -> Result<(), Error> {
        files::make_directory(self.gate, PRIVATE_DIRECTORY, owner)?;
        Ok([self.cipher, self.clear]
            .into_iter()
            .try_for_each(|path| files::make_directory(path, PRIVATE_DIRECTORY, RunAs::Ourselves))?)
    }

    /// Starts a program of the file system `name`, with a ledger entry.
    pub(super) fn spawn(
        self,
        workspace: &Workspace,
        name: &str,
        program: PathBuf,
        arguments: Vec<String>,
        processors: Option<&[u16]>,
    ) -> Result<Child, Error> {
        workspace.spawn(&Launch {
            what: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            program,
            arguments,
            environment: BTreeMap::new(),
            directory: self.auxiliary.to_owned(),
            run_as: RunAs::Ourselves,
            processors: processors.map(<[u16]>::to_vec),
            namespace: None,
            provisions: Provisions::default(),
            log: self.auxiliary.join(format!("{name}.log")),
        })
    }
}
