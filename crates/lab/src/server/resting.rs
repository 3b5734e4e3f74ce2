//! What of a server lies on the disk, and under what.

use ciphertoll_model::AtRest;

use super::{Server, Start};
use crate::accounting::CpuMeter;
use crate::at_rest::{self, Layer, Proof, Sites};
use crate::error::Error;
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::lab::Lab;
use crate::place::Place;

/// Copies the template to where the server will find it: with its keys, where it has some; into a fresh encrypting file
/// system, where that is what the files are to lie in.
pub(super) fn lay(lab: &Lab, start: &Start<'_>, place: &Place) -> Result<Option<Layer>, Error> {
    let layer = match start.template.at_rest {
        AtRest::None | AtRest::AsIs | AtRest::Native => None,
        AtRest::Gocryptfs => {
            let Place { stored, clear, gate, root, .. } = place;
            let sites = Sites { cipher: stored, clear, gate, beside: root };
            let layer = Layer::mount(lab, sites, start.processors.as_deref())?;
            files::make_directory(&place.temporary, PRIVATE_DIRECTORY, lab.run_as)?;
            Some(layer)
        }
    };
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
        at_rest::prove(&self.control, self.engine, &[&self.place.stored, &self.place.run])
    }

    /// Fails where its files are not encrypted as its level says, as far as it takes but a moment to see: by the server's
    /// own word where it encrypts them itself, else by whether what encrypts them is there.
    pub fn check_at_rest(&mut self) -> Result<(), Error> {
        self.check_layer()?;
        if self.at_rest != AtRest::Native {
            return Ok(());
        }
        match at_rest::unencrypted(&mut self.control.connect()?, self.engine)? {
            Some(what) => Err(Error::NotEncrypted(what)),
            None => Ok(()),
        }
    }

    /// What the process takes that encrypts its files, where there is one.
    pub fn layer_cpu_meter(&self) -> Option<CpuMeter> {
        self.layer.as_ref().map(Layer::cpu_meter)
    }

    /// That process.
    pub fn layer_pid(&self) -> Option<i32> {
        self.layer.as_ref().map(Layer::pid)
    }

    /// Whether what encrypts its files, where that is a process of its own, is gone.
    pub fn layer_has_ended(&mut self) -> bool {
        self.check_layer().is_err()
    }

    pub(super) fn check_layer(&mut self) -> Result<(), Error> {
        self.layer.as_mut().map_or(Ok(()), Layer::check)
    }
}
