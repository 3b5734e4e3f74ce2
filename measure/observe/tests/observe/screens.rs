//! The first screen, and what is counted for it.

use ciphertoll_observe::{
    Connections, Encryption, EncryptionKind, FindingKind, Frame, LinkType, Observation, Pair, SkippedFrames,
    first_screen,
};
use ciphertoll_wire::passive::{ConnectionSide, DatabaseProtocol};

use ConnectionSide::Client;

use crate::exchange::{Exchange, WHOLE, encrypted, finish, observed_all, plain, recording, watch_frame};
use crate::packets::{ipv4, tcp};

fn of_client(client: u32) -> Exchange {
    let mut exchange = Exchange { client, ..Exchange::default() };
    exchange.segment(Client, crate::packets::SYN, b"");
    exchange.segment(ConnectionSide::Server, crate::packets::SYN | crate::packets::ACK, b"");
    exchange.send(Client, b"\0\0\0\x12\0\x03\0\0user\0app\0\0");
    exchange.send(ConnectionSide::Server, &crate::exchange::typed(b'R', &[0, 0, 0, 3]));
    exchange.send(Client, &crate::exchange::typed(b'p', b"secret\0"));
    exchange.send(ConnectionSide::Server, &crate::exchange::typed(b'R', &[0; 4]));
    exchange.send(ConnectionSide::Server, &crate::exchange::typed(b'Z', b"I"));
    exchange.close(Client);
    exchange
}

#[test]
fn the_same_finding_of_several_clients_is_one_line() {
    let exchanges: Vec<_> = (0..3).map(|host| of_client(host << 8)).collect();
    let observation = observed_all(&exchanges);
    assert_eq!(observation.pairs.len(), 3);
    assert_eq!(observation.findings.len(), 6);
    let screen = first_screen(&observation);
    let merged =
        "3 clients → 10.0.0.2:5432: 3 logins sent the password in clear (password), without encryption";
    assert!(screen.contains(merged), "{screen}");
}

#[test]
fn a_screen_has_25_lines_at_most_and_uses_them() {
    for clients in [1, 2, 5, 12, 40] {
        let exchanges: Vec<_> = (0..clients).map(|host| of_client(host << 8)).collect();
        let screen = first_screen(&observed_all(&exchanges));
        assert!(screen.lines().count() <= 25, "{screen}");
        assert!(screen.contains("→ 10.0.0.2:5432"), "{screen}");
        if clients >= 12 {
            assert_eq!(screen.lines().count(), 25, "{screen}");
            assert!(screen.contains(" more: --format json"), "{screen}");
        }
    }
}

#[test]
fn frames_that_are_not_read_are_counted_by_reason() {
    let exchange = plain();
    let mut watch = exchange.watch();
    for (at, frame) in exchange.frames.iter().enumerate() {
        watch_frame(&mut watch, at as u64, frame, frame.len());
    }
    let mut other = |link_type: u32, data: &[u8]| {
        let (link_type, wire_bytes) = (LinkType::from_number(link_type), data.len() as u32);
        watch.frame(&Frame { time_ns: 1, link_type, interface: 0, direction: None, wire_bytes, data });
    };
    other(127, b"radio");
    other(127, b"radio");
    let mut fragment = ipv4(6, &[], &tcp(0x10, &[], b""));
    fragment[6] = 0x20;
    other(101, &fragment);
    other(101, &ipv4(6, &[], &tcp(0x10, &[], b""))[..30]);
    other(101, &ipv4(17, &[], &[0; 8]));
    let observation = finish(watch);
    let expected = SkippedFrames {
        unknown_link_types: 2,
        link_type: Some(127),
        fragments: 1,
        truncated: 1,
        malformed: 0,
        other_protocols: 1,
    };
    assert_eq!(observation.skipped, Some(expected));
    let screen = first_screen(&observation);
    let line = "4 frames not read: 2 of an unknown link type (127), 1 of fragmented packets, 1 with a header that the snap length cuts";
    assert!(screen.contains(line), "{screen}");
    assert_eq!(plain().observed(WHOLE, None).skipped, None);
}

#[test]
fn the_ports_that_were_asked_for_are_named_if_nothing_was_seen() {
    let exchange = Exchange { protocol: Some(DatabaseProtocol::MySql), ..Exchange::default() };
    let screen = first_screen(&finish(exchange.watch()));
    assert!(
        screen.contains("no database connection on these ports: 5432=mysql; --port sets others"),
        "{screen}"
    );
}

