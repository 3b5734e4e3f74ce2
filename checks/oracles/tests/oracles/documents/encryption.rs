//! TLS: both clients accept the same servers, and servers accept the same clients.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ciphertoll_model::{Path, ServerKey, TlsVersion};
use ciphertoll_net::Address;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::extension::BasicConstraints;
use openssl::x509::{X509, X509Name};
use tempfile::NamedTempFile;

use super::oracle::{Failure, Find, Kind, with_each};
use super::ours::Ours;
use crate::fixture::{Fixture, TlsVisit, Visit};
use crate::logins::with_each_library;

/// Both drivers retry until this timeout.
const SHORT_TIME_LIMIT: Duration = Duration::from_secs(2);
/// On loopback, and in no certificate.
const UNNAMED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const UNNAMED_TEXT: &str = "127.0.0.2";

pub(super) fn tls(fixture: &mut Fixture) {
    with_each(fixture, |fixture, kind| {
        for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
            for key in [ServerKey::P256, ServerKey::Rsa2048] {
                let path = Path::tls(version, key);
                fixture.server.install_certificate(key).expect("a certificate");
                let visit = fixture.visit(path, kind.auth());
                assert_let_in(kind, &visit, &path.to_string());
            }
        }
        let visit = fixture.visit(Path::tls(TlsVersion::Tls13, ServerKey::P256), kind.auth());
        let stranger = authority();
        let other_authority = with_tls(&visit, |tls| stranger.path().clone_into(&mut tls.ca_file));
        assert_kept_out(kind, &other_authority, "another authority", "certificate");
        let relay = Relay::to(&visit.address);
        let elsewhere = Visit { address: Address::Tcp(relay.address), ..visit.clone() };
        let other_name = with_tls(&elsewhere, |tls| tls.peer = UNNAMED_TEXT);
        assert_kept_out(kind, &other_name, "a name that is in no certificate", "certificate");
        // The name was the reason: our client succeeds with the expected name.
        assert!(Ours::connect(&elsewhere).is_ok());
    });
}

pub(super) fn certificates_of_clients(fixture: &mut Fixture) {
    let mutual: Path = "tls1.3-p256+mtls".parse().expect("a path");
    let older: Path = "tls1.2-p256+mtls".parse().expect("a path");
    with_each(fixture, |fixture, kind| {
        for path in [mutual, older] {
            fixture.prepare_path(path, kind.auth());
            let visit = fixture.visit(path, kind.auth());
            assert_let_in(kind, &visit, "with a certificate");
            let without = with_tls(&visit, |tls| tls.identity = None);
            assert_kept_out(kind, &without, "without a certificate", "");
        }
        fixture.prepare_path(Path::tls(TlsVersion::Tls13, ServerKey::P256), kind.auth());
    });
}

pub(super) fn plaintext_where_tls_is_expected(fixture: &mut Fixture) {
    with_each(fixture, |fixture, kind| {
        let plain = fixture.visit(Path::Plain, kind.auth());
        let encrypted = fixture.visit(Path::tls(TlsVersion::Tls13, ServerKey::P256), kind.auth());
        let unencrypted = Visit { address: encrypted.address, ..plain.clone() };
        assert_kept_out(kind, &unencrypted, "plaintext to a port for TLS", "");
        assert_let_in(kind, &plain, "as before");
    });
}

fn with_tls(visit: &Visit, change: impl FnOnce(&mut TlsVisit)) -> Visit {
    let mut visit = visit.clone();
    change(visit.tls.as_mut().expect("a visit by TLS"));
    visit
}

#[track_caller]
fn assert_let_in(kind: &Kind, visit: &Visit, what: &str) {
    let find = Find::all("nothing");
    for visit in with_each_library(visit) {
        let mut ours = Ours::connect(&visit).unwrap_or_else(|failure| panic!("ours, {what}: {failure:?}"));
        assert!(ours.find(&find).is_ok_and(|found| found.is_empty()), "ours, {what}");
    }
    let mut oracle =
        kind.connect(visit).unwrap_or_else(|failure| panic!("{}, {what}: {failure:?}", kind.name()));
    assert_eq!(oracle.find(&find), Ok(Vec::new()), "{}, {what}", kind.name());
}

/// No client reaches a refusal by the server. If our client and the oracle report a reason, it contains `word`.
#[track_caller]
fn assert_kept_out(kind: &Kind, visit: &Visit, what: &str, word: &str) {
    let broken = |name: &str, failure: Option<Failure>| match failure {
        Some(Failure::Broken(reason)) => reason,
        other => panic!("{name}, {what}: {other:?}"),
    };
    let assert_refused = |name: &str, visit: &Visit, connect: &dyn Fn(&Visit) -> Option<Failure>| {
        let mut reason = broken(name, connect(&Visit { patience: SHORT_TIME_LIMIT, ..visit.clone() }));
        if !reason.contains(word) {
            // A driver that has not completed a handshake in this time reports no reason.
            reason = broken(name, connect(visit));
        }
        assert!(reason.contains(word), "{name}, {what}: {reason}");
    };
    for visit in with_each_library(visit) {
        assert_refused("ours", &visit, &|visit| Ours::connect(visit).err());
    }
    assert_refused(kind.name(), visit, &|visit| kind.connect(visit).err());
}

/// An authority that has signed nothing.
fn authority() -> NamedTempFile {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    let mut name = X509Name::builder().expect("a name");
    name.append_entry_by_text("CN", "another authority").expect("a name");
    let name = name.build();
    let mut builder = X509::builder().expect("a certificate");
    let serial = BigNum::from_u32(1).and_then(|number| number.to_asn1_integer()).expect("a number");
    builder.set_version(2).expect("a version");
    builder.set_serial_number(&serial).expect("a number");
    builder.set_subject_name(&name).expect("a name");
    builder.set_issuer_name(&name).expect("a name");
    builder.set_not_before(&Asn1Time::days_from_now(0).expect("now")).expect("a time");
    builder.set_not_after(&Asn1Time::days_from_now(1).expect("tomorrow")).expect("a time");
    builder.set_pubkey(&key).expect("a key");
    builder.append_extension(BasicConstraints::new().critical().ca().build().expect("CA")).expect("CA");
    builder.sign(&key, MessageDigest::sha256()).expect("a signature");
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(&builder.build().to_pem().expect("PEM")).expect("ours to write");
    file
}

/// Forwards bytes from an address that is not in the certificate to a server.
struct Relay {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Relay {
    fn to(server: &Address) -> Self {
        let Address::Tcp(server) = *server else { panic!("a private server has an address") };
        let listener = TcpListener::bind((UNNAMED, 0)).expect("loopback has many addresses");
        let (address, ended) = (listener.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&ended);
        thread::spawn(move || {
            for client in listener.incoming().take_while(|_| !over.load(Ordering::Relaxed)) {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                let both = [(&client, &server), (&server, &client)].map(|(from, to)| {
                    from.try_clone().and_then(|from| Ok((from, to.try_clone()?))).expect("descriptors")
                });
                for (from, to) in both {
                    thread::spawn(move || carry(from, to));
                }
            }
        });
        Self { address, ended }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a client.
        let _ = TcpStream::connect(self.address);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    // Both directions end together.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
