//! The observer of both directions, on real OpenSSL connections in memory.

use ciphertoll_vocabulary::Group;
use ciphertoll_wire::tls::{
    Alert, Capture, ClientAuthentication, ConnectionSide, HandshakeObserver, KeyExchangeGroup, KeyShare,
    NamedGroup, RecordTally, SignatureScheme, Stage, TlsEvent, TlsHandshake,
};
use openssl::dh::Dh;
use openssl::ssl::{SslContextBuilder, SslVerifyMode, SslVersion};
use proptest::prelude::*;

use crate::tls_memory::{
    ANSWER_BYTES, Conversation, REQUEST_BYTES, certificate, client_context, converse, only, rsa_key,
    server_context,
};

const RSA_PSS_SHA256: SignatureScheme = SignatureScheme(0x0804);
const REQUESTS: usize = 3;

#[derive(Debug, PartialEq)]
struct Observed {
    handshake: TlsHandshake,
    events: Vec<TlsEvent>,
    records: (RecordTally, RecordTally),
}

/// Reads a conversation in portions of these sizes; the last one repeats.
fn observe_in(conversation: &Conversation, sizes: &[usize]) -> Observed {
    let mut observer = HandshakeObserver::new();
    let mut events = Vec::new();
    let mut sizes = sizes.iter().copied().chain(std::iter::repeat(*sizes.last().unwrap()));
    for (from, flight) in &conversation.flights {
        let mut rest = flight.as_slice();
        while !rest.is_empty() {
            let (now, after) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
            feed(&mut observer, *from, now, &mut events);
            rest = after;
        }
    }
    let records = observer.application_records();
    Observed { handshake: observer.handshake().clone(), events, records }
}

fn feed(observer: &mut HandshakeObserver, from: ConnectionSide, bytes: &[u8], events: &mut Vec<TlsEvent>) {
    let mut on_event = |event| events.push(event);
    match from {
        ConnectionSide::Client => observer.client(bytes, &mut on_event),
        ConnectionSide::Server => observer.server(bytes, &mut on_event),
    }
}

fn skip(observer: &mut HandshakeObserver, from: ConnectionSide, count: usize, events: &mut Vec<TlsEvent>) {
    let mut on_event = |event| events.push(event);
    match from {
        ConnectionSide::Client => observer.client_missing(count as u64, &mut on_event),
        ConnectionSide::Server => observer.server_missing(count as u64, &mut on_event),
    }
}

fn observe(conversation: &Conversation) -> Observed {
    let whole = observe_in(conversation, &[usize::MAX]);
    for size in [1, 2, 3, 5, 7, 100, 1460] {
        assert_eq!(observe_in(conversation, &[size]), whole, "{size}");
    }
    whole
}

fn conversation(
    server: impl FnOnce(&mut SslContextBuilder),
    client: impl FnOnce(&mut SslContextBuilder),
) -> Conversation {
    converse(&server_context(server), &client_context(client), REQUESTS)
}

fn of_version(version: SslVersion) -> Conversation {
    conversation(|_| {}, only(version))
}

/// Directions of application data, without repetition.
fn turns(events: &[TlsEvent]) -> Vec<ConnectionSide> {
    let mut turns: Vec<ConnectionSide> = events
        .iter()
        .filter_map(|event| match event {
            TlsEvent::ApplicationData { from, .. } => Some(*from),
            _ => None,
        })
        .collect();
    turns.dedup();
    turns
}

#[test]
fn tls_1_2_on_a_curve() {
    let conversation = of_version(SslVersion::TLS1_2);
    let Observed { handshake, events, records: (client, server) } = observe(&conversation);
    let selected = handshake.selected.unwrap();
    assert_eq!((selected.version, selected.cipher_suite), (0x0303, 0xc030));
    assert_eq!(selected.group, Some(KeyExchangeGroup::Named(Group::X25519.into())));
    assert_eq!(selected.signature, Some(RSA_PSS_SHA256));
    assert!(!selected.hello_retry);
    assert_eq!(handshake.stage, Stage::Established);
    assert_eq!(handshake.resumed, Some(false));
    assert_eq!(handshake.client_certificate, ClientAuthentication::NotRequested);
    assert_eq!((handshake.client_capture, handshake.server_capture), (Capture::Whole, Capture::Whole));
    assert_eq!(handshake.alert, None);
    assert_eq!(handshake.certificates.len(), 10, "of 41");
    openssl::x509::X509::from_der(&handshake.certificates[9]).unwrap();
    assert_eq!((client.records, server.records), (REQUESTS as u64, 3 * REQUESTS as u64));
    let added = 8 + 16;
    assert_eq!(client.bytes, (REQUESTS * (REQUEST_BYTES + added)) as u64);
    assert_eq!(server.bytes, (REQUESTS * (ANSWER_BYTES + 3 * added)) as u64);
    assert_eq!(turns(&events), [ConnectionSide::Client, ConnectionSide::Server].repeat(REQUESTS));
}

