//! Pauses in transaction mode: a planned switchover, at which no client sees an error.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Case;
use crate::cases::{one, try_one};
use crate::console::{await_state, cancel, console, maxwait, open, proxy, start};
use crate::fixture::{Fixture, RawClient, client_at};
use crate::operations::await_that;
use crate::process::LONG;

pub(crate) const CASES: [Case; 6] = [
    ("a switchover by pause, restart and resume shows no client an error", switchover),
    ("a pause waits for transactions, and its clients wait without a limit", pause),
    ("a pause that is cancelled is undone", cancelled),
    ("a pause of one database does not concern another", one_database),
    ("a reconnect replaces connections between transactions", reconnect),
    ("a shutdown waits for clients or for servers", shutdown),
];

const QUEUE_TIME: &str = "3s";
const QUEUE_SECONDS: u64 = 3;

/// More clients by hand: `CIPHERTOLL_SWITCHOVER_CLIENTS=1000`, whose longest wait is printed.
fn clients() -> usize {
    std::env::var("CIPHERTOLL_SWITCHOVER_CLIENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

fn switchover(fixture: &mut Fixture) {
    let clients = clients();
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "8"]);
    let (stop, served, longest) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(Duration::ZERO));
    let (socket, user, database) = (proxy.socket(), proxy.user.clone(), proxy.database.clone());
    let client_loop = |number: usize| {
        let mut client = client_at(&socket, &user, &database).expect("the login succeeds");
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let nonce = format!("{number}-{round}");
            let began = Instant::now();
            let answer = try_one(&mut client, &format!("SELECT '{nonce}'"));
            assert_eq!(answer.map_err(|error| error.to_string()), Ok(nonce));
            let mut longest = longest.lock().expect("no panic");
            *longest = began.elapsed().max(*longest);
            served.fetch_add(1, Ordering::Relaxed);
            // Some clients log in anew, also while the database is paused.
            if number.is_multiple_of(10) {
                client = client_at(&socket, &user, &database).expect("the login succeeds");
            }
        }
    };
    let served_more = |than: usize| {
        let before = served.load(Ordering::Relaxed);
        await_that("clients are served", || served.load(Ordering::Relaxed) > before + than);
    };
    thread::scope(|scope| {
        let client_loop = &client_loop;
        let loops: Vec<_> = (0..clients).map(|number| scope.spawn(move || client_loop(number))).collect();
        for _ in 0..2 {
            served_more(clients);
            assert_eq!(console(&proxy, "PAUSE").as_deref(), Ok(""));
            // The server notices the end of a connection soon.
            await_that("no connection is open", || open(fixture, &proxy) == "0");
            fixture.server.as_mut().expect("it is there").restart().expect("the server restarts");
            assert_eq!(console(&proxy, "RESUME").as_deref(), Ok(""));
        }
        served_more(clients);
        stop.store(true, Ordering::Relaxed);
        for client_loop in loops {
            client_loop.join().expect("no client has seen an error");
        }
    });
    let longest = longest.lock().expect("no panic");
    crate::say(&format!("{clients} clients, two restarts: the longest wait was {longest:.3?}"));
}

fn pause(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "3", "--queue-time", QUEUE_TIME]);
    let (mut busy, mut waits) = (proxy.client(), proxy.client());
    assert_eq!(one(&mut waits, "SELECT 1"), "1");
    busy.query("BEGIN").expect("a transaction");
    let pause = start(&proxy, "PAUSE");
    await_state(&proxy, "SHOW DATABASES", "paused", "1");
    let error = console(&proxy, "PAUSE").expect_err("it is paused");
    assert!(error.contains("already suspended/paused"), "{error}");
    assert_eq!(one(&mut busy, "SELECT 1"), "1");
    assert!(pause.try_recv().is_err());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| one(&mut waits, "SELECT 'served'"));
        await_state(&proxy, "SHOW POOLS", "cl_waiting", "1");
        busy.query("COMMIT").expect("the transaction ends");
        assert_eq!(pause.recv_timeout(LONG).expect("it ends"), Ok(String::new()));
        await_that("no connection is open", || open(fixture, &proxy) == "0");
        // A client that logs in waits, too, and for longer than the queue time.
        let late = scope.spawn(|| one(&mut proxy.client(), "SELECT 'late'"));
        await_state(&proxy, "SHOW POOLS", "cl_waiting", "2");
        let waited = || maxwait(&proxy).unwrap_or_default();
        await_that("a client has waited for longer than that", || waited() > QUEUE_SECONDS);
        assert!(!waiting.is_finished() && !late.is_finished());
        assert_eq!(open(fixture, &proxy), "0");
        assert_eq!(console(&proxy, "RESUME").as_deref(), Ok(""));
        assert_eq!(waiting.join().expect("it is served"), "served");
        assert_eq!(late.join().expect("it is served"), "late");
    });
}

