//! The start of a tunnel: its arguments, its ends, and the result.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use ciphertoll_host::accounting::{proc, unexpected};
use ciphertoll_host::exec::Provisions;
use ciphertoll_host::processors::ProcessorSplit;
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_link::LinkProcess;
use ciphertoll_model::{Endpoint, Leg, Link, LinkShape, Tunnel};
use ciphertoll_record::Context;

use crate::error::Error;
use crate::servers::server::Server;
use crate::workspace::Workspace;

/// The addresses of the ends of a VPN: the client's, the server's.
pub(crate) const VPN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];

pub struct TunnelStart<'a> {
    pub tunnel: Tunnel,
    pub server: &'a Server,
    /// The link between the ends.
    pub link: Link,
    /// The networks of the ends, if not both are on this machine's loopback.
    pub networks: Option<&'a mut LinkProcess>,
    /// Unique in the run.
    pub name: &'a str,
    /// CPU affinity of each side, which its end shares; all processors if absent.
    pub apart: Option<&'a ProcessorSplit>,
    pub logs: &'a Path,
}

/// Which process uses the CPU time of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuOwner {
    Ends,
    /// The kernel does not report it separately.
    Kernel,
}

/// A tunnel whose ends have agreed.
pub(crate) struct StartedTunnel {
    /// The client's, then the server's.
    pub(crate) ends: Vec<Child>,
    pub(crate) endpoint: SocketAddr,
    pub(crate) leg: Leg,
    pub(crate) traffic: Traffic,
    pub(crate) cpu: CpuOwner,
    /// Start of the setup, after keys and files were written.
    pub(crate) began: Instant,
}

pub(crate) struct TunnelContext<'a> {
    pub(crate) workspace: &'a Workspace,
    /// A private directory for keys and configurations.
    pub(crate) directory: &'a Path,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    /// Name of a process of this side in errors.
    pub(crate) fn process(self, program: &str) -> String {
        match self {
            Self::Client => format!("{program}-client"),
            Self::Server => format!("{program}-server"),
        }
    }
}

/// The program of an end. It runs as ourselves.
pub(crate) struct TunnelEnd<'a> {
    pub(crate) side: Side,
    /// Name of the process in errors: `ssh`.
    pub(crate) what: String,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) provisions: Provisions,
}

/// How the bytes of the encrypted leg are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// All bytes that the process has written.
    Written,
    /// All bytes that were sent through this interface of the process's network namespace.
    Interface(&'static str),
}

impl TunnelContext<'_> {
    pub(crate) fn spawn(&self, start: &TunnelStart<'_>, end: TunnelEnd<'_>) -> Result<Child, Error> {
        let networks = start.networks.as_deref();
        let (namespace, processors) = match end.side {
            Side::Client => (
                networks.map(|networks| match start.link.shape() {
                    Some(_) => networks.clients(),
                    None => networks.servers(),
                }),
                start.apart.map(|apart| &apart.client),
            ),
            Side::Server => (networks.map(LinkProcess::servers), start.apart.map(|apart| &apart.server)),
        };
        let launch = Launch {
            log: start.logs.join(format!("{}-{}.log", start.tunnel.to_string().replace('+', "-"), end.what)),
            what: end.what,
            program: end.program.to_owned(),
            arguments: end.arguments,
            environment: end.environment,
            directory: "/".into(),
            run_as: RunAs::Ourselves,
            processors: processors.cloned(),
            namespace: namespace.flatten().cloned(),
            provisions: end.provisions,
        };
        self.workspace.spawn(&launch)
    }
}

impl Traffic {
    pub(super) fn sent_bytes(&self, pid: i32) -> Result<u64, Error> {
        let path = match self {
            Self::Written => proc(pid, "io"),
            Self::Interface(_) => proc(pid, "net/dev"),
        };
        let text = fs::read_to_string(&path).context("read", &path)?;
        let sent = match self {
            Self::Written => written(&text),
            Self::Interface(name) => sent_through(&text, name),
        };
        Ok(sent.ok_or_else(|| unexpected(&path))?)
    }
}

/// Parses `/proc/PID/io`.
fn written(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.trim().parse().ok())
}

/// Parses `/proc/PID/net/dev`: the ninth number is the bytes sent.
fn sent_through(text: &str, interface: &str) -> Option<u64> {
    const SENT: usize = 8;
    text.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let numbers = (name.trim() == interface).then_some(numbers)?;
        numbers.split_ascii_whitespace().nth(SENT)?.parse().ok()
    })
}

impl TunnelStart<'_> {
    /// The server's address in its own network.
    pub(crate) fn server_address(&self) -> Ipv4Addr {
        let apart = self.networks.as_ref().is_some_and(|networks| networks.servers().is_some());
        match self.server.endpoint_over(self.link) {
            Endpoint::Tcp(SocketAddr::V4(address)) if apart => *address.ip(),
            _ => Ipv4Addr::LOCALHOST,
        }
    }

    /// The address at which the client's side reaches a listener on the server's side. Over a relayed link, that is the
    /// relay's address.
    pub(crate) fn reachable_address(&mut self, listener: SocketAddr) -> Result<SocketAddr, Error> {
        let is_long = self.link.shape().is_some_and(|shape| shape != LinkShape::of_rtt_us(0));
        match &mut self.networks {
            Some(networks) if is_long && networks.servers().is_none() => {
                networks.find_address(listener.port()).map_err(|error| Error::TunnelUnavailable {
                    tunnel: self.tunnel.to_string(),
                    reason: error.to_string(),
                })
            }
            _ => Ok(listener),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_read_from_proc() {
        assert_eq!(written("rchar: 1\nwchar: 4711\nsyscr: 2\n"), Some(4711));
        let table =
            "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n  wg0:10 0 0 0 0 0 0 0 77 0\n";
        assert_eq!((sent_through(table, "wg0"), sent_through(table, "tun0")), (Some(77), None));
    }
}
