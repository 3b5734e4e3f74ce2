//! Servers that a client must not take, and that it never takes in plaintext instead.

use std::fs;
use std::path::Path;

use ciphertoll_net::tls::{Context, Identity, PeerName, Settings, TlsLibrary, TlsVersion, TrustAnchors};
use ciphertoll_net::{Error, Fault};
use ciphertoll_wire::mysql::{self, Capabilities};
use ciphertoll_wire::session;
use openssl::ssl::SslVersion;

use crate::certificates::{Authority, Offer, ServerTls, Validity};
use crate::drivers::{Driver, USER};
use crate::server::{OFFERED, Server, greeting};

/// Why the client refused, and why the server thinks that it did.
fn refuse(driver: Driver, authority: &Authority, tls: ServerTls, settings: &Settings) -> (String, String) {
    let acceptor = authority.acceptor(tls);
    let server = Server::tcp(move |listener| {
        let mut peer = listener.accept();
        peer.greet();
        peer.await_tls_request();
        peer.start_tls(&acceptor).unwrap_err()
    });
    let error = driver.refusal(&server.address, Some(settings));
    assert!(matches!(error, Error::Tls(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Tls);
    (error.to_string(), server.join())
}

#[track_caller]
fn expect_certificate(outcome: (String, String), offer: Offer, reason: &str, alert: &str) {
    let (message, servers_view) = outcome;
    // The verifier of rustls, which only measurements use, has no details.
    let (words, _) = reason.split_once(':').unwrap_or((reason, ""));
    let reason = if offer.library == TlsLibrary::Rustls { words } else { reason };
    let expected = format!("TLS: the server's certificate does not verify: {reason}");
    assert!(message.starts_with(&expected), "{message}");
    assert!(servers_view.contains(alert), "the server was told: {servers_view}");
}

#[test]
fn certificates_of_another_authority() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            let outcome = refuse(driver, &theirs, ServerTls::default(), &ours.settings(offer));
            // Both are called the same: it is the signature that does not fit.
            let (message, servers_view) = outcome;
            assert!(message.contains("certificate does not verify"), "{message}");
            assert!(message.contains("certificate signature failure"), "{message}");
            assert!(servers_view.contains("alert"), "{servers_view}");
        }
    }
}

#[test]
fn certificates_for_another_name() {
    let authority = Authority::new();
    let names = [
        ("db.example", "hostname mismatch: it is for localhost, 127.0.0.1"),
        ("localhost.example", "hostname mismatch: it is for localhost, 127.0.0.1"),
        ("127.0.0.2", "IP address mismatch: it is for localhost, 127.0.0.1"),
        ("::1", "IP address mismatch: it is for localhost, 127.0.0.1"),
    ];
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            for (name, reason) in names {
                let settings = Settings { peer: PeerName::from(name), ..authority.settings(offer) };
                let outcome = refuse(driver, &authority, ServerTls::default(), &settings);
                expect_certificate(outcome, offer, reason, "bad certificate");
            }
        }
    }
}

#[test]
fn certificates_out_of_their_time() {
    let authority = Authority::new();
    let times = [
        (Validity::Expired, "certificate has expired: CN=localhost was valid until ", "certificate expired"),
        (Validity::NotYet, "certificate is not yet valid: CN=localhost is valid from ", "bad certificate"),
    ];
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            for (validity, reason, alert) in times {
                // To rustls both are the same alert, which is as good (RFC 8446, 6.2).
                let alert = if offer.library == TlsLibrary::Rustls { "certificate expired" } else { alert };
                let tls = ServerTls { validity, ..ServerTls::default() };
                let outcome = refuse(driver, &authority, tls, &authority.settings(offer));
                expect_certificate(outcome, offer, reason, alert);
            }
        }
    }
}

#[test]
fn another_version_than_the_one_offered() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            let only = match offer.version {
                TlsVersion::Tls10 | TlsVersion::Tls11 | TlsVersion::Tls12 => SslVersion::TLS1_3,
                TlsVersion::Tls13 => SslVersion::TLS1_2,
            };
            let tls = ServerTls { only: Some(only), ..ServerTls::default() };
            let (message, _) = refuse(driver, &authority, tls, &authority.settings(offer));
            assert!(message.contains("protocol version"), "{message}");
            assert!(message.contains(offer.version.label()), "{message}");
        }
    }
}

