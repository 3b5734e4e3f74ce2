//! State that `COM_RESET_CONNECTION` does not undo: each row of the table in docs/sidecar/what-a-reset-leaves.md that a
//! MariaDB without further plugins has.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Endpoint, Engine};
use ciphertoll_testing::not_for_all;

use super::Case;
use super::fixture::Fixture;
use super::raw::{RawClient, USUAL, UTF8MB4};
use crate::process::LONG;

pub(crate) const CASES: [Case; 4] = [
    ("only the end of a session undoes what a reset leaves", rows_are_real),
    ("what a reset leaves does not reach the next client", nothing_reaches_the_next_client),
    ("a prepared XA transaction survives its client", prepared_transaction),
    ("a time limit of the socket does not reach the next client", socket_limit),
];

/// What a session leaves, and a query whose value shows it.
type Row = (&'static [&'static str], &'static str);

const ROLE: &str = "SELECT CURRENT_ROLE()";
const PROFILES: &str = "SELECT COUNT(*) > 0 FROM information_schema.profiling";

/// The proxy closes the connection after these.
const CLOSED: [Row; 12] = [
    (&["SET ROLE leak"], ROLE),
    (&["set /* it */ role 'leak'"], ROLE),
    (&["SET # it\nROLE leak"], ROLE),
    (&["/*!50000SET ROLE leak*/"], ROLE),
    (&["SET STATEMENT max_statement_time = 9 FOR SET ROLE leak"], ROLE),
    (&["EXECUTE IMMEDIATE 'SET ROLE leak'"], ROLE),
    (&["EXECUTE IMMEDIATE CONCAT('SET RO', 'LE leak')"], ROLE),
    (&["PREPARE x FROM 'SET ROLE leak'", "EXECUTE x"], ROLE),
    (&["SET @text = CONCAT('SET RO', 'LE leak')", "PREPARE x FROM @text", "EXECUTE x"], ROLE),
    (&["BEGIN NOT ATOMIC SET ROLE leak; END"], ROLE),
    (&["SET profiling = 1", "SELECT 'secret'"], PROFILES),
    (&["SET SESSION `Profiling` = 1", "SELECT 'secret'", "SET profiling = 0"], PROFILES),
];

/// No text of a client shows these.
const HIDDEN: [Row; 1] = [(&["CALL sets_role()"], ROLE)];

/// The proxy restores these.
const RESTORED: [Row; 2] = [
    (&["USE information_schema"], "SELECT DATABASE()"),
    (&["SELECT 1 UNION SELECT 2 UNION SELECT 3"], "SELECT FOUND_ROWS()"),
];

