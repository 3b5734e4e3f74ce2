//! Clients that connect over TLS.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use ciphertoll_lab::{Authority, Certificate};
use ciphertoll_model::ServerKey;
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::command::encode_query;
use ciphertoll_wire::postgres::startup::{encode_startup, encode_tls_request};
use ciphertoll_wire::postgres::{self, PostgresTlsMode};
use ciphertoll_wire::session::Login;
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, Proxy};
use crate::operations::{await_that, second_user, settings, write_secret};
use crate::process::LONG;

pub(crate) const CASES: [Case; 7] = [
    ("TLS clients need a password, and plaintext is refused", by_tls),
    ("a query sent together with the startup message is answered", early_query),
    ("each listen address has its own authentication", several),
    ("TLS can start with the first byte", direct),
    ("a failed TLS handshake closes only its client, and plaintext before TLS is ignored", no_handshake),
    ("a client certificate authenticates only its user", certificates),
    ("the client-facing certificate is rotated without ending sessions", rotated),
];

/// An authority, certificates, and their files.
pub(crate) struct TestCertificates {
    directory: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl TestCertificates {
    pub(crate) fn new() -> Self {
        let authority = Authority::generate().expect("an authority");
        let certificates = Self { directory: tempfile::tempdir().expect("a directory"), authority };
        fs::write(certificates.path("ca.pem"), certificates.authority.certificate_pem().expect("PEM"))
            .expect("ours to write");
        certificates.renew();
        certificates
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Issues a new certificate for the proxy.
    fn renew(&self) {
        self.write("proxy", &self.authority.issue(ServerKey::P256).expect("a certificate"));
    }

    pub(crate) fn write(&self, name: &str, certificate: &Certificate) {
        fs::write(self.path(&format!("{name}.pem")), &certificate.certificate_pem).expect("ours to write");
        let key = String::from_utf8(certificate.key_pem.clone()).expect("PEM is text");
        write_secret(&self.path(&format!("{name}.key")), &key);
    }

    /// The TLS arguments of a proxy.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let [certificate, key] = ["proxy.pem", "proxy.key"].map(|name| self.path(name).display().to_string());
        ["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key]
    }

    /// A client that verifies the proxy by this authority.
    pub(crate) fn tls_client(
        &self,
        proxy: &Proxy,
        password: Vec<u8>,
    ) -> Result<Client, ciphertoll_net::Error> {
        let tls = tls::Settings::new(
            tls::TlsParameters::new(tls::TlsVersion::Tls13),
            tls::TrustAnchors::File(self.path("ca.pem")),
            tls::PeerName::from("127.0.0.1"),
        );
        let login = Login::Postgres(Arc::new(postgres::PostgresLogin {
            startup: Vec::new(),
            user: proxy.user.clone(),
            password: Secret::new(password),
            database: Some(proxy.database.clone()),
            encryption: PostgresTlsMode::Tls,
            channel_binding: postgres::ChannelBinding::Preferred,
        }));
        let context = tls::Context::build(&tls).expect("a context");
        Client::connect(&Address::Tcp(([127, 0, 0, 1], proxy.port).into()), login, Some(&context))
    }

    fn proxy(&self, fixture: &mut Fixture, more: &[&str]) -> Proxy {
        let own = self.arguments();
        let arguments = [&own.each_ref().map(String::as_str)[..], more].concat();
        fixture.proxy_at("tcp:127.0.0.1:0", &fixture.url(""), PathBuf::new(), 0, &arguments)
    }
}

/// psql over TCP, with these parts of its connection string.
fn psql(proxy: &Proxy, parts: &[String], password: &str) -> Command {
    let place = format!("host=127.0.0.1 port={} dbname={} {}", proxy.port, proxy.database, parts.join(" "));
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", &place]);
    command.env("PGPASSWORD", password).stdin(Stdio::null());
    command
}

fn run(proxy: &Proxy, parts: &[String], password: &str) -> Output {
    psql(proxy, parts, password).args(["-c", "SELECT session_user"]).output().expect("psql runs")
}

fn part(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

fn assert_ends(output: &Output, succeeds: bool, expected: &str) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.success(), succeeds, "{stderr}");
    assert!(
        if succeeds { stdout.contains(expected) } else { stderr.contains(expected) },
        "{expected}: {stdout}{stderr}"
    );
}

fn by_tls(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let proxy = certificates.proxy(fixture, &[]);
    let password = String::from_utf8(fixture.password()).expect("text");
    let user = proxy.user.clone();
    let with = |mode: &str, ca: &Path| {
        vec![format!("user={user}"), format!("sslmode={mode}"), part("sslrootcert", ca)]
    };
    let ca = certificates.path("ca.pem");
    assert_ends(&run(&proxy, &with("verify-full", &ca), &password), true, &user);
    assert_ends(&run(&proxy, &with("verify-full", &ca), "wrong"), false, "password authentication failed");
    assert_ends(&run(&proxy, &with("disable", &ca), &password), false, "requires TLS");
    let elsewhere = fixture.server().ca_file();
    assert_ends(
        &run(&proxy, &with("verify-full", &elsewhere), &password),
        false,
        "certificate verify failed",
    );
    // Large values in both directions.
    let big = psql(&proxy, &with("verify-full", &ca), &password)
        .args(["-c", "SELECT length(repeat('x', 3000000))", "-c", "SELECT repeat('y', 3000000)"])
        .output()
        .expect("psql runs");
    assert!(big.stdout.len() > 3_000_000 && big.status.success(), "{}", String::from_utf8_lossy(&big.stderr));
}

fn early_query(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&[]);
    // First with a connection that must be opened, then with one that is open.
    for _ in 0..2 {
        let mut bytes = Vec::new();
        encode_startup(&mut bytes, &[("user", &proxy.user), ("database", &proxy.database)])
            .expect("a start-up");
        encode_query(&mut bytes, "SELECT 42").expect("a query");
        let mut raw = proxy.raw_silent();
        raw.send(&bytes);
        assert_eq!(raw.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
        let answer = raw.answer();
        assert!(answer.iter().any(|(kind, row)| *kind == b'D' && row.ends_with(b"42")), "{answer:?}");
    }
}

fn several(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--listen", "tcp:127.0.0.1:0", "--pool-size", "1"]);
    let line = proxy.process.await_line("event=listening");
    let port = line.split("at=tcp:127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    let socket = proxy.port;
    proxy.port = port.and_then(|digits| digits.parse().ok()).expect("a port");
    // A connection of the same pool, but only with a password.
    let mut by_tcp = proxy.tcp_client(fixture.password()).expect("the right password");
    assert_eq!(one(&mut by_tcp, "SELECT pg_backend_pid()"), process);
    drop(by_tcp);
    assert!(proxy.tcp_client(Vec::new()).is_err());
    proxy.port = socket;
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(proxy.process.wait().code(), Some(0));
    assert!(!proxy.socket().exists());
}

fn direct(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let proxy = certificates.proxy(fixture, &[]);
    for (encryption, server) in [
        (PostgresTlsMode::DirectTls, "127.0.0.1"),
        (PostgresTlsMode::Tls, "127.0.0.1"),
        (PostgresTlsMode::DirectTls, "127.0.0.9"),
    ] {
        let tls = tls::Settings::new(
            tls::TlsParameters::new(tls::TlsVersion::Tls13),
            tls::TrustAnchors::File(certificates.path("ca.pem")),
            tls::PeerName::from(server),
        );
        let login = Login::Postgres(Arc::new(postgres::PostgresLogin {
            startup: Vec::new(),
            user: proxy.user.clone(),
            password: Secret::new(fixture.password()),
            database: Some(proxy.database.clone()),
            encryption,
            channel_binding: postgres::ChannelBinding::Preferred,
        }));
        let context = tls::Context::build(&tls).expect("a context");
        let address = Address::Tcp(([127, 0, 0, 1], proxy.port).into());
        match Client::connect(&address, login, Some(&context)) {
            Ok(mut client) => {
                assert_eq!((server, one(&mut client, "SELECT 42").as_str()), ("127.0.0.1", "42"));
            }
            Err(error) => assert_eq!(server, "127.0.0.9", "{error}"),
        }
    }
}

fn no_handshake(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let (_directory, file) = settings("[limits]\nlogin-time = \"3s\"\n");
    let mut proxy = certificates.proxy(fixture, &["--config", &file]);
    let mut request = Vec::new();
    encode_tls_request(&mut request);
    let mut startup = Vec::new();
    encode_startup(&mut startup, &[("user", &proxy.user)]).expect("a start-up");
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        stream
    };
    // A startup message sent in plaintext with the TLS request does not count as sent over TLS.
    for behind in [&startup[..], b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = connect();
        stream.write_all(&[&request[..], behind].concat()).expect("it reads");
        let mut answer = Vec::new();
        // The kernel may reset the connection, because bytes were left unread.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer.first(), Some(&b'S'));
        // At most a TLS alert.
        assert!(answer.get(1).is_none_or(|byte| *byte == 0x15), "{answer:?}");
    }
    // A client that stays silent is closed when its time is over.
    let mut silent = connect();
    silent.write_all(&request).expect("it reads");
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).expect("the end");
    assert_eq!(answer, b"S");
    proxy.process.await_line("did not log in in time");
    let password = String::from_utf8(fixture.password()).expect("text");
    let parts = [format!("user={}", proxy.user), "sslmode=require".to_owned()];
    // The short time limit holds for psql, too.
    await_that("others can log in", || run(&proxy, &parts, &password).status.success());
    assert_ends(&run(&proxy, &parts, &password), true, &proxy.user);
}

