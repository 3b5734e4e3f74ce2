//! What `--check` and a start refuse before anything is sent: unusable TLS files and a missing password.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_lab::{Authority, Certificate};
use ciphertoll_model::ServerKey;
use ciphertoll_net::tls::FilePurpose;
use ciphertoll_proxy::ProtocolKind;
use tempfile::TempDir;

/// The command-line options that name TLS files.
const FLAGS: [(&str, FilePurpose); 3] = [
    ("tls-cert", FilePurpose::Certificate),
    ("tls-key", FilePurpose::Key),
    ("tls-client-ca", FilePurpose::Authorities),
];

#[derive(Clone, Copy, Debug)]
enum Fault {
    Missing,
    Empty,
    Directory,
    NotPem,
    /// The key of another certificate.
    Mismatched,
}

const FAULTS: [Fault; 5] = [Fault::Missing, Fault::Empty, Fault::Directory, Fault::NotPem, Fault::Mismatched];

struct TestFiles {
    directory: TempDir,
    /// Stands in for the server; nothing may connect to it.
    server: TcpListener,
    other_key: Vec<u8>,
}

impl TestFiles {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        server.set_nonblocking(true).expect("no waiting");
        let authority = Authority::generate().expect("an authority");
        let Certificate { certificate_pem, key_pem, .. } =
            authority.issue_to_client("app").expect("a certificate");
        let other = authority.issue(ServerKey::P256).expect("another");
        let files = Self { directory, server, other_key: other.key_pem };
        fs::write(files.good(FilePurpose::Authorities), authority.certificate_pem().expect("PEM"))
            .expect("a file");
        fs::write(files.good(FilePurpose::Certificate), certificate_pem).expect("a file");
        fs::write(files.good(FilePurpose::Key), key_pem).expect("a file");
        files
    }

    fn good(&self, purpose: FilePurpose) -> PathBuf {
        self.directory.path().join(format!("{purpose:?}.pem"))
    }

    fn bad(&self, purpose: FilePurpose, fault: Fault) -> Option<PathBuf> {
        let path = self.directory.path().join(format!("bad-{fault:?}.pem"));
        match fault {
            Fault::Missing => {}
            Fault::Empty => fs::write(&path, "").expect("a file"),
            Fault::Directory => fs::create_dir_all(&path).expect("a directory"),
            Fault::NotPem => fs::write(&path, "neither a certificate nor a key\n").expect("a file"),
            Fault::Mismatched if purpose == FilePurpose::Key => {
                fs::write(&path, &self.other_key).expect("a file");
            }
            Fault::Mismatched => return None,
        }
        Some(path)
    }

    fn url(&self, scheme: &str, options: &str) -> String {
        format!("{scheme}://app@{}/shop?{options}", self.server.local_addr().expect("an address"))
    }

    fn run(url: &str, more: &[String]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        command.args(["--listen", "tcp:127.0.0.1:0", "--server", url]).args(more).stdin(Stdio::null());
        command.env("CIPHERTOLL_PASSWORD", "secret").output().expect("it runs")
    }

    /// Checks the settings and starts with them: both fail in the same way.
    fn refuse(&self, url: &str, flags: &[String], path: &Path, option: &str) {
        for check in [&["--check".to_owned()][..], &[]] {
            let output = Self::run(url, &[flags, check].concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            let what = format!("{option} {} {check:?}: {stderr}", path.display());
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{what}");
            assert!(stderr.contains(&path.display().to_string()) && stderr.contains(option), "{what}");
            assert_eq!(stderr.trim_end().lines().count(), 1, "{what}");
            match self.server.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => panic!("{what}: something was sent: {other:?}"),
            }
        }
    }
}

#[test]
fn an_unusable_file_in_the_servers_url_is_refused() {
    let files = TestFiles::new();
    for (scheme, protocol, modes) in [
        ("postgres", ProtocolKind::Postgres, ["", "&sslmode=require", "&sslmode=verify-ca"]),
        ("mysql", ProtocolKind::MySql, ["", "&ssl-mode=REQUIRED", "&ssl-mode=VERIFY_CA"]),
    ] {
        let all = protocol.file_options();
        for (option, purpose) in all {
            for fault in FAULTS {
                let Some(path) = files.bad(purpose, fault) else { continue };
                let named = all.map(|(name, other)| {
                    let file = if name == option { path.clone() } else { files.good(other) };
                    format!("{name}={}", file.display())
                });
                for mode in modes {
                    files.refuse(&files.url(scheme, &(named.join("&") + mode)), &[], &path, option);
                }
            }
        }
    }
}

