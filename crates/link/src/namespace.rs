//! Networks of our own: one for clients, one for servers, one for the line between them. They have no names, and are gone
//! with the last process that is in them or holds them.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use ciphertoll_model::Namespace;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};

use crate::Error;
use crate::end::End;
use crate::netlink::{Delay, Neighbours, Netlink, Peer};
use crate::packet::PacketSocket;
use crate::process::{self, Interface};
use crate::tunnel::Tunnel;

/// The interface at the end of the long link, in both networks.
const LONG: &str = "wan0";
/// The one at the end of the pair that nothing is in between.
const SHORT: &str = "lan0";
/// The line's own ends.
const TO_CLIENTS: &str = "clients";
const TO_SERVERS: &str = "servers";
/// That of Ethernet: with a longer one, ten segments at once would be all that a connection ever sends, and there
/// would be no slow start to see.
pub(crate) const MTU_BYTES: u32 = 1500;
const QUEUE: u32 = 10_000;
/// The same at both ends: then nobody asks for it, which would be a round trip.
const HARDWARE_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
const PREFIX_BITS: u8 = 24;
/// Addresses of the client's ends, long and short.
const CLIENT: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 78, 0, 1)];
/// Those of the servers'.
pub const SERVER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 78, 0, 2)];

/// A network namespace that is kept.
pub(crate) struct Network {
    pub(crate) handle: File,
    netlink: Netlink,
}

/// All three; the calling thread stays in that of the line.
pub(crate) struct Networks {
    pub(crate) clients: Network,
    pub(crate) servers: Network,
    middle: Network,
    /// What the line takes from and gives to: clients' side, servers' side.
    ends: Option<[End; 2]>,
}

/// What the long link's ends are joined by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    /// Each is one of a pair of interfaces, the other one of which is the line's.
    Pairs,
    /// Each is a tunnel device, which the line holds.
    Tunnels,
    /// They are a pair, and queues of the kernel's own delay.
    Queues,
}

impl Networks {
    /// Makes them. To be called before there is a second thread.
    pub(crate) fn make(joint: Joint) -> Result<Self, Error> {
        let [servers, clients, middle] = [Network::make()?, Network::make()?, Network::make()?];
        let ends = match joint {
            Joint::Pairs => {
                Some([pair(&middle, TO_CLIENTS, &clients)?, pair(&middle, TO_SERVERS, &servers)?])
            }
            Joint::Tunnels => Some([tunnel(&clients)?, tunnel(&servers)?]),
            Joint::Queues => {
                join_directly(&clients, &servers)?;
                None
            }
        };
        clients.enter()?;
        let namespace = Some(servers.handle.as_fd());
        let peer = Peer { name: SHORT, namespace, hardware_address: None };
        clients.netlink.add_veth(SHORT, peer).map_err(Error::at("make a veth pair"))?;
        clients.configure(CLIENT)?;
        servers.enter()?;
        servers.configure(SERVER)?;
        middle.enter()?;
        Ok(Self { clients, servers, middle, ends })
    }

    /// How large a piece TCP may hand to the long link at once.
    pub(crate) fn set_segments(&self, segments: Segments) -> Result<(), Error> {
        let most = match segments {
            Segments::Many => Netlink::MOST_SEGMENTS,
            Segments::One => 1,
        };
        for network in [&self.clients, &self.servers] {
            // Names of interfaces are those of the network that one is in.
            network.enter()?;
            network.netlink.set_most_segments(LONG, most).map_err(Error::at("limit segments"))?;
        }
        self.middle.enter()
    }

    /// Does something to the interfaces of an end. Their names are those of the network that one is in.
    pub(crate) fn at(
        &self,
        end: process::End,
        act: impl FnOnce(&Netlink) -> io::Result<()>,
    ) -> io::Result<()> {
        let network = match end {
            process::End::Clients => &self.clients,
            process::End::Servers => &self.servers,
        };
        network.enter().map_err(io::Error::other)?;
        let acted = act(&network.netlink);
        self.middle.enter().map_err(io::Error::other)?;
        acted
    }

    /// Takes up what somebody at an end has made there.
    pub(crate) fn configure(&self, interface: &Interface) -> Result<(), Error> {
        let Interface { end, name, address, mtu_bytes } = interface;
        let configured = self.at(*end, |netlink| {
            netlink.add_address(name, *address, PREFIX_BITS)?;
            netlink.set_up(name, *mtu_bytes, QUEUE, Neighbours::TakenForGranted)
        });
        configured.map_err(Error::at("configure an interface"))
    }

    /// What the queues of both ends do, where the kernel has them.
    pub(crate) fn set_queues(&self, delay: Delay) -> Result<(), Error> {
        for network in [&self.clients, &self.servers] {
            network.enter()?;
            network.netlink.delay(LONG, delay).map_err(Error::at("have the kernel delay"))?;
        }
        self.middle.enter()
    }

    /// Packets that were sent into the long link, both ways, and those that it had no room for.
    pub(crate) fn sent(&self) -> Result<Sent, Error> {
        let mut all = Sent::default();
        for network in [&self.clients, &self.servers] {
            network.enter()?;
            let table = fs::read_to_string("/proc/thread-self/net/dev");
            let sent = Sent::of(&table.map_err(Error::at("count packets"))?, LONG).unwrap_or_default();
            all = Sent { packets: all.packets + sent.packets, dropped: all.dropped + sent.dropped };
        }
        self.middle.enter().map(|()| all)
    }

