//! How much memory connections take.

use ConnectionSide::{Client, Server};

use super::*;
use crate::frame::TcpFlags;
use crate::memory::MAX_SHARED_BYTES;

const MIB: usize = 1 << 20;
const FLOWS: u32 = 2_000;

/// What a side sends; a SYN if it is empty.
type Sent<'a> = (ConnectionSide, &'a [u8]);

/// Follows this many connections, each of which has sent this.
fn following(flows: u32, sent: &[Sent<'_>]) -> Observer {
    following_with(AccountNames::Ignored, flows, sent)
}

fn following_with(names: AccountNames, flows: u32, sent: &[Sent<'_>]) -> Observer {
    let mut observer = Observer::new(Ports::from_iter([(5432, Some(DatabaseProtocol::Postgres))]), names);
    for flow in 0..flows {
        let client = SocketAddr::from(([10, 0, (flow >> 8) as u8, flow as u8], 40_000 + (flow >> 16) as u16));
        let server = SocketAddr::from(([10, 1, 0, 1], 5432));
        let mut next = [0; 2];
        for (side, payload) in sent {
            let (source, destination) = if *side == Client { (client, server) } else { (server, client) };
            let is_first = next[*side as usize] == 0;
            let segment = Segment {
                time_ns: flow.into(),
                interface: 0,
                direction: None,
                source,
                destination,
                sequence: next[*side as usize],
                acknowledgement: (*side == Server || !is_first).then_some(next[side.other() as usize]),
                flags: TcpFlags { syn: is_first, ..TcpFlags::default() },
                payload,
                payload_bytes: payload.len() as u32,
            };
            next[*side as usize] += payload.len() as u32 + u32::from(is_first);
            observer.segment(&segment, |_, _| ());
        }
    }
    observer
}

const HANDSHAKE: [Sent<'static>; 3] = [(Client, b""), (Server, b""), (Client, b"")];
const TLS_REQUEST: [Sent<'static>; 2] = [(Client, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]), (Server, b"S")];

/// The flights of a recorded TLS connection.
fn flights(recording: &'static [u8]) -> Vec<Sent<'static>> {
    let (mut flights, mut rest) = (Vec::new(), &recording[1..]);
    while let Some(([tag, high, low], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        flights.push((if *tag == 0 { Client } else { Server }, bytes));
        rest = after;
    }
    flights
}

fn tls(recording: &'static [u8], most: usize) -> Vec<Sent<'static>> {
    let flights: Vec<_> = flights(recording).into_iter().take(most).collect();
    [&HANDSHAKE[..], &TLS_REQUEST, &flights].concat()
}

fn plain() -> Vec<Sent<'static>> {
    let login = [
        (Client, &b"\0\0\0\x12\0\x03\0\0user\0app\0\0"[..]),
        (Server, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"),
        (Client, b"Q\0\0\0\x0dSELECT 1\0"),
        (Server, b"Z\0\0\0\x05I"),
    ];
    [&HANDSHAKE[..], &login].concat()
}

const TLS_1_2: &[u8] = include_bytes!("../../../../checks/fuzz/seeds/tls_handshake/tls12");
const TLS_1_3: &[u8] = include_bytes!("../../../../checks/fuzz/seeds/tls_handshake/tls13");

/// Bytes of each of many connections, with its part of a table that has just grown.
fn bytes_each(sent: &[Sent<'_>]) -> usize {
    bytes_each_with(AccountNames::Ignored, sent)
}

fn bytes_each_with(names: AccountNames, sent: &[Sent<'_>]) -> usize {
    let observer = following_with(names, FLOWS, sent);
    assert_eq!(observer.open.len(), FLOWS as usize);
    let counted: usize = observer.open.values().map(|flow| TABLE_BYTES + flow.heap_bytes()).sum();
    assert_eq!(observer.flow_bytes, counted, "what is counted step by step is what there is");
    counted / FLOWS as usize
}

#[test]
fn a_half_open_connection_takes_at_most_200_bytes() {
    assert!(bytes_each(&HANDSHAKE[..1]) <= 200, "{}", bytes_each(&HANDSHAKE[..1]));
    assert_eq!(bytes_each(&HANDSHAKE), bytes_each(&HANDSHAKE[..1]));
}

#[test]
fn as_many_connections_as_are_followed_fit_into_64_mib() {
    for (name, sent) in [
        ("plain", plain()),
        ("TLS 1.2", tls(TLS_1_2, usize::MAX)),
        ("TLS 1.3", tls(TLS_1_3, usize::MAX)),
        ("a ClientHello", tls(TLS_1_3, 1)),
    ] {
        let each = bytes_each(&sent);
        assert!(MAX_OPEN * each <= MAX_FLOW_BYTES, "{name}: {each} bytes each");
    }
    // Beyond that: what connections share, and the old half of a table that grows.
    let growth = MAX_OPEN * (size_of::<Endpoints>() + size_of::<Flow>());
    assert!(MAX_FLOW_BYTES + MAX_SHARED_BYTES + growth / 2 <= 64 * MIB);
}

#[test]
fn names_of_open_connections_are_counted() {
    let bytes = |names| bytes_each_with(names, &plain());
    let names = bytes(AccountNames::Read) - bytes(AccountNames::Ignored);
    assert!((64..=160).contains(&names), "{names} bytes each");
}

/// Each has sent the start of a message, which is kept until it is whole.
#[test]
fn connections_give_way_if_they_hold_too_much() {
    let cut = [&[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb][..], &[0; 12_000]].concat();
    let sent = [&HANDSHAKE[..], &[(Client, &cut)]].concat();
    let observer = following(8_000, &sent);
    assert!(observer.flow_bytes <= MAX_FLOW_BYTES);
    assert!(observer.counts.evicted > 1_000 && observer.open.len() > 2_000, "{:?}", observer.counts);
}