#[test]
fn no_tls_is_never_replaced_by_plaintext() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ONE_EACH {
            let server = Server::tcp(|listener| {
                let mut peer = listener.accept();
                peer.greet_offering(OFFERED.without(Capabilities::SSL));
                peer.read_to_end()
            });
            let error = driver.refusal(&server.address, Some(&authority.settings(offer)));
            assert!(
                matches!(error, Error::Protocol(session::Error::MySql(mysql::Error::TlsNotOffered))),
                "{error:?}"
            );
            assert_eq!(error.fault(), Fault::Server);
            assert_eq!(server.join(), b"", "{driver:?} answered");
        }
    }
}

/// "NO STARTTLS" (USENIX Security 2021): what comes in plaintext must not pass for encrypted.
#[test]
fn plaintext_with_the_greeting() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ONE_EACH {
            let server = Server::tcp(|listener| {
                let mut peer = listener.accept();
                let mut bytes = greeting(OFFERED);
                bytes.extend_from_slice(&[7, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
                peer.send(&bytes);
                peer.read_to_end()
            });
            let error = driver.refusal(&server.address, Some(&authority.settings(offer)));
            assert!(
                matches!(error, Error::Protocol(session::Error::MySql(mysql::Error::Protocol { .. }))),
                "{error:?}"
            );
            assert_eq!(error.fault(), Fault::Server);
            assert_eq!(server.join(), b"", "{driver:?} answered");
        }
    }
}

#[test]
fn plaintext_in_place_of_the_handshake() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            let server = Server::tcp(|listener| {
                let mut peer = listener.accept();
                peer.greet();
                peer.await_tls_request();
                // The OK that would end the login.
                peer.send(&[7, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]);
                peer.read_to_end()
            });
            let error = driver.refusal(&server.address, Some(&authority.settings(offer)));
            assert!(matches!(error, Error::Tls(_)), "{error:?}");
            let sent = server.join();
            let login = sent.windows(USER.len()).any(|bytes| bytes == USER.as_bytes());
            assert!(!login, "{driver:?} logged in in plaintext");
        }
    }
}

/// The caller's own mistakes are told before a byte is sent.
#[test]
fn settings_that_are_none() {
    let authority = Authority::new();
    let garbage = authority.file().with_file_name("garbage.pem");
    fs::write(&garbage, "no certificate").unwrap();
    let missing = authority.file().with_file_name("missing.pem");
    for offer in Offer::ALL {
        for file in [&garbage, &missing] {
            let anchors = TrustAnchors::File(file.clone());
            expect_unusable(file, &Settings { anchors, ..authority.settings(offer) });
            let identity = Some(Identity { certificate_file: file.clone(), ..authority.identity() });
            expect_unusable(file, &Settings { identity, ..authority.settings(offer) });
            let identity = Some(Identity { key_file: file.clone(), ..authority.identity() });
            expect_unusable(file, &Settings { identity, ..authority.settings(offer) });
        }
    }
}

/// The key of another certificate.
#[test]
fn an_identity_that_does_not_match() {
    let authority = Authority::new();
    let elsewhere = Authority::new();
    let key_file = elsewhere.identity().key_file;
    for offer in Offer::ALL {
        let identity = Identity { key_file: key_file.clone(), ..authority.identity() };
        expect_unusable(&key_file, &Settings { identity: Some(identity), ..authority.settings(offer) });
    }
}

#[track_caller]
fn expect_unusable(file: &Path, settings: &Settings) {
    let error = Context::build(settings).map(|_| ()).unwrap_err();
    assert_eq!(error.fault(), Fault::Caller);
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
}

/// An empty name would switch the check of names off, were it taken.
#[test]
fn names_that_are_none() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ONE_EACH {
            for name in ["", "local\0host"] {
                let server = Server::tcp(|listener| {
                    let mut peer = listener.accept();
                    peer.greet();
                    peer.await_tls_request();
                    peer.read_to_end()
                });
                let peer = PeerName::Dns(name.to_owned());
                let settings = Settings { peer, ..authority.settings(offer) };
                let error = driver.refusal(&server.address, Some(&settings));
                assert!(matches!(error, Error::TlsSettings(_)), "{error:?}");
                assert_eq!(error.fault(), Fault::Caller);
                server.join();
            }
        }
    }
}
