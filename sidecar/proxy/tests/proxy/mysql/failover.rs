//! Several hosts: servers that become read-only and writable, while clients write numbered rows.

use std::process::Command;
use std::time::Instant;

use ciphertoll_testing::missing;

use super::Case;
use super::fixture::{Fixture, Proxy, code, one, try_one};
use super::pair::Pair;
use crate::fixture::Mode;
use crate::ledger::Ledger;
use crate::link::Link;
use crate::names::{Forwarder, NAME, Names};
use crate::operations::{await_that, json};

pub(crate) const CASES: [Case; 5] = [
    ("a session on a server that has become read-only ends when another one is writable", moved),
    ("a server that becomes read-only is left, and is not written to when it is writable again", flipped),
    ("each role leads to a host that has it", roles),
    ("a server whose link goes silent is left within health-time", silent),
    ("a name that gets the address of the writable server leads clients there", renamed),
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
    check(&ledger, &mut pair);
    assert_eq!(status(&proxy)["counts"]["failovers"], 1);
}

/// Each acknowledged row is on one of the servers.
fn check(ledger: &Ledger, pair: &mut Pair) {
    let rows = pair.members.iter_mut().flat_map(|member| {
        member.control.query("SELECT CONCAT(writer, ' ', number) FROM numbered").expect("rows")
    });
    ledger.check(rows);
}

/// The proxy is in a network namespace, and the link to the writable server is cut.
fn silent(fixture: &mut Fixture) {
    let Some(links) = Link::pair() else {
        return missing("virtual interfaces and network namespaces need root");
    };
    let mut pair = Pair::start_at(fixture, links.each_ref().map(Link::address));
    pair.members[1].set_read_only(1);
    let mut program = Command::new("unshare");
    program.arg("-n").arg(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
    let url = pair.url(fixture, "read-write");
    let arguments = ["--health-time", "1s", "--pool-size", "8"];
    let mut proxy = fixture.proxy_in(program, &url, &arguments);
    for link in &links {
        link.connect(proxy.process.id());
    }
    let [old, new] = &mut pair.members;
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            links[0].cut();
            let began = Instant::now();
            new.set_read_only(0);
            ledger.await_first("the link was cut", began);
            ledger.await_more("all writers are served");
            let rows = old.rows();
            links[0].restore();
            for _ in 0..5 {
                ledger.await_more("the new one is written to");
            }
            assert_eq!(old.rows(), rows);
        },
    );
    check(&ledger, &mut pair);
    assert_eq!(proxy.process.count("event=failover"), 1);
}

/// As a cluster manager does it that changes a name: the old server is made read-only, the new one writable.
fn renamed(fixture: &mut Fixture) {
    let Some(names) = Names::new(&["127.0.0.2"]) else { return };
    let mut pair = Pair::start(fixture);
    pair.members[1].set_read_only(1);
    let (_forwarders, port) = Forwarder::pair(pair.members.each_ref().map(|member| member.port));
    let (user, database) = (fixture.user(), fixture.server().database().to_owned());
    let url = format!("mysql://{user}@{NAME}:{port}/{database}?ssl-mode=DISABLED");
    let proxy = fixture.proxy_in(names.program(), &url, &["--dns-time", "1s", "--pool-size", "8"]);
    let [old, new] = &mut pair.members;
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            old.set_read_only(1);
            let rows = old.rows();
            new.set_read_only(0);
            let began = Instant::now();
            names.set(&["127.0.0.3"]);
            ledger.await_first("the change of the name", began);
            ledger.await_more("all writers are served");
            old.set_read_only(0);
            for _ in 0..5 {
                ledger.await_more("the new one is written to");
            }
            assert_eq!(old.rows(), rows);
        },
    );
    check(&ledger, &mut pair);
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

pub(crate) fn standing(proxy: &Proxy, at: usize) -> String {
    status(proxy)["hosts"][at]["standing"].as_str().expect("text").to_owned()
}
