//! Replication connections: PostgreSQL's own programs and a logical subscriber, through the sidecar.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use ciphertoll_net::blocking::Client;

use crate::Case;
use crate::cases::{cancel_request, one};
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, samples};

pub(crate) const CASES: [Case; 3] = [
    ("pg_basebackup, pg_receivewal and pg_recvlogical have connections of their own", programs),
    ("a logical subscriber receives changes, also after its connection was killed", subscriber),
    ("a replication session is cancelled, takes a place of the pool and ends with its client", session),
];

const PROGRAMS: [&str; 3] = ["pg_basebackup", "pg_receivewal", "pg_recvlogical"];

/// Makes the server one that can be replicated; `None` if the programs are not installed.
fn prepared(fixture: &mut Fixture) -> Option<Client> {
    for program in PROGRAMS {
        if Command::new(program).arg("--version").output().is_err() {
            ciphertoll_testing::missing(&format!("{program} is not here"));
            return None;
        }
    }
    let user = user_of(fixture);
    let mut control = fixture.control();
    // A server that is started again has the rules of its data directory otherwise, which trust everybody.
    for setting in ["hba_file", "ident_file"] {
        let file = one(&mut control, &format!("SHOW {setting}"));
        control.query(&format!("ALTER SYSTEM SET {setting} = '{file}'")).expect("a setting");
    }
    for sql in [
        "ALTER SYSTEM SET wal_level = logical",
        // A subscriber whose connection was killed soon tries again.
        "ALTER SYSTEM SET wal_retrieve_retry_interval = 100",
        &format!("ALTER ROLE {user} REPLICATION"),
    ] {
        control.query(sql).expect("the control role may do that");
    }
    drop(control);
    fixture.server.as_mut().expect("a server").restart().expect("the server restarts");
    let mut control = fixture.control();
    let rules = one(&mut control, "SHOW hba_file");
    let mut rules = OpenOptions::new().append(true).open(rules).expect("the rules are ours");
    writeln!(rules, "host replication {user} 127.0.0.0/8 scram-sha-256").expect("a rule");
    control.query("SELECT pg_reload_conf()").expect("a reload");
    Some(control)
}

pub(crate) fn user_of(fixture: &Fixture) -> String {
    fixture.server().account(ciphertoll_model::Auth::default_of(ciphertoll_model::Engine::Postgres)).user
}

/// Other cases expect a server as it was.
fn restored(fixture: &mut Fixture) {
    fixture.server = None;
    fixture.start_server();
}

