//! Authentication: users, passwords, TLS, certificates, and clients that change their user.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::Identity;
use ciphertoll_wire::mysql::auth::{caching_sha2, native_password};
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::server::write_payload;
use ciphertoll_wire::mysql::ssl_request::SslRequest;
use ciphertoll_wire::mysql::{Capabilities, Plugin, command};
use nix::sys::signal::Signal;
use openssl::sha::{sha1, sha256};

use super::Case;
use super::fixture::{Fixture, Proxy, SECOND, SECONDS_PASSWORD, code, one};
use super::raw::{RawClient, USUAL, UTF8MB4};
use crate::client_tls::TestCertificates;
use crate::drivers::{PYTHON, imports};
use crate::operations::{admin_address, await_that, get, samples, settings, write_secret};
use crate::process::LONG;

pub(crate) const CASES: [Case; 11] = [
    ("connections are not shared between users", users),
    ("the unix socket can require a password", unix_passwords),
    ("TLS clients need a password, and plaintext is refused", by_tls),
    ("a client certificate authenticates only its user", certificates),
    ("passwords and certificates change without ending sessions", reloaded),
    ("connections are opened in advance", warm_up),
    ("a client that changes its user keeps no session state", change_user),
    ("a change of the user is authenticated", change_is_proved),
    ("a failed TLS handshake closes only its client, and plaintext before TLS is ignored", no_handshake),
    ("settings are checked without serving", checked),
    ("session state changes are passed on unchanged", state_changes),
];

/// Cases in which idle clients must keep their connections.
pub(crate) const OF_SESSIONS: [Case; 1] = [("health and metrics", metrics)];

pub(super) const WITH_SECOND: &str = "[[user]]\nname = \"second\"\npassword-file = \"second\"\n";

/// The user, and the server's ID of the connection.
fn who(client: &mut Client) -> (String, String) {
    let row = one(client, "SELECT CONCAT(SUBSTRING_INDEX(USER(), '@', 1), ' ', CONNECTION_ID())");
    row.split_once(' ').map(|(user, number)| (user.to_owned(), number.to_owned())).expect("two words")
}

fn users(fixture: &mut Fixture) {
    let (directory, file) = settings(WITH_SECOND);
    let second = fixture.second_user(directory.path());
    let proxy = fixture.proxy(&["--config", &file, "--pool-size", "4"]);
    let mut owners = std::collections::BTreeMap::new();
    for _ in 0..20 {
        for user in [proxy.user.as_str(), second] {
            let (session, number) = who(&mut proxy.client_as(user, b"").expect("the login succeeds"));
            assert_eq!(session, user);
            let owner = owners.entry(number).or_insert_with(|| session.clone());
            assert_eq!(*owner, session, "a connection has served two users");
        }
    }
    let error = proxy.client_as("third", b"").err().expect("the user is unknown");
    assert!(error.to_string().contains("does not log in as 'third'"), "{error}");
    // Both users at the limit: an idle connection of the other user is evicted, not handed over.
    drop(proxy);
    let proxy = fixture.proxy(&["--config", &file, "--pool-size", "1"]);
    let (_, first) = who(&mut proxy.client());
    let (session, number) = who(&mut proxy.client_as(second, b"").expect("the login succeeds"));
    assert_eq!(session, second);
    assert_ne!(first, number);
}

