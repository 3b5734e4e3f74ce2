//! Behaviour that drivers expect of a server.

use std::fs;
use std::io::Write;
use std::iter::repeat_n;
use std::thread;

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::postgres::command::{encode_parse, encode_query, encode_sync};

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy, RawClient, client_at};
use crate::operations::{await_that, second_user, settings};

pub(crate) const CASES: [Case; 3] = [
    ("a startup message of an impossible length closes the connection without a response", startup_length),
    ("a client's own notifications have its own process ID", notifications),
    ("idle connections do not block dropping, renaming or copying a database", databases),
];

pub(crate) const OF_TRANSACTIONS: [Case; 2] = [
    ("a pipeline of 100,000 commands is answered in bounded memory", long_pipeline),
    ("LISTEN after any kind of literal pins the client", literals),
];

/// The first bytes of node-postgres if it is closed before it is connected.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

fn startup_length(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    for bytes in [TERMINATE, b"\0\0\0\x03", b"\0\0\0\x07\0\x03\0", b"\0\0\x27\x15", b"GET / HTTP/1.1\r\n"] {
        let mut raw = proxy.raw_silent();
        raw.send(bytes);
        assert_eq!(raw.rest(), b"", "{bytes:?}");
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

/// The process ID, and the channel with the payload, of the next notification.
fn notification(raw: &mut RawClient) -> (u32, String) {
    loop {
        let (kind, payload) = raw.message().expect("a notification comes");
        if kind == b'A' {
            let (process, rest) = payload.split_first_chunk().expect("a process");
            return (u32::from_be_bytes(*process), String::from_utf8_lossy(rest).replace('\0', " "));
        }
    }
}

fn notifications(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "4"]);
    // In transaction mode, the second client logs in without a connection.
    for _ in 0..2 {
        let mut raw = proxy.raw(&[]);
        raw.answer();
        raw.query("LISTEN \"my news\"");
        raw.answer();
        let mut bytes = Vec::new();
        for number in 0..300 {
            encode_query(&mut bytes, &format!("NOTIFY \"my news\", '{number}'")).expect("a command");
        }
        raw.send(&bytes);
        for number in 0..300 {
            assert_eq!(notification(&mut raw), (raw.process_id, format!("my news {number} ")));
        }
        let mut other = proxy.client();
        let process: u32 = one(&mut other, "SELECT pg_backend_pid()").parse().expect("a number");
        other.query("BEGIN").expect("a transaction");
        let process_now: u32 = one(&mut other, "SELECT pg_backend_pid()").parse().expect("a number");
        other.query("NOTIFY \"my news\", 'other'; COMMIT").expect("a notification");
        let (named, text) = notification(&mut raw);
        assert!(named != raw.process_id && [process, process_now].contains(&named), "{named}");
        assert_eq!(text, "my news other ");
    }
}

fn databases(fixture: &mut Fixture) {
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let mut proxy = fixture.proxy(&["--config", &file, "--pool-size", "8"]);
    let mut control = fixture.control();
    control.query(&format!("ALTER ROLE {} CREATEDB", proxy.user)).expect("a role that may make databases");
    let mut admin = proxy.client();
    let hba = one(&mut control, "SHOW hba_file");
    let rules = fs::read_to_string(&hba).expect("ours to read");
    fs::write(&hba, format!("{rules}hostssl all all 127.0.0.1/32 scram-sha-256\n")).expect("ours to write");
    one(&mut control, "SELECT pg_reload_conf()");
    await_that("other databases may be used", || client_at(&proxy.socket(), &second, "template1").is_ok());
    for (command, name) in [
        ("DROP DATABASE shop", "shop"),
        ("drop database if exists Shop", "shop"),
        ("DROP /* \" */ DATABASE \"My \"\"Shop\";", "My \"Shop"),
        ("ALTER DATABASE shop RENAME TO store; ", "shop"),
        ("CREATE DATABASE store TEMPLATE = shop", "shop"),
        ("CREATE DATABASE store", "template1"),
    ] {
        if name != "template1" {
            let quoted = name.replace('"', "\"\"");
            admin.query(&format!("CREATE DATABASE \"{quoted}\"")).expect("a database");
        }
        let connections = clients(&mut proxy, name, &second);
        admin.query(command).unwrap_or_else(|error| panic!("{command}: {error}"));
        drop(connections);
        for name in ["shop", "store", "My \"\"Shop"] {
            admin.query(&format!("DROP DATABASE IF EXISTS \"{name}\"")).expect("it is not used");
        }
    }
    // By the extended protocol.
    admin.query("CREATE DATABASE shop").expect("a database");
    drop(clients(&mut proxy, "shop", &second));
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, "", "DROP DATABASE shop", &[]).expect("a statement");
    crate::transactions::execute(&mut bytes, "");
    encode_sync(&mut bytes);
    raw.send(&bytes);
    assert_eq!(RawClient::error_state(&raw.answer()), None);
    for user in [&proxy.user, &second] {
        let Err(error) = client_at(&proxy.socket(), user, "shop") else { panic!("the database is gone") };
        assert!(error.to_string().contains("3D000"), "{error}");
    }
    control.query(&format!("ALTER ROLE {} NOCREATEDB", proxy.user)).expect("as before");
    fs::write(&hba, rules).expect("ours to write");
    one(&mut control, "SELECT pg_reload_conf()");
    proxy.process.await_line("event=server-closed");
}

