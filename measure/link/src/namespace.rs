//! The private networks: one for clients, one for servers, one for the delay line. They have no names; each disappears
//! with the last process or handle that uses it.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use ciphertoll_model::{LinkShape, Namespace};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};

use crate::Error;
use crate::line_end::LineEnd;
use crate::messages::{Interface, LinkEnd};
use crate::netlink::{ArpMode, Netlink, VethPeer};
use crate::packet::PacketSocket;
use crate::tunnel::TunDevice;

/// The interface of the long link, in both networks.
const LONG: &str = "wan0";
/// The interface of the undelayed pair, in both networks.
const SHORT: &str = "lan0";
/// The delay line's interfaces.
const TO_CLIENTS: &str = "clients";
const TO_SERVERS: &str = "servers";
/// Ethernet's MTU. With loopback's, ten segments would be all that a connection ever sends: slow start would be
/// invisible.
pub(crate) const MTU_BYTES: u32 = 1500;
const QUEUE: u32 = 10_000;
/// The same address at both ends, so that no ARP request costs a round trip.
const HARDWARE_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
const PREFIX_BITS: u8 = 24;
/// Addresses of the clients' network: long link, undelayed pair.
const CLIENT: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 78, 0, 1)];
/// Addresses of the servers' network: long link, undelayed pair.
pub const SERVER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 78, 0, 2)];

/// A network namespace, kept alive by its handle.
pub(crate) struct Network {
    pub(crate) handle: File,
    netlink: Netlink,
}

/// All three networks; the calling thread stays in the delay line's.
pub(crate) struct Networks {
    pub(crate) clients: Network,
    pub(crate) servers: Network,
    middle: Network,
}

/// The devices that the long link is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkDevices {
    /// A veth pair for each side; the delay line holds the other interface of each.
    VethPairs,
    /// A tun device for each side, held by the delay line.
    TunDevices,
}

impl Networks {
    /// Makes them, and the delay line's two ends: towards the clients, towards the servers. Call this before starting a
    /// second thread.
    pub(crate) fn make(joint: LinkDevices) -> Result<(Self, [LineEnd; 2]), Error> {
        let [servers, clients, middle] = [Network::make()?, Network::make()?, Network::make()?];
        let ends = match joint {
            LinkDevices::VethPairs => {
                [open_pair(&middle, TO_CLIENTS, &clients)?, open_pair(&middle, TO_SERVERS, &servers)?]
            }
            LinkDevices::TunDevices => [open_tunnel(&clients)?, open_tunnel(&servers)?],
        };
        clients.enter()?;
        let namespace = Some(servers.handle.as_fd());
        let peer = VethPeer { name: SHORT, namespace, hardware_address: None };
        clients.netlink.add_veth(SHORT, peer).map_err(Error::at("make a veth pair"))?;
        clients.configure(CLIENT)?;
        servers.enter()?;
        servers.configure(SERVER)?;
        middle.enter()?;
        Ok((Self { clients, servers, middle }, ends))
    }

    /// Runs `act` in the network of `end`, where interface names are looked up.
    fn with_netlink(
        &self,
        end: LinkEnd,
        doing: &'static str,
        act: impl FnOnce(&Netlink) -> io::Result<()>,
    ) -> Result<(), Error> {
        let network = match end {
            LinkEnd::Clients => &self.clients,
            LinkEnd::Servers => &self.servers,
        };
        network.enter()?;
        let acted = act(&network.netlink);
        self.middle.enter()?;
        acted.map_err(Error::at(doing))
    }

    /// Runs `act` for the long link's interface at both ends.
    fn at_both_ends(
        &self,
        doing: &'static str,
        mut act: impl FnMut(&Netlink) -> io::Result<()>,
    ) -> Result<(), Error> {
        self.with_netlink(LinkEnd::Clients, doing, &mut act)?;
        self.with_netlink(LinkEnd::Servers, doing, act)
    }

    /// Has TCP hand over single packets if the link loses, queues or delays each separately; several at once are
    /// faster.
    pub(crate) fn set_segments(&self, shape: LinkShape) -> Result<(), Error> {
        let most = if shape.needs_single_packets() { 1 } else { Netlink::MOST_SEGMENTS };
        self.at_both_ends("limit segments", |netlink| netlink.set_most_segments(LONG, most))
    }

    /// Packets that the long link's interfaces did not accept, both directions.
    pub(crate) fn count_dropped(&self) -> Result<u64, Error> {
        let mut all = 0;
        self.at_both_ends("read /proc/net/dev", |_| {
            let table = fs::read_to_string("/proc/thread-self/net/dev")?;
            all += dropped_by(&table, LONG).unwrap_or_default();
            Ok(())
        })?;
        Ok(all)
    }