#[test]
fn what_a_client_offers() {
    let parameters = |context: &mut SslContextBuilder| {
        context.set_groups_list("P-384:X25519").unwrap();
        context.set_sigalgs_list("RSA-PSS+SHA256:ed25519").unwrap();
        context.set_cipher_list("ECDHE-RSA-AES256-GCM-SHA384").unwrap();
        context.set_ciphersuites("TLS_AES_128_GCM_SHA256").unwrap();
    };
    let offer = observe(&conversation(|_| {}, parameters)).handshake.offer.unwrap();
    assert_eq!(offer.version, 0x0304);
    // With the signal that it supports secure renegotiation (RFC 5746).
    assert_eq!(offer.suites, [0x1301, 0xc030, 0x00ff]);
    assert_eq!(offer.groups, [NamedGroup(0x0018), NamedGroup(0x001d)]);
    assert_eq!(offer.signatures, [RSA_PSS_SHA256, SignatureScheme(0x0807)]);
    assert_eq!(offer.key_shares, [KeyShare { group: Group::P384.into(), bytes: 97 }]);
    assert!(!offer.has_server_name && !offer.offers_session);
    let older = observe(&of_version(SslVersion::TLS1_2)).handshake.offer.unwrap();
    assert_eq!((older.version, &older.key_shares), (0x0303, &Vec::new()));
}

#[test]
fn tls_1_2_in_a_finite_field_and_with_rsa() {
    let dh = |context: &mut SslContextBuilder| context.set_tmp_dh(&Dh::get_2048_256().unwrap()).unwrap();
    let field = KeyExchangeGroup::FiniteField { prime_bits: 2048 };
    assert_eq!(field.label(), "dhe2048");
    for (suite, group, signature) in
        [("DHE-RSA-AES256-GCM-SHA384", Some(field), Some(RSA_PSS_SHA256)), ("AES256-GCM-SHA384", None, None)]
    {
        let conversation = conversation(dh, |context| {
            only(SslVersion::TLS1_2)(context);
            context.set_cipher_list(suite).unwrap();
        });
        let handshake = observe(&conversation).handshake;
        let selected = handshake.selected.unwrap();
        assert_eq!((selected.group, selected.signature), (group, signature), "{suite}");
        assert_eq!((handshake.stage, handshake.resumed), (Stage::Established, Some(false)));
    }
}

#[test]
fn versions_before_1_2_sign_without_naming_a_scheme() {
    let weak = |context: &mut SslContextBuilder| context.set_security_level(0);
    for (version, number) in [(SslVersion::TLS1, 0x0301), (SslVersion::TLS1_1, 0x0302)] {
        let conversation = conversation(weak, |context| {
            weak(context);
            only(version)(context);
        });
        let observed = observe(&conversation);
        let selected = observed.handshake.selected.unwrap();
        assert_eq!((selected.version, selected.signature), (number, None));
        assert_eq!(selected.group, Some(KeyExchangeGroup::Named(Group::X25519.into())));
        assert_eq!(turns(&observed.events).len(), 2 * REQUESTS);
    }
}

#[test]
fn tls_1_3_hides_certificates_and_begins_with_the_clients_finished() {
    let Observed { handshake, events, records: (client, _) } = observe(&of_version(SslVersion::TLS1_3));
    let selected = handshake.selected.unwrap();
    assert_eq!((selected.version, selected.cipher_suite, selected.signature), (0x0304, 0x1302, None));
    assert_eq!(handshake.resumed, Some(false));
    assert_eq!(handshake.client_certificate, ClientAuthentication::Hidden);
    assert!(handshake.certificates.is_empty() && !handshake.has_hidden_alert && !handshake.has_early_data);
    assert_eq!(client.records, REQUESTS as u64);
    let first = [TlsEvent::ClientHello, TlsEvent::ServerHello, TlsEvent::Finished(ConnectionSide::Client)];
    assert_eq!(events[..3], first);
    // Tickets come before the first request.
    assert_eq!(turns(&events)[1..], [ConnectionSide::Client, ConnectionSide::Server].repeat(REQUESTS));
}

