//! Transaction pooling: clients share connections, each as if it had its own.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::Error;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{
    encode_bind, encode_close_statement, encode_copy_data, encode_copy_done, encode_copy_fail,
    encode_execute, encode_flush, encode_parse, encode_query, encode_sync,
};
use ciphertoll_wire::postgres::startup::encode_cancel_request;
use ciphertoll_wire::postgres::{CancelKey, Param};
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::{one, try_one};
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, in_queue_time, samples};

pub(crate) const CASES: [Case; 18] = [
    ("two clients share a connection", shared),
    ("a transaction keeps its connection", transaction),
    ("settings follow their client only", settings),
    ("prepared statements follow their client only", prepared),
    ("a pipeline with prepared statements on another connection", pipeline),
    ("session state that cannot move pins a client", pins),
    ("session state set by functions does not reach other clients", hidden),
    ("the connection of a client that has left is reused, without its session state", orphaned_connection),
    ("an old connection is not handed to another client", max_age),
    ("batches sent at once are answered in order on another connection", batches),
    ("an incomplete command holds no connection", incomplete_command),
    ("messages that no server answers hold no connection", ignored_messages),
    ("DISCARD ALL unpins", discards),
    ("a waiting command is cancelled", cancel_waiting),
    ("input of any size waits for a connection", waiting_input),
    ("parked clients are served during a stop", stops),
    ("many clients on few connections", many),
    ("pgbench: more clients than connections", pgbench),
];

const PID: &str = "SELECT pg_backend_pid()";
const ASKED: [&str; 2] = ["--admin", "tcp:127.0.0.1:0"];
/// How long a connection is kept for its client.
pub(crate) const KEPT: Duration = Duration::from_secs(1);

/// Two clients that share one connection, and its process ID.
fn two(proxy: &Proxy) -> (Client, Client, String) {
    try_two(proxy).expect("both are served")
}

fn try_two(proxy: &Proxy) -> Result<(Client, Client, String), Error> {
    let (mut first, mut second) = (proxy.try_client()?, proxy.try_client()?);
    let process = try_one(&mut first, PID)?;
    assert_eq!(try_one(&mut second, PID)?, process);
    Ok((first, second, process))
}

/// Waits until so many clients are parked.
fn await_parked(proxy: &Proxy, count: f64) {
    await_that("so many are parked", || {
        (samples(admin_of(proxy))["clients{state=\"parked\"}"] - count).abs() < 0.5
    });
}

fn shared(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second, process) = two(&proxy);
    for number in 0..20 {
        let sql = format!("SELECT '{number}-' || pg_backend_pid()");
        assert_eq!(one(&mut first, &sql), format!("{number}-{process}"));
        assert_eq!(one(&mut second, &sql), format!("{number}-{process}"));
    }
    assert!(first.query("SELECT 1/0").is_err());
    assert_eq!(one(&mut first, "SELECT 1"), "1");
}

fn transaction(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.4"]);
    in_queue_time(|| {
        let (mut first, mut second, _) = try_two(&proxy)?;
        first.query("CREATE TABLE IF NOT EXISTS shared (n int); TRUNCATE shared")?;
        let mut waiting = proxy.try_client()?;
        first.query("BEGIN")?;
        first.query("INSERT INTO shared VALUES (1)").expect("it has its connection");
        let error = waiting.query("SELECT count(*) FROM shared").expect_err("the connection is taken");
        assert!(error.to_string().contains("no server connection became free"), "{error}");
        first.query("COMMIT").expect("it has its connection");
        assert_eq!(try_one(&mut proxy.try_client()?, "SELECT count(*) FROM shared")?, "1");
        // The same with a failed transaction.
        first.query("BEGIN")?;
        first.query("SELECT 1/0").expect_err("an error");
        let error = second.query("SELECT 1").expect_err("the connection is taken");
        assert!(error.to_string().contains("no server connection became free"), "{error}");
        first.query("ROLLBACK").expect("it has its connection");
        assert_eq!(try_one(&mut proxy.try_client()?, "SELECT 1")?, "1");
        Ok(())
    });
}

