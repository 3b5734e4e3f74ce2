//! Names of users and databases: nowhere, unless they are asked for.

use ciphertoll_observe::{Observation, ObservedUser, cyclonedx, first_screen, limits};
use ciphertoll_wire::passive::{AccountNames, ConnectionSide, DatabaseProtocol};

use ConnectionSide::{Client, Server};

use crate::exchange::{Exchange, WHOLE, encrypted, observed_all, only_pair, plain, recording, typed};
use crate::hostile::sample;

/// A login to PostgreSQL, and a query.
fn login(parameters: &str, names: AccountNames) -> Exchange {
    let mut exchange = Exchange { names, ..Exchange::open() };
    exchange.send(Client, &startup(parameters));
    exchange.send(Server, &[typed(b'R', &[0; 4]), typed(b'Z', b"I")].concat());
    exchange.send(Client, &typed(b'Q', b"SELECT 1\0"));
    exchange.send(Server, &[typed(b'C', b"SELECT 1\0"), typed(b'Z', b"I")].concat());
    exchange.close(Client);
    exchange
}

fn startup(parameters: &str) -> Vec<u8> {
    let body = [&[0, 3, 0, 0][..], parameters.as_bytes(), b"\0"].concat();
    [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

fn named(user: &str, database: Option<&str>, connections: u64) -> ObservedUser {
    ObservedUser { user: user.to_owned(), database: database.map(str::to_owned), connections }
}

/// Logins of these users, one behind the other.
fn logins(parameters: &[String], names: AccountNames) -> Observation {
    let exchanges: Vec<_> = parameters
        .iter()
        .enumerate()
        .map(|(client, parameters)| {
            let exchange = login(parameters, names);
            Exchange { frames: on_port(exchange.frames, 20_000 + client as u16), ..exchange }
        })
        .collect();
    observed_all(&exchanges)
}

/// The same of another port of the client.
fn on_port(mut frames: Vec<Vec<u8>>, port: u16) -> Vec<Vec<u8>> {
    for frame in &mut frames {
        let at = if frame[15] == 1 { 20 } else { 22 };
        frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    frames
}

const ZEBRA: &str = "user\0zebra_user\0database\0zebra_data\0";

#[test]
fn no_name_is_anywhere_unless_it_is_asked_for() {
    let without = logins(&[ZEBRA.to_owned()], AccountNames::Ignored);
    let documents = |seen: &Observation| {
        [
            first_screen(seen),
            serde_json::to_string(seen).unwrap(),
            cyclonedx(seen).unwrap(),
            format!("{seen:?}"),
        ]
    };
    for document in documents(&without) {
        assert!(!document.contains("zebra"), "{document}");
    }
    assert!(!serde_json::to_string(&without).unwrap().contains("names"), "a document as before");
    let with = logins(&[ZEBRA.to_owned()], AccountNames::Read);
    assert_eq!(with.pairs[0].users, [named("zebra_user", Some("zebra_data"), 1)]);
    let [screen, json, inventory, _] = documents(&with);
    assert!(screen.contains(", not encrypted, as zebra_user to zebra_data\n"), "{screen}");
    assert!(json.contains("zebra_user") && json.contains("zebra_data"), "{json}");
    // An inventory of cryptography has no users.
    assert!(!inventory.contains("zebra"), "{inventory}");
    let found: Vec<_> = with.findings.iter().map(|finding| &finding.seen).collect();
    assert_eq!(found, without.findings.iter().map(|finding| &finding.seen).collect::<Vec<_>>());
}

#[test]
fn names_are_the_same_wherever_a_login_is_cut() {
    let startup = startup(ZEBRA);
    for cut in 1..startup.len() {
        let mut exchange = Exchange { names: AccountNames::Read, ..Exchange::open() };
        let (left, right) = startup.split_at(cut);
        exchange.send(Client, left);
        exchange.send(Client, right);
        exchange.send(Server, &[typed(b'R', &[0; 4]), typed(b'Z', b"I")].concat());
        exchange.close(Client);
        let expected = [named("zebra_user", Some("zebra_data"), 1)];
        assert_eq!(exchange.pair().users, expected, "{cut}");
        // The second part is captured first.
        let order: Vec<_> = (0..3).chain([4, 3]).chain(5..exchange.frames.len()).collect();
        assert_eq!(only_pair(exchange.observed_in(&order)).users, expected, "{cut}");
        // Without it, there is no name, and not half of one.
        assert_eq!(only_pair(exchange.observed(WHOLE, Some(4))).users, [], "{cut}");
    }
}

#[test]
fn a_login_that_the_server_refuses_names_its_user_too() {
    let mut exchange = Exchange { names: AccountNames::Read, ..Exchange::open() };
    exchange.send(Client, &startup(ZEBRA));
    exchange.send(Server, &typed(b'E', b"SFATAL\0C28P01\0\0"));
    exchange.close(Server);
    assert_eq!(exchange.pair().users, [named("zebra_user", Some("zebra_data"), 1)]);
}

#[test]
fn a_connection_that_was_open_before_names_nobody() {
    let mut exchange = login(ZEBRA, AccountNames::Read);
    exchange.frames.drain(..3);
    let pair = exchange.pair();
    assert_eq!((pair.connections.began_before, &pair.users[..]), (1, &[][..]));
}

#[test]
fn a_screen_names_two_users_and_counts_more() {
    let screen = |users: &[&str]| {
        let users: Vec<_> = users.iter().map(|user| format!("{user}\0")).collect();
        let screen = first_screen(&logins(&users, AccountNames::Read));
        assert!(screen.lines().count() <= 25, "{screen}");
        screen
    };
    let (one, two) = ("user\0b\0database\0shop", "user\0a\0database\0to");
    let both = screen(&[one, two, one]);
    assert!(both.contains(", as b to shop and a to \"to\"\n"), "{both}");
    assert!(screen(&[one, two, "user\0c"]).contains(", as 3 users\n"));
    let databases = ["user\0a\0database\0x", "user\0a\0database\0y", "user\0a"];
    assert!(screen(&databases).contains(", as a to 3 databases\n"));
}

#[test]
fn a_pair_keeps_a_hundred_users_and_counts_the_connections_of_others() {
    let users: Vec<_> = (0..130).map(|number| format!("user\0user {number:03}\0")).collect();
    let observation = logins(&users, AccountNames::Read);
    let pair = &observation.pairs[0];
    assert_eq!((pair.users.len(), pair.other_users, pair.connections.begun), (100, 30, 130));
    let screen = first_screen(&observation);
    assert!(screen.contains(", as at least 100 users\n"), "{screen}");
    let again = Observation::from_json(&serde_json::to_string(&observation).unwrap());
    assert_eq!(again, Ok(observation));
}

#[test]
fn what_encryption_hides_is_said_if_names_were_asked_for() {
    const HIDDEN: &str = "names inside of TLS are hidden";
    let mut tls = encrypted(recording!("tls13"), WHOLE);
    assert!(!limits(&tls.observed(WHOLE, None)).iter().any(|limit| limit == HIDDEN));
    tls.names = AccountNames::Read;
    let hidden = tls.observed(WHOLE, None);
    assert!(limits(&hidden).iter().any(|limit| limit == HIDDEN) && hidden.pairs[0].users.is_empty());
    let mut not_encrypted = plain();
    not_encrypted.names = AccountNames::Read;
    assert!(!limits(&not_encrypted.observed(WHOLE, None)).iter().any(|limit| limit.contains("names")));
    // Both kinds in one pair: it is said who does not encrypt.
    tls.frames.extend(on_port(not_encrypted.frames, 41_000));
    let screen = first_screen(&tls.observed(WHOLE, None));
    assert!(screen.contains(", without encryption as app to app\n"), "{screen}");
    assert!(screen.contains(HIDDEN), "{screen}");
}

#[test]
fn a_mysql_client_that_becomes_many_users_is_counted_once_for_each() {
    let packet =
        |sequence: u8, payload: &[u8]| [&[payload.len() as u8, 0, 0, sequence][..], payload].concat();
    let mut exchange = Exchange { names: AccountNames::Read, ..Exchange::open() };
    exchange.protocol = Some(DatabaseProtocol::MySql);
    let mut greeting = b"\x0a8.0.36\0\x07\0\0\0ABCDEFGH\0\xff\xff\x2d\x02\0\xff\xdf\x15".to_vec();
    greeting.extend([0; 10]);
    greeting.extend(b"IJKLMNOPQRST\0caching_sha2_password\0");
    exchange.send(Server, &packet(0, &greeting));
    let mut login = b"\x85\xa2\x2a\0\0\0\0\x01\x2d".to_vec();
    login.extend([0; 23]);
    login.extend(b"app\0\0caching_sha2_password\0");
    exchange.send(Client, &packet(1, &login));
    let ok = [0, 0, 0, 2, 0, 0, 0];
    exchange.send(Server, &packet(2, &ok));
    for user in 0..12 {
        exchange.send(Client, &packet(0, format!("\x11user{}\0\0shop\0", user % 10).as_bytes()));
        exchange.send(Server, &packet(1, &ok));
    }
    exchange.close(Client);
    let pair = exchange.pair();
    assert_eq!((pair.users.len(), pair.other_users, pair.connections.begun), (8, 1, 1), "{pair:?}");
    assert!(
        pair.users.contains(&named("app", None, 1)) && pair.users.contains(&named("user0", Some("shop"), 1))
    );
}

#[test]
fn documents_with_names_that_no_observer_wrote_are_refused() {
    let read = |change: fn(&mut Observation)| {
        let mut observation = sample();
        change(&mut observation);
        Observation::from_json(&serde_json::to_string(&observation).unwrap()).map(|_| ())
    };
    assert_eq!(read(|_| ()), Ok(()));
    let refused = |change: fn(&mut Observation), reason: &str| {
        let said = read(change).unwrap_err();
        assert!(said.contains(reason), "{said}");
    };
    refused(|seen| seen.pairs[2].users[0].connections = u64::MAX, "connections or queries");
    refused(|seen| seen.pairs[2].other_users = u64::MAX, "connections or queries");
    refused(|seen| seen.pairs[2].users[0].connections = 10, "more connections of a user");
    refused(|seen| seen.pairs[2].other_users = 10, "more connections of a user");
    refused(|seen| seen.pairs[2].users = vec![named("a", None, 1); 101], "101 users");
    refused(|seen| seen.pairs[2].users[1].user = "x".repeat(66), "cannot be printed");
    refused(|seen| seen.pairs[2].users[0].database = Some("a\nb".to_owned()), "cannot be printed");
    refused(|seen| seen.pairs[2].users[0].user = "\u{202e}a".to_owned(), "cannot be printed");
    // A document of an observer that knew no names.
    let mut old = serde_json::to_value(sample()).unwrap();
    old.as_object_mut().unwrap().remove("names");
    for pair in old["pairs"].as_array_mut().unwrap() {
        pair.as_object_mut().unwrap().remove("users");
        pair.as_object_mut().unwrap().remove("other_users");
    }
    let old = Observation::from_json(&old.to_string()).unwrap();
    assert!(!old.names && old.pairs.iter().all(|pair| pair.users.is_empty() && pair.other_users == 0));
}
