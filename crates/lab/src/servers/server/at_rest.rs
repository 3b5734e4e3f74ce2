//! What of a server lies on the disk, and under what.

use ciphertoll_model::{AtRest, Storage};

use super::{Server, Start};
use crate::accounting::CpuMeter;
use crate::at_rest::{self, Fscrypt, Gocryptfs, Layer, Proof, Sites};
use crate::error::Error;
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::lab::Lab;
use crate::place::Place;
use crate::storage;

/// How much room the server's files may take where that must be said beforehand: in memory, and more of it where a file
/// system is in between.
pub(super) fn room(lab: &Lab, start: &Start<'_>) -> Result<u64, Error> {
    match lab.storage {
        Storage::Disk => Ok(0),
        Storage::Tmpfs => storage::room_for(&start.template.path).map(|bytes| bytes + bytes / 4),
    }
}

/// Copies the template to where the server will find it: with its keys, where it has some; into a fresh encrypting file
/// system, where that is what the files are to lie in.
pub(super) fn lay(lab: &Lab, start: &Start<'_>, place: &Place) -> Result<Option<Layer>, Error> {
    let Place { stored, clear, gate, root, .. } = place;
    let sites = Sites { cipher: stored, clear, gate, beside: root };
    let layer = match start.template.at_rest {
        AtRest::None | AtRest::AsIs | AtRest::Native | AtRest::Tde(_) => None,
        AtRest::Gocryptfs => {
            let layer = Gocryptfs::mount(lab, sites, start.processors.as_deref())?;
            Some(Layer::Gocryptfs(layer))
        }
        AtRest::Fscrypt => {
            let bytes = storage::room_for(&start.template.path)?;
            Some(Layer::Fscrypt(Fscrypt::mount(lab, sites, bytes)?))
        }
    };
    if layer.is_some() {
        files::make_directory(&place.temporary, PRIVATE_DIRECTORY, lab.run_as)?;
    }
    files::copy_directory(&start.template.path, &place.data, lab.run_as)?;
    if let Some(keys) = &start.template.keys {
        files::copy_directory(keys, &place.keys, lab.run_as)?;
    }
    Ok(layer)
}

impl Server {
    /// What encrypts its files.
    pub fn at_rest(&self) -> AtRest {
        self.at_rest
    }

    /// Writes something into it, has it go to the disk, and looks for it in everything that lies there: data, logs and
    /// temporary files.
    pub fn prove_at_rest(&self) -> Result<Proof, Error> {
        let settle = || self.layer.as_ref().map_or(Ok(()), Layer::settle);
        at_rest::prove(&self.control, self.engine, &[&self.place.stored, &self.place.run], &settle)
    }

    /// What in the kernel encrypts its files, in the kernel's own words, where it is the kernel that does.
    pub fn kernel_cipher(&self) -> Option<String> {
        self.layer.as_ref().and_then(Layer::kernel_cipher)
    }

    /// Fails where its files are not encrypted as its level says, as far as it takes but a moment to see: by the server's
    /// own word where it encrypts them itself, else by whether what encrypts them is there: mounted, or in its process.
    pub fn check_at_rest(&mut self) -> Result<(), Error> {
        self.check_layer()?;
        let seen = match (self.at_rest, self.recipe.preload()) {
            (AtRest::Native, _) => at_rest::unencrypted(&mut self.control.connect()?, self.engine)?,
            (AtRest::Tde(_), Some(preload)) => preload.unencrypted(self.process.child.pid())?,
            (AtRest::Tde(_), None) => Some("nothing was preloaded".to_owned()),
            (AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt, _) => None,
        };
        match seen {
            Some(what) => Err(Error::NotEncrypted(what)),
            None => Ok(()),
        }
    }

    /// What the process takes that encrypts its files, where there is one.
    pub fn layer_cpu_meter(&self) -> Option<CpuMeter> {
        self.layer.as_ref().and_then(Layer::cpu_meter)
    }

    /// That process.
    pub fn layer_pid(&self) -> Option<i32> {
        self.layer.as_ref().and_then(Layer::pid)
    }

    /// Whether what encrypts its files, where that is a process of its own, is gone.
    pub fn layer_has_ended(&mut self) -> bool {
        self.check_layer().is_err()
    }

    pub(super) fn check_layer(&mut self) -> Result<(), Error> {
        self.layer.as_mut().map_or(Ok(()), Layer::check)
    }
}