#[test]
fn a_url_that_protects_less_or_names_no_one_server_is_refused() {
    for (url, reason) in [
        (
            "postgres://app@h/?sslmode=require&sslrootcert=system",
            "sslmode=require does not verify the host name",
        ),
        (
            "postgres://app@h/?sslmode=verify-ca&sslrootcert=system",
            "write sslrootcert=FILE, or sslmode=verify-full",
        ),
        ("postgres://app@h/?sslmode=verify-ca", "sslmode=verify-ca does not verify the host name"),
        ("mysql://app@h/?ssl-mode=VERIFY_CA", "write ssl-ca=FILE, or ssl-mode=VERIFY_IDENTITY"),
        ("postgres://app@h/?channel_binding=require", "unknown option \"channel_binding\""),
        ("postgres://app@h1,h1/?sslmode=disable", "it names h1:5432 twice"),
        ("postgres://app@h1,/?sslmode=disable", "no host"),
        ("postgres://app@/?host=h1,h2&port=1,2,3&sslmode=disable", "2 hosts and 3 ports"),
        ("postgres://app@h1,h2/?target_session_attrs=master", "target_session_attrs cannot be \"master\""),
        ("mysql://app@h1,h2/?target_session_attrs=primary", "unknown option \"target_session_attrs\""),
        ("mysql://app@h1,h2/?load-balance-hosts=yes", "load-balance-hosts cannot be \"yes\""),
        ("postgres://app@h/shop?sslmode=disable#x", "a #"),
        ("postgres://app@%2Frun%2Fpg/shop", "a unix socket has no TLS"),
        ("postgres://app@/shop?sslmode=disable", "no host"),
    ] {
        let output = TestFiles::run(url, &["--check".to_owned()]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{url}: {stderr}");
        assert!(stderr.lines().next().is_some_and(|line| line.contains(reason)), "{url}: {stderr}");
    }
    for url in [
        "postgres://app@%2Frun%2Fpg/shop?sslmode=disable",
        "postgres://app@/shop?host=/run/pg&sslmode=disable",
        "postgres://app@%2Frun%2Fpg,%2Frun%2Fpg2/shop?sslmode=disable&target_session_attrs=read-write",
    ] {
        let output = TestFiles::run(url, &["--check".to_owned()]);
        assert_eq!(output.status.code(), Some(0), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The name of each test in the table of vulnerabilities is that of a test.
#[test]
fn the_tests_that_the_security_policy_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let policy = fs::read_to_string(root.join("SECURITY.md")).expect("it is there");
    let rows: Vec<&str> = policy.lines().filter(|line| line.starts_with("| CVE-")).collect();
    let quoted =
        |row: &str, mark: char| row.split(mark).skip(1).step_by(2).map(ToOwned::to_owned).collect::<Vec<_>>();
    let names: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            let tests = row.rsplit(" | ").next().unwrap_or_default();
            [quoted(tests, '"'), quoted(tests, '`')].concat()
        })
        .collect();
    assert!(rows.len() >= 15 && names.len() >= 14, "{names:?}");
    let mut directories: Vec<PathBuf> = ["sidecar/proxy/src", "sidecar/proxy/tests", "protocols/wire/tests"]
        .map(|path| root.join(path))
        .into();
    let mut code = String::new();
    while let Some(directory) = directories.pop() {
        for entry in
            fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path())
        {
            if entry.is_dir() {
                directories.push(entry);
            } else if entry.extension().is_some_and(|kind| kind == "rs") {
                code += &fs::read_to_string(entry).expect("text");
            }
        }
    }
    for name in names {
        let is_test =
            code.contains(&format!("(\"{name}\", ")) || code.contains(&format!("#[test]\nfn {name}()"));
        assert!(is_test, "no test has the name {name:?}");
    }
}

#[test]
fn an_unusable_file_for_client_tls_is_refused() {
    let files = TestFiles::new();
    let url = files.url("postgres", "sslmode=disable");
    for (option, purpose) in FLAGS {
        for fault in FAULTS {
            let Some(path) = files.bad(purpose, fault) else { continue };
            let flags = FLAGS.map(|(name, other)| {
                let file = if name == option { path.clone() } else { files.good(other) };
                format!("--{name}={}", file.display())
            });
            files.refuse(&url, &flags, &path, option);
        }
    }
}

#[test]
fn a_check_fails_if_a_password_is_missing() {
    let files = TestFiles::new();
    let check = ["--check".to_owned(), "--listen=unix:/nowhere/at/all/s".to_owned()];
    let unix = |url: &str, password: Option<(&str, &str)>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        command.args(&check).args(["--server", url]).stdin(Stdio::null());
        for variable in ["CIPHERTOLL_PASSWORD", "PGPASSWORD", "PGPASSFILE", "MYSQL_PWD"] {
            command.env_remove(variable);
        }
        command.env("HOME", files.directory.path()).envs(password).output().expect("it runs")
    };
    for (scheme, mode, own) in [
        ("postgres", "sslmode=disable", "PGPASSWORD, PGPASSFILE, ~/.pgpass"),
        ("mysql", "ssl-mode=DISABLED", "MYSQL_PWD"),
    ] {
        let url = files.url(scheme, mode);
        let output = unix(&url, None);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        let looked = format!("no password found for \"app\"; searched CIPHERTOLL_PASSWORD, {own}");
        assert!(stderr.contains(&looked), "{stderr}");
        // An empty password means that the server requires none.
        for password in ["x", ""] {
            let output = unix(&url, Some(("CIPHERTOLL_PASSWORD", password)));
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
    }
    let by_socket = "postgres://app@localhost/?host=/run/postgresql&sslmode=disable";
    assert_eq!(unix(by_socket, None).status.code(), Some(0), "a unix socket needs no password");
}
