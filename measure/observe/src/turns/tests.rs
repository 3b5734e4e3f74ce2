//! Turns of logins and of queries.

use super::*;
use ConnectionSide::{Client, Server};

/// The number of queries that have an answer.
fn queries(protocol: DatabaseProtocol, records: &[(ConnectionSide, u32)]) -> usize {
    let mut turns = Turns::new(Some(protocol));
    let count = |(side, bytes): &(ConnectionSide, u32)| match turns.record(*side, *bytes) {
        Turn::Query => 1,
        Turn::SecondQuery => 2,
        _ => 0,
    };
    records.iter().map(count).sum()
}

const SCRAM: [(ConnectionSide, u32); 6] =
    [(Client, 40), (Server, 24), (Client, 55), (Server, 101), (Client, 109), (Server, 430)];

#[test]
fn the_messages_of_a_login_are_no_queries_on_postgres() {
    let query = [(Client, 30), (Server, 60), (Server, 300)];
    let end = [(Client, 5)];
    let all = [&SCRAM[..], &query, &query, &end].concat();
    assert_eq!(queries(DatabaseProtocol::Postgres, &all), 2);
    let trusted = [&[(Client, 40), (Server, 400)][..], &query, &end].concat();
    assert_eq!(queries(DatabaseProtocol::Postgres, &trusted), 1);
}

#[test]
fn tickets_and_other_plugins_are_no_queries_on_mysql() {
    let query = [(Client, 13), (Server, 60)];
    let tickets = [(Server, 255), (Server, 255)];
    for login in [
        vec![(Client, 190), (Server, 11)],
        vec![(Client, 52), (Server, 233), (Server, 233), (Client, 190), (Server, 11)],
        vec![(Client, 190), (Server, 255), (Server, 255), (Server, 11)],
        vec![(Client, 190), (Server, 6), (Client, 20), (Server, 11)],
        vec![(Client, 190), (Server, 47), (Client, 24), (Server, 11)],
        vec![(Client, 190), (Server, 47), (Client, 36), (Server, 6), (Client, 20), (Server, 11)],
        // An OK that reports changes of the session is as long as a request for another plugin.
        vec![(Client, 190), (Server, 60)],
    ] {
        let all = [&tickets[..], &login, &query, &query, &[(Client, 5)]].concat();
        assert_eq!(queries(DatabaseProtocol::MySql, &all), 2, "{login:?}");
    }
}

#[test]
fn a_login_is_not_waited_for_without_authentication_on_mongodb() {
    let hello = [(Client, 380), (Server, 520)];
    let (short, long) = ([(Client, 70), (Server, 200)], [(Client, 130), (Server, 2_000)]);
    let sasl = [(Client, 190), (Server, 180), (Client, 220), (Server, 150)];
    // FerretDB's, with the empty exchange at the end.
    let ferretdb = [(Client, 175), (Server, 188), (Client, 205), (Server, 125), (Client, 93), (Server, 79)];
    for (login, expected) in [(&[][..], 2), (&sasl, 2), (&ferretdb, 2)] {
        for query in [short, long] {
            let all = [&hello[..], login, &query, &query].concat();
            assert_eq!(queries(DatabaseProtocol::MongoDb, &all), expected, "{all:?}");
        }
    }
    let last = |records: &[(ConnectionSide, u32)]| {
        let mut turns = Turns::new(Some(DatabaseProtocol::MongoDb));
        for (side, bytes) in records {
            turns.record(*side, *bytes);
        }
        turns.last()
    };
    assert_eq!(last(&hello), Turn::LoggedIn);
    assert_eq!(last(&[hello, long].concat()), Turn::Query);
    assert_eq!(last(&[&hello[..], &sasl].concat()), Turn::Goes);
}

#[test]
fn what_is_sent_before_an_answer_is_one_turn() {
    let pipelined = [&SCRAM[..], &[(Client, 30), (Client, 30), (Server, 60), (Server, 60)]].concat();
    assert_eq!(queries(DatabaseProtocol::Postgres, &pipelined), 1);
}

#[test]
fn only_block_ciphers_hide_the_length_of_their_content() {
    assert_eq!(overhead_bytes(0x0304, 0x1301), Some(17));
    assert_eq!(overhead_bytes(0x0303, 0xc02f), Some(24));
    assert_eq!(overhead_bytes(0x0303, 0xcca8), Some(16));
    assert_eq!(overhead_bytes(0x0303, 0xc013), None);
}

#[test]
fn an_encrypted_request_to_cancel_is_one_that_no_server_answers() {
    let is_cancel = |protocol, records: &[(ConnectionSide, u32)]| {
        let mut turns = Turns::new(Some(protocol));
        for (side, bytes) in records {
            turns.record(*side, *bytes);
        }
        turns.is_cancel_request()
    };
    let finished = (Client, 52);
    // Behind a certificate come its signature, and then what ends the handshake.
    let with_certificate = [(Client, 79), finished, (Client, 16), (Server, 2)];
    assert!(is_cancel(DatabaseProtocol::Postgres, &with_certificate));
    for bytes in [16, 44] {
        let request = [finished, (Client, bytes), (Server, 2)];
        assert!(is_cancel(DatabaseProtocol::Postgres, &request));
        assert!(!is_cancel(DatabaseProtocol::MySql, &request));
        // A login that the server refuses.
        assert!(!is_cancel(
            DatabaseProtocol::Postgres,
            &[finished, (Client, bytes), (Server, 110), (Server, 2)]
        ));
    }
    assert!(!is_cancel(DatabaseProtocol::Postgres, &[finished, (Client, 60), (Server, 2)]));
    assert!(!is_cancel(DatabaseProtocol::Postgres, &[finished, (Server, 2)]));
}

#[test]
fn a_client_of_mysql_without_a_query_has_logged_in_if_it_was_not_refused() {
    let last = |records: &[(ConnectionSide, u32)]| {
        let mut turns = Turns::new(Some(DatabaseProtocol::MySql));
        for (side, bytes) in records {
            turns.record(*side, *bytes);
        }
        turns.last()
    };
    let switched = [(Client, 190), (Server, 47), (Client, 24)];
    let full = [(Client, 190), (Server, 6), (Client, 20)];
    for login in [&[(Client, 190)][..], &switched, &full] {
        let (welcome, refused) = ([login, &[(Server, 11)]].concat(), [login, &[(Server, 85)]].concat());
        assert_eq!(last(&welcome), Turn::LoggedIn, "{login:?}");
        assert_eq!(last(&[&welcome[..], &[(Client, 5)]].concat()), Turn::LoggedIn, "{login:?}");
        let ping = [(Client, 5), (Server, 11)];
        assert_eq!(last(&[&welcome[..], &ping].concat()), Turn::LoggedIn, "{login:?}");
        assert_eq!(last(&refused), Turn::Goes, "{login:?}");
        assert_eq!(last(&[&refused[..], &[(Server, 2)]].concat()), Turn::Goes, "{login:?}");
        assert_eq!(last(login), Turn::Goes, "{login:?}");
    }
}