fn settings(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for (set, query, value) in [
        ("SET TimeZone = 'Asia/Tokyo'", "SHOW TimeZone", "Asia/Tokyo"),
        ("SET application_name = 'it''s me'", "SHOW application_name", "it's me"),
        ("SET statement_timeout = '7s'", "SHOW statement_timeout", "7s"),
        ("SET search_path = a, \"B c\"", "SHOW search_path", "a, \"B c\""),
        ("SET my.own = 'x'; SET DateStyle = German", "SHOW my.own", "x"),
        ("BEGIN; SET work_mem = '5MB'; COMMIT", "SHOW work_mem", "5MB"),
    ] {
        let (mut first, mut second, process) = two(&proxy);
        first.query(set).unwrap_or_else(|error| panic!("{set}: {error}"));
        let query_or_null = query.replace("SHOW ", "SELECT current_setting('") + "', true)";
        assert_ne!(one(&mut second, &query_or_null), value, "{set}: the other client has it, too");
        assert_eq!(one(&mut first, query), value, "{set}");
        // The name of a custom setting exists until its session ends, so the other client gets a new connection.
        assert_eq!(one(&mut second, PID) == process, !set.contains("my.own"), "{set}");
        assert_eq!(one(&mut first, query), value, "{set}, again");
    }
    // A setting that is rolled back does not follow; one that is set again does.
    let (mut first, mut second, _) = two(&proxy);
    first.query("BEGIN; SET statement_timeout = '8s'; ROLLBACK").expect("nothing");
    one(&mut second, PID);
    assert_eq!(one(&mut first, "SHOW statement_timeout"), "0");
    for value in ["8s", "9s"] {
        first.query(&format!("SET statement_timeout = '{value}'")).expect("a setting");
        one(&mut second, PID);
        assert_eq!(one(&mut first, "SHOW statement_timeout"), value);
    }
    // A role that the user must not assume.
    first.query("SET ROLE pg_read_all_data").expect_err("it may not");
    assert_eq!(one(&mut first, "SELECT current_user = session_user"), "t");
}

/// Prepares a statement; returns the response.
pub(crate) fn prepare(raw: &mut RawClient, name: &str, sql: &str) -> Vec<(u8, Vec<u8>)> {
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, name, sql, &[]).expect("a statement");
    encode_sync(&mut bytes);
    raw.send(&bytes);
    raw.answer()
}