fn prepare(fixture: &Fixture) {
    let (mut control, user, database) = (fixture.control(), fixture.user(), fixture.server().database());
    for sql in [
        "CREATE ROLE IF NOT EXISTS leak",
        &format!("GRANT leak TO '{user}'@'%'"),
        &format!("DROP PROCEDURE IF EXISTS {database}.sets_role"),
        &format!("CREATE PROCEDURE {database}.sets_role() SQL SECURITY INVOKER SET ROLE leak"),
    ] {
        control.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Whether there is a server for this. Reading MySQL's source, roles and `BINLOG` remain there, too, profiles do not.
fn is_mariadb(fixture: &Fixture) -> bool {
    let is_mariadb = fixture.engine() == Engine::MariaDb;
    if !is_mariadb {
        not_for_all("the control account of MySQL may not grant roles");
    }
    is_mariadb
}

/// A client of the server itself.
pub(super) fn direct(fixture: &Fixture) -> RawClient {
    let Endpoint::Unix(socket) = fixture.server().unix_endpoint() else { panic!("a server has a socket") };
    let (user, database) = (fixture.user(), fixture.server().database());
    RawClient::log_in_with(&socket, &user, &fixture.password(), Some(database), USUAL, UTF8MB4)
        .expect("the login succeeds")
}

fn leave(client: &mut RawClient, left: &[&str]) {
    for sql in left {
        client.query(sql);
        assert_eq!(RawClient::error(&client.results()), None, "{sql}");
    }
}

/// What a session sees that has left this.
fn seen(fixture: &Fixture, (left, look): &Row) -> String {
    let mut client = direct(fixture);
    leave(&mut client, left);
    client.value(look)
}

fn rows_are_real(fixture: &mut Fixture) {
    if !is_mariadb(fixture) {
        return;
    }
    prepare(fixture);
    for row in CLOSED.iter().chain(&HIDDEN).chain(&RESTORED) {
        let (left, look) = row;
        let seen = seen(fixture, row);
        let mut client = direct(fixture);
        leave(&mut client, left);
        client.command(b"\x1f");
        assert_eq!(client.word().first(), Some(&0), "{left:?}: the reset");
        assert_eq!(client.value(look), seen, "{left:?}: undone by the reset");
        assert_ne!(direct(fixture).value(look), seen, "{left:?}: not undone by the end of the session");
    }
}

fn nothing_reaches_the_next_client(fixture: &mut Fixture) {
    if !is_mariadb(fixture) {
        return;
    }
    prepare(fixture);
    let mut leaks = Vec::new();
    for row in CLOSED.iter().chain(&RESTORED) {
        let (left, look) = row;
        // A proxy for each row: what one leaves is not found by the next.
        let proxy = fixture.proxy(&["--pool-size", "1"]);
        leave(&mut proxy.raw(), left);
        if proxy.raw().value(look) == seen(fixture, row) {
            leaks.push(left);
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

const PREPARE_XA: [&str; 3] = [
    "XA PREPARE 'left'",
    "EXECUTE IMMEDIATE 'XA PREPARE ''left'''",
    "BEGIN NOT ATOMIC XA PREPARE 'left'; END",
];

/// A reset would lose the transaction: `XA COMMIT` of another session succeeds, and the row is missing.
fn prepared_transaction(fixture: &mut Fixture) {
    if !is_mariadb(fixture) {
        return;
    }
    let mut other = direct(fixture);
    for prepare in PREPARE_XA {
        leave(&mut other, &["DROP TABLE IF EXISTS in_xa", "CREATE TABLE in_xa (n INT) ENGINE=InnoDB"]);
        let proxy = fixture.proxy(&["--pool-size", "1"]);
        let mut client = proxy.raw();
        leave(&mut client, &["XA START 'left'", "INSERT INTO in_xa VALUES (5)"]);
        let session = client.value("SELECT CONNECTION_ID()");
        leave(&mut client, &["XA END 'left'", prepare]);
        drop(client);
        // Others can commit it once the session has ended. In the midst of its end, the server says that they have, but the
        // transaction stays prepared.
        let count = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {session}");
        let begun = Instant::now();
        while other.value(&count) != "0" {
            assert!(begun.elapsed() < LONG, "{prepare}: the session stays");
            thread::sleep(Duration::from_millis(5));
        }
        leave(&mut other, &["XA COMMIT 'left'"]);
        assert_eq!(other.value("SELECT n FROM in_xa"), "5", "{prepare}");
        let mut next = proxy.raw();
        leave(&mut next, &["INSERT INTO in_xa VALUES (6)"]);
        assert_eq!(next.value("SELECT COUNT(*) FROM in_xa"), "2", "{prepare}");
    }
    leave(&mut other, &["DROP TABLE in_xa"]);
}

/// More than sockets buffer.
const MANY_BYTES: usize = 40_000_000;

/// Whether a client that pauses in the middle of a long result gets all of it.
fn gets_a_long_result(client: &mut RawClient) -> bool {
    client.query("SELECT REPEAT('a', 1000000) FROM seq_1_to_40");
    thread::sleep(Duration::from_millis(2500));
    let (mut piece, mut bytes) = (vec![0; 1 << 20], 0);
    while bytes < MANY_BYTES {
        match client.stream.read(&mut piece) {
            Ok(0) | Err(_) => return false,
            Ok(read) => bytes += read,
        }
    }
    true
}

fn socket_limit(fixture: &mut Fixture) {
    if !is_mariadb(fixture) {
        return;
    }
    let set = &["SET net_write_timeout = 1"];
    let mut reset = direct(fixture);
    leave(&mut reset, set);
    reset.command(b"\x1f");
    assert_eq!(reset.word().first(), Some(&0), "the reset");
    assert_eq!(reset.value("SELECT @@net_write_timeout"), "60");
    assert!(!gets_a_long_result(&mut reset), "undone by the reset");
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    leave(&mut proxy.raw(), set);
    assert!(gets_a_long_result(&mut proxy.raw()));
}
