//! What clients see: the same as without a proxy.

use std::io::Write;
use std::process::Stdio;
use std::thread;

use ciphertoll_net::Error;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::postgres::CancelKey;
use ciphertoll_wire::postgres::command::{encode_query, encode_sync};
use ciphertoll_wire::postgres::startup::encode_cancel_request;
use nix::sys::signal::Signal;

use crate::Case;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::await_that;

pub(crate) const CASES: [Case; 12] = [
    ("psql: queries, transactions, errors, prepared statements", queries),
    ("psql: COPY both ways", copies),
    ("psql: a large result arrives unchanged", large_results),
    ("our client: rows, errors and COPY", our_client),
    ("startup settings are applied", settings),
    ("upstream connections use TLS and channel binding", encrypted),
    ("pipelined commands", pipelined),
    ("a cancel request hits the right command", cancel),
    ("a late cancel request hits no other client", late_cancel),
    ("pgbench: churn and prepared statements", pgbench),
    ("nonces under eight clients", nonces),
    ("byte by byte", byte_by_byte),
];

fn queries(fixture: &mut Fixture) {
    // One connection only: a client that comes before the previous session is cleaned up waits.
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    assert_eq!(proxy.sql(&["SELECT 6 * 7"]), "42");
    let rolled_back = ["CREATE TEMP TABLE t (n int)", "BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK"];
    let counted = [&rolled_back[..], &["SELECT count(*) FROM t"]].concat();
    assert_eq!(proxy.sql(&counted), "0");
    assert_eq!(proxy.sql(&["PREPARE p(int) AS SELECT $1 + 1", "EXECUTE p(41)"]), "42");
    let output = proxy.psql(&["-c", "SELECT 1 / 0"]).output().expect("psql runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), "ERROR:  division by zero");
    // One server connection served all of that. This is the last line of the log.
    proxy.process.signal(Signal::SIGTERM);
    proxy.process.await_line("event=stopped");
    let more = proxy.process.log.iter().filter(|line| line.contains("event=server-connected"));
    assert_eq!(more.count(), 1);
}

fn copies(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let rows: Vec<String> = (0..50_000).map(|number| format!("{number}\trow number {number}\n")).collect();
    let rows = rows.concat();
    let mut psql = proxy.psql(&[
        "-c",
        "CREATE TEMP TABLE t (n int, s text)",
        "-c",
        "COPY t FROM STDIN",
        "-c",
        "COPY (SELECT * FROM t ORDER BY n) TO STDOUT",
    ]);
    let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs");
    let mut stdin = child.stdin.take().expect("it was asked for");
    let sent = rows.clone();
    let writer = thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let output = child.wait_with_output().expect("psql ends");
    writer.join().expect("no panic").expect("psql reads");
    assert!(output.stdout == rows.as_bytes(), "{} bytes of {}", output.stdout.len(), rows.len());
}

fn large_results(fixture: &mut Fixture) {
    const ROWS: usize = 16_384;
    const WIDTH: usize = 1_024;
    let proxy = fixture.proxy(&[]);
    let sql = format!("SELECT lpad(n::text, {WIDTH}, '.') FROM generate_series(1, {ROWS}) n");
    let output = proxy.sql(&[&sql]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), ROWS);
    for (line, number) in lines.iter().zip(1_usize..) {
        assert_eq!(line.len(), WIDTH);
        assert_eq!(line.trim_start_matches('.').parse(), Ok(number));
    }
    // A row of 16 MiB, larger than any buffer.
    let big = proxy.sql(&["SELECT repeat('x', 16777216)"]);
    assert!(big.len() == 1 << 24 && big.bytes().all(|byte| byte == b'x'));
    let length = proxy.sql(&["SELECT 'after'"]);
    assert_eq!(length, "after");
}

