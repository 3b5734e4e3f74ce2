//! Recorded connections with two requests, which are also inputs of the fuzz target `tls_handshake`: OpenSSL 3.0
//! (Python's `ssl`) or rustls 0.23 at both ends. The safe interface of OpenSSL's crate cannot resume a session.

use ciphertoll_vocabulary::Group;
use ciphertoll_wire::tls::{
    ClientAuthentication, ConnectionSide, HandshakeObserver, KeyExchangeGroup, Stage, TlsEvent, TlsHandshake,
};

use ConnectionSide::{Client, Server};

/// The bytes of two requests, of two answers, and of an authentication tag with what else TLS adds to a record.
const REQUEST_BYTES: u16 = 30;
const ANSWER_BYTES: u16 = 50;
const ADDED_BYTES_1_2: u16 = 8 + 16;
const ADDED_BYTES_1_3: u16 = 1 + 16;

macro_rules! recording {
    ($name:literal) => {
        include_bytes!(concat!("../../../../checks/fuzz/seeds/tls_handshake/", $name))
    };
}

const FULL_1_2: &[u8] = recording!("tls12");
const BY_TICKET: &[u8] = recording!("tls12_resumed_by_ticket");
const BY_ID: &[u8] = recording!("tls12_resumed_by_id");
const FULL_1_3: &[u8] = recording!("tls13");
const RESUMED_1_3: &[u8] = recording!("tls13_resumed");
const RETRIED_1_3: &[u8] = recording!("tls13_retry");
const RUSTLS_RESUMED_1_2: &[u8] = recording!("rustls_tls12_resumed");
const RUSTLS_FULL_1_3: &[u8] = recording!("rustls_tls13");
const RUSTLS_RESUMED_1_3: &[u8] = recording!("rustls_tls13_resumed");
const RUSTLS_DISTRUSTED_1_3: &[u8] = recording!("rustls_tls13_distrusted");

