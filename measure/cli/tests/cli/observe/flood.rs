//! Floods of real packets leave real connections counted, and the observer's memory below its bound.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd};

use ciphertoll_model::Engine;
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Dialer, SourceAddresses};
use ciphertoll_testing::missing;
use ciphertoll_wire::tls::{NamedGroup, ProbeHello};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use serde_json::{Value, json};

use super::clients::Inside;
use super::lab::{Lab, Start, connect_from};
use crate::support::{is_root, system, until};

/// More connections than the observer follows at a time.
const SYNS: u32 = 105_000;
/// The data that is kept of these exceeds the room for it.
const HELLOS: u32 = 40_000;
/// A small part of the ring.
const BATCH: u32 = 1_000;
const BATCHES_PER_CONNECT: u32 = 10;
const QUERIES: u64 = 3;
/// The bound for all connections that are followed: docs/measure/observe.md.
const MAX_FLOW_KB: u64 = 64 << 10;
/// The bound for 10,000 pairs of a flood.
const MAX_PAIRS_KB: u64 = 16 << 10;
/// The address of a server that does not exist; only packets carry it.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Sends packets of any address.
struct RawSocket(OwnedFd);

impl RawSocket {
    fn open() -> Self {
        let kind = SockType::Raw;
        let raw = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        Self(raw.expect("root may send such packets"))
    }

    fn send(&self, from: SocketAddrV4, to: SocketAddrV4, numbers: [u32; 2], flags: u8, payload: &[u8]) {
        let mut segment = [from.port(), to.port()].map(u16::to_be_bytes).concat();
        segment.extend(numbers.map(u32::to_be_bytes).concat());
        segment.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(payload);
        let sum = checksum(*from.ip(), *to.ip(), &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        // The kernel fills in the length and the checksum.
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([from.ip().octets(), to.ip().octets()].concat());
        packet.extend(segment);
        let to = SockaddrIn::from(SocketAddrV4::new(*to.ip(), 0));
        sendto(self.0.as_raw_fd(), &packet, &to, MsgFlags::empty()).expect("sent");
    }
}

/// Of a TCP segment over IPv4 (RFC 9293, 3.1).
fn checksum(from: Ipv4Addr, to: Ipv4Addr, segment: &[u8]) -> u16 {
    let length = (segment.len() as u16).to_be_bytes();
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 6], &length].concat();
    let words = pseudo.chunks(2).chain(segment.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

fn invented_client(number: u32) -> SocketAddrV4 {
    let [_, network, host, port] = number.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 1 + network, host, port), 40_000 + u16::from(host))
}

/// A SYN, which reaches the server.
fn half_open(raw: &RawSocket, server: SocketAddrV4, number: u32) {
    raw.send(invented_client(number), server, [number, 0], SYN, &[]);
}

/// The beginning of a TLS handshake between two other machines: a request for TLS, its answer, and a part of
/// a ClientHello that the observer keeps until the rest comes.
fn half_shaken(raw: &RawSocket, server: SocketAddrV4, number: u32) {
    const PART: usize = 1_200;
    let (client, server) = (invented_client(number), SocketAddrV4::new(ELSEWHERE, server.port()));
    let mut hello = Vec::new();
    ProbeHello::Groups(&[NamedGroup(0x001d); 1_000]).encode([number.to_be_bytes()[3]; 32], None, &mut hello);
    raw.send(client, server, [0, 0], SYN, &[]);
    raw.send(server, client, [0, 1], SYN | ACK, &[]);
    raw.send(client, server, [1, 1], ACK, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]);
    raw.send(server, client, [1, 9], ACK, b"S");
    raw.send(client, server, [9, 2], ACK, &hello[..PART]);
}

/// Sends the packets of one connection to the server, by its number.
type Flood = fn(&RawSocket, SocketAddrV4, u32);

/// `VmHWM` or `VmRSS` of a process.
fn kilobytes(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(name)).expect("it has memory");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Waits until the process has nothing to do: it has read what has been handed over.
fn await_idle(process: u32) {
    until("an observer that waits", || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.starts_with('S').then_some(())
    });
}

