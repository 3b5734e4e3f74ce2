//! Prepared statements mean what they meant when their client prepared them, on every connection.

use ciphertoll_wire::postgres::command::{encode_parse, encode_sync};

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::transactions::{execute, prepare, run};

pub(crate) const CASES: [Case; 6] = [
    ("constants are read with the settings of their first preparation", constants),
    ("a transaction does not fail for a statement that it does not use", unused),
    ("a lock on the table of a statement that a text does not use delays no text", locked),
    ("a CREATE DATABASE that was prepared in another time zone is executed", apart),
    ("the unnamed statement survives a change of a setting", unnamed),
    ("an EXECUTE has the error of its statement", errors),
];

/// 9 hours before UTC.
const TOKYO: &str = "SET LOCAL TIME ZONE 'Asia/Tokyo'";
const MIDNIGHT: &str = "SELECT timestamptz '2020-01-01 00:00' AT TIME ZONE 'UTC'";

/// A client that has logged in, in a known time zone.
fn client(proxy: &Proxy) -> RawClient {
    let mut raw = proxy.raw(&[("TimeZone", "UTC")]);
    raw.answer();
    raw
}

fn ask(raw: &mut RawClient, sql: &str) {
    raw.query(sql);
    let answer = raw.answer();
    assert_eq!(RawClient::error_state(&answer), None, "{sql}");
}

fn constants(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut other = proxy.client();
    // What comes before the statement is prepared, what ends that transaction, and what begins the transaction in which it is
    // used on another connection.
    for (before, end, later, sql, value) in [
        ("", "", TOKYO, MIDNIGHT, "2020-01-01 00:00:00"),
        (TOKYO, "COMMIT", "SELECT 1", MIDNIGHT, "2019-12-31 15:00:00"),
        ("SET TimeZone = 'Asia/Tokyo'", "ROLLBACK", "SELECT 1", MIDNIGHT, "2019-12-31 15:00:00"),
        (
            "SELECT set_config('TimeZone', 'Asia/Tokyo', true)",
            "COMMIT",
            TOKYO,
            MIDNIGHT,
            "2019-12-31 15:00:00",
        ),
        ("", "", "SET LOCAL DateStyle = 'SQL, DMY'", "SELECT extract(month FROM date '01/02/2020')", "1"),
        ("", "", "SET LOCAL standard_conforming_strings = off", r"SELECT 'a\temp'", r"a\temp"),
    ] {
        let mut raw = client(&proxy);
        if !before.is_empty() {
            ask(&mut raw, "BEGIN");
            ask(&mut raw, before);
        }
        prepare(&mut raw, "s", sql);
        if !before.is_empty() {
            ask(&mut raw, end);
        }
        for _ in 0..2 {
            one(&mut other, "SELECT 1");
            ask(&mut raw, "BEGIN");
            ask(&mut raw, later);
            let shown = if later == "SELECT 1" { "UTC" } else { "" };
            assert_eq!(run(&mut raw, "s").1, [value], "{before}, {later}, {sql}");
            if !shown.is_empty() {
                prepare(&mut raw, "", "SHOW TimeZone");
                assert_eq!(run(&mut raw, "").1, [shown], "it is set back");
            }
            ask(&mut raw, "COMMIT");
        }
    }
}