#[test]
fn a_client_certificate_of_tls_1_2_is_requested_and_sent_or_withheld() {
    for (has_certificate, expected) in
        [(true, ClientAuthentication::Sent), (false, ClientAuthentication::Withheld)]
    {
        let request = |context: &mut SslContextBuilder| {
            context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        };
        let conversation = conversation(request, |context| {
            only(SslVersion::TLS1_2)(context);
            if has_certificate {
                let key = rsa_key();
                context.set_certificate(&certificate(&key)).unwrap();
                context.set_private_key(&key).unwrap();
            }
        });
        let observed = observe(&conversation);
        assert_eq!(observed.handshake.client_certificate, expected);
        assert_eq!(observed.handshake.stage, Stage::Established);
        assert_eq!(turns(&observed.events).len(), 2 * REQUESTS);
    }
}

#[test]
fn the_alert_of_a_client_that_does_not_trust_the_server() {
    let distrustful = |version| {
        conversation(
            |_| {},
            move |context| {
                only(version)(context);
                context.set_verify(SslVerifyMode::PEER);
            },
        )
    };
    // OpenSSL does not encrypt it in TLS 1.3, either.
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let handshake = observe(&distrustful(version)).handshake;
        assert_eq!(handshake.alert, Some(Alert { from: ConnectionSide::Client, description: 48 }));
        assert_eq!(handshake.alert.unwrap().label(), "unknown_ca");
        assert_eq!((handshake.stage, handshake.has_hidden_alert), (Stage::Handshake, false));
    }
}

#[test]
fn the_alert_of_a_server_without_a_common_version_or_suite() {
    let no_suite = |context: &mut SslContextBuilder| {
        only(SslVersion::TLS1_2)(context);
        context.set_cipher_list("ECDHE-ECDSA-AES256-GCM-SHA384").unwrap();
    };
    let no_version = conversation(only(SslVersion::TLS1_3), only(SslVersion::TLS1_2));
    for (conversation, label) in
        [(no_version, "protocol_version"), (conversation(|_| {}, no_suite), "handshake_failure")]
    {
        let handshake = observe(&conversation).handshake;
        assert_eq!(handshake.alert.unwrap().label(), label);
        assert_eq!(handshake.alert.unwrap().from, ConnectionSide::Server);
        assert_eq!((handshake.stage, handshake.selected), (Stage::AwaitServerHello, None));
    }
}

#[test]
fn a_warning_is_no_failure() {
    let mut observer = HandshakeObserver::new();
    let conversation = of_version(SslVersion::TLS1_2);
    let mut events = Vec::new();
    feed(&mut observer, ConnectionSide::Client, &conversation.flights[0].1, &mut events);
    feed(&mut observer, ConnectionSide::Server, &[21, 3, 3, 0, 2, 1, 112], &mut events);
    assert_eq!(observer.handshake().alert, None);
    feed(&mut observer, ConnectionSide::Server, &[21, 3, 3, 0, 2, 2, 112], &mut events);
    assert_eq!(observer.handshake().alert.unwrap().label(), "unrecognized_name");
}

/// The end of each record of a flight.
fn record_ends(flight: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < flight.len() {
        at += 5 + usize::from(u16::from_be_bytes([flight[at + 3], flight[at + 4]]));
        ends.push(at);
    }
    ends
}

#[test]
fn gaps_in_application_data_change_nothing() {
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let conversation = of_version(version);
        let whole = observe(&conversation);
        let mut observer = HandshakeObserver::new();
        let mut events = Vec::new();
        for (from, flight) in &conversation.flights {
            let is_established = observer.handshake().stage == Stage::Established;
            let mut start = 0;
            for end in record_ends(flight) {
                let captured = if is_established { start + 5 } else { end };
                feed(&mut observer, *from, &flight[start..captured], &mut events);
                skip(&mut observer, *from, end - captured, &mut events);
                start = end;
            }
        }
        assert_eq!((&events, observer.handshake()), (&whole.events, &whole.handshake));
        assert_eq!(observer.application_records(), whole.records);
    }
}

