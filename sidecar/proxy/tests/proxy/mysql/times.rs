//! Time limits of commands, transactions and idle clients.

use ciphertoll_model::Engine;
use ciphertoll_wire::mysql::{Capabilities, command};

use super::Case;
use super::cases::{execute, prepare};
use super::fake::FakeServer;
use super::fixture::{Fixture, Proxy, one};
use super::raw::{RawClient, USUAL};
use crate::operations::{await_that, settings};

pub(crate) const CASES: [Case; 7] = [
    ("a command that takes too long is cancelled, and its connection goes on", cancelled),
    ("a command that was cancelled for its time is executed once", once),
    ("a cursor, and commands sent together, that take too long are cancelled", within),
    ("a file that a client does not send ends with its connection", stuck),
    (
        "a client that is idle in a transaction is disconnected, and the transaction rolled back",
        idle_in_transaction,
    ),
    ("a transaction that takes too long ends with its client", transactions),
    ("an idle client is disconnected", idle),
];

/// Interrupted, it is an error on both servers: a `SLEEP` alone is not.
const SLOW: &str = "SELECT n FROM (SELECT 1 AS n UNION SELECT 2) AS t WHERE SLEEP(60) = 0";
const INTERRUPTED: Option<u16> = Some(1317);

fn run(raw: &mut RawClient, sql: &str) -> Option<u16> {
    raw.query(sql);
    RawClient::error(&raw.results())
}

fn cancelled(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--query-time", "0.3"]);
    let mut raw = proxy.raw();
    let server = raw.value("SELECT CONNECTION_ID()");
    for _ in 0..3 {
        assert_eq!(run(&mut raw, SLOW), INTERRUPTED);
        // Commands at once: of the same client, and of another one on the same connection.
        assert_eq!(raw.value("SELECT 1 FROM (SELECT SLEEP(0.01)) AS t"), "1");
        drop(raw);
        raw = proxy.raw();
        assert_eq!(raw.value("SELECT 1 FROM (SELECT SLEEP(0.01)) AS t"), "1");
    }
    // Within a transaction, which goes on.
    assert_eq!(run(&mut raw, "BEGIN"), None);
    assert_eq!(run(&mut raw, SLOW), INTERRUPTED);
    assert_eq!(raw.value("SELECT CONNECTION_ID()"), server);
    assert_eq!(run(&mut raw, "COMMIT"), None);
    assert_eq!(closed_for_cancels(&mut proxy), 0);
}