fn our_client(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut client = proxy.client();
    let rows = client.query("SELECT 'a', NULL UNION ALL SELECT 'b', 'c'").expect("rows");
    assert_eq!(rows.len(), 2);
    assert!(client.query("SELECT nonsense").is_err());
    client.query("CREATE TEMP TABLE t (n int)").expect("a table");
    let data = (0..1000).map(|number| format!("{number}\n").into_bytes());
    assert_eq!(client.copy_in("COPY t FROM STDIN", data).expect("a copy"), 1000);
    assert_eq!(one(&mut client, "SELECT sum(n) FROM t"), "499500");
}

/// The single value of a result.
pub(crate) fn one(client: &mut Client, sql: &str) -> String {
    try_one(client, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) fn try_one(client: &mut Client, sql: &str) -> Result<String, Error> {
    let value = client.query(sql)?.into_iter().flatten().next().flatten();
    Ok(String::from_utf8(value.unwrap_or_default()).expect("text"))
}

fn settings(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let show = |settings: &[(&str, &str)], name: &str| {
        let mut raw = proxy.raw(settings);
        let greeting = raw.answer();
        assert_eq!(greeting.last().map(|(kind, _)| *kind), Some(b'Z'), "{greeting:?}");
        raw.query(&format!("SHOW {name}"));
        let answer = raw.answer();
        let row = answer.iter().find(|(kind, _)| *kind == b'D').expect("a row");
        let reported: Vec<Vec<u8>> =
            greeting.into_iter().filter(|(kind, _)| *kind == b'S').map(|(_, payload)| payload).collect();
        (String::from_utf8(row.1[6..].to_vec()).expect("text"), reported)
    };
    let before = show(&[], "TimeZone").0;
    let (zone, reported) = show(&[("TimeZone", "Asia/Tokyo"), ("application_name", "it's me")], "TimeZone");
    assert_eq!(zone, "Asia/Tokyo");
    assert!(reported.contains(&b"TimeZone\0Asia/Tokyo\0".to_vec()));
    assert!(reported.contains(&b"application_name\0it's me\0".to_vec()));
    assert_eq!(show(&[("application_name", "it's me")], "application_name").0, "it's me");
    assert_eq!(show(&[("options", "-c statement_timeout=4321")], "statement_timeout").0, "4321ms");
    assert_eq!(show(&[("client_encoding", "LATIN1")], "client_encoding").0, "LATIN1");
    assert_eq!(show(&[], "TimeZone").0, before);
    assert_eq!(show(&[], "application_name").0, "");
    for (setting, state) in [
        (("TimeZone", "Nowhere/Land"), "22023"),
        (("no_such_setting", "1"), "42704"),
        (("replication", "database"), "0A000"),
        (("options", "-p 5"), "0A000"),
    ] {
        let answer = proxy.raw(&[setting]).answer();
        assert_eq!(RawClient::error_state(&answer).as_deref(), Some(state), "{setting:?}");
    }
    assert_eq!(show(&[], "TimeZone").0, before);
}

fn encrypted(fixture: &mut Fixture) {
    let password = String::from_utf8(fixture.password()).expect("text");
    for library in ["rustls", "openssl"] {
        let mut proxy = fixture.proxy(&["--tls-library", library]);
        let sql = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert_eq!(proxy.sql(&[sql]), "t|TLSv1.3");
        let line = proxy.process.await_line("event=server-connected");
        assert!(line.contains("tls=tls1.3 group=p256 auth=scram-4096+plus"), "{line}");
        drop(proxy.psql(&["-c", "SELECT 1"]).output());
        assert!(!proxy.process.log.iter().any(|line| line.contains(&password)), "{:?}", proxy.process.log);
    }
}

fn pipelined(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let mut bytes = Vec::new();
    for number in 0..100 {
        encode_query(&mut bytes, &format!("SELECT {number}")).expect("a query");
        encode_sync(&mut bytes);
    }
    raw.send(&bytes);
    for number in 0..100 {
        let answer = raw.answer();
        let row = answer.iter().find(|(kind, _)| *kind == b'D').expect("a row");
        assert_eq!(String::from_utf8_lossy(&row.1[6..]), number.to_string());
        assert_eq!(raw.answer().len(), 1);
    }
}

fn cancel(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let (mut sleeper, mut other) = (proxy.raw(&[]), proxy.raw(&[]));
    sleeper.answer();
    other.answer();
    sleeper.query("SELECT pg_sleep(60)");
    other.query("SELECT pg_sleep(1)");
    let mut control = proxy.client();
    await_active(&mut control, "SELECT pg_sleep(60)");
    let wrong_key = vec![0; 4];
    for (process_id, key) in [(sleeper.process_id, &wrong_key), (sleeper.process_id, &sleeper.key)] {
        let mut canceller = proxy.raw_silent();
        canceller.send(&cancel_request(process_id, key));
        // The connection is closed when the server has been told.
        assert!(canceller.message().is_err());
    }
    assert_eq!(RawClient::error_state(&sleeper.answer()).as_deref(), Some("57014"));
    assert_eq!(RawClient::error_state(&other.answer()), None);
    sleeper.query("SELECT 1");
    assert_eq!(RawClient::error_state(&sleeper.answer()), None);
    // The same by psql's own cancel request.
    let child = proxy.psql(&["-c", "SELECT pg_sleep(60)"]).stderr(Stdio::piped()).spawn();
    let child = child.expect("psql runs");
    await_active(&mut control, "SELECT pg_sleep(60)");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)
        .expect("psql is there");
    let output = child.wait_with_output().expect("psql ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("canceling statement due to user request"), "{stderr}");
}

/// Waits until the server runs the statement: before that there is nothing to cancel.
fn await_active(control: &mut Client, sql: &str) {
    let active =
        format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sql}' AND wait_event = 'PgSleep'");
    await_that("it has begun", || one(control, &active) == "1");
}

