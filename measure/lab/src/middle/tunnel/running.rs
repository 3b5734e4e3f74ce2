//! A running tunnel.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::files::PRIVATE_DIRECTORY;
use ciphertoll_host::programs;
use ciphertoll_host::spawn::Child;
use ciphertoll_model::{Endpoint, Leg, Tunnel};

use super::setup::{CpuOwner, StartedTunnel, TunnelContext, TunnelStart};
use super::{openvpn, ssh, stunnel, wireguard};
use crate::error::Error;
use crate::workspace::Workspace;

/// On drop, its processes are ended and its files are removed.
pub struct RunningTunnel {
    started: StartedTunnel,
    setup_time: Duration,
    directory: PathBuf,
}

impl RunningTunnel {
    pub(crate) fn start(workspace: &Workspace, start: TunnelStart<'_>) -> Result<Self, Error> {
        let directory = workspace.scratch.make_directory(start.name, PRIVATE_DIRECTORY)?;
        let started = Self::start_ends(&TunnelContext { workspace, directory: &directory }, start)
            .inspect_err(|_| drop(fs::remove_dir_all(&directory)))?;
        Ok(Self { setup_time: started.began.elapsed(), started, directory })
    }

    fn start_ends(context: &TunnelContext<'_>, mut start: TunnelStart<'_>) -> Result<StartedTunnel, Error> {
        if start.tunnel.joins_networks()
            && let Some(networks) = &mut start.networks
        {
            wireguard::common::clear(networks);
        }
        match start.tunnel {
            Tunnel::Ssh(ssh) => ssh::start(context, &mut start, ssh),
            Tunnel::OpenVpn(cipher) => openvpn::start(context, &start, cipher),
            Tunnel::WireGuard => wireguard::start(context, &mut start),
            Tunnel::Stunnel => stunnel::start(context, &mut start),
        }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Tcp(self.started.endpoint)
    }

    /// The version that the client's program reports; empty if it does not. `directory` is for files that it writes.
    pub fn version(&self, tunnel: Tunnel, directory: &Path) -> String {
        if self.started.cpu == CpuOwner::Kernel {
            return "the kernel's own".to_owned();
        }
        let (program, argument) = match tunnel {
            Tunnel::Ssh(_) => ("ssh", "-V"),
            Tunnel::OpenVpn(_) => ("openvpn", "--version"),
            Tunnel::WireGuard => ("wireguard-go", "--version"),
            Tunnel::Stunnel => ("stunnel4", "-version"),
        };
        let version = programs::search(program)
            .and_then(|program| programs::version_of(&program, &[argument], directory).ok());
        version.unwrap_or_default()
    }

    /// What the ends agreed on, as observed.
    pub fn leg(&self) -> &Leg {
        &self.started.leg
    }

    /// Time from the start of its processes until it was ready.
    pub fn setup_time(&self) -> Duration {
        self.setup_time
    }

    /// The CPU times of its ends; `None` if the kernel does their work.
    pub fn cpu_meters(&self) -> Option<Vec<CpuMeter>> {
        let meters = || self.started.ends.iter().map(|end| CpuMeter::Tree { pid: end.pid() }).collect();
        (self.started.cpu == CpuOwner::Ends).then(meters)
    }

    /// Bytes that the client's end has sent over the encrypted leg.
    pub fn sent_bytes(&self) -> Result<u64, Error> {
        self.started.traffic.sent_bytes(self.started.ends[0].pid())
    }

    /// Fails if an end has ended or is stopped. If both have ended, because one does not run without the other, the error is
    /// about the one that was killed.
    pub fn check(&mut self) -> Result<(), Error> {
        let mut failures: Vec<ciphertoll_host::Error> =
            self.started.ends.iter_mut().filter_map(|end| end.check().err()).collect();
        let was_killed = |failure: &ciphertoll_host::Error| matches!(failure, ciphertoll_host::Error::Died { status, .. } if status.contains("signal"));
        let first = failures.iter().position(was_killed).unwrap_or(0);
        if failures.is_empty() { Ok(()) } else { Err(failures.swap_remove(first).into()) }
    }

    /// Process ids of the ends: the client's, the server's.
    pub fn pids(&self) -> Vec<i32> {
        self.started.ends.iter().map(Child::pid).collect()
    }
}

impl Drop for RunningTunnel {
    fn drop(&mut self) {
        const GRACE: Duration = Duration::from_millis(500);
        // A process that does not end is killed when it is dropped; remaining files are removed with the scratch directory.
        for end in &mut self.started.ends {
            let _ = end.stop(GRACE);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
