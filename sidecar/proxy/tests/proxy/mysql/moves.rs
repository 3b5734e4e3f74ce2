//! What follows a client to another connection, or cannot follow it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ciphertoll_model::Engine;
use ciphertoll_testing::not_for_all;

use super::Case;
use super::authentication::WITH_SECOND;
use super::fixture::Fixture;
use super::raw::{RawClient, USUAL, UTF8MB4};
use super::reset_leaks::direct;
use super::transactions::ask;
use crate::operations::settings;

pub(crate) const CASES: [Case; 6] = [
    ("a client whose default database is refused can choose another one", refused_database),
    ("settings are set in the order that they need", settings_in_order),
    ("diagnostics stay for a second behind commands that read them", diagnostics),
    ("a client that always leaves warnings does not keep others out", warnings_for_ever),
    ("a command whose settings are refused gets the error", refused_settings),
    ("results keep the collation of SET NAMES", collation_of_results),
];

fn run(client: &mut RawClient, sql: &str) -> Option<u16> {
    client.query(sql);
    RawClient::error(&client.results())
}

const ACCESS_DENIED: u16 = 1044;
const WRONG_VALUE: u16 = 1231;
const LATIN1_BIN: u16 = 47;

/// The right to use the database is revoked, which has the same effect as if it were dropped.
fn refused_database(fixture: &mut Fixture) {
    let (directory, file) = settings(WITH_SECOND);
    let second = fixture.second_user(directory.path());
    let proxy = fixture.proxy(&["--config", &file, "--pool-size", "1"]);
    let (database, other) = (proxy.database.clone(), "information_schema");
    let log_in =
        || RawClient::log_in(&proxy.socket, second, Some(other), USUAL, UTF8MB4).expect("the login succeeds");
    let mut raw = log_in();
    assert_eq!(run(&mut raw, &format!("USE {database}")), None);
    assert_eq!(raw.value("SELECT DATABASE()"), database);
    let revoke = format!("REVOKE ALL ON {database}.* FROM '{second}'@'%'");
    fixture.control().execute(&revoke).expect("the control account may");
    for _ in 0..2 {
        log_in().value("SELECT 1");
        // With the database of the login, the text would mean something else.
        assert_eq!(run(&mut raw, "SELECT DATABASE()"), Some(ACCESS_DENIED));
        assert_eq!(run(&mut raw, &format!("USE {database}")), Some(ACCESS_DENIED));
    }
    assert_eq!(run(&mut raw, &format!("USE {other}")), None);
    for _ in 0..2 {
        assert_eq!(raw.value("SELECT DATABASE()"), other);
        log_in().value("SELECT 1");
    }
}

/// Statements, and a query whose value shows their effect.
const ORDERED: [(&[&str], &str); 4] = [
    (
        &["SET max_join_size = 1000", "SET sql_big_selects = 1", "SET max_join_size = 2000"],
        "SELECT @@sql_big_selects",
    ),
    (
        &[
            "SET collation_server = 'latin1_bin'",
            "SET character_set_server = 'utf8mb4'",
            "SET collation_server = 'latin1_bin'",
        ],
        "SELECT @@collation_server",
    ),
    (&["SET system_versioning_asof = DEFAULT"], "SELECT @@system_versioning_asof"),
    (&["SET default_master_connection = '1'"], "SELECT @@default_master_connection"),
];

fn settings_in_order(fixture: &mut Fixture) {
    if fixture.engine() == Engine::MySql {
        return not_for_all("some of these settings are MariaDB's");
    }
    for (texts, look) in ORDERED {
        let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "2"]);
        let (mut alone, mut raw) = (direct(fixture), proxy.raw_with(USUAL));
        for text in texts {
            assert_eq!((run(&mut alone, text), run(&mut raw, text)), (None, None), "{text}");
        }
        // Refused if the client is pinned.
        drop(ask(&proxy, "SELECT 1"));
        assert_eq!(raw.value(look), alone.value(look), "{texts:?}");
    }
}

fn diagnostics(fixture: &mut Fixture) {
    if fixture.engine() == Engine::MySql {
        return not_for_all("MySQL keeps them in other cases");
    }
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for read in ["SHOW WARNINGS", "SHOW COUNT(*) WARNINGS", "SELECT @@warning_count", "\x0e"] {
        let mut raw = proxy.raw_with(USUAL);
        assert_eq!(run(&mut raw, "SELECT CAST('abc' AS INT)"), None);
        if read == "\x0e" {
            raw.command(b"\x0e");
            assert_eq!(raw.word()[0], 0);
        } else {
            assert_eq!(run(&mut raw, read), None, "{read}");
        }
        thread::scope(|scope| {
            // It waits until the client has had time to ask.
            let other = scope.spawn(|| ask(&proxy, "SELECT 1").expect("it is served"));
            thread::sleep(Duration::from_millis(100));
            assert_eq!(raw.value("SHOW COUNT(*) WARNINGS"), "1", "{read}");
            assert_eq!(other.join().expect("it ends"), "1");
        });
    }
}

fn warnings_for_ever(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "8"]);
    let (mut raw, is_over) = (proxy.raw_with(USUAL), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(run(&mut raw, "SELECT CAST('abc' AS SIGNED)"), None);
            }
        });
        for _ in 0..3 {
            assert_eq!(ask(&proxy, "SELECT 1").expect("it is served"), "1");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

fn refused_settings(fixture: &mut Fixture) {
    if fixture.engine() == Engine::MySql {
        return not_for_all("MySQL takes the name of a table that does not exist");
    }
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut raw = proxy.raw_with(USUAL);
    let set = format!("SET innodb_ft_user_stopword_table = '{}/stop_words'", proxy.database);
    for sql in ["CREATE OR REPLACE TABLE stop_words (value VARCHAR(30)) ENGINE=InnoDB", &set] {
        assert_eq!(run(&mut raw, sql), None, "{sql}");
    }
    ask(&proxy, "SELECT 1").expect("it is served");
    let mut other = proxy.raw_with(USUAL);
    assert_eq!(run(&mut other, "DROP TABLE stop_words"), None);
    for _ in 0..3 {
        assert_eq!(run(&mut raw, "SELECT 1"), Some(WRONG_VALUE));
        // Others have its connection, or another one.
        assert_eq!(other.value("SELECT 'goes on'"), "goes on");
    }
    raw.command(b"\x1f");
    assert_eq!(raw.word()[0], 0);
    assert_eq!(raw.value("SELECT @@innodb_ft_user_stopword_table IS NULL"), "1");
}

fn collation_of_results(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut raw = proxy.raw_with(USUAL);
    for sql in ["SET NAMES latin1 COLLATE latin1_bin", "SET collation_connection = 'latin1_german1_ci'"] {
        assert_eq!(run(&mut raw, sql), None, "{sql}");
    }
    for _ in 0..2 {
        assert_eq!(raw.value("SELECT @@collation_connection"), "latin1_german1_ci");
        raw.query("SELECT 'a'");
        let definition = &raw.results()[1];
        // In front of the last ten bytes.
        assert_eq!(definition[definition.len() - 12..][..2], LATIN1_BIN.to_le_bytes());
        ask(&proxy, "SELECT 1").expect("it is served");
    }
}