    /// Brings up an interface that another process has made, and gives it an address.
    pub(crate) fn configure(&self, interface: &Interface) -> Result<(), Error> {
        let Interface { end, name, address, mtu_bytes } = interface;
        self.with_netlink(*end, "configure an interface", |netlink| {
            netlink.add_address(name, *address, PREFIX_BITS)?;
            netlink.set_up(name, *mtu_bytes, QUEUE, ArpMode::Off)
        })
    }

    /// Makes an interface of a kind that takes no parameters.
    pub(crate) fn make_interface(&self, end: LinkEnd, name: &str, kind: &str) -> Result<(), Error> {
        self.with_netlink(end, "make an interface", |netlink| netlink.add_plain(name, kind))
    }

    pub(crate) fn remove_interface(&self, end: LinkEnd, name: &str) -> Result<(), Error> {
        self.with_netlink(end, "remove an interface", |netlink| netlink.remove(name))
    }
}

impl Network {
    /// Makes a network and enters it.
    fn make() -> Result<Self, Error> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from).map_err(Error::at("make a network"))?;
        let netlink = Netlink::open().map_err(Error::at("open netlink"))?;
        netlink.loopback_up().map_err(Error::at("bring loopback up"))?;
        // A connection must not profit from metrics that an earlier one has learned.
        fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")
            .map_err(Error::at("set tcp_no_metrics_save"))?;
        // As on loopback: ports in TIME_WAIT are reused after a second. Otherwise, churn would run out of ports.
        fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").map_err(Error::at("set tcp_tw_reuse"))?;
        let handle =
            File::open("/proc/thread-self/ns/net").map_err(Error::at("open the network namespace"))?;
        Ok(Self { handle, netlink })
    }

    pub(crate) fn enter(&self) -> Result<(), Error> {
        let entered = setns(&self.handle, CloneFlags::CLONE_NEWNET);
        entered.map_err(io::Error::from).map_err(Error::at("enter a network"))
    }

    /// The calling thread must be in this network.
    fn configure(&self, addresses: [Ipv4Addr; 2]) -> Result<(), Error> {
        let neighbours = [ArpMode::Off, ArpMode::On];
        for ((name, address), neighbours) in [LONG, SHORT].into_iter().zip(addresses).zip(neighbours) {
            self.netlink
                .set_up(name, MTU_BYTES, QUEUE, neighbours)
                .map_err(Error::at("bring an interface up"))?;
            let given = self.netlink.add_address(name, address, PREFIX_BITS);
            given.map_err(Error::at("give an interface an address"))?;
        }
        Ok(())
    }
}

/// Makes a veth pair into `network` and opens its other end. The calling thread must be in the middle network.
fn open_pair(middle: &Network, name: &str, network: &Network) -> Result<LineEnd, Error> {
    let namespace = Some(network.handle.as_fd());
    let peer = VethPeer { name: LONG, namespace, hardware_address: Some(HARDWARE_ADDRESS) };
    middle.netlink.add_veth(name, peer).map_err(Error::at("make a veth pair"))?;
    let up = middle.netlink.set_up(name, MTU_BYTES, QUEUE, ArpMode::On);
    up.map_err(Error::at("bring an interface up"))?;
    PacketSocket::open(name).map(LineEnd::Packets).map_err(Error::at("open a packet socket"))
}

fn open_tunnel(network: &Network) -> Result<LineEnd, Error> {
    network.enter()?;
    TunDevice::open(LONG).map(LineEnd::Tun).map_err(Error::at("open /dev/net/tun"))
}

/// Packets that an interface did not send, from `/proc/net/dev`: eight receive columns, then bytes, packets, errors, drops.
fn dropped_by(table: &str, name: &str) -> Option<u64> {
    const DROPPED: usize = 11;
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    row.split_whitespace().nth(DROPPED)?.parse().ok()
}

/// Gains the right to make networks: root has it, other users make a user namespace. Every user is mapped to itself, as
/// servers refuse to run as root.
pub(crate) fn get_rights() -> Result<(), Error> {
    if geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    let made = unshare(CloneFlags::CLONE_NEWUSER);
    made.map_err(io::Error::from).map_err(Error::at("make a user namespace"))?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(Error::at("write its user map"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Moves the process into a namespace made by `__link`. Call this before starting a second thread.
pub fn join(namespace: &Namespace) -> io::Result<()> {
    if let Some(user) = &namespace.user {
        setns(File::open(user)?, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(File::open(&namespace.network)?, CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_interface_name() {
        let table = "Inter-| Receive\n face |bytes\n wan: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  \
                     wan0: 1 2 3 4 5 6 7 8 900 17 0 3 0 0 0 0\n";
        assert_eq!(dropped_by(table, LONG), Some(3));
        assert_eq!(dropped_by(table, SHORT), None);
    }
}
