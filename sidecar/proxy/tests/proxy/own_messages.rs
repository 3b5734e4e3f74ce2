//! What the proxy sends to a server on its own behalf, about a client's settings and statements: it affects no client.

use ciphertoll_wire::postgres::Param;
use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{encode_bind, encode_execute, encode_parse, encode_sync};

use crate::Case;
use crate::cases::one;
use crate::fixture::Fixture;
use crate::operations::await_that;

pub(crate) const CASES: [Case; 1] =
    [("temp_buffers can be set behind a client with temporary tables", temporary_buffers)];

pub(crate) const OF_TRANSACTIONS: [Case; 4] = [
    ("a lock on a table that a former client has read delays no client", locked),
    ("a statement with 20,000 parameters of a former client does not matter", many_parameters),
    ("a setting of 70,000 bytes follows its client", long_setting),
    ("a role, and settings that it may not set, follow their client", roles),
];

const SMALL_POOL: [&str; 2] = ["--pool-size", "1"];

/// Prepares a statement without a name and executes it at once.
fn execute(sql: &str, params: &[Param<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, "", sql, &[]).expect("a statement");
    encode_bind(&mut bytes, "", "", params, ValueFormat::Text).expect("a portal");
    encode_execute(&mut bytes, "", 0).expect("a command");
    encode_sync(&mut bytes);
    bytes
}

fn locked(fixture: &mut Fixture) {
    let (proxy, mut control) = (fixture.proxy(&SMALL_POOL), fixture.control());
    let table = "CREATE TABLE IF NOT EXISTS locked (n int); GRANT ALL ON locked TO PUBLIC";
    control.query(table).expect("a table");
    let mut first = proxy.raw(&[]);
    first.answer();
    first.send(&execute("SELECT n FROM locked", &[]));
    assert_eq!(first.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
    control.query("BEGIN; LOCK TABLE locked").expect("a lock");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1", "it does not wait");
    control.query("ROLLBACK").expect("the end");
}

fn many_parameters(fixture: &mut Fixture) {
    const PARAMETERS: usize = 20_000;
    let proxy = fixture.proxy(&SMALL_POOL);
    let numbers: Vec<String> = (1..=PARAMETERS).map(|number| format!("${number}::int")).collect();
    let sql = format!("SELECT 1 WHERE 0 IN ({})", numbers.join(","));
    let mut first = proxy.raw(&[]);
    first.answer();
    first.send(&execute(&sql, &vec![Param::Text(b"1"); PARAMETERS]));
    assert_eq!(first.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
    drop(first);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn long_setting(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&SMALL_POOL);
    let (mut first, mut second) = (proxy.client(), proxy.client());
    first.query(&format!("SET app.claims = '{}'", "x".repeat(70_000))).expect("a setting");
    for _ in 0..2 {
        assert_eq!(one(&mut second, "SELECT 1"), "1");
        assert_eq!(one(&mut first, "SELECT length(current_setting('app.claims'))"), "70000");
    }
}

fn roles(fixture: &mut Fixture) {
    let (proxy, mut control) = (fixture.proxy(&SMALL_POOL), fixture.control());
    for sql in [
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader",
        &format!("GRANT reader TO {}", proxy.user),
        &format!("GRANT SET ON PARAMETER log_duration TO {}", proxy.user),
    ] {
        control.query(sql).expect("a role");
    }
    let (mut first, mut second) = (proxy.client(), proxy.client());
    // The other way round, the client would be pinned.
    first.query("SET log_duration = on").expect("a setting");
    first.query("SET ROLE reader; RESET ROLE; SET ROLE reader").expect("a role");
    for _ in 0..2 {
        one(&mut second, "SELECT 1");
        assert_eq!(one(&mut first, "SELECT current_user || current_setting('log_duration')"), "readeron");
    }
    // What cannot be set again is the error of a command.
    one(&mut second, "SELECT 1");
    control.query("DROP ROLE reader").expect("it owns nothing");
    for _ in 0..3 {
        let error = first.query("SELECT 1").expect_err("the role is gone").to_string();
        assert!(error.contains("reader") && !error.contains("08006"), "{error}");
    }
    assert_eq!(one(&mut second, "SELECT current_user"), proxy.user);
}

fn temporary_buffers(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&SMALL_POOL);
    let mut first = proxy.client();
    first.query("CREATE TEMP TABLE t AS SELECT 1").expect("a table");
    drop(first);
    await_that("the connection is free", || proxy.try_client().is_ok());
    let mut second = proxy.raw(&[("options", "-c temp_buffers=16MB")]);
    second.answer();
    second.query("SHOW temp_buffers");
    let answer = second.answer();
    assert!(answer.iter().any(|(kind, row)| *kind == b'D' && row.ends_with(b"16MB")), "{answer:?}");
}
