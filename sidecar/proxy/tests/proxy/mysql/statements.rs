//! Commands and prepared statements: through the proxy they mean what they mean to the server.

use ciphertoll_model::Engine;
use ciphertoll_wire::mysql::{Capabilities, Param, command};

use super::Case;
use super::cases::{execute, prepare};
use super::fixture::{Fixture, one};
use super::raw::{RawClient, USUAL};
use super::transactions::{NUMBER, ask, assert_not_served, run};
use crate::operations::in_queue_time;

/// In both modes.
pub(crate) const CASES: [Case; 2] = [
    ("cursors of stored routines are not the client's", routine_cursors),
    ("unknown commands are refused by the server", unknown_commands),
];

pub(crate) const OF_TRANSACTIONS: [Case; 6] = [
    ("a savepoint without autocommit keeps its connection", savepoints),
    ("settings of routines that the server reports follow their client", out_of_sight),
    ("prepared statements keep their meaning", meaning),
    ("a statement that cannot be prepared again fails as on the server", errors),
    ("a statement may be executed with a cursor first on another connection", cursor_first),
    ("the error of data sent ahead lasts until the statement is reset", error_state),
];

const CURSOR_NOT_OPEN: u16 = 1421;
const UNKNOWN_COMMAND: u16 = 1047;
const WRONG_ARGUMENTS: u16 = 1210;

fn routine_cursors(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut maker = proxy.client();
    for sql in [
        "DROP PROCEDURE IF EXISTS opens",
        "CREATE PROCEDURE opens() BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; CLOSE c; SELECT 'one'; \
         SELECT 'two'; END",
    ] {
        maker.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
        for asks_for_cursor in [false, true] {
            let mut raw = proxy.raw_with(capabilities);
            let statement = prepare(&mut raw, "CALL opens()").statement_id;
            for _ in 0..2 {
                execute(&mut raw, statement, &[], asks_for_cursor);
                let payloads = raw.results();
                for row in [&b"\x03one"[..], b"\x03two"] {
                    assert!(payloads.iter().any(|payload| payload.ends_with(row)), "{payloads:?}");
                }
                assert_eq!(raw.value("SELECT 'next'"), "next");
            }
            // No cursor is open, on whichever connection.
            let mut fetch = vec![0x1c];
            fetch.extend(statement.to_le_bytes());
            fetch.extend(1_u32.to_le_bytes());
            raw.command(&fetch);
            assert_eq!(RawClient::error(&[raw.word()]), Some(CURSOR_NOT_OPEN));
        }
    }
    maker.execute("DROP PROCEDURE opens").expect("no procedure");
}

/// If the first execution on a connection has a cursor, MySQL's answer to one without is malformed.
fn cursor_first(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    proxy.client().execute("CREATE TABLE IF NOT EXISTS one_row AS SELECT 7 AS n").expect("a table");
    let mut raw = proxy.raw();
    let statement = prepare(&mut raw, "SELECT n FROM one_row").statement_id;
    let is_plain = |raw: &mut RawClient| {
        execute(raw, statement, &[], false);
        let payloads = raw.results();
        payloads.len() == 4 && payloads[2].ends_with(&[7, 0, 0, 0])
    };
    assert!(is_plain(&mut raw));
    for _ in 0..2 {
        in_queue_time(|| ask(&proxy, "SELECT 1"));
        execute(&mut raw, statement, &[], true);
        let mut payloads = vec![raw.word(), raw.word()];
        raw.rows(&mut payloads);
        let fetch = [&b"\x1c"[..], &statement.to_le_bytes(), &1_u32.to_le_bytes()].concat();
        raw.command(&fetch);
        payloads.clear();
        raw.rows(&mut payloads);
        assert!(payloads[0].ends_with(&[7, 0, 0, 0]), "{payloads:?}");
        assert!(is_plain(&mut raw));
        assert!(is_plain(&mut raw));
    }
}

fn unknown_commands(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw();
    for payload in [&b""[..], b"\0", b"\x0b", b"\x0f", b"\x10", b"\x14abc", b"\x1d", b"\x7f", b"\xfe\0"] {
        raw.command(payload);
        assert_eq!(RawClient::error(&[raw.word()]), Some(UNKNOWN_COMMAND), "{payload:?}");
        assert_eq!(raw.value("SELECT 'next'"), "next");
    }
    let refused = [&b"\x12\0\0"[..], b"\x15", b"\x1e"];
    for payload in refused {
        let mut raw = proxy.raw();
        raw.command(payload);
        assert_eq!(RawClient::error(&[raw.word()]), Some(1235), "{payload:?}");
        assert!(raw.packet().is_err(), "it is disconnected");
    }
}

