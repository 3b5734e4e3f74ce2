//! Files that URLs name for TLS: one that cannot be used ends the command before anything is sent. And a URL that asks for
//! TLS never leads to a login in plaintext.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use ciphertoll_lab::{Authority, Certificate};
use ciphertoll_model::{Endpoint, Engine, ServerKey, ServerUrl, UrlFileContent, UrlFileOption};

use crate::support::{Answer, answer, ciphertoll, is_root, one_document, text};
use crate::url::{Elsewhere, cells, engines_here, real_server};

/// What can be wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Missing,
    Empty,
    Directory,
    Unreadable,
    /// No certificate, or no key.
    NotPem,
    /// Another certificate's key.
    Mismatched,
}

const FAULTS: [Fault; 6] =
    [Fault::Missing, Fault::Empty, Fault::Directory, Fault::Unreadable, Fault::NotPem, Fault::Mismatched];

/// Good files, and bad ones.
struct Files {
    directory: tempfile::TempDir,
    authority: Vec<u8>,
    client: Certificate,
    other: Certificate,
}

impl Files {
    fn new() -> Self {
        let authority = Authority::generate().expect("an authority");
        let client = authority.issue_to_client("app").expect("a certificate");
        let other = authority.issue(ServerKey::P256).expect("another certificate");
        let authority = authority.certificate_pem().expect("PEM");
        Self { directory: tempfile::tempdir().expect("a directory"), authority, client, other }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).expect("write a file");
        path
    }

    fn good(&self, content: UrlFileContent) -> PathBuf {
        let Certificate { certificate_pem, key_pem, .. } = &self.client;
        match content {
            UrlFileContent::Authorities => self.write("good-ca.pem", &self.authority),
            UrlFileContent::Certificate => self.write("good-cert.pem", certificate_pem),
            UrlFileContent::Key => self.write("good-key.pem", key_pem),
            UrlFileContent::CertificateAndKey => {
                self.write("good-both.pem", &[&certificate_pem[..], key_pem].concat())
            }
        }
    }

    /// `None`: a file with that content cannot be wrong in that way, or root can read it all the same.
    fn bad(&self, content: UrlFileContent, fault: Fault) -> Option<PathBuf> {
        let path = self.directory.path().join(format!("bad-{fault:?}"));
        match fault {
            Fault::Missing => Some(path),
            Fault::Empty => Some(self.write("bad-Empty", b"")),
            Fault::NotPem => Some(self.write("bad-NotPem", b"neither a certificate nor a key\n")),
            Fault::Directory => {
                fs::create_dir_all(&path).expect("make a directory");
                Some(path)
            }
            Fault::Unreadable if is_root() => None,
            Fault::Unreadable => {
                let good = fs::read(self.good(content)).expect("a good file");
                if !path.exists() {
                    self.write("bad-Unreadable", &good);
                }
                fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("forbid reading");
                Some(path)
            }
            Fault::Mismatched => match content {
                UrlFileContent::Authorities | UrlFileContent::Certificate => None,
                UrlFileContent::Key => Some(self.write("bad-Mismatched", &self.other.key_pem)),
                UrlFileContent::CertificateAndKey => {
                    let both = [&self.client.certificate_pem[..], &self.other.key_pem].concat();
                    Some(self.write("bad-Mismatched", &both))
                }
            },
        }
    }

    /// The options of a URL whose files are all valid, except the one that `bad` names.
    fn options(&self, all: &[UrlFileOption], bad: &UrlFileOption, path: &Path) -> String {
        let option = |option: &UrlFileOption| {
            let good = self.good(option.content);
            let path = if option == bad { path } else { &good };
            format!("{}={}", option.name, text(path))
        };
        all.iter().map(option).collect::<Vec<_>>().join("&")
    }
}

/// What a URL of `scheme` can say of TLS in addition to files.
fn modes(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "postgres" | "postgresql" => {
            &["", "&sslmode=require", "&sslmode=verify-ca", "&sslmode=verify-full", "&sslmode=compare"]
        }
        "mysql" | "mariadb" => &[
            "",
            "&ssl-mode=REQUIRED",
            "&ssl-mode=VERIFY_CA",
            "&ssl-mode=VERIFY_IDENTITY",
            "&ssl-mode=COMPARE",
        ],
        "mongodb" | "ferretdb" => &["", "&tls=true", "&tls=compare", "&tlsAllowInvalidHostnames=true"],
        other => panic!("{other}:// is new: list what it can say of TLS"),
    }
}

/// A port where no connection may arrive.
struct Silent(TcpListener);

impl Silent {
    fn listen() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("no waiting");
        Self(listener)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    #[track_caller]
    fn assert_untouched(&self, what: &str) {
        match self.0.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{what}: something was sent: {other:?}"),
        }
    }
}

