//! Certificates, keys and authorities that are replaced on disk while the proxy runs, without a signal.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ciphertoll_lab::Authority;
use ciphertoll_net::blocking::Client;
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::client_tls::TestCertificates;
use crate::fixture::{Fixture, Proxy};
use crate::operations::settings;

pub(crate) const CASES: [Case; 3] = [
    ("an authority that is replaced on disk closes no connection", authority),
    ("a certificate for clients takes effect when its key has come, too", certificate),
    ("without watch-files, files are read at a reload only", unwatched),
];

/// Replaces a directory at once, as the kubelet does for a mounted secret.
fn swap(directory: &Path, version: &str, pem: &[u8]) {
    let own = directory.join(version);
    fs::create_dir(&own).expect("ours to make");
    fs::write(own.join("ca.pem"), pem).expect("ours to write");
    symlink(version, directory.join("next")).expect("a link");
    fs::rename(directory.join("next"), directory.join("current")).expect("ours to swap");
}

fn proxy_with_ca(fixture: &mut Fixture, directory: &Path, more: &[&str]) -> Proxy {
    let own = directory.join("current/ca.pem").display().to_string();
    let url = fixture.url("").replace(&fixture.server().ca_file().display().to_string(), &own);
    fixture.proxy_to(&url, more)
}

fn authority(fixture: &mut Fixture) {
    let (directory, _) = settings("");
    let directory = directory.path();
    let good = fs::read(fixture.server().ca_file()).expect("the authority");
    let other = Authority::generate().expect("another").certificate_pem().expect("PEM");
    swap(directory, "1", &good);
    let mut proxy = proxy_with_ca(fixture, directory, &["--watch-files", "1s", "--pool-size", "2"]);
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    let reloaded = "event=certificates-reloaded";
    // The server is not of this authority: new connections are refused, and open ones stay.
    swap(directory, "2", &other);
    proxy.process.await_line(reloaded);
    let mut first = proxy.client();
    first.query("BEGIN").expect("a transaction");
    assert_eq!(one(&mut first, "SELECT pg_backend_pid()"), process);
    let refused = proxy.try_client().err().expect("no other connection can be opened").to_string();
    assert!(refused.contains("cannot connect to the server"), "{refused}");
    // A half-written file changes nothing, and is reported once.
    swap(directory, "3", &good[..good.len() / 2]);
    let line = proxy.process.await_line("event=certificates-not-reloaded");
    assert!(line.contains("ca.pem"), "{line}");
    fs::write(directory.join("3/ca.pem"), &good).expect("ours to write");
    proxy.process.await_line(reloaded);
    let mut second = proxy.client();
    assert_ne!(one(&mut second, "SELECT pg_backend_pid()"), process);
    // At a reload, too, another content of a watched file closes no connection.
    let process = one(&mut second, "SELECT pg_backend_pid()");
    drop((first, second));
    swap(directory, "4", &[&good[..], b"\n"].concat());
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    let mut both = [proxy.client(), proxy.client()];
    let processes = both.each_mut().map(|client| {
        client.query("BEGIN").expect("a transaction");
        one(client, "SELECT pg_backend_pid()")
    });
    assert!(processes.contains(&process), "{processes:?}");
    assert_eq!(proxy.process.count("event=certificates-not-reloaded"), 1);
    assert_eq!(proxy.process.count("it was opened with old settings"), 0);
}

fn certificate(fixture: &mut Fixture) {
    let (own, new) = (TestCertificates::new(), TestCertificates::new());
    let arguments = own.arguments();
    let arguments = [&arguments.each_ref().map(String::as_str)[..], &["--watch-files", "1s"]].concat();
    let mut proxy =
        fixture.proxy_at("tcp:127.0.0.1:0", &fixture.url(""), std::path::PathBuf::new(), 0, &arguments);
    let connect = |proxy: &Proxy, ca: &TestCertificates| ca.tls_client(proxy, fixture.password());
    let mut lasting = connect(&proxy, &own).expect("the certificate of the start");
    lasting.query("CREATE TEMP TABLE mine (n int)").expect("a table");
    fs::copy(new.path("proxy.pem"), own.path("proxy.pem")).expect("ours to write");
    let line = proxy.process.await_line("event=certificates-not-reloaded");
    assert!(line.contains("tls-key"), "{line}");
    drop(connect(&proxy, &own).expect("still the earlier pair"));
    fs::copy(new.path("proxy.key"), own.path("proxy.key")).expect("ours to write");
    proxy.process.await_line("event=certificates-reloaded");
    let mut client: Client = connect(&proxy, &new).expect("the new pair");
    assert_eq!(one(&mut client, "SELECT 42"), "42");
    assert!(connect(&proxy, &own).is_err());
    assert_eq!(one(&mut lasting, "SELECT count(*) FROM mine"), "0");
}

fn unwatched(fixture: &mut Fixture) {
    let (directory, _) = settings("");
    let directory = directory.path();
    let good = fs::read(fixture.server().ca_file()).expect("the authority");
    swap(directory, "1", &good);
    let mut proxy = proxy_with_ca(fixture, directory, &[]);
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    swap(directory, "2", b"no certificate");
    // Several ticks of the worker.
    for _ in 0..20 {
        assert_eq!(one(&mut proxy.client(), "SELECT pg_sleep(0.1)"), "");
    }
    assert_eq!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), process);
    assert_eq!(proxy.process.count("event=certificates"), 0);
}
