//! What is said of whole connections.

use ciphertoll_observe::{EncryptionKind, FindingKind};
use ciphertoll_wire::passive::ConnectionSide;

use ConnectionSide::{Client, Server};

use crate::exchange::{Exchange, WHOLE, encrypted, kind, only_pair, plain, recording, typed, whole};

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
