//! Proxies of two threads: one pool for the clients of both.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Mode, Proxy, RawClient};
use crate::operations::{admin_of, await_that, get, samples};

pub(crate) const CASES: [Case; 5] = [
    ("one connection serves clients of both threads", one_connection),
    ("the limit of connections holds", limit),
    ("both threads serve", both_serve),
    ("of many commands, only the right one is cancelled", cancels),
    ("all threads stop together", end),
];

/// Cases that also run on two threads: those of the shared pool, of its limits, of cancel requests, and of upgrades.
pub(crate) const ALSO_ON_TWO: [&str; 32] = [
    "a command that takes too long is cancelled, and its connection goes on",
    "a transaction that takes too long ends with its client",
    "a user that waits is served before a user that floods the pool",
    "a user or a database has no more clients than permitted",
    "a password that changes each second costs no client a connect",
    "a cancel request hits the right command",
    "a late cancel request hits no other client",
    "a waiting command is cancelled",
    "nonces under eight clients",
    "no session state reaches the next client",
    "a transaction that was left open is rolled back",
    "a client waits for a connection up to the queue time",
    "a stop waits for clients, up to a limit",
    "a stop under load cuts no client off",
    "an upgrade under load loses no client",
    "CA and certificate are rotated under load without ending sessions",
    "reloads, checks, warm-up and killed processes at once keep the pool's count right",
    "idle connections do not block dropping, renaming or copying a database",
    "server processes that are killed under load",
    "two clients share a connection",
    "many clients on few connections",
    "users whom the settings do not name log in with the password that the server has",
    "a password that was changed on the server is noticed",
    "a replication session is cancelled, takes a place of the pool and ends with its client",
    "a switchover by pause, restart and resume shows no client an error",
    "a pause waits for transactions, and its clients wait without a limit",
    "a pause that is cancelled is undone",
    "a reconnect replaces connections between transactions",
    "a client is killed by its number, and a database by its name",
    "a shutdown waits for clients or for servers",
    "a primary that dies is replaced, is not written to when it comes back, and may replace its successor",
    "clients wait while no host has the role, and are told which hosts were tried",
];

const CLIENT_LOOPS: usize = 8;
const ROUNDS: usize = 30;
pub(crate) const ASKED: [&str; 2] = ["--admin", "tcp:127.0.0.1:0"];

/// Clients and server connections of each thread.
fn threads(proxy: &Proxy) -> Vec<(u64, u64)> {
    threads_at(admin_of(proxy))
}

pub(crate) fn threads_at(admin: SocketAddr) -> Vec<(u64, u64)> {
    let (_, body) = get(admin, "/status");
    let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    let threads = status["threads"].as_array().expect("a list");
    let number = |thread: &serde_json::Value, what: &str| thread[what].as_u64().expect("a number");
    threads.iter().map(|thread| (number(thread, "clients"), number(thread, "server_connections"))).collect()
}

/// A client that connects and disconnects repeatedly.
fn connect_repeatedly(proxy: &Proxy, done: &AtomicUsize, client_loop: usize) {
    for round in 0..ROUNDS {
        let mut client = proxy.client();
        for step in 0..2 {
            let nonce = format!("{client_loop}-{round}-{step}");
            assert_eq!(one(&mut client, &format!("SELECT '{nonce}'")), nonce);
        }
    }
    done.fetch_add(1, Ordering::SeqCst);
}

/// The server has at most so many connections while clients come and go.
fn served_by_at_most(fixture: &Fixture, proxy: &Proxy, most: usize) {
    let mut control = fixture.control();
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", proxy.user);
    let done = AtomicUsize::new(0);
    let mut open = || -> usize { one(&mut control, &count).parse().expect("a number") };
    // Connections of the previous case may take a while to end.
    await_that("there are none yet", || open() <= most);
    thread::scope(|scope| {
        for client_loop in 0..CLIENT_LOOPS {
            let done = &done;
            scope.spawn(move || connect_repeatedly(proxy, done, client_loop));
        }
        for _ in 0..100_000 {
            let open = open();
            assert!(open <= most, "{open} connections");
            if done.load(Ordering::SeqCst) == CLIENT_LOOPS {
                break;
            }
        }
    });
}

