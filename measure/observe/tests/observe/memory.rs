//! Floods, which must leave real connections counted.

use ciphertoll_wire::passive::ConnectionSide;
use ciphertoll_wire::tls::{NamedGroup, ProbeHello};

use ConnectionSide::{Client, Server};

use crate::exchange::{
    Exchange, WHOLE, encrypted, finish, flights, observed_all, only_pair, plain, recording, watch_frame,
};
use crate::packets::{ACK, SYN};

/// More than are followed at a time.
const FLOOD: u32 = 102_000;
/// A client that does not belong to the flood.
const LATE: u32 = 65_500 << 8;

/// The first frames of a connection; `client` is in the addresses and ports of the others.
fn flood_of(exchange: &Exchange, client: u32) -> Vec<Vec<u8>> {
    let mut frames = exchange.frames.clone();
    let [_, network, host, port] = client.to_be_bytes();
    for frame in &mut frames {
        let is_client = frame[15] == 1;
        let (address, ports) = if is_client { (13, 20) } else { (17, 22) };
        frame[address..address + 2].copy_from_slice(&[network, host]);
        frame[ports..ports + 2].copy_from_slice(&(20_000 + u16::from(port)).to_be_bytes());
    }
    frames
}

/// Begins a real connection, floods, and ends it. Behind the flood, another client comes.
fn survives(flood: &Exchange) {
    let real = plain();
    let mut watch = real.watch();
    let mut now = 0;
    let mut frame = |watch: &mut ciphertoll_observe::Watch, data: &[u8]| {
        now += 1_000;
        watch_frame(watch, now, data, data.len());
    };
    let (begin, end) = real.frames.split_at(6);
    for data in begin {
        frame(&mut watch, data);
    }
    for client in 0..FLOOD {
        // More addresses than pairs are told apart.
        for data in flood_of(flood, ((client % 65_000) << 8) | (client / 65_000)) {
            frame(&mut watch, &data);
        }
    }
    for data in end {
        frame(&mut watch, data);
    }
    for data in flood_of(&plain(), LATE) {
        frame(&mut watch, &data);
    }
    let observation = finish(watch);
    assert!(observation.evicted > 0);
    let is_real = |queries: &ciphertoll_observe::Queries| queries.max == 2;
    let real = observation.pairs.iter().filter(|pair| pair.queries.as_ref().is_some_and(is_real));
    let mut found: Vec<_> = real.map(|pair| (&pair.client[..], pair.connections.sessions)).collect();
    found.sort_unstable();
    assert_eq!(found, [("10.0.0.1", 1), ("10.255.220.1", 1)]);
}

#[test]
fn a_flood_of_syns_leaves_real_connections_counted() {
    let mut syn = Exchange::default();
    syn.segment(Client, SYN, b"");
    survives(&syn);
}

#[test]
fn a_flood_of_client_hellos_leaves_real_connections_counted() {
    let mut hello = Exchange::default();
    hello.segment(Client, SYN, b"");
    hello.segment(Server, SYN | ACK, b"");
    hello.send(Client, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]);
    hello.send(Server, b"S");
    hello.send(Client, flights(recording!("tls13"))[0].1);
    survives(&hello);
}

/// The addresses are invented: they are no clients, and would fill memory.
#[test]
fn clients_of_a_flood_of_syns_are_no_pairs_without_end() {
    let mut syn = Exchange::default();
    syn.segment(Client, SYN, b"");
    let mut watch = syn.watch();
    for client in 0..FLOOD {
        let data = &flood_of(&syn, client << 8 | client >> 16)[0];
        watch_frame(&mut watch, u64::from(client), data, data.len());
    }
    let observation = finish(watch);
    assert!(observation.pairs.len() <= 10_000, "{}", observation.pairs.len());
    assert!(observation.uncounted + observation.evicted > 90_000);
}

/// A client may offer whatever it likes: what is kept of it is bounded, and every connection is counted.
#[test]
fn a_client_with_ever_new_offers_has_few_kinds_of_encryption() {
    const CONNECTIONS: u16 = 300;
    let connection = |offer: u16| {
        let mut exchange = Exchange { client: u32::from(offer) % 200, ..Exchange::default() };
        let mut hello = Vec::new();
        ProbeHello::Groups(&[NamedGroup(offer)]).encode([0; 32], None, &mut hello);
        exchange.segment(Client, SYN, b"");
        exchange.segment(Server, SYN | ACK, b"");
        exchange.send(Client, &hello);
        exchange.close(Client);
        exchange
    };
    let exchanges: Vec<_> = (0..CONNECTIONS).map(connection).collect();
    let pair = only_pair(observed_all(&exchanges));
    let connections: u64 = pair.encryption.iter().map(|kind| kind.connections).sum();
    assert_eq!((connections, pair.connections.begun), (u64::from(CONNECTIONS), u64::from(CONNECTIONS)));
    assert_eq!(pair.encryption.len(), 101);
    let rest = &pair.encryption[0];
    assert_eq!((rest.connections, rest.offered_groups.len()), (200, 0));
}

#[test]
fn an_established_connection_is_still_followed_behind_its_login() {
    let pair = encrypted(recording!("tls13"), WHOLE).pair();
    assert_eq!(pair.connections.unread, 0, "{pair:?}");
}