fn savepoints(fixture: &mut Fixture) {
    let maker = fixture.proxy(&[]);
    let mut maker = maker.client();
    for sql in [
        "DROP TABLE IF EXISTS saved",
        "CREATE TABLE saved (n INT) ENGINE=InnoDB",
        "DROP PROCEDURE IF EXISTS saves",
        "CREATE PROCEDURE saves() SAVEPOINT mine",
    ] {
        maker.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.4"]);
    for saves in ["SAVEPOINT mine", "CALL saves()"] {
        // MySQL prepares no `SAVEPOINT`.
        let can_prepare = fixture.engine() == Engine::MariaDb || saves.starts_with("CALL");
        for is_prepared in [false, true].into_iter().filter(|is_prepared| can_prepare || !is_prepared) {
            in_queue_time(|| {
                let mut waiting = proxy.try_client()?;
                let mut raw = proxy.raw();
                let statement = if can_prepare { prepare(&mut raw, saves).statement_id } else { 0 };
                let mut execute = |sql: &str| {
                    raw.query(sql);
                    assert_eq!(RawClient::error(&raw.results()), None, "{sql}");
                };
                execute("SET autocommit = 0");
                if is_prepared {
                    assert_eq!(run_update(&mut raw, statement), None);
                } else {
                    execute(saves);
                }
                assert_not_served(&mut waiting, "SELECT 1", saves);
                for sql in ["INSERT INTO saved VALUES (1)", "ROLLBACK TO mine", "COMMIT"] {
                    raw.query(sql);
                    assert_eq!(RawClient::error(&raw.results()), None, "{saves}, {sql}");
                }
                assert_eq!(ask(&proxy, "SELECT COUNT(*) FROM saved")?, "0", "{saves}");
                Ok(())
            });
        }
        // With autocommit it ends with its statement.
        in_queue_time(|| {
            let mut first = proxy.try_client()?;
            first.query(saves)?;
            ask(&proxy, "SELECT 1")
        });
    }
    for sql in ["DROP TABLE saved", "DROP PROCEDURE saves"] {
        maker.execute(sql).expect("no more");
    }
}

/// Executes a statement without results; returns the error number.
fn run_update(raw: &mut RawClient, statement: u32) -> Option<u16> {
    execute(raw, statement, &[], false);
    RawClient::error(&raw.results())
}

fn out_of_sight(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second) = (proxy.client(), proxy.client());
    first.execute("DROP PROCEDURE IF EXISTS manual").expect("no procedure");
    first.execute("CREATE PROCEDURE manual() SET autocommit = 0").expect("a procedure");
    first.query("CALL manual()").expect("no autocommit");
    // It may have left a savepoint.
    first.execute("COMMIT").expect("no transaction");
    let number = one(&mut second, NUMBER);
    assert_eq!(one(&mut second, "SELECT @@autocommit"), "1");
    assert_eq!(one(&mut first, "SELECT @@autocommit"), "0");
    assert_eq!(one(&mut first, NUMBER), number);
    first.execute("DROP PROCEDURE manual").expect("no procedure");
    assert_eq!(proxy.process.count("event=pinned"), 0);
}

