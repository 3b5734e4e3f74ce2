//! Clients that come by TLS.

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
use ciphertoll_wire::postgres::command::encode_query;
use ciphertoll_wire::postgres::startup::{encode_startup, encode_tls_request};
use ciphertoll_wire::postgres::{self, Encryption};
use ciphertoll_wire::{Secret, session::Login};
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::one;
use crate::operations::{await_that, second_user, settings, write_secret};
use crate::site::{LONG, Proxy, Site};

pub(crate) const CASES: [Case; 7] = [
    ("by TLS clients come with a password, and not without TLS", by_tls),
    ("a query that comes with the start-up is answered", impatient),
    ("clients come to several places, and to each in its own way", several),
    ("TLS may begin with the first byte", direct),
    ("what is no handshake ends its client only, and what came before it is not believed", no_handshake),
    ("a client's certificate lets its user in, and nobody else", certificates),
    ("the certificate in front is rotated, and no session ends", rotated),
];

/// Certificates and where they are.
pub(crate) struct Papers {
    directory: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl Papers {
    pub(crate) fn new() -> Self {
        let authority = Authority::generate().expect("an authority");
        let papers = Self { directory: tempfile::tempdir().expect("a directory"), authority };
        fs::write(papers.path("ca.pem"), papers.authority.certificate_pem().expect("PEM"))
            .expect("ours to write");
        papers.renew();
        papers
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Another certificate for the proxy.
    fn renew(&self) {
        self.write("proxy", &self.authority.issue(ServerKey::P256).expect("a certificate"));
    }

    pub(crate) fn write(&self, name: &str, certificate: &Certificate) {
        fs::write(self.path(&format!("{name}.pem")), &certificate.certificate_pem).expect("ours to write");
        let key = String::from_utf8(certificate.key_pem.clone()).expect("PEM is text");
        write_secret(&self.path(&format!("{name}.key")), &key);
    }

    /// What a proxy is told of its certificate.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let [certificate, key] = ["proxy.pem", "proxy.key"].map(|name| self.path(name).display().to_string());
        ["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key]
    }

    fn proxy(&self, site: &mut Site, more: &[&str]) -> Proxy {
        let own = self.arguments();
        let arguments = [&own.each_ref().map(String::as_str)[..], more].concat();
        site.proxy_at("tcp:127.0.0.1:0", &site.url(""), PathBuf::new(), 0, &arguments)
    }
}

/// psql by TCP, with these parts of its connection string.
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

fn assert_ends(output: &Output, is_let_in: bool, said: &str) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.success(), is_let_in, "{stderr}");
    assert!(
        if is_let_in { stdout.contains(said) } else { stderr.contains(said) },
        "{said}: {stdout}{stderr}"
    );
}

fn by_tls(site: &mut Site) {
    let papers = Papers::new();
    let proxy = papers.proxy(site, &[]);
    let password = String::from_utf8(site.password()).expect("text");
    let user = proxy.user.clone();
    let with = |mode: &str, ca: &Path| {
        vec![format!("user={user}"), format!("sslmode={mode}"), part("sslrootcert", ca)]
    };
    let ca = papers.path("ca.pem");
    assert_ends(&run(&proxy, &with("verify-full", &ca), &password), true, &user);
    assert_ends(&run(&proxy, &with("verify-full", &ca), "wrong"), false, "password authentication failed");
    assert_ends(&run(&proxy, &with("disable", &ca), &password), false, "by TLS only");
    let elsewhere = site.server().ca_file();
    assert_ends(
        &run(&proxy, &with("verify-full", &elsewhere), &password),
        false,
        "certificate verify failed",
    );
    // Much of it, both ways.
    let big = psql(&proxy, &with("verify-full", &ca), &password)
        .args(["-c", "SELECT length(repeat('x', 3000000))", "-c", "SELECT repeat('y', 3000000)"])
        .output()
        .expect("psql runs");
    assert!(big.stdout.len() > 3_000_000 && big.status.success(), "{}", String::from_utf8_lossy(&big.stderr));
}