fn unix_passwords(fixture: &mut Fixture) {
    let (directory, file) = settings(&format!("unix-auth = \"password\"\n{WITH_SECOND}"));
    let second = fixture.second_user(directory.path());
    let proxy = fixture.proxy(&["--config", &file]);
    let mode = fs::metadata(&proxy.socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    let own = fixture.password();
    for (user, password, succeeds) in [
        (proxy.user.as_str(), own.as_slice(), true),
        (second, SECONDS_PASSWORD.as_bytes(), true),
        (second, &own, false),
        (&proxy.user, SECONDS_PASSWORD.as_bytes(), false),
        (&proxy.user, b"", false),
        ("third", &own, false),
    ] {
        match proxy.client_as(user, password) {
            Ok(mut client) => assert_eq!((who(&mut client).0.as_str(), succeeds), (user, true)),
            Err(error) => {
                assert_eq!((code(&error), succeeds), (Some(1045), false), "{error}");
                let using = if password.is_empty() { "NO" } else { "YES" };
                let expected =
                    format!("Access denied for user '{user}'@'localhost' (using password: {using})");
                assert!(error.to_string().contains(&expected), "{error}");
            }
        }
    }
}

fn by_tls(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let proxy = tls_proxy(fixture, &certificates, &[]);
    let (own, ca, user) = (fixture.password(), certificates.path("ca.pem"), proxy.user.clone());
    for plugin in Plugin::ALL {
        let mut client = proxy.tls_client(&user, &own, Some(plugin), &ca, None).expect("the login succeeds");
        assert_eq!(who(&mut client).0, user);
        // Large values in both directions.
        let text = "x".repeat(3_000_000);
        assert_eq!(one(&mut client, &format!("SELECT '{text}'")).len(), text.len());
        for (user, password) in [(user.as_str(), &b"wrong"[..]), (&user, b""), ("third", b"wrong")] {
            let error = proxy.tls_client(user, password, Some(plugin), &ca, None).err();
            assert_eq!(error.as_ref().and_then(code), Some(1045), "{plugin:?}: {error:?}");
        }
    }
    let error = proxy.tcp_client(&user, own.clone()).err().expect("TLS is required");
    assert_eq!(code(&error), Some(3159), "{error}");
    let error = proxy.tls_client(&user, &own, None, &fixture.server().ca_file(), None).err();
    assert!(error.is_some_and(|error| error.to_string().contains("verif")), "another authority's");
    // The server's command-line client, which verifies the name.
    let ca = ca.display().to_string();
    let place = ["--no-defaults", "--protocol", "tcp", "--host", "127.0.0.1", "--ssl-verify-server-cert"];
    let output = Command::new("mariadb")
        .args(place)
        .args(["--port", &proxy.port.to_string(), "--user", &user, "--ssl-ca", &ca])
        .args(["--batch", "--skip-column-names", "--execute", "SELECT 6 * 7"])
        .env("MYSQL_PWD", String::from_utf8(own).expect("text"))
        .output();
    match output {
        Ok(output) => {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{output:?}");
        }
        Err(_) => ciphertoll_testing::missing("mariadb is not here: a part of the case"),
    }
}

fn tls_proxy(fixture: &Fixture, certificates: &TestCertificates, more: &[&str]) -> Proxy {
    let own = certificates.arguments();
    let arguments = [&own.each_ref().map(String::as_str)[..], more].concat();
    fixture.proxy_at("tcp:127.0.0.1:0", &fixture.url(), fixture.password(), PathBuf::new(), &arguments)
}

fn no_handshake(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let (_directory, file) = settings("[limits]\nlogin-time = \"3s\"\n");
    let mut proxy = tls_proxy(fixture, &certificates, &["--config", &file]);
    let head = SslRequest {
        capabilities: USUAL | Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::SSL,
        max_packet_bytes: 1 << 24,
        character_set: UTF8MB4,
    };
    let (mut payload, mut request, mut login) = (Vec::new(), Vec::new(), Vec::new());
    head.encode(&mut payload);
    write_payload(&mut request, 1, &payload).expect("it is short");
    payload.clear();
    let user = proxy.user.as_bytes();
    HandshakeResponse { head, user, auth_response: b"", database: None, plugin: None }.encode(&mut payload);
    write_payload(&mut login, 2, &payload).expect("it is short");
    let connect = || {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        let mut header = [0; 4];
        stream.read_exact(&mut header).expect("a greeting");
        let mut greeting = vec![0; usize::from(header[0])];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert!(Greeting::parse(&greeting).expect("a greeting").capabilities.contains(Capabilities::SSL));
        stream
    };
    // A login sent in plaintext with the TLS request does not count as sent over TLS.
    for behind in [&login[..], b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = connect();
        stream.write_all(&[&request[..], behind].concat()).expect("it reads");
        let mut answer = Vec::new();
        // The kernel may reset the connection, because bytes were left unread.
        let _ = stream.read_to_end(&mut answer);
        // At most a TLS alert.
        assert!(answer.first().is_none_or(|byte| *byte == 0x15), "{answer:?}");
    }
    // A client that stays silent is closed when its time is over.
    let mut silent = connect();
    silent.write_all(&request).expect("it reads");
    assert_eq!(silent.read_to_end(&mut Vec::new()).expect("the end"), 0);
    proxy.process.await_line("did not log in in time");
    // The short time limit holds for others, too.
    let mut logged_in = None;
    await_that("others can log in", || {
        let client =
            proxy.tls_client(&proxy.user, &fixture.password(), None, &certificates.path("ca.pem"), None);
        logged_in = client.ok();
        logged_in.is_some()
    });
    assert_eq!(one(&mut logged_in.expect("the login succeeds"), "SELECT 1"), "1");
}

fn metrics(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--admin", "tcp:127.0.0.1:0", "--idle-time", "0.3"]);
    let admin = admin_address(&proxy.process.log);
    let mut raw = proxy.raw();
    assert_eq!(raw.value("SELECT 'twelve bytes'"), "twelve bytes");
    change(&mut raw, &proxy.user, &proxy.database);
    raw.word();
    assert_eq!(raw.value("SELECT 1"), "1");
    assert!(proxy.client_as("third", b"").is_err());
    // The change of the user was another session of the same client.
    for (name, count) in [
        ("sessions_total", 2.0),
        ("clients_total", 2.0),
        ("clients{state=\"in_session\"}", 1.0),
        ("refusals_total{sqlstate=\"28000\"}", 1.0),
    ] {
        await_that(name, || is_sample(admin, name, count));
    }
    drop(raw);
    await_that("all are closed", || {
        let idle = samples(admin).into_iter().filter(|(name, _)| name.starts_with("server_connections{"));
        idle.map(|(_, count)| count).sum::<f64>() < 0.5
    });
    // A connection was open a moment ago.
    assert_eq!(get(admin, "/healthz").0, 200);
    let unreachable = format!("mysql://{}@127.0.0.1:1/x?ssl-mode=DISABLED", proxy.user);
    let proxy = fixture.proxy_to(&unreachable, Vec::new(), &["--admin", "tcp:127.0.0.1:0"]);
    let admin = admin_address(&proxy.process.log);
    await_that("it is told", || get(admin, "/healthz").0 == 503);
}

fn certificates(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let (directory, file) = settings(WITH_SECOND);
    let second = fixture.second_user(directory.path());
    let ca = certificates.path("ca.pem");
    let ca_text = ca.display().to_string();
    let proxy = tls_proxy(fixture, &certificates, &["--config", &file, "--tls-client-ca", &ca_text]);
    let other_authority = ciphertoll_lab::Authority::generate().expect("another authority");
    for (name, authority, user) in [
        ("own", &certificates.authority, proxy.user.as_str()),
        ("second", &certificates.authority, second),
        ("stranger", &other_authority, &proxy.user),
    ] {
        certificates.write(name, &authority.issue_to_client(user).expect("a certificate"));
    }
    let identity = |name: &str| Identity {
        certificate_file: certificates.path(&format!("{name}.pem")),
        key_file: certificates.path(&format!("{name}.key")),
    };
    for (user, shown, expected) in [
        (proxy.user.as_str(), Some("own"), Ok(())),
        (second, Some("second"), Ok(())),
        (second, Some("own"), Err(Some(1045))),
        // For TLS errors, the message is OpenSSL's.
        (&proxy.user, Some("stranger"), Err(None)),
        (&proxy.user, None, Err(None)),
    ] {
        for (plugin, password) in Plugin::ALL.into_iter().flat_map(|plugin| [(plugin, ""), (plugin, "x")]) {
            let client = proxy.tls_client(user, password.as_bytes(), Some(plugin), &ca, shown.map(identity));
            // In TLS 1.3 a client learns that it is refused when it next reads.
            let answer = client.and_then(|mut client| client.query("SELECT 1"));
            let answer = answer.map(drop).map_err(|error| code(&error));
            assert_eq!(answer, expected, "{user} with {shown:?}, {plugin:?}");
        }
    }
}

fn reloaded(fixture: &mut Fixture) {
    let (certificates, newer) = (TestCertificates::new(), TestCertificates::new());
    let (directory, file) = settings(WITH_SECOND);
    let second = fixture.second_user(directory.path());
    let mut proxy = tls_proxy(fixture, &certificates, &["--config", &file]);
    let (old, new) = (certificates.path("ca.pem"), newer.path("ca.pem"));
    let connect =
        |proxy: &Proxy, password: &str, ca| proxy.tls_client(second, password.as_bytes(), None, ca, None);
    let mut long_lived = connect(&proxy, SECONDS_PASSWORD, &old).expect("the login succeeds");
    // In a transaction the client keeps its connection in both modes.
    long_lived.execute("BEGIN").expect("a transaction");
    let (_, number) = who(&mut long_lived);
    let sql = format!("ALTER USER '{SECOND}'@'%' IDENTIFIED BY 'another one'");
    fixture.control().execute(&sql).expect("the control account may");
    write_secret(&directory.path().join(SECOND), "another one\n");
    for name in ["proxy.pem", "proxy.key"] {
        fs::copy(newer.path(name), certificates.path(name)).expect("ours to write");
    }
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    assert_eq!(who(&mut long_lived).1, number);
    assert!(connect(&proxy, "another one", &old).is_err(), "it has another certificate");
    let error = connect(&proxy, SECONDS_PASSWORD, &new).err().expect("it is the old password");
    assert_eq!(code(&error), Some(1045), "{error}");
    let mut next = connect(&proxy, "another one", &new).expect("the login succeeds");
    next.execute("BEGIN").expect("a transaction");
    assert_ne!(who(&mut next).1, number);
    long_lived.execute("COMMIT").expect("the end");
    drop(long_lived);
    proxy.process.await_line("it was opened with old settings");
    // A removed user is refused.
    fs::write(&file, "").expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    assert_eq!(one(&mut next, "SELECT 1"), "1");
    assert!(connect(&proxy, "another one", &new).is_err());
}

/// A driver with default settings has the capabilities of connections that are opened in advance.
fn default_capabilities(proxy: &Proxy) {
    if !imports("pymysql") {
        return ciphertoll_testing::missing("pymysql is not here (the package python3-pymysql)");
    }
    let program = "import pymysql, sys\n\
                   client = pymysql.connect(unix_socket=sys.argv[1], user=sys.argv[2], database=sys.argv[3])\n\
                   client.cursor().execute('SELECT 1')\n";
    let mut python = Command::new(PYTHON);
    python.args(["-c", program]).arg(&proxy.socket).args([&proxy.user, &proxy.database]);
    assert!(python.status().expect("it runs").success());
}

fn warm_up(fixture: &mut Fixture) {
    let arguments = ["--warm-up", "2", "--idle-time", "0.3", "--admin", "tcp:127.0.0.1:0"];
    let mut proxy = fixture.proxy(&arguments);
    let admin = admin_address(&proxy.process.log);
    let database = &proxy.database.clone();
    let idle =
        format!("server_connections{{user=\"{}\",database=\"{database}\",state=\"idle\"}}", proxy.user);
    let is = |count: f64| is_sample(admin, &idle, count);
    await_that("two are there", || is(2.0));
    default_capabilities(&proxy);
    await_that("both are told of", || proxy.process.count("event=server-connected") >= 2);
    assert_eq!(proxy.process.count("event=server-connected"), 2, "there was one for it");
    // These clients have other capabilities; after the first one, connections in advance have them, too.
    let terms = USUAL | Capabilities::FOUND_ROWS;
    let first = proxy
        .try_raw(terms, UTF8MB4, Some(database))
        .expect("the login succeeds")
        .value("SELECT CONNECTION_ID()");
    await_that("two are left", || is(2.0));
    let mut raws =
        [(); 2].map(|()| proxy.try_raw(terms, UTF8MB4, Some(database)).expect("the login succeeds"));
    let numbers = raws.each_mut().map(|raw| raw.value("SELECT CONNECTION_ID()"));
    assert!(numbers.contains(&first), "{numbers:?}");
    drop(raws);
    await_that("they are kept", || is(2.0));
    // A lost connection is replaced although no client waits for one.
    let mut raw = proxy.try_raw(terms, UTF8MB4, Some(database)).expect("the login succeeds");
    let own = raw.value("SELECT CONNECTION_ID()");
    let other = numbers.into_iter().find(|number| *number != own).expect("there are two");
    raw.query(&format!("KILL {other}"));
    raw.word();
    drop(raw);
    let opened = samples(admin)["connects_total"];
    await_that("it is replaced", || is(2.0) && samples(admin)["connects_total"] >= opened);
}

fn is_sample(admin: std::net::SocketAddr, name: &str, count: f64) -> bool {
    let samples = samples(admin);
    (samples.get(name).copied().unwrap_or_default() - count).abs() < 0.5
}

/// Changes the user, with this response for this plugin.
fn change_by(raw: &mut RawClient, user: &str, database: &str, plugin: &[u8], proof: &[u8]) {
    let mut bytes = Vec::new();
    encode_change(&mut bytes, user, database, plugin, proof);
    raw.send(&bytes);
}

fn encode_change(bytes: &mut Vec<u8>, user: &str, database: &str, plugin: &[u8], proof: &[u8]) {
    let change = ChangeUser {
        user: user.as_bytes(),
        auth_response: proof,
        database: database.as_bytes(),
        character_set: Some(u16::from(UTF8MB4)),
        plugin: Some(plugin),
    };
    change.encode(bytes).expect("it is short");
}

fn change(raw: &mut RawClient, user: &str, database: &str) {
    change_by(raw, user, database, native_password::NAME, b"");
}

fn change_user(fixture: &mut Fixture) {
    let (directory, file) = settings(WITH_SECOND);
    let second = fixture.second_user(directory.path());
    let mut proxy = fixture.proxy(&["--config", &file, "--pool-size", "2"]);
    let database = proxy.database.clone();
    let mut raw = proxy.raw();
    for round in 0..3 {
        for user in [second, &proxy.user.clone()] {
            raw.query("SET @mine = 1, time_zone = '+09:00'");
            raw.word();
            raw.query("BEGIN");
            raw.word();
            change(&mut raw, user, &database);
            let (sequence, ok) = raw.packet().expect("an answer");
            assert_eq!((sequence, ok[0]), (1, 0), "{round}");
            let sql = "SELECT CONCAT_WS(' ', SUBSTRING_INDEX(USER(), '@', 1), IFNULL(@mine, '-'), @@time_zone = \
                       @@global.time_zone, DATABASE())";
            assert_eq!(raw.value(sql), format!("{user} - 1 {database}"));
            // The client keeps its connection ID.
            raw.query(&format!("KILL QUERY {}", raw.connection_id));
            assert_eq!(RawClient::error(&raw.results()), Some(1317));
        }
    }
    assert_eq!(proxy.process.count("unknown"), 0);
    // An unknown user is refused, and the connection ends.
    change(&mut raw, "third", &database);
    let (sequence, answer) = raw.packet().expect("a refusal");
    assert_eq!((sequence, RawClient::error(&[answer])), (1, Some(1045)));
    assert!(raw.packet().is_err(), "it ends after that");
    // Byte by byte, and to a database that does not exist.
    let mut raw = proxy.raw();
    let mut bytes = Vec::new();
    let missing = ChangeUser {
        user: second.as_bytes(),
        auth_response: b"",
        database: b"no_such_database",
        character_set: None,
        plugin: None,
    };
    missing.encode(&mut bytes).expect("it is short");
    for byte in &bytes {
        raw.send(std::slice::from_ref(byte));
    }
    assert!(matches!(RawClient::error(&[raw.word()]), Some(1044 | 1049)));
    // Behind a command that is not answered yet: that is answered first.
    let mut raw = proxy.raw();
    let mut bytes = Vec::new();
    command::encode_query_on(raw.capabilities, &mut bytes, "SELECT SLEEP(0.3)").expect("it is short");
    encode_change(&mut bytes, second, &database, native_password::NAME, b"");
    raw.send(&bytes);
    assert_eq!(RawClient::error(&raw.results()), None);
    assert!(matches!(raw.word()[0], 0 | 0xfe), "the change is accepted, or asks for a proof");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

/// The response of `mysql_native_password` ("Native Authentication").
fn proof(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let once = sha1(password);
    let mask = sha1(&[nonce, &sha1(&once)].concat());
    once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
}

fn change_is_proved(fixture: &mut Fixture) {
    let (directory, file) = settings(&format!("unix-auth = \"password\"\n{WITH_SECOND}"));
    let second = fixture.second_user(directory.path());
    let proxy = fixture.proxy(&["--config", &file]);
    let own = fixture.password();
    for (user, password, succeeds) in [
        (second, SECONDS_PASSWORD.as_bytes(), true),
        (&proxy.user, own.as_slice(), true),
        (second, &own, false),
        (second, b"", false),
        ("third", &own, false),
    ] {
        // By a plugin that needs only the greeting's challenge, and by another one.
        for (plugin, verdict_number) in [(native_password::NAME, 1), (&b"client_ed25519"[..], 3)] {
            let database = Some(proxy.database.as_str());
            let raw = RawClient::log_in_with(&proxy.socket, &proxy.user, &own, database, USUAL, UTF8MB4);
            let mut raw = raw.expect("the login succeeds");
            let answer = if password.is_empty() { Vec::new() } else { proof(password, &raw.nonce) };
            change_by(&mut raw, user, &proxy.database, plugin, &answer);
            if verdict_number == 3 {
                prove_by_another_plugin(&mut raw, password);
            }
            let (mut sequence, mut verdict) = raw.packet().expect("a verdict");
            assert_eq!(sequence, verdict_number, "{verdict:?}");
            if verdict == [1, caching_sha2::FAST_OK] {
                (sequence, verdict) = raw.packet().expect("a verdict");
                assert_eq!(sequence, verdict_number + 1);
            }
            if succeeds {
                assert_eq!(verdict[0], 0);
                assert_eq!(raw.value("SELECT SUBSTRING_INDEX(USER(), '@', 1)"), user);
            } else {
                assert_eq!(RawClient::error(&[verdict]), Some(1045), "{user}");
                assert!(raw.packet().is_err(), "it ends after that");
            }
        }
    }
}

/// Answers the request for another plugin.
fn prove_by_another_plugin(raw: &mut RawClient, password: &[u8]) {
    let (sequence, switch) = raw.packet().expect("a challenge");
    assert_eq!((sequence, switch[0]), (1, 0xfe));
    let nonce = raw.nonce.clone();
    let plugin = switch[1..].split(|byte| *byte == 0).next().expect("a name");
    assert!(switch.ends_with(&[&nonce[..], b"\0"].concat()), "the greeting's challenge: {switch:?}");
    let answer = match plugin {
        _ if password.is_empty() => Vec::new(),
        native_password::NAME => proof(password, &nonce),
        caching_sha2::NAME => {
            let once = sha256(password);
            let mask = sha256(&[&sha256(&once)[..], &nonce].concat());
            once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
        }
        other => panic!("{other:?}"),
    };
    let mut bytes = Vec::new();
    write_payload(&mut bytes, 2, &answer).expect("it is short");
    raw.send(&bytes);
}

fn checked(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let own = certificates.arguments();
    let (directory, file) = settings(&format!("unix-auth = \"password\"\nwarm-up = 2\n{WITH_SECOND}"));
    write_secret(&directory.path().join("second"), "x");
    let check = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
            .args(["--check", "--config", &file, "--server", &fixture.url(), "--listen", "unix:/nowhere/s"])
            .args(more)
            .env("MYSQL_PWD", "x")
            .output()
            .expect("it runs")
    };
    let tls = [&["--listen", "tcp:0.0.0.0:0"], &own.each_ref().map(String::as_str)[..]].concat();
    let output = check(&tls);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.starts_with("ok\n") && stdout.contains("unix-auth = \"password\""), "{stdout}");
    let output = check(&["--unix-auth", "scram"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("set \"password\""), "{stderr}");
}

fn state_changes(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1"]);
    // Several times: later clients have a connection that was reset.
    for _ in 0..3 {
        let mut raw = proxy.raw_with(USUAL | Capabilities::SESSION_TRACK);
        assert!(raw.capabilities.contains(Capabilities::SESSION_TRACK));
        for (sql, output) in [
            ("USE information_schema", &b"information_schema"[..]),
            ("SET autocommit = 0", b"\x0aautocommit\x03OFF"),
            ("SET character_set_results = latin1", b"\x15character_set_results\x06latin1"),
        ] {
            raw.query(sql);
            let ok = raw.word();
            // SERVER_SESSION_STATE_CHANGED, and the change.
            assert!(ok[0] == 0 && ok[4] & 0x40 != 0, "{sql}: {ok:?}");
            assert!(ok.windows(output.len()).any(|part| part == output), "{sql}: {ok:?}");
        }
    }
}
