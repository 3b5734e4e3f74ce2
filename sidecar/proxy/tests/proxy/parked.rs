//! Operation in transaction pooling.

use std::fs;

use ciphertoll_net::blocking::Client;
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, RawClient};
use crate::operations::{admin_of, await_that, samples, second_user, settings, write_secret};

pub(crate) const CASES: [Case; 7] = [
    ("parked clients, pins and reassigned connections are counted", counted),
    ("a full wait queue also refuses clients that have logged in", queue_limit),
    ("a client that will be refused is not logged in without a connection", greetings),
    ("a kept connection with an old password is used by its client only", passwords),
    ("a client of a removed user is refused when it needs another connection", gone),
    ("the pooling mode does not change while the proxy runs", mode),
    ("a waiting transaction is served during a stop, up to a limit", stops),
];

const PID: &str = "SELECT pg_backend_pid()";

fn counted(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "2", "--admin", "tcp:127.0.0.1:0"]);
    let admin = admin_of(&proxy);
    let is = |name: &str, value: f64| {
        let sample = samples(admin).get(name).copied().unwrap_or_default();
        (sample - value).abs() < 0.5
    };
    let state =
        format!("server_connections{{user=\"{}\",database=\"{}\",state=\"", proxy.user, proxy.database);
    let mut clients = [proxy.client(), proxy.client(), proxy.client()];
    // The first client opens the connections that the first two use.
    clients[0].query("BEGIN").expect("a transaction");
    clients[1].query("BEGIN").expect("a transaction");
    clients[0].query("COMMIT").expect("the end");
    await_that("two are parked", || is("clients{state=\"parked\"}", 2.0));
    assert!(is("clients{state=\"in_session\"}", 1.0) && is(&format!("{state}busy\"}}"), 1.0));
    assert!(is("sessions_total", 3.0));
    clients[1].query("COMMIT").expect("the end");
    let before = samples(admin);
    // All connections are kept for other clients, so one is reassigned. After the keep time they are free.
    await_that("one is taken from another client", || {
        for client in &mut clients {
            one(client, "SELECT 1");
            one(client, "SELECT 1");
        }
        one(&mut clients[0], "SELECT 1");
        samples(admin)["steals_total"] - before["steals_total"] > 0.5
    });
    let after = samples(admin);
    let grown = |name: &str| after[name] - before[name];
    assert!(grown("resets_total") >= grown("steals_total"), "{after:#?}");
    assert!(grown("queue_wait_seconds_count") > 0.5, "{after:#?}");
    clients[0].query("LISTEN news").expect("a listener");
    await_that("it is pinned", || is("pins_total{reason=\"LISTEN\"}", 1.0));
    // A kept connection is reset after the keep time.
    await_that("nothing is kept", || is(&format!("{state}kept\"}}"), 0.0));
    drop(clients);
    await_that("all have left", || is("clients{state=\"parked\"}", 0.0));
}

