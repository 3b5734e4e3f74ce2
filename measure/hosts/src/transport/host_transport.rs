//! What a way to a host is, and what it needs.

use std::path::Path;
use std::process::Command;

use ciphertoll_record::Ledger;

use super::bootstrap::Bootstrap;
use crate::HostError;

/// A way to one host.
pub trait HostTransport: Send {
    /// The host's name in records and messages.
    fn name(&self) -> &str;

    /// The command that starts an agent on the host. Its stdin and stdout are the agent's, perhaps after a
    /// [`Bootstrap`]; its last line on stderr explains a failure. Called again if the host is lost; it may then wait for a
    /// new host, until `is_interrupted`.
    fn command(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<Command, HostError>;

    /// The node of a cluster that the host is on.
    fn node(&self) -> Option<&str> {
        None
    }
}

/// While hosts are created.
pub struct Waiting<'a> {
    /// Gets a line whenever something changes.
    pub progress: &'a mut dyn FnMut(&str),
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// What transports need of the coordinator.
#[derive(Clone, Copy)]
pub struct TransportContext<'a> {
    /// This program, which is copied to hosts that lack it.
    pub program: &'a Path,
    pub bootstrap: &'a Bootstrap,
    /// For effects that outlive this process and end with no connection, such as a Job of a cluster.
    pub ledger: &'a Ledger,
}
