//! No state of a client may reach the next client.

use super::Case;
use std::collections::BTreeMap;

use ciphertoll_model::Engine;
use ciphertoll_wire::mysql::Capabilities;

use super::fixture::{Fixture, Proxy, one};
use super::raw::{RawClient, USUAL, UTF8MB4};
use crate::operations::{admin_address, await_that, samples};

pub(crate) const CASES: [Case; 6] = [
    ("no session state reaches the next client", state),
    ("no state of triggers, views and routines reaches the next client", state_of_routines),
    ("a connection is not reset if the statements prove that nothing remains", proved),
    (
        "with tracked resets, plain sessions are not reset, and what the server reports remains of none",
        tracked,
    ),
    ("a transaction that was left open is rolled back", transactions),
    ("a client without a database", no_database),
];

/// In transaction mode these clients would leave before they have acquired a connection.
pub(crate) const OF_SESSIONS: [Case; 1] = [("a connection in an unknown state is closed", unknown_state)];

/// The server's ID of the connection that serves the next client.
fn connection(proxy: &Proxy) -> String {
    one(&mut proxy.client(), "SELECT CONNECTION_ID()")
}

fn state(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let database = proxy.database.clone();
    proxy.client().execute("DROP TABLE IF EXISTS keys_of").expect("no table");
    proxy.client().execute("CREATE TABLE keys_of (id INT AUTO_INCREMENT PRIMARY KEY)").expect("a table");
    let before = connection(&proxy);
    let defaults = "SELECT CONCAT_WS('|', @@sql_mode, @@time_zone, @@autocommit, @@character_set_client, \
                    @@collation_connection, @@character_set_results, @@wait_timeout, @@foreign_key_checks, \
                    @@sql_safe_updates, @@max_join_size, @@lc_messages)";
    let expected = one(&mut proxy.client(), defaults);
    for left in [
        "SET sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'",
        "SET time_zone = '+11:00'",
        "SET autocommit = 0",
        "SET NAMES latin1",
        "SET character_set_results = NULL",
        "SET wait_timeout = 77",
        "SET foreign_key_checks = 0, sql_safe_updates = 1",
        "SET max_join_size = 7",
        "SET lc_messages = 'de_DE'",
    ] {
        proxy.client().execute(left).unwrap_or_else(|error| panic!("{left}: {error}"));
        assert_eq!(one(&mut proxy.client(), defaults), expected, "after {left}");
    }
    let left_and_looked_for = [
        ("SET @leak = 1", "SELECT @leak IS NULL", "1"),
        ("SELECT GET_LOCK('leak', 0)", "SELECT IS_FREE_LOCK('leak')", "1"),
        ("LOCK TABLES keys_of READ", "INSERT INTO keys_of VALUES (NULL)", ""),
        ("INSERT INTO keys_of VALUES (NULL)", "SELECT LAST_INSERT_ID()", "0"),
        ("SELECT SQL_CALC_FOUND_ROWS 1 UNION SELECT 2 UNION SELECT 3 LIMIT 1", "SELECT FOUND_ROWS()", "0"),
        ("USE information_schema", "SELECT DATABASE()", &database),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SELECT 1", "1"),
        ("SET @@timestamp = 1", "SELECT NOW() > '2001-01-01'", "1"),
        ("SET @@rand_seed1 = 5, @@rand_seed2 = 6", "SELECT 1", "1"),
    ];
    for (left, query, clean) in left_and_looked_for {
        proxy.client().query(left).unwrap_or_else(|error| panic!("{left}: {error}"));
        let mut next = proxy.client();
        assert_eq!(one(&mut next, query), clean, "after {left}");
        assert_eq!(one(&mut next, "SELECT CONNECTION_ID()"), before, "after {left}: another connection");
    }
    for (left, query) in [
        ("CREATE TEMPORARY TABLE leak (n INT)", "SELECT * FROM leak"),
        ("PREPARE leak FROM 'SELECT 1'", "EXECUTE leak"),
        ("HANDLER keys_of OPEN AS leak", "HANDLER leak READ FIRST"),
    ] {
        proxy.client().execute(left).unwrap_or_else(|error| panic!("{left}: {error}"));
        assert!(proxy.client().query(query).is_err(), "after {left}");
    }
    // Prepared statements have numbers, which the next client could guess.
    let mut raw = proxy.raw();
    raw.command(b"\x16SELECT 'secret'");
    let statement = raw.word()[1..5].to_vec();
    drop(raw);
    let mut next = proxy.raw();
    next.command(&[&b"\x17"[..], &statement, b"\0\x01\0\0\0"].concat());
    assert_eq!(RawClient::error(&next.results()), Some(1243));
    drop(next);
    proxy.client().execute("DROP TABLE keys_of").expect("no table");
}

