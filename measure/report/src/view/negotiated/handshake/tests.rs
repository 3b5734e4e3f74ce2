use super::*;

fn sized(first_flight_bytes: u64, segments: Option<u64>) -> HandshakeSize {
    HandshakeSize { read_bytes: 1_938, written_bytes: 1_621, first_flight_bytes, segments }
}

#[test]
fn segments_are_those_of_the_connection_and_of_ethernet() {
    let lead = "Handshake: 1 938 bytes read, 1 621 written; first flight";
    let words = [
        (sized(1_938, Some(1)), "1 938 bytes: 1 segment, 2 on Ethernet"),
        (sized(1_938, Some(2)), "1 938 bytes: 2 segments"),
        (sized(1_448, None), "1 448 bytes: 1 segment on Ethernet"),
        (sized(1_449, None), "1 449 bytes: 2 segments on Ethernet"),
    ];
    for (of, expected) in words {
        assert_eq!(size(&of), format!("{lead} {expected}"));
    }
}

#[test]
fn ten_segments_can_be_sent_at_once() {
    assert_eq!(extra_round_trip(&sized(14_480, Some(1))), None);
    assert!(extra_round_trip(&sized(14_481, Some(1))).unwrap().contains("10 Ethernet segments"));
}

fn leg(group: &str, unused: &[(&str, u16)], hello_retry: bool) -> Leg {
    let share = |(group, bytes): &(&str, u16)| KeyShare { group: (*group).to_owned(), bytes: *bytes };
    Leg {
        group: Some(group.to_owned()),
        library_version: None,
        unused_shares: unused.iter().map(share).collect(),
        hello_retry: Some(hello_retry),
        ..Leg::default()
    }
}

#[test]
fn the_setting_for_an_unused_share_is_the_engines() {
    let wasted = leg("x25519", &[("x25519mlkem768", 1_216)], false);
    let says = |engine, version| unused_share(&wasted, engine, version).unwrap();
    let postgres = says(Engine::Postgres, Some("18.1"));
    assert_eq!(
        postgres,
        "The client sent an ML-KEM key share of 1 216 bytes that the server did not use: set ssl_groups = \
         'X25519MLKEM768:X25519:prime256v1' on the server (PostgreSQL 18, OpenSSL 3.5); +group=x25519 on the client \
         avoids it"
    );
    assert_eq!(says(Engine::Postgres, None), postgres);
    for (engine, version, words) in [
        (
            Engine::Postgres,
            Some("17.6 (Debian 17.6-1)"),
            "PostgreSQL before 18 cannot select ML-KEM; +group=x25519",
        ),
        (Engine::MariaDb, Some("10.11.14"), "MariaDB selects it with OpenSSL 3.5 or newer"),
        (Engine::MySql, Some("9.7.4"), "MySQL has no setting"),
    ] {
        let said = says(engine, version);
        assert!(said.contains(words) && !said.contains("ssl_groups"), "{said}");
    }
}

#[test]
fn a_curves_share_is_not_worth_a_sentence() {
    let of = |leg: &Leg| unused_share(leg, Engine::Postgres, None);
    assert_eq!(of(&leg("x25519mlkem768", &[("x25519", 32)], false)), None);
    assert_eq!(of(&leg("p256", &[("x25519", 32)], true)), None);
    assert_eq!(of(&leg("x25519", &[], false)), None);
}

#[test]
fn after_a_retry_the_client_is_told_once() {
    let wasted = leg("p256", &[("x25519mlkem768", 1_216), ("x25519", 32)], true);
    let said = unused_share(&wasted, Engine::MySql, Some("9.7.4")).unwrap();
    assert!(!said.contains("+group"), "{said}");
}