fn cancelled(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &[]);
    let mut busy = proxy.client();
    busy.query("BEGIN").expect("a transaction");
    let mut raw = proxy.raw(&[("database", "pgbouncer")]);
    raw.answer();
    raw.query("PAUSE");
    await_state(&proxy, "SHOW DATABASES", "paused", "1");
    assert_eq!(cancel(&proxy, &mut raw).as_deref(), Some("57014"));
    await_state(&proxy, "SHOW DATABASES", "paused", "0");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    // The session can be used again; a client that leaves does not undo its pause.
    raw.query("PAUSE");
    await_state(&proxy, "SHOW DATABASES", "paused", "1");
    drop(raw);
    busy.query("COMMIT").expect("the transaction ends");
    await_that("the connections are closed", || open(fixture, &proxy) == "0");
    await_state(&proxy, "SHOW DATABASES", "paused", "1");
    assert_eq!(console(&proxy, "RESUME").as_deref(), Ok(""));
    assert_eq!(one(&mut busy, "SELECT 1"), "1");
}

fn one_database(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "2"]);
    let mut control = fixture.control();
    let hba = one(&mut control, "SHOW hba_file");
    let rules = fs::read_to_string(&hba).expect("ours to read");
    fs::write(&hba, format!("{rules}hostssl all all 127.0.0.1/32 scram-sha-256\n")).expect("ours to write");
    one(&mut control, "SELECT pg_reload_conf()");
    let second = || client_at(&proxy.socket(), &proxy.user, "template1");
    await_that("another database may be used", || second().is_ok());
    let (mut ours, mut other) = (proxy.client(), second().expect("a login"));
    assert_eq!(one(&mut ours, "SELECT 1"), "1");
    assert_eq!(console(&proxy, &format!("PAUSE {}", proxy.database)).as_deref(), Ok(""));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| one(&mut ours, "SELECT 'served'"));
        await_state(&proxy, "SHOW POOLS", "cl_waiting", "1");
        for _ in 0..20 {
            assert_eq!(one(&mut other, "SELECT current_database()"), "template1");
        }
        assert!(!waiting.is_finished());
        let error = console(&proxy, "RESUME").expect_err("not all is paused");
        assert!(error.contains("pooler is not paused/suspended"), "{error}");
        assert_eq!(console(&proxy, &format!("RESUME {}", proxy.database)).as_deref(), Ok(""));
        assert_eq!(waiting.join().expect("it is served"), "served");
    });
    fs::write(&hba, rules).expect("ours to write");
    one(&mut control, "SELECT pg_reload_conf()");
}

fn reconnect(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "2"]);
    let mut client = proxy.client();
    let process = |client: &mut _| one(client, "SELECT pg_backend_pid()");
    let old = process(&mut client);
    one(&mut client, "SELECT set_config('application_name', 'kept', false)");
    let mut busy = proxy.client();
    busy.query("BEGIN").expect("a transaction");
    let of_transaction = process(&mut busy);
    assert_eq!(console(&proxy, "RECONNECT").as_deref(), Ok(""));
    assert_ne!(process(&mut client), old);
    assert_eq!(one(&mut client, "SHOW application_name"), "kept");
    assert_eq!(process(&mut busy), of_transaction);
    busy.query("COMMIT").expect("the transaction ends");
    assert_eq!(console(&proxy, "WAIT_CLOSE").as_deref(), Ok(""));
    assert_ne!(process(&mut busy), of_transaction);
}

fn shutdown(fixture: &mut Fixture) {
    for (command, is_refused) in [("SHUTDOWN WAIT_FOR_CLIENTS", false), ("SHUTDOWN WAIT_FOR_SERVERS", true)] {
        let (mut proxy, _directory) = proxy(fixture, "", &["--pool-size", "1"]);
        let mut busy = proxy.client();
        busy.query("BEGIN").expect("a transaction");
        let mut waits = proxy.raw(&[]);
        waits.answer();
        waits.query("SELECT 1");
        await_state(&proxy, "SHOW POOLS", "cl_waiting", "1");
        assert_eq!(console(&proxy, command).as_deref(), Ok(""));
        await_that("the socket is closed", || !proxy.socket().exists());
        busy.query("COMMIT").expect("the transaction ends");
        let state = RawClient::error_state(&waits.answer());
        assert_eq!(state.as_deref(), is_refused.then_some("57P01"), "{command}");
        if !is_refused {
            assert!(proxy.process.is_running());
            drop((busy, waits));
        }
        assert_eq!(proxy.process.wait().code(), Some(0), "{command}");
    }
    let (mut proxy, _directory) = proxy(fixture, "", &[]);
    let mut client = proxy.client();
    client.query("BEGIN").expect("a transaction");
    assert!(console(&proxy, "SHUTDOWN").is_err());
    assert_eq!(proxy.process.wait().code(), Some(6));
}
