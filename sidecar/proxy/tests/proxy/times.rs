//! Time limits of commands, transactions and idle clients.

use ciphertoll_wire::postgres::command::encode_query;
use nix::sys::signal::Signal;
use rustix::net::{RecvFlags, recv};

use crate::Case;
use crate::cases::{one, try_one};
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, samples, second_user, settings};
use crate::transactions::execute;

pub(crate) const CASES: [Case; 9] = [
    ("a command that takes too long is cancelled, and its connection goes on", cancelled),
    ("a command that was cancelled for its time is executed once", once),
    ("a COPY, a cursor and a batch that take too long are cancelled", within),
    ("a client that is stuck in a command is disconnected", stuck),
    (
        "a client that is idle in a transaction is disconnected, and the transaction rolled back",
        idle_in_transaction,
    ),
    ("a transaction that takes too long ends with its client", transactions),
    ("an idle client is disconnected, and one in a transaction is not", idle),
    ("a user's time limits replace the general ones", of_user),
    ("new time limits hold for clients that are connected", reloaded),
];

type Messages = Vec<(u8, Vec<u8>)>;

fn ready(proxy: &Proxy) -> RawClient {
    let mut raw = proxy.raw(&[]);
    assert_eq!(raw.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
    raw
}

fn answer(raw: &mut RawClient, sql: &str) -> Messages {
    raw.query(sql);
    raw.answer()
}

fn state(messages: &Messages) -> Option<String> {
    RawClient::error_state(messages)
}

/// Whether the server awaits commands, in this transaction status.
fn is_ready(messages: &Messages, status: u8) -> bool {
    messages.last() == Some(&(b'Z', vec![status]))
}

fn text_of(messages: &Messages, of: u8) -> String {
    let texts = messages.iter().filter(|(kind, _)| *kind == of);
    texts.map(|(_, payload)| String::from_utf8_lossy(payload).into_owned()).collect()
}

fn cancelled(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--query-time", "0.3", "--admin", "tcp:127.0.0.1:0"]);
    let mut raw = ready(&proxy);
    let process = one_of(&mut raw, "SELECT pg_backend_pid()");
    for _ in 0..3 {
        let waiting = proxy.raw(&[]);
        let cancelled = answer(&mut raw, "SELECT pg_sleep(60)");
        assert_eq!(state(&cancelled).as_deref(), Some("57014"), "{cancelled:?}");
        assert!(is_ready(&cancelled, b'I'), "{cancelled:?}");
        assert!(text_of(&cancelled, b'E').contains("canceling statement due to user request"));
        // The server does not know the reason.
        assert!(text_of(&cancelled, b'N').contains("query-time of the proxy: 300ms"), "{cancelled:?}");
        // Commands at once: of the same client, and of another one on the same connection.
        assert_eq!(one_of(&mut raw, "SELECT 1 FROM pg_sleep(0.01)"), "1");
        drop(raw);
        raw = waiting;
        assert!(is_ready(&raw.answer(), b'I'));
        assert_eq!(one_of(&mut raw, "SELECT 1 FROM pg_sleep(0.01)"), "1");
    }
    assert_eq!(one_of(&mut raw, "SELECT pg_backend_pid()"), process);
    // In a transaction, the connection and what the transaction holds are kept; it has failed.
    assert!(is_ready(&answer(&mut raw, "BEGIN"), b'T'));
    let cancelled = answer(&mut raw, "SELECT pg_sleep(60)");
    assert!(state(&cancelled).as_deref() == Some("57014") && is_ready(&cancelled, b'E'), "{cancelled:?}");
    assert_eq!(state(&answer(&mut raw, "SELECT 1")).as_deref(), Some("25P02"));
    assert!(is_ready(&answer(&mut raw, "ROLLBACK"), b'I'));
    assert!((samples(admin_of(&proxy))["timeouts_total{kind=\"query\"}"] - 4.0).abs() < 0.5);
    assert_eq!(proxy.process.count("event=server-closed"), 0);
}

/// The single value of a short result.
fn one_of(raw: &mut RawClient, sql: &str) -> String {
    let messages = answer(raw, sql);
    assert!(state(&messages).is_none() && is_ready(&messages, b'I'), "{sql}: {messages:?}");
    text_of(&messages, b'D').get(6..).unwrap_or_default().to_owned()
}

fn once(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--query-time", "0.3"]);
    let mut control = fixture.control();
    for sql in [
        "DROP SEQUENCE IF EXISTS executed",
        "CREATE SEQUENCE executed",
        "GRANT ALL ON SEQUENCE executed TO public",
    ] {
        control.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let mut raw = ready(&proxy);
    for round in 1..=3 {
        let cancelled = answer(&mut raw, "SELECT nextval('executed'), pg_sleep(60)");
        assert_eq!(state(&cancelled).as_deref(), Some("57014"), "{cancelled:?}");
        assert_eq!(one_of(&mut raw, "SELECT last_value FROM executed"), round.to_string());
    }
}

fn within(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--query-time", "0.3", "--pool-size", "1"]);
    let mut raw = ready(&proxy);
    // A client that goes on sending data: the server sees the request with one of them.
    assert!(is_ready(&answer(&mut raw, "CREATE TEMP TABLE copied (n int)"), b'I'));
    raw.query("COPY copied FROM STDIN");
    assert_eq!(raw.message().expect("an answer").0, b'G');
    // Until the server has answered with more than the proxy's warning.
    assert_eq!(raw.message().expect("a warning").0, b'N');
    while !has_input(&raw) {
        raw.send(b"d\0\0\0\x067\n");
    }
    let messages = raw.answer();
    assert_eq!(state(&messages).as_deref(), Some("57014"), "{messages:?}");
    assert_eq!(one_of(&mut raw, "SELECT count(*) FROM copied"), "0");
    // A cursor.
    assert!(is_ready(&answer(&mut raw, "BEGIN"), b'T'));
    assert!(is_ready(&answer(&mut raw, "DECLARE c CURSOR FOR SELECT pg_sleep(60)"), b'T'));
    assert_eq!(state(&answer(&mut raw, "FETCH c")).as_deref(), Some("57014"));
    assert!(is_ready(&answer(&mut raw, "ROLLBACK"), b'I'));
    // If several commands are sent together, the one that the server is executing is cancelled.
    let mut bytes = Vec::new();
    for sql in ["SELECT 1", "SELECT pg_sleep(60)", "SELECT 3"] {
        encode_query(&mut bytes, sql).expect("a query");
    }
    raw.send(&bytes);
    let states: Vec<_> = (0..3).map(|_| state(&raw.answer())).collect();
    assert_eq!(states, [None, Some("57014".to_owned()), None]);
    let slow = crate::transactions::prepare(&mut raw, "slow", "SELECT pg_sleep(60)");
    assert!(is_ready(&slow, b'I'), "{slow:?}");
    let mut bytes = Vec::new();
    execute(&mut bytes, "slow");
    execute(&mut bytes, "slow");
    bytes.extend(b"S\0\0\0\x04");
    raw.send(&bytes);
    let messages = raw.answer();
    assert!(state(&messages).as_deref() == Some("57014") && is_ready(&messages, b'I'), "{messages:?}");
    assert_eq!(one_of(&mut raw, "SELECT 1"), "1");
    assert_eq!(proxy.process.count("event=server-closed"), 0);
}

/// Whether something has arrived.
fn has_input(raw: &RawClient) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(&raw.stream, &mut [0_u8], flags).is_ok()
}

fn stuck(fixture: &mut Fixture) {
    let (_directory, file) =
        settings("[limits]\nreset-time = \"500ms\"\nquery-time = \"300ms\"\npool-size = 1\n");
    let mut proxy = fixture.proxy(&["--config", &file]);
    let mut raw = ready(&proxy);
    // The server waits for data, and looks for a request to cancel only then.
    raw.query("CREATE TEMP TABLE copied (n int); COPY copied FROM STDIN");
    let messages = raw.answer();
    assert_eq!(state(&messages).as_deref(), Some("57014"), "{messages:?}");
    let error = text_of(&messages, b'E');
    assert!(
        error.contains("the server did not cancel a command (query-time of the proxy: 300ms)"),
        "{error}"
    );
    assert_ne!(messages.last().map(|(kind, _)| *kind), Some(b'Z'));
    proxy.process.await_line("event=server-closed");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn idle_in_transaction(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--idle-transaction-time", "0.3"]);
    let mut control = fixture.control();
    control.execute("DROP TABLE IF EXISTS held").expect("no table");
    control.execute("CREATE TABLE held (n int)").expect("a table");
    control.execute("GRANT ALL ON held TO public").expect("a grant");
    for second in ["INSERT INTO held VALUES (1)", "SELECT nonsense"] {
        let mut raw = ready(&proxy);
        assert!(is_ready(&answer(&mut raw, "BEGIN"), b'T'));
        answer(&mut raw, second);
        let messages = raw.answer();
        assert_eq!(state(&messages).as_deref(), Some("25P03"), "{messages:?}");
        let error = text_of(&messages, b'E');
        assert!(error.contains("FATAL") && error.contains("idle-in-transaction timeout"), "{error}");
        assert_eq!(messages.len(), 1, "the stream has ended: {messages:?}");
        // The transaction is rolled back, and the connection serves the next client.
        assert_eq!(one(&mut proxy.client(), "SELECT count(*) FROM held"), "0");
    }
    assert_eq!(proxy.process.count("event=server-closed"), 0);
}

fn transactions(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--transaction-time", "0.4"]);
    // Between two commands.
    let mut raw = ready(&proxy);
    assert!(is_ready(&answer(&mut raw, "BEGIN"), b'T'));
    let messages = raw.answer();
    assert_eq!(state(&messages).as_deref(), Some("25P04"), "{messages:?}");
    assert!(text_of(&messages, b'E').contains("transaction-time of the proxy: 400ms"), "{messages:?}");
    // Within a command, which does not go on in the server.
    for sql in ["BEGIN; SELECT pg_sleep(60)", "SELECT pg_sleep(60)"] {
        let mut raw = ready(&proxy);
        let messages = answer(&mut raw, sql);
        assert_eq!(state(&messages).as_deref(), Some("25P04"), "{messages:?}");
        let mut control = fixture.control();
        let running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        await_that("the command has ended", || one(&mut control, running) == "0");
    }
    // Short ones are not limited in all.
    let mut raw = ready(&proxy);
    for _ in 0..6 {
        one_of(&mut raw, "SELECT 1 FROM pg_sleep(0.1)");
    }
}

fn idle(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--client-idle-time", "0.4", "--pool-size", "4"]);
    let mut within = ready(&proxy);
    assert!(is_ready(&answer(&mut within, "BEGIN"), b'T'));
    let [mut silent, mut used] = [ready(&proxy), ready(&proxy)];
    assert_eq!(one_of(&mut used, "SELECT 1"), "1");
    for raw in [&mut silent, &mut used] {
        let messages = raw.answer();
        assert_eq!(state(&messages).as_deref(), Some("57P05"), "{messages:?}");
        assert!(
            text_of(&messages, b'E').contains("idle-session timeout (client-idle-time of the proxy: 400ms)")
        );
    }
    // This one has been idle for longer.
    assert!(is_ready(&answer(&mut within, "COMMIT"), b'I'));
    // A command is not idle time.
    assert_eq!(one(&mut proxy.client(), "SELECT 1 FROM pg_sleep(0.9)"), "1");
}

fn of_user(fixture: &mut Fixture) {
    let text = "[limits]\nquery-time = \"300ms\"\n[[user]]\nname = \"second\"\npassword-file = \"second\"\n\
                query-time = 0\nclient-idle-time = \"300ms\"\n";
    let (directory, file) = settings(text);
    let second = second_user(fixture, directory.path());
    let mut proxy = fixture.proxy(&["--config", &file]);
    let mut client = proxy.try_client_as(&second).expect("the login succeeds");
    assert_eq!(one(&mut client, "SELECT 1 FROM pg_sleep(0.9)"), "1");
    let error = try_one(&mut proxy.client(), "SELECT pg_sleep(60)").expect_err("its time is limited");
    assert!(error.to_string().contains("57014"), "{error}");
    // The second user's idle clients are disconnected, and others are not.
    let mut own = proxy.client();
    proxy.process.await_line("kind=client_idle");
    assert!(client.query("SELECT 1").is_err());
    assert_eq!(one(&mut own, "SELECT 1"), "1");
}

fn reloaded(fixture: &mut Fixture) {
    let (directory, file) = settings("");
    let mut proxy = fixture.proxy(&["--config", &file]);
    let mut raw = ready(&proxy);
    assert_eq!(one_of(&mut raw, "SELECT 1"), "1");
    std::fs::write(directory.path().join("proxy.toml"), "[limits]\nclient-idle-time = \"300ms\"\n")
        .expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    assert_eq!(state(&raw.answer()).as_deref(), Some("57P05"));
}