fn one_connection(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&[&["--pool-size", "1"][..], &ASKED].concat());
    served_by_at_most(fixture, &proxy, 1);
    let samples = samples(admin_of(&proxy));
    let number = |name: &str| samples[name].round() as usize;
    assert_eq!(number("clients_total"), CLIENT_LOOPS * ROUNDS);
    // Clients of both threads waited.
    assert!(number("moves_total") > 0, "{samples:#?}");
    assert_eq!([number("connects_total"), number("server_connections_max"), number("threads")], [1, 1, 2]);
    await_that("all have left", || threads(&proxy).iter().all(|(clients, _)| *clients == 0));
    assert_eq!(threads(&proxy).iter().map(|(_, connections)| connections).sum::<u64>(), 1);
    proxy.process.read_on();
    assert_eq!(proxy.process.log.iter().filter(|line| line.contains("event=server-connected")).count(), 1);
    // Between transactions the connection is kept for one client, but moves to a client of another thread
    // that needs it.
    if fixture.mode == Mode::Transaction {
        let mut clients: Vec<_> = (0..4).map(|_| proxy.client()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            client.query(&format!("SET application_name = 'client {at}'")).expect("a setting");
        }
        for at in (0..4).cycle().take(40) {
            let name = one(&mut clients[at], "SHOW application_name");
            assert_eq!(name, format!("client {at}"));
        }
    }
}

fn limit(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[&["--pool-size", "3"][..], &ASKED].concat());
    served_by_at_most(fixture, &proxy, 3);
    assert!(samples(admin_of(&proxy))["connects_total"] <= 3.0);
}

/// CPU time in nanoseconds of each thread of a process, by its name, but for threads that end meanwhile.
pub(crate) fn ran_ns(process: u32) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let ran = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = fs::read_to_string(task.join("comm")).ok()?.trim_end().to_owned();
        let ran = fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse().ok()?;
        Some((name, ran))
    });
    ran.collect()
}

fn both_serve(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[&["--pool-size", "8"][..], &ASKED].concat());
    let mut clients: Vec<_> = (0..CLIENT_LOOPS).map(|_| proxy.client()).collect();
    let each = threads(&proxy);
    // New clients go to the thread with far fewer clients.
    assert!(each.len() == 2 && each.iter().all(|(clients, _)| (3..=5).contains(clients)), "{each:?}");
    let before = ran_ns(proxy.process.id());
    for round in 0..50 {
        for client in &mut clients {
            assert_eq!(one(client, &format!("SELECT {round}")), round.to_string());
        }
    }
    let after = ran_ns(proxy.process.id());
    for name in ["ciphertoll-prox", "serve-1"] {
        assert!(after[name] > before[name], "{name} has not run: {before:?}, {after:?}");
    }
}

fn cancels(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut control = fixture.control();
    let sleeping =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%hold%'";
    let mut sleepers: Vec<RawClient> = (0..CLIENT_LOOPS).map(|_| proxy.raw(&[])).collect();
    for sleeper in &mut sleepers {
        sleeper.answer();
        sleeper.query("SELECT pg_sleep(600), 'hold'");
    }
    let owners: Vec<u32> = sleepers.iter().map(|sleeper| sleeper.process_id % 2).collect();
    assert!(owners.contains(&0) && owners.contains(&1), "{owners:?}");
    for left in (0..CLIENT_LOOPS).rev() {
        await_that("the others sleep", || one(&mut control, sleeping) == (left + 1).to_string());
        let sleeper = &mut sleepers[left];
        let mut canceller = proxy.raw_silent();
        canceller.send(&crate::cases::cancel_request(sleeper.process_id, &sleeper.key));
        assert!(canceller.message().is_err());
        assert_eq!(RawClient::error_state(&sleeper.answer()).as_deref(), Some("57014"));
    }
}

fn end(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--drain-time", "0.3"]);
    let mut clients: Vec<RawClient> = (0..CLIENT_LOOPS).map(|_| proxy.raw(&[])).collect();
    for client in &mut clients {
        client.answer();
        client.query("BEGIN");
        client.answer();
    }
    proxy.process.signal(Signal::SIGTERM);
    for client in &mut clients {
        assert_eq!(RawClient::error_state(&client.answer()).as_deref(), Some("57P01"));
    }
    assert_eq!(proxy.process.wait().code(), Some(6));
    let last = proxy.process.await_line("event=stopped");
    assert!(last.contains(&format!("cut_off={CLIENT_LOOPS}")), "{last}");
    // Without clients, the proxy does not wait for the drain time.
    let mut proxy = fixture.proxy(&["--drain-time", "600"]);
    let clients: Vec<_> = (0..CLIENT_LOOPS).map(|_| proxy.client()).collect();
    proxy.process.signal(Signal::SIGTERM);
    proxy.process.await_line("event=stopping");
    thread::spawn(move || drop(clients)).join().expect("they leave");
    assert_eq!(proxy.process.wait().code(), Some(0));
}
