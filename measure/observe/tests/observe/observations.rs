//! Whole connections, and what is said of them.

use std::collections::HashMap;

use ciphertoll_observe::{EncryptionKind, FindingKind, Frame, LinkType, Observation, Pair, SourceEnd, Watch};
use ciphertoll_wire::passive::{ConnectionSide, DatabaseProtocol};

use ConnectionSide::{Client, Server};

use crate::packets::{ACK, SYN, TCP, ipv4};

const FIN: u8 = 1;
const SERVER_PORT: u16 = 5432;
const MS: u64 = 1_000_000;
const WHOLE: usize = usize::MAX;

macro_rules! recording {
    ($name:literal) => {
        include_bytes!(concat!("../../../../checks/fuzz/seeds/tls_handshake/", $name))
    };
}

/// A connection to PostgreSQL, segment by segment, a millisecond apart.
#[derive(Default)]
struct Exchange {
    frames: Vec<Vec<u8>>,
    sequences: [u32; 2],
}

impl Exchange {
    /// The TCP handshake.
    fn open() -> Self {
        let mut exchange = Self::default();
        exchange.segment(Client, SYN, b"");
        exchange.segment(Server, SYN | ACK, b"");
        exchange.segment(Client, ACK, b"");
        exchange
    }

    fn send(&mut self, side: ConnectionSide, payload: &[u8]) {
        self.segment(side, ACK, payload);
    }

    fn close(&mut self, side: ConnectionSide) {
        self.segment(side, ACK | FIN, b"");
        self.segment(side.other(), ACK | FIN, b"");
    }

    fn segment(&mut self, side: ConnectionSide, flags: u8, payload: &[u8]) {
        let (own, peer) = (self.sequences[side as usize], self.sequences[side.other() as usize]);
        let ports = [40_000, SERVER_PORT];
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
        if side == Server {
            let (left, right) = packet[12..20].split_at_mut(4);
            left.swap_with_slice(right);
        }
        self.frames.push(packet);
    }

    /// What is seen of it with this snap length, without the frame at this place.
    fn observed(&self, snap_bytes: usize, without: Option<usize>) -> Observation {
        let mut watch = Watch::new(HashMap::from([(SERVER_PORT, Some(DatabaseProtocol::Postgres))]));
        for (at, frame) in self.frames.iter().enumerate().filter(|(at, _)| Some(*at) != without) {
            watch.frame(&Frame {
                time_ns: at as u64 * MS,
                link_type: LinkType::Ip,
                interface: 1,
                direction: None,
                wire_bytes: frame.len() as u32,
                data: &frame[..frame.len().min(snap_bytes)],
            });
        }
        watch.finish(SourceEnd { name: "a test".to_owned(), dropped: 0, truncated: false })
    }

    fn pair(&self) -> Pair {
        only_pair(self.observed(WHOLE, None))
    }
}

fn only_pair(observation: Observation) -> Pair {
    let mut pairs = observation.pairs;
    assert_eq!(pairs.len(), 1);
    pairs.remove(0)
}

/// Milliseconds, of which two digits are kept.
fn whole(ms: f64) -> u64 {
    ms.round() as u64
}

fn kind(pair: &Pair) -> EncryptionKind {
    pair.encryption[0].kind
}

fn typed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The flights of a recorded TLS connection: each has its sender, its length and its bytes.
fn flights(recording: &[u8]) -> Vec<(ConnectionSide, &[u8])> {
    let (mut flights, mut rest) = (Vec::new(), &recording[1..]);
    while let Some(([tag, high, low], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        flights.push((if *tag == 0 { Client } else { Server }, bytes));
        rest = after;
    }
    flights
}

/// A recorded TLS connection behind PostgreSQL's request for TLS, with so many of its flights.
fn encrypted(recording: &[u8], most: usize) -> Exchange {
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
fn plain() -> Exchange {
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

#[test]
fn queries_and_phases_of_a_plain_connection_are_those_that_were_sent() {
    let pair = plain().pair();
    assert_eq!((kind(&pair), pair.queries.as_ref().unwrap().median), (EncryptionKind::None, 2));
    assert_eq!(whole(pair.round_trip_ms.unwrap().median), 2);
    // From SYN to the answer, and from there to the client: SYN-ACK to ACK.
    assert_eq!(whole(pair.connect_ms.unwrap().median), 4 + 1);
}

#[test]
fn what_was_not_captured_whole_is_no_failure() {
    for recording in [&recording!("tls12")[..], recording!("tls13"), recording!("tls13_retry")] {
        let exchange = encrypted(recording, WHOLE);
        assert_eq!(kind(&exchange.pair()), EncryptionKind::Tls);
        for snap_bytes in [60, 96, 200] {
            let pair = only_pair(exchange.observed(snap_bytes, None));
            assert_ne!(kind(&pair), EncryptionKind::TlsFailed, "{snap_bytes}");
            assert_eq!(pair.connections.unread, 1, "{snap_bytes}");
            assert_eq!(pair.failures, [], "{snap_bytes}");
        }
        // The hellos, each lost.
        for lost in [5, 6] {
            let pair = only_pair(exchange.observed(WHOLE, Some(lost)));
            assert_eq!((pair.connections.unread, &pair.failures[..]), (1, &[][..]), "{lost}");
        }
    }
}

#[test]
fn a_login_that_was_seen_without_encryption_stays_so_if_a_packet_is_lost() {
    let pair = only_pair(plain().observed(WHOLE, Some(6)));
    assert_eq!((kind(&pair), pair.connections.unread), (EncryptionKind::None, 1));
}

#[test]
fn a_client_that_closes_after_the_handshake_did_not_log_in() {
    for (recording, flights) in [(&recording!("tls12")[..], 4), (&recording!("tls13")[..], 3)] {
        let pair = encrypted(recording, flights).pair();
        assert_eq!(kind(&pair), EncryptionKind::Tls);
        assert!(pair.failures[0].reason.contains("after the TLS handshake, before a login"), "{pair:?}");
    }
}

/// Up to TLS 1.2 the client waits for the server's Finished.
#[test]
fn a_full_handshake_ends_with_the_later_finished() {
    let pair = encrypted(recording!("tls12"), WHOLE).pair();
    let tls = pair.phases.iter().find(|phase| phase.phase == "tls_handshake").unwrap();
    // Four flights, a millisecond apart, and the way from the observer to the client and back.
    assert_eq!(whole(tls.ms.median), 3 + 1);
}

/// Whoever listens has it, although the server did not take it.
#[test]
fn a_password_in_clear_is_found_if_the_login_is_refused_too() {
    let mut exchange = Exchange::open();
    exchange.send(Client, b"\0\0\0\x12\0\x03\0\0user\0app\0\0");
    exchange.send(Server, &typed(b'R', &[0, 0, 0, 3]));
    exchange.send(Client, &typed(b'p', b"secret\0"));
    exchange.send(Server, &typed(b'E', b"SFATAL\0C28P01\0\0"));
    exchange.close(Server);
    let observation = exchange.observed(WHOLE, None);
    assert_eq!(observation.findings[0].kind, FindingKind::PasswordInClear);
    let document = format!("{observation:?}{}", ciphertoll_observe::first_screen(&observation));
    assert!(document.contains("28P01") && !document.contains("secret") && !document.contains("app\""));
}
