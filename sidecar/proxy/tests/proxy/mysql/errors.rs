//! The proxy's own errors as libmariadb shows them. It replaces errors with a number of its own range (2000
//! to 2999) by "Malformed packet".

use std::process::Command;

use nix::sys::signal::Signal;

use super::Case;
use super::fake::FakeServer;
use super::fixture::{Fixture, Proxy};
use crate::operations::{admin_address, await_that, in_queue_time, samples};

pub(crate) const CASES: [Case; 1] = [("libmariadb shows the proxy's own errors", shown)];

/// The error output of MariaDB's client.
fn output(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn expect(output: &str, number: &str, words: &str) {
    assert!(
        output.contains(&format!("ERROR {number}")) && output.contains(words),
        "{number}, {words}: {output}"
    );
}

fn shown(fixture: &mut Fixture) {
    let port = FakeServer::start().port();
    let mut proxy = fixture.proxy_to(&FakeServer::url(port), Vec::new(), &[]);
    "toll".clone_into(&mut proxy.user);
    let Some(command) = proxy.cli(&["--skip-ssl", "-e", "SELECT 1"]) else { return };
    // In place of a greeting, so without an SQL state.
    expect(&output(command), "1429", "the proxy cannot connect to the server");
    lost_connection(fixture);
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.5"]);
    let cli =
        |proxy: &Proxy, more: &[&str]| proxy.cli(&[more, &["-e", "SELECT 1"]].concat()).expect("it is here");
    let _first =
        in_queue_time(|| proxy.try_client().and_then(|mut client| client.execute("BEGIN").map(|()| client)));
    expect(&output(cli(&proxy, &[])), "1040 (08004)", "no server connection became free within 0.5 s");
    expect(&output(cli(&proxy, &["--user", "somebody"])), "1045 (28000)", "not as 'somebody'");
    stopping(fixture);
}

/// The server's connection breaks during a session.
fn lost_connection(fixture: &mut Fixture) {
    let fake = FakeServer::start();
    let mut proxy = fixture.proxy_to(&FakeServer::url(fake.port()), Vec::new(), &[]);
    "toll".clone_into(&mut proxy.user);
    let command = proxy.cli(&["-e", "LOAD DATA LOCAL INFILE 'x' INTO TABLE t", "--local-infile=0"]);
    expect(&output(command.expect("it is here")), "1158 (08S01)", "the connection to the server was lost");
}

fn stopping(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--drain-time", "0", "--admin", "tcp:127.0.0.1:0"]);
    let mut first = proxy.client();
    first.execute("BEGIN").expect("a transaction");
    let mut command = proxy.cli(&["-e", "SELECT 1"]).expect("it is here");
    command.stderr(std::process::Stdio::piped());
    let waiting = command.spawn().expect("it runs");
    let admin = admin_address(&proxy.process.log);
    await_that("it waits", || samples(admin)["clients{state=\"queued\"}"] > 0.0);
    proxy.process.signal(Signal::SIGTERM);
    let output = waiting.wait_with_output().expect("it ends");
    expect(&String::from_utf8_lossy(&output.stderr), "1053 (08S01)", "the proxy is shutting down");
}
