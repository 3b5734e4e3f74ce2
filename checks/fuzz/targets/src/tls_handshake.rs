//! Arbitrary bytes in both directions through the observer of TLS handshakes, at once and in portions, with the same
//! result, which is bounded.
//!
//! Input: one byte for the portion size, then flights: one byte for the sender and for whether the bytes were captured,
//! two bytes for the length, then the bytes if they were captured.

use ciphertoll_wire::tls::{ConnectionSide, HandshakeObserver, RecordTally, Stage, TlsEvent, TlsHandshake};

struct Flight<'a> {
    from: ConnectionSide,
    bytes: &'a [u8],
    missing: u16,
}

pub fn run(data: &[u8]) {
    let Some((&size, input)) = data.split_first() else { return };
    let flights = flights(input);
    let whole = observe(&flights, usize::MAX);
    assert_eq!(whole, observe(&flights, usize::from(size).max(1)));
    let (handshake, (client, server), events) = whole;
    let application = events.iter().filter(|event| matches!(event, TlsEvent::ApplicationData { .. }));
    assert_eq!(client.records + server.records, application.count() as u64);
    if let Some(offer) = &handshake.offer {
        assert!(offer.suites.len() <= 512 && offer.groups.len() <= 64 && offer.signatures.len() <= 64);
        assert!(offer.key_shares.len() <= 8);
    }
    let certificates = &handshake.certificates;
    assert!(certificates.len() <= 10 && certificates.iter().map(Vec::len).sum::<usize>() <= 64 << 10);
    assert!(handshake.stage != Stage::Established || handshake.selected.is_some());
}

fn flights(mut input: &[u8]) -> Vec<Flight<'_>> {
    let mut flights = Vec::new();
    while let Some(([tag, high, low], rest)) = input.split_first_chunk() {
        let from = if tag & 1 == 0 { ConnectionSide::Client } else { ConnectionSide::Server };
        let length = u16::from_be_bytes([*high, *low]);
        let is_missing = tag & 2 != 0;
        let (bytes, rest) = rest.split_at(if is_missing { 0 } else { rest.len().min(usize::from(length)) });
        flights.push(Flight { from, bytes, missing: if is_missing { length } else { 0 } });
        input = rest;
    }
    flights
}

fn observe(flights: &[Flight], size: usize) -> (TlsHandshake, (RecordTally, RecordTally), Vec<TlsEvent>) {
    let mut observer = HandshakeObserver::new();
    let mut events = Vec::new();
    let mut on_event = |event| events.push(event);
    for Flight { from, bytes, missing } in flights {
        for portion in bytes.chunks(size) {
            match from {
                ConnectionSide::Client => observer.client(portion, &mut on_event),
                ConnectionSide::Server => observer.server(portion, &mut on_event),
            }
        }
        match from {
            ConnectionSide::Client => observer.client_missing(u64::from(*missing), &mut on_event),
            ConnectionSide::Server => observer.server_missing(u64::from(*missing), &mut on_event),
        }
    }
    (observer.handshake().clone(), observer.application_records(), events)
}