fn impatient(site: &mut Site) {
    let proxy = site.proxy(&[]);
    // With a connection that is to be opened, and with one that is there.
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

fn several(site: &mut Site) {
    let mut proxy = site.proxy(&["--listen", "tcp:127.0.0.1:0", "--pool-size", "1"]);
    let line = proxy.await_line("event=listening");
    let port = line.split("at=tcp:127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    let socket = proxy.port;
    proxy.port = port.and_then(|digits| digits.parse().ok()).expect("a port");
    // A connection of the same pool, but not without a password.
    let mut by_tcp = proxy.tcp_client(site.password()).expect("the right password");
    assert_eq!(one(&mut by_tcp, "SELECT pg_backend_pid()"), process);
    drop(by_tcp);
    assert!(proxy.tcp_client(Vec::new()).is_err());
    proxy.port = socket;
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait().code(), Some(0));
    assert!(!proxy.socket().exists());
}

fn direct(site: &mut Site) {
    let papers = Papers::new();
    let proxy = papers.proxy(site, &[]);
    for (encryption, server) in [
        (Encryption::DirectTls, "127.0.0.1"),
        (Encryption::Tls, "127.0.0.1"),
        (Encryption::DirectTls, "127.0.0.9"),
    ] {
        let tls = tls::Settings {
            library: tls::TlsLibrary::OpenSsl,
            version: tls::TlsVersion::Tls13,
            verification: tls::Verification::Full,
            anchors: tls::TrustAnchors::File(papers.path("ca.pem")),
            peer: tls::PeerName::from(server),
            suite: None,
            group: None,
            security_level: tls::SecurityLevel::Default,
            resumption: tls::Resumption::Never,
            identity: None,
        };
        let login = Login::Postgres(Arc::new(postgres::Login {
            user: proxy.user.clone(),
            password: Secret::new(site.password()),
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

fn no_handshake(site: &mut Site) {
    let papers = Papers::new();
    let (_directory, file) = settings("[limits]\nlogin-time = \"3s\"\n");
    let mut proxy = papers.proxy(site, &["--config", &file]);
    let mut request = Vec::new();
    encode_tls_request(&mut request);
    let mut startup = Vec::new();
    encode_startup(&mut startup, &[("user", &proxy.user)]).expect("a start-up");
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        stream
    };
    // A start-up that came with the request is not taken for one that came by TLS.
    for behind in [&startup[..], b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = connect();
        stream.write_all(&[&request[..], behind].concat()).expect("it reads");
        let mut answer = Vec::new();
        // Whether it is closed in an orderly way is for the system to say: bytes were left unread.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer.first(), Some(&b'S'));
        // Nothing but TLS's own last words.
        assert!(answer.get(1).is_none_or(|byte| *byte == 0x15), "{answer:?}");
    }
    // One that says nothing more has its time, and no longer.
    let mut silent = connect();
    silent.write_all(&request).expect("it reads");
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).expect("the end");
    assert_eq!(answer, b"S");
    proxy.await_line("did not log in in time");
    let password = String::from_utf8(site.password()).expect("text");
    let parts = [format!("user={}", proxy.user), "sslmode=require".to_owned()];
    // The limit is a short one for psql, too.
    await_that("others are let in", || run(&proxy, &parts, &password).status.success());
    assert_ends(&run(&proxy, &parts, &password), true, &proxy.user);
}

fn certificates(site: &mut Site) {
    let papers = Papers::new();
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(site, directory.path());
    let ca = papers.path("ca.pem");
    let ca_text = ca.display().to_string();
    let proxy = papers.proxy(site, &["--config", &file, "--tls-client-ca", &ca_text]);
    let stranger = Authority::generate().expect("another authority");
    papers.write("own", &papers.authority.issue_to_client(&proxy.user).expect("a certificate"));
    papers.write("second", &papers.authority.issue_to_client(&second).expect("a certificate"));
    papers.write("stranger", &stranger.issue_to_client(&proxy.user).expect("a certificate"));
    for (user, shown, is_let_in, said) in [
        (&proxy.user, Some("own"), true, proxy.user.as_str()),
        (&second, Some("second"), true, &second),
        (&second, Some("own"), false, "certificate authentication failed for user \"second\""),
        // What is said of TLS is OpenSSL's.
        (&proxy.user, Some("stranger"), false, ""),
        (&proxy.user, None, false, ""),
    ] {
        let mut parts =
            vec![format!("user={user}"), "sslmode=verify-full".to_owned(), part("sslrootcert", &ca)];
        match shown {
            Some(name) => {
                parts.push(part("sslcert", &papers.path(&format!("{name}.pem"))));
                parts.push(part("sslkey", &papers.path(&format!("{name}.key"))));
            }
            None => parts.push("sslcert=/nowhere".to_owned()),
        }
        assert_ends(&run(&proxy, &parts, ""), is_let_in, said);
    }
}

/// A psql that waits for its statements.
fn standing(proxy: &Proxy, parts: &[String], password: &str) -> Child {
    let mut command = psql(proxy, parts, password);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs")
}

fn rotated(site: &mut Site) {
    let papers = Papers::new();
    let mut proxy = papers.proxy(site, &[]);
    let password = String::from_utf8(site.password()).expect("text");
    let parts = |ca: &Path| {
        vec![format!("user={}", proxy.user), "sslmode=verify-full".to_owned(), part("sslrootcert", ca)]
    };
    let (old, new) = (parts(&papers.path("ca.pem")), Papers::new());
    let new_parts = parts(&new.path("ca.pem"));
    let mut child = standing(&proxy, &old, &password);
    let mut stdin = child.stdin.take().expect("it was asked for");
    let mut lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    let mut ask = |sql: &str| {
        writeln!(stdin, "{sql};").expect("psql reads");
        lines.next().expect("an answer").expect("text")
    };
    let process = ask("SELECT pg_backend_pid()");
    for name in ["proxy.pem", "proxy.key"] {
        fs::copy(new.path(name), papers.path(name)).expect("ours to write");
    }
    proxy.signal(Signal::SIGHUP);
    proxy.await_line("event=reloaded");
    assert_eq!(ask("SELECT pg_backend_pid()"), process);
    assert_ends(&run(&proxy, &new_parts, &password), true, &proxy.user);
    assert_ends(&run(&proxy, &old, &password), false, "certificate verify failed");
    drop(stdin);
    assert!(child.wait().expect("psql ends").success());
}
