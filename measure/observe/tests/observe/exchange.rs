//! Whole connections, segment by segment.

use ciphertoll_observe::{EncryptionKind, Frame, LinkType, Observation, Pair, Ports, SourceEnd, Watch};
use ciphertoll_wire::passive::{AccountNames, ConnectionSide, DatabaseProtocol};

use ConnectionSide::{Client, Server};

use crate::packets::{ACK, SYN, TCP, ipv4};

pub(crate) const FIN: u8 = 1;
pub(crate) const SERVER_PORT: u16 = 5432;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const WHOLE: usize = usize::MAX;

macro_rules! recording {
    ($name:literal) => {
        include_bytes!(concat!("../../../../checks/fuzz/seeds/tls_handshake/", $name))
    };
}
pub(crate) use recording;

/// A connection to PostgreSQL, segment by segment, a millisecond apart.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) sequences: [u32; 2],
    /// PostgreSQL, unless said otherwise.
    pub(crate) protocol: Option<DatabaseProtocol>,
    pub(crate) names: AccountNames,
    /// The last bytes of the client's address and port.
    pub(crate) client: u32,
}

impl Exchange {
    /// The TCP handshake.
    pub(crate) fn open() -> Self {
        let mut exchange = Self::default();
        exchange.segment(Client, SYN, b"");
        exchange.segment(Server, SYN | ACK, b"");
        exchange.segment(Client, ACK, b"");
        exchange
    }

    pub(crate) fn send(&mut self, side: ConnectionSide, payload: &[u8]) {
        self.segment(side, ACK, payload);
    }

    pub(crate) fn close(&mut self, side: ConnectionSide) {
        self.segment(side, ACK | FIN, b"");
        self.segment(side.other(), ACK | FIN, b"");
    }

    /// After the frames of [`close`](Self::close) were removed.
    pub(crate) fn rewind_ends(&mut self) {
        self.sequences = self.sequences.map(|sequence| sequence - 1);
    }

    pub(crate) fn segment(&mut self, side: ConnectionSide, flags: u8, payload: &[u8]) {
        let (own, peer) = (self.sequences[side as usize], self.sequences[side.other() as usize]);
        let [_, network, host, port] = self.client.to_be_bytes();
        let ports = [40_000 + u16::from(port), SERVER_PORT];
        let mut tcp = Vec::new();
        tcp.extend(ports[side as usize].to_be_bytes());
        tcp.extend(ports[side.other() as usize].to_be_bytes());
        tcp.extend(own.to_be_bytes());
        tcp.extend(peer.to_be_bytes());
        tcp.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.sequences[side as usize] += payload.len() as u32 + counted;
        let mut packet = ipv4(TCP, &[], &tcp);
        packet[13..15].copy_from_slice(&[network, host]);
        if side == Server {
            let (left, right) = packet[12..20].split_at_mut(4);
            left.swap_with_slice(right);
        }
        self.frames.push(packet);
    }

    /// What is seen of it with this snap length, without the frame at this place.
    pub(crate) fn observed(&self, snap_bytes: usize, without: Option<usize>) -> Observation {
        let mut watch = self.watch();
        for (at, frame) in self.frames.iter().enumerate().filter(|(at, _)| Some(*at) != without) {
            watch_frame(&mut watch, at as u64 * MS, &frame[..frame.len().min(snap_bytes)], frame.len());
        }
        finish(watch)
    }

    /// What is seen of it if frames are captured in another order than they passed: by their places.
    pub(crate) fn observed_in(&self, order: &[usize]) -> Observation {
        let mut watch = self.watch();
        for at in order {
            watch_frame(&mut watch, *at as u64 * MS, &self.frames[*at], self.frames[*at].len());
        }
        finish(watch)
    }

    pub(crate) fn watch(&self) -> Watch {
        let protocol = self.protocol.unwrap_or(DatabaseProtocol::Postgres);
        Watch::new(Ports::from_iter([(SERVER_PORT, Some(protocol))]), self.names)
    }

    pub(crate) fn pair(&self) -> Pair {
        only_pair(self.observed(WHOLE, None))
    }
}

pub(crate) fn watch_frame(watch: &mut Watch, time_ns: u64, data: &[u8], wire_bytes: usize) {
    let (link_type, wire_bytes) = (LinkType::Ip, wire_bytes as u32);
    watch.frame(&Frame { time_ns, link_type, interface: 1, direction: None, wire_bytes, data });
}

pub(crate) fn finish(watch: Watch) -> Observation {
    watch.finish(SourceEnd { name: "a test".to_owned(), dropped: 0, truncated: false })
}

/// Connections one behind the other.
pub(crate) fn observed_all(exchanges: &[Exchange]) -> Observation {
    let mut watch = exchanges[0].watch();
    for (at, frame) in exchanges.iter().flat_map(|exchange| &exchange.frames).enumerate() {
        watch_frame(&mut watch, at as u64 * MS, frame, frame.len());
    }
    finish(watch)
}

pub(crate) fn only_pair(observation: Observation) -> Pair {
    let mut pairs = observation.pairs;
    assert_eq!(pairs.len(), 1);
    pairs.remove(0)
}

/// Milliseconds, of which two digits are kept.
pub(crate) fn whole(ms: f64) -> u64 {
    ms.round() as u64
}

pub(crate) fn kind(pair: &Pair) -> EncryptionKind {
    pair.encryption[0].kind
}

pub(crate) fn typed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The flights of a recorded TLS connection: each has its sender, its length and its bytes.
pub(crate) fn flights(recording: &[u8]) -> Vec<(ConnectionSide, &[u8])> {
    let (mut flights, mut rest) = (Vec::new(), &recording[1..]);
    while let Some(([tag, high, low], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        flights.push((if *tag == 0 { Client } else { Server }, bytes));
        rest = after;
    }
    flights
}

/// A recorded TLS connection behind PostgreSQL's request for TLS, with so many of its flights.
pub(crate) fn encrypted(recording: &[u8], most: usize) -> Exchange {
    let mut exchange = Exchange::open();
    exchange.send(Client, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]);
    exchange.send(Server, b"S");
    for (side, bytes) in flights(recording).into_iter().take(most) {
        exchange.send(side, bytes);
    }
    exchange.close(Client);
    exchange
}

/// Without encryption: a login without a password, and a query.
pub(crate) fn plain() -> Exchange {
    let mut exchange = Exchange::open();
    exchange.send(Client, b"\0\0\0\x12\0\x03\0\0user\0app\0\0");
    exchange.send(Server, &[typed(b'R', &[0; 4]), typed(b'Z', b"I")].concat());
    exchange.send(Client, &typed(b'Q', b"SELECT 1\0"));
    exchange.send(Server, &[typed(b'T', &[0; 30]), typed(b'C', b"SELECT 1\0"), typed(b'Z', b"I")].concat());
    exchange.send(Client, &typed(b'Q', b"SELECT 2\0"));
    exchange.send(Server, &[typed(b'T', &[0; 30]), typed(b'C', b"SELECT 1\0"), typed(b'Z', b"I")].concat());
    exchange.close(Client);
    exchange
}