/// The flights of a recording: after one byte for the fuzz target, each has its sender, its length and its bytes.
fn flights(recording: &[u8]) -> Vec<(ConnectionSide, &[u8])> {
    let mut flights = Vec::new();
    let mut rest = &recording[1..];
    while let Some(([tag, high, low], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        flights.push((if *tag == 0 { Client } else { Server }, bytes));
        rest = after;
    }
    flights
}

fn observe(recording: &[u8]) -> (TlsHandshake, Vec<TlsEvent>) {
    let mut observer = HandshakeObserver::new();
    let mut events = Vec::new();
    for (from, bytes) in flights(recording) {
        let mut on_event = |event| events.push(event);
        match from {
            Client => observer.client(bytes, &mut on_event),
            Server => observer.server(bytes, &mut on_event),
        }
    }
    (observer.handshake().clone(), events)
}

fn two_requests(added_bytes: u16) -> Vec<TlsEvent> {
    let request = TlsEvent::ApplicationData { from: Client, bytes: REQUEST_BYTES + added_bytes };
    let answer = TlsEvent::ApplicationData { from: Server, bytes: ANSWER_BYTES + added_bytes };
    vec![request, answer, request, answer]
}

#[test]
fn a_full_handshake_of_tls_1_2() {
    let (handshake, events) = observe(FULL_1_2);
    assert_eq!(handshake.resumed, Some(false));
    assert!(!handshake.offer.unwrap().offers_session);
    assert_eq!(handshake.certificates.len(), 1);
    let first = [
        TlsEvent::ClientHello,
        TlsEvent::ServerHello,
        TlsEvent::Finished(Client),
        TlsEvent::Finished(Server),
    ];
    assert_eq!(events, [&first[..], &two_requests(ADDED_BYTES_1_2)].concat());
}

#[test]
fn a_resumed_session_of_tls_1_2_by_ticket_and_by_id() {
    for recording in [BY_TICKET, BY_ID, RUSTLS_RESUMED_1_2] {
        let (handshake, events) = observe(recording);
        assert_eq!(handshake.resumed, Some(true));
        assert_eq!(handshake.stage, Stage::Established);
        assert_eq!(handshake.client_certificate, ClientAuthentication::NotRequested);
        assert!(handshake.offer.unwrap().offers_session);
        let selected = handshake.selected.unwrap();
        assert_eq!((selected.version, selected.group, selected.signature), (0x0303, None, None));
        assert!(handshake.certificates.is_empty());
        let first = [
            TlsEvent::ClientHello,
            TlsEvent::ServerHello,
            TlsEvent::Finished(Server),
            TlsEvent::Finished(Client),
        ];
        assert_eq!(events, [&first[..], &two_requests(ADDED_BYTES_1_2)].concat());
    }
}

#[test]
fn full_and_resumed_handshakes_of_tls_1_3() {
    let (curve, hybrid) = (Group::X25519, Group::X25519MlKem768);
    for (recording, is_resumed, group) in [
        (FULL_1_3, false, curve),
        (RESUMED_1_3, true, curve),
        (RUSTLS_FULL_1_3, false, hybrid),
        (RUSTLS_RESUMED_1_3, true, hybrid),
    ] {
        let (handshake, events) = observe(recording);
        assert_eq!(handshake.resumed, Some(is_resumed));
        assert_eq!(handshake.offer.unwrap().offers_session, is_resumed);
        let group = KeyExchangeGroup::Named(group.into());
        assert_eq!(handshake.selected.unwrap().group, Some(group), "a resumed session has one, too");
        let first = [TlsEvent::ClientHello, TlsEvent::ServerHello, TlsEvent::Finished(Client)];
        assert_eq!(events[..3], first);
        // Session tickets, then requests and answers.
        let requests: Vec<TlsEvent> = events[3..]
            .iter()
            .skip_while(|event| matches!(event, TlsEvent::ApplicationData { from: Server, .. }))
            .copied()
            .collect();
        assert_eq!(requests, two_requests(ADDED_BYTES_1_3));
    }
}

#[test]
fn a_hello_retry_request_comes_between_two_client_hellos() {
    let (handshake, events) = observe(RETRIED_1_3);
    let selected = handshake.selected.unwrap();
    assert!(selected.hello_retry);
    assert_eq!(selected.group, Some(KeyExchangeGroup::Named(Group::P384.into())));
    let shares: Vec<u16> = handshake.offer.unwrap().key_shares.iter().map(|share| share.group.0).collect();
    assert_eq!(shares, [Group::X25519.number()], "those of the first hello");
    let first = [
        TlsEvent::ClientHello,
        TlsEvent::HelloRetry,
        TlsEvent::ClientHello,
        TlsEvent::ServerHello,
        TlsEvent::Finished(Client),
    ];
    assert_eq!(events[..5], first);
}

#[test]
fn an_encrypted_alert_of_the_client_is_known_by_its_length() {
    let (handshake, events) = observe(RUSTLS_DISTRUSTED_1_3);
    assert_eq!((handshake.stage, handshake.alert), (Stage::Handshake, None));
    assert!(handshake.has_hidden_alert);
    assert_eq!(events, [TlsEvent::ClientHello, TlsEvent::ServerHello]);
}

#[test]
fn an_unknown_server_hello_makes_everything_of_the_server_unknown() {
    let mut observer = HandshakeObserver::new();
    let mut events = Vec::new();
    for (index, (from, bytes)) in flights(BY_TICKET).into_iter().enumerate() {
        let mut on_event = |event| events.push(event);
        match (index, from) {
            (1, Server) => {
                observer.server(&bytes[..20], &mut on_event);
                observer.server_missing(10, &mut on_event);
                observer.server(&bytes[30..], &mut on_event);
            }
            (_, Server) => observer.server(bytes, &mut on_event),
            (_, Client) => observer.client(bytes, &mut on_event),
        }
    }
    let handshake = observer.handshake();
    assert_eq!((handshake.selected, handshake.resumed), (None, None));
    assert_eq!(handshake.stage, Stage::AwaitServerHello);
    assert_eq!(events, [TlsEvent::ClientHello]);
}
