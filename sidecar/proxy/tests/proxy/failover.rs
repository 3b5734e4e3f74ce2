//! Several hosts: servers that die, are promoted and come back, while clients write numbered rows.

use std::collections::HashSet;
use std::thread;
use std::time::Instant;

use ciphertoll_net::blocking::Client;
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::cluster::{Cluster, Node, free_port};
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::ledger::Ledger;
use crate::operations::{await_that, json, settings};

pub(crate) const CASES: [Case; 3] = [
    (
        "a primary that dies is replaced, is not written to when it comes back, and may replace its successor",
        replaced,
    ),
    ("clients wait while no host has the role, and are told which hosts were tried", waits),
    ("a server that has become read-only is left, and an error of the client's own is no reason", read_only),
];
pub(crate) const OF_SESSIONS: [Case; 5] = [
    ("a reload changes neither the hosts nor the role", reloaded),
    ("each role of libpq leads to a host that has it", roles),
    ("hosts in random order are all used", random_order),
    ("a server that does not read while it waits for a lock is not left", unread),
    ("a standby that is promoted is left by clients that need a standby", left_standby),
];

fn replaced(fixture: &mut Fixture) {
    let cluster = Cluster::start(fixture, 2);
    let [old, new, other] = &cluster.nodes[..] else { panic!("three servers") };
    old.execute("CREATE TABLE numbered (writer int, number int)");
    let proxy = proxy_to(fixture, &cluster, "read-write", &["--health-time", "1s", "--pool-size", "8"]);
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            old.kill();
            new.promote();
            ledger.await_first("the promotion", Instant::now());
            // It may have received more than the new primary, and then could not follow it.
            other.come_back_behind(new);
            ledger.await_more("all writers are served");
            comes_back_as_primary(&proxy, ledger, old, new);
            comes_back_as_standby(&proxy, ledger, old, new);
        },
    );
    ledger.check(old.rows("SELECT writer || ' ' || number FROM numbered").expect("rows"));
    assert_eq!(status(&proxy)["counts"]["failovers"], 2);
}

/// The old primary is there again, and would take writes.
fn comes_back_as_primary(proxy: &Proxy, ledger: &Ledger, old: &Node, new: &Node) {
    old.start_again_alone();
    let rows = old.value("SELECT count(*) FROM numbered");
    await_that("it is noticed", || standing(proxy, 0) == "superseded");
    ledger.await_more("the new one is written to");
    assert_eq!(old.value("SELECT count(*) FROM numbered"), rows);
    // The old primary is not used even while the new one is down.
    new.stop();
    await_that("the new one is missed", || standing(proxy, 1) != "usable");
    new.start_again();
    ledger.await_first("the restart", Instant::now());
    ledger.await_more("the new one is written to again");
    assert_eq!(old.value("SELECT count(*) FROM numbered"), rows);
}

/// It follows the new primary, and replaces it when that one dies.
fn comes_back_as_standby(proxy: &Proxy, ledger: &Ledger, old: &Node, new: &Node) {
    old.come_back_behind(new);
    new.acknowledge_when_received_by(2);
    await_that("it is a standby", || standing(proxy, 0) == "unfit");
    ledger.await_more("the new one is written to");
    new.kill();
    old.promote();
    ledger.await_first("the second promotion", Instant::now());
    ledger.await_more("all writers are served");
    await_that("the other one is a standby", || standing(proxy, 2) == "unfit");
}

fn waits(fixture: &mut Fixture) {
    let cluster = Cluster::start(fixture, 1);
    let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
    let proxy = proxy_to(fixture, &cluster, "primary", &[]);
    let impatient = proxy_to(fixture, &cluster, "primary", &["--queue-time", "500ms"]);
    assert_eq!(port_of(&proxy), old.port);
    old.kill();
    let told =
        impatient.try_client().and_then(|mut client| client.query("SELECT 1")).expect_err("no primary");
    let told = told.to_string();
    let names_hosts = |node: &Node| told.contains(&format!("127.0.0.1:{}", node.port));
    assert!(
        told.contains("no host is confirmed as primary") && cluster.nodes.iter().all(names_hosts),
        "{told}"
    );
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| port_of(&proxy))).collect();
        await_that("clients wait", || status(&proxy)["clients"]["queued"] == 4);
        new.promote();
        for client in waiting {
            assert_eq!(client.join().expect("it is served"), new.port);
        }
    });
    await_that("it is found in time", || impatient.try_client().is_ok());
    assert_eq!(port_of(&impatient), new.port);
}