#[test]
fn a_gap_in_a_header_loses_only_its_direction() {
    let conversation = of_version(SslVersion::TLS1_3);
    let whole = observe(&conversation);
    let mut observer = HandshakeObserver::new();
    let mut events = Vec::new();
    let last_answer = conversation.flights.len() - 1;
    for (index, (from, flight)) in conversation.flights.iter().enumerate() {
        if index == last_answer - 2 {
            feed(&mut observer, *from, &flight[..3], &mut events);
            skip(&mut observer, *from, 1, &mut events);
            feed(&mut observer, *from, &flight[4..], &mut events);
        } else {
            feed(&mut observer, *from, flight, &mut events);
        }
    }
    let handshake = observer.handshake();
    assert_eq!((handshake.client_capture, handshake.server_capture), (Capture::Whole, Capture::Lost));
    assert_eq!((handshake.stage, handshake.selected), (Stage::Established, whole.handshake.selected));
    let (client, server) = observer.application_records();
    assert_eq!(client, whole.records.0);
    assert_eq!(server.records, whole.records.1.records - 6, "two answers are lost");
}

/// Every gap of some lengths in the handshake: what is known equals what is known without a gap.
#[test]
fn no_gap_in_a_handshake_makes_a_wrong_value() {
    let request = |context: &mut SslContextBuilder| {
        context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    };
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let conversation = converse(&server_context(request), &client_context(only(version)), 1);
        let whole = observe(&conversation).handshake;
        for (index, (_, flight)) in conversation.flights.iter().enumerate().take(4) {
            // Each byte of the hellos and of what follows the certificates, and some of the certificates.
            let last = flight.len().saturating_sub(800);
            for at in (0..flight.len().min(800)).chain((800..last).step_by(501)).chain(last..flight.len()) {
                for count in [1, 40, 700] {
                    let gap = at..(at + count).min(flight.len());
                    let with_gap = observe_with_gap(&conversation, index, gap.clone());
                    assert_known_is_right(&with_gap, &whole, &format!("{index} {gap:?}"));
                }
            }
        }
    }
}

fn observe_with_gap(conversation: &Conversation, at: usize, gap: std::ops::Range<usize>) -> TlsHandshake {
    let mut observer = HandshakeObserver::new();
    let mut events = Vec::new();
    for (index, (from, flight)) in conversation.flights.iter().enumerate() {
        let gap = if index == at { gap.clone() } else { flight.len()..flight.len() };
        feed(&mut observer, *from, &flight[..gap.start], &mut events);
        skip(&mut observer, *from, gap.len(), &mut events);
        feed(&mut observer, *from, &flight[gap.end..], &mut events);
    }
    observer.handshake().clone()
}

fn assert_known_is_right(known: &TlsHandshake, whole: &TlsHandshake, what: &str) {
    assert_ne!(known.stage, Stage::NotTls, "{what}");
    assert!(known.offer.is_none() || known.offer == whole.offer, "{what}");
    assert!(known.resumed.is_none() || known.resumed == whole.resumed, "{what}");
    assert!(known.certificates.is_empty() || known.certificates == whole.certificates, "{what}");
    assert!((known.alert, known.has_early_data) == (None, false), "{what}");
    let is_hidden_alert = known.has_hidden_alert && known.stage == Stage::Established;
    assert!(!is_hidden_alert, "{what}");
    let (answer, expected) = (known.client_certificate, whole.client_certificate);
    let is_open = matches!(answer, ClientAuthentication::Unknown | ClientAuthentication::Requested);
    assert!(is_open || answer == expected, "{what}: {answer:?}");
    if let Some(selected) = known.selected {
        let expected = whole.selected.unwrap();
        assert_eq!((selected.version, selected.cipher_suite), (expected.version, expected.cipher_suite));
        assert!(selected.group.is_none() || selected.group == expected.group, "{what}");
        assert!(selected.signature.is_none() || selected.signature == expected.signature, "{what}");
    }
    if known != whole {
        let captures = (known.client_capture, known.server_capture);
        assert_ne!(captures, (Capture::Whole, Capture::Whole), "{what}");
    }
}

