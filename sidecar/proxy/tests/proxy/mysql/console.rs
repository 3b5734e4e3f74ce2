//! The console's commands for MySQL and MariaDB, which go through the admin address.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::Case;
use super::fixture::{Fixture, Proxy, client_at};
use crate::operations::{await_that, settings};

pub(crate) const CASES: [Case; 1] =
    [("the console shows pools and pauses new clients by the admin address", commands)];

pub(crate) const OF_TRANSACTIONS: [Case; 1] =
    [("a switchover by pause, kill and resume shows no client an error", switchover)];

struct Console {
    place: String,
    _directory: tempfile::TempDir,
}

impl Console {
    fn try_run(&self, command: &str) -> Result<String, String> {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        let output = program.args(["console", command, "--json", "--admin", &self.place]).output();
        let output = output.expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn run(&self, command: &str) {
        let word = command.split(' ').next().unwrap_or_default();
        assert_eq!(self.try_run(command), Ok(format!("{{\"done\":\"{word}\"}}")));
    }

    /// The row of this database.
    fn row(&self, show: &str, database: &str) -> serde_json::Value {
        let text = self.try_run(show).expect("rows");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
        let is_it = |row: &serde_json::Value| row["database"] == database || row["name"] == database;
        rows.into_iter().find(is_it).unwrap_or_default()
    }
}

fn start(fixture: &mut Fixture, arguments: &[&str]) -> (Proxy, Console) {
    let (directory, file) = settings("[console]\n");
    let place = format!("unix:{}", directory.path().join("admin").display());
    let proxy = fixture.proxy(&[&["--config", &file, "--admin", &place], arguments].concat());
    (proxy, Console { place, _directory: directory })
}

fn commands(fixture: &mut Fixture) {
    let (proxy, console) = start(fixture, &["--queue-time", "3s"]);
    let mut client = proxy.client();
    client.query("SELECT 1").expect("a row");
    let process = client.query("SELECT CONNECTION_ID()").expect("a row");
    assert_eq!(console.row("SHOW POOLS", &proxy.database)["cl_active"], 1);
    let servers = console.try_run("SHOW SERVERS").expect("rows");
    assert!(servers.contains("\"remote_pid\":"), "{servers}");
    drop((client, process));
    console.run("PAUSE");
    assert_eq!(console.row("SHOW DATABASES", &proxy.database)["paused"], 1);
    assert_eq!(console.row("SHOW POOLS", &proxy.database)["sv_idle"], serde_json::Value::Null);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut client = client_at(&proxy.socket, &proxy.user, &proxy.database)?;
            client.query("SELECT 'served'")
        });
        await_that("the client waits for longer than the queue time", || {
            let row = console.row("SHOW POOLS", &proxy.database);
            row["cl_waiting"] == 1 && row["maxwait"].as_u64() > Some(3)
        });
        assert!(!waiting.is_finished());
        console.run("RESUME");
        let rows = waiting.join().expect("no panic").expect("it is served");
        assert_eq!(rows, [[Some(b"served".to_vec())]]);
    });
    console.run("RECONNECT");
    console.run("WAIT_CLOSE");
    let error = console.try_run("RESUME").expect_err("it is not paused");
    assert!(error.contains("pooler is not paused/suspended"), "{error}");
}

/// Connections are killed on the server while all is paused: no client has one.
fn switchover(fixture: &mut Fixture) {
    const CLIENTS: usize = 20;
    let (proxy, console) = start(fixture, &["--pool-size", "4"]);
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client_loop = |number: usize| {
        let mut client = client_at(&proxy.socket, &proxy.user, &proxy.database).expect("the login succeeds");
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let nonce = format!("{number}-{round}");
            let rows = client.query(&format!("SELECT '{nonce}'")).expect("no error");
            assert_eq!(rows, [[Some(nonce.into_bytes())]]);
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    let served_more = |than: usize| {
        let before = served.load(Ordering::Relaxed);
        await_that("clients are served", || served.load(Ordering::Relaxed) > before + than);
    };
    thread::scope(|scope| {
        let client_loop = &client_loop;
        let loops: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client_loop(number))).collect();
        for _ in 0..3 {
            served_more(2 * CLIENTS);
            console.run("PAUSE");
            let mut control = fixture.control();
            let sql = format!(
                "SELECT count(*) FROM information_schema.processlist WHERE user = '{}' AND command <> 'Killed'",
                proxy.user
            );
            // The server notices the end of a connection soon.
            await_that("the proxy has no connection", || {
                control.query(&sql).expect("a number") == [[Some(b"0".to_vec())]]
            });
            console.run("RESUME");
        }
        served_more(CLIENTS);
        stop.store(true, Ordering::Relaxed);
        for client_loop in loops {
            client_loop.join().expect("no client has seen an error");
        }
    });
}
