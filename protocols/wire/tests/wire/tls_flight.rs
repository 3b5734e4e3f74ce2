//! The observer on real OpenSSL handshakes in memory, with generated certificates.

use ciphertoll_vocabulary::Group;
use ciphertoll_wire::tls::{ConnectionSide, Flight, FlightObserver, NamedGroup, SignatureScheme};
use openssl::ssl::{SslContext, SslContextBuilder, SslVersion};

use crate::tls_memory::{client_context, converse, only, server_context};

const AES_256_GCM_1_3: u16 = 0x1302;
const ECDHE_RSA_AES256_GCM: u16 = 0xc030;
const DHE_RSA_AES256_GCM: u16 = 0x009f;
const RSA_AES256_GCM: u16 = 0x009d;
const RSA_PSS_SHA256: u16 = 0x0804;

/// The server's bytes of one handshake.
fn handshake(server: &SslContext, client: &SslContext) -> Vec<u8> {
    let conversation = converse(server, client, 0);
    assert!(conversation.is_established, "the handshake did not end");
    let by_server = conversation.flights.into_iter().filter(|(from, _)| *from == ConnectionSide::Server);
    by_server.flat_map(|(_, bytes)| bytes).collect()
}

/// The flight, read at once. Asserts that every other split gives the same.
fn observe(sent: &[u8]) -> Flight {
    let observed = |size: usize| {
        let mut observer = FlightObserver::new();
        for portion in sent.chunks(size) {
            observer.feed(portion);
        }
        assert!(observer.finished());
        observer.flight()
    };
    let whole = observed(sent.len());
    for size in [1, 2, 3, 5, 7, 100, 1460] {
        assert_eq!(observed(size), whole);
    }
    whole
}

fn flight(version: SslVersion, server_groups: &str, client_groups: &str) -> Flight {
    let server = server_context(|context| context.set_groups_list(server_groups).unwrap());
    let client = client_context(|context| {
        only(version)(context);
        context.set_groups_list(client_groups).unwrap();
    });
    observe(&handshake(&server, &client))
}

#[test]
fn tls_1_3() {
    for (groups, group) in [("P-256", Group::P256), ("X25519", Group::X25519), ("P-521", Group::P521)] {
        let expected = Flight {
            hello_retry: false,
            group: Some(group.into()),
            version: Some(0x0304),
            cipher_suite: Some(AES_256_GCM_1_3),
            signature: None,
        };
        assert_eq!(flight(SslVersion::TLS1_3, groups, groups), expected);
    }
}

#[test]
fn tls_1_3_with_a_hello_retry() {
    let expected = Flight {
        hello_retry: true,
        group: Some(Group::P256.into()),
        version: Some(0x0304),
        cipher_suite: Some(AES_256_GCM_1_3),
        signature: None,
    };
    assert_eq!(flight(SslVersion::TLS1_3, "P-256", "X25519:P-256"), expected);
}

#[test]
fn tls_1_2_with_a_curve() {
    for (groups, group) in [("P-256", Group::P256), ("X25519", Group::X25519)] {
        let expected = Flight {
            hello_retry: false,
            group: Some(group.into()),
            version: Some(0x0303),
            cipher_suite: Some(ECDHE_RSA_AES256_GCM),
            signature: Some(SignatureScheme(RSA_PSS_SHA256)),
        };
        assert_eq!(flight(SslVersion::TLS1_2, "X25519:P-256", groups), expected);
    }
}

#[test]
fn tls_1_2_without_a_curve() {
    let server = server_context(|context| {
        context.set_tmp_dh(&openssl::dh::Dh::get_2048_256().unwrap()).unwrap();
    });
    for (name, cipher_suite) in
        [("DHE-RSA-AES256-GCM-SHA384", DHE_RSA_AES256_GCM), ("AES256-GCM-SHA384", RSA_AES256_GCM)]
    {
        let client = client_context(|context| {
            only(SslVersion::TLS1_2)(context);
            context.set_cipher_list(name).unwrap();
        });
        let expected = Flight {
            hello_retry: false,
            group: None,
            version: Some(0x0303),
            cipher_suite: Some(cipher_suite),
            signature: None,
        };
        assert_eq!(observe(&handshake(&server, &client)), expected);
    }
}

