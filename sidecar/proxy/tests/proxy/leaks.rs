//! No state of a client may reach the next client.

use ciphertoll_wire::postgres::command::{encode_describe_statement, encode_parse, encode_sync};

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, samples};

pub(crate) const CASES: [Case; 4] = [
    ("no session state reaches the next client", state),
    ("after a plain session the reset comes with the next client", pending_reset),
    ("a transaction that was left open is rolled back", transactions),
    ("a connection in an unknown state is closed", unknown_state),
];

pub(crate) const OF_TRANSACTIONS: [Case; 1] = [(
    "with tracked resets no session state reaches the next client, and plain sessions are not reset",
    tracked,
)];

/// The server process that serves the next client.
fn backend(proxy: &Proxy) -> String {
    one(&mut proxy.client(), "SELECT pg_backend_pid()")
}

fn state(fixture: &mut Fixture) {
    nothing_leaks(&fixture.proxy(&["--pool-size", "1"]));
}

fn tracked(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--reset", "tracked", "--admin", "tcp:127.0.0.1:0"]);
    nothing_leaks(&proxy);
    let admin = admin_of(&proxy);
    let skipped = || samples(admin)["skipped_resets_total"];
    let before = skipped();
    await_that("a reset is skipped", || {
        for sql in ["SELECT 1", "SELECT count(*) FROM pg_class", "BEGIN; SELECT 1; COMMIT"] {
            proxy.client().query(sql).expect("plain data access");
        }
        skipped() - before > 2.5
    });
    // Settings of the login are set back without a reset.
    for (name, settings) in [("theirs", &[("application_name", "theirs")][..]), ("", &[])] {
        let mut raw = proxy.raw(settings);
        raw.answer();
        raw.query("SELECT current_setting('application_name')");
        let row = raw.answer().into_iter().find(|(kind, _)| *kind == b'D').expect("a row");
        assert!(row.1.ends_with(name.as_bytes()) && row.1.len() == 6 + name.len(), "{row:?}");
    }
    // The unnamed statement of a client that has left is not the next one's.
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, "", "SELECT 1", &[]).expect("a statement");
    encode_sync(&mut bytes);
    raw.send(&bytes);
    raw.answer();
    drop(raw);
    let mut next = proxy.raw(&[]);
    next.answer();
    bytes.clear();
    encode_describe_statement(&mut bytes, "").expect("a name");
    encode_sync(&mut bytes);
    next.send(&bytes);
    assert_eq!(RawClient::error_state(&next.answer()).as_deref(), Some("26000"));
}

fn nothing_leaks(proxy: &Proxy) {
    let before = backend(proxy);
    let left_and_looked_for = [
        ("SET statement_timeout = 12345", "SHOW statement_timeout", "0"),
        ("SET TimeZone = 'Asia/Tokyo'", "SELECT current_setting('TimeZone') = 'Asia/Tokyo'", "f"),
        ("SET application_name = 'leak'", "SELECT current_setting('application_name') = 'leak'", "f"),
        ("SET client_encoding = 'LATIN1'", "SHOW client_encoding", "UTF8"),
        ("CREATE TEMP TABLE leak (n int)", "SELECT to_regclass('pg_temp.leak') IS NULL", "t"),
        ("PREPARE leak AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements", "0"),
        (
            "DECLARE leak CURSOR WITH HOLD FOR SELECT 1",
            "SELECT count(*) FROM pg_cursors WHERE name = 'leak'",
            "0",
        ),
        ("LISTEN leak", "SELECT count(*) FROM pg_listening_channels()", "0"),
        ("SELECT pg_advisory_lock(4711)", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "0"),
    ];
    for (left, query, clean) in left_and_looked_for {
        proxy.client().query(left).unwrap_or_else(|error| panic!("{left}: {error}"));
        let mut next = proxy.client();
        assert_eq!(one(&mut next, query), clean, "after {left}");
        assert_eq!(one(&mut next, "SELECT pg_backend_pid()"), before, "after {left}: another connection");
    }
}

