//! The networks of clients and servers, and the process that joins them.

use std::path::Path;

use ciphertoll_lab::Lab;
use ciphertoll_link::{Error, LinkProcess};
use ciphertoll_model::{Endpoint, Link, LinkKind, LinkShape, Namespace, VoidReason};
use ciphertoll_record::{Effect, ProcessIdentity};

use crate::failure::testbed_error;
use crate::trial::{TestbedError, TrialError};

/// The networks of a run; without a process if every cell is local.
#[derive(Default)]
pub(crate) struct Networks {
    process: Option<LinkProcess>,
}

impl Networks {
    /// Those that `process` has created. Later servers of `lab` are in one of them.
    pub(crate) fn of(process: LinkProcess, lab: &mut Lab, program: &Path) -> Result<Self, TestbedError> {
        note(lab, &process, program)?;
        if let Some(network) = process.servers() {
            lab.move_servers_to(network.clone());
        }
        Ok(Self { process: Some(process) })
    }

    pub(crate) fn process(&mut self) -> Option<&mut LinkProcess> {
        self.process.as_mut()
    }

    /// The namespace of load processes for this link.
    pub(crate) fn namespace_of_clients(&self, link: Link) -> Option<Namespace> {
        let process = self.process.as_ref()?;
        let namespace = if link.shape().is_some() { process.clients() } else { process.servers() };
        namespace.cloned()
    }

    /// The address of a server's `endpoint` for clients behind this link.
    pub(crate) fn lead(&mut self, endpoint: Endpoint, link: Link) -> Result<Endpoint, TrialError> {
        let is_long = link.shape().is_some_and(|shape| shape != LinkShape::of_rtt_us(0));
        match (&mut self.process, endpoint) {
            (Some(process), Endpoint::Tcp(address)) if is_long => {
                process.find_address(address.port()).map(Endpoint::Tcp).map_err(|error| broken(&error))
            }
            (_, endpoint) => Ok(endpoint),
        }
    }

    /// CPU time of the process so far.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        self.process.as_ref()?.cpu_ns()
    }

    /// Whether they must be created again.
    pub(crate) fn are_down(&mut self) -> bool {
        self.process.as_mut().is_some_and(LinkProcess::is_down)
    }

    /// Ends the process; returns its kind.
    pub(crate) fn take_down(&mut self) -> Option<LinkKind> {
        self.process.take().map(|process| process.kind())
    }
}

pub(crate) fn broken(error: &Error) -> TrialError {
    TrialError::Void(VoidReason::Link { message: error.to_string() })
}

pub(crate) fn is_down() -> TrialError {
    let message = "it went down during the trial".to_owned();
    TrialError::Void(VoidReason::Link { message })
}

fn note(lab: &Lab, process: &LinkProcess, program: &Path) -> Result<(), TestbedError> {
    // If the process has ended, there is nothing to undo.
    let Ok(identity) = ProcessIdentity::of(process.pid()) else { return Ok(()) };
    let effect = Effect::Process { identity, what: "link".to_owned(), program: program.to_owned() };
    lab.scratch().ledger().note(&effect).map_err(|error| testbed_error(error.into()))
}
