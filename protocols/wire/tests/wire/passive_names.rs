//! Names in logins that are not encrypted: read only if they are asked for, wherever the bytes are cut.

use ciphertoll_wire::mysql::codec::capabilities::Capabilities;
use ciphertoll_wire::mysql::codec::change_user::ChangeUser;
use ciphertoll_wire::mysql::codec::handshake_response::HandshakeResponse;
use ciphertoll_wire::passive::{
    Account, AccountNames, ConnectionSide, Content, Conversation, DatabaseProtocol, Event,
};
use ciphertoll_wire::printable::is_printable;
use proptest::prelude::*;

use ConnectionSide::{Client, Server};

use crate::passive::{Turn, greeting, head, operation, packet, postgres_without_tls, startup, typed};

const VERSION_3: u32 = 0x3_0000;
/// Of the head of a TLS record, by which it is told from a message of MongoDB. Clients send it at once.
const HEAD_BYTES: usize = 3;

fn events(protocol: DatabaseProtocol, turns: &[Turn], names: AccountNames) -> Vec<Event> {
    let mut conversation = Conversation::new(Some(protocol), names);
    let mut events = Vec::new();
    for (side, bytes) in turns {
        conversation.read(*side, Content::Bytes(bytes), |event| events.push(event));
    }
    events
}

/// Users and databases, by bytes that are cut at every place, too.
fn names(protocol: DatabaseProtocol, turns: &[Turn]) -> Vec<(String, Option<String>)> {
    let whole = events(protocol, turns, AccountNames::Read);
    let bytes = |(side, bytes): &Turn| {
        let (head, rest) = bytes.split_at(HEAD_BYTES.min(bytes.len()));
        let rest = rest.iter().map(|byte| (*side, vec![*byte]));
        [(*side, head.to_vec())].into_iter().chain(rest).collect::<Vec<_>>()
    };
    let single: Vec<Turn> = turns.iter().flat_map(bytes).collect();
    assert_eq!(events(protocol, &single, AccountNames::Read), whole, "byte by byte");
    for (at, (side, bytes)) in turns.iter().enumerate() {
        for cut in HEAD_BYTES..bytes.len().min(3_000) {
            let (left, right) = bytes.split_at(cut);
            let mut cut_turns = turns.to_vec();
            cut_turns.splice(at..=at, [(*side, left.to_vec()), (*side, right.to_vec())]);
            assert_eq!(events(protocol, &cut_turns, AccountNames::Read), whole, "turn {at} at {cut}");
        }
    }
    let is_account = |event: &Event| matches!(event, Event::Account(_));
    let mut others = whole.clone();
    others.retain(|event| !is_account(event));
    assert_eq!(events(protocol, turns, AccountNames::Ignored), others, "without names");
    let name = |event| match event {
        Event::Account(account) => Some((account.user().to_owned(), account.database().map(str::to_owned))),
        _ => None,
    };
    whole.into_iter().filter_map(name).collect()
}

fn named(user: &str, database: Option<&str>) -> Vec<(String, Option<String>)> {
    vec![(user.to_owned(), database.map(str::to_owned))]
}

fn of_startup(parameters: &[u8]) -> Vec<(String, Option<String>)> {
    names(DatabaseProtocol::Postgres, &[(Client, startup(VERSION_3, parameters))])
}

#[test]
fn a_startup_message_names_a_user_and_a_database() {
    assert_eq!(of_startup(b"user\0app\0database\0shop\0\0"), named("app", Some("shop")));
    // What servers do: the user's name, and the last of several.
    assert_eq!(of_startup(b"user\0app\0\0"), named("app", Some("app")));
    assert_eq!(of_startup(b"database\0\0user\0app\0\0"), named("app", Some("app")));
    assert_eq!(of_startup(b"user\0a\0user\0b\0database\0c\0database\0d\0\0"), named("b", Some("d")));
    assert_eq!(of_startup(b"user\0r\0replication\0true\0database\0replication\0\0"), named("r", None));
    assert_eq!(of_startup(b"user\0r\0replication\0database\0database\0shop\0\0"), named("r", Some("shop")));
    // The values of other parameters are no names.
    assert_eq!(of_startup(b"options\0user\0user\0app\0\0"), named("app", Some("app")));
    assert_eq!(names(DatabaseProtocol::Postgres, &postgres_without_tls()), named("app", Some("app")));
}