/// The reset is sent in front of the next client's settings or first command, and always sent.
fn pending_reset(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let before = backend(&proxy);
    let session = |settings: &[(&str, &str)], query: &str| {
        let mut raw = proxy.raw(settings);
        let greeting = raw.answer();
        if query.is_empty() {
            return (greeting, String::new());
        }
        raw.query(query);
        let row = raw.answer().into_iter().find(|(kind, _)| *kind == b'D').expect("a row");
        (greeting, String::from_utf8_lossy(&row.1[6..]).into_owned())
    };
    let look = "SELECT current_setting('statement_timeout') || current_setting('work_mem') || '<' || \
                current_setting('application_name') || '>' || pg_backend_pid()";
    let clean = format!("04MB<>{before}");
    for round in 0..20 {
        // Settings that the server may refuse, one that it cannot, and none; with a command and without.
        let theirs = [("statement_timeout", "7s"), ("work_mem", "7MB")];
        assert_eq!(session(&theirs, look).1, format!("7s7MB<>{before}"), "{round}");
        assert_eq!(session(&[], look).1, clean, "{round}");
        assert_eq!(session(&[("application_name", "a")], look).1, format!("04MB<a>{before}"), "{round}");
        let (greeting, _) = session(&[], "");
        let name = greeting.iter().find(|(_, payload)| payload.starts_with(b"application_name\0"));
        assert_eq!(name.map(|(_, payload)| &payload[..]), Some(&b"application_name\0\0"[..]), "{round}");
        assert_eq!(session(&[], look).1, clean, "{round}");
        session(&theirs, "");
        let (refused, _) = session(&[("TimeZone", "Mars")], "");
        assert_eq!(RawClient::error_state(&refused).as_deref(), Some("22023"), "{round}");
        assert_eq!(session(&[], look).1, clean, "{round}");
    }
    // The unnamed statement of the client before is gone, and that of the reset, too.
    for text in ["SELECT 1", ""] {
        let mut raw = proxy.raw(&[]);
        raw.answer();
        let mut bytes = Vec::new();
        if !text.is_empty() {
            encode_parse(&mut bytes, "", text, &[]).expect("a statement");
        }
        encode_describe_statement(&mut bytes, "").expect("a name");
        encode_sync(&mut bytes);
        raw.send(&bytes);
        let expected = text.is_empty().then_some("26000");
        assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), expected);
    }
    // What others can see does not wait for a next client.
    let mut holder = proxy.raw(&[]);
    holder.answer();
    holder.query("CREATE TEMP TABLE seen_by_others (n int)");
    holder.answer();
    drop(holder);
    let mut other = fixture.control();
    let seen = "SELECT count(*) FROM pg_class WHERE relname = 'seen_by_others'";
    await_that("its table is dropped", || one(&mut other, seen) == "0");
    // What a view has done is not seen, so the reset waits for the next client, but not until it sends something.
    one(&mut other, "DROP VIEW IF EXISTS takes_lock");
    one(&mut other, "CREATE VIEW takes_lock AS SELECT pg_try_advisory_lock(8150)");
    one(&mut other, "GRANT SELECT ON takes_lock TO public");
    session(&[], "SELECT * FROM takes_lock");
    let mut idle = proxy.raw(&[]);
    idle.answer();
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 8150";
    await_that("the lock is released", || one(&mut other, held) == "0");
    idle.query(look);
    let row = idle.answer().into_iter().find(|(kind, _)| *kind == b'D').expect("a row");
    assert_eq!(&row.1[6..], clean.as_bytes());
}

fn transactions(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let before = backend(&proxy);
    proxy.client().query("DROP TABLE IF EXISTS kept").expect("no table");
    let mut client = proxy.client();
    client.query("BEGIN").expect("a transaction");
    client.query("CREATE TABLE kept (n int)").expect("a table");
    drop(client);
    assert_eq!(one(&mut proxy.client(), "SELECT to_regclass('kept') IS NULL"), "t");
    let mut client = proxy.client();
    client.query("BEGIN").expect("a transaction");
    client.query("SELECT 1/0").expect_err("an error");
    drop(client);
    assert_eq!(backend(&proxy), before);
}

fn unknown_state(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let leave_functions: [fn(&mut RawClient); 3] = [
        |raw| raw.query("SELECT pg_sleep(5)"),
        |raw| {
            raw.query("CREATE TEMP TABLE t (n int); COPY t FROM STDIN");
            while !matches!(raw.message(), Ok((b'G', _))) {}
            raw.send(b"d\0\0\0\x061\n");
        },
        // A shorter message is held back until it is complete.
        |raw| raw.send(b"Q\0\0\x50\0SELECT"),
    ];
    for leave in leave_functions {
        let before = backend(&proxy);
        let mut raw = proxy.raw(&[]);
        raw.answer();
        // The session must have used the connection: a client that leaves while it waits has no effect.
        raw.query("SELECT 1");
        raw.answer();
        leave(&mut raw);
        drop(raw);
        proxy.process.await_line("event=server-closed");
        assert_ne!(backend(&proxy), before);
    }
}