pub(crate) fn execute(bytes: &mut Vec<u8>, name: &str) {
    encode_bind(bytes, "", name, &[] as &[Param<'_>], ValueFormat::Text).expect("a portal");
    encode_execute(bytes, "", 0).expect("a command");
}

/// The types of the messages, and the last column of each row.
fn kinds_and_rows(messages: &[(u8, Vec<u8>)]) -> (String, Vec<String>) {
    let rows = messages.iter().filter(|(kind, _)| *kind == b'D');
    let rows = rows.map(|(_, payload)| String::from_utf8_lossy(&payload[6..]).into_owned()).collect();
    (messages.iter().map(|(kind, _)| char::from(*kind)).collect(), rows)
}

pub(crate) fn run(raw: &mut RawClient, name: &str) -> (String, Vec<String>) {
    let mut bytes = Vec::new();
    execute(&mut bytes, name);
    encode_sync(&mut bytes);
    raw.send(&bytes);
    kinds_and_rows(&raw.answer())
}

fn prepared(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second) = (proxy.raw(&[]), proxy.raw(&[]));
    first.answer();
    second.answer();
    assert_eq!(kinds_and_rows(&prepare(&mut first, "s", "SELECT 'first'")).0, "1Z");
    // Statement names are per client; within a client they are unique.
    assert_eq!(kinds_and_rows(&prepare(&mut second, "s", "SELECT 'second'")).0, "1Z");
    for _ in 0..3 {
        assert_eq!(run(&mut first, "s"), ("2DCZ".to_owned(), vec!["first".to_owned()]));
        assert_eq!(run(&mut second, "s"), ("2DCZ".to_owned(), vec!["second".to_owned()]));
    }
    let repeated = prepare(&mut first, "s", "SELECT 'other'");
    assert_eq!(RawClient::error_state(&repeated).as_deref(), Some("42P05"));
    assert_eq!(run(&mut first, "s").1, ["first"]);
    // A statement that failed to prepare does not exist.
    assert_eq!(RawClient::error_state(&prepare(&mut first, "bad", "SELEC")).as_deref(), Some("42601"));
    run(&mut second, "s");
    assert_eq!(run(&mut first, "bad").0, "EZ");
    // Neither do statements that were closed or deallocated.
    let mut bytes = Vec::new();
    encode_close_statement(&mut bytes, "s").expect("a name");
    encode_sync(&mut bytes);
    first.send(&bytes);
    assert_eq!(kinds_and_rows(&first.answer()).0, "3Z");
    assert_eq!(run(&mut first, "s").0, "EZ");
    second.query("DEALLOCATE s");
    second.answer();
    run(&mut first, "s");
    assert_eq!(run(&mut second, "s").0, "EZ");
    // The unnamed statement follows its client, too.
    prepare(&mut first, "", "SELECT 'unnamed'");
    run(&mut second, "s");
    assert_eq!(run(&mut first, "").1, ["unnamed"]);
    // Also when the proxy has queried the setting that it has set.
    prepare(&mut first, "", "SET LOCAL app.own = 'x'");
    for _ in 0..2 {
        assert_eq!(run(&mut first, "").0, "2NCZ");
    }
}

fn pipeline(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second) = (proxy.raw(&[]), proxy.raw(&[]));
    first.answer();
    second.answer();
    for name in ["a", "b"] {
        prepare(&mut first, name, &format!("SELECT '{name}'"));
    }
    let mut bytes = Vec::new();
    // Statements that exist, an error after which the rest of the batch is skipped, and a new statement.
    execute(&mut bytes, "a");
    execute(&mut bytes, "nobody");
    execute(&mut bytes, "b");
    encode_sync(&mut bytes);
    execute(&mut bytes, "b");
    encode_parse(&mut bytes, "c", "SELECT 'c'", &[]).expect("a statement");
    execute(&mut bytes, "c");
    execute(&mut bytes, "a");
    encode_sync(&mut bytes);
    for piece in [1, 2, 3, 7, bytes.len()] {
        second.query("SELECT 1");
        second.answer();
        for piece in bytes.chunks(piece) {
            first.send(piece);
        }
        assert_eq!(kinds_and_rows(&first.answer()), ("2DCEZ".to_owned(), vec!["a".to_owned()]));
        let (kinds, rows) = kinds_and_rows(&first.answer());
        assert_eq!((kinds.as_str(), rows.join("").as_str()), ("2DC12DC2DCZ", "bca"), "{piece}");
        first.query("DEALLOCATE c");
        first.answer();
    }
}

fn incomplete_command(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut first = proxy.raw(&[]);
    first.answer();
    first.query("SELECT 1");
    first.answer();
    let mut bytes = Vec::new();
    encode_query(&mut bytes, "SELECT 'first'").expect("a command");
    let mut second = proxy.client();
    for at in [3, 9] {
        let (begin, rest) = bytes.split_at(at);
        // Its last connection, the only one, is kept for it; then another client uses it.
        first.send(begin);
        assert_eq!(one(&mut second, "SELECT 'second'"), "second");
        first.send(rest);
        assert_eq!(kinds_and_rows(&first.answer()).1, ["first"]);
        assert_eq!(one(&mut second, "SELECT 'second'"), "second");
        first.send(begin);
        assert_eq!(one(&mut proxy.client(), "SELECT 'third'"), "third");
        assert_eq!(one(&mut second, "SELECT 'second'"), "second");
        first.send(rest);
        assert_eq!(kinds_and_rows(&first.answer()).1, ["first"]);
    }
}

