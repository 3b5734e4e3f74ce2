//! What the servers, tunnels and proxies of a run share.

use std::path::PathBuf;
use std::sync::Arc;

use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Namespace, Storage};
use ciphertoll_record::Scratch;

use crate::error::Error;
use crate::tls::certificates::Authorities;

#[derive(Clone)]
pub(crate) struct Workspace {
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) run_as: RunAs,
    /// Our own binary, which has the hidden command that starts every process.
    pub(crate) helper: PathBuf,
    /// Network namespace of the servers; ours if absent.
    pub(crate) network: Option<Namespace>,
    /// Storage of the servers' files.
    pub(crate) storage: Storage,
    /// Last, so that files of the other fields' owners are gone before the directory is.
    pub(crate) scratch: Arc<Scratch>,
}

impl Workspace {
    /// Call on the coordinator's main thread.
    pub(crate) fn spawn(&self, launch: &Launch) -> Result<Child, Error> {
        Ok(Child::spawn(&self.scratch, &self.helper, launch)?)
    }
}
