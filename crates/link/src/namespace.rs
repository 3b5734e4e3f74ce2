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
use crate::netlink::{Neighbours, Netlink, Peer};
use crate::packet::PacketSocket;
use crate::process::{End, Interface};

/// The interface at the end of the long link, in both networks.
const LONG: &str = "wan0";
/// The one at the end of the pair that nothing is in between.
const SHORT: &str = "lan0";
/// The line's own ends.
const TO_CLIENTS: &str = "clients";
const TO_SERVERS: &str = "servers";
/// That of Ethernet: with a longer one, ten segments at once would be all that a connection ever sends, and there
/// would be no slow start to see.
const MTU_BYTES: u32 = 1500;
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
    ends: Option<[PacketSocket; 2]>,
}

impl Networks {
    /// Makes them. To be called before there is a second thread.
    pub(crate) fn make() -> Result<Self, Error> {
        if !geteuid().is_root() {
            enter_user_namespace()?;
        }
        let [servers, clients, middle] = [Network::make()?, Network::make()?, Network::make()?];
        for (name, network) in [(TO_CLIENTS, &clients), (TO_SERVERS, &servers)] {
            let namespace = Some(network.handle.as_fd());
            let peer = Peer { name: LONG, namespace, hardware_address: Some(HARDWARE_ADDRESS) };
            middle.netlink.add_veth(name, peer).map_err(Error::at("make a veth pair"))?;
            let up = middle.netlink.set_up(name, MTU_BYTES, QUEUE, Neighbours::Asked);
            up.map_err(Error::at("take an interface up"))?;
        }
        let open = |name| PacketSocket::open(name).map_err(Error::at("open a packet socket"));
        let ends = [open(TO_CLIENTS)?, open(TO_SERVERS)?];
        clients.enter()?;
        let namespace = Some(servers.handle.as_fd());
        let peer = Peer { name: SHORT, namespace, hardware_address: None };
        clients.netlink.add_veth(SHORT, peer).map_err(Error::at("make a veth pair"))?;
        clients.configure(CLIENT)?;
        servers.enter()?;
        servers.configure(SERVER)?;
        middle.enter()?;
        Ok(Self { clients, servers, middle, ends: Some(ends) })
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

    /// Takes up what somebody at an end has made there.
    pub(crate) fn configure(&self, interface: &Interface) -> Result<(), Error> {
        let Interface { end, name, address, mtu_bytes } = interface;
        let network = match end {
            End::Clients => &self.clients,
            End::Servers => &self.servers,
        };
        // Names of interfaces are those of the network that one is in.
        network.enter()?;
        let given = network.netlink.add_address(name, *address, PREFIX_BITS);
        let up =
            given.and_then(|()| network.netlink.set_up(name, *mtu_bytes, QUEUE, Neighbours::TakenForGranted));
        self.middle.enter()?;
        up.map_err(Error::at("configure an interface"))
    }

    /// The line's ends, once.
    pub(crate) fn take_ends(&mut self) -> Result<[PacketSocket; 2], Error> {
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

/// Whether packets go through the link one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segments {
    /// Many in one piece, which is faster.
    Many,
    /// Each by itself, so that each can be lost, and takes its time.
    One,
}

/// Each user to itself: a server may not see itself as root.
fn enter_user_namespace() -> Result<(), Error> {
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