#[test]
fn a_startup_message_that_is_wrong_or_long_names_what_is_whole() {
    for nobody in [&b""[..], b"\0", b"user\0\0\0", b"database\0shop\0\0", b"user", b"user\0app"] {
        assert_eq!(of_startup(nobody), [], "{nobody:?}");
    }
    assert_eq!(of_startup(b"user\0app\0"), named("app", None));
    assert_eq!(of_startup(b"user\0app\0database\0sh"), named("app", None));
    // Behind what is kept, there may be a database.
    let long = [&b"user\0app\0options\0"[..], &[b' '; 3_000], b"\0database\0shop\0\0"].concat();
    assert_eq!(of_startup(&long), named("app", None));
    let hidden = [&b"options\0"[..], &[b' '; 3_000], b"\0user\0app\0\0"].concat();
    assert_eq!(of_startup(&hidden), []);
    let name = [b'x'; 5_000];
    assert_eq!(of_startup(&[&b"user\0"[..], &name, b"\0\0"].concat()), []);
    let name = of_startup(&[&b"user\0"[..], &name[..1_000], b"\0\0"].concat());
    assert_eq!(name[0].0.chars().count(), Account::MAX_CHARACTERS + 1);
}

#[test]
fn what_follows_a_request_for_encryption_names_nobody() {
    let login = startup(VERSION_3, b"user\0app\0\0");
    for (request, answer) in [(80_877_103, b"S"), (80_877_104, b"G")] {
        let turns = [(Client, startup(request, b"")), (Server, answer.to_vec()), (Client, login.clone())];
        assert_eq!(names(DatabaseProtocol::Postgres, &turns), []);
    }
    let cancel = [(Client, startup(80_877_102, b"user\0app\0\0"))];
    assert_eq!(names(DatabaseProtocol::Postgres, &cancel), []);
}

/// A login to MySQL with these fields, behind the greeting.
fn mysql_login(capabilities: Capabilities, user: &[u8], proof: &[u8], database: Option<&[u8]>) -> Vec<Turn> {
    let with_database =
        if database.is_some() { Capabilities::CONNECT_WITH_DB } else { Capabilities::default() };
    let mut payload = Vec::new();
    let plugin: &[u8] = b"caching_sha2_password";
    HandshakeResponse {
        head: head(capabilities.with(with_database)),
        user,
        auth_response: proof,
        database,
        plugin: Some(plugin),
    }
    .encode(&mut payload);
    // Attributes of the connection.
    payload.extend([40; 41]);
    vec![(Server, greeting()), (Client, packet(1, &payload))]
}

fn of_mysql(turns: &[Turn]) -> Vec<(String, Option<String>)> {
    names(DatabaseProtocol::MySql, turns)
}

#[test]
fn a_login_to_mysql_names_a_user_and_a_database() {
    let none = Capabilities::default();
    assert_eq!(of_mysql(&mysql_login(none, b"app", &[2; 32], Some(b"shop"))), named("app", Some("shop")));
    assert_eq!(of_mysql(&mysql_login(none, b"app", b"", None)), named("app", None));
    assert_eq!(of_mysql(&mysql_login(none, b"", b"", Some(b""))), named("", None));
    let encoded = mysql_login(Capabilities::PLUGIN_AUTH_LENENC, b"app", &[2; 1_500], Some(b"shop"));
    assert_eq!(of_mysql(&encoded), named("app", Some("shop")));
    // Behind what is kept.
    let long = mysql_login(Capabilities::PLUGIN_AUTH_LENENC, b"app", &[2; 3_000], Some(b"shop"));
    assert_eq!(of_mysql(&long), named("app", None));
}

