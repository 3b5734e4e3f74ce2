//! How much of the server's certificate is verified, and whose authorities it is held against.

use std::env;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use ciphertoll_net::tls::{Context, PeerName, Settings, TrustAnchors, Verification};
use ciphertoll_net::{Error, Fault};
use openssl::ssl::{NameType, SslVersion};
use tempfile::TempDir;

use crate::certificates::{Authority, Offer, ServerTls, Validity};
use crate::drivers::Driver;
use crate::server::{Goodbye, Server};

const OPENSSL: [Offer; 2] = [Offer::OPENSSL_1_2, Offer::OPENSSL_1_3];
const RUSTLS: [Offer; 2] = [Offer::RUSTLS_1_2, Offer::RUSTLS_1_3];
const LESS: [Verification; 2] = [Verification::Authority, Verification::Off];

/// Set in a process whose system's authorities are in this file.
const SYSTEM_FILE: &str = "CIPHERTOLL_TEST_SYSTEM_AUTHORITIES";

/// A client of these settings takes a server of this authority; the name in its SNI.
fn takes(driver: Driver, authority: &Authority, tls: ServerTls, settings: &Settings) -> Option<String> {
    let acceptor = authority.acceptor(tls);
    let server = Server::tcp(move |listener| {
        let peer = listener.accept().log_in(Some(&acceptor));
        let name = peer.tls().servername(NameType::HOST_NAME).map(ToOwned::to_owned);
        (name, peer.goodbye())
    });
    driver.connect_tls(&server.address, settings).unwrap().close().unwrap();
    let (name, goodbye) = server.join();
    assert_eq!(goodbye, Goodbye::Orderly);
    name
}

/// Why it does not.
fn refuses(driver: Driver, authority: &Authority, tls: ServerTls, settings: &Settings) -> String {
    let acceptor = authority.acceptor(tls);
    let server = Server::tcp(move |listener| {
        let mut peer = listener.accept();
        peer.greet();
        peer.await_tls_request();
        peer.start_tls(&acceptor).unwrap_err()
    });
    let error = driver.refusal(&server.address, Some(settings));
    assert_eq!(error.fault(), Fault::Tls);
    server.join();
    error.to_string()
}

#[test]
fn another_name() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in OPENSSL {
            for (name, sni) in [("db.example", Some("db.example")), ("127.0.0.2", None)] {
                let settings = |verification| Settings {
                    verification,
                    peer: PeerName::from(name),
                    ..authority.settings(offer)
                };
                let reason = refuses(driver, &authority, ServerTls::default(), &settings(Verification::Full));
                assert!(reason.contains("mismatch"), "{reason}");
                for verification in LESS {
                    let sent = takes(driver, &authority, ServerTls::default(), &settings(verification));
                    assert_eq!(sent.as_deref(), sni, "{verification:?}");
                }
            }
        }
    }
}

#[test]
fn another_authority() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    for driver in Driver::ALL {
        for offer in OPENSSL {
            let settings = |verification| Settings { verification, ..ours.settings(offer) };
            for verification in [Verification::Full, Verification::Authority] {
                let reason = refuses(driver, &theirs, ServerTls::default(), &settings(verification));
                assert!(reason.contains("certificate does not verify"), "{verification:?}: {reason}");
            }
            takes(driver, &theirs, ServerTls::default(), &settings(Verification::Off));
        }
    }
}

#[test]
fn another_time() {
    let authority = Authority::new();
    let expired = ServerTls { validity: Validity::Expired, ..ServerTls::default() };
    for offer in OPENSSL {
        let settings = |verification| Settings { verification, ..authority.settings(offer) };
        let reason = refuses(Driver::Loop, &authority, expired, &settings(Verification::Authority));
        assert!(reason.contains("certificate has expired"), "{reason}");
        takes(Driver::Loop, &authority, expired, &settings(Verification::Off));
    }
}

/// Authorities that nothing is held against are not read.
#[test]
fn authorities_that_are_not_needed() {
    let authority = Authority::new();
    let anchors = TrustAnchors::File(PathBuf::from("/nowhere/ca.pem"));
    let settings = |verification| Settings {
        verification,
        anchors: anchors.clone(),
        ..authority.settings(Offer::OPENSSL_1_3)
    };
    let error = Context::build(&settings(Verification::Authority)).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::TlsSettings(_)), "{error:?}");
    takes(Driver::Blocking, &authority, ServerTls::default(), &settings(Verification::Off));
}

/// What OpenSSL found of a certificate that nobody looks at is not why a connection fails.
#[test]
fn another_failure_is_not_blamed_on_the_certificate() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    for driver in Driver::ALL {
        let settings = Settings { verification: Verification::Off, ..ours.settings(Offer::OPENSSL_1_3) };
        let old = ServerTls { only: Some(SslVersion::TLS1_2), ..ServerTls::default() };
        let reason = refuses(driver, &theirs, old, &settings);
        assert!(reason.contains("protocol version"), "{reason}");
        let acceptor = theirs.acceptor(ServerTls::default());
        let server = Server::tcp(move |listener| {
            let mut peer = listener.accept();
            peer.greet();
            peer.await_tls_request();
            peer.start_tls(&acceptor).unwrap();
            peer.await_login();
            peer.wire().write_all(b"this is no TLS record").unwrap();
            peer.read_to_end()
        });
        let error = driver.refusal(&server.address, Some(&settings));
        assert!(matches!(error, Error::Tls(_)), "{error:?}");
        assert!(!error.to_string().contains("certificate"), "{error}");
        server.join();
    }
}

#[test]
fn rustls_verifies_all_or_nothing_begins() {
    let authority = Authority::new();
    for offer in RUSTLS {
        for verification in LESS {
            let settings = Settings { verification, ..authority.settings(offer) };
            let error = Context::build(&settings).map(|_| ()).unwrap_err();
            assert_eq!(
                error.to_string(),
                "cannot build the TLS context: rustls verifies the whole chain and the name; less verification needs OpenSSL"
            );
            assert_eq!(error.fault(), Fault::Caller);
        }
    }
}

/// Where the system's authorities are is read from the environment, which only a process of its own has to itself.
#[test]
fn the_systems_authorities() {
    let authority = Authority::new();
    let settings = |offer| Settings { anchors: TrustAnchors::System, ..authority.settings(offer) };
    if let Some(file) = env::var_os(SYSTEM_FILE) {
        fs::copy(authority.file(), file).unwrap();
        for offer in Offer::ALL {
            takes(Driver::Loop, &authority, ServerTls::default(), &settings(offer));
        }
        return;
    }
    for offer in Offer::ALL {
        let reason = refuses(Driver::Loop, &authority, ServerTls::default(), &settings(offer));
        assert!(reason.contains("certificate does not verify"), "{offer:?}: {reason}");
    }
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("system.pem");
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "verification::the_systems_authorities"])
        .env(SYSTEM_FILE, &file)
        .env("SSL_CERT_FILE", &file)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(file.exists(), "the test did not run in the child");
}