fn certificates(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let ca = certificates.path("ca.pem");
    let ca_text = ca.display().to_string();
    let proxy = certificates.proxy(fixture, &["--config", &file, "--tls-client-ca", &ca_text]);
    let other_authority = Authority::generate().expect("another authority");
    certificates.write("own", &certificates.authority.issue_to_client(&proxy.user).expect("a certificate"));
    certificates.write("second", &certificates.authority.issue_to_client(&second).expect("a certificate"));
    certificates.write("stranger", &other_authority.issue_to_client(&proxy.user).expect("a certificate"));
    for (user, shown, succeeds, expected) in [
        (&proxy.user, Some("own"), true, proxy.user.as_str()),
        (&second, Some("second"), true, &second),
        (&second, Some("own"), false, "certificate authentication failed for user \"second\""),
        // For TLS errors, the message is OpenSSL's.
        (&proxy.user, Some("stranger"), false, ""),
        (&proxy.user, None, false, ""),
    ] {
        let mut parts =
            vec![format!("user={user}"), "sslmode=verify-full".to_owned(), part("sslrootcert", &ca)];
        match shown {
            Some(name) => {
                parts.push(part("sslcert", &certificates.path(&format!("{name}.pem"))));
                parts.push(part("sslkey", &certificates.path(&format!("{name}.key"))));
            }
            None => parts.push("sslcert=/nowhere".to_owned()),
        }
        assert_ends(&run(&proxy, &parts, ""), succeeds, expected);
    }
}