fn query(client: &mut Client) {
    for _ in 0..QUERIES {
        client.query("SELECT 1").expect("an answer");
    }
}

fn one_connection(dialer: &Dialer) {
    let mut client = Client::dial(dialer).expect("a login");
    query(&mut client);
    client.close().expect("a goodbye");
}

/// How many connections a real client made while the flood came, and what was seen.
fn observed(lab: &Lab, count: u32, flood: Flood) -> (u64, Value) {
    let std::net::SocketAddr::V4(server) = lab.address else { panic!("{} is of IPv4", lab.address) };
    let observer = lab.observe();
    let process = observer.child.id();
    // The program and the ring.
    let before = kilobytes(process, "VmRSS:");
    let dialer = lab.dialer(Start::Plain, lab.password(), None);
    let real = lab.inside(|| {
        let mut real = 2;
        one_connection(&dialer);
        let mut long = Client::dial(&dialer).expect("a login");
        let raw = RawSocket::open();
        for first in (0..count).step_by(BATCH as usize) {
            (first..first + BATCH).for_each(|number| flood(&raw, server, number));
            // Otherwise the ring may be full when this client comes.
            await_idle(process);
            if (first / BATCH).is_multiple_of(BATCHES_PER_CONNECT) {
                one_connection(&dialer);
                real += 1;
            }
        }
        query(&mut long);
        long.close().expect("a goodbye");
        let late = connect_from(&dialer, Some(&mut SourceAddresses::lane(0)));
        drop(late.expect("a login"));
        real
    });
    await_idle(process);
    let most = kilobytes(process, "VmHWM:") - before;
    let seen = observer.end();
    assert!(most < MAX_FLOW_KB + MAX_PAIRS_KB, "{most} kB, {before} kB before");
    (real, seen)
}

#[test]
fn a_flood_leaves_real_connections_counted_and_memory_bounded() {
    if !is_root() {
        return missing("only root may capture packets");
    }
    if !crate::url::real_server(Engine::Postgres) {
        return;
    }
    let lab = Lab::start_alone(Engine::Postgres, "postgres", "plain");
    // Packets to invented addresses leave by an interface behind which they get lost.
    let nowhere = Inside::start(&["cat"]);
    let pid = nowhere.pid();
    let network = format!(
        "ip link add flood0 type veth peer name eth0 netns {pid}; ip link set flood0 up arp off; \
         ip route add 10.0.0.0/8 dev flood0"
    );
    lab.inside(|| system("sh", &["-ec", &network])).expect("a network");
    nowhere.run("ip link set eth0 up arp off");
    let floods: [(_, _, Flood); 2] = [("SYNs", SYNS, half_open), ("hellos", HELLOS, half_shaken)];
    for (name, count, flood) in floods {
        let (real, seen) = observed(&lab, count, flood);
        let totals = json!([seen["segments"], seen["dropped"], seen["evicted"], seen["uncounted"]]);
        assert!(seen["evicted"].as_u64() > Some(0), "{name}: {totals}");
        let pairs = seen["pairs"].as_array().expect("a list");
        let of = |client: &str| pairs.iter().find(|pair| pair["client"] == client);
        let pair = of("127.0.0.1").unwrap_or_else(|| panic!("{name}: no real client: {totals}"));
        assert_eq!(pair["connections"]["begun"], real, "{name} {totals}: {pair:#}");
        let queries = json!([{ "queries": QUERIES, "connections": real }]);
        assert_eq!(pair["queries"]["distribution"], queries, "{name} {totals}: {pair:#}");
        assert_eq!(pair["failures"], json!([]), "{name} {totals}: {pair:#}");
        let late = of("127.1.0.1").unwrap_or_else(|| panic!("{name}: no late client: {totals}"));
        assert_eq!(late["connections"]["sessions"], 1, "{name} {totals}: {late:#}");
    }
}
