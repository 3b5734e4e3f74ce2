//! Prepared statements mean what they meant when their client prepared them, on every connection.

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::transactions::{prepare, run};

pub(crate) const CASES: [Case; 2] = [
    ("constants are read with the settings of their first preparation", constants),
    ("a transaction does not fail for a statement that it does not use", unused),
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