#[track_caller]
fn assert_refused(answer: &Answer, option: &str, path: &Path, what: &str) {
    assert_eq!(answer.code, Some(2), "{what}: {answer:?}");
    let line = answer.one_line();
    assert!(line.contains(text(path)) && line.contains(option), "{what}: {line}");
}

#[test]
fn a_file_for_tls_that_cannot_be_used_ends_the_command_before_anything_is_sent() {
    let (files, server) = (Files::new(), Silent::listen());
    let place = files.directory.path();
    let mut tried = 0;
    for (scheme, all) in ServerUrl::file_options() {
        for option in all {
            for fault in FAULTS {
                let Some(path) = files.bad(option.content, fault) else { continue };
                // What is wrong with a file does not depend on the mode.
                let modes = if fault == Fault::Missing { modes(scheme) } else { &modes(scheme)[..1] };
                for mode in modes {
                    let options = files.options(all, option, &path) + mode;
                    let url = format!("{scheme}://app@{}/shop?{options}", server.address());
                    let refused = answer(&["run", "--url", &format!("there={url}")], place);
                    let what = format!("{scheme} {} {fault:?} {mode}", option.name);
                    assert_refused(&refused, option.name, &path, &what);
                    server.assert_untouched(&what);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried >= 100, "{tried}");
    assert!(!place.join("ciphertoll-runs").exists(), "nothing half-made is left");
}

#[test]
fn a_specification_and_a_dry_run_check_the_files_too() {
    let (files, server) = (Files::new(), Silent::listen());
    let place = files.directory.path();
    for (scheme, all) in ServerUrl::file_options() {
        for option in all {
            let path = files.bad(option.content, Fault::Missing).expect("a path");
            let url = format!("{scheme}://app@{}/?{}", server.address(), files.options(all, option, &path));
            let toml = files.write("spec.toml", format!("[[grid]]\nserver = [\"there={url}\"]\n").as_bytes());
            let by_flag = format!("there={url}");
            for arguments in [&["run", text(&toml)][..], &["run", "--dry-run", "--url", &by_flag]] {
                let what = format!("{scheme} {} {arguments:?}", option.name);
                assert_refused(&answer(arguments, place), option.name, &path, &what);
                server.assert_untouched(&what);
            }
        }
    }
}

/// The bytes that clients have sent, connection by connection.
type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// A relay before a server.
struct Relay {
    address: SocketAddr,
    sent: Sent,
}

impl Relay {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let (address, sent) = (listener.local_addr().expect("an address"), Sent::default());
        let all = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let number = {
                    let mut all = all.lock().expect("no panic");
                    all.push(Vec::new());
                    all.len() - 1
                };
                let (from_client, to_server) = (client.try_clone(), server.try_clone());
                let noted = Arc::clone(&all);
                thread::spawn(move || {
                    pass(&from_client.expect("a socket"), &to_server.expect("a socket"), |bytes| {
                        noted.lock().expect("no panic")[number].extend_from_slice(bytes);
                    });
                });
                thread::spawn(move || pass(&server, &client, |_| {}));
            }
        });
        Self { address, sent }
    }

    /// Takes what was sent since the last call.
    fn take(&self) -> Vec<Vec<u8>> {
        self.sent.lock().expect("no panic").iter_mut().map(std::mem::take).collect()
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, mut note: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        // Noted before it is passed on: what was answered is noted.
        note(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn has(sent: &[Vec<u8>], needle: &str) -> bool {
    sent.iter().any(|bytes| bytes.windows(needle.len()).any(|window| window == needle.as_bytes()))
}

fn words(engine: Engine) -> [&'static str; 2] {
    match engine {
        Engine::Postgres => ["sslrootcert", "sslmode"],
        _ => ["ssl-ca", "ssl-mode"],
    }
}

#[test]
fn a_url_that_asks_for_tls_never_leads_to_a_login_in_plaintext() {
    for engine in engines_here() {
        let there = Elsewhere::start(engine);
        let Endpoint::Tcp(server) = there.server.tcp_endpoint() else { panic!("no TCP") };
        let relay = Relay::before(server);
        let user = there.server.user().to_owned();
        assert!(user.len() >= 6, "{user} could be in a ciphertext by chance");
        let url = |options: &str| {
            there
                .url("127.0.0.1", options)
                .replace(&server.port().to_string(), &relay.address.port().to_string())
        };
        let ([authority, mode], ca_file) = (words(engine), there.ca_file());
        let strict = if engine == Engine::Postgres { "verify-full" } else { "VERIFY_IDENTITY" };
        let required = if engine == Engine::Postgres { "require" } else { "REQUIRED" };
        let compare = if engine == Engine::Postgres { "compare" } else { "COMPARE" };
        let disabled = if engine == Engine::Postgres { "disable" } else { "DISABLED" };
        // The password is wrong, so that every TLS version that the URL permits is tried.
        for options in [
            format!("{authority}={ca_file}"),
            format!("{authority}={ca_file}&{mode}={required}"),
            format!("{authority}={ca_file}&{mode}={strict}"),
            format!("{mode}={required}"),
            // No plaintext to compare with TLS where TLS is refused.
            format!("{authority}={ca_file}&{mode}={compare}"),
        ] {
            let refused = there.run_with("wrong", &url(&options), &["--path", "plain,tls1.3"]);
            assert_eq!(refused.code, Some(7), "{engine} {options}: {refused:?}");
            let sent = relay.take();
            assert!(!sent.is_empty() && !has(&sent, &user), "{engine} {options}: a plaintext login");
        }
        let plain = there.run_with("wrong", &url(&format!("{mode}={disabled}")), &["--path", "plain"]);
        assert_eq!(plain.code, Some(7), "{engine}: {plain:?}");
        assert!(has(&relay.take(), &user), "{engine}: the relay would have seen a plaintext login");
        let answer = there.run(&url(&format!("{authority}={ca_file}")), &["--workload", "connect"]);
        assert!(matches!(answer.code, Some(0 | 6)), "{engine}: {answer:?}");
        let ids = cells(&one_document(&answer.stdout), "rate_per_s");
        let encrypted = |id: &str| id.starts_with("there/tls1.");
        assert!(!ids.is_empty() && ids.iter().all(|(id, _)| encrypted(id)), "{engine}: {ids:?}");
        assert!(!has(&relay.take(), &user), "{engine}: a plaintext login in a run");
    }
}

/// Accepts connections, notes the first byte of each, and closes them.
fn first_bytes() -> (SocketAddr, Sent) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let (address, sent) = (listener.local_addr().expect("an address"), Sent::default());
    let all = Arc::clone(&sent);
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut first = [0];
            if let Ok(1) = client.read(&mut first) {
                all.lock().expect("no panic").push(first.to_vec());
            }
        }
    });
    (address, sent)
}

