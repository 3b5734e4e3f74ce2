//! Several hosts: servers that become read-only and writable, while clients write numbered rows.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use ciphertoll_net::blocking::Client;

use super::Case;
use super::fixture::{Fixture, Proxy, code, one, try_one};
use super::pair::Pair;
use crate::operations::{await_that, json};
use crate::say;

pub(crate) const CASES: [Case; 3] = [
    ("a session on a server that has become read-only ends when another one is writable", moved),
    ("a server that becomes read-only is left, and is not written to when it is writable again", flipped),
    ("each role leads to a host that has it", roles),
];

const WRITERS: usize = 16;
const ROWS: u64 = 20 * WRITERS as u64;
const READ_ONLY: u16 = 1290;

/// What clients know of the rows that they have written.
#[derive(Default)]
struct Ledger {
    acknowledged: Mutex<Vec<String>>,
    count: AtomicU64,
    stop: AtomicBool,
}

impl Ledger {
    fn write(&self, proxy: &Proxy, writer: usize) {
        let mut client: Option<Client> = None;
        let mut number = 0;
        while !self.stop.load(Ordering::Acquire) {
            number += 1;
            let Some(mut connected) = client.take().or_else(|| proxy.try_client().ok()) else { continue };
            // After an error it is not known whether the row was written: it is not written again.
            if connected.execute(&format!("INSERT INTO numbered VALUES ({writer}, {number})")).is_ok() {
                self.acknowledged.lock().expect("no panic").push(format!("{writer} {number}"));
                self.count.fetch_add(1, Ordering::AcqRel);
                client = Some(connected);
            }
        }
    }

    fn await_more(&self, what: &str) {
        let before = self.count.load(Ordering::Acquire);
        await_that(what, || self.count.load(Ordering::Acquire) >= before + ROWS);
    }
}

/// Stops the writers even if the case fails.
struct Stop<'a>(&'a Ledger);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

fn proxy_to(fixture: &mut Fixture, pair: &Pair, target: &str, arguments: &[&str]) -> Proxy {
    let (url, password) = (pair.url(fixture, target), fixture.password());
    fixture.proxy_to(&url, password, &[&["--admin", "tcp:127.0.0.1:0"], arguments].concat())
}

fn flipped(fixture: &mut Fixture) {
    let mut pair = Pair::start(fixture);
    pair.members[1].set_read_only(1);
    let proxy = proxy_to(fixture, &pair, "read-write", &["--health-time", "1s", "--pool-size", "8"]);
    let [old, new] = &mut pair.members;
    let ledger = Ledger::default();
    thread::scope(|scope| {
        let _stop = Stop(&ledger);
        for writer in 0..WRITERS {
            let (ledger, proxy) = (&ledger, &proxy);
            scope.spawn(move || ledger.write(proxy, writer));
        }
        ledger.await_more("rows are written");
        old.set_read_only(1);
        let rows = old.rows();
        new.set_read_only(0);
        let (promoted, before) = (Instant::now(), ledger.count.load(Ordering::Acquire));
        await_that("rows are written again", || ledger.count.load(Ordering::Acquire) > before);
        say(&format!("the first row was acknowledged {:?} after the promotion", promoted.elapsed()));
        ledger.await_more("all writers are served");
        old.set_read_only(0);
        await_that("the second writable server is noticed", || standing(&proxy, 0) == "superseded");
        ledger.await_more("the new one is written to");
        assert_eq!(old.rows(), rows);
    });
    let mut found = HashSet::new();
    for member in [old, new] {
        let all = member.control.query("SELECT CONCAT(writer, ' ', number) FROM numbered").expect("rows");
        for row in all.into_iter().flatten().flatten() {
            let row = String::from_utf8(row).expect("text");
            assert!(found.insert(row.clone()), "{row} was written twice");
        }
    }
    let acknowledged = ledger.acknowledged.lock().expect("no panic");
    assert_eq!(acknowledged.iter().find(|row| !found.contains(*row)), None, "an acknowledged row is lost");
    assert_eq!(status(&proxy)["counts"]["failovers"], 1);
}

fn moved(fixture: &mut Fixture) {
    let mut pair = Pair::start(fixture);
    pair.members[1].set_read_only(1);
    let proxy = proxy_to(fixture, &pair, "read-write", &[]);
    let mut client = proxy.client();
    let port = "SELECT @@port";
    let [old, new] = pair.members.each_ref().map(|member| member.port.to_string());
    assert_eq!(one(&mut client, port), old);
    pair.members[0].set_read_only(1);
    let refused = client.execute("INSERT INTO numbered VALUES (1, 1)").expect_err("it is read-only");
    assert_eq!(code(&refused), Some(READ_ONLY));
    await_that("it is noticed", || standing(&proxy, 0) == "unfit");
    pair.members[1].set_read_only(0);
    // In transaction mode it goes on there, in session mode it must connect again.
    await_that("it is led to the other server", || {
        let found = try_one(&mut client, port);
        if found.is_err() {
            client = proxy.client();
        }
        found.is_ok_and(|port| port == new)
    });
    client.execute("INSERT INTO numbered VALUES (1, 1)").expect("it is writable");
    assert_eq!((pair.members[0].rows(), pair.members[1].rows()), ("0".to_owned(), "1".to_owned()));
}

fn roles(fixture: &mut Fixture) {
    let mut pair = Pair::start(fixture);
    pair.members[1].set_read_only(1);
    let [first, second] = pair.members.each_ref().map(|member| member.port.to_string());
    let found = one(&mut fixture.proxy(&[]).client(), "SELECT FOUND_ROWS()");
    for (target, port) in [
        ("any", &first),
        ("read-write", &first),
        ("primary", &first),
        ("read-only", &second),
        ("standby", &second),
        ("prefer-standby", &second),
    ] {
        let proxy = proxy_to(fixture, &pair, target, &[]);
        let mut client = proxy.client();
        // The question for the role has left nothing.
        assert_eq!(one(&mut client, "SELECT FOUND_ROWS()"), found, "{target}");
        assert_eq!(one(&mut client, "SELECT @@port"), *port, "{target}");
    }
}

fn status(proxy: &Proxy) -> serde_json::Value {
    json(&proxy.process.log, "/status")
}

fn standing(proxy: &Proxy, at: usize) -> String {
    status(proxy)["hosts"][at]["standing"].as_str().expect("text").to_owned()
}