fn meaning(fixture: &mut Fixture) {
    const TEXTS: [&str; 3] = [
        "SELECT CONCAT('a' || 'b', '')",
        "SELECT CONCAT(COUNT(*), '') FROM here",
        "SELECT CONCAT(CHAR_LENGTH('é'), '')",
    ];
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let usual = proxy.database.clone();
    let (mut first, mut second) = (proxy.raw(), proxy.raw());
    for sql in ["DROP TABLE IF EXISTS here", "CREATE TABLE here (n INT)", "INSERT INTO here VALUES (1), (2)"]
    {
        second.query(sql);
        assert_eq!(RawClient::error(&second.results()), None, "{sql}");
    }
    let mut statements: Vec<(u32, &str)> = Vec::new();
    for (text, value) in TEXTS.into_iter().zip(["0", "2", "1"]) {
        statements.push((prepare(&mut first, text).statement_id, value));
    }
    let context = "SELECT CONCAT(@@sql_mode, '|', DATABASE(), '|', @@character_set_client)";
    for (changes, expected) in [
        (&["SET sql_mode = 'PIPES_AS_CONCAT'"][..], format!("PIPES_AS_CONCAT|{usual}|utf8mb4")),
        (&["USE information_schema"], "PIPES_AS_CONCAT|information_schema|utf8mb4".to_owned()),
        (&["SET NAMES latin1"], "PIPES_AS_CONCAT|information_schema|latin1".to_owned()),
        // The new values are not known before the transaction ends.
        (&["BEGIN", "SET sql_mode = 'ANSI_QUOTES'"], "ANSI_QUOTES|information_schema|latin1".to_owned()),
    ] {
        assert_eq!(second.value("SELECT 'moved'"), "moved");
        for change in changes {
            first.query(change);
            assert_eq!(RawClient::error(&first.results()), None, "{change}");
        }
        for (statement, value) in &statements {
            assert_eq!(run(&mut first, *statement, &[]).as_deref(), Ok(*value), "{changes:?}");
        }
        assert_eq!(first.value(context), expected);
        if changes.len() > 1 {
            first.query("COMMIT");
            first.results();
        } else {
            assert_eq!(second.value("SELECT 'moved'"), "moved");
            let modern = prepare(&mut first, "SELECT CONCAT('a' || 'b', CHAR_LENGTH('é'))").statement_id;
            statements.push((modern, if expected.contains("latin1") { "ab2" } else { "ab1" }));
        }
    }
    assert!(second.value(context).ends_with(&format!("|{usual}|utf8mb4")));
    for (statement, value) in &statements {
        assert_eq!(second.value("SELECT 'moved'"), "moved");
        assert_eq!(run(&mut first, *statement, &[]).as_deref(), Ok(*value));
    }
    assert_eq!(proxy.process.count("event=pinned"), 0);
    // What a statement means is not known if it follows a change at once.
    let mut bytes = Vec::new();
    command::encode_query(&mut bytes, &format!("USE {usual}")).expect("it is short");
    command::encode_prepare(&mut bytes, "SELECT 1").expect("it is short");
    first.send(&bytes);
    proxy.process.await_line("behind a change of how texts are read");
    drop(first);
    second.query("DROP TABLE here");
    second.results();
}

fn errors(fixture: &mut Fixture) {
    const TEXT: &str = "SELECT `it's é`, ? FROM changing";
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second) = (proxy.raw(), proxy.raw());
    let mut execute_second = |sql: &str| {
        second.query(sql);
        assert_eq!(RawClient::error(&second.results()), None, "{sql}");
    };
    execute_second("DROP TABLE IF EXISTS changing");
    execute_second("CREATE TABLE changing (`it's é` INT)");
    let statement = prepare(&mut first, TEXT).statement_id;
    execute_second("ALTER TABLE changing CHANGE `it's é` other INT");
    second.command(&[&b"\x16"[..], TEXT.as_bytes()].concat());
    let expected = second.word();
    assert_eq!(RawClient::error(std::slice::from_ref(&expected)), Some(1054));
    let mut long_data = vec![0x18];
    long_data.extend(statement.to_le_bytes());
    long_data.extend(*b"\0\0data");
    let long = vec![b'x'; 0x100_0000];
    for (param, sequence) in [(&b"short"[..], 1), (&long, 2), (b"short", 1)] {
        assert_eq!(second.value("SELECT 'moved'"), "moved");
        first.command(&long_data);
        execute(&mut first, statement, &[Param::Bytes(param)], false);
        assert_eq!(first.packet().expect("an answer"), (sequence, expected.clone()));
        first.query("SHOW WARNINGS");
        let message = &expected[9..];
        let warnings = first.results();
        assert!(warnings.iter().any(|row| row.ends_with(message)), "{warnings:?}");
    }
    second.query("ALTER TABLE changing CHANGE other `it's é` INT");
    second.results();
    execute(&mut first, statement, &[Param::Bytes(b"short")], false);
    assert_eq!(RawClient::error(&first.results()), None);
    second.query("DROP TABLE changing");
    second.results();
}

fn error_state(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "2"]);
    let mut raw = proxy.raw();
    let statement = prepare(&mut raw, "SELECT ?").statement_id;
    // For a parameter that does not exist.
    raw.command(&[&b"\x18"[..], &statement.to_le_bytes(), b"\x05\0data"].concat());
    for _ in 0..2 {
        execute(&mut raw, statement, &[Param::Bytes(b"a")], false);
        assert_eq!(RawClient::error(&raw.results()), Some(WRONG_ARGUMENTS));
        ask(&proxy, "SELECT 1").expect("it is served");
    }
    proxy.process.await_line("event=pinned");
    raw.command(&[&b"\x1a"[..], &statement.to_le_bytes()].concat());
    assert_eq!(raw.word()[0], 0);
    execute(&mut raw, statement, &[Param::Bytes(b"a")], false);
    assert_eq!(RawClient::error(&raw.results()), None);
}
