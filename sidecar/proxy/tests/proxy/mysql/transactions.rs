//! Transaction pooling: clients share connections, each as if it had its own.

use std::thread;
use std::time::Instant;

use ciphertoll_model::Engine;
use ciphertoll_net::Error;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::mysql::{Capabilities, Param, command};

use super::Case;
use super::cases::{execute, prepare};
use super::fixture::{Fixture, Proxy, code, one, try_one};
use super::random_clients::anything;
use super::raw::{RawClient, USUAL};
use crate::operations::in_queue_time;
use crate::process::LONG;

pub(crate) const CASES: [Case; 13] = [
    ("two clients share a connection", shared),
    ("a transaction keeps its connection", transaction),
    ("settings follow their client only", settings),
    ("the default database follows its client only", database),
    ("LAST_INSERT_ID follows its client", last_key),
    ("prepared statements follow their client only", prepared),
    ("parameter types are sent again", types),
    ("open cursors and long data keep their connection", open),
    ("session state that cannot move pins a client", pins),
    ("session state set by routines does not reach other clients", hidden),
    ("COM_RESET_CONNECTION unpins", resets),
    ("many clients on few connections", many),
    ("random clients find their own session state", anything),
];

pub(super) const NUMBER: &str = "SELECT CONNECTION_ID()";

/// Two clients that share one connection, and its ID.
fn two(proxy: &Proxy) -> (Client, Client, String) {
    let (mut first, mut second) = (proxy.client(), proxy.client());
    let number = one(&mut first, NUMBER);
    assert_eq!(one(&mut second, NUMBER), number);
    (first, second, number)
}

/// Fails because no connection becomes free.
pub(super) fn assert_not_served(client: &mut Client, sql: &str, why: &str) {
    let error = client.query(sql).expect_err(why);
    assert_eq!(code(&error), Some(1040), "{why}: {error}");
    assert!(error.to_string().contains("no server connection became free"), "{why}: {error}");
}

/// A new client runs this.
pub(super) fn ask(proxy: &Proxy, sql: &str) -> Result<String, Error> {
    try_one(&mut proxy.try_client()?, sql)
}

fn shared(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second, number) = two(&proxy);
    for step in 0..20 {
        let sql = format!("SELECT CONCAT('{step}-', CONNECTION_ID())");
        assert_eq!(one(&mut first, &sql), format!("{step}-{number}"));
        assert_eq!(one(&mut second, &sql), format!("{step}-{number}"));
    }
    assert!(first.query("SELECT nonsense").is_err());
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    assert_eq!(one(&mut second, NUMBER), number);
}

fn transaction(fixture: &mut Fixture) {
    let maker = fixture.proxy(&[]);
    let mut maker = maker.client();
    for sql in [
        "DROP TABLE IF EXISTS shared",
        "CREATE TABLE shared (n INT) ENGINE=InnoDB",
        "DROP PROCEDURE IF EXISTS begins",
        "CREATE PROCEDURE begins() BEGIN START TRANSACTION; SELECT * FROM nowhere; END",
    ] {
        maker.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "0.4"]);
    for (begin, end) in
        [("BEGIN", "COMMIT"), ("START TRANSACTION READ ONLY", "ROLLBACK"), ("SET autocommit = 0", "COMMIT")]
    {
        in_queue_time(|| {
            let (mut first, mut waiting) = (proxy.try_client()?, proxy.try_client()?);
            let mut later = proxy.try_client()?;
            first.execute(begin)?;
            // SET alone starts no transaction.
            try_one(&mut first, "SELECT COUNT(*) FROM shared")?;
            assert_not_served(&mut waiting, "SELECT 1", begin);
            // An error does not end the transaction.
            first.query("SELECT nonsense").expect_err("an error");
            assert_not_served(&mut later, "SELECT 1", begin);
            first.execute(end).expect("it has its connection");
            assert_eq!(ask(&proxy, "SELECT 1")?, "1", "{begin}");
            Ok(())
        });
    }
    // A statement fails behind its implicit commit: the error does not report the end of the transaction. Others wait
    // while the client may ask for the error.
    let patient = fixture.proxy(&["--pool-size", "1"]);
    for begin in ["BEGIN", "SET autocommit = 0"] {
        let mut first = patient.client();
        for sql in [begin, "SAVEPOINT a", "INSERT INTO shared VALUES (1)"] {
            first.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        let error = first.execute("CREATE TABLE shared (n INT)").expect_err("it is there");
        assert_eq!(code(&error), Some(1050));
        assert_eq!(ask(&patient, "SELECT 1").expect("it is served"), "1", "{begin}");
    }
    // A transaction that a routine starts before it fails: the error does not report it.
    in_queue_time(|| {
        let (mut first, mut waiting) = (proxy.try_client()?, proxy.try_client()?);
        let error = first.query("CALL begins()").expect_err("there is no such table");
        if code(&error) != Some(1146) {
            return Err(error);
        }
        assert_not_served(&mut waiting, "SELECT 1", "CALL");
        first.execute("ROLLBACK").expect("it has its connection");
        assert_eq!(ask(&proxy, "SELECT 1")?, "1");
        Ok(())
    });
    for sql in ["DROP TABLE shared", "DROP PROCEDURE begins"] {
        maker.execute(sql).expect("no more");
    }
}