fn succeeds(what: &str, command: &mut Command) -> Output {
    let output = command.env_remove("PGPASSWORD").output().expect("it runs");
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The program as a client of the proxy.
fn program(name: &str, proxy: &Proxy, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command
        .args(["-h", &proxy.directory.display().to_string(), "-p", &proxy.port.to_string()])
        .args(["-U", &proxy.user, "-w"])
        .args(arguments);
    command
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn programs(fixture: &mut Fixture) {
    let Some(mut control) = prepared(fixture) else { return };
    for library in ["rustls", "openssl"] {
        let proxy = fixture.proxy(&[
            "--replication",
            "--pool-size",
            "3",
            "--admin",
            "tcp:127.0.0.1:0",
            "--tls-library",
            library,
        ]);
        // The backup and its stream of the WAL are two connections.
        let backup = proxy.directory.join("backup");
        let arguments = ["-D", &text(&backup), "-X", "stream", "-c", "fast"];
        succeeds("pg_basebackup", &mut program("pg_basebackup", &proxy, &arguments));
        succeeds("pg_verifybackup", Command::new(verifier()).arg(&backup));
        await_that("both connections are closed", || replication_closes(&proxy) == 2);

        // It begins with the present segment of the WAL, and ends with the next one.
        let lsn = one(&mut control, "SELECT pg_current_wal_lsn() + 16 * 1024 * 1024");
        let wal = proxy.directory.join("wal");
        fs::create_dir(&wal).expect("a directory");
        let arguments = ["-D", &text(&wal), "-n", "-E", &lsn];
        let mut receiver = program("pg_receivewal", &proxy, &arguments).spawn().expect("it runs");
        let streams = "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'pg_receivewal'";
        await_that("it receives", || one(&mut control, streams) == "1");
        await_that("it has received what it should", || {
            control.query("SELECT txid_current(), pg_switch_wal()").expect("WAL to receive");
            receiver.try_wait().expect("it is ours").is_some()
        });
        assert!(receiver.wait().expect("it has ended").success());
        assert!(fs::read_dir(&wal).expect("ours").count() > 0, "it has received nothing");

        // A slot of the proxy's user, whose changes are read up to the one below.
        let slot = format!("s_{library}");
        let of_slot = ["-d", proxy.database.as_str(), "-S", &slot];
        let create = [&of_slot[..], &["-P", "test_decoding", "--create-slot"]].concat();
        succeeds("pg_recvlogical", &mut program("pg_recvlogical", &proxy, &create));
        assert_eq!(
            one(&mut proxy.client(), "SELECT pg_logical_emit_message(true, 'test', 'hello') IS NULL"),
            "f"
        );
        let lsn = one(&mut control, "SELECT pg_current_wal_flush_lsn()");
        control.query("SELECT txid_current()").expect("a change after it");
        let start = [&of_slot[..], &["--start", "-n", "-f", "-", "-E", &lsn]].concat();
        let output = succeeds("pg_recvlogical", &mut program("pg_recvlogical", &proxy, &start));
        let changes = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(changes.contains("prefix: test, sz: 5 content:hello"), "{changes}");
        let drop_slot = [&of_slot[..], &["--drop-slot"]].concat();
        succeeds("pg_recvlogical", &mut program("pg_recvlogical", &proxy, &drop_slot));
        let left = "SELECT count(*) FROM pg_stat_replication";
        await_that("no server process is left", || one(&mut control, left) == "0");
    }
    drop(control);
    restored(fixture);
}

/// It is not among the programs in PATH on Debian.
fn verifier() -> String {
    let libraries = Command::new("pg_config").arg("--bindir").output().ok();
    let directory = libraries.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    directory
        .filter(|path| !path.is_empty())
        .map_or("pg_verifybackup".to_owned(), |path| format!("{path}/pg_verifybackup"))
}

fn replication_closes(proxy: &Proxy) -> u64 {
    let closed = samples(admin_of(proxy)).get("closed_total{reason=\"replication\"}").copied();
    closed.unwrap_or_default() as u64
}

fn subscriber(fixture: &mut Fixture) {
    let Some(mut control) = prepared(fixture) else { return };
    let (user, database) = (user_of(fixture), fixture.server().database());
    let data = one(&mut control, "SHOW data_directory");
    let uid = fs::metadata(data).expect("the server's files").uid().to_string();
    let proxy = fixture.proxy(&["--replication", "--allow-uid", &uid, "--pool-size", "2"]);
    for sql in [
        "CREATE TABLE told (n int PRIMARY KEY)",
        &format!("GRANT ALL ON told TO {user}"),
        "CREATE PUBLICATION all_told FOR TABLE told",
        "SELECT pg_create_logical_replication_slot('told', 'pgoutput')",
        "CREATE DATABASE copied",
    ] {
        control.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let mut copied = fixture.control_of("copied");
    copied.query("CREATE TABLE told (n int PRIMARY KEY)").expect("a table");
    // The server's own process is the client, on the socket of the proxy.
    let socket = proxy.directory.display();
    let sql = format!(
        "CREATE SUBSCRIPTION heard CONNECTION 'host={socket} port={} user={user} dbname={database}' \
         PUBLICATION all_told WITH (create_slot = false, slot_name = told, copy_data = false)",
        proxy.port
    );
    copied.query(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut known = |number: u32| {
        proxy.client().query(&format!("INSERT INTO told VALUES ({number})")).expect("an insert");
        let sql = format!("SELECT count(*) FROM told WHERE n = {number}");
        await_that("the row has arrived", || one(&mut copied, &sql) == "1");
    };
    known(1);
    let before = one(&mut control, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'told'");
    assert_eq!(one(&mut control, &format!("SELECT pg_terminate_backend({before})")), "t");
    known(2);
    let sql = format!("SELECT active_pid <> {before} FROM pg_replication_slots WHERE slot_name = 'told'");
    assert_eq!(one(&mut control, &sql), "t", "it has connected again");
    drop((control, copied));
    restored(fixture);
}

fn session(fixture: &mut Fixture) {
    let Some(mut control) = prepared(fixture) else { return };
    let size = ["--replication", "--pool-size", "1", "--queue-time", "2s", "--admin", "tcp:127.0.0.1:0"];
    let mut proxy = fixture.proxy(&size);
    let logical = ("replication", "database");
    let mut raw =
        proxy.raw(&[logical, ("application_name", "walker"), ("options", "-c statement_timeout=4321")]);
    let greeting = raw.answer();
    assert_eq!(RawClient::error_state(&greeting), None);
    assert!(greeting.contains(&(b'S', b"application_name\0walker\0".to_vec())), "{greeting:?}");
    raw.query("SHOW statement_timeout");
    assert!(raw.answer().iter().any(|(_, payload)| payload.ends_with(b"4321ms")));
    raw.query("SELECT pg_sleep(60)");
    let sleeps =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'PgSleep'";
    await_that("it sleeps", || one(&mut control, sleeps) == "1");
    let encrypted =
        "SELECT ssl FROM pg_stat_ssl NATURAL JOIN pg_stat_activity WHERE backend_type = 'walsender'";
    assert_eq!(one(&mut control, encrypted), "t");
    let line = proxy.process.await_line("event=server-connected");
    assert!(line.contains("auth=scram-4096+plus"), "{line}");
    // No other process knows the proxy's own process ID and key.
    let mut canceller = proxy.raw_silent();
    canceller.send(&cancel_request(raw.process_id, &raw.key));
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57014"));
    // It takes the only place, so both other clients and a second replication client are refused.
    assert!(proxy.try_client().is_err_and(|error| error.to_string().contains("became free")));
    let refused = proxy.raw(&[logical]).answer();
    assert_eq!(RawClient::error_state(&refused).as_deref(), Some("53300"));
    // A second startup message is not valid within a session.
    let mut bytes = Vec::new();
    let other = [("user", "postgres"), logical];
    ciphertoll_wire::postgres::startup::encode_startup(&mut bytes, &other).expect("a start-up");
    raw.send(&bytes);
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("08P01"));
    assert_eq!(one(&mut proxy.client(), "SELECT 'next'"), "next");
    // On several threads another one may have been opened for the client that was refused.
    await_that("its connection is closed", || replication_closes(&proxy) >= 1);
    let walsenders = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'";
    await_that("the server has ended it", || one(&mut control, walsenders) == "0");
    // What the server refuses, the client is told.
    for (value, state) in [("maybe", "22023"), ("true", "42704")] {
        let answer = proxy.raw(&[("replication", value), ("no_such_setting", "1")]).answer();
        assert_eq!(RawClient::error_state(&answer).as_deref(), Some(state), "{value}");
    }
    // A client that leaves while its connection is opened leaves nothing behind.
    for _ in 0..20 {
        drop(proxy.raw(&[logical]));
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 'after'"), "after");
    await_that("nothing is left", || one(&mut control, walsenders) == "0");
    // A killed session's client gets the server's words.
    let mut raw = proxy.raw(&[logical]);
    assert_eq!(RawClient::error_state(&raw.answer()), None);
    let kill =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'walsender'";
    assert_eq!(one(&mut control, kill), "1");
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57P01"));
    drop(control);
    restored(fixture);
}
