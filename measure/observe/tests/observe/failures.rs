//! Connections that fail, and what is said of those that did not encrypt.

use ciphertoll_observe::{EncryptionKind, FindingKind, Share};
use ciphertoll_wire::passive::{ConnectionSide, DatabaseProtocol};

use ConnectionSide::{Client, Server};

use crate::exchange::{
    Exchange, FIN, WHOLE, encrypted, flights, kind, observed_all, plain, recording, typed,
};
use crate::packets::ACK;

const STARTUP: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0app\0\0";

fn kinds(exchange: &Exchange) -> Vec<FindingKind> {
    exchange.observed(WHOLE, None).findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_client_that_the_server_refused_for_want_of_encryption_is_a_failure_only() {
    let mut exchange = Exchange::open();
    exchange.send(Client, STARTUP);
    exchange.send(Server, &typed(b'E', b"SFATAL\0C28000\0Mno pg_hba.conf entry, no encryption\0\0"));
    exchange.close(Server);
    assert_eq!(kinds(&exchange), [FindingKind::HandshakesFail]);
    let pair = exchange.pair();
    assert_eq!(kind(&pair), EncryptionKind::Rejected);
    assert!(pair.failures[0].reason.starts_with("refused: 28000: pg_hba.conf has no entry"), "{pair:?}");
}

/// psql has no password, asks its user, and connects again.
#[test]
fn a_client_that_closes_when_it_is_asked_for_a_password_sent_none() {
    let mut exchange = Exchange::open();
    exchange.send(Client, STARTUP);
    exchange.send(Server, &typed(b'R', &[0, 0, 0, 3]));
    exchange.close(Client);
    assert_eq!(kinds(&exchange), [FindingKind::HandshakesFail]);
}

fn mysql_greeting() -> Vec<u8> {
    let mut payload = b"\x0a8.0.36\0\x07\0\0\0ABCDEFGH\0\xff\xff\x2d\x02\0\xff\xdf\x15".to_vec();
    payload.extend([0; 10]);
    payload.extend(b"IJKLMNOPQRST\0caching_sha2_password\0");
    packet(0, &payload)
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let [low, middle, high, _] = (payload.len() as u32).to_le_bytes();
    [&[low, middle, high, sequence][..], payload].concat()
}

/// A login to MySQL with this plugin, which is refused with this code.
fn refused_by_mysql(plugin: &str, code: u16) -> Exchange {
    let mut login = b"\x85\xa2\x2a\0\0\0\0\x01\x2d".to_vec();
    login.extend([0; 23]);
    login.extend(b"app\0\x20");
    login.extend([7; 32]);
    login.extend(plugin.as_bytes());
    login.push(0);
    let mut exchange = Exchange::open();
    exchange.protocol = Some(DatabaseProtocol::MySql);
    exchange.send(Server, &mysql_greeting());
    exchange.send(Client, &packet(1, &login));
    let [low, high] = code.to_le_bytes();
    exchange.send(Server, &packet(2, &[&[0xff, low, high][..], b"#08004refused"].concat()));
    exchange.close(Server);
    exchange
}

#[test]
fn what_mysql_refuses_for_want_of_tls_is_a_failure_unless_a_hash_was_sent() {
    let exchange = refused_by_mysql("caching_sha2_password", 3159);
    assert_eq!(kinds(&exchange), [FindingKind::HandshakesFail]);
    assert_eq!(exchange.pair().failures[0].reason, "refused: 3159: the server requires TLS");
    let weak = refused_by_mysql("mysql_native_password", 3159);
    assert_eq!(kinds(&weak)[0], FindingKind::PasswordWeaklyHashed);
    let other = refused_by_mysql("caching_sha2_password", 1045);
    assert_eq!(kinds(&other), [FindingKind::NotEncrypted, FindingKind::HandshakesFail]);
}

/// A client that gives up, and closes before it has read why.
#[test]
fn a_servers_alert_behind_a_clients_fin_is_the_reason() {
    let mut exchange = Exchange::open();
    exchange.send(Client, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]);
    exchange.send(Server, b"S");
    exchange.send(Client, flights(recording!("tls12"))[0].1);
    exchange.segment(Client, ACK | FIN, b"");
    exchange.send(Server, &[21, 3, 3, 0, 2, 2, 70]);
    exchange.segment(Server, ACK | FIN, b"");
    assert_eq!(exchange.pair().failures[0].reason, "TLS alert by the server: protocol_version");
}

/// TLS 1.3: a server that refuses the client's certificate says so behind the client's Finished.
#[test]
fn a_servers_encrypted_alert_is_the_reason_wherever_the_client_is() {
    let alert = [&[23, 3, 3, 0, 19][..], &[7; 19]].concat();
    let behind = |flights: usize, client_closes_first: bool| {
        let mut exchange = encrypted(recording!("tls13"), flights);
        // Without the two segments that close it.
        exchange.frames.truncate(exchange.frames.len() - 2);
        exchange.rewind_ends();
        if client_closes_first {
            exchange.segment(Client, ACK | FIN, b"");
        }
        exchange.send(Server, &alert);
        exchange.segment(Server, ACK | FIN, b"");
        if !client_closes_first {
            exchange.segment(Client, ACK | FIN, b"");
        }
        exchange.pair().failures[0].reason.clone()
    };
    for client_closes_first in [false, true] {
        let reason = behind(3, client_closes_first);
        assert!(reason.starts_with("TLS alert by the server, encrypted"), "{reason}");
    }
}

/// What connections cost is that of sessions: health checks that only open and close a connection have no login and no queries.
#[test]
fn connections_that_fail_are_no_sessions() {
    let mut probe = Exchange::open();
    probe.close(Client);
    let mut refused = Exchange::open();
    refused.send(Client, STARTUP);
    refused.send(Server, &typed(b'E', b"SFATAL\0C28P01\0Mpassword authentication failed\0\0"));
    refused.close(Server);
    let mut before = Exchange::default();
    before.segment(Client, ACK, b"Q");
    let seen = observed_all(&[plain(), probe, refused, plain(), before]);
    let [load] = &seen.loads()[..] else { panic!("{seen:?}") };
    assert_eq!((seen.pairs[0].connections.begun, load.sessions, load.began_before), (4, 2, 1), "{seen:?}");
    assert!((load.sessions_per_s * seen.seconds - 2.0).abs() < 1e-9, "{load:?}");
    assert_eq!(load.queries, [Share { queries: 2, connections: 2 }]);
    assert_eq!(load.encryption.iter().map(|seen| seen.sessions).sum::<u64>(), 2, "{load:?}");
}