fn settings(fixture: &mut Fixture) {
    let isolation = match fixture.engine() {
        Engine::MySql => "SELECT @@transaction_isolation",
        _ => "SELECT @@tx_isolation",
    };
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    for (set, query, value) in [
        (
            "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
            "SELECT @@sql_mode",
            "ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
        ),
        ("SET time_zone = '+11:00'", "SELECT @@time_zone", "+11:00"),
        (
            "SET SESSION wait_timeout = 77, lock_wait_timeout = 78",
            "SELECT @@wait_timeout + @@lock_wait_timeout",
            "155",
        ),
        (
            "SET NAMES latin1",
            "SELECT CONCAT(@@character_set_client, @@character_set_results)",
            "latin1latin1",
        ),
        ("SET character_set_results = NULL", "SELECT @@character_set_results IS NULL", "1"),
        ("SET @@session.long_query_time = 1.25", "SELECT @@long_query_time", "1.250000"),
        ("SET autocommit = 0", "SELECT @@autocommit", "0"),
        ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", isolation, "SERIALIZABLE"),
        ("SET foreign_key_checks = OFF", "SELECT @@foreign_key_checks", "0"),
        ("SET lc_time_names = 'de_DE'", "SELECT MONTHNAME('2020-05-01')", "Mai"),
    ] {
        let (mut first, mut second, number) = two(&proxy);
        first.execute(set).unwrap_or_else(|error| panic!("{set}: {error}"));
        assert_ne!(one(&mut second, query), value, "{set}: the other client has it, too");
        assert_eq!(one(&mut first, query), value, "{set}");
        assert_eq!(one(&mut second, NUMBER), number);
        assert_eq!(one(&mut first, query), value, "{set}, again");
    }
    // A refused setting does not follow its client, and does not pin it.
    let (mut first, mut second, _) = two(&proxy);
    first.execute("SET no_such_setting = 1").expect_err("there is none");
    first.execute("SET time_zone = '+05:00', no_such_setting = 1").expect_err("there is none");
    assert_ne!(one(&mut second, "SELECT @@time_zone"), "+05:00");
    for value in ["+01:00", "+02:00"] {
        first.execute(&format!("SET time_zone = '{value}'")).expect("a setting");
        one(&mut second, NUMBER);
        assert_eq!(one(&mut first, "SELECT @@time_zone"), value);
    }
    // Whether a query may have several statements.
    let mut raw = proxy.raw();
    raw.command(b"\x1b\0\0");
    assert_eq!(raw.word()[0], 0xfe);
    for _ in 0..2 {
        one(&mut second, NUMBER);
        raw.query("SELECT 1; SELECT 2");
        assert_eq!(RawClient::error(&raw.results()), None);
    }
    let mut other = proxy.raw();
    other.query("SELECT 1; SELECT 2");
    assert_eq!(RawClient::error(&other.results()), Some(1064));
    assert_eq!(proxy.process.count("event=pinned"), 0);
}

