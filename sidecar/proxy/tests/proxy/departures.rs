//! Clients that send nothing more: what they have sent is executed and answered, as by the server.

use std::io::Read as _;
use std::net::Shutdown;

use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{
    encode_bind, encode_execute, encode_parse, encode_query, encode_sync, encode_terminate,
};

use crate::Case;
use crate::cases::{one, try_one};
use crate::fake::{FakeServer, Login};
use crate::fixture::{Fixture, RawClient};
use crate::operations::{await_that, in_queue_time};

pub(crate) const CASES: [Case; 5] = [
    ("commands in front of the end of a client are executed and answered", answered),
    ("a client that ends its stream gets all of a long answer", long_answer),
    ("a client that ends its stream while it waits for a connection is served", waiting),
    ("a client that ends in the middle of a batch gets what the server says", unfinished),
    ("a client that ends is told that an answer was lost", lost),
];

/// How a client ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Terminate,
    HalfClose,
}

const ENDS: [End; 2] = [End::Terminate, End::HalfClose];

/// Sends these commands and the end at once.
fn send(raw: &mut RawClient, commands: &[u8], end: End) {
    let mut bytes = commands.to_vec();
    if let End::Terminate = end {
        encode_terminate(&mut bytes);
    }
    raw.send(&bytes);
    if let End::HalfClose = end {
        raw.stream.shutdown(Shutdown::Write).expect("half a connection");
    }
}

fn query(sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_query(&mut bytes, sql).expect("a query");
    bytes
}

/// The types of all messages up to the end of the stream, without those of settings.
fn kinds(raw: &mut RawClient) -> String {
    let mut kinds = String::new();
    while let Ok((kind, _)) = raw.message() {
        if kind != b'S' {
            kinds.push(char::from(kind));
        }
    }
    kinds
}

fn answered(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    proxy.client().query("CREATE TABLE IF NOT EXISTS left_by (n int)").expect("a table");
    for end in ENDS {
        proxy.client().query("TRUNCATE left_by").expect("an empty table");
        let mut raw = proxy.raw(&[]);
        raw.answer();
        send(&mut raw, &[query("INSERT INTO left_by VALUES (1)"), query("SELECT 1")].concat(), end);
        assert_eq!(kinds(&mut raw), "CZTDCZ", "{end:?}");
        assert_eq!(one(&mut proxy.client(), "SELECT count(*) FROM left_by"), "1", "{end:?}");
        // In a transaction that is not committed.
        let mut raw = proxy.raw(&[]);
        raw.answer();
        send(&mut raw, &[query("BEGIN"), query("INSERT INTO left_by VALUES (2)")].concat(), end);
        assert_eq!(kinds(&mut raw), "CZCZ", "{end:?}");
        assert_eq!(one(&mut proxy.client(), "SELECT count(*) FROM left_by"), "1", "{end:?}");
    }
}

fn long_answer(fixture: &mut Fixture) {
    const BYTES: usize = 20 << 20;
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for end in ENDS {
        let mut raw = proxy.raw(&[]);
        raw.answer();
        send(&mut raw, &query(&format!("SELECT repeat('x', {BYTES}), pg_sleep(0.1)")), end);
        let mut bytes = Vec::new();
        raw.stream.read_to_end(&mut bytes).expect("the whole answer");
        assert!(bytes.len() > BYTES && bytes.ends_with(b"Z\0\0\0\x05I"), "{end:?}: {}", bytes.len());
    }
}

fn waiting(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    in_queue_time(|| {
        for end in ENDS {
            let mut holder = proxy.try_client()?;
            holder.query("BEGIN")?;
            // In transaction mode it has logged in, in session mode it waits for that as well.
            let mut raw = proxy.raw(&[]);
            send(&mut raw, &query("SELECT 1"), end);
            holder.query("COMMIT")?;
            drop(holder);
            assert!(kinds(&mut raw).ends_with("ZTDCZ"), "{end:?}");
            // The server says without a Sync that there is no such statement.
            let mut holder = proxy.try_client()?;
            holder.query("BEGIN")?;
            let mut raw = proxy.raw(&[]);
            let mut batch = Vec::new();
            encode_bind(&mut batch, "", "none", &[], ValueFormat::Text).expect("a portal");
            send(&mut raw, &batch, end);
            holder.query("COMMIT")?;
            drop(holder);
            assert!(kinds(&mut raw).ends_with("ZE"), "{end:?}");
        }
        try_one(&mut proxy.try_client()?, "SELECT 1").map(drop)
    });
}

fn unfinished(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let process = || one(&mut proxy.client(), "SELECT pg_backend_pid()");
    for end in ENDS {
        let before = process();
        let mut raw = proxy.raw(&[]);
        raw.answer();
        let mut batch = Vec::new();
        encode_parse(&mut batch, "", "SELECT 1/0", &[]).expect("a statement");
        encode_bind(&mut batch, "", "", &[], ValueFormat::Text).expect("a portal");
        encode_execute(&mut batch, "", 0).expect("a command");
        send(&mut raw, &batch, end);
        assert!(kinds(&mut raw).ends_with('E'), "{end:?}: the error is sent without a Sync");
        await_that("the connection was closed", || process() != before);
        // A Sync in the data of a COPY is ignored: its batch is not finished.
        let mut raw = proxy.raw(&[]);
        raw.answer();
        raw.query("CREATE TEMP TABLE copied (n int)");
        raw.answer();
        let mut batch = Vec::new();
        encode_parse(&mut batch, "", "COPY copied FROM STDIN", &[]).expect("a statement");
        encode_bind(&mut batch, "", "", &[], ValueFormat::Text).expect("a portal");
        encode_execute(&mut batch, "", 0).expect("a command");
        encode_sync(&mut batch);
        batch.extend_from_slice(b"c\0\0\0\x04");
        send(&mut raw, &batch, end);
        assert!(kinds(&mut raw).starts_with("12G"), "{end:?}");
    }
}

fn lost(fixture: &mut Fixture) {
    let fake = FakeServer::start(Login::Trust);
    let mut proxy = fixture.proxy_to(&fake.url(), &[]);
    "toll".clone_into(&mut proxy.user);
    for end in ENDS {
        let mut raw = proxy.raw(&[]);
        raw.answer();
        send(&mut raw, &[query("SELECT 1"), query("vanish")].concat(), end);
        let answers: Vec<_> = std::iter::from_fn(|| raw.message().ok()).collect();
        let kinds: String = answers.iter().map(|(kind, _)| char::from(*kind)).collect();
        assert_eq!(
            (kinds.as_str(), RawClient::error_state(&answers).as_deref()),
            ("CZE", Some("08006")),
            "{end:?}"
        );
    }
}
