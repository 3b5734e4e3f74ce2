//! Settings of a client on each of its connections: from its login, and changed later.

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy, RawClient};

pub(crate) const CASES: [Case; 5] = [
    ("a setting of the login that names a part only does not depend on other clients", parts),
    ("settings of the login are set again behind DISCARD ALL", discarded),
    ("a setting of another role pins", of_roles),
    ("a number that the server rounds when it is asked keeps its connection", rounded),
    ("settings are queried without waiting for other transactions", without_waiting),
];

fn logged_in(proxy: &Proxy, settings: &[(&str, &str)]) -> RawClient {
    let mut raw = proxy.raw(settings);
    assert_eq!(raw.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
    raw
}

/// The single value of a result.
fn ask(raw: &mut RawClient, sql: &str) -> String {
    raw.query(sql);
    let answer = raw.answer();
    assert_eq!(RawClient::error_state(&answer), None, "{sql}");
    let row = answer.iter().find(|(kind, _)| *kind == b'D');
    row.map(|(_, row)| String::from_utf8(row[6..].to_vec()).expect("text")).unwrap_or_default()
}

fn parts(fixture: &mut Fixture) {
    for reset in ["always", "tracked"] {
        let proxy = fixture.proxy(&["--pool-size", "1", "--reset", reset]);
        let mut client = logged_in(&proxy, &[("DateStyle", "German"), ("client_encoding", "latin-1")]);
        assert_eq!(ask(&mut client, "SHOW DateStyle"), "German, DMY");
        let mut iso = logged_in(&proxy, &[("DateStyle", "ISO")]);
        let expected = ask(&mut logged_in(&proxy, &[]), "SHOW DateStyle");
        assert!(expected.starts_with("ISO, "), "{expected}");
        for _ in 0..2 {
            assert_eq!(ask(&mut client, "SHOW DateStyle"), "German, DMY", "{reset}");
            assert_eq!(ask(&mut iso, "SHOW DateStyle"), expected, "{reset}");
        }
    }
}

fn discarded(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut other = proxy.client();
    let login = [("TimeZone", "Asia/Tokyo"), ("options", "-c work_mem=5MB")];
    for moves in [false, true] {
        let mut client = logged_in(&proxy, &login);
        ask(&mut client, "SET lock_timeout = '5s'");
        ask(&mut client, "DISCARD ALL");
        for _ in 0..2 {
            if moves {
                one(&mut other, "SELECT 1");
            }
            let values = "SELECT current_setting('TimeZone') || ' ' || current_setting('work_mem') || ' ' || \
                          current_setting('lock_timeout')";
            assert_eq!(ask(&mut client, values), "Asia/Tokyo 5MB 0");
        }
        ask(&mut client, "SET application_name = 'later'");
        assert_eq!(ask(&mut client, "SHOW TimeZone"), "Asia/Tokyo");
    }
}

fn rounded(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut client = logged_in(&proxy, &[]);
    ask(&mut client, "SET random_page_cost = 1.25");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1", "it is shown as it is");
    ask(&mut client, "SET seq_page_cost = 123456789");
    proxy.process.await_line("a setting whose value the server rounds");
    // Shown with six digits, and used with all of them.
    ask(&mut client, "CREATE TABLE IF NOT EXISTS rounded AS SELECT 1 AS n");
    let plan = ask(&mut client, "EXPLAIN SELECT * FROM rounded");
    assert_eq!(ask(&mut client, "SHOW seq_page_cost"), "1.23457e+08");
    assert!(plan.contains("..123456") && !plan.contains("..123457"), "{plan}");
}

fn of_roles(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut control = fixture.control();
    let grant = format!("GRANT boss TO {}", proxy.user);
    for sql in ["DROP ROLE IF EXISTS boss", "CREATE ROLE boss SUPERUSER", grant.as_str()] {
        control.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let mut client = logged_in(&proxy, &[]);
    let before = ask(&mut client, "SHOW log_min_duration_statement");
    ask(&mut client, "SET ROLE boss");
    ask(&mut client, "SET work_mem = '5MB'");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    ask(&mut client, "SET log_min_duration_statement = 12345");
    proxy.process.await_line("a setting of another role");
    ask(&mut client, "RESET ROLE");
    assert_eq!(ask(&mut client, "SHOW log_min_duration_statement"), "12345ms");
    ask(&mut client, "DISCARD ALL");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    assert_eq!(ask(&mut client, "SHOW log_min_duration_statement"), before);
    control.query(&format!("REVOKE boss FROM {}", proxy.user)).expect("it may");
}

/// A transaction that is serializable, read-only and deferrable waits for others that write.
fn without_waiting(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut control = fixture.control();
    for sql in ["BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM pg_class"] {
        control.query(sql).expect("a transaction");
    }
    let mut client = logged_in(&proxy, &[]);
    ask(
        &mut client,
        "SET default_transaction_isolation = serializable; SET default_transaction_read_only = on; \
         SET default_transaction_deferrable = on; SET work_mem = '6MB'",
    );
    proxy.process.await_line("reason=default_transaction_deferrable");
    ask(&mut client, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    assert_eq!(ask(&mut client, "SHOW work_mem"), "6MB");
    ask(&mut client, "COMMIT");
    drop(client);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    control.query("ROLLBACK").expect("the end");
}