fn database(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let usual = proxy.database.clone();
    let (mut first, mut second) = (proxy.raw(), proxy.raw());
    for choose in ["USE information_schema", "\x02"] {
        if choose.starts_with('\x02') {
            first.command(b"\x02information_schema");
            assert_eq!(first.word()[0], 0);
        } else {
            first.query(choose);
            first.results();
        }
        for _ in 0..2 {
            assert_eq!(second.value("SELECT DATABASE()"), usual);
            assert_eq!(first.value("SELECT DATABASE()"), "information_schema");
        }
        first.query(&format!("USE {usual}"));
        first.results();
        assert_eq!(second.value("SELECT DATABASE()"), usual);
        assert_eq!(first.value("SELECT DATABASE()"), usual);
    }
    first.command(b"\x02no_such_database");
    assert_eq!(first.word()[0], 0xff);
    assert_eq!(second.value("SELECT DATABASE()"), usual);
    assert_eq!(first.value("SELECT DATABASE()"), usual);
    assert_eq!(proxy.process.count("event=pinned"), 0);
}

/// Behind two rows with the keys 1 and 2 and the same numbers. Their responses do not have the key.
const KEYS_NOT_REPORTED: [&str; 6] = [
    "INSERT INTO keys_of (n) VALUES (3) RETURNING id",
    "REPLACE INTO keys_of (n) VALUES (2) RETURNING id",
    "ANALYZE INSERT INTO keys_of (n) VALUES (3)",
    "INSERT INTO keys_of (n) VALUES (1) ON DUPLICATE KEY UPDATE n = 10",
    "UPDATE keys_of SET n = LAST_INSERT_ID(0) WHERE id = 1",
    "INSERT INTO keys_of (n) VALUES (4), (1)",
];

fn last_key(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second, _) = two(&proxy);
    first.execute("DROP TABLE IF EXISTS keys_of").expect("no table");
    first.execute("CREATE TABLE keys_of (id INT AUTO_INCREMENT PRIMARY KEY)").expect("a table");
    first.execute("INSERT INTO keys_of VALUES (NULL), (NULL)").expect("rows");
    assert_eq!(one(&mut second, "SELECT LAST_INSERT_ID()"), "0");
    assert_eq!(one(&mut first, "SELECT LAST_INSERT_ID()"), "1");
    second.execute("INSERT INTO keys_of VALUES (NULL)").expect("a row");
    assert_eq!(one(&mut first, "SELECT LAST_INSERT_ID()"), "1");
    assert_eq!(one(&mut second, "SELECT LAST_INSERT_ID()"), "3");
    first.execute("UPDATE keys_of SET id = LAST_INSERT_ID(id + 40) WHERE id = 1").expect("a sequence");
    assert_eq!(one(&mut second, "SELECT LAST_INSERT_ID()"), "3");
    assert_eq!(one(&mut first, "SELECT LAST_INSERT_ID()"), "41");
    for text in KEYS_NOT_REPORTED {
        for sql in [
            "DROP TABLE IF EXISTS keys_of",
            "CREATE TABLE keys_of (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE)",
            "INSERT INTO keys_of (n) VALUES (1)",
            "INSERT INTO keys_of (n) VALUES (2)",
            "BEGIN",
        ] {
            first.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        match first.query(text) {
            Err(error) if fixture.engine() == Engine::MySql && code(&error) == Some(1064) => {}
            Err(error) if code(&error) != Some(1062) => panic!("{text}: {error}"),
            _ => {}
        }
        let expected = one(&mut first, "SELECT LAST_INSERT_ID()");
        first.execute("COMMIT").expect("it ends");
        assert_eq!(one(&mut second, "SELECT LAST_INSERT_ID()"), "3", "{text}");
        assert_eq!(one(&mut first, "SELECT LAST_INSERT_ID()"), expected, "{text}");
    }
    first.execute("DROP TABLE keys_of").expect("no table");
}

