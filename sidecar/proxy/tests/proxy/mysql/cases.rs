//! What clients see: the same as without a proxy.

use std::io::Write;
use std::process::Stdio;
use std::thread;

use ciphertoll_model::Engine;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::{Capabilities, Param, PrepareOk, command, packet, server};
use nix::sys::signal::Signal;

use super::Case;
use super::fake::FakeServer;
use super::fixture::{Fixture, INTERACTIVE_TIMEOUT, Proxy, one};
use super::raw::{RawClient, USUAL, UTF8MB4};
use crate::operations::await_that;

/// Cases that need capabilities which transaction pooling does not offer.
pub(crate) const OF_SESSIONS: [Case; 2] =
    [("cached column definitions", cached_definitions), ("queries with attributes", attributes)];

pub(crate) const CASES: [Case; 16] = [
    ("queries, errors and transactions", queries),
    ("the server's command-line client", cli),
    ("upstream connections use TLS", encrypted),
    ("several statements, several results", several),
    ("prepared statements and cursors", prepared),
    ("files of the client", files),
    ("more than 16 MB in one packet, both ways", large),
    ("pipelined commands", pipelined),
    ("commands other than queries", commands),
    ("client capabilities and character sets reach the server", agreed),
    ("commands that cannot be pooled are refused", refused),
    ("a KILL hits the right command", kill),
    ("a KILL among other statements hits the right command", kill_in_a_batch),
    ("nonces under eight clients", nonces),
    ("byte by byte", byte_by_byte),
    ("a client that does not read blocks no other", stalled_client),
];

fn queries(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    for _ in 0..3 {
        let mut client = proxy.client();
        let rows = client.query("SELECT 'a', NULL UNION ALL SELECT 'b', 'c'").expect("rows");
        assert_eq!(rows, [[Some(b"a".to_vec()), None], [Some(b"b".to_vec()), Some(b"c".to_vec())]]);
        assert!(client.query("SELECT nonsense").is_err());
        client.execute("CREATE TEMPORARY TABLE t (n INT) ENGINE=InnoDB").expect("a table");
        client.execute("BEGIN").expect("a transaction");
        client.execute("INSERT INTO t VALUES (1)").expect("a row");
        assert_eq!(one(&mut client, "SELECT COUNT(*) FROM t"), "1");
        client.execute("ROLLBACK").expect("no transaction");
        assert_eq!(one(&mut client, "SELECT COUNT(*) FROM t"), "0");
        client.execute("PREPARE p FROM 'SELECT ? + 1'").expect("a statement");
        client.execute("SET @n = 41").expect("a variable");
        assert_eq!(one(&mut client, "EXECUTE p USING @n"), "42");
        client.close().expect("a goodbye");
    }
    // One server connection served all of that, in addition to the one by which the server became known.
    proxy.process.signal(Signal::SIGTERM);
    // The last line of the log.
    proxy.process.await_line("event=stopped");
    assert_eq!(proxy.process.count("event=server-connected"), 2);
    assert_eq!(proxy.process.count("event=server-lost"), 0);
}

fn cli(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let sql = |sql: &str| proxy.cli(&["--execute", sql]).map(|mut cli| cli.output().expect("it runs"));
    let Some(output) = sql("SELECT 6 * 7; SELECT 'b'; SELECT DATABASE()") else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, format!("42\nb\n{}\n", proxy.database));
    let output = sql("SELECT nonsense").expect("it is here");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("ERROR 1054 (42S22)"), "{stderr}");
    // With `--auto-rehash` it queries the columns of all tables for completion.
    let output = proxy.cli(&["--auto-rehash", "--execute", "SELECT 1"]).expect("it is here").output();
    assert!(output.expect("it runs").status.success());
}

fn encrypted(fixture: &mut Fixture) {
    let password = String::from_utf8(fixture.password()).expect("text");
    let auth = match fixture.engine() {
        Engine::MySql => "auth=caching-sha2",
        _ => "auth=native",
    };
    for library in ["rustls", "openssl"] {
        let mut proxy = fixture.proxy(&["--tls-library", library]);
        let mut client = proxy.client();
        let rows = client.query("SHOW STATUS LIKE 'Ssl_version'").expect("a status");
        assert_eq!(rows[0][1].as_deref(), Some(&b"TLSv1.3"[..]));
        drop(client);
        let line = proxy.process.await_line("event=server-connected");
        // rustls has a share of X25519, which MySQL takes from some versions of OpenSSL on only.
        let groups = match (fixture.engine(), library) {
            (Engine::MariaDb, "rustls") => &["x25519"][..],
            (Engine::MySql, "rustls") => &["x25519", "p256"],
            _ => &["p256"],
        };
        let has_group = |group: &&str| line.contains(&format!("tls=tls1.3 group={group} "));
        assert!(groups.iter().any(has_group) && line.contains(auth), "{line}");
        assert_eq!(proxy.process.count(&password), 0);
    }
}

