//! A mounted file system that encrypts a server's files.

use crate::at_rest::fscrypt::{self, Fscrypt};
use crate::at_rest::gocryptfs::Gocryptfs;
use crate::error::Error;
use crate::host::accounting::CpuMeter;

/// Unmounted on drop, even if files in it are open.
#[derive(Debug)]
pub(crate) enum EncryptedMount {
    /// A process in user space.
    Gocryptfs(Gocryptfs),
    /// A part of the kernel.
    Fscrypt(Fscrypt),
}

impl EncryptedMount {
    /// Fails if it is no longer mounted or no longer encrypts.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self {
            Self::Gocryptfs(mount) => mount.check(),
            Self::Fscrypt(mount) => mount.check(),
        }
    }

    /// Writes everything to the encrypted files on the disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        match self {
            // A write returns after it has reached the encrypted file.
            Self::Gocryptfs(_) => Ok(()),
            Self::Fscrypt(mount) => mount.sync(),
        }
    }

    /// The CPU time of its process, if it has one.
    pub(crate) fn cpu_meter(&self) -> Option<CpuMeter> {
        match self {
            Self::Gocryptfs(mount) => Some(mount.cpu_meter()),
            Self::Fscrypt(_) => None,
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        match self {
            Self::Gocryptfs(mount) => Some(mount.pid()),
            Self::Fscrypt(_) => None,
        }
    }

    /// The kernel's name of its cipher driver, if the kernel encrypts.
    pub(crate) fn kernel_cipher(&self) -> Option<String> {
        match self {
            Self::Gocryptfs(_) => None,
            Self::Fscrypt(_) => fscrypt::kernel_cipher(),
        }
    }

    /// Unmounts it and reports failures, which drop ignores.
    pub(crate) fn unmount(&mut self) -> Result<(), Error> {
        match self {
            Self::Gocryptfs(mount) => mount.unmount(),
            Self::Fscrypt(mount) => mount.unmount(),
        }
    }
}