/// Clients of both users that have used a database. Some of them have disconnected.
fn clients(proxy: &mut Proxy, database: &str, second: &str) -> Vec<Client> {
    let open = |user: &str| {
        let mut client = client_at(&proxy.socket(), user, database).expect("the login succeeds");
        one(&mut client, "SELECT 1");
        client
    };
    let mut clients = vec![open(&proxy.user), open(second), open(&proxy.user)];
    if proxy.is_session_mode() {
        // In session mode, connected clients still use their connections.
        clients.clear();
    } else {
        drop(clients.remove(0));
    }
    clients
}

/// The proxy's peak memory in KiB.
fn peak_kib(proxy: &Proxy) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.process.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Sends commands on another thread, and reads responses of these kinds meanwhile.
fn answers(raw: &mut RawClient, commands: Vec<u8>, kinds: impl Iterator<Item = u8>) {
    let mut stream = raw.stream.try_clone().expect("a descriptor");
    let writer = thread::spawn(move || stream.write_all(&commands));
    for kind in kinds {
        assert_eq!(char::from(raw.message().expect("an answer").0), char::from(kind));
    }
    writer.join().expect("no panic").expect("all is taken");
}

fn long_pipeline(fixture: &mut Fixture) {
    const COMMANDS: usize = 100_000;
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let before = peak_kib(&proxy);
    let mut parse = Vec::new();
    encode_parse(&mut parse, "", "", &[]).expect("a statement");
    let mut refused = Vec::new();
    encode_parse(&mut refused, "", "SELEC", &[]).expect("a statement");
    let mut query = Vec::new();
    encode_query(&mut query, "").expect("a command");
    let mut sync = Vec::new();
    encode_sync(&mut sync);
    // Statements are prepared in one batch; then the first of a batch is refused, so that the
    // server skips the rest; then each command has its own end.
    let mut slow = Vec::new();
    encode_query(&mut slow, "SELECT pg_sleep(1)").expect("a command");
    // The server starts late, so that as many responses as possible are owed.
    let prepared = [slow, parse.repeat(COMMANDS), sync.clone()].concat();
    answers(&mut raw, prepared, b"TDCZ".iter().copied().chain(repeat_n(b'1', COMMANDS)).chain([b'Z']));
    let skipped = [refused, parse.repeat(COMMANDS), sync].concat();
    answers(&mut raw, skipped, [b'E', b'Z'].into_iter());
    answers(&mut raw, query.repeat(COMMANDS / 10), repeat_n([b'I', b'Z'], COMMANDS / 10).flatten());
    raw.query("SELECT 1");
    assert_eq!(RawClient::error_state(&raw.answer()), None);
    let grown = peak_kib(&proxy) - before;
    // Its buffers are 1.8 MiB, however many commands there are. 8 bytes per command would be too much.
    assert!(grown < 2560, "the proxy grew by {grown} KiB");
}

fn literals(fixture: &mut Fixture) {
    for (settings, sql) in [
        (&[][..], r"SELECT E'\'x'; LISTEN news"),
        (&[], "SELECT E'a'\n'\\'b'; LISTEN news"),
        (&[], r"SELECT '\'; LISTEN news"),
        (&[("options", "-c standard_conforming_strings=off")], r"SELECT '\'x'; LISTEN news"),
        (&[], "SELECT 1 -- '\rAS one; LISTEN news"),
    ] {
        let mut proxy = fixture.proxy(&["--pool-size", "2"]);
        let mut listener = proxy.raw(settings);
        listener.answer();
        listener.query(sql);
        assert_eq!(RawClient::error_state(&listener.answer()), None, "{sql}");
        proxy.process.await_line("event=pinned");
        // Other clients use the remaining connections.
        for _ in 0..2 {
            one(&mut proxy.client(), "SELECT 1");
        }
        proxy.client().query("NOTIFY news").expect("a notification");
        assert_eq!(notification(&mut listener).1, "news  ", "{sql}");
    }
    // If the setting changes within a session, the client is pinned: statements keep the meaning that they
    // were prepared with.
    let mut proxy = fixture.proxy(&["--pool-size", "2"]);
    let mut raw = proxy.raw(&[]);
    raw.answer();
    let mut bytes = Vec::new();
    for sql in ["SET standard_conforming_strings = off", r"SELECT '\'x'; LISTEN news"] {
        encode_query(&mut bytes, sql).expect("a command");
    }
    raw.send(&bytes);
    for _ in 0..2 {
        assert_eq!(RawClient::error_state(&raw.answer()), None);
    }
    let line = proxy.process.await_line("event=pinned");
    assert!(line.contains("standard_conforming_strings"), "{line}");
}
