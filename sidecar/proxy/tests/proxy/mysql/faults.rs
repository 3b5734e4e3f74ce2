//! Faults: clients that vanish or send garbage, and a server that goes away and comes back.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::ssl_request::SslRequest;
use ciphertoll_wire::mysql::{Capabilities, command, server};

use super::Case;
use super::fake::FakeServer;
use super::fixture::{Fixture, code, one};
use super::raw::{RawClient, USUAL, UTF8MB4};
use crate::operations::{await_that, settings};
use crate::process::LONG;

pub(crate) const CASES: [Case; 7] = [
    ("garbage from a client closes only that client", garbage),
    ("clients that vanish at any byte", disconnects_at_any_byte),
    ("a killed connection is reported to its client", killed),
    ("a client that vanishes during a result", vanished_amid_a_result),
    ("a server whose certificate cannot be verified is not used", unverified),
    ("a server that is down when the proxy starts", absent),
    ("unusable settings are refused at the start", refused_at_start),
];

fn garbage(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    let mut bystander = proxy.client();
    let header = b"PROXY UNKNOWN 10.0.0.1 10.0.0.2 1 2\r\n";
    let lengths = [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\x01", b"\0\0\0\x01", b"\x05\0\0\x07hello"];
    for bytes in lengths.into_iter().chain([&header[..]]) {
        let mut raw = proxy.raw_silent();
        raw.packet().expect("a greeting");
        raw.send(bytes);
        let (sequence, answer) = raw.packet().expect("a refusal");
        assert_eq!((sequence, RawClient::error(&[answer])), (2, Some(1835)), "{bytes:?}");
        assert!(raw.packet().is_err(), "it ends after that");
    }
    for bytes in [&b"\x01\0\0\x05\x03"[..], b"\0\0\0\x05", b"\x01\0\0\x01\x7f"] {
        let mut raw = proxy.raw();
        raw.send(bytes);
        let answer = raw.word();
        assert_eq!(RawClient::error(&[answer]), Some(1835), "{bytes:?}");
        assert!(raw.packet().is_err(), "it ends after that");
    }
    // TLS and compression were not offered.
    let mut raw = proxy.raw_silent();
    raw.packet().expect("a greeting");
    let mut payload = Vec::new();
    let head = SslRequest {
        capabilities: USUAL | Capabilities::PROTOCOL_41 | Capabilities::SSL,
        max_packet_bytes: 1 << 24,
        character_set: UTF8MB4,
    };
    head.encode(&mut payload);
    let mut bytes = Vec::new();
    server::write_payload(&mut bytes, 1, &payload).expect("it is short");
    raw.send(&bytes);
    assert_eq!(RawClient::error(&[raw.word()]), Some(1235));
    assert_eq!(one(&mut bystander, "SELECT 1"), "1");
}

fn disconnects_at_any_byte(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "2"]);
    let mut payload = Vec::new();
    let head = SslRequest {
        capabilities: USUAL
            | Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::LONG_PASSWORD,
        max_packet_bytes: 1 << 24,
        character_set: UTF8MB4,
    };
    let user = proxy.user.as_bytes();
    HandshakeResponse { head, user, auth_response: b"", database: None, plugin: None }.encode(&mut payload);
    let mut complete = Vec::new();
    server::write_payload(&mut complete, 1, &payload).expect("it is short");
    command::encode_query(&mut complete, "SELECT 1").expect("a query");
    for cut in 0..=complete.len() {
        let mut raw = proxy.raw_silent();
        raw.send(&complete[..cut]);
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn killed(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&[]);
    let (mut other, mut raw) = (proxy.client(), proxy.raw());
    let number = raw.value("SELECT CONNECTION_ID()");
    raw.query("SELECT SLEEP(60)");
    let sleeps = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number} AND info IS NOT NULL"
    );
    await_that("it has begun", || one(&mut other, &sleeps) == "1");
    other.execute(&format!("KILL {number}")).expect("it is ours to kill");
    // The server's error or the proxy's, then the end of the connection.
    let payloads = raw.results();
    let answer = RawClient::error(&payloads).or(payloads.last().map(|_| 0));
    assert!(matches!(answer, Some(1317 | 1927 | 1158 | 1053 | 0)), "{payloads:?}");
    if answer == Some(1317) || answer == Some(0) {
        // The command was interrupted first; the connection ends next.
        let output = raw.packet();
        assert!(output.is_err() || matches!(&output, Ok((_, last)) if last[0] == 0xff), "{output:?}");
    }
    proxy.process.await_line("event=server-lost");
    // A killed idle connection is replaced before a client notices.
    let idle = one(&mut proxy.client(), "SELECT CONNECTION_ID()");
    other.execute(&format!("KILL {idle}")).expect("it is ours to kill");
    proxy.process.await_line("event=server-lost");
    assert_ne!(one(&mut proxy.client(), "SELECT CONNECTION_ID()"), idle);
}

