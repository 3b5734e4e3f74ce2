//! Faults: clients that vanish or send garbage, and a server that goes away and comes back.

use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_wire::postgres::command::{encode_query, encode_sync};
use ciphertoll_wire::postgres::relay::{InternalCommand, PipelinedCommit};
use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::{Parameters, Response, TransactionStatus};

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::await_that;
use crate::process::LONG;

pub(crate) const CASES: [Case; 8] = [
    ("garbage from a client closes only that client", garbage),
    ("a client that does not read blocks no other", stalled_client),
    ("clients that vanish at any byte", disconnects_at_any_byte),
    ("commands behind a failed reset are not executed", failed_reset),
    ("a killed server process is reported to its client", killed),
    ("a server whose certificate cannot be verified is not used", unverified),
    ("server processes that are killed under load", killed_under_load),
    ("a server that goes away and comes back", restarted),
];

fn garbage(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut bystander = proxy.client();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\0\0\0\x04"] {
        let mut raw = proxy.raw_silent();
        raw.send(bytes);
        // This may not be a client of the protocol, so no error is sent.
        assert_eq!(raw.rest(), b"", "{bytes:?}");
    }
    for bytes in [&b"?\0\0\0\x04"[..], b"Q\0\0\0\0", b"Q\xff\xff\xff\xff", b"p\0\0\0\x05x"] {
        let mut raw = proxy.raw(&[]);
        raw.answer();
        raw.send(bytes);
        assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("08P01"), "{bytes:?}");
    }
    assert_eq!(one(&mut bystander, "SELECT 1"), "1");
}

/// The server behaviour that pipelined resets rely on. Here the proxy passes the commands on as a client's.
fn failed_reset(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let take_over = |settings: &[(&str, &str)], commit, sql: &str| {
        let mut bytes = Vec::new();
        InternalCommand::take_over(settings.iter().copied(), commit, &mut bytes).expect("a reset");
        encode_query(&mut bytes, sql).expect("a query");
        bytes
    };
    let next = [("application_name", "next")];
    assert_eq!(probed(&mut raw, "DISCARD ALL"), PipelinedCommit::AtOnce);
    assert_eq!(probed(&mut raw, "RESET   ALL"), PipelinedCommit::WithTransaction, "it may be rolled back");
    for commit in [PipelinedCommit::WithTransaction, PipelinedCommit::AtOnce] {
        for (settings, left) in [(&next[..], "next4MB"), (&[], "4MB")] {
            raw.query("SET application_name = 'last'; SET work_mem = '7MB'");
            raw.answer();
            raw.send(&take_over(settings, commit, "SELECT 1/0"));
            let state = RawClient::error_state(&raw.answer());
            assert_eq!(state.as_deref(), Some("22012"), "it is executed if the reset succeeds");
            raw.query("SELECT '<' || current_setting('application_name') || current_setting('work_mem')");
            let row = raw.answer().into_iter().find(|(kind, _)| *kind == b'D').expect("a row");
            let left = format!("<{left}");
            assert!(row.1.ends_with(left.as_bytes()), "an error behind the reset does not undo it: {row:?}");
        }
    }
    // DISCARD ALL fails within a transaction.
    for sql in ["DROP TABLE IF EXISTS heard", "CREATE TABLE heard (n int)", "BEGIN"] {
        raw.query(sql);
        raw.answer();
    }
    let mut bytes = take_over(&next, PipelinedCommit::AtOnce, "COMMIT; INSERT INTO heard VALUES (1)");
    encode_query(&mut bytes, "SELECT 'leaked'").expect("a query");
    encode_sync(&mut bytes);
    raw.send(&bytes);
    let answer = raw.answer();
    assert_eq!(RawClient::error_state(&answer).as_deref(), Some("25001"));
    assert!(!answer.iter().any(|(kind, _)| b"DC".contains(kind)), "{answer:?}");
    raw.query("ROLLBACK");
    raw.answer();
    assert_eq!(one(&mut proxy.client(), "SELECT count(*) FROM heard"), "0");
}

/// When the server commits this command, which is as long as the reset.
fn probed(raw: &mut RawClient, command: &str) -> PipelinedCommit {
    let mut bytes = Vec::new();
    let mut probe = InternalCommand::probe_commit(&mut bytes).expect("a probe");
    let reset = b"DISCARD ALL";
    let place = bytes.windows(reset.len()).position(|part| part == reset).expect("the probe resets");
    bytes[place..place + reset.len()].copy_from_slice(command.as_bytes());
    raw.send(&bytes);
    let mut answer = Vec::new();
    for (kind, payload) in (0..3).flat_map(|_| raw.answer()) {
        write_message(&mut answer, kind, &payload).expect("it fits");
    }
    let end = probe.step(&mut answer.as_slice(), &mut Parameters::default());
    assert_eq!(end, Ok(Response::Done(TransactionStatus::Idle)));
    probe.commit()
}

fn stalled_client(fixture: &mut Fixture) {
    const BYTES: usize = 32 << 20;
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    raw.query(&format!("SELECT repeat('x', {BYTES})"));
    // Other clients are served while it does not read.
    for _ in 0..50 {
        assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    }
    let answer = raw.answer();
    let row = answer.iter().find(|(kind, _)| *kind == b'D').expect("a row");
    assert_eq!(row.1.len(), BYTES + 6);
    // In the other direction: more than any buffer, sent before a response is read.
    let mut sender = raw.stream.try_clone().expect("another handle");
    let writer = thread::spawn(move || {
        let sql = format!("SELECT '{}'", "y".repeat(1 << 20));
        let mut bytes = Vec::new();
        encode_query(&mut bytes, &sql).expect("a query");
        (0..16).try_for_each(|_| sender.write_all(&bytes))
    });
    for _ in 0..16 {
        let answer = raw.answer();
        let row = answer.iter().find(|(kind, _)| *kind == b'D').expect("a row");
        assert_eq!(row.1.len(), (1 << 20) + 6);
    }
    writer.join().expect("no panic").expect("all is taken");
}