fn read_only(fixture: &mut Fixture) {
    let cluster = Cluster::start(fixture, 1);
    let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
    old.execute("CREATE TABLE numbered (writer int, number int)");
    let proxy = proxy_to(fixture, &cluster, "read-write", &["--pool-size", "3"]);
    let insert = "INSERT INTO numbered VALUES (1, 1)";
    // An error that the client has asked for is no reason to leave the server.
    let mut client = proxy.client();
    client.execute("BEGIN TRANSACTION READ ONLY").expect("a transaction");
    assert!(client.execute(insert).is_err());
    client.execute("ROLLBACK").expect("the end");
    drop(client);
    assert_eq!(port_of(&proxy), old.port);
    assert_eq!(host(&proxy, 0)["doubts"], 1);
    assert_eq!(
        (standing(&proxy, 0), status(&proxy)["counts"]["failovers"].as_u64()),
        ("usable".to_owned(), Some(0))
    );
    // Several connections, all of which must be asked.
    let held: Vec<Client> = (0..3).map(|_| proxy.client()).collect();
    drop(held);
    old.execute("ALTER SYSTEM SET default_transaction_read_only = on");
    old.execute("SELECT pg_reload_conf()");
    await_that("it refuses writes", || {
        proxy.try_client().is_ok_and(|mut client| client.execute(insert).is_err())
    });
    new.promote();
    assert_eq!(port_of(&proxy), new.port);
    let rows = |node: &Node| node.value("SELECT count(*) FROM numbered");
    let before = rows(old);
    for _ in 0..20 {
        assert!(proxy.client().execute(insert).is_ok());
    }
    assert_eq!(rows(old), before);
}

fn roles(fixture: &mut Fixture) {
    let cluster = Cluster::start(fixture, 1);
    let [primary, standby] = &cluster.nodes[..] else { panic!("two servers") };
    for (target, port) in [
        ("any", primary.port),
        ("read-write", primary.port),
        ("primary", primary.port),
        ("read-only", standby.port),
        ("standby", standby.port),
        ("prefer-standby", standby.port),
    ] {
        let proxy = proxy_to(fixture, &cluster, target, &[]);
        for _ in 0..3 {
            assert_eq!(port_of(&proxy), port, "{target}");
        }
    }
    standby.stop();
    let proxy = proxy_to(fixture, &cluster, "prefer-standby", &[]);
    assert_eq!(port_of(&proxy), primary.port);
    let proxy = proxy_to(fixture, &cluster, "standby", &["--queue-time", "500ms"]);
    assert!(proxy.try_client().is_err());
    // A port at which nothing listens is skipped.
    let url = cluster.url("").replacen('@', &format!("@127.0.0.1:{},", free_port()), 1);
    let proxy = fixture.proxy_to(&url, &[]);
    assert_eq!(port_of(&proxy), primary.port);
}

fn random_order(fixture: &mut Fixture) {
    let cluster = Cluster::start(fixture, 1);
    let proxy = proxy_to(fixture, &cluster, "any&load_balance_hosts=random", &["--pool-size", "40"]);
    let mut clients: Vec<Client> = (0..40).map(|_| proxy.client()).collect();
    let ports: HashSet<String> = clients.iter_mut().map(|client| one(client, PORT)).collect();
    assert_eq!(ports.len(), 2);
}

