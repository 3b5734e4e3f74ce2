//! The tables of a template: their contents, write access, and use by pgbench.

use std::fs;
use std::process::Command;

use ciphertoll_lab::{Error, Server, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine};
use ciphertoll_net::blocking::Client;

use ciphertoll_testing::missing;

use crate::common::QueryText;
use crate::fixture::{Fixture, Way, connect, scale};

const ROWS: u32 = 1_500;

fn both() -> Tables {
    Tables { sysbench: Some(scale(ROWS)), pgbench: Some(scale(1)), ycsb: None }
}

fn ask(client: &mut Client, sql: &str) -> String {
    client.query_text(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).expect("a value")
}

fn client_of(server: &Server) -> Client {
    connect(server, Auth::default_of(server.engine()), Way::Unix).expect("a login")
}

#[test]
fn both_datasets_are_complete_warm_and_writable() {
    for fixture in Engine::SQL.into_iter().flat_map(Fixture::all) {
        let server = fixture.start(&both(), None).unwrap();
        assert_eq!(server.tables(), both());
        server.prewarm().unwrap();
        let misses = server.buffer_misses().unwrap().unwrap();
        let mut client = client_of(&server);
        for (query, answer) in [
            ("SELECT count(*) FROM sbtest1", "1500"),
            ("SELECT max(id) FROM sbtest1", "1500"),
            ("SELECT count(*) FROM pgbench_accounts WHERE bid = 1 AND abalance = 0", "100000"),
            ("SELECT max(aid) FROM pgbench_accounts", "100000"),
            ("SELECT count(*) FROM pgbench_tellers WHERE bid = 1 AND filler IS NULL", "10"),
            ("SELECT count(*) FROM pgbench_branches WHERE bbalance = 0", "1"),
            ("SELECT count(*) FROM pgbench_history", "0"),
        ] {
            assert_eq!(ask(&mut client, query), answer, "{query}");
        }
        client.close().unwrap();
        assert_eq!(server.buffer_misses().unwrap().unwrap(), misses, "what was read before is cached");
        let mut client = client_of(&server);
        for sql in [
            "UPDATE pgbench_accounts SET abalance = abalance + 7 WHERE aid = 42",
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 42, 7, CURRENT_TIMESTAMP)",
            "DELETE FROM sbtest1 WHERE id = 5",
            "INSERT INTO sbtest1 (id, k, c, pad) VALUES (5, 1, 'c', 'pad')",
        ] {
            client.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        assert_eq!(ask(&mut client, "SELECT abalance FROM pgbench_accounts WHERE aid = 42"), "7");
        assert_eq!(ask(&mut client, "SELECT count(*) FROM sbtest1"), "1500");
    }
}

#[test]
fn the_value_of_a_bulk_read_fits_in_a_packet_of_mariadb() {
    for fixture in Fixture::all(Engine::MariaDb) {
        let server = fixture.start(&Tables::default(), None).unwrap();
        let mut client = client_of(&server);
        let sql = "SELECT length(repeat('x', 268435456))";
        assert_eq!(ask(&mut client, sql), "268435456");
    }
}

#[test]
fn an_interrupted_load_leaves_no_template() {
    for fixture in Engine::SQL.into_iter().flat_map(Fixture::all) {
        let tables = Tables { pgbench: Some(scale(3_000_000)), ..Tables::default() };
        let loading = std::cell::Cell::new(false);
        let mut progress = |what: &str| loading.set(loading.get() || what.contains("loading"));
        let result = fixture.lab.template(&fixture.build, &tables, &mut progress, &|| loading.get());
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        // An existing template would not be loaded.
        loading.set(false);
        let again =
            fixture.lab.template(&fixture.build, &tables, &mut |_| loading.set(true), &|| loading.get());
        assert!(matches!(again, Err(Error::Interrupted)), "{again:?}");
    }
}

#[test]
fn pgbench_runs_on_our_tables() {
    if Command::new("pgbench").arg("--version").output().is_err() {
        return missing("pgbench is not on the PATH");
    }
    for fixture in Fixture::all(Engine::Postgres) {
        let server = fixture.start(&both(), None).unwrap();
        let said = pgbench(&server, &["-S", "-n", "-t", "10", "-c", "2"]);
        assert!(said.contains("number of transactions actually processed: 20/20"), "{said}");
        let said = pgbench(&server, &["-n", "-t", "10"]);
        assert!(said.contains("number of transactions actually processed: 10/10"), "{said}");
        assert!(said.contains("scaling factor: 1"), "{said}");
        let mut client = client_of(&server);
        assert_eq!(ask(&mut client, "SELECT count(*) FROM pgbench_history"), "10");
    }
}

fn pgbench(server: &Server, arguments: &[&str]) -> String {
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    let output = Command::new("pgbench")
        .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-U", server.user()])
        .args(arguments)
        .arg(server.database())
        .env("PGPASSWORD", fs::read_to_string(server.password_file()).expect("the password is readable"))
        .output()
        .expect("pgbench runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}