fn unused(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut other = proxy.client();
    for sql in
        ["SET TIME ZONE 'UTC'", "SET xmloption = document", "SELECT 1 AS U&\"d\\0061t\"", "DO 'BEGIN END'"]
    {
        let mut raw = client(&proxy);
        ask(
            &mut raw,
            "DROP TABLE IF EXISTS gone, kept; CREATE TABLE gone (d date); CREATE TABLE kept (n int)",
        );
        prepare(
            &mut raw,
            "s",
            "SELECT FROM gone WHERE d > '2020-01-01' AND xmlparse(CONTENT '<a/>') IS NULL",
        );
        ask(&mut raw, "DROP TABLE gone");
        one(&mut other, "SELECT 1");
        ask(&mut raw, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        ask(&mut raw, sql);
        if sql.starts_with("SET ") {
            // Refused once there is a snapshot.
            ask(&mut raw, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
        }
        ask(&mut raw, "INSERT INTO kept VALUES (1)");
        ask(&mut raw, "COMMIT");
        raw.query("TABLE kept");
        assert!(raw.answer().iter().any(|(kind, _)| *kind == b'D'), "{sql}: the row is lost");
        drop(raw);
    }
}

fn locked(fixture: &mut Fixture) {
    let (proxy, mut control) = (fixture.proxy(&["--pool-size", "1"]), fixture.control());
    control
        .query("DROP TABLE IF EXISTS busy; CREATE TABLE busy (d date); GRANT ALL ON busy TO PUBLIC")
        .expect("a table");
    let mut other = proxy.client();
    for sql in
        ["DISCARD ALL", "RESET ALL", "DO 'BEGIN END'", "SET xmloption = content", "SELECT 1 AS U&\"a\""]
    {
        let mut raw = client(&proxy);
        prepare(&mut raw, "s", "SELECT FROM busy WHERE d > '2020-01-01'");
        one(&mut other, "SELECT 1");
        control.query("BEGIN; LOCK TABLE busy").expect("a lock");
        ask(&mut raw, sql);
        control.query("ROLLBACK").expect("the end");
        drop(raw);
    }
}

fn apart(fixture: &mut Fixture) {
    let (proxy, mut control) = (fixture.proxy(&["--pool-size", "1"]), fixture.control());
    control.query("DROP DATABASE IF EXISTS made").expect("no database");
    control.query(&format!("ALTER ROLE {} CREATEDB", proxy.user)).expect("a right");
    let (mut raw, mut other) = (client(&proxy), proxy.client());
    ask(&mut raw, "DROP TABLE IF EXISTS gone; CREATE TABLE gone (d date)");
    prepare(&mut raw, "gone", "SELECT FROM gone WHERE d > '2020-01-01'");
    ask(&mut raw, "DROP TABLE gone");
    prepare(&mut raw, "s", "CREATE DATABASE made ENCODING 'UTF8' TEMPLATE template0");
    ask(&mut raw, "SET TIME ZONE 'Asia/Tokyo'");
    one(&mut other, "SELECT 1");
    // Beside `ParameterStatus`, which may come after a move.
    let mut kinds = |name| run(&mut raw, name).0.replace('S', "");
    assert_eq!((kinds("gone"), kinds("s")), ("EZ".to_owned(), "2CZ".to_owned()));
    prepare(&mut raw, "", "SHOW TimeZone");
    assert_eq!(run(&mut raw, "").1, ["Asia/Tokyo"], "it is set back");
    drop(raw);
    control.query("DROP DATABASE made").expect("it is there");
}

fn unnamed(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut raw = client(&proxy);
    prepare(&mut raw, "set", "SET work_mem = '5MB'");
    // Executed in the batch of its `Parse`, so that nothing describes it.
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, "", "SELECT 'unnamed'", &[]).expect("a statement");
    execute(&mut bytes, "");
    encode_sync(&mut bytes);
    raw.send(&bytes);
    raw.answer();
    assert_eq!(run(&mut raw, "set").0, "2CZ");
    assert_eq!(run(&mut raw, "").1, ["unnamed"]);
}

fn errors(fixture: &mut Fixture) {
    let (proxy, mut control) = (fixture.proxy(&["--pool-size", "1"]), fixture.control());
    let (mut raw, mut other) = (client(&proxy), proxy.client());
    control
        .query("DROP TABLE IF EXISTS gone; CREATE TABLE gone (n int); GRANT ALL ON gone TO PUBLIC")
        .expect("a table");
    prepare(&mut raw, "s", "SELECT n FROM gone");
    one(&mut other, "SELECT 1");
    control.query("DROP TABLE gone").expect("it is there");
    ask(&mut raw, "BEGIN");
    raw.query("EXECUTE s");
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("42P01"));
    raw.query("ROLLBACK; EXECUTE s");
    assert_eq!(
        RawClient::error_state(&raw.answer()).as_deref(),
        Some("26000"),
        "not that of the transaction"
    );
}