/// Its machine acknowledges what it has received, and has no room for more, for longer than a silent link may last.
fn unread(fixture: &mut Fixture) {
    const ROWS: usize = 4 << 20;
    let cluster = Cluster::start(fixture, 0);
    let node = &cluster.nodes[0];
    node.execute("CREATE TABLE copied (a int)");
    let proxy = proxy_to(fixture, &cluster, "read-write", &["--health-time", "1s"]);
    let mut locker = node.control(node.database());
    locker.execute("BEGIN; LOCK TABLE copied").expect("a lock");
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let rows = b"1234567\n".repeat(1 << 10);
    let data = [&b"d"[..], &(rows.len() as u32 + 4).to_be_bytes(), &rows].concat();
    thread::scope(|scope| {
        scope.spawn(|| locker.execute("SELECT pg_sleep(4); COMMIT").expect("it ends"));
        raw.query("COPY copied FROM STDIN");
        (0..ROWS >> 10).for_each(|_| raw.send(&data));
        raw.send(b"c\0\0\0\x04");
        assert_eq!(RawClient::error_state(&raw.answer()), None);
    });
    assert_eq!(node.value("SELECT count(*) FROM copied"), ROWS.to_string());
    assert_eq!(host(&proxy, 0)["doubts"], 0);
}

fn left_standby(fixture: &mut Fixture) {
    let cluster = Cluster::start(fixture, 1);
    let [primary, standby] = &cluster.nodes[..] else { panic!("two servers") };
    let arguments = ["--health-time", "1s", "--queue-time", "500ms"];
    let proxy = proxy_to(fixture, &cluster, "standby", &arguments);
    await_that("the standby is found", || proxy.try_client().is_ok());
    assert_eq!(port_of(&proxy), standby.port);
    primary.kill();
    standby.promote();
    await_that("the health check notices", || standing(&proxy, 1) == "unfit");
    let told = proxy.try_client().and_then(|mut client| client.query("SELECT 1"));
    assert!(told.is_err_and(|error| error.to_string().contains("no host is confirmed as standby")));
}

fn reloaded(fixture: &mut Fixture) {
    let (directory, listen) = fixture.new_directory();
    let name = format!("{}:{}", fixture.server().server_name(), fixture.server_port());
    let write = |hosts: &str, options: &str| {
        let url = fixture.url(options).replace(&name, hosts);
        format!("listen = \"{listen}\"\nserver = \"{url}\"\n")
    };
    let both = format!("{name},127.0.0.1:{}", free_port());
    let texts = [
        (write(&name, ""), "reload-failed"),
        (write(&both, "&target_session_attrs=standby"), "reload-failed"),
        (write(&both, "&load_balance_hosts=random"), "reload-failed"),
        (write(&both, "&target_session_attrs=any"), "event=reloaded"),
    ];
    let (_settings, file) = settings(&write(&both, ""));
    let mut command = fixture.program();
    command.args(["--config", &file]);
    let mut proxy = fixture.proxy_by(&mut command, directory, crate::fixture::PORT);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    for (text, event) in texts {
        std::fs::write(&file, text).expect("ours to write");
        proxy.process.signal(Signal::SIGHUP);
        let line = proxy.process.await_line("event=reload");
        assert!(line.contains(event), "{line}");
        assert_eq!(line.contains(&format!("the server stays {both}")), event == "reload-failed", "{line}");
    }
}

const PORT: &str = "SELECT inet_server_port()";

fn proxy_to(fixture: &mut Fixture, cluster: &Cluster, target: &str, arguments: &[&str]) -> Proxy {
    let url = cluster.url(&format!("&target_session_attrs={target}"));
    let arguments = [&["--admin", "tcp:127.0.0.1:0"], arguments].concat();
    fixture.proxy_to(&url, &arguments)
}

/// The port of the server that serves a new client.
fn port_of(proxy: &Proxy) -> u16 {
    one(&mut proxy.client(), PORT).parse().expect("a port")
}

fn status(proxy: &Proxy) -> serde_json::Value {
    json(&proxy.process.log, "/status")
}

fn host(proxy: &Proxy, at: usize) -> serde_json::Value {
    status(proxy)["hosts"][at].clone()
}

fn standing(proxy: &Proxy, at: usize) -> String {
    host(proxy, at)["standing"].as_str().expect("text").to_owned()
}