fn transactions(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    proxy.client().execute("DROP TABLE IF EXISTS kept").expect("no table");
    proxy.client().execute("CREATE TABLE kept (n INT) ENGINE=InnoDB").expect("a table");
    let before = connection(&proxy);
    for begin in ["BEGIN", "SET autocommit = 0"] {
        let mut client = proxy.client();
        client.execute(begin).expect("a transaction");
        client.execute("INSERT INTO kept VALUES (1)").expect("a row");
        assert_eq!(one(&mut client, "SELECT COUNT(*) FROM kept"), "1");
        drop(client);
        assert_eq!(one(&mut proxy.client(), "SELECT COUNT(*) FROM kept"), "0", "after {begin}");
    }
    assert_eq!(connection(&proxy), before);
    // The first reset of a connection does more than later ones, and must not commit either.
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut client = proxy.client();
    client.execute("SET autocommit = 0").expect("a setting");
    client.execute("INSERT INTO kept VALUES (1)").expect("a row");
    drop(client);
    assert_eq!(one(&mut proxy.client(), "SELECT COUNT(*) FROM kept"), "0");
    proxy.client().execute("DROP TABLE kept").expect("no table");
}

fn unknown_state(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    let leave_functions: [fn(&mut RawClient); 4] = [
        |raw| raw.query("SELECT SLEEP(5)"),
        // A shorter command is held back until it is complete.
        |raw| raw.send(b"\0\x50\0\0\x03SELECT"),
        |raw| {
            // In the middle of the rows.
            raw.query("SELECT REPEAT('x', 8000000)");
            raw.word();
        },
        |raw| raw.send(b"\x01\0\0\0\x0e\x01\0\0\0\x0e"),
    ];
    for (index, leave) in leave_functions.iter().enumerate() {
        let mut raw = proxy.raw();
        let before = raw.value("SELECT CONNECTION_ID()");
        leave(&mut raw);
        drop(raw);
        if index < 3 {
            // Not the connection by which the server became known, which is evicted for the first client.
            proxy.process.await_line("reason=\"the client left");
            assert_ne!(proxy.raw().value("SELECT CONNECTION_ID()"), before, "{index}");
        }
    }
    // If the commands were answered in the meantime, the connection may be reused.
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn no_database(fixture: &mut Fixture) {
    let url = fixture.url();
    let (place, options) = url.split_once('?').expect("it has options");
    let (server, _) = place.rsplit_once('/').expect("it has a path");
    let (url, password) = (format!("{server}/?{options}"), fixture.password());
    let mut proxy = fixture.proxy_to(&url, password, &["--pool-size", "1"]);
    let client = |proxy: &Proxy| proxy.try_raw(USUAL, UTF8MB4, None).expect("the login succeeds");
    let query = |proxy: &Proxy| {
        let mut raw = client(proxy);
        raw.query("SELECT DATABASE(), CONNECTION_ID()");
        let payloads = raw.results();
        let row = payloads[payloads.len() - 2].clone();
        assert_eq!(row[0], 0xfb, "there is a database");
        row[1..].to_vec()
    };
    let before = query(&proxy);
    assert_eq!(query(&proxy), before);
    // A session cannot go back to no database, so the connection is closed.
    let mut raw = client(&proxy);
    raw.query(&format!("USE {}", proxy.database));
    assert_eq!(RawClient::error(&raw.results()), None);
    drop(raw);
    proxy.process.await_line("a client has chosen a database");
    assert_ne!(query(&proxy), before);
}

/// Left by one client; a query of the next one, and its value if nothing has remained.
type Leak = (&'static str, &'static str, &'static str);

/// Capabilities with which the server can report changes of the state.
const TRACKED: Capabilities = USUAL.with(Capabilities::SESSION_TRACK);

/// Statements with state that every server reports if asked.
const REPORTED: [Leak; 11] = [
    ("SET @leak = 1", "SELECT @leak IS NULL", "1"),
    ("SET sql_safe_updates = 1", "SELECT @@sql_safe_updates", "0"),
    ("SET NAMES latin1", "SELECT @@character_set_client <> 'latin1'", "1"),
    ("SET autocommit = 0", "SELECT @@autocommit", "1"),
    ("USE information_schema", "SELECT DATABASE() <> 'information_schema'", "1"),
    ("INSERT INTO sets_variable VALUES (1)", "SELECT @leak IS NULL", "1"),
    ("INSERT INTO sets_setting VALUES (1)", "SELECT @@lock_wait_timeout <> 77", "1"),
    ("SELECT sets_variable()", "SELECT @leak IS NULL", "1"),
    ("SELECT * FROM sets_variable_by_view", "SELECT @leak IS NULL", "1"),
    ("CALL sets_variable()", "SELECT @leak IS NULL", "1"),
    ("CALL sets_setting()", "SELECT @@lock_wait_timeout <> 77", "1"),
];

/// State that no server reports, but the words of the statement show.
const SHOWN: [Leak; 14] = [
    ("SELECT @leak := 1", "SELECT @leak IS NULL", "1"),
    ("SELECT 1 INTO @leak", "SELECT @leak IS NULL", "1"),
    ("SELECT GET_LOCK('leak', 0)", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("DO GET_LOCK('leak', 0)", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("CALL takes_lock()", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("SELECT takes_lock()", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("SELECT LAST_INSERT_ID(77)", "SELECT LAST_INSERT_ID()", "0"),
    ("INSERT INTO keys_of VALUES (NULL)", "SELECT LAST_INSERT_ID()", "0"),
    ("SELECT SQL_CALC_FOUND_ROWS * FROM keys_of LIMIT 1", "SELECT FOUND_ROWS() < 2", "1"),
    ("CALL begins()", "SELECT @@in_transaction", "0"),
    ("LOCK TABLES keys_of READ", "SELECT COUNT(*) >= 0 FROM locks", "1"),
    ("XA START 'leak'", "SELECT @@in_transaction", "0"),
    ("SELECT CAST('x' AS SIGNED)", "SELECT @@warning_count", "0"),
    ("BEGIN", "SELECT @@in_transaction", "0"),
];

/// State that neither the words nor a server show.
const HIDDEN: [Leak; 9] = [
    ("INSERT INTO locks VALUES (1)", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("UPDATE locks_on_update SET n = 2", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("SELECT * FROM locks_by_view", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("SELECT COUNT(*) FROM locks_by_function", "SELECT IS_FREE_LOCK('leak')", "1"),
    ("INSERT INTO selects_into_variable VALUES (1)", "SELECT @leak IS NULL", "1"),
    ("SELECT * FROM selects_into_variable_by_view", "SELECT @leak IS NULL", "1"),
    ("SELECT * FROM key_by_view", "SELECT LAST_INSERT_ID()", "0"),
    ("UPDATE keys_of SET id = id + 1 ORDER BY id DESC", "SELECT ROW_COUNT() < 1", "1"),
    ("SELECT * FROM sets_variable UNION SELECT 2 UNION SELECT 3", "SELECT FOUND_ROWS() < 2", "1"),
];

fn create_routines(fixture: &Fixture) {
    let database = fixture.server().database().to_owned();
    let mut control = fixture.control();
    let mut sql = vec![format!("USE {database}")];
    for table in [
        "keys_of (id INT AUTO_INCREMENT PRIMARY KEY)",
        "sets_variable (n INT)",
        "sets_setting (n INT)",
        "locks (n INT)",
        "locks_on_update (n INT)",
        "selects_into_variable (n INT)",
    ] {
        let name = table.split(' ').next().expect("a name");
        sql.extend([format!("DROP TABLE IF EXISTS {name}"), format!("CREATE TABLE {table}")]);
    }
    sql.extend(
        ["INSERT INTO keys_of VALUES (1), (2)", "INSERT INTO locks_on_update VALUES (1)"].map(Into::into),
    );
    let trigger = "FOR EACH ROW";
    for (table, when, body) in [
        ("sets_variable", "BEFORE INSERT", "SET @leak = 1"),
        ("sets_setting", "AFTER INSERT", "SET lock_wait_timeout = 77"),
        ("locks", "BEFORE INSERT", "SET NEW.n = GET_LOCK('leak', 0)"),
        ("locks_on_update", "AFTER UPDATE", "DO GET_LOCK('leak', 0)"),
        ("selects_into_variable", "BEFORE INSERT", "SELECT 1 INTO @leak"),
    ] {
        sql.push(format!("CREATE TRIGGER on_{table} {when} ON {table} {trigger} {body}"));
    }
    for (name, body) in [
        ("sets_variable", "BEGIN SET @leak = 1; RETURN 1; END"),
        ("selects_into_variable", "BEGIN SELECT 1 INTO @leak; RETURN 1; END"),
        ("takes_lock", "RETURN GET_LOCK('leak', 0)"),
        ("creates_table", "BEGIN CREATE TEMPORARY TABLE leak (n INT); RETURN 1; END"),
    ] {
        sql.push(format!("DROP FUNCTION IF EXISTS {name}"));
        sql.push(format!("CREATE FUNCTION {name}() RETURNS INT READS SQL DATA {body}"));
    }
    for (name, body) in [
        ("sets_variable", "SET @leak = 1"),
        ("sets_setting", "SET lock_wait_timeout = 77"),
        ("prepares", "PREPARE leak FROM 'SELECT 1'"),
        ("takes_lock", "DO GET_LOCK('leak', 0)"),
        ("begins", "START TRANSACTION"),
        ("creates_table", "CREATE TEMPORARY TABLE leak (n INT)"),
    ] {
        sql.push(format!("DROP PROCEDURE IF EXISTS {name}"));
        sql.push(format!("CREATE PROCEDURE {name}() {body}"));
    }
    for (name, value) in [
        ("sets_variable_by_view", "sets_variable()"),
        ("selects_into_variable_by_view", "selects_into_variable()"),
        ("locks_by_view", "GET_LOCK('leak', 0)"),
        ("locks_by_function", "1 AS one FROM keys_of WHERE takes_lock() IS NOT NULL"),
        ("key_by_view", "LAST_INSERT_ID(78)"),
    ] {
        sql.push(format!("CREATE OR REPLACE VIEW {name} AS SELECT {value}"));
    }
    for sql in sql {
        control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// All of these, one after the other, on the same server connection.
fn nothing_leaks(fixture: &Fixture, proxy: &Proxy, capabilities: Capabilities, leaks: &[Leak]) {
    let before = proxy.raw_with(capabilities).value("SELECT CONNECTION_ID()");
    for (left, query, clean) in leaks {
        if fixture.engine() == Engine::MySql && query.contains("@@in_transaction") {
            continue;
        }
        let mut raw = proxy.raw_with(capabilities);
        raw.query(left);
        assert_eq!(RawClient::error(&raw.results()), None, "{left}");
        drop(raw);
        let mut next = proxy.raw_with(capabilities);
        assert_eq!(next.value(query), *clean, "after {left}");
        assert_eq!(next.value("SELECT CONNECTION_ID()"), before, "after {left}: another connection");
    }
    // What no value shows: the characteristics of the next transaction, prepared statements and temporary tables.
    for (left, next_does, error) in [
        ("SET TRANSACTION READ ONLY", "DELETE FROM locks WHERE n = 0", None),
        ("CALL prepares()", "EXECUTE leak", Some(1243)),
        ("CALL creates_table()", "SELECT * FROM leak", Some(1146)),
        ("SELECT creates_table()", "SELECT * FROM leak", Some(1146)),
    ] {
        for (sql, error) in [(left, None), (next_does, error)] {
            let mut raw = proxy.raw_with(capabilities);
            raw.query(sql);
            assert_eq!(RawClient::error(&raw.results()), error, "{sql}");
        }
    }
}

fn state_of_routines(fixture: &mut Fixture) {
    create_routines(fixture);
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for capabilities in [USUAL, TRACKED] {
        nothing_leaks(fixture, &proxy, capabilities, &REPORTED);
        nothing_leaks(fixture, &proxy, capabilities, &SHOWN);
        nothing_leaks(fixture, &proxy, capabilities, &HIDDEN);
    }
    // With tracked resets, unless the state is hidden.
    let proxy = fixture.proxy(&["--pool-size", "1", "--reset", "tracked"]);
    for capabilities in [USUAL, TRACKED] {
        nothing_leaks(fixture, &proxy, capabilities, &REPORTED);
        nothing_leaks(fixture, &proxy, capabilities, &SHOWN);
    }
    // If the server cannot report anything, tables need a reset.
    nothing_leaks(fixture, &proxy, USUAL, &HIDDEN);
}

struct Resets {
    made: f64,
    skipped: f64,
}

impl Resets {
    fn of(proxy: &Proxy) -> Self {
        let samples = samples(admin_address(&proxy.process.log));
        Self { made: samples["resets_total"], skipped: samples["skipped_resets_total"] }
    }
}

/// Runs a text in a session of its own, which ends as most do, and returns whether the connection was reset after it.
fn is_reset_after(proxy: &Proxy, capabilities: Capabilities, text: &str) -> bool {
    let before = Resets::of(proxy);
    let mut raw = proxy.raw_with(capabilities);
    raw.query(text);
    assert_eq!(RawClient::error(&raw.results()), None, "{text}");
    raw.command(b"\x01");
    drop(raw);
    let mut is_reset = false;
    await_that("the connection is released", || {
        let now = Resets::of(proxy);
        is_reset = now.made > before.made;
        is_reset || now.skipped > before.skipped
    });
    is_reset
}

/// The settings of the next session, except those that differ from one session or statement to the next.
fn settings(proxy: &Proxy) -> BTreeMap<String, Vec<u8>> {
    const OTHER: [&str; 6] =
        ["timestamp", "statement_id", "gtid_", "rand_seed", "pseudo_thread_id", "in_transaction"];
    let mut raw = proxy.raw();
    raw.query("SHOW SESSION VARIABLES");
    let payloads = raw.results();
    let rows = payloads[3..payloads.len() - 1].iter().map(|row| {
        let (name, value) = row[1..].split_at(usize::from(row[0]));
        (String::from_utf8_lossy(name).into_owned(), value.to_vec())
    });
    rows.filter(|(name, _)| !OTHER.iter().any(|prefix| name.starts_with(prefix))).collect()
}

fn proved(fixture: &mut Fixture) {
    create_routines(fixture);
    let proxy = fixture.proxy(&["--pool-size", "1", "--admin", "tcp:127.0.0.1:0"]);
    let before = settings(&proxy);
    for text in [
        "SELECT 1",
        "SELECT NOW(), CONCAT('a', UPPER(\"b\")), @@sql_mode, CAST(1.5 AS DECIMAL(5, 2)) AS n FROM DUAL",
        "SELECT CONNECTION_ID(), USER(), CURRENT_USER(), DATABASE(), VERSION(), SLEEP(0)",
        "COMMIT",
        "ROLLBACK WORK",
    ] {
        assert!(!is_reset_after(&proxy, USUAL, text), "{text}");
        assert!(!is_reset_after(&proxy, TRACKED, text), "{text}");
        let mut next = proxy.raw();
        // As in a new session of MariaDB, whose last result had a row.
        assert_eq!(next.value("SELECT FOUND_ROWS() < 2 AND ROW_COUNT() < 1 AND LAST_INSERT_ID() = 0"), "1");
        drop(next);
        let mut now = settings(&proxy);
        now.retain(|name, value| before.get(name) != Some(value));
        assert!(now.is_empty(), "{text}: {now:?}");
    }
    let mut raw = proxy.raw();
    for text in ["BEGIN", "SELECT 1", "COMMIT"] {
        raw.query(text);
        assert_eq!(RawClient::error(&raw.results()), None, "{text}");
    }
    let skipped = Resets::of(&proxy).skipped;
    drop(raw);
    await_that("the reset is skipped", || Resets::of(&proxy).skipped > skipped);
    for text in
        ["SELECT * FROM keys_of", "DELETE FROM locks", "SELECT takes_lock()", "SELECT 1 WHERE 1", "BEGIN"]
    {
        assert!(is_reset_after(&proxy, USUAL, text), "{text}");
    }
}

fn tracked(fixture: &mut Fixture) {
    create_routines(fixture);
    let arguments = ["--pool-size", "1", "--reset", "tracked", "--admin", "tcp:127.0.0.1:0"];
    let proxy = fixture.proxy(&arguments);
    // The first time, and after a reset, which ends the server's reports.
    for _ in 0..2 {
        for text in ["SELECT * FROM keys_of", "UPDATE keys_of SET id = id", "DELETE FROM locks WHERE n = 2"] {
            assert!(!is_reset_after(&proxy, TRACKED, text), "{text}");
        }
        assert!(is_reset_after(&proxy, TRACKED, "SET @leak = 1"));
    }
    assert!(is_reset_after(&proxy, TRACKED, "INSERT INTO sets_variable VALUES (1)"));
    assert!(is_reset_after(&proxy, TRACKED, "INSERT INTO keys_of VALUES (NULL)"));
    assert!(is_reset_after(&proxy, USUAL, "SELECT * FROM keys_of"));
    assert!(!is_reset_after(&proxy, USUAL, "SELECT 1"));
}