#[test]
fn other_protocols_are_not_tls() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x80\x2e\x01\x00\x02", // an SSL 2.0 ClientHello
        b"\x17\x03\x03\0\x20",   // the middle of a connection
        b"\x16\x03\x03\xff\xff",
        b"\x16\x02\x03\0\x10",
        b"\x16\x03\x01\0\x04\x02\0\0\x01",
    ] {
        let mut observer = HandshakeObserver::new();
        feed(&mut observer, ConnectionSide::Client, bytes, &mut Vec::new());
        assert_eq!(observer.handshake().stage, Stage::NotTls, "{}", bytes.escape_ascii());
        assert_eq!(observer.handshake().offer, None);
    }
    let conversation = of_version(SslVersion::TLS1_3);
    let mut observer = HandshakeObserver::new();
    feed(&mut observer, ConnectionSide::Client, &conversation.flights[0].1, &mut Vec::new());
    feed(&mut observer, ConnectionSide::Server, b"HTTP/1.1 400 Bad Request\r\n", &mut Vec::new());
    assert_eq!(observer.handshake().stage, Stage::NotTls);
}

#[test]
fn grease_is_not_offered() {
    let field = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, content: &[u8]| [&kind.to_be_bytes()[..], &field(content)].concat();
    let extensions = [
        extension(0x1a1a, &[]),
        extension(10, &field(&[0x2a, 0x2a, 0, 29])),
        extension(13, &field(&[0x3a, 0x3a, 8, 4])),
        extension(43, &[4, 0xfa, 0xfa, 3, 4]),
        extension(51, &field(&[0x2a, 0x2a, 0, 1, 0, 0, 29, 0, 2, 7, 7])),
    ];
    let suites = field(&[0x0a, 0x0a, 0x13, 1]);
    let body = [&[3, 3][..], &[0; 32], &[0], &suites, &[1, 0], &field(&extensions.concat())].concat();
    let message = [&[1, 0][..], &field(&body)].concat();
    let mut observer = HandshakeObserver::new();
    feed(
        &mut observer,
        ConnectionSide::Client,
        &[&[22, 3, 1][..], &field(&message)].concat(),
        &mut Vec::new(),
    );
    let offer = observer.handshake().offer.clone().unwrap();
    assert_eq!((offer.version, &offer.suites), (0x0304, &vec![0x1301]));
    assert_eq!((&offer.groups, &offer.signatures), (&vec![Group::X25519.into()], &vec![RSA_PSS_SHA256]));
    assert_eq!(offer.key_shares, [KeyShare { group: Group::X25519.into(), bytes: 2 }]);
}

thread_local! {
    static CONVERSATIONS: [Conversation; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3].map(of_version);
}

proptest! {
    #[test]
    fn cuts_make_no_difference(sizes in prop::collection::vec(1_usize..3000, 1..200)) {
        CONVERSATIONS.with(|conversations| {
            for conversation in conversations {
                let whole = observe_in(conversation, &[usize::MAX]);
                prop_assert_eq!(observe_in(conversation, &sizes), whole);
            }
            Ok(())
        })?;
    }

    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        CONVERSATIONS.with(|conversations| {
            for conversation in conversations {
                let mut observer = HandshakeObserver::new();
                for (from, flight) in &conversation.flights {
                    let mut flight = flight.clone();
                    for (at, byte) in &changes {
                        // Most of a flight is encrypted; the hellos are at its beginning.
                        let length = flight.len().min(600);
                        flight[at.index(length)] = *byte;
                    }
                    feed(&mut observer, *from, &flight, &mut Vec::new());
                }
            }
        });
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        parts in prop::collection::vec((any::<bool>(), 0_u64..100, any::<Vec<u8>>()), 0..20),
    ) {
        let mut observer = HandshakeObserver::new();
        for (is_client, missing, bytes) in parts {
            let from = if is_client { ConnectionSide::Client } else { ConnectionSide::Server };
            let bytes = [&[22, 3, 3, 0, bytes.len() as u8][..], &bytes].concat();
            feed(&mut observer, from, &bytes, &mut Vec::new());
            skip(&mut observer, from, missing as usize, &mut Vec::new());
        }
    }
}
