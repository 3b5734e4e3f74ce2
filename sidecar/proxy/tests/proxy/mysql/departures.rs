//! Clients that send nothing more, and clients that do not wait for answers: what they have sent is executed and answered,
//! as by the server.

use std::io::Read as _;
use std::net::Shutdown;

use super::Case;
use super::fake::FakeServer;
use super::fixture::{Fixture, one};
use super::raw::{RawClient, USUAL};

pub(crate) const CASES: [Case; 4] = [
    ("commands in front of the end of a client are executed and answered", answered),
    ("a client that ends its stream gets all of a long answer", long_answer),
    ("a pipeline may have any number of commands", pipeline),
    ("a client that ends is told that an answer was lost", lost),
];

/// How a client ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Quit,
    HalfClose,
}

const ENDS: [End; 2] = [End::Quit, End::HalfClose];

fn query(sql: &str) -> Vec<u8> {
    let length = u32::try_from(sql.len() + 1).expect("a short text").to_le_bytes();
    [&length[..3], &[0, 3], sql.as_bytes()].concat()
}

/// Sends these commands and the end at once.
fn send(raw: &mut RawClient, commands: &[u8], end: End) {
    let quit: &[u8] = if let End::Quit = end { &[1, 0, 0, 0, 1] } else { &[] };
    raw.send(&[commands, quit].concat());
    if let End::HalfClose = end {
        raw.stream.shutdown(Shutdown::Write).expect("half a connection");
    }
}

fn answered(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    proxy.client().query("CREATE TABLE IF NOT EXISTS left_by (n int)").expect("a table");
    for end in ENDS {
        proxy.client().query("TRUNCATE left_by").expect("an empty table");
        let mut raw = proxy.raw_with(USUAL);
        let commands = [query("INSERT INTO left_by VALUES (1)"), query("DO 1")].concat();
        send(&mut raw, &commands, end);
        assert_eq!((raw.word()[0], raw.word()[0]), (0, 0), "{end:?}");
        assert!(raw.packet().is_err(), "{end:?}: it ends");
        assert_eq!(one(&mut proxy.client(), "SELECT count(*) FROM left_by"), "1", "{end:?}");
        // In a transaction that is not committed.
        let mut raw = proxy.raw_with(USUAL);
        send(&mut raw, &[query("BEGIN"), query("INSERT INTO left_by VALUES (2)")].concat(), end);
        assert_eq!((raw.word()[0], raw.word()[0]), (0, 0), "{end:?}");
        assert!(raw.packet().is_err(), "{end:?}: it ends");
        assert_eq!(one(&mut proxy.client(), "SELECT count(*) FROM left_by"), "1", "{end:?}");
    }
}

fn long_answer(fixture: &mut Fixture) {
    const BYTES: usize = 12 << 20;
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for end in ENDS {
        let mut raw = proxy.raw_with(USUAL);
        send(&mut raw, &query(&format!("SELECT repeat('x', {BYTES}), sleep(0.1)")), end);
        let mut bytes = Vec::new();
        raw.stream.read_to_end(&mut bytes).expect("the whole answer");
        assert!(bytes.len() > BYTES, "{end:?}: {}", bytes.len());
    }
}

/// More commands than the proxy keeps notes of.
fn pipeline(fixture: &mut Fixture) {
    const COMMANDS: usize = 10_000;
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for end in ENDS {
        let mut raw = proxy.raw_with(USUAL);
        send(&mut raw, &[query("DO SLEEP(0.2)"), query("DO 1").repeat(COMMANDS)].concat(), end);
        for number in 0..=COMMANDS {
            assert_eq!(raw.word()[0], 0, "{end:?}, {number}");
        }
        assert!(raw.packet().is_err(), "{end:?}: it ends");
    }
}

fn lost(fixture: &mut Fixture) {
    let fake = FakeServer::start();
    let mut proxy = fixture.proxy_to(&FakeServer::url(fake.port()), Vec::new(), &[]);
    "toll".clone_into(&mut proxy.user);
    for end in ENDS {
        let mut raw = proxy.raw_with(USUAL);
        send(&mut raw, &[query("DO 1"), query("FAIL"), query("VANISH")].concat(), end);
        assert_eq!(raw.word()[0], 0, "{end:?}");
        assert_eq!(raw.word()[..3], [0xff, 0x28, 0x04], "{end:?}");
        // The error number, of a lost connection.
        assert_eq!(raw.word()[..3], [0xff, 0x86, 0x04], "{end:?}");
        assert!(raw.packet().is_err(), "{end:?}: it ends");
    }
}
