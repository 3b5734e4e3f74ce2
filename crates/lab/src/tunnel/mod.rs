//! Tunnels of the lab's own: real programs, a process at each end, with keys of their own. What is the same for every
//! kind is here, the rest in the kind's own module.

mod end;
mod openvpn;
mod ssh;
mod stunnel;
mod wireguard;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ciphertoll_link::LinkProcess;
use ciphertoll_model::{Endpoint, Leg, Link, LinkShape, Tunnel};

use crate::accounting::CpuMeter;
use crate::error::Error;
use crate::files::PRIVATE_DIRECTORY;
use crate::lab::Lab;
use crate::processors::Apart;
use crate::programs;
use crate::server::Server;
use crate::spawn::Child;

pub use end::Traffic;
pub(crate) use end::{End, Protocol, Side, Wiring, on_a_free_port, wait_for_listener, wait_until};

/// Key exchange and login take a dozen round trips, and the longest link has ten seconds.
const START_LIMIT: Duration = Duration::from_mins(3);

/// What to start.
pub struct TunnelStart<'a> {
    /// Which.
    pub tunnel: Tunnel,
    /// To which server.
    pub server: &'a Server,
    /// What lies between its ends.
    pub link: Link,
    /// Where its ends are, if not both on this machine's loopback.
    pub networks: Option<&'a mut LinkProcess>,
    /// Tells it apart from others of the run.
    pub name: &'a str,
    /// The processors of each side, where they are kept apart: its ends share them.
    pub apart: Option<&'a Apart>,
    /// Where its ends log.
    pub logs: &'a Path,
}

/// A tunnel that is up. Ended, and its files removed, when dropped.
pub struct RunningTunnel {
    /// The client's end, then the server's.
    ends: Vec<Child>,
    endpoint: SocketAddr,
    leg: Leg,
    traffic: Traffic,
    cpu: Cpu,
    set_up: Duration,
    place: PathBuf,
}

/// Whose CPU time a tunnel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cpu {
    /// Its processes'.
    OfEnds,
    /// The kernel's, which tells nobody how much of it.
    OfTheKernel,
}

/// Both ends as a kind has started them, and where clients go.
pub(crate) struct Up {
    /// The client's, then the server's.
    pub(crate) ends: Vec<Child>,
    pub(crate) endpoint: SocketAddr,
    pub(crate) leg: Leg,
    pub(crate) traffic: Traffic,
    pub(crate) cpu: Cpu,
    /// Since when it was being set up: keys and files were there.
    pub(crate) began: Instant,
}

impl RunningTunnel {
    /// Starts a tunnel; it is ready when this returns. Where a program is missing, or something that it needs, that is
    /// told with its cure. To be called on the coordinator's main thread.
    pub fn start(lab: &Lab, start: TunnelStart<'_>) -> Result<Self, Error> {
        let place = lab.scratch.make_directory(start.name, PRIVATE_DIRECTORY)?;
        let up = Self::up(&Wiring { lab, place: &place }, start);
        let Up { ends, endpoint, leg, traffic, cpu, began } =
            up.inspect_err(|_| drop(fs::remove_dir_all(&place)))?;
        Ok(Self { ends, endpoint, leg, traffic, cpu, set_up: began.elapsed(), place })
    }

    fn up(wiring: &Wiring<'_>, mut start: TunnelStart<'_>) -> Result<Up, Error> {
        if start.tunnel.joins_networks()
            && let Some(networks) = &mut start.networks
        {
            wireguard::clear(networks);
        }
        match start.tunnel {
            Tunnel::Ssh(ssh) => ssh::start(wiring, &mut start, ssh),
            Tunnel::OpenVpn(cipher) => openvpn::start(wiring, &start, cipher),
            Tunnel::WireGuard => wireguard::start(wiring, &mut start),
            Tunnel::Stunnel => stunnel::start(wiring, &mut start),
        }
    }