/// `HandshakeResponse320`: 16 flags, three bytes of a length, and texts.
#[test]
fn a_login_of_a_client_before_4_1_names_a_user_and_a_database() {
    let login = |flags: u8, texts: &[u8]| {
        let payload = [&[flags, 0, 0xff, 0xff, 0xff][..], texts].concat();
        of_mysql(&[(Server, greeting()), (Client, packet(1, &payload))])
    };
    assert_eq!(login(0x08, b"app\0proof\0shop\0"), named("app", Some("shop")));
    assert_eq!(login(0x00, b"app\0proof"), named("app", None));
    assert_eq!(login(0x08, b"app\0proof"), named("app", None));
    assert_eq!(login(0x08, b"app"), []);
}

#[test]
fn lengths_that_are_wrong_name_what_stands_before_them() {
    let whole = mysql_login(Capabilities::PLUGIN_AUTH_LENENC, b"app", b"12345678", Some(b"shop"));
    let payload = &whole[1].1[4..];
    let at = payload.windows(9).position(|bytes| bytes == b"\x0812345678").unwrap();
    for length in
        [&b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\xfb", b"\xff", b"\xfd\xff\xff\xff", b"\xc8"]
    {
        let wrong = [&payload[..at], length, b"shop\0"].concat();
        let turns = [(Server, greeting()), (Client, packet(1, &wrong))];
        assert_eq!(of_mysql(&turns), named("app", None), "{length:?}");
    }
    for end in 0..at - 1 {
        let turns = [(Server, greeting()), (Client, packet(1, &payload[..end]))];
        assert_eq!(of_mysql(&turns), [], "{end}");
    }
}

#[test]
fn a_request_for_tls_names_nobody_on_mysql() {
    let mut request = Vec::new();
    head(Capabilities::SSL).encode(&mut request);
    let mut turns = vec![(Server, greeting()), (Client, packet(1, &request))];
    turns.extend(mysql_login(Capabilities::SSL, b"app", b"", Some(b"shop")).split_off(1));
    assert_eq!(of_mysql(&turns), []);
}

#[test]
fn a_client_that_becomes_another_user_names_it() {
    let change = |user, database| {
        let mut bytes = Vec::new();
        let (character_set, plugin) = (Some(45), Some(&b"mysql_native_password"[..]));
        ChangeUser { user, auth_response: &[7; 20], database, character_set, plugin }
            .encode(&mut bytes)
            .unwrap();
        bytes
    };
    let ok = |sequence| (Server, packet(sequence, &[0, 0, 0, 2, 0, 0, 0]));
    for capabilities in [Capabilities::default(), Capabilities::COMPRESS] {
        let wrapped = |packet: Vec<u8>| match capabilities {
            Capabilities::COMPRESS => [&[packet.len() as u8, 0, 0, 0, 0, 0, 0][..], &packet].concat(),
            _ => packet,
        };
        let mut turns = mysql_login(capabilities, b"app", &[2; 20], None);
        turns.push(ok(2));
        turns.push((Client, wrapped(change(b"other", b"shop"))));
        turns.push((Server, wrapped(packet(1, &[0, 0, 0, 2, 0, 0, 0]))));
        turns.push((Client, wrapped(change(b"third", b""))));
        turns.push((Client, wrapped(packet(0, b"\x03app\0\x01xshop\0"))));
        let expected = [named("app", None), named("other", Some("shop")), named("third", None)].concat();
        assert_eq!(of_mysql(&turns), expected, "{capabilities:?}");
    }
    let mut wrong = mysql_login(Capabilities::default(), b"app", b"", None);
    wrong.extend([ok(2), (Client, packet(0, b"\x11x")), (Client, packet(0, b"\x11x\0\xffshort"))]);
    assert_eq!(of_mysql(&wrong), [named("app", None), named("x", None)].concat());
}

fn element(kind: u8, key: &str, value: &[u8]) -> Vec<u8> {
    [&[kind][..], key.as_bytes(), b"\0", value].concat()
}

fn document(elements: &[Vec<u8>]) -> Vec<u8> {
    let elements = elements.concat();
    let length = (elements.len() + 5) as u32;
    [&length.to_le_bytes()[..], &elements, b"\0"].concat()
}

fn number(key: &str) -> Vec<u8> {
    element(0x10, key, &1_u32.to_le_bytes())
}

fn string(key: &str, value: &str) -> Vec<u8> {
    let length = (value.len() + 1) as u32;
    element(2, key, &[&length.to_le_bytes()[..], value.as_bytes(), b"\0"].concat())
}

fn binary(key: &str, value: &[u8]) -> Vec<u8> {
    element(5, key, &[&(value.len() as u32).to_le_bytes()[..], &[0], value].concat())
}

fn sasl(mechanism: &str, payload: &[u8]) -> Vec<Vec<u8>> {
    vec![number("saslStart"), string("mechanism", mechanism), binary("payload", payload)]
}

fn message(document: &[u8]) -> Turn {
    (Client, operation(2013, &[&[0; 5][..], document].concat()))
}

fn query(collection: &str, document: &[u8]) -> Turn {
    let body = [&[0; 4][..], collection.as_bytes(), b"\0\0\0\0\0\xff\xff\xff\xff", document].concat();
    (Client, operation(2004, &body))
}

fn of_mongodb(turn: Turn) -> Vec<(String, Option<String>)> {
    names(DatabaseProtocol::MongoDb, &[turn])
}

#[test]
fn a_login_by_scram_names_a_user_and_its_database_on_mongodb() {
    let sasl_start = |payload: &[u8]| {
        let document = document(&[sasl("SCRAM-SHA-256", payload), vec![string("$db", "admin")]].concat());
        of_mongodb(message(&document))
    };
    assert_eq!(sasl_start(b"n,,n=app,r=nonce"), named("app", Some("admin")));
    assert_eq!(sasl_start(b"y,,n=a=2Cb=3Dc=3D2C,r=n=no"), named("a,b=c=2C", Some("admin")));
    assert_eq!(sasl_start(b"p=tls-unique,a=other,n=app,r=nonce"), named("app", Some("admin")));
    for wrong in [&b""[..], b"n", b"n,,", b"n,,m=ext,n=app", b"\0app\0secret", b"app,app,app"] {
        assert_eq!(sasl_start(wrong), [], "{wrong:?}");
    }
    let old = document(&sasl("SCRAM-SHA-1", b"n,,n=app,r=nonce"));
    assert_eq!(of_mongodb(query("shop.$cmd", &old)), named("app", Some("shop")));
}

/// Behind 512 bytes that a driver says of itself.
#[test]
fn a_speculative_login_names_a_user_on_mongodb() {
    let login = |more: &[Vec<u8>]| {
        let login = document(&[&sasl("SCRAM-SHA-256", b"n,,n=app,r=nonce"), more].concat());
        let driver = document(&[string("driver", &"x".repeat(480))]);
        document(&[
            number("hello"),
            element(3, "client", &driver),
            element(3, "speculativeAuthenticate", &login),
            string("$db", "admin"),
        ])
    };
    let whole = login(&[string("db", "shop")]);
    assert_eq!(of_mongodb(message(&whole)), named("app", Some("shop")));
    assert_eq!(of_mongodb(query("admin.$cmd", &whole)), named("app", Some("shop")));
    assert_eq!(of_mongodb(message(&login(&[]))), named("app", None));
}

#[test]
fn other_commands_name_nobody_on_mongodb() {
    let payload = b"n,,n=app,r=nonce";
    let find = document(&[&[string("find", "users")][..], &sasl("SCRAM-SHA-256", payload)].concat());
    assert_eq!(of_mongodb(message(&find)), []);
    assert_eq!(of_mongodb(message(&document(&sasl("PLAIN", b"\0app\0secret")))), []);
    assert_eq!(of_mongodb(message(&document(&sasl("PLAIN", payload)))), []);
    let text = [number("saslStart"), string("mechanism", "SCRAM-SHA-1"), string("payload", "n,,n=app")];
    assert_eq!(of_mongodb(message(&document(&text))), []);
}

#[test]
fn wrong_lengths_name_nobody_on_mongodb() {
    let whole = document(&sasl("SCRAM-SHA-256", b"n,,n=app,r=nonce"));
    assert_eq!(of_mongodb(message(&whole)).len(), 1);
    for length in [0, 4, 5, whole.len() as u32 - 1, whole.len() as u32 + 1, u32::MAX, 1 << 31] {
        let wrong = [&length.to_le_bytes()[..], &whole[4..]].concat();
        assert_eq!(of_mongodb(message(&wrong)), [], "{length}");
        assert_eq!(of_mongodb(query("admin.$cmd", &wrong)), [], "{length}");
    }
    for end in 0..whole.len() {
        assert_eq!(of_mongodb(message(&whole[..end])), [], "{end}");
    }
    for body in [&b""[..], b"\0\0\0\0", b"\0\0\0\0admin.$cmd", b"\0\0\0\0admin.$cmd\0\0\0\0"] {
        assert_eq!(of_mongodb((Client, operation(2004, body))), [], "{body:?}");
    }
    // A document that is longer than what is kept.
    let long =
        document(&[sasl("SCRAM-SHA-256", b"n,,n=app,r=n"), vec![binary("more", &[7; 3_000])]].concat());
    assert_eq!(of_mongodb(message(&long)), []);
}

/// The name goes to whoever asked for it, and no copy stays.
#[test]
fn a_conversation_keeps_no_name() {
    let cases = [
        (DatabaseProtocol::Postgres, vec![(Client, startup(VERSION_3, b"user\0application\0\0"))]),
        (DatabaseProtocol::MySql, mysql_login(Capabilities::default(), b"application", b"", None)),
        (DatabaseProtocol::MongoDb, vec![message(&document(&sasl("SCRAM-SHA-1", b"n,,n=application,r=n")))]),
    ];
    for (protocol, turns) in cases {
        let mut conversation = Conversation::new(Some(protocol), AccountNames::Read);
        let mut has_name = false;
        for (side, bytes) in &turns {
            let (left, right) = bytes.split_at(bytes.len() / 2);
            for bytes in [left, right] {
                conversation.read(*side, Content::Bytes(bytes), |event| {
                    has_name |= matches!(event, Event::Account(_));
                });
            }
        }
        // A message is freed when the next one begins.
        conversation.read(Client, Content::Bytes(&typed(b'X', b"")), |_| ());
        assert!(has_name, "{protocol:?}");
        assert!(
            !format!("{conversation:?}").contains(&format!("{:?}", b"application")[1..33]),
            "{protocol:?}"
        );
    }
}

proptest! {
    #[test]
    fn names_of_changed_logins_are_printable_and_bounded(
        protocol in 0..3_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (protocol, mut turns) = match protocol {
            0 => (DatabaseProtocol::Postgres, postgres_without_tls()),
            1 => (
                DatabaseProtocol::MySql,
                mysql_login(Capabilities::PLUGIN_AUTH_LENENC, b"app", &[2; 32], Some(b"shop")),
            ),
            _ => {
                let login = document(&sasl("SCRAM-SHA-256", b"n,,n=app,r=nonce"));
                (DatabaseProtocol::MongoDb, vec![message(&login), query("admin.$cmd", &login)])
            }
        };
        for (place, byte) in changes {
            let turn = place.index(turns.len());
            let bytes = &mut turns[turn].1;
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        for event in events(protocol, &turns, AccountNames::Read) {
            let Event::Account(account) = event else { continue };
            for name in [Some(account.user()), account.database()].into_iter().flatten() {
                prop_assert!(name.chars().count() <= Account::MAX_CHARACTERS + 1);
                prop_assert!(name.chars().all(is_printable));
            }
        }
    }
}
