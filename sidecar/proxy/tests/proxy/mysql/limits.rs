//! Limits, access rules and the end of the proxy.

use std::path::PathBuf;

use ciphertoll_wire::mysql;
use nix::sys::signal::Signal;

use super::Case;
use super::fixture::{Fixture, client_at, code, one};
use super::raw::{USUAL, UTF8MB4};
use crate::operations::{await_that, in_queue_time};
use crate::upgrades::upgrade_twice;

pub(crate) const CASES: [Case; 7] = [
    ("a client waits for a connection up to the queue time", queue),
    ("too many clients are refused", too_many),
    ("each database has its own connections", other_databases),
    ("TCP clients need the password", tcp),
    ("only configured users can log in", others),
    ("a stop waits for clients, up to a limit", stops),
    ("an upgrade under load loses no client", upgraded),
];

fn queue(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.5"]);
    let mut first = in_queue_time(|| proxy.try_client());
    let error = proxy.try_client().err().expect("there is no room");
    assert_eq!(code(&error), Some(1040), "{error}");
    assert!(error.is_too_many_connections(), "{error}");
    assert!(error.to_string().contains("no server connection became free within 0.5 s"), "{error}");
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    // A waiting client is served when the first one disconnects.
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let first = proxy.client();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| one(&mut proxy.client(), "SELECT 2"));
        drop(first);
        assert_eq!(waiting.join().expect("no panic"), "2");
    });
}

fn too_many(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--max-clients", "2"]);
    let clients = [proxy.client(), proxy.client()];
    let error = proxy.try_client().err().expect("there is no room");
    assert_eq!(code(&error), Some(1040), "{error}");
    drop(clients);
    // Another worker may have to learn of the disconnect first.
    await_that("there is room", || proxy.try_client().is_ok());
}

fn other_databases(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    // The idle connection to the first database is evicted.
    let mut raw = proxy.try_raw(USUAL, UTF8MB4, Some("information_schema")).expect("it is there");
    assert_eq!(raw.value("SELECT DATABASE()"), "information_schema");
    drop(raw);
    let refused = proxy.try_raw(USUAL, UTF8MB4, Some("no_such_database")).err().expect("it is not there");
    assert!(matches!(refused, mysql::Error::Server { code: 1044 | 1049, .. }), "{refused:?}");
    assert_eq!(one(&mut proxy.client(), "SELECT DATABASE()"), proxy.database);
}

fn tcp(fixture: &mut Fixture) {
    let (url, password) = (fixture.url(), fixture.password());
    let proxy = fixture.proxy_at("tcp:127.0.0.1:0", &url, password.clone(), PathBuf::new(), &[]);
    let user = proxy.user.clone();
    let mut client = proxy.tcp_client(&user, password.clone()).expect("the right password");
    assert_eq!(one(&mut client, "SELECT 42"), "42");
    for (user, password) in [(user.as_str(), &b"wrong"[..]), (&user, b""), ("nobody", &password)] {
        let error = proxy.tcp_client(user, password.to_vec()).err().expect("the login succeeded");
        assert_eq!(code(&error), Some(1045), "{error}");
        assert!(
            error.to_string().contains(&format!("Access denied for user '{user}'@'localhost'")),
            "{error}"
        );
    }
}

fn others(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&[]);
    "somebody".clone_into(&mut proxy.user);
    let error = proxy.try_client().err().expect("the login succeeded");
    assert_eq!(code(&error), Some(1045), "{error}");
    assert!(error.to_string().contains("not as 'somebody'"), "{error}");
}

fn stops(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&[]);
    let mut client = proxy.client();
    proxy.process.signal(Signal::SIGTERM);
    proxy.process.await_line("event=stopping");
    // Each worker closes its listener by itself.
    await_that("it listens no more", || proxy.try_client().is_err() && !proxy.socket.exists());
    assert_eq!(one(&mut client, "SELECT 1"), "1");
    drop(client);
    assert_eq!(proxy.process.wait().code(), Some(0));
    let mut proxy = fixture.proxy(&["--drain-time", "0.3"]);
    let mut raw = proxy.raw();
    proxy.process.signal(Signal::SIGTERM);
    // In place of the first packet of the next response.
    let (sequence, last) = raw.packet().expect("last words");
    assert_eq!((sequence, super::raw::RawClient::error(&[last])), (1, Some(1053)));
    assert_eq!(proxy.process.wait().code(), Some(6));
}

fn upgraded(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "4"]);
    let mut lasting = proxy.client();
    assert_eq!(one(&mut lasting, "SELECT 'before'"), "before");
    let (socket, user, database) = (proxy.socket.clone(), proxy.user.clone(), proxy.database.clone());
    let successor = upgrade_twice(&mut proxy.process, |nonce| {
        let mut client = client_at(&socket, &user, &database).expect("no client is refused");
        one(&mut client, &format!("SELECT '{nonce}'"))
    });
    assert_eq!(one(&mut lasting, "SELECT 'after'"), "after");
    drop(lasting);
    assert_eq!(proxy.process.wait().code(), Some(0));
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    successor.stop();
    assert!(!socket.exists());
}