/// What is left of a COPY that has failed, and a `Flush` without anything to flush.
fn ignored_messages(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut control = fixture.control();
    for sql in ["CREATE TABLE IF NOT EXISTS copied (n int)", "GRANT ALL ON copied TO PUBLIC"] {
        control.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let (mut first, mut second) = (proxy.raw(&[]), proxy.client());
    first.answer();
    // The COPY fails while the client sends more data.
    first.query("COPY copied FROM STDIN");
    assert_eq!(first.message().expect("an answer").0, b'G');
    let mut data = Vec::new();
    for line in [&b"not a number\n"[..], b"1\n"] {
        encode_copy_data(&mut data, line).expect("short");
    }
    let (begin, rest) = data.split_at(data.len() - 1);
    first.send(begin);
    assert_eq!(RawClient::error_state(&first.answer()).as_deref(), Some("22P02"));
    first.send(rest);
    assert_eq!(one(&mut second, "SELECT 'second'"), "second");
    let encoders: [fn(&mut Vec<u8>); 4] = [
        encode_flush,
        encode_copy_done,
        |out| encode_copy_fail(out, "no more").expect("short"),
        |out| encode_copy_data(out, &vec![b'1'; 100_000]).expect("less than a gigabyte"),
    ];
    for encode in encoders {
        let mut ignored = Vec::new();
        encode(&mut ignored);
        for at in [ignored.len() / 2, ignored.len()] {
            let (begin, rest) = ignored.split_at(at);
            first.query("SELECT 'first'");
            first.answer();
            first.send(begin);
            one(&mut second, "BEGIN");
            first.send(rest);
            assert_eq!(one(&mut second, "SELECT 'second'"), "second");
            one(&mut second, "COMMIT");
            first.query("SELECT 'first'");
            assert_eq!(kinds_and_rows(&first.answer()).1, ["first"]);
            assert_eq!(one(&mut second, "SELECT 'second'"), "second");
        }
    }
}

fn pins(fixture: &mut Fixture) {
    for (sql, reason) in [
        ("CREATE TEMP TABLE mine (n int)", "a temporary table"),
        ("LISTEN news", "LISTEN"),
        ("SELECT pg_advisory_lock(1)", "an advisory lock"),
        ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT", "a cursor WITH HOLD"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        ("SELECT set_config('my.own', 'x', false)", "set_config"),
        ("SET my.own = 'ä'", "a setting that cannot be set on another connection"),
    ] {
        let mut proxy = fixture.proxy(&["--pool-size", "2"]);
        let (mut first, mut second, process) = {
            let mut first = proxy.client();
            let process = one(&mut first, PID);
            (first, proxy.client(), process)
        };
        first.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(one(&mut first, PID), process, "{sql}");
        let line = proxy.process.await_line("event=pinned");
        assert!(line.contains(reason), "{line}");
        for _ in 0..3 {
            assert_ne!(one(&mut second, PID), process, "{sql}");
            assert_eq!(one(&mut first, PID), process, "{sql}");
        }
        // After the client has disconnected, the connection is reset and available to others.
        drop(first);
        let state = "SELECT (SELECT count(*) FROM pg_listening_channels()) + (SELECT count(*) FROM pg_cursors \
                     WHERE is_holdable) + (SELECT count(*) FROM pg_prepared_statements) + (SELECT count(*) FROM \
                     pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) + (to_regclass('mine') IS \
                     NOT NULL)::int";
        assert_eq!(one(&mut second, state), "0", "{sql}");
    }
}

fn hidden(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let hide = "CREATE OR REPLACE FUNCTION hide() RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
                PERFORM set_config('statement_timeout', '1234', false); PERFORM pg_advisory_lock(77); \
                CREATE TEMP TABLE IF NOT EXISTS hidden (n int); END $$";
    proxy.client().query(hide).expect("a function");
    let (mut first, mut second, process) = two(&proxy);
    first.query("SELECT hide()").expect("something out of sight");
    assert_eq!(one(&mut second, "SHOW statement_timeout"), "0");
    assert_eq!(one(&mut second, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
    assert_eq!(one(&mut second, "SELECT to_regclass('pg_temp.hidden') IS NULL"), "t");
    assert_eq!(one(&mut second, PID), process);
}

fn orphaned_connection(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[&["--pool-size", "5"][..], &ASKED].concat());
    let lock = "CREATE OR REPLACE FUNCTION lock_it() RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
                PERFORM set_config('work_mem', '7MB', false); PERFORM pg_advisory_lock(78); END $$";
    proxy.client().query(lock).expect("a function");
    // Another worker may have to learn of the disconnect first.
    await_parked(&proxy, 0.0);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 78";
    let mut control = fixture.control();
    let mut first = proxy.client();
    let process = one(&mut first, PID);
    first.query("SELECT lock_it()").expect("something out of sight");
    assert_eq!(one(&mut control, locks), "1");
    drop(first);
    await_parked(&proxy, 0.0);
    // Another connection could be opened, but this one is reused after a reset.
    let mut second = proxy.client();
    let seen = format!("SELECT pg_backend_pid() || ' ' || current_setting('work_mem') || ' ' || ({locks})");
    assert_eq!(one(&mut second, &seen), format!("{process} 4MB 0"));
    second.query("SELECT lock_it()").expect("something out of sight");
    drop(second);
    // Without a next client, the connection is reset by the next tick.
    await_that("nothing is locked", || one(&mut control, locks) == "0");
}

fn batches(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut raw = proxy.raw(&[("application_name", "batches")]);
    raw.answer();
    let mut other = proxy.client();
    for round in 0..20 {
        // The other client uses the connection, so it must be taken from it.
        assert_eq!(one(&mut other, "SELECT 1"), "1");
        let mut bytes = Vec::new();
        for number in 0..3 {
            let sql = format!("SELECT '{round}-{number}-' || current_setting('application_name')");
            encode_parse(&mut bytes, "", &sql, &[]).expect("a statement");
            execute(&mut bytes, "");
            encode_sync(&mut bytes);
        }
        raw.send(&bytes);
        for number in 0..3 {
            let answer = raw.answer();
            let row = answer.iter().find(|(kind, _)| *kind == b'D');
            let row = row.unwrap_or_else(|| panic!("no row: {answer:?}"));
            assert!(row.1.ends_with(format!("{round}-{number}-batches").as_bytes()), "{answer:?}");
        }
    }
}

fn max_age(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--max-age", "0"]);
    let (mut first, mut second, process) = loop {
        let (mut first, second) = (proxy.client(), proxy.client());
        let started = Instant::now();
        let (process, again) = (one(&mut first, PID), one(&mut first, PID));
        // After the keep time the connection is no longer kept for its client.
        if started.elapsed() < KEPT {
            assert_eq!(again, process, "its own it is still");
            break (first, second, process);
        }
    };
    let others = one(&mut second, PID);
    assert_ne!(others, process);
    proxy.process.await_line("it is old");
    drop(second);
    assert_ne!(one(&mut first, PID), others);
}

fn discards(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.3"]);
    in_queue_time(|| {
        let (mut first, mut second, process) = try_two(&proxy)?;
        first.query("SET statement_timeout = '5s'")?;
        first.query("LISTEN news")?;
        proxy.process.await_line("event=pinned");
        let error = second.query(PID).expect_err("it is pinned");
        assert!(error.to_string().contains("no server connection became free"), "{error}");
        first.query("DISCARD ALL").expect("it has its connection");
        let mut second = proxy.try_client()?;
        assert_eq!(try_one(&mut second, PID)?, process);
        assert_eq!(try_one(&mut first, "SHOW statement_timeout")?, "0");
        Ok(())
    });
}

fn cancel_waiting(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&[&["--pool-size", "1"][..], &ASKED].concat());
    let mut waiting = proxy.raw(&[]);
    waiting.answer();
    let mut first = proxy.client();
    first.query("BEGIN").expect("a transaction");
    waiting.query("SELECT 'never'");
    let mut request = Vec::new();
    encode_cancel_request(
        &mut request,
        waiting.process_id,
        &CancelKey::new(waiting.key.clone()).expect("a key"),
    );
    // Until it waits there is nothing to cancel. Only once: a second request could hit the next command.
    await_that("it waits", || samples(admin_of(&proxy))["clients{state=\"queued\"}"] > 0.5);
    proxy.raw_silent().send(&request);
    assert_eq!(RawClient::error_state(&waiting.answer()).as_deref(), Some("57014"));
    waiting.query("SELECT 'later'");
    first.query("COMMIT").expect("the end");
    assert_eq!(kinds_and_rows(&waiting.answer()).1, ["later"]);
    proxy.process.await_line("cancelled a waiting command");
}

fn waiting_input(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[&["--pool-size", "1"][..], &ASKED].concat());
    let mut waiting = proxy.raw(&[]);
    waiting.answer();
    let mut other = proxy.client();
    other.query("BEGIN").expect("a transaction");
    let texts = ["first".to_owned(), "x".repeat(100_000), "last".to_owned()];
    let mut bytes = Vec::new();
    for text in &texts {
        encode_query(&mut bytes, &format!("SELECT '{text}'")).expect("a command");
    }
    // The first command, and the begin of the second one.
    let (begin, rest) = bytes.split_at(100);
    waiting.send(begin);
    await_that("it waits", || samples(admin_of(&proxy))["clients{state=\"queued\"}"] > 0.5);
    waiting.send(rest);
    other.query("COMMIT").expect("the end");
    for text in texts {
        assert_eq!(kinds_and_rows(&waiting.answer()).1, [text]);
    }
}