/// The text of the single value that an execute returns.
pub(super) fn run(raw: &mut RawClient, statement_id: u32, params: &[Param<'_>]) -> Result<String, u16> {
    execute(raw, statement_id, params, false);
    let payloads = raw.results();
    match RawClient::error(&payloads) {
        Some(code) => Err(code),
        // After the row's first byte, the NULL bitmap and the length.
        None => Ok(String::from_utf8_lossy(&payloads[payloads.len() - 2][3..]).into_owned()),
    }
}

pub(super) fn close(raw: &mut RawClient, statement_id: u32) {
    let mut bytes = Vec::new();
    command::encode_statement_close(&mut bytes, statement_id);
    raw.send(&bytes);
}

fn prepared(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
        let (mut first, mut second) = (proxy.raw_with(capabilities), proxy.raw_with(USUAL));
        let one_of = prepare(&mut first, "SELECT 'first'").statement_id;
        let other = prepare(&mut second, "SELECT 'second'").statement_id;
        assert_eq!(one_of, other, "statement numbers are per client");
        let more = prepare(&mut first, "SELECT CONCAT('more', ?)").statement_id;
        for _ in 0..3 {
            assert_eq!(run(&mut first, one_of, &[]).as_deref(), Ok("first"));
            assert_eq!(run(&mut second, other, &[]).as_deref(), Ok("second"));
            assert_eq!(run(&mut first, more, &[Param::Bytes(b"x")]).as_deref(), Ok("morex"));
        }
        // Statements that failed to prepare, that were closed, or that are another client's.
        first.command(b"\x16SELEC");
        assert_eq!(RawClient::error(&[first.word()]), Some(1064));
        assert_eq!(run(&mut second, more, &[]), Err(1243));
        close(&mut first, one_of);
        assert_eq!(run(&mut first, one_of, &[]), Err(1243));
        assert_eq!(run(&mut second, other, &[]).as_deref(), Ok("second"));
        assert_eq!(run(&mut first, one_of, &[]), Err(1243));
        // Two commands at once whose statements must be prepared again.
        let again = prepare(&mut first, "SELECT 'again'").statement_id;
        assert!(again != one_of && again != more);
        assert_eq!(run(&mut second, other, &[]).as_deref(), Ok("second"));
        let mut bytes = Vec::new();
        command::encode_ping(&mut bytes);
        command::encode_execute(&mut bytes, more, &[Param::Bytes(b"1")]).expect("it is short");
        command::encode_execute(&mut bytes, again, &[]).expect("it is short");
        command::encode_statement_close(&mut bytes, again);
        command::encode_execute(&mut bytes, more, &[Param::Bytes(b"2")]).expect("it is short");
        first.send(&bytes);
        assert_eq!(first.word()[0], 0);
        for expected in ["more1", "again", "more2"] {
            let payloads = first.results();
            assert!(payloads[payloads.len() - 2].ends_with(expected.as_bytes()), "{payloads:?}");
        }
        assert_eq!(first.value("SELECT 'after'"), "after");
        // A command without a response keeps no connection.
        close(&mut first, more);
        assert_eq!(second.value("SELECT 'after'"), "after");
        // COM_STMT_RESET of a statement that is not prepared here.
        let last = prepare(&mut first, "SELECT 'last'").statement_id;
        second.value("SELECT 1");
        bytes.clear();
        command::encode_statement_reset(&mut bytes, last);
        first.send(&bytes);
        assert_eq!(first.word()[0], 0);
        assert_eq!(run(&mut first, last, &[]).as_deref(), Ok("last"));
    }
    // If a statement cannot be prepared again, the server's error is passed on.
    let (mut first, mut second) = (proxy.raw(), proxy.raw());
    second.query("CREATE TABLE short_lived (n INT)");
    second.results();
    let statement = prepare(&mut first, "SELECT n FROM short_lived").statement_id;
    second.query("DROP TABLE short_lived");
    second.results();
    for _ in 0..2 {
        assert_eq!(run(&mut first, statement, &[]), Err(1146));
        assert_eq!(second.value("SELECT 1"), "1");
    }
    assert_eq!(proxy.process.count("event=pinned"), 0);
    assert_eq!(proxy.process.count("event=server-lost"), 0);
}

fn types(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second) = (proxy.raw(), proxy.raw());
    let statement = prepare(&mut first, "SELECT CONCAT(?, '-', ?)").statement_id;
    let params = [Param::I64(41), Param::Bytes(b"hey")];
    assert_eq!(run(&mut first, statement, &params).as_deref(), Ok("41-hey"));
    // Without the parameter types, as drivers send later executes.
    let mut payload = vec![0x17];
    payload.extend(statement.to_le_bytes());
    payload.extend(*b"\0\x01\0\0\0\0\0\x2a\0\0\0\0\0\0\0\x03you");
    for _ in 0..2 {
        assert_eq!(second.value("SELECT 1"), "1");
        for _ in 0..2 {
            first.command(&payload);
            let payloads = first.results();
            assert!(payloads[payloads.len() - 2].ends_with(b"42-you"), "{payloads:?}");
        }
    }
    if fixture.engine() == Engine::MySql {
        return;
    }
    // MariaDB's "the last statement", before and after its response.
    let last = [&b"\x17"[..], &u32::MAX.to_le_bytes(), b"\0\x01\0\0\0"].concat();
    let mut bytes = Vec::new();
    command::encode_prepare(&mut bytes, "SELECT 'the last one'").expect("it is short");
    first.send(&bytes);
    first.command(&last);
    assert_eq!(first.word()[0], 0);
    first.word();
    for _ in 0..2 {
        let payloads = first.results();
        assert!(payloads[payloads.len() - 2].ends_with(b"the last one"), "{payloads:?}");
        assert_eq!(second.value("SELECT 1"), "1");
        first.command(&last);
    }
}

