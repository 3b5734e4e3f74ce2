//! What `--check` and a start refuse before anything is sent: files for TLS that cannot be used, and a missing password.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_lab::{Authority, Certificate};
use ciphertoll_model::ServerKey;
use ciphertoll_net::tls::FilePurpose;
use ciphertoll_proxy::Protocol;
use tempfile::TempDir;

/// The options of the command line that name files for TLS.
const FLAGS: [(&str, FilePurpose); 3] = [
    ("tls-cert", FilePurpose::Certificate),
    ("tls-key", FilePurpose::Key),
    ("tls-client-ca", FilePurpose::Authorities),
];

/// What can be wrong with a file.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Missing,
    Empty,
    Directory,
    NotPem,
    /// Another certificate's key.
    Mismatched,
}

const FAULTS: [Fault; 5] = [Fault::Missing, Fault::Empty, Fault::Directory, Fault::NotPem, Fault::Mismatched];

struct Place {
    directory: TempDir,
    /// Stands for the server, and may not be connected to.
    server: TcpListener,
    other_key: Vec<u8>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        server.set_nonblocking(true).expect("no waiting");
        let authority = Authority::generate().expect("an authority");
        let Certificate { certificate_pem, key_pem, .. } =
            authority.issue_to_client("app").expect("a certificate");
        let other = authority.issue(ServerKey::P256).expect("another");
        let place = Self { directory, server, other_key: other.key_pem };
        fs::write(place.good(FilePurpose::Authorities), authority.certificate_pem().expect("PEM"))
            .expect("a file");
        fs::write(place.good(FilePurpose::Certificate), certificate_pem).expect("a file");
        fs::write(place.good(FilePurpose::Key), key_pem).expect("a file");
        place
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

    /// With a password, checked and started: both end in the same way.
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
fn a_file_of_the_servers_url_that_cannot_be_used_is_refused() {
    let place = Place::new();
    for (scheme, protocol, modes) in [
        ("postgres", Protocol::Postgres, ["", "&sslmode=require", "&sslmode=verify-ca"]),
        ("mysql", Protocol::MySql, ["", "&ssl-mode=REQUIRED", "&ssl-mode=VERIFY_CA"]),
    ] {
        let all = protocol.file_options();
        for (option, purpose) in all {
            for fault in FAULTS {
                let Some(path) = place.bad(purpose, fault) else { continue };
                let named = all.map(|(name, other)| {
                    let file = if name == option { path.clone() } else { place.good(other) };
                    format!("{name}={}", file.display())
                });
                for mode in modes {
                    place.refuse(&place.url(scheme, &(named.join("&") + mode)), &[], &path, option);
                }
            }
        }
    }
}

#[test]
fn a_file_for_clients_tls_that_cannot_be_used_is_refused() {
    let place = Place::new();
    let url = place.url("postgres", "sslmode=disable");
    for (option, purpose) in FLAGS {
        for fault in FAULTS {
            let Some(path) = place.bad(purpose, fault) else { continue };
            let flags = FLAGS.map(|(name, other)| {
                let file = if name == option { path.clone() } else { place.good(other) };
                format!("--{name}={}", file.display())
            });
            place.refuse(&url, &flags, &path, option);
        }
    }
}

#[test]
fn a_check_without_a_password_where_one_is_needed_fails() {
    let place = Place::new();
    let check = ["--check".to_owned(), "--listen=unix:/nowhere/at/all/s".to_owned()];
    let unix = |url: &str, password: Option<(&str, &str)>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        command.args(&check).args(["--server", url]).stdin(Stdio::null());
        for variable in ["CIPHERTOLL_PASSWORD", "PGPASSWORD", "PGPASSFILE", "MYSQL_PWD"] {
            command.env_remove(variable);
        }
        command.env("HOME", place.directory.path()).envs(password).output().expect("it runs")
    };
    for (scheme, mode, own) in [
        ("postgres", "sslmode=disable", "PGPASSWORD, PGPASSFILE, ~/.pgpass"),
        ("mysql", "ssl-mode=DISABLED", "MYSQL_PWD"),
    ] {
        let url = place.url(scheme, mode);
        let output = unix(&url, None);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        let looked = format!("no password found for \"app\"; looked in CIPHERTOLL_PASSWORD, {own}");
        assert!(stderr.contains(&looked), "{stderr}");
        // One that is there and empty says that the server asks for none.
        for password in ["x", ""] {
            let output = unix(&url, Some(("CIPHERTOLL_PASSWORD", password)));
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
    }
    let by_socket = "postgres://app@localhost/?host=/run/postgresql&sslmode=disable";
    assert_eq!(unix(by_socket, None).status.code(), Some(0), "its process is known");
}
