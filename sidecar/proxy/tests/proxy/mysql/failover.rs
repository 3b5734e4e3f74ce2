//! Several hosts: servers that become read-only and writable, while clients write numbered rows.

use std::time::Instant;

use super::Case;
use super::fixture::{Fixture, Proxy, code, one, try_one};
use super::pair::Pair;
use crate::fixture::Mode;
use crate::ledger::Ledger;
use crate::operations::{await_that, json};

pub(crate) const CASES: [Case; 3] = [
    ("a session on a server that has become read-only ends when another one is writable", moved),
    ("a server that becomes read-only is left, and is not written to when it is writable again", flipped),
    ("each role leads to a host that has it", roles),
];

const READ_ONLY: u16 = 1290;

fn proxy_to(fixture: &mut Fixture, pair: &Pair, target: &str, arguments: &[&str]) -> Proxy {
    let (url, password) = (pair.url(fixture, target), fixture.password());
    fixture.proxy_to(&url, password, &[&["--admin", "tcp:127.0.0.1:0"], arguments].concat())
}

fn flipped(fixture: &mut Fixture) {
    let mut pair = Pair::start(fixture);
    pair.members[1].set_read_only(1);
    let proxy = proxy_to(fixture, &pair, "read-write", &["--health-time", "1s", "--pool-size", "8"]);
    let [old, new] = &mut pair.members;
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            old.set_read_only(1);
            let rows = old.rows();
            new.set_read_only(0);
            ledger.await_first("the other server became writable", Instant::now());
            ledger.await_more("all writers are served");
            old.set_read_only(0);
            await_that("the second writable server is noticed", || standing(&proxy, 0) == "superseded");
            ledger.await_more("the new one is written to");
            assert_eq!(old.rows(), rows);
        },
    );
    let mut rows = Vec::new();
    for member in [old, new] {
        rows.extend(member.control.query("SELECT CONCAT(writer, ' ', number) FROM numbered").expect("rows"));
    }
    ledger.check(rows);
    assert_eq!(status(&proxy)["counts"]["failovers"], 1);
}

fn moved(fixture: &mut Fixture) {
    let mut pair = Pair::start(fixture);
    pair.members[1].set_read_only(1);
    let mut proxy = proxy_to(fixture, &pair, "read-write", &[]);
    let mut client = proxy.client();
    let port = "SELECT @@port";
    let [old, new] = pair.members.each_ref().map(|member| member.port.to_string());
    assert_eq!(one(&mut client, port), old);
    let mut pinned = proxy.client();
    assert_eq!(one(&mut pinned, "SELECT GET_LOCK('moved', 0)"), "1");
    pair.members[0].set_read_only(1);
    let refused = client.execute("INSERT INTO numbered VALUES (1, 1)").expect_err("it is read-only");
    assert_eq!(code(&refused), Some(READ_ONLY));
    pinned.execute("INSERT INTO numbered VALUES (1, 1)").expect_err("it is read-only");
    await_that("it is noticed", || standing(&proxy, 0) == "unfit");
    pair.members[1].set_read_only(0);
    // Its last answer was an error, and it sends nothing more.
    await_that("the session of an idle client ends", || {
        let ended = match fixture.mode {
            Mode::Session => 2,
            Mode::Transaction => 1,
        };
        proxy.process.count("another server has taken the role of the one that this session used") == ended
    });
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
