//! Encryption of a server's files.

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_model::AtRest;

use super::Server;
use crate::at_rest::native;
use crate::at_rest::proof::{self, Proof};
use crate::error::Error;
use crate::servers::engines;

impl Server {
    pub fn at_rest(&self) -> AtRest {
        self.at_rest
    }

    /// Writes a marker and searches for it in all files of the server: data, logs and temporary files.
    pub fn prove_at_rest(&self) -> Result<Proof, Error> {
        let sync = || self.mount.as_ref().map_or(Ok(()), |mount| mount.sync());
        let directories = [self.directory.stored.as_path(), self.directory.run.as_path()];
        proof::search_for_marker(&self.control, self.plan.engine, &directories, &sync)
    }

    /// The kernel's name of its cipher driver, if the kernel encrypts the files.
    pub fn kernel_cipher(&self) -> Option<String> {
        self.mount.as_ref()?.kernel_cipher()
    }

    /// Fails if the server's files are not encrypted as its level requires. This is a quick check: of the server's own
    /// settings and tables, of the mount, or of the preloaded library.
    pub fn check_at_rest(&mut self) -> Result<(), Error> {
        self.check_mount()?;
        let problem = match (self.at_rest, &self.plan.preload) {
            (AtRest::Native, _) => {
                let encryption = engines::native_encryption(self.engine())?;
                native::find_unencrypted(&mut self.control.connect()?, encryption)?
            }
            (AtRest::Tde(_), Some(preload)) => preload.find_unencrypted(self.process.child.pid())?,
            (AtRest::Tde(_), None) => Some("no library was preloaded".to_owned()),
            (AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt, _) => None,
        };
        match problem {
            Some(problem) => Err(Error::NotEncrypted(problem)),
            None => Ok(()),
        }
    }

    /// The CPU time of the process that encrypts the files, if there is one.
    pub fn mount_cpu_meter(&self) -> Option<CpuMeter> {
        self.mount.as_ref()?.cpu_meter()
    }

    /// Whether the encrypting file system has failed.
    pub fn mount_has_failed(&mut self) -> bool {
        self.check_mount().is_err()
    }

    pub(super) fn check_mount(&mut self) -> Result<(), Error> {
        self.mount.as_mut().map_or(Ok(()), |mount| mount.check())
    }
}