#[test]
fn a_url_of_documents_that_names_a_file_for_tls_sends_nothing_but_tls() {
    const HANDSHAKE: u8 = 0x16;
    let (files, (address, sent)) = (Files::new(), first_bytes());
    let place = files.directory.path();
    let (_, all) = ServerUrl::file_options().find(|(scheme, _)| *scheme == "mongodb").expect("the scheme");
    let is_tls = |options: &str| {
        let url = format!("there=mongodb://app@{address}/?{options}");
        let refused = answer(&["run", "--url", &url], place);
        assert_eq!(refused.code, Some(7), "{options}: {refused:?}");
        let sent = std::mem::take(&mut *sent.lock().expect("no panic"));
        assert!(!sent.is_empty(), "{options}: nothing was sent");
        sent.iter().all(|first| *first == [HANDSHAKE])
    };
    for option in all {
        let file = format!("{}={}", option.name, text(&files.good(option.content)));
        assert!(is_tls(&file) && is_tls(&format!("{file}&tls=compare")), "{file}");
    }
    assert!(!is_tls("tls=false"), "plaintext would have been seen");
}

/// An earlier version measured plaintext, too, where a URL named a file and no mode. Its plans have such cells.
#[test]
fn a_plan_of_an_earlier_version_leads_to_no_plaintext_either() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    let Endpoint::Tcp(server) = there.server.tcp_endpoint() else { panic!("no TCP") };
    let relay = Relay::before(server);
    let url = there
        .url("127.0.0.1", &format!("sslmode=compare&sslrootcert={}", there.ca_file()))
        .replace(&server.port().to_string(), &relay.address.port().to_string());
    let measured = there.run(&url, &["--workload", "connect", "--path", "plain,tls1.3"]);
    assert!(matches!(measured.code, Some(0 | 6)), "{measured:?}");
    assert!(has(&relay.take(), there.server.user()), "plaintext was asked for, and was measured");
    let mut runs = fs::read_dir(there.runs()).expect("runs").flatten();
    let run = runs.next().expect("a run").path();
    let plan = fs::read_to_string(run.join("plan.json")).expect("a plan");
    fs::write(run.join("plan.json"), plan.replace("sslmode=compare&", "")).expect("another plan");
    let events = fs::read_to_string(run.join("events.jsonl")).expect("events");
    let first = events.lines().next().expect("an event").to_owned() + "\n";
    fs::write(run.join("events.jsonl"), first).expect("a run that has just begun");
    let mut command = ciphertoll(&["resume", text(&run), "-q"]);
    let output = command.env("CIPHERTOLL_PASSWORD", there.password()).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("requires TLS; sslmode=compare measures plaintext, too"), "{stderr}");
    // A busy machine may void the trials with TLS.
    assert!(matches!(output.status.code(), Some(5 | 6)), "{stderr}");
    let sent = relay.take();
    assert!(!sent.is_empty() && !has(&sent, there.server.user()), "a plaintext login");
}