/// A psql process that waits for statements.
fn long_lived(proxy: &Proxy, parts: &[String], password: &str) -> Child {
    let mut command = psql(proxy, parts, password);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs")
}

fn rotated(fixture: &mut Fixture) {
    let certificates = TestCertificates::new();
    let mut proxy = certificates.proxy(fixture, &[]);
    let password = String::from_utf8(fixture.password()).expect("text");
    let parts = |ca: &Path| {
        vec![format!("user={}", proxy.user), "sslmode=verify-full".to_owned(), part("sslrootcert", ca)]
    };
    let (old, new) = (parts(&certificates.path("ca.pem")), TestCertificates::new());
    let new_parts = parts(&new.path("ca.pem"));
    let mut child = long_lived(&proxy, &old, &password);
    let mut stdin = child.stdin.take().expect("it was asked for");
    let mut lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    let mut ask = |sql: &str| {
        writeln!(stdin, "{sql};").expect("psql reads");
        lines.next().expect("an answer").expect("text")
    };
    let process = ask("SELECT pg_backend_pid()");
    for name in ["proxy.pem", "proxy.key"] {
        fs::copy(new.path(name), certificates.path(name)).expect("ours to write");
    }
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    assert_eq!(ask("SELECT pg_backend_pid()"), process);
    assert_ends(&run(&proxy, &new_parts, &password), true, &proxy.user);
    assert_ends(&run(&proxy, &old, &password), false, "certificate verify failed");
    drop(stdin);
    assert!(child.wait().expect("psql ends").success());
}
