//! The measurement of a trial: what its load reports, and what each layer adds.

use ciphertoll_model::TrialResult;

use crate::layer::{Trial, Uses};
use crate::layers::link::LinkUse;
use crate::layers::load_hosts::HostsMeasured;
use crate::layers::proxy::ProxyUse;
use crate::layers::server::{ProcessorsApart, ServerUse};
use crate::layers::tunnel::TunnelUse;

/// The measurement of a trial before the gates.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub load: TrialResult,
    /// The server's use in the window; absent for external servers.
    pub server: Option<ServerUse>,
    pub machine: MachineUse,
    /// CPU time of the tunnel or proxy.
    pub middle_cpu_ns: u64,
    /// Peak resident memory of the tunnel or proxy in the window; absent unless it is one process.
    pub middle_rss_peak_bytes: Option<u64>,
    pub tunnel: Option<TunnelUse>,
    pub proxy: Option<ProxyUse>,
    /// Absent if both sides share all processors.
    pub apart: Option<ProcessorsApart>,
    pub link: Option<LinkUse>,
    /// Absent if the clients ran on this machine.
    pub hosts: Option<HostsMeasured>,
    /// Whether the server runs on another machine.
    pub server_is_elsewhere: bool,
}

/// The machine's use in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineUse {
    /// CPU time that was not idle on all processors, without steal.
    pub busy_ns: u64,
    /// CPU time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// Sockets in `TIME_WAIT` when the window closed.
    pub time_wait_sockets: u64,
}

impl Trial for Measured {
    fn load(&self) -> &TrialResult {
        &self.load
    }

    fn load_mut(&mut self) -> &mut TrialResult {
        &mut self.load
    }
}

impl Uses<ServerUse> for Measured {
    fn slot(&mut self) -> &mut Option<ServerUse> {
        &mut self.server
    }
}

impl Uses<ProcessorsApart> for Measured {
    fn slot(&mut self) -> &mut Option<ProcessorsApart> {
        &mut self.apart
    }
}

impl Uses<LinkUse> for Measured {
    fn slot(&mut self) -> &mut Option<LinkUse> {
        &mut self.link
    }
}

impl Uses<TunnelUse> for Measured {
    fn slot(&mut self) -> &mut Option<TunnelUse> {
        &mut self.tunnel
    }
}

impl Uses<ProxyUse> for Measured {
    fn slot(&mut self) -> &mut Option<ProxyUse> {
        &mut self.proxy
    }
}