#[test]
fn a_resumed_tls_1_2_session_has_no_group() {
    let server = server_context(|_| {});
    let client = client_context(only(SslVersion::TLS1_2));
    let full = handshake(&server, &client);
    // A recorded ServerHello, then what follows it in a resumed session.
    let hello_message_bytes = 4 + usize::from(u16::from_be_bytes([full[7], full[8]]));
    let mut resumed = vec![22, 3, 3];
    resumed.extend_from_slice(&(hello_message_bytes as u16).to_be_bytes());
    resumed.extend_from_slice(&full[5..5 + hello_message_bytes]);
    resumed.extend_from_slice(&[22, 3, 3, 0, 10, 4, 0, 0, 6, 0, 0, 0, 9, 0, 0]);
    resumed.extend_from_slice(&[20, 3, 3, 0, 1, 1]);
    let expected = Flight { group: None, signature: None, ..observe(&full) };
    assert_eq!(observe(&resumed), expected);
}

#[test]
fn versions_before_1_2_sign_without_naming_a_scheme() {
    let weak = |context: &mut SslContextBuilder| context.set_security_level(0);
    let server = server_context(weak);
    let client = client_context(|context| {
        weak(context);
        only(SslVersion::TLS1_1)(context);
    });
    let flight = observe(&handshake(&server, &client));
    assert_eq!((flight.version, flight.signature), (Some(0x0302), None));
    assert_eq!(flight.group, Some(Group::X25519.into()));
}

#[test]
fn a_key_exchange_without_a_signature_still_shows_its_group() {
    let hello = [&[22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3][..], &[0; 33], &[0xc0, 0x18, 0]].concat();
    let exchange = [&[22, 3, 3, 0, 8, 12, 0, 0, 4][..], &[3, 0, 29, 0]].concat();
    let flight = observe(&[hello, exchange].concat());
    assert_eq!((flight.group, flight.signature), (Some(Group::X25519.into()), None));
}

#[test]
fn it_stops_when_everything_is_known() {
    let server = server_context(|_| {});
    let sent = handshake(&server, &client_context(only(SslVersion::TLS1_3)));
    let hello_bytes = 5 + usize::from(u16::from_be_bytes([sent[3], sent[4]]));
    let mut observer = FlightObserver::new();
    observer.feed(&sent[..hello_bytes - 1]);
    assert!(!observer.finished());
    observer.feed(&sent[hello_bytes - 1..hello_bytes]);
    assert!(observer.finished());
}

#[test]
fn other_protocols_reveal_nothing() {
    for bytes in
        [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\x15\x03\x01\0\x02\x02\x28", b"\x16\x03\x03\xff\xff"]
    {
        let mut observer = FlightObserver::new();
        observer.feed(bytes);
        assert!(observer.finished(), "{bytes:?}");
        assert_eq!(observer.flight(), Flight::default());
    }
}

#[test]
fn a_huge_hello_is_not_buffered() {
    let mut observer = FlightObserver::new();
    observer.feed(&[22, 3, 3, 0x40, 0, 2, 0xff, 0xff, 0xff]);
    assert!(observer.finished());
}

#[test]
fn labels() {
    let labels = [0x001d, 0x0017, 0x0018, 0x0019, 0x11ec, 0x4242].map(|number| NamedGroup(number).label());
    assert_eq!(labels, ["x25519", "p256", "p384", "p521", "x25519mlkem768", "0x4242"]);
}

#[test]
fn signature_schemes() {
    let labels = [0x0403, 0x0804, 0x0905, 0x0301].map(|number| SignatureScheme(number).label());
    assert_eq!(labels, ["ecdsa_secp256r1_sha256", "rsa_pss_rsae_sha256", "mldsa65", "0x0301"]);
    let of_key = |key| SignatureScheme::of_key(key).map(SignatureScheme::label);
    assert_eq!(of_key("p384").as_deref(), Some("ecdsa_secp384r1_sha384"));
    assert_eq!(of_key("mldsa44").as_deref(), Some("mldsa44"));
    assert_eq!(of_key("rsa2048"), None);
}