fn disconnects_at_any_byte(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "2"]);
    let mut complete = Vec::new();
    let user = fixture.server().user();
    let database = fixture.server().database();
    ciphertoll_wire::postgres::startup::encode_startup(
        &mut complete,
        &[("user", user), ("database", database)],
    )
    .expect("a start-up");
    encode_query(&mut complete, "SELECT 1").expect("a query");
    for cut in 0..=complete.len() {
        let mut raw = proxy.raw_silent();
        raw.send(&complete[..cut]);
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn killed(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let mut other = proxy.client();
    raw.query("SELECT pg_backend_pid()");
    let answer = raw.answer();
    let row = answer.iter().find(|(kind, _)| *kind == b'D').expect("a row");
    let process = String::from_utf8_lossy(&row.1[6..]).into_owned();
    assert_eq!(one(&mut other, &format!("SELECT pg_terminate_backend({process})")), "t");
    // The server's error, then the end of the connection.
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57P01"));
    // A killed idle connection is replaced before a client notices.
    let idle = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    assert_eq!(one(&mut other, &format!("SELECT pg_terminate_backend({idle})")), "t");
    // The process leaves the server's list before its connection is closed.
    let process = Path::new("/proc").join(&idle);
    await_that("the process has ended", || !process.exists());
    assert_ne!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), idle);
}

fn killed_under_load(fixture: &mut Fixture) {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 100;
    let proxy = fixture.proxy(&["--pool-size", "4"]);
    let mut control = fixture.control();
    let (mut answered, mut lost_answers) = (0, 0);
    thread::scope(|scope| {
        let proxy: &Proxy = &proxy;
        let client_loops: Vec<_> = (0..CLIENTS)
            .map(|client_loop| {
                scope.spawn(move || {
                    (0..ROUNDS)
                        .map(|round| {
                            let nonce = format!("{client_loop}-{round}");
                            let sql = format!("SELECT '{nonce}'");
                            match proxy.try_client().and_then(|mut client| client.query(&sql)) {
                                // Every response is complete and for the right client.
                                Ok(rows) => {
                                    assert_eq!(rows, [[Some(nonce.into_bytes())]]);
                                    true
                                }
                                Err(_) => false,
                            }
                        })
                        .filter(|answered| *answered)
                        .count()
                })
            })
            .collect();
        while client_loops.iter().any(|client_loop| !client_loop.is_finished()) {
            // Not all of them each time, or no client might be served in between.
            let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                        WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.5";
            control.query(kill).expect("the control role is no client");
            thread::sleep(Duration::from_millis(20));
        }
        for client_loop in client_loops {
            let count = client_loop.join().expect("no wrong answer");
            answered += count;
            lost_answers += ROUNDS - count;
        }
    });
    assert!(answered > 0, "{lost_answers} lost");
    // Processes that were killed last may not have ended yet.
    await_that("it serves again", || {
        proxy.try_client().and_then(|mut client| client.query("SELECT 1")).is_ok()
    });
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn unverified(fixture: &mut Fixture) {
    // No authority of the system has signed the server's certificate.
    let ca = fixture.server().ca_file().display().to_string();
    let url = fixture.url("").replace(&ca, "system");
    let directory = tempfile::tempdir().expect("a directory");
    let listen = format!("unix:{}/.s.PGSQL.6432", directory.path().display());
    let proxy = fixture.proxy_at(&listen, &url, directory.path().to_owned(), 6432, &[]);
    let answer = proxy.raw(&[]).answer();
    assert_eq!(RawClient::error_state(&answer).as_deref(), Some("08001"));
    let is_reported =
        answer.iter().any(|(_, text)| String::from_utf8_lossy(text).contains("does not verify"));
    assert!(is_reported, "{answer:?}");
}

fn restarted(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&[]);
    let (mut long_lived, mut idle) = (proxy.raw(&[]), proxy.raw(&[]));
    long_lived.answer();
    idle.answer();
    drop(idle);
    let mut control = fixture.control();
    // A server process that is still sending when the server crashes cannot tell its client.
    let sending = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '{}' AND wait_event IS DISTINCT FROM 'ClientRead'",
        proxy.user
    );
    await_that("all wait for commands", || one(&mut control, &sending) == "0");
    // The whole server restarts when one of its processes crashes.
    let crash = "COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'";
    assert!(control.query(crash).is_err());
    // The server's error (crash_shutdown), then the end of the connection.
    let mut rest = Vec::new();
    long_lived.stream.read_to_end(&mut rest).expect("the end");
    assert!(String::from_utf8_lossy(&rest).contains("57P02"), "{rest:?}");
    proxy.process.await_line("event=server-lost");
    let until = Instant::now() + LONG;
    // While the server recovers it says so, and clients are told; afterwards they are served.
    while let Err(error) = proxy.try_client().and_then(|mut client| client.query("SELECT 1")) {
        assert!(Instant::now() < until, "{error}");
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}