    /// Where clients of its server go.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Tcp(self.endpoint)
    }

    /// What the program of its client's end says that it is; empty where it does not.
    pub fn version(&self, lab: &Lab, tunnel: Tunnel) -> String {
        if self.cpu == Cpu::OfTheKernel {
            return "the kernel's own".to_owned();
        }
        let (program, argument) = match tunnel {
            Tunnel::Ssh(_) => ("ssh", "-V"),
            Tunnel::OpenVpn(_) => ("openvpn", "--version"),
            Tunnel::WireGuard => ("wireguard-go", "--version"),
            Tunnel::Stunnel => ("stunnel4", "-version"),
        };
        let version = programs::search(program)
            .and_then(|program| programs::version_of(&program, &[argument], lab.scratch.path()).ok());
        version.unwrap_or_default()
    }

    /// What its ends agreed on, as seen.
    pub fn leg(&self) -> &Leg {
        &self.leg
    }

    /// How long it took from starting its processes until it was ready.
    pub fn set_up(&self) -> Duration {
        self.set_up
    }

    /// What the CPU time of its ends is read from; none where the kernel does their work.
    pub fn cpu_meters(&self) -> Option<Vec<CpuMeter>> {
        let meters = || self.ends.iter().map(|end| CpuMeter::of_tree(end.pid())).collect();
        (self.cpu == Cpu::OfEnds).then(meters)
    }

    /// Bytes that its client's end has sent in the dark so far.
    pub fn sent_bytes(&self) -> Result<u64, Error> {
        self.traffic.sent_bytes(self.ends[0].pid())
    }

    /// Fails if one of its ends does nothing any more. Where both do, as one gives up without the other, it tells of the
    /// one that was killed.
    pub fn check(&mut self) -> Result<(), Error> {
        let mut failures: Vec<Error> = self.ends.iter_mut().filter_map(|end| end.check().err()).collect();
        let was_killed =
            |failure: &Error| matches!(failure, Error::Died { status, .. } if status.contains("signal"));
        let first = failures.iter().position(was_killed).unwrap_or(0);
        if failures.is_empty() { Ok(()) } else { Err(failures.swap_remove(first)) }
    }

    /// Processes of its ends: the client's, the server's.
    pub fn pids(&self) -> Vec<i32> {
        self.ends.iter().map(Child::pid).collect()
    }
}

impl Drop for RunningTunnel {
    fn drop(&mut self) {
        const GRACE: Duration = Duration::from_millis(500);
        // Whatever does not end by itself is killed when it is dropped; what is left of files, with the lab.
        for end in &mut self.ends {
            let _ = end.stop(GRACE);
        }
        let _ = fs::remove_dir_all(&self.place);
    }
}

impl TunnelStart<'_> {
    /// The address of the server's side, as those at its end of the link know it.
    pub(crate) fn far(&self) -> Ipv4Addr {
        let apart = self.networks.as_ref().is_some_and(|networks| networks.servers().is_some());
        match self.server.endpoint_over(self.link) {
            Endpoint::Tcp(SocketAddr::V4(address)) if apart => *address.ip(),
            _ => Ipv4Addr::LOCALHOST,
        }
    }

    /// Where the client's side finds what listens there on the server's: a relay is a detour.
    pub(crate) fn reach(&mut self, listens: SocketAddr) -> Result<SocketAddr, Error> {
        let is_long = self.link.shape().is_some_and(|shape| shape != LinkShape::of_rtt_us(0));
        match &mut self.networks {
            Some(networks) if is_long && networks.servers().is_none() => {
                networks.find_address(listens.port()).map_err(|error| Error::TunnelUnavailable {
                    tunnel: self.tunnel.to_string(),
                    reason: error.to_string(),
                })
            }
            _ => Ok(listens),
        }
    }
}

/// Of the two networks that a VPN joins: the client's end, the server's.
pub(crate) const VPN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