    /// The line's ends, once.
    pub(crate) fn take_ends(&mut self) -> Result<[End; 2], Error> {
        self.ends.take().ok_or(Error::Down("it is a line already"))
    }
}

impl Network {
    /// A new one, which the calling thread is in then.
    fn make() -> Result<Self, Error> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from).map_err(Error::at("make a network"))?;
        let netlink = Netlink::open().map_err(Error::at("open netlink"))?;
        netlink.loopback_up().map_err(Error::at("take loopback up"))?;
        // What one connection has learnt of the link must not help the next.
        fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")
            .map_err(Error::at("set tcp_no_metrics_save"))?;
        // As on loopback: a port that waits out its time is taken again after a second, or churn would run out of them.
        fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1").map_err(Error::at("set tcp_tw_reuse"))?;
        let handle = File::open("/proc/thread-self/ns/net").map_err(Error::at("keep a network"))?;
        Ok(Self { handle, netlink })
    }

    /// Puts the calling thread into it.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let entered = setns(&self.handle, CloneFlags::CLONE_NEWNET);
        entered.map_err(io::Error::from).map_err(Error::at("enter a network"))
    }

    /// To be called from within.
    fn configure(&self, addresses: [Ipv4Addr; 2]) -> Result<(), Error> {
        let neighbours = [Neighbours::TakenForGranted, Neighbours::Asked];
        for ((name, address), neighbours) in [LONG, SHORT].into_iter().zip(addresses).zip(neighbours) {
            self.netlink
                .set_up(name, MTU_BYTES, QUEUE, neighbours)
                .map_err(Error::at("take an interface up"))?;
            let given = self.netlink.add_address(name, address, PREFIX_BITS);
            given.map_err(Error::at("give an interface an address"))?;
        }
        Ok(())
    }
}

/// A pair of interfaces, one of them in `network`; the line's end of it. To be called from the middle.
fn pair(middle: &Network, name: &str, network: &Network) -> Result<End, Error> {
    let namespace = Some(network.handle.as_fd());
    let peer = Peer { name: LONG, namespace, hardware_address: Some(HARDWARE_ADDRESS) };
    middle.netlink.add_veth(name, peer).map_err(Error::at("make a veth pair"))?;
    let up = middle.netlink.set_up(name, MTU_BYTES, QUEUE, Neighbours::Asked);
    up.map_err(Error::at("take an interface up"))?;
    PacketSocket::open(name).map(End::Packets).map_err(Error::at("open a packet socket"))
}

/// A tunnel device in `network`; its line's end.
fn tunnel(network: &Network) -> Result<End, Error> {
    network.enter()?;
    Tunnel::open(LONG).map(End::Tunnel).map_err(Error::at("open /dev/net/tun"))
}

/// One pair of interfaces, an end in each.
fn join_directly(clients: &Network, servers: &Network) -> Result<(), Error> {
    clients.enter()?;
    let namespace = Some(servers.handle.as_fd());
    let peer = Peer { name: LONG, namespace, hardware_address: Some(HARDWARE_ADDRESS) };
    clients.netlink.add_veth(LONG, peer).map_err(Error::at("make a veth pair"))?;
    clients.netlink.set_hardware_address(LONG, HARDWARE_ADDRESS).map_err(Error::at("name an interface"))?;
    for network in [clients, servers] {
        network.enter()?;
        network.netlink.delay(LONG, Delay::default()).map_err(Error::at("have the kernel delay"))?;
    }
    Ok(())
}

/// What an interface was given to send since it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

impl Sent {
    /// As `/proc/net/dev` has it: eight columns of what came, then bytes, packets, errors, drops.
    fn of(table: &str, name: &str) -> Option<Self> {
        const PACKETS: usize = 9;
        const DROPPED: usize = 11;
        let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
        let column = |at| row.split_whitespace().nth(at)?.parse().ok();
        Some(Self { packets: column(PACKETS)?, dropped: column(DROPPED)? })
    }
}

/// Whether packets go through the link one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segments {
    /// Many in one piece, which is faster.
    Many,
    /// Each by itself, so that each can be lost, and takes its time.
    One,
}

/// Gets what it takes to make networks, once: root has it, others get a user namespace. Each user is mapped to itself,
/// since a server may not see itself as root.
pub(crate) fn get_rights() -> Result<(), Error> {
    if geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    let made = unshare(CloneFlags::CLONE_NEWUSER);
    made.map_err(io::Error::from).map_err(Error::at("make a user namespace"))?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(Error::at("map users into it"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Puts the process into a namespace that `__link` has made. To be called before there is a second thread.
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
    fn what_was_sent_is_found_by_the_interfaces_name() {
        let table = "Inter-| Receive\n face |bytes\n wan: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  \
                     wan0: 1 2 3 4 5 6 7 8 900 17 0 3 0 0 0 0\n";
        assert_eq!(Sent::of(table, LONG), Some(Sent { packets: 17, dropped: 3 }));
        assert_eq!(Sent::of(table, SHORT), None);
    }
}