fn several(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
        let mut raw = proxy.raw_with(capabilities | Capabilities::MULTI_STATEMENTS);
        raw.query("SELECT 1, 2; DO 0; SELECT 'a' UNION SELECT 'b'; SELECT 3");
        let payloads = raw.results();
        let rows = |text: &[u8]| payloads.iter().filter(|payload| **payload == text).count();
        for text in [&b"\x011\x012"[..], b"\x01a", b"\x01b", b"\x013"] {
            assert_eq!(rows(text), 1, "{payloads:?}");
        }
        raw.query("SELECT 1; SELECT nonsense; SELECT 2");
        assert_eq!(RawClient::error(&raw.results()), Some(1054));
        raw.query("DROP PROCEDURE IF EXISTS p");
        raw.results();
        raw.query("CREATE PROCEDURE p(IN n INT) BEGIN SELECT n; SELECT n + 1; END");
        assert_eq!(RawClient::error(&raw.results()), None);
        raw.query("CALL p(7)");
        let payloads = raw.results();
        assert!(payloads.contains(&b"\x017".to_vec()) && payloads.contains(&b"\x018".to_vec()));
        // Without the capability, a query has one statement.
        let mut raw = proxy.raw_with(capabilities);
        raw.query("SELECT 1; SELECT 2");
        assert_eq!(RawClient::error(&raw.results()), Some(1064));
    }
}

/// The prepared statement, after reading its definitions.
pub(crate) fn prepare(raw: &mut RawClient, sql: &str) -> PrepareOk {
    let mut bytes = Vec::new();
    command::encode_prepare(&mut bytes, sql).expect("a statement");
    raw.send(&bytes);
    let prepared = PrepareOk::parse(&raw.word()).expect("it is prepared");
    let eof = u16::from(!raw.capabilities.contains(Capabilities::DEPRECATE_EOF));
    for count in [prepared.params, prepared.columns] {
        if count > 0 {
            (0..count + eof).for_each(|_| drop(raw.word()));
        }
    }
    prepared
}

pub(crate) fn execute(raw: &mut RawClient, statement_id: u32, params: &[Param<'_>], cursor: bool) {
    let mut bytes = Vec::new();
    command::encode_execute(&mut bytes, statement_id, params).expect("it is short");
    // CURSOR_TYPE_READ_ONLY, after the header, the command and the statement's number.
    bytes[9] = u8::from(cursor);
    raw.send(&bytes);
}

fn prepared(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
        let mut raw = proxy.raw_with(capabilities);
        let statement = prepare(&mut raw, "SELECT ?, ? + 1");
        assert_eq!((statement.params, statement.columns), (2, 2));
        for text in [&b"one"[..], b"two"] {
            execute(&mut raw, statement.statement_id, &[Param::Bytes(text), Param::I64(41)], false);
            let payloads = raw.results();
            let cell = [&[text.len() as u8][..], text].concat();
            let row = &payloads[payloads.len() - 2];
            assert!(row.windows(cell.len()).any(|part| part == cell), "{payloads:?}");
        }
        // Long data, sent before the statement.
        let mut long = vec![0x18];
        long.extend(statement.statement_id.to_le_bytes());
        long.extend(*b"\0\0in parts");
        raw.command(&long);
        execute(&mut raw, statement.statement_id, &[Param::Bytes(b""), Param::I64(1)], false);
        assert_eq!(RawClient::error(&raw.results()), None);
        // A cursor, fetched row by row.
        let many = prepare(&mut raw, "SELECT 1 UNION SELECT 2 UNION SELECT 3");
        execute(&mut raw, many.statement_id, &[], true);
        let mut payloads = Vec::new();
        (0..2).for_each(|_| payloads.push(raw.word()));
        raw.rows(&mut payloads);
        assert_eq!(payloads.len(), 3, "no row comes before it is fetched: {payloads:?}");
        for row in 1..=3 {
            let mut fetch = vec![0x1c];
            fetch.extend(many.statement_id.to_le_bytes());
            fetch.extend(1_u32.to_le_bytes());
            raw.command(&fetch);
            let mut payloads = Vec::new();
            raw.rows(&mut payloads);
            assert_eq!(payloads.len(), 2, "{payloads:?}");
            assert!(
                payloads[0].ends_with(&[row, 0, 0, 0]) || payloads[0].ends_with(&[row, 0, 0, 0, 0, 0, 0, 0])
            );
        }
        let mut bytes = Vec::new();
        command::encode_statement_reset(&mut bytes, many.statement_id);
        command::encode_statement_close(&mut bytes, many.statement_id);
        raw.send(&bytes);
        assert_eq!(raw.word()[0], 0);
        execute(&mut raw, many.statement_id, &[], false);
        assert_eq!(RawClient::error(&raw.results()), Some(1243), "it is closed");
        assert_eq!(raw.value("SELECT 'after'"), "after");
    }
}

