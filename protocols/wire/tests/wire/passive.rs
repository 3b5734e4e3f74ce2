//! Connections seen from outside: what is said of them does not depend on where their bytes are cut.

use ciphertoll_wire::mysql::codec::capabilities::Capabilities;
use ciphertoll_wire::mysql::codec::greeting::Greeting;
use ciphertoll_wire::mysql::codec::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::codec::ssl_request::SslRequest;
use ciphertoll_wire::passive::{
    AccountNames, AuthMethod, ConnectionSide, Content, Conversation, DatabaseProtocol, Event, FailureCode,
    PasswordOnWire,
};
use proptest::prelude::*;

/// What one side sends before the other one does.
pub(crate) type Turn = (ConnectionSide, Vec<u8>);

const TLS_HELLO: [u8; 6] = [0x16, 3, 1, 0, 1, 1];

/// All events, and what was handed over as TLS.
fn read(protocol: Option<DatabaseProtocol>, turns: &[Turn]) -> (Vec<Event>, Vec<Turn>) {
    let mut conversation = Conversation::new(protocol, AccountNames::Ignored);
    let (mut events, mut tls): (_, Vec<Turn>) = (Vec::new(), Vec::new());
    for (side, bytes) in turns {
        let rest = conversation.read(*side, Content::Bytes(bytes), |event| events.push(event));
        if let Some(Content::Bytes(bytes)) = rest {
            match tls.last_mut() {
                Some((last, all)) if last == side => all.extend_from_slice(bytes),
                _ => tls.push((*side, bytes.to_vec())),
            }
        }
    }
    tls.retain(|(_, bytes)| !bytes.is_empty());
    (events, tls)
}

pub(crate) fn typed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

pub(crate) fn startup(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap();
    [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

pub(crate) fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let [low, middle, high, _] = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[low, middle, high, sequence][..], payload].concat()
}

pub(crate) fn operation(number: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 16).unwrap();
    [&length.to_le_bytes()[..], &[0; 8], &number.to_le_bytes(), body].concat()
}

fn method(name: &str) -> Event {
    Event::Login(AuthMethod::named(name.as_bytes()))
}

