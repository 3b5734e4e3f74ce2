//! What a server's files lie in where that encrypts them, and where its two sides are.

use std::path::Path;

use super::{Fscrypt, Gocryptfs};
use crate::accounting::CpuMeter;
use crate::error::Error;

/// Where a file system's two sides are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sites<'a> {
    /// What lies on the disk.
    pub(crate) cipher: &'a Path,
    /// What the server sees.
    pub(crate) clear: &'a Path,
    /// What both are in: only the server's user passes through.
    pub(crate) gate: &'a Path,
    /// For passwords and logs.
    pub(crate) beside: &'a Path,
}

/// A mounted file system. Unmounted when dropped, whoever still has files in it.
#[derive(Debug)]
pub(crate) enum Layer {
    /// A process of its own.
    Gocryptfs(Gocryptfs),
    /// A part of the kernel.
    Fscrypt(Fscrypt),
}

impl Layer {
    /// Fails if it is not there any more, or does not encrypt any more.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self {
            Self::Gocryptfs(layer) => layer.check(),
            Self::Fscrypt(layer) => layer.check(),
        }
    }

    /// Has all that was written go to what lies on the disk.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        match self {
            // Each write has gone there before it has returned.
            Self::Gocryptfs(_) => Ok(()),
            Self::Fscrypt(layer) => layer.settle(),
        }
    }

    /// What its process takes, where it has one.
    pub(crate) fn cpu_meter(&self) -> Option<CpuMeter> {
        match self {
            Self::Gocryptfs(layer) => Some(layer.cpu_meter()),
            Self::Fscrypt(_) => None,
        }
    }

    /// Its process, where it has one.
    pub(crate) fn pid(&self) -> Option<i32> {
        match self {
            Self::Gocryptfs(layer) => Some(layer.pid()),
            Self::Fscrypt(_) => None,
        }
    }

    /// What in the kernel encrypts, in the kernel's own words.
    pub(crate) fn kernel_cipher(&self) -> Option<String> {
        match self {
            Self::Gocryptfs(_) => None,
            Self::Fscrypt(_) => super::kernel_cipher(),
        }
    }

    /// Unmounts it, and says so if that fails; dropping does the same in silence.
    pub(crate) fn unmount(&mut self) -> Result<(), Error> {
        match self {
            Self::Gocryptfs(layer) => layer.unmount(),
            Self::Fscrypt(layer) => layer.unmount(),
        }
    }
}