fn cached_definitions(fixture: &mut Fixture) {
    if fixture.engine() == Engine::MySql {
        return crate::say("MySQL does not leave definitions out: nothing to test");
    }
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw_with(USUAL | Capabilities::CACHE_METADATA | Capabilities::EXTENDED_METADATA);
    assert!(raw.capabilities.contains(Capabilities::CACHE_METADATA));
    let statement = prepare(&mut raw, "SELECT 7, 'x'");
    for _ in 0..3 {
        execute(&mut raw, statement.statement_id, &[], false);
        // The number of columns, without definitions.
        assert_eq!(raw.word(), [2, 0]);
        let mut payloads = Vec::new();
        raw.rows(&mut payloads);
        assert_eq!(payloads.len(), 2, "{payloads:?}");
    }
    raw.query("SELECT 1");
    assert_eq!(raw.word(), [1, 1]);
    raw.word();
    raw.rows(&mut Vec::new());
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn files(fixture: &mut Fixture) {
    let fake = FakeServer::start();
    let mut proxy = fixture.proxy_to(&FakeServer::url(fake.port()), Vec::new(), &["--pool-size", "1"]);
    "toll".clone_into(&mut proxy.user);
    let mut raw = proxy.raw_with(USUAL | Capabilities::LOCAL_FILES);
    // Many small parts, few large ones, and none: a client need not send the file.
    for (part_bytes, total_bytes) in [(1000, 700_000), (packet::MAX_PART_BYTES + 1, 40_000_000), (1, 0)] {
        raw.query("LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
        let (sequence, asked) = raw.packet().expect("it asks");
        assert_eq!((sequence, asked.as_slice()), (1, &b"\xfbfile"[..]));
        let (mut sequence, mut bytes) = (2, Vec::new());
        for part in vec![b'x'; total_bytes].chunks(part_bytes) {
            sequence = server::write_payload(&mut bytes, sequence, part).expect("it is short");
        }
        server::write_payload(&mut bytes, sequence, b"").expect("the end");
        raw.send(&bytes);
        let ok = OkPacket::parse(&raw.word()).expect("all was taken");
        assert_eq!(ok.affected_rows, total_bytes as u64);
    }
    drop(raw);
    // The next client has the same connection, in a clean state.
    let mut raw = proxy.raw_with(USUAL | Capabilities::LOCAL_FILES);
    raw.query("LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
    raw.packet().expect("it asks");
    // A connection whose client leaves during a file transfer is closed.
    drop(raw);
    proxy.process.await_line("in the middle of a file");
    // A client that has not offered files is not asked for one, whatever the server requests.
    let mut raw = proxy.raw();
    raw.query("LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
    assert_eq!(RawClient::error(&[raw.word()]), Some(1158));
    proxy.process.await_line("it requests a local file, which was not offered");
    // A real server that does not allow files.
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw_with(USUAL | Capabilities::LOCAL_FILES);
    raw.query("LOAD DATA LOCAL INFILE 'file' INTO TABLE t");
    assert!(matches!(RawClient::error(&[raw.word()]), Some(1148 | 3948 | 4166)));
    assert_eq!(raw.value("SELECT 'after'"), "after");
}

fn large(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw();
    for length in [packet::MAX_PART_BYTES - 30, packet::MAX_PART_BYTES, 40 << 20] {
        let text = "x".repeat(length);
        raw.query(&format!("SELECT '{text}'"));
        // The number of columns, a definition, then a row of one or more packets.
        raw.word();
        raw.word();
        let mut row = Vec::new();
        loop {
            let part = raw.word();
            let is_last = part.len() < packet::MAX_PART_BYTES;
            row.extend(part);
            if is_last {
                break;
            }
        }
        assert!(row.ends_with(text.as_bytes()), "{} bytes of {length}", row.len());
        assert_eq!(raw.word()[0], 0xfe);
    }
    assert_eq!(raw.value("SELECT 'after'"), "after");
}

fn pipelined(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw();
    let mut bytes = Vec::new();
    for number in 0..100 {
        command::encode_query(&mut bytes, &format!("SELECT {number}")).expect("a query");
        command::encode_ping(&mut bytes);
    }
    raw.send(&bytes);
    for number in 0..100_i32 {
        let payloads = raw.results();
        assert_eq!(payloads[payloads.len() - 2][1..], *number.to_string().as_bytes());
        assert_eq!(raw.word()[0], 0);
    }
}

fn commands(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
        let mut raw = proxy.raw_with(capabilities);
        // COM_INIT_DB.
        raw.command(b"\x02information_schema");
        assert_eq!(raw.word()[0], 0);
        assert_eq!(raw.value("SELECT DATABASE()"), "information_schema");
        raw.command(b"\x02no_such_database");
        assert_eq!(raw.word()[0], 0xff);
        // COM_STATISTICS.
        raw.command(b"\x09");
        assert!(raw.word().starts_with(b"Uptime"));
        // COM_SET_OPTION: several statements.
        raw.command(b"\x1b\0\0");
        assert_eq!(raw.word()[0], 0xfe);
        raw.query("SELECT 1; SELECT 2");
        assert_eq!(RawClient::error(&raw.results()), None);
        // COM_PING and COM_RESET_CONNECTION.
        for command in [&b"\x0e"[..], b"\x1f"] {
            raw.command(command);
            assert_eq!(raw.word()[0], 0);
        }
        // COM_FIELD_LIST of a table.
        raw.query("CREATE TEMPORARY TABLE t (n INT, s VARCHAR(30))");
        raw.results();
        raw.command(b"\x02information_schema");
        raw.word();
        raw.command(b"\x04TABLES\0");
        let mut payloads = Vec::new();
        raw.rows(&mut payloads);
        assert!(payloads.len() > 10 || RawClient::error(&payloads).is_some(), "{payloads:?}");
        // The next client finds none of these changes.
        drop(raw);
        let mut next = proxy.raw_with(capabilities);
        assert_eq!(next.value("SELECT DATABASE()"), proxy.database);
        next.query("SELECT 1; SELECT 2");
        assert_eq!(RawClient::error(&next.results()), Some(1064));
    }
}

fn agreed(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw();
    for sql in
        ["DROP TABLE IF EXISTS found", "CREATE TABLE found (n INT)", "INSERT INTO found VALUES (1), (2)"]
    {
        raw.query(sql);
        assert_eq!(RawClient::error(&raw.results()), None, "{sql}");
    }
    let affected = |capabilities: Capabilities| {
        let mut raw = proxy.raw_with(capabilities);
        raw.query("UPDATE found SET n = n");
        raw.word()[1]
    };
    assert_eq!((affected(USUAL), affected(USUAL | Capabilities::FOUND_ROWS)), (0, 2));
    raw.query("DROP TABLE found");
    raw.results();
    // With a character set that the server may not know, every client gets what the first one gets.
    let mut unknown = Vec::new();
    // Several times, so that later clients have connections that were reset once and more than once.
    for _ in 0..3 {
        let mut raw = proxy.try_raw(USUAL, 255, Some(&proxy.database)).expect("the login succeeds");
        unknown.push(raw.value("SELECT CONCAT(@@character_set_client, @@collation_connection)"));
        raw.query("SET NAMES latin2");
        assert_eq!(RawClient::error(&raw.results()), None);
        drop(raw);
        for (number, name) in [(8, "latin1"), (UTF8MB4, "utf8mb4"), (63, "binary")] {
            let mut raw = proxy.try_raw(USUAL, number, Some(&proxy.database)).expect("the login succeeds");
            assert_eq!(raw.value("SELECT @@character_set_client"), name);
            assert_eq!(raw.value("SELECT @@character_set_results"), name);
            raw.query("SET NAMES latin2, sql_mode = 'ANSI', time_zone = '+03:00', wait_timeout = 77");
            assert_eq!(RawClient::error(&raw.results()), None);
        }
        for (capability, shows) in [(USUAL, "0"), (USUAL | Capabilities::IGNORE_SPACE, "1")] {
            let mut raw = proxy.raw_with(capability);
            assert_eq!(raw.value("SELECT FIND_IN_SET('IGNORE_SPACE', @@sql_mode) > 0"), shows);
            raw.query("SET sql_mode = ''");
            raw.results();
        }
        let mut raw = proxy.raw_with(USUAL | Capabilities::INTERACTIVE);
        assert_eq!(raw.value("SELECT @@wait_timeout"), INTERACTIVE_TIMEOUT);
    }
    unknown.dedup();
    assert_eq!(unknown.len(), 1, "{unknown:?}");
}

fn attributes(fixture: &mut Fixture) {
    if fixture.engine() == Engine::MariaDb {
        return crate::say("MariaDB has no attributes of queries: nothing to test");
    }
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    // The proxy's own queries must have attributes, too.
    for _ in 0..3 {
        let mut raw = proxy.raw_with(USUAL | Capabilities::QUERY_ATTRIBUTES);
        assert!(raw.capabilities.contains(Capabilities::QUERY_ATTRIBUTES));
        assert_eq!(raw.value("SELECT 'no attributes'"), "no attributes");
        // One attribute: a text without a name.
        raw.command(b"\x03\x01\x01\0\x01\xfd\0\0\x03hey SELECT 'one'");
        assert_eq!(RawClient::error(&raw.results()), None);
        raw.query("SET @left = 1");
        raw.results();
        raw.query(&format!("KILL QUERY {}", raw.connection_id));
        assert_eq!(RawClient::error(&raw.results()), Some(1317), "it kills itself");
        drop(raw);
        let mut next = proxy.raw_with(USUAL | Capabilities::QUERY_ATTRIBUTES);
        assert_eq!(next.value("SELECT @left IS NULL"), "1");
    }
}

fn refused(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut bystander = proxy.client();
    // COM_BINLOG_DUMP, COM_REGISTER_SLAVE, COM_BINLOG_DUMP_GTID.
    for kind in [0x12, 0x15, 0x1e] {
        let mut raw = proxy.raw();
        raw.command(&[kind, 0, 0, 0, 0, 0, 0, 0, 0]);
        let (sequence, answer) = raw.packet().expect("a refusal");
        assert_eq!((sequence, RawClient::error(&[answer])), (1, Some(1235)), "{kind:#x}");
        assert!(raw.packet().is_err(), "it ends after that");
    }
    assert_eq!(one(&mut bystander, "SELECT 1"), "1");
}

fn kill(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let (mut sleeper, mut other, mut killer) = (proxy.raw(), proxy.raw(), proxy.raw());
    let number = sleeper.value("SELECT CONNECTION_ID()");
    assert_ne!(number, sleeper.connection_id.to_string(), "it was greeted before it had a connection");
    let mut control = proxy.client();
    // By the ID of the greeting, as drivers do it, and by the server's ID.
    let greeted = sleeper.connection_id.to_string();
    for is_the_servers in [false, true] {
        sleeper.query("SELECT SLEEP(60)");
        other.query("SELECT SLEEP(0.5)");
        // It may have another connection than before.
        let number = await_asleep(&mut control);
        let statement = format!("KILL QUERY {}", if is_the_servers { &number } else { &greeted });
        killer.query(&statement);
        assert_eq!(killer.word()[0], 0, "{statement}");
        // Interrupted: by an error, or by a row that says so.
        let payloads = sleeper.results();
        assert!(
            RawClient::error(&payloads) == Some(1317) || payloads.contains(&b"\x011".to_vec()),
            "{payloads:?}"
        );
        assert_eq!(RawClient::error(&other.results()), None);
        assert_eq!(sleeper.value("SELECT 'goes on'"), "goes on");
    }
    killer.query(&format!("KILL QUERY {}", u32::MAX));
    assert_eq!(RawClient::error(&[killer.word()]), Some(1094));
    // COM_PROCESS_KILL ends the connection.
    killer.command(&[&b"\x0c"[..], &sleeper.connection_id.to_le_bytes()].concat());
    let answer = killer.word();
    assert_eq!(answer[0], 0, "{answer:?}");
    let (sequence, last) = sleeper.packet().expect("last words");
    // The server's error, or the proxy's if the client has no connection.
    assert!(sequence <= 1 && matches!(RawClient::error(&[last]), Some(1053 | 1317 | 1927 | 1158)));
    // The server's command-line client, interrupted at its terminal.
    let Some(mut cli) = proxy.cli(&["--execute", "SELECT SLEEP(60), 'by hand'"]) else { return };
    let child = cli.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let sleeps = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%by hand%' \
                  AND id <> CONNECTION_ID()";
    await_that("it has begun", || one(&mut control, sleeps) == "1");
    let process = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(process, Signal::SIGINT).expect("it is there");
    child.wait_with_output().expect("it ends");
    await_that("it has ended", || one(&mut control, sleeps) == "0");
}

fn kill_in_a_batch(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let multi = USUAL | Capabilities::MULTI_STATEMENTS;
    let (mut sleeper, mut killer) = (proxy.raw(), proxy.raw_with(multi));
    let mut control = proxy.client();
    let own = sleeper.connection_id;
    for statements in [
        format!("KILL QUERY {own}; SELECT 1"),
        format!("SELECT 1; KILL QUERY {own}"),
        format!("/* first */ KILL QUERY {own}"),
        format!("SELECT 'it''s; KILL 1'; KILL HARD QUERY {own} ; SELECT 2"),
    ] {
        if statements.contains("HARD") && fixture.engine() != Engine::MariaDb {
            continue;
        }
        sleeper.query("SELECT SLEEP(60)");
        await_asleep(&mut control);
        killer.query(&statements);
        let payloads = killer.results();
        assert_eq!(RawClient::error(&payloads), None, "{statements}");
        let payloads = sleeper.results();
        assert!(
            RawClient::error(&payloads) == Some(1317) || payloads.contains(&b"\x011".to_vec()),
            "{payloads:?}"
        );
        assert_eq!(sleeper.value("SELECT 'goes on'"), "goes on");
    }
    // The other statements of the text are executed.
    killer.query(&format!("SET lock_wait_timeout = 4242; KILL QUERY {own}; SELECT 1"));
    assert_eq!(RawClient::error(&killer.results()), None);
    one(&mut proxy.client(), "SELECT 1");
    assert_eq!(killer.value("SELECT @@lock_wait_timeout"), "4242");
    // The server's own IDs are passed on; unknown IDs are errors.
    killer.query(&format!("SELECT 1; KILL QUERY {}", u32::MAX));
    assert_eq!(RawClient::error(&killer.results()), Some(1094));
    killer.query(&format!("SELECT 1; KILL {own}"));
    assert_eq!(RawClient::error(&killer.results()), None);
    let (_, last) = sleeper.packet().expect("last words");
    assert!(matches!(RawClient::error(&[last]), Some(1053 | 1317 | 1927 | 1158)));
}

/// Waits until the server runs the statement that sleeps: before that there is nothing to kill. Returns the
/// server's ID of the connection.
fn await_asleep(control: &mut Client) -> String {
    let sql = "SELECT MAX(id) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(60)%' \
               AND state = 'User sleep'";
    let mut number = String::new();
    await_that("it sleeps", || {
        number = one(control, sql);
        !number.is_empty()
    });
    number
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
    let mut raw = proxy.raw();
    let mut bytes = Vec::new();
    command::encode_query(&mut bytes, "SELECT 'slow'").expect("a query");
    for byte in &bytes {
        raw.send(std::slice::from_ref(byte));
    }
    let payloads = raw.results();
    assert!(payloads.contains(&b"\x04slow".to_vec()), "{payloads:?}");
}

fn stalled_client(fixture: &mut Fixture) {
    const BYTES: usize = 16 << 20;
    let proxy = fixture.proxy(&[]);
    let mut raw = proxy.raw();
    raw.query(&format!("SELECT REPEAT('x', {BYTES})"));
    // Other clients are served while it does not read.
    for _ in 0..50 {
        assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    }
    let bytes: usize = raw.results().iter().map(Vec::len).sum();
    assert!(bytes > BYTES, "{bytes}");
    // In the other direction: more than any buffer, sent before a response is read.
    let mut sender = raw.stream.try_clone().expect("another handle");
    let writer = thread::spawn(move || {
        let sql = format!("SELECT '{}'", "y".repeat(1 << 20));
        let mut bytes = Vec::new();
        command::encode_query(&mut bytes, &sql).expect("a query");
        (0..16).try_for_each(|_| sender.write_all(&bytes))
    });
    for _ in 0..16 {
        let bytes: usize = raw.results().iter().map(Vec::len).sum();
        assert!(bytes > 1 << 20, "{bytes}");
    }
    writer.join().expect("no panic").expect("all is taken");
}
