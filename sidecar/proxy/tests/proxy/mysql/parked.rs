//! Parked clients: how they log in, how they end, and what they find.

use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::mysql::command;
use nix::sys::signal::Signal;

use super::Case;
use super::cases::{execute, prepare};
use super::fixture::{Fixture, one};
use super::raw::RawClient;
use super::transactions::NUMBER;
use crate::operations::{admin_address, await_that, samples};
use crate::transactions::KEPT;

pub(crate) const CASES: [Case; 6] = [
    ("a client is greeted without a connection", greetings),
    ("a client can disconnect without a connection", disconnects_while_parked),
    ("a connection is acquired for a whole command that is answered", commands_without_connection),
    ("diagnostics of the last command", diagnostics),
    ("a KILL reaches clients in every state", kills),
    ("parked clients are served during a stop", stops),
];

fn greetings(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut first = proxy.client();
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    // A client can log in while no connection is free.
    first.execute("BEGIN").expect("a transaction");
    let mut second = proxy.client();
    first.execute("COMMIT").expect("the end");
    assert_eq!(one(&mut second, "SELECT 2"), "2");
    "somebody".clone_into(&mut proxy.user);
    assert!(proxy.try_client().is_err(), "the user is unknown");
}

fn disconnects_while_parked(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut first = proxy.client();
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    first.execute("BEGIN").expect("a transaction");
    let second = proxy.client();
    second.close().expect("a goodbye");
    proxy.process.await_line("how=left");
    // The same for a client that disconnects without a message.
    drop(proxy.raw());
    proxy.process.await_line("how=left");
    first.execute("COMMIT").expect("the end");
}

fn commands_without_connection(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "1"]);
    let (mut raw, mut other) = (proxy.raw(), proxy.raw());
    let statement = prepare(&mut raw, "SELECT 1").statement_id;
    other.query("BEGIN");
    other.results();
    // It waits for no connection, or the queue time would end it.
    raw.command(&[&b"\x19"[..], &statement.to_le_bytes()].concat());
    std::thread::sleep(Duration::from_secs(2));
    other.query("COMMIT");
    other.results();
    assert_eq!(raw.value("SELECT 2"), "2");
    let mut bytes = Vec::new();
    command::encode_query(&mut bytes, "SELECT 3").expect("it is short");
    let (begun, rest) = bytes.split_at(7);
    raw.send(begun);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(other.value("SELECT 4"), "4");
    }
    raw.send(rest);
    assert!(raw.results().contains(&b"\x013".to_vec()));
    // The statement is closed.
    execute(&mut raw, statement, &[], false);
    assert_eq!(RawClient::error(&raw.results()), Some(1243));
}

fn diagnostics(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second) = (proxy.client(), proxy.client());
    for (sql, code) in [("SELECT 1/0, CAST('x' AS SIGNED)", "1292"), ("SELECT nonsense", "1054")] {
        loop {
            let started = Instant::now();
            let _ = first.query(sql);
            let (codes, within) = std::thread::scope(|scope| {
                let other = scope.spawn(|| one(&mut second, "SELECT 1"));
                let rows = first.query("SHOW WARNINGS").expect("rows");
                let within = started.elapsed();
                assert_eq!(other.join().expect("no panic"), "1");
                (rows.into_iter().filter_map(|row| row[1].clone()).collect::<Vec<_>>(), within)
            });
            // After the keep time, the connection has been reset.
            if within < KEPT {
                assert!(codes.contains(&code.as_bytes().to_vec()), "{sql}: {codes:?}");
                break;
            }
        }
        // A client that does not ask delays others only briefly.
        let _ = first.query(sql);
        assert_eq!(one(&mut second, "SHOW COUNT(*) WARNINGS"), "0");
    }
}

/// Waits until so many connections sleep on the server.
fn await_sleepers(control: &mut Client, count: &str) {
    let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%' \
               AND state = 'User sleep'";
    await_that("so many sleep", || one(control, sql) == count);
}

fn kills(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "2", "--admin", "tcp:127.0.0.1:0"]);
    let admin = admin_address(&proxy.process.log);
    let (mut target, mut other, mut killer) = (proxy.raw(), proxy.raw(), proxy.raw());
    let kill = |killer: &mut RawClient, what: &str, number: u32| {
        killer.query(&format!("KILL {what} {number}"));
        assert_eq!(killer.word()[0], 0, "{what}");
    };
    let mode = fixture.mode;
    fixture.mode = crate::fixture::Mode::Session;
    let direct = fixture.proxy(&[]);
    fixture.mode = mode;
    let mut control = direct.client();
    // An idle client has no command to kill.
    assert_eq!(target.value("SELECT 1"), "1");
    kill(&mut killer, "QUERY", target.connection_id);
    assert_eq!(target.value("SELECT 2"), "2");
    // A running command, on whichever connection.
    for _ in 0..3 {
        assert_eq!(other.value("SELECT 1"), "1");
        target.query("SELECT SLEEP(60)");
        await_sleepers(&mut control, "1");
        kill(&mut killer, "QUERY", target.connection_id);
        let payloads = target.results();
        assert!(
            RawClient::error(&payloads) == Some(1317) || payloads.contains(&b"\x011".to_vec()),
            "{payloads:?}"
        );
        assert_eq!(target.value("SELECT 'goes on'"), "goes on");
    }
    // A waiting command, in front of a second one.
    other.query("BEGIN");
    other.results();
    let mut holder = proxy.raw();
    holder.query("BEGIN");
    holder.results();
    let mut bytes = Vec::new();
    command::encode_query(&mut bytes, "SELECT 'never'").expect("it is short");
    command::encode_query(&mut bytes, "SELECT 'later'").expect("it is short");
    target.send(&bytes);
    // Until it waits there is nothing to kill. Only once: a second kill could hit the next command.
    await_that("it waits", || samples(admin)["clients{state=\"queued\"}"] > 0.5);
    kill(&mut other, "QUERY", target.connection_id);
    let (sequence, answer) = target.packet().expect("it is told");
    assert_eq!((sequence, RawClient::error(&[answer])), (1, Some(1317)));
    other.query("COMMIT");
    other.results();
    let payloads = target.results();
    assert!(payloads.contains(&b"\x05later".to_vec()), "{payloads:?}");
    holder.query("COMMIT");
    holder.results();
    // The connection of an idle client.
    kill(&mut killer, "CONNECTION", target.connection_id);
    assert_eq!(RawClient::error(&[target.word()]), Some(1053));
    assert!(target.packet().is_err(), "it ends after that");
    // Its own thread forgets it, perhaps after it has closed the connection.
    await_that("there is no such client any more", || {
        killer.query(&format!("KILL {}", target.connection_id));
        RawClient::error(&[killer.word()]) == Some(1094)
    });
}

fn stops(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "2"]);
    let (mut first, mut second) = (proxy.client(), proxy.client());
    assert_eq!(one(&mut first, NUMBER), one(&mut first, NUMBER));
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
    let mut raw = proxy.raw();
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(RawClient::error(&[raw.word()]), Some(1053));
    assert_eq!(proxy.process.wait().code(), Some(0), "no client was cut off in a transaction");
}