fn open(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "3"]);
    let mut first = proxy.raw();
    let many = prepare(&mut first, "SELECT 1 UNION SELECT 2 UNION SELECT 3").statement_id;
    let long = prepare(&mut first, "SELECT CONCAT(?, '!')").statement_id;
    // The client continues on another connection.
    in_queue_time(|| ask(&proxy, "SELECT 1"));
    execute(&mut first, many, &[], true);
    let mut payloads = Vec::new();
    (0..2).for_each(|_| payloads.push(first.word()));
    first.rows(&mut payloads);
    assert_not_served(&mut proxy.client(), "SELECT 1", "a cursor is open");
    let mut fetch = vec![0x1c];
    fetch.extend(many.to_le_bytes());
    fetch.extend(100_u32.to_le_bytes());
    first.command(&fetch);
    payloads.clear();
    first.rows(&mut payloads);
    assert_eq!(payloads.len(), 4, "{payloads:?}");
    // The cursor is exhausted.
    in_queue_time(|| ask(&proxy, "SELECT 1"));
    // Long data before its statement, with another command in between.
    let mut data = vec![0x18];
    data.extend(long.to_le_bytes());
    data.extend(*b"\0\0in parts");
    first.command(&data);
    assert_eq!(first.value("SELECT 1"), "1");
    assert_not_served(&mut proxy.client(), "SELECT 1", "there is data ahead");
    assert_eq!(run(&mut first, long, &[Param::Bytes(b"")]).as_deref(), Ok("in parts!"));
    // The long data was used.
    in_queue_time(|| ask(&proxy, "SELECT 1"));
}

fn pins(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    proxy.client().execute("CREATE TABLE IF NOT EXISTS pinned (n INT)").expect("a table");
    drop(proxy);
    for (sql, reason) in [
        ("CREATE TEMPORARY TABLE mine (n INT)", "a temporary table"),
        ("SET @mine = 1", "a user variable"),
        ("SELECT 1 INTO @mine", "a user variable"),
        ("SELECT GET_LOCK('mine', 0)", "GET_LOCK"),
        ("LOCK TABLES pinned READ", "LOCK TABLES"),
        ("PREPARE mine FROM 'SELECT 1'", "PREPARE"),
        ("SELECT SQL_CALC_FOUND_ROWS 1", "SQL_CALC_FOUND_ROWS"),
        ("HANDLER pinned OPEN", "HANDLER"),
        ("SET TRANSACTION READ ONLY", "SET TRANSACTION"),
        ("SET timestamp = 1", "the connection's own"),
        ("/*!40101 SET NAMES latin1 */", "a comment that is executed"),
    ] {
        let mut proxy = fixture.proxy(&["--pool-size", "2"]);
        let mut first = proxy.client();
        let number = one(&mut first, NUMBER);
        let mut second = proxy.client();
        first.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        if reason == "SET TRANSACTION" {
            // The characteristics are for a transaction that has not started yet.
            first.query("SELECT 1").expect("a row");
        }
        let line = proxy.process.await_line("event=pinned");
        assert!(line.contains(reason), "{line}");
        for _ in 0..3 {
            assert_ne!(one(&mut second, NUMBER), number, "{sql}");
            assert_eq!(one(&mut first, NUMBER), number, "{sql}");
        }
        // After the client has disconnected, the connection is reset and available to others.
        drop(first);
        let left = Instant::now();
        while one(&mut second, "SELECT IS_FREE_LOCK('mine')") != "1" {
            assert!(left.elapsed() < LONG, "the lock is not given back");
        }
        let mut third = proxy.client();
        let state = "SELECT CONCAT_WS('|', @mine, IS_FREE_LOCK('mine'), NOW() > '2001-01-01', @@character_set_client)";
        for client in [&mut second, &mut third] {
            assert_eq!(one(client, state), "1|1|utf8mb4", "{sql}");
            client.query("SELECT * FROM mine").expect_err("there is no such table");
            client.query("EXECUTE mine").expect_err("there is no such statement");
        }
    }
    // Transaction characteristics end with the transaction.
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let (mut first, mut second, number) = two(&proxy);
    first.execute("DROP TABLE pinned").expect("no table");
    for sql in ["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "START TRANSACTION", "COMMIT"] {
        first.execute(sql).expect("an OK");
    }
    assert_eq!(one(&mut second, NUMBER), number);
    assert_eq!(proxy.process.count("event=pinned"), 0);
}

