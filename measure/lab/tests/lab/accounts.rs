//! Accounts that not every server supports: MariaDB's plugins, and client certificates.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use ciphertoll_lab::{Authority, ClientAccount, Error, Server, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine, ExitCode, Identity};

use ciphertoll_testing::{missing, not_for_all};

use crate::common::QueryText;
use crate::fixture::{Fixture, Way, connect, connect_as};

/// The logged-in user, or an error.
fn user(server: &Server, auth: Auth, way: Way) -> String {
    let sql = "SELECT current_user";
    let mut client = connect(server, auth, way).unwrap_or_else(|error| panic!("{auth} {way:?}: {error}"));
    client.query_text(sql).expect("an answer").expect("a name")
}

#[test]
fn plugins_of_mariadb_log_in_or_the_error_names_what_is_missing() {
    for fixture in Fixture::all(Engine::MariaDb) {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        for auth in [Auth::Ed25519, Auth::Parsec] {
            match server.prepare_auth(auth) {
                Ok(()) => logs_in_with_the_password_only(&mut server, auth),
                Err(error) => {
                    assert!(matches!(error, Error::AuthUnavailable { .. }), "{error}");
                    assert_eq!(error.exit_code(), ExitCode::NothingRan);
                    let reason = error.to_string();
                    let version = &fixture.build.version;
                    let too_old = format!("MariaDB {version} has no parsec: it requires 11.6");
                    assert!(reason == too_old || reason.contains("package mariadb-server"), "{reason}");
                    assert!(auth == Auth::Parsec || reason != too_old, "{reason}");
                    not_for_all(&reason);
                }
            }
        }
    }
}

fn logs_in_with_the_password_only(server: &mut Server, auth: Auth) {
    server.prepare_auth(auth).expect("once more is nothing new");
    for way in [Way::Unix, Way::Plain, Way::Tls] {
        let client = connect(server, auth, way).unwrap_or_else(|error| panic!("{auth} {way:?}: {error}"));
        assert_eq!(client.server().auth_label(), auth.to_string());
        let wrong = ClientAccount {
            password_file: server.account(Auth::Trust).password_file,
            ..server.account(auth)
        };
        assert!(connect_as(server, wrong, way).is_err(), "{auth} {way:?}");
    }
    let password = fs::read_to_string(server.password_file()).expect("the password is readable");
    let data = server.password_file().with_file_name("data");
    let told = Command::new("grep").args(["-rqF", &password]).arg(&data).status().expect("grep runs");
    assert!(!told.success(), "the server stores the password");
}

#[test]
fn a_certificate_logs_in_its_own_account_only() {
    for fixture in Engine::SQL.into_iter().flat_map(Fixture::all) {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        let default = Auth::default_of(server.engine());
        server.prepare_auth(Auth::Trust).unwrap();
        for _ in 0..2 {
            server.prepare_auth(Auth::Cert).unwrap();
            let account = server.account(Auth::Cert);
            assert!(user(&server, Auth::Cert, Way::Tls).starts_with(&account.user));
            let refused = |account: &ClientAccount, way| connect_as(&server, account.clone(), way).is_err();
            assert!(refused(&account, Way::Plain) && refused(&account, Way::Unix));
            assert!(refused(&ClientAccount { identity: None, ..account.clone() }, Way::Tls));
            let stranger = stranger_of(&fixture, &account);
            assert!(refused(&stranger, Way::Tls), "another authority vouches for the same name");
            server.prepare_auth(default).unwrap();
            assert!(user(&server, default, Way::Tls).starts_with(&server.account(default).user));
        }
        if server.engine() == Engine::Postgres {
            let without_request = connect(&server, Auth::Cert, Way::Tls);
            assert!(without_request.is_err(), "the certificate is asked for only where it is measured");
        }
    }
}

/// A certificate for the same name, signed by another authority.
fn stranger_of(fixture: &Fixture, account: &ClientAccount) -> ClientAccount {
    let certificate = Authority::generate()
        .and_then(|authority| authority.issue_to_client(&account.user))
        .expect("a certificate");
    let directory = fixture.lab.scratch().path();
    let identity = Identity {
        certificate_file: directory.join("stranger.pem"),
        key_file: directory.join("stranger-key.pem"),
    };
    fs::write(&identity.certificate_file, certificate.certificate_pem).expect("ours to write");
    fs::write(&identity.key_file, certificate.key_pem).expect("ours to write");
    ClientAccount { identity: Some(identity), ..account.clone() }
}

#[test]
fn only_clients_with_a_certificate_get_a_certificate_request() {
    for fixture in Fixture::all(Engine::Postgres) {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        let default = Auth::default_of(Engine::Postgres);
        for (auth, expected) in [(default, false), (Auth::Cert, true), (Auth::Trust, false)] {
            server.prepare_auth(auth).unwrap();
            let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
            let Some(asked) = asks_for_a_certificate(address) else {
                return missing("openssl is not on the PATH");
            };
            assert_eq!(asked, expected, "{auth}");
        }
    }
}

/// As `openssl s_client` sees it.
fn asks_for_a_certificate(address: SocketAddr) -> Option<bool> {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-starttls", "postgres", "-msg", "-connect", &address.to_string()]);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    assert!(messages.contains("ServerHello"), "{messages}");
    Some(messages.contains("CertificateRequest"))
}