pub(crate) fn cancel_request(process_id: u32, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_cancel_request(&mut bytes, process_id, &CancelKey::new(key.to_vec()).expect("a key"));
    bytes
}

fn late_cancel(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for _ in 0..40 {
        let mut raw = proxy.raw(&[]);
        raw.answer();
        raw.query("SELECT 1");
        raw.answer();
        // It cancels a command that has ended, and leaves the connection to the next client.
        let mut canceller = proxy.raw_silent();
        canceller.send(&cancel_request(raw.process_id, &raw.key));
        drop(raw);
        assert_eq!(one(&mut proxy.client(), "SELECT 'mine' FROM pg_sleep(0.01)"), "mine");
    }
}

fn pgbench(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "4"]);
    let script = proxy.directory.join("script.sql");
    std::fs::write(&script, "SELECT count(*) FROM sbtest1 WHERE id < 100;\n").expect("ours to write");
    for mode in [&["-C"][..], &["-M", "prepared"], &["-M", "extended", "-C"]] {
        let mut command = std::process::Command::new("pgbench");
        command.args(["-n", "-c", "4", "-t", "50", "-f"]).arg(&script).args(mode);
        let output =
            command.args(proxy.libpq_arguments()).env_remove("PGPASSWORD").output().expect("pgbench runs");
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{mode:?}: {stderr}");
        assert!(stdout.contains("number of transactions actually processed: 200/200"), "{stdout}");
    }
}

fn nonces(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "3"]);
    thread::scope(|scope| {
        for client_loop in 0..8 {
            let proxy: &Proxy = &proxy;
            scope.spawn(move || {
                for round in 0..60 {
                    let mut client = proxy.client();
                    for step in 0..3 {
                        let nonce = format!("{client_loop}-{round}-{step}");
                        assert_eq!(one(&mut client, &format!("SELECT '{nonce}'")), nonce);
                    }
                }
            });
        }
    });
}

fn byte_by_byte(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let mut bytes = Vec::new();
    encode_query(&mut bytes, "SELECT 'slow'").expect("a query");
    for byte in &bytes {
        raw.send(std::slice::from_ref(byte));
    }
    let answer = raw.answer();
    assert!(answer.iter().any(|(kind, payload)| *kind == b'D' && payload.ends_with(b"slow")), "{answer:?}");
}