fn hidden(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut maker = proxy.client();
    maker.execute("DROP PROCEDURE IF EXISTS hide").expect("no procedure");
    let hide = "CREATE PROCEDURE hide() BEGIN SET time_zone = '+07:00'; SET @hidden = 1; DO GET_LOCK('hidden', 0); \
                CREATE TEMPORARY TABLE IF NOT EXISTS hidden (n INT); END";
    maker.execute(hide).expect("a procedure");
    drop(maker);
    let (mut first, mut second, number) = two(&proxy);
    first.execute("CALL hide()").expect("something out of sight");
    assert_ne!(one(&mut second, "SELECT @@time_zone"), "+07:00");
    second.query("SELECT * FROM hidden").expect_err("there is no such table");
    assert_eq!(one(&mut second, "SELECT IS_FREE_LOCK('hidden')"), "1");
    assert_eq!(one(&mut second, NUMBER), number);
    assert_eq!(one(&mut second, "SELECT @hidden IS NULL"), "1");
    drop(second);
    first.execute("DROP PROCEDURE hide").expect("no procedure");
}

fn resets(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1", "--queue-time", "3"]);
    let mut first = proxy.raw();
    let statement = prepare(&mut first, "SELECT 1").statement_id;
    first.query("SET time_zone = '+09:00'");
    first.results();
    first.query("SET @mine = 1");
    first.results();
    proxy.process.await_line("event=pinned");
    let mut waiting = proxy.raw();
    waiting.query(NUMBER);
    assert_eq!(RawClient::error(&[waiting.word()]), Some(1040), "it is pinned");
    first.command(b"\x1f");
    assert_eq!(first.word()[0], 0);
    assert_eq!(in_queue_time(|| ask(&proxy, "SELECT @mine IS NULL")), "1");
    assert_ne!(first.value("SELECT @@time_zone"), "+09:00");
    assert_eq!(run(&mut first, statement, &[]), Err(1243));
    assert_eq!(first.value("SELECT DATABASE()"), proxy.database);
}

fn many(fixture: &mut Fixture) {
    const CLIENTS: usize = 24;
    const ROUNDS: usize = 40;
    let proxy = fixture.proxy(&["--pool-size", "3"]);
    thread::scope(|scope| {
        for client_loop in 0..CLIENTS {
            let proxy: &Proxy = &proxy;
            scope.spawn(move || {
                let mut client = proxy.raw();
                client.query(&format!("SET net_read_timeout = {}", 100 + client_loop));
                assert_eq!(RawClient::error(&client.results()), None);
                let statement =
                    prepare(&mut client, &format!("SELECT CONCAT('{client_loop}-', ?)")).statement_id;
                for round in 0..ROUNDS {
                    let sql = format!("SELECT CONCAT('{round}-', @@net_read_timeout)");
                    assert_eq!(client.value(&sql), format!("{round}-{}", 100 + client_loop));
                    let text = round.to_string();
                    let answer = run(&mut client, statement, &[Param::Bytes(text.as_bytes())]);
                    assert_eq!(answer, Ok(format!("{client_loop}-{round}")));
                    if round % 8 == 0 {
                        client.query("BEGIN");
                        client.results();
                        let number = client.value(NUMBER);
                        assert_eq!(client.value(NUMBER), number);
                        client.query("COMMIT");
                        client.results();
                    }
                }
            });
        }
    });
}