fn counted(fixture: &Fixture) {
    let mut control = fixture.control();
    let table = format!("{}.counted", fixture.server().database());
    for sql in
        [format!("DROP TABLE IF EXISTS {table}"), format!("CREATE TABLE {table} (n int) ENGINE = MyISAM")]
    {
        control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn once(fixture: &mut Fixture) {
    counted(fixture);
    let proxy = fixture.proxy(&["--query-time", "0.3"]);
    let mut raw = proxy.raw();
    for round in 1..=3 {
        // Without transactions, the rows before the error stay.
        let error = run(&mut raw, &format!("INSERT INTO counted VALUES (1), (({SLOW}))"));
        assert_eq!(error, INTERRUPTED);
        assert_eq!(raw.value("SELECT COUNT(*) FROM counted WHERE n = 1"), round.to_string());
    }
}

fn within(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--query-time", "0.3", "--pool-size", "1"]);
    let mut raw = proxy.raw();
    let statement = prepare(&mut raw, SLOW);
    execute(&mut raw, statement.statement_id, &[], true);
    assert_eq!(RawClient::error(&raw.results()), INTERRUPTED);
    let mut bytes = Vec::new();
    for sql in ["DO 1", SLOW, "DO 3"] {
        command::encode_query_on(raw.capabilities, &mut bytes, sql).expect("a query");
    }
    raw.send(&bytes);
    let errors: Vec<_> = (0..3).map(|_| RawClient::error(&raw.results())).collect();
    assert_eq!(errors, [None, INTERRUPTED, None]);
    assert_eq!(raw.value("SELECT 1"), "1");
    assert_eq!(closed_for_cancels(&mut proxy), 0);
}

fn stuck(fixture: &mut Fixture) {
    let (_directory, file) = settings("[limits]\nreset-time = \"500ms\"\nquery-time = \"300ms\"\n");
    let fake = FakeServer::start();
    let url = FakeServer::url(fake.port());
    let mut proxy = fixture.proxy_to(&url, Vec::new(), &["--config", &file, "--pool-size", "1"]);
    "toll".clone_into(&mut proxy.user);
    let mut raw = proxy.raw_with(USUAL | Capabilities::LOCAL_FILES);
    raw.query("LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
    let (sequence, asked) = raw.packet().expect("it asks");
    assert_eq!((sequence, asked.as_slice()), (1, &b"\xfbfile"[..]));
    // The server waits for data, and looks for a kill only then.
    let (_, error) = raw.packet().expect("the reason");
    assert_eq!(RawClient::error(&[error]), INTERRUPTED);
    assert!(raw.packet().is_err(), "the stream has ended");
    proxy.process.await_line("in the middle of a file");
    assert_eq!(run(&mut proxy.raw(), "DO 1"), None);
}

/// MySQL says why an idle client is disconnected. MariaDB does not.
fn assert_idle_end(fixture: &Fixture, raw: &mut RawClient) {
    match (raw.packet(), fixture.engine()) {
        (Ok((sequence, error)), Engine::MySql) => {
            assert_eq!((sequence, RawClient::error(&[error])), (1, Some(4031)));
            assert!(raw.packet().is_err(), "the stream has ended");
        }
        (Err(_), Engine::MariaDb) => {}
        (end, engine) => panic!("{engine}: {end:?}"),
    }
}

fn idle_in_transaction(fixture: &mut Fixture) {
    let mut control = fixture.control();
    let table = format!("{}.held", fixture.server().database());
    control.execute(&format!("DROP TABLE IF EXISTS {table}")).expect("no table");
    control.execute(&format!("CREATE TABLE {table} (n int) ENGINE = InnoDB")).expect("a table");
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--idle-transaction-time", "0.3"]);
    for second in ["DO 1", "SELECT nonsense"] {
        let mut raw = proxy.raw();
        assert_eq!(run(&mut raw, "BEGIN"), None);
        assert_eq!(run(&mut raw, "INSERT INTO held VALUES (1)"), None);
        run(&mut raw, second);
        assert_idle_end(fixture, &mut raw);
        assert_eq!(one(&mut proxy.client(), "SELECT COUNT(*) FROM held"), "0");
    }
    assert_eq!(closed_for_cancels(&mut proxy), 0);
}

fn transactions(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--transaction-time", "0.4"]);
    for sql in [SLOW, "SELECT SLEEP(60)"] {
        let mut raw = proxy.raw();
        assert_eq!(run(&mut raw, "BEGIN"), None);
        raw.query(sql);
        let (sequence, error) = raw.packet().expect("the reason");
        assert_eq!((sequence, RawClient::error(&[error])), (1, INTERRUPTED));
        assert!(raw.packet().is_err(), "the stream has ended");
        await_ended(fixture, &proxy);
    }
    let mut raw = proxy.raw();
    for _ in 0..6 {
        assert_eq!(run(&mut raw, "SELECT SLEEP(0.1)"), None);
    }
}

/// Connections that were closed, except for the first one, which has other capabilities than the clients'.
fn closed_for_cancels(proxy: &mut Proxy) -> usize {
    proxy.process.count("event=server-closed") - proxy.process.count("makes room for another")
}

/// Waits until no command of the proxy's user sleeps.
fn await_ended(fixture: &Fixture, proxy: &Proxy) {
    let mut control = fixture.control();
    let running = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}' AND command <> 'Sleep'",
        proxy.user
    );
    await_that("the command has ended", || one(&mut control, &running) == "0");
}

fn idle(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--client-idle-time", "0.4", "--pool-size", "4"]);
    let mut within = proxy.raw();
    assert_eq!(run(&mut within, "BEGIN"), None);
    let [mut silent, mut used] = [proxy.raw(), proxy.raw()];
    assert_eq!(used.value("SELECT 1"), "1");
    for raw in [&mut silent, &mut used] {
        assert_idle_end(fixture, raw);
    }
    // This one has been idle for longer.
    assert_eq!(run(&mut within, "COMMIT"), None);
}