/// A PostgreSQL login by SCRAM after TLS was refused, and two queries.
pub(crate) fn postgres_without_tls() -> Vec<Turn> {
    let server = |bytes| (ConnectionSide::Server, bytes);
    let client = |bytes| (ConnectionSide::Client, bytes);
    vec![
        client(startup(80_877_103, b"")),
        server(b"N".to_vec()),
        client(startup(0x3_0000, b"user\0app\0\0")),
        server(typed(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")),
        client(typed(b'p', b"SCRAM-SHA-256\0\0\0\0\x02n,")),
        server(typed(b'R', b"\0\0\0\x0br=1,s=2,i=3")),
        client(typed(b'p', b"c=biws")),
        server(
            [typed(b'R', b"\0\0\0\x0cv="), typed(b'R', &[0; 4]), typed(b'S', b"a\0b\0"), typed(b'Z', b"I")]
                .concat(),
        ),
        client(typed(b'Q', b"SELECT 1\0")),
        server([typed(b'T', &[0; 900]), typed(b'C', b"SELECT 1\0"), typed(b'Z', b"I")].concat()),
        client(
            [typed(b'P', b"\0SELECT 1\0\0\0"), typed(b'B', &[0; 8]), typed(b'E', &[0; 5]), typed(b'S', b"")]
                .concat(),
        ),
        server([typed(b'1', b""), typed(b'2', b""), typed(b'C', b"\0"), typed(b'Z', b"I")].concat()),
        client(typed(b'X', b"")),
    ]
}

#[test]
fn a_login_and_queries_without_encryption_are_seen_on_postgres() {
    let (events, tls) = read(Some(DatabaseProtocol::Postgres), &postgres_without_tls());
    let expected = [
        Event::TlsRefused,
        Event::LoginStarted,
        method("scram-sha-256"),
        Event::LoggedIn,
        Event::Query,
        Event::Answer,
        Event::Query,
        Event::Answer,
        Event::Terminate,
    ];
    assert_eq!((&events[..], tls), (&expected[..], Vec::new()));
}

pub(crate) fn greeting() -> Vec<u8> {
    let capabilities = Capabilities::PROTOCOL_41
        .with(Capabilities::SECURE_CONNECTION)
        .with(Capabilities::PLUGIN_AUTH)
        .with(Capabilities::SSL)
        .with(Capabilities::COMPRESS);
    let mut payload = Vec::new();
    let plugin: &[u8] = b"mysql_native_password";
    Greeting {
        version: b"8.0.36",
        connection_id: 7,
        nonce: [1; 20],
        capabilities,
        character_set: 45,
        status: 2,
        plugin,
    }
    .encode(&mut payload);
    packet(0, &payload)
}

pub(crate) fn head(capabilities: Capabilities) -> SslRequest {
    let capabilities = capabilities
        .with(Capabilities::PROTOCOL_41)
        .with(Capabilities::SECURE_CONNECTION)
        .with(Capabilities::PLUGIN_AUTH);
    SslRequest { capabilities, max_packet_bytes: 1 << 24, character_set: 45 }
}

fn login(capabilities: Capabilities) -> Vec<u8> {
    let mut payload = Vec::new();
    let plugin: &[u8] = b"caching_sha2_password";
    HandshakeResponse {
        head: head(capabilities),
        user: b"app",
        auth_response: &[2; 32],
        database: None,
        plugin: Some(plugin),
    }
    .encode(&mut payload);
    packet(1, &payload)
}

#[test]
fn a_login_that_switches_its_plugin_is_seen_on_mysql() {
    let turns = [
        (ConnectionSide::Server, greeting()),
        (ConnectionSide::Client, login(Capabilities::default())),
        (ConnectionSide::Server, packet(2, b"\xfemysql_native_password\0ABCDEFGHIJKLMNOPQRST\0")),
        (ConnectionSide::Client, packet(3, &[9; 20])),
        (ConnectionSide::Server, packet(4, &[0, 0, 0, 2, 0, 0, 0])),
        (ConnectionSide::Client, packet(0, b"\x03SELECT 1")),
        (ConnectionSide::Server, [packet(1, &[1]), packet(2, &[0; 600])].concat()),
        (ConnectionSide::Client, packet(0, b"\x16SELECT ?")),
        (ConnectionSide::Server, packet(1, &[0; 12])),
        (ConnectionSide::Client, packet(0, b"\x17\x01\0\0\0\0\x01\0\0\0")),
        (ConnectionSide::Server, packet(1, &[0; 7])),
        (ConnectionSide::Client, packet(0, &[1])),
    ];
    let (events, tls) = read(None, &turns);
    let expected = [
        Event::Greeting,
        Event::LoginStarted,
        method("caching_sha2_password"),
        method("mysql_native_password"),
        Event::LoggedIn,
        Event::Query,
        Event::Answer,
        Event::Query,
        Event::Answer,
        Event::Terminate,
    ];
    assert_eq!((&events[..], tls), (&expected[..], Vec::new()));
}

#[test]
fn compressed_messages_are_counted() {
    let wrapped = |packet: &[u8], before: u8| {
        [&[u8::try_from(packet.len()).unwrap(), 0, 0, 0, before, 0, 0][..], packet].concat()
    };
    let turns = [
        (ConnectionSide::Server, greeting()),
        (ConnectionSide::Client, login(Capabilities::COMPRESS)),
        (ConnectionSide::Server, packet(2, &[0, 0, 0, 2, 0, 0, 0])),
        (ConnectionSide::Client, wrapped(&packet(0, b"\x03SELECT 1"), 0)),
        (ConnectionSide::Server, wrapped(&packet(1, &[1]), 0)),
        (ConnectionSide::Client, wrapped(b"not to be read", 200)),
        (ConnectionSide::Server, wrapped(&packet(1, &[1]), 0)),
        (ConnectionSide::Client, wrapped(&packet(0, &[1]), 0)),
    ];
    let (events, _) = read(Some(DatabaseProtocol::MySql), &turns);
    let queries = events.iter().filter(|event| **event == Event::Query).count();
    assert_eq!((queries, events.last()), (2, Some(&Event::Terminate)));
    assert!(events.contains(&Event::Compressed));
}

#[test]
fn refusals_have_the_servers_code() {
    let refused = [
        (ConnectionSide::Client, startup(0x3_0000, b"user\0app\0\0")),
        (ConnectionSide::Server, typed(b'E', b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0\0")),
    ];
    let (events, _) = read(None, &refused);
    assert_eq!(events[1..], [Event::Refused(FailureCode::SqlState(*b"28P01"))]);
    let refused =
        [(ConnectionSide::Server, greeting()), (ConnectionSide::Client, login(Capabilities::default()))];
    let error = (ConnectionSide::Server, packet(2, b"\xff\x15\x04#28000Access denied"));
    let (events, _) = read(None, &[&refused[..], &[error]].concat());
    assert_eq!(events[3..], [Event::Refused(FailureCode::Number(1045))]);
    let (events, _) =
        read(Some(DatabaseProtocol::MySql), &[(ConnectionSide::Server, packet(0, b"\xff\x10\x04Too many"))]);
    assert_eq!(events, [Event::Refused(FailureCode::Number(1040))]);
}

#[test]
fn what_follows_an_agreement_on_tls_is_handed_over() {
    let mut tls_request = Vec::new();
    head(Capabilities::SSL).encode(&mut tls_request);
    let request = startup(80_877_103, b"");
    let hello = TLS_HELLO.to_vec();
    let answer = b"tls of the server".to_vec();
    let both = vec![(ConnectionSide::Client, hello.clone()), (ConnectionSide::Server, answer.clone())];
    let behind = |first: &[u8]| [first, &hello].concat();
    let cases: [(Option<DatabaseProtocol>, Vec<Turn>, Vec<Event>); 5] = [
        (
            None,
            vec![(ConnectionSide::Client, request.clone()), (ConnectionSide::Server, b"S".to_vec())],
            Vec::new(),
        ),
        (Some(DatabaseProtocol::Postgres), Vec::new(), Vec::new()),
        (None, Vec::new(), Vec::new()),
        (Some(DatabaseProtocol::MongoDb), Vec::new(), Vec::new()),
        (
            None,
            vec![(ConnectionSide::Server, greeting()), (ConnectionSide::Client, packet(1, &tls_request))],
            vec![Event::Greeting],
        ),
    ];
    for (protocol, mut turns, expected) in cases {
        turns.extend(both.clone());
        assert_eq!(read(protocol, &turns), (expected, both.clone()), "{protocol:?}");
    }
    // The hello right behind the request, before the server has answered.
    let eager =
        [(ConnectionSide::Client, behind(&request)), (ConnectionSide::Server, [&b"S"[..], &answer].concat())];
    assert_eq!(read(None, &eager), (Vec::new(), both.clone()));
    let eager = [
        (ConnectionSide::Server, greeting()),
        (ConnectionSide::Client, behind(&packet(1, &tls_request))),
        (ConnectionSide::Server, answer),
    ];
    assert_eq!(read(None, &eager), (vec![Event::Greeting], both));
}

#[test]
fn a_client_without_a_password_sends_no_hash_of_one_on_mysql() {
    let mut payload = Vec::new();
    let plugin: &[u8] = b"mysql_native_password";
    let head = head(Capabilities::default());
    HandshakeResponse { head, user: b"app", auth_response: b"", database: None, plugin: Some(plugin) }
        .encode(&mut payload);
    let (events, _) =
        read(None, &[(ConnectionSide::Server, greeting()), (ConnectionSide::Client, packet(1, &payload))]);
    assert_eq!(events[2..], [method("none")]);
    assert_eq!(AuthMethod::named(b"none").password(), PasswordOnWire::None);
}

#[test]
fn requests_to_cancel_and_gss_encryption_are_named() {
    let cancel = [(ConnectionSide::Client, startup(80_877_102, &[0; 8]))];
    assert_eq!(read(None, &cancel).0, [Event::Cancel]);
    let gss = [
        (ConnectionSide::Client, startup(80_877_104, b"")),
        (ConnectionSide::Server, b"G".to_vec()),
        (ConnectionSide::Client, vec![7; 40]),
    ];
    assert_eq!(read(None, &gss), (vec![Event::GssEncryption], Vec::new()));
}

/// `OP_MSG` with a document whose first key is `name`.
fn command(name: &str, more: &[u8]) -> Vec<u8> {
    let document = [&[0x10][..], name.as_bytes(), &[0, 1, 0, 0, 0], more, &[0]].concat();
    let length = u32::try_from(document.len() + 4).unwrap();
    operation(2013, &[&[0; 4][..], &[0], &length.to_le_bytes(), &document].concat())
}

#[test]
fn commands_of_drivers_are_no_queries_on_mongodb() {
    let mechanism = b"\x02mechanism\0\x0e\0\0\0SCRAM-SHA-256\0";
    let reply = || (ConnectionSide::Server, command("ok", b""));
    let turns = [
        (ConnectionSide::Client, command("hello", b"")),
        reply(),
        (ConnectionSide::Client, command("saslStart", mechanism)),
        reply(),
        (ConnectionSide::Client, command("saslContinue", b"")),
        reply(),
        (ConnectionSide::Client, command("find", b"")),
        reply(),
        (ConnectionSide::Client, operation(2012, &[0; 40])),
        reply(),
    ];
    let (events, _) = read(None, &turns);
    let expected = [
        Event::LoginStarted,
        Event::LoginAnswer,
        method("scram-sha-256"),
        Event::LoginAnswer,
        Event::LoginAnswer,
        Event::LoggedIn,
        Event::Query,
        Event::Answer,
        Event::Compressed,
        Event::Query,
        Event::Answer,
    ];
    assert_eq!(events, expected);
}

#[test]
fn the_end_of_a_login_is_seen_on_mongodb() {
    let mechanism = b"\x02mechanism\0\x0e\0\0\0SCRAM-SHA-256\0";
    let login = [
        (ConnectionSide::Client, command("saslStart", mechanism)),
        (ConnectionSide::Server, command("ok", b"\x08done\0\0")),
        (ConnectionSide::Client, command("saslContinue", b"")),
    ];
    let ends = |reply: &[u8]| {
        let (events, _) =
            read(None, &[&login[..], &[(ConnectionSide::Server, command("ok", reply))]].concat());
        events.last().cloned()
    };
    assert_eq!(ends(b"\x08done\0\x01"), Some(Event::LoggedIn));
    assert_eq!(ends(b"\x10code\0\x12\0\0\0"), Some(Event::Refused(FailureCode::Number(18))));
}

/// Such as psql, which asks its user for the password and connects again.
#[test]
fn a_client_that_does_not_answer_has_sent_no_password() {
    let asked = [
        (ConnectionSide::Client, startup(0x3_0000, b"user\0app\0\0")),
        (ConnectionSide::Server, typed(b'R', &[0, 0, 0, 3])),
        (ConnectionSide::Client, typed(b'X', b"")),
    ];
    assert_eq!(read(None, &asked).0, [Event::LoginStarted, Event::Terminate]);
    let asked = [
        (ConnectionSide::Server, greeting()),
        (ConnectionSide::Client, login(Capabilities::default())),
        (ConnectionSide::Server, packet(2, b"\xfemysql_clear_password\0")),
        (ConnectionSide::Client, packet(3, b"")),
    ];
    assert_eq!(read(None, &asked).0, [Event::Greeting, Event::LoginStarted, method("caching_sha2_password")]);
}

fn logged_in_on_mysql(capabilities: Capabilities) -> Vec<Turn> {
    vec![
        (ConnectionSide::Server, greeting()),
        (ConnectionSide::Client, login(capabilities)),
        (ConnectionSide::Server, packet(2, &[0, 0, 0, 2, 0, 0, 0])),
    ]
}

fn queries(turns: &[Turn]) -> usize {
    read(None, turns).0.iter().filter(|event| **event == Event::Query).count()
}

/// Sequence numbers wrap around behind 255.
#[test]
fn a_file_of_many_packets_is_no_command_on_mysql() {
    let wrapped = |packet: &[u8], sequence: u8| [&[4, 0, 0, sequence, 0, 0, 0][..], packet].concat();
    for first in [2_u8, 0] {
        let mut turns = logged_in_on_mysql(Capabilities::default());
        turns.push((ConnectionSide::Client, packet(0, b"\x03LOAD DATA LOCAL INFILE 'x'")));
        turns.push((ConnectionSide::Server, packet(first.wrapping_sub(1), b"\xfbx")));
        for number in 0..600_u32 {
            turns.push((ConnectionSide::Client, packet(first.wrapping_add(number as u8), b"\x03a row")));
        }
        turns.push((ConnectionSide::Client, packet(first.wrapping_add(88), b"")));
        turns.push((ConnectionSide::Server, packet(89, &[0; 7])));
        turns.push((ConnectionSide::Client, packet(0, b"\x03SELECT 1")));
        turns.push((ConnectionSide::Server, packet(1, &[1])));
        assert_eq!(queries(&turns), 2, "{first}");
    }
    let mut turns = logged_in_on_mysql(Capabilities::COMPRESS);
    turns.push((ConnectionSide::Client, wrapped(&packet(0, b"")[..4], 0)));
    for number in 1..600_u32 {
        turns.push((ConnectionSide::Client, [&[4, 0, 0, number as u8, 9, 0, 0][..], b"zzzz"].concat()));
    }
    assert_eq!(queries(&turns), 0);
}

#[test]
fn an_answer_of_many_packets_and_a_split_payload_are_one_each_on_mysql() {
    const MOST: usize = 0xff_ffff;
    let mut turns = logged_in_on_mysql(Capabilities::default());
    turns.push((ConnectionSide::Client, packet(0, b"\x03SELECT many")));
    let rows: Vec<u8> = (1..700_u32).flat_map(|number| packet(number as u8, b"\xfb")).collect();
    turns.push((ConnectionSide::Server, rows));
    let mut payload = vec![b' '; MOST + 10];
    payload[0] = 3;
    turns.push((ConnectionSide::Client, packet(0, &payload[..MOST])));
    turns.push((ConnectionSide::Client, packet(1, &payload[..10])));
    turns.push((ConnectionSide::Server, packet(1, &[0; 7])));
    turns.push((ConnectionSide::Client, packet(0, &payload[..MOST])));
    turns.push((ConnectionSide::Client, packet(1, b"")));
    turns.push((ConnectionSide::Server, packet(1, &[0; 7])));
    assert_eq!(queries(&turns), 3);
    let answers = read(None, &turns).0.into_iter().filter(|event| *event == Event::Answer).count();
    assert_eq!(answers, 3);
}

#[test]
fn passwords_in_clear_and_weak_hashes_are_known_by_their_method() {
    let password = |name: &str| AuthMethod::named(name.as_bytes()).password();
    assert_eq!(password("mysql_clear_password"), PasswordOnWire::Clear);
    assert_eq!(password("md5"), PasswordOnWire::WeakHash);
    assert_eq!(password("SCRAM-SHA-256-PLUS"), PasswordOnWire::Proof);
    assert_eq!(password("a_plugin_of_yours"), PasswordOnWire::Unknown);
    assert_eq!(AuthMethod::named(b"<script>").label(), "?script?");
}

#[test]
fn what_is_no_database_protocol_is_not_read() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], &[0; 64], b"\xff\xff\xff\xff\xff"] {
        assert_eq!(read(None, &[(ConnectionSide::Client, bytes.to_vec())]).0, [Event::Lost], "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn cuts_change_nothing(cuts in prop::collection::vec(1_usize..40, 1..200)) {
        let turns = postgres_without_tls();
        let mut lengths = cuts.iter().cycle();
        let mut cut = Vec::new();
        for (side, bytes) in &turns {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*lengths.next().unwrap()).min(rest.len()));
                cut.push((*side, now.to_vec()));
                rest = later;
            }
        }
        let protocol = Some(DatabaseProtocol::Postgres);
        prop_assert_eq!(read(protocol, &cut), read(protocol, &turns));
    }

    #[test]
    fn no_bytes_break_it(
        turns in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80), 0_u64..9), 0..20),
        protocol in prop::option::of(prop::sample::select(DatabaseProtocol::ALL.to_vec())),
    ) {
        let mut conversation = Conversation::new(protocol, AccountNames::Read);
        for (is_client, bytes, missing) in &turns {
            let side = if *is_client { ConnectionSide::Client } else { ConnectionSide::Server };
            conversation.read(side, Content::Bytes(bytes), |_| ());
            conversation.read(side, Content::Missing(*missing), |_| ());
        }
    }
}
