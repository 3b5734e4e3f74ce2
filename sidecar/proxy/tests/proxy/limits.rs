//! Limits, access rules and the end of the proxy.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, RawClient};
use crate::operations::in_queue_time;
use crate::process::LONG;

pub(crate) const CASES: [Case; 8] = [
    ("a client waits for a connection up to the queue time", queue),
    ("old and idle connections are closed", old_and_idle),
    ("too many clients are refused", too_many),
    ("the server's error for an unknown database is passed on", other_databases),
    ("TCP clients need the password", tcp),
    ("only allowed UIDs can use the unix socket", own_processes),
    ("a stop waits for clients, up to a limit", stops),
    ("unusable settings are refused at the start", refused_at_start),
];

fn queue(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.5"]);
    let mut first = in_queue_time(|| proxy.try_client());
    let Err(error) = proxy.try_client() else { panic!("there was a second connection") };
    assert!(error.is_too_many_connections(), "{error}");
    assert!(error.to_string().contains("no server connection became free within 0.5 s"), "{error}");
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    // A waiting client is served when the first one disconnects.
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let first = proxy.client();
    let mut waiting = proxy.raw(&[]);
    drop(first);
    assert_eq!(waiting.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
}

fn old_and_idle(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--idle-time", "0.3"]);
    let before = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    proxy.process.await_line("it was idle for too long");
    assert_ne!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), before);
    let mut proxy = fixture.proxy(&["--max-age", "0"]);
    let before = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    proxy.process.await_line("it is old");
    assert_ne!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), before);
}

fn too_many(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--max-clients", "2"]);
    let clients = [proxy.client(), proxy.client()];
    assert_eq!(RawClient::error_state(&proxy.raw(&[]).answer()).as_deref(), Some("53300"));
    drop(clients);
}

fn other_databases(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    // The idle connection to the first database is evicted.
    let answer = proxy.raw(&[("database", "no_such_database")]).answer();
    let state = RawClient::error_state(&answer);
    assert!(matches!(state.as_deref(), Some("3D000" | "28000")), "{answer:?}");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn tcp(fixture: &mut Fixture) {
    let proxy = fixture.proxy_at("tcp:127.0.0.1:0", &fixture.url(""), PathBuf::new(), 0, &[]);
    let mut client = proxy.tcp_client(fixture.password()).expect("the right password");
    assert_eq!(one(&mut client, "SELECT 42"), "42");
    let Err(error) = proxy.tcp_client(b"wrong".to_vec()) else { panic!("a wrong password was taken") };
    assert!(error.to_string().contains("28P01"), "{error}");
}

fn own_processes(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&proxy.directory), mode(&proxy.socket())), (0o700, 0o600));
    let proxy = fixture.proxy(&["--allow-uid", "64000"]);
    assert_eq!((mode(&proxy.directory), mode(&proxy.socket())), (0o711, 0o666));
    assert_eq!(proxy.sql(&["SELECT 1"]), "1");
    if !nix::unistd::geteuid().is_root() {
        return ciphertoll_testing::not_for_all("only root can connect with another UID: half of the case");
    }
    for (uid, succeeds) in [("64000", true), ("64001", false)] {
        let psql = proxy.psql(&["-c", "SELECT 1"]);
        let output = Command::new("setpriv")
            .args(["--reuid", uid, "--clear-groups", "psql"])
            .args(psql.get_args())
            .output()
            .expect("setpriv runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), succeeds, "{stderr}");
        assert_eq!(stderr.contains("UID 64001 may not use this proxy"), !succeeds, "{stderr}");
    }
    let other = Command::new("psql")
        .args(proxy.psql(&["-U", "somebody", "-c", "SELECT 1"]).get_args())
        .output()
        .expect("psql runs");
    assert!(String::from_utf8_lossy(&other.stderr).contains("not as \"somebody\""));
}

fn stops(fixture: &mut Fixture) {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut proxy = fixture.proxy(&[]);
        let mut client = proxy.client();
        proxy.process.signal(signal);
        proxy.process.await_line("event=stopping");
        // Each worker closes its listener by itself.
        let until = Instant::now() + LONG;
        while proxy.try_client().is_ok() || proxy.socket().exists() {
            assert!(Instant::now() < until, "it still listens");
        }
        assert_eq!(one(&mut client, "SELECT 1"), "1");
        drop(client);
        assert_eq!(proxy.process.wait().code(), Some(0));
    }
    let mut proxy = fixture.proxy(&["--drain-time", "0.3"]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57P01"));
    assert_eq!(proxy.process.wait().code(), Some(6));
    // A second signal stops at once.
    let mut proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    proxy.process.signal(Signal::SIGTERM);
    proxy.process.await_line("event=stopping");
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57P01"));
    assert_eq!(proxy.process.wait().code(), Some(6));
}

fn refused_at_start(fixture: &mut Fixture) {
    let url = fixture.url("");
    let with_password = url.replace('@', ":hunter2@");
    for (listen, url, code, reason) in [
        ("unix:/tmp/x", with_password.as_str(), 2, "password"),
        ("unix:/tmp/x", "mongodb://a@h", 2, "mongodb"),
        ("tcp:0.0.0.0:1", &url, 2, "an address that is not loopback"),
        ("unix:/tmp/x", "postgres://a@h/?sslrootcert=/nowhere/ca.pem", 2, "/nowhere/ca.pem"),
        ("unix:/nowhere/at/all/s", &url, 9, "/nowhere/at/all"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
            .args(["--listen", listen, "--server", url])
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(reason) && !stderr.contains("hunter2"), "{stderr}");
    }
}
