//! No state of a client may reach the next client.

use super::Case;
use super::raw::{RawClient, USUAL, UTF8MB4};
use super::site::{Proxy, Site, one};

pub(crate) const CASES: [Case; 3] = [
    ("no session state reaches the next client", state),
    ("a transaction that was left open is rolled back", transactions),
    ("a client without a database", no_database),
];

/// In transaction mode these clients would leave before they have acquired a connection.
pub(crate) const OF_SESSIONS: [Case; 1] = [("a connection in an unknown state is closed", unknown_state)];

/// The server's ID of the connection that serves the next client.
fn connection(proxy: &Proxy) -> String {
    one(&mut proxy.client(), "SELECT CONNECTION_ID()")
}

fn state(site: &mut Site) {
    let proxy = site.proxy(&["--pool-size", "1"]);
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

fn transactions(site: &mut Site) {
    let proxy = site.proxy(&["--pool-size", "1"]);
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
    let proxy = site.proxy(&["--pool-size", "1"]);
    let mut client = proxy.client();
    client.execute("SET autocommit = 0").expect("a setting");
    client.execute("INSERT INTO kept VALUES (1)").expect("a row");
    drop(client);
    assert_eq!(one(&mut proxy.client(), "SELECT COUNT(*) FROM kept"), "0");
    proxy.client().execute("DROP TABLE kept").expect("no table");
}

fn unknown_state(site: &mut Site) {
    let mut proxy = site.proxy(&["--pool-size", "1"]);
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

fn no_database(site: &mut Site) {
    let url = site.url();
    let (place, options) = url.split_once('?').expect("it has options");
    let (server, _) = place.rsplit_once('/').expect("it has a path");
    let (url, password) = (format!("{server}/?{options}"), site.password());
    let mut proxy = site.proxy_to(&url, password, &["--pool-size", "1"]);
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