fn vanished_amid_a_result(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    for _ in 0..5 {
        let mut raw = proxy.raw();
        let before = raw.value("SELECT CONNECTION_ID()");
        raw.query("SELECT REPEAT('x', 16000000) UNION ALL SELECT REPEAT('y', 16000000)");
        raw.word();
        drop(raw);
        // Not the connection by which the server became known, which is evicted for the first client.
        proxy.process.await_line("reason=\"the client left");
        let mut next = proxy.raw();
        assert_eq!(next.value("SELECT 'mine'"), "mine");
        assert_ne!(next.value("SELECT CONNECTION_ID()"), before);
    }
}

fn unverified(fixture: &mut Fixture) {
    // No authority of the system has signed the server's certificate.
    let option = format!("ssl-ca={}", fixture.server().ca_file().display());
    let (url, password) = (fixture.url().replace(&option, "ssl-mode=VERIFY_IDENTITY"), fixture.password());
    let mut proxy = fixture.proxy_to(&url, password, &[]);
    let mut raw = proxy.raw_silent();
    let (sequence, payload) = raw.packet().expect("a refusal in place of a greeting");
    assert_eq!((sequence, payload[0]), (0, 0xff));
    let text = String::from_utf8_lossy(&payload).into_owned();
    assert!(text.contains("does not verify"), "{text}");
    let error = proxy.try_client().err().expect("there is no server");
    assert_eq!(code(&error), Some(1429), "{error}");
    proxy.process.await_line("event=connect-failed");
}

fn absent(fixture: &mut Fixture) {
    // It starts, stops, and starts again on the same port.
    let port = FakeServer::start().port();
    let mut proxy = fixture.proxy_to(&FakeServer::url(port), Vec::new(), &[]);
    "toll".clone_into(&mut proxy.user);
    for _ in 0..2 {
        let error = proxy.try_client().err().expect("there is no server");
        assert_eq!(code(&error), Some(1429), "{error}");
        assert!(error.to_string().contains("cannot connect"), "{error}");
        let fake = FakeServer::again(port);
        // The first client may still be told of the attempt before.
        let until = Instant::now() + LONG;
        let mut long_lived = loop {
            match proxy.try_client() {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        long_lived.execute("DO 0").expect("an answer");
        drop(fake);
        proxy.process.await_line("event=server-lost");
        let error = long_lived.query("DO 0").expect_err("its server is gone");
        assert!(matches!(code(&error), None | Some(1158)), "{error}");
    }
}

fn refused_at_start(fixture: &mut Fixture) {
    let (_directory, file) = settings("scram-iterations = 4096\n");
    let output = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
        .args(["--check", "--config", &file, "--listen", "unix:/tmp/x", "--server", &fixture.url()])
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("scram-iterations does not apply to MySQL and MariaDB"), "{stderr}");
    let url = fixture.url();
    let with_password = url.replace('@', ":hunter2@");
    let socket = PathBuf::from("/tmp/x");
    let listen = format!("unix:{}", socket.display());
    for (listen, url, mode, code, reason) in [
        (listen.as_str(), with_password.as_str(), "session", 2, "password"),
        ("tcp:127.0.0.1:0", &url, "session", 2, "MYSQL_PWD"),
        (&listen, "mysql://a@h/?ssl-ca=/nowhere/ca.pem", "session", 2, "/nowhere/ca.pem"),
        (&listen, "mysql://a@h/?sslmode=disable", "session", 2, "ssl-mode"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
            .args(["--listen", listen, "--server", url, "--mode", mode])
            .env_remove("MYSQL_PWD")
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(reason) && !stderr.contains("hunter2"), "{stderr}");
    }
}