#[test]
fn a_few_connects_have_no_rate() {
    let rate = |clients: u32| {
        let exchanges: Vec<_> = (0..clients).map(of_client).collect();
        observed_all(&exchanges).pairs[0].connects_per_s
    };
    assert_eq!(rate(4), None);
    assert!(rate(5).is_some());
}

#[test]
fn the_clients_own_time_is_a_part_of_the_connect() {
    let pair = plain().pair();
    let names: Vec<_> = pair.phases.iter().map(|phase| &phase.phase[..]).collect();
    assert_eq!(names, ["tcp_connect", "auth", "client", "first_query"]);
    let sum: f64 = pair.phases[..3].iter().map(|phase| phase.ms.median).sum();
    assert!((sum - pair.connect_ms.unwrap().median).abs() < 0.1, "{pair:?}");
    let screen = first_screen(&plain().observed(WHOLE, None));
    assert!(screen.contains("a connect takes 5.0 ms (medians): TCP 2.0, login"), "{screen}");
}

/// An observation of one connection with this encryption.
fn with(encryption: Encryption) -> Vec<(FindingKind, String)> {
    let pair = Pair {
        client: "10.0.0.1".to_owned(),
        server: "10.0.0.2:5432".to_owned(),
        client_name: None,
        server_name: None,
        protocol: None,
        connections: Connections { begun: 1, ..Connections::default() },
        connects_per_s: None,
        bytes: ciphertoll_observe::Bytes::default(),
        round_trip_ms: None,
        connect_ms: None,
        phases: Vec::new(),
        queries: None,
        encryption: vec![encryption],
        logins: Vec::new(),
        failures: Vec::new(),
        users: Vec::new(),
        other_users: 0,
        cost: None,
        processes: Vec::new(),
    };
    let observation = Observation { pairs: vec![pair], ..finish(Exchange::default().watch()) };
    let screen = first_screen(&observation);
    let lines = screen.lines().filter(|line| line.starts_with("  10.0.0.1"));
    lines.map(|line| (kind_of(line), line.split(": ").skip(1).collect::<Vec<_>>().join(": "))).collect()
}

fn kind_of(line: &str) -> FindingKind {
    match line {
        _ if line.contains("weak suite") => FindingKind::WeakSuite,
        _ if line.contains("forward secrecy") => FindingKind::NoForwardSecrecy,
        _ if line.contains("prime") => FindingKind::WeakGroup,
        _ if line.contains("key share") => FindingKind::UnusedKeyShare,
        _ => FindingKind::NotPostQuantum,
    }
}

fn tls(version: &str, suite: &str, group: Option<&str>) -> Encryption {
    let pair = encrypted(recording!("tls12"), WHOLE).pair();
    Encryption {
        kind: EncryptionKind::Tls,
        version: Some(version.to_owned()),
        suite: Some(suite.to_owned()),
        group: group.map(ToOwned::to_owned),
        unused_key_shares: 0,
        hello_retries: 0,
        certificate: None,
        ..pair.encryption[0].clone()
    }
}

#[test]
fn weak_suites_and_small_primes_are_found() {
    let weak = with(tls("tls1.2", "TLS_RSA_WITH_RC4_128_SHA", None));
    let kinds: Vec<_> = weak.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [FindingKind::WeakSuite, FindingKind::NoForwardSecrecy, FindingKind::NotPostQuantum]);
    let small = with(tls("tls1.2", "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", Some("dhe1024")));
    assert_eq!(small[0].1, "1 connection with a key exchange over a prime of only 1024 bits");
    let large = with(tls("tls1.2", "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", Some("dhe2048")));
    assert_eq!(large.len(), 1, "{large:?}");
}

#[test]
fn drafts_of_kyber_are_post_quantum() {
    for group in ["x25519kyber768draft00", "x25519mlkem768"] {
        assert_eq!(with(tls("tls1.3", "TLS_AES_128_GCM_SHA256", Some(group))), [], "{group}");
    }
}

#[test]
fn a_key_share_is_unused_for_another_reason_with_tls_1_2() {
    let unused = |encryption| with(Encryption { unused_key_shares: 1, ..encryption })[0].1.clone();
    let older = unused(tls("tls1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some("x25519")));
    assert!(older.contains("for TLS 1.3, and the server selected an older version"), "{older}");
    let same = unused(tls("tls1.3", "TLS_AES_128_GCM_SHA256", Some("p256")));
    assert!(same.contains("it selected p256"), "{same}");
}