fn queue_limit(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-limit", "1", "--admin", "tcp:127.0.0.1:0"]);
    let mut first = proxy.client();
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    let mut clients = [proxy.raw(&[]), proxy.raw(&[])];
    for client in &mut clients {
        assert_eq!(client.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
    }
    let [mut waits, mut second] = clients;
    first.query("BEGIN").expect("a transaction");
    waits.query("SELECT 'waited'");
    await_that("one waits", || samples(admin_of(&proxy))["clients{state=\"queued\"}"] > 0.5);
    second.query("SELECT 'never'");
    assert_eq!(RawClient::error_state(&second.answer()).as_deref(), Some("53300"));
    assert_eq!(second.answer(), [], "it ends");
    // A new client that would have to be refused cannot log in.
    assert_eq!(RawClient::error_state(&proxy.raw(&[]).answer()).as_deref(), Some("53300"));
    first.query("COMMIT").expect("the end");
    assert!(waits.answer().iter().any(|(kind, row)| *kind == b'D' && row.ends_with(b"waited")));
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn greetings(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--max-clients", "2"]);
    let mut first = proxy.client();
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    let Err(error) = proxy.try_client_as("nobody") else { panic!("the user is unknown") };
    assert!(error.to_string().contains("28000"), "{error}");
    // A client can log in while no connection is free; the next one exceeds max-clients.
    first.query("BEGIN").expect("a transaction");
    // Another worker may have to learn of the disconnect first.
    let mut second = None;
    await_that("there is room", || {
        second = proxy.try_client().ok();
        second.is_some()
    });
    assert_eq!(RawClient::error_state(&proxy.raw(&[]).answer()).as_deref(), Some("53300"));
    drop(second);
    first.query("COMMIT").expect("the end");
}

fn passwords(fixture: &mut Fixture) {
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let mut proxy = fixture.proxy(&["--config", &file]);
    let mut long_lived = proxy.try_client_as(&second).expect("the login succeeds");
    long_lived.query("BEGIN").expect("a transaction");
    let process = one(&mut long_lived, PID);
    fixture.control().query(&format!("ALTER ROLE {second} PASSWORD 'another one'")).expect("it may");
    write_secret(&directory.path().join("second"), "another one\n");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    // The transaction ends on its connection; the next one uses it again if no other client has used it.
    assert_eq!(one(&mut long_lived, PID), process);
    long_lived.query("COMMIT").expect("the end");
    proxy.process.await_line("it was opened with old settings");
    let mut next = proxy.try_client_as(&second).expect("the new password is right");
    let other = one(&mut next, PID);
    assert_ne!(other, process);
    // The old client continues on a connection with the new password.
    assert_ne!(one(&mut long_lived, PID), process);
}

fn gone(fixture: &mut Fixture) {
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let mut proxy = fixture.proxy(&["--config", &file]);
    let known = |proxy: &crate::fixture::Proxy| -> Client {
        proxy.try_client_as(&second).expect("the login succeeds")
    };
    let (mut busy, mut parked) = (known(&proxy), known(&proxy));
    assert_eq!(one(&mut parked, "SELECT 1"), "1");
    busy.query("BEGIN").expect("a transaction");
    fs::write(&file, "").expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    assert!(proxy.try_client_as(&second).is_err(), "the user is removed");
    assert_eq!(one(&mut busy, "SELECT 1"), "1");
    busy.query("COMMIT").expect("the end");
    // On two threads, one may have been closed before the end of the reload.
    let closed = "it was opened with old settings";
    while proxy.process.count(closed) < 2 {
        proxy.process.await_line(closed);
    }
    for mut client in [busy, parked] {
        let error = client.query("SELECT 1").expect_err("there is no other connection for him");
        assert!(error.to_string().contains("28000"), "{error}");
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn mode(fixture: &mut Fixture) {
    let (place, listen) = fixture.new_directory();
    let text =
        |mode: &str| format!("server = \"{}\"\nlisten = \"{listen}\"\nmode = \"{mode}\"\n", fixture.url(""));
    let (_directory, file) = settings(&text("transaction"));
    let mut command = fixture.program();
    command.args(["--log", "debug", "--pool-size", "1", "--config", &file]);
    let mut proxy = fixture.proxy_by(&mut command, place, crate::fixture::PORT);
    fs::write(&file, text("session")).expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    let line = proxy.process.await_line("event=reload-ignored");
    assert!(line.contains("setting=mode"), "{line}");
    proxy.process.await_line("event=reloaded");
    // Two clients on one connection: still transaction pooling.
    let (mut first, mut second) = (proxy.client(), proxy.client());
    assert_eq!(one(&mut first, PID), one(&mut second, PID));
}

fn stops(fixture: &mut Fixture) {
    for (more, is_served) in [(&[][..], true), (&["--drain-time", "0.3"][..], false)] {
        let arguments = [&["--pool-size", "1", "--admin", "tcp:127.0.0.1:0"], more].concat();
        let mut proxy = fixture.proxy(&arguments);
        let mut first = proxy.client();
        first.query("BEGIN").expect("a transaction");
        let mut waits = proxy.raw(&[]);
        waits.answer();
        waits.query("SELECT 'waited'");
        await_that("one waits", || samples(admin_of(&proxy))["clients{state=\"queued\"}"] > 0.5);
        proxy.process.signal(Signal::SIGTERM);
        proxy.process.await_line("event=stopping");
        if is_served {
            first.query("COMMIT").expect("the end");
            assert!(waits.answer().iter().any(|(kind, row)| *kind == b'D' && row.ends_with(b"waited")));
        } else {
            assert_eq!(RawClient::error_state(&waits.answer()).as_deref(), Some("57P01"));
        }
        drop((first, waits));
        assert_eq!(proxy.process.wait().code(), Some(if is_served { 0 } else { 6 }));
    }
}