fn stops(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "2"]);
    let (mut first, mut second) = (proxy.client(), proxy.client());
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    proxy.process.signal(Signal::SIGTERM);
    proxy.process.await_line("event=stopping");
    for _ in 0..3 {
        assert_eq!(one(&mut first, "SELECT 2"), "2");
        assert_eq!(one(&mut second, "SELECT 3"), "3");
    }
    drop((first, second));
    assert_eq!(proxy.process.wait().code(), Some(0));
    // After the drain time they are sent an error.
    let mut proxy = fixture.proxy(&["--drain-time", "0.3"]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57P01"));
    assert_eq!(proxy.process.wait().code(), Some(0), "no client was cut off in a transaction");
}

fn many(fixture: &mut Fixture) {
    const CLIENTS: usize = 24;
    const ROUNDS: usize = 40;
    let proxy = fixture.proxy(&["--pool-size", "3"]);
    thread::scope(|scope| {
        for client_loop in 0..CLIENTS {
            let proxy: &Proxy = &proxy;
            scope.spawn(move || {
                let mut client = proxy.client();
                client.query(&format!("SET my.lane = '{client_loop}'")).expect("a setting");
                for round in 0..ROUNDS {
                    let sql = format!("SELECT '{round}-' || current_setting('my.lane')");
                    assert_eq!(one(&mut client, &sql), format!("{round}-{client_loop}"));
                    if round % 8 == 0 {
                        client.query("BEGIN").expect("a transaction");
                        let process = one(&mut client, PID);
                        assert_eq!(one(&mut client, PID), process);
                        client.query("COMMIT").expect("the end");
                    }
                }
            });
        }
    });
}

fn pgbench(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "2"]);
    let script = proxy.directory.join("script.sql");
    let sql =
        "\\set n random(1, 100)\nBEGIN;\nSELECT count(*) FROM sbtest1 WHERE id < :n;\nSELECT :n;\nEND;\n";
    std::fs::write(&script, sql).expect("ours to write");
    for mode in ["simple", "extended", "prepared"] {
        let mut command = Command::new("pgbench");
        // One thread per client: pgbench prepares statements one client at a time, while other clients of the
        // same thread hold connections.
        command.args(["-n", "-c", "8", "-j", "8", "-t", "50", "-M", mode, "-f"]).arg(&script);
        let output =
            command.args(proxy.libpq_arguments()).env_remove("PGPASSWORD").output().expect("pgbench runs");
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{mode}: {stderr}");
        assert!(stdout.contains("number of transactions actually processed: 400/400"), "{stdout}");
    }
}
