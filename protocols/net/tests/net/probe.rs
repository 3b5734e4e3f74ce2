//! What a server says that it accepts is what it was configured with.

use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ciphertoll_net::{AcceptedTls, Error, MAX_PROBE_CONNECTIONS, ProbePart, ProbeTarget, Probed, probe};
use ciphertoll_wire::passive::DatabaseProtocol;
use openssl::ssl::{NameType, SniError, SslAcceptor, SslOptions, SslVersion};

use crate::certificates::{Authority, Key, ServerTls};
use crate::drivers::TIME_LIMIT;

const TLS_1_0: u16 = 0x0301;
const TLS_1_1: u16 = 0x0302;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

/// A server that answers each connection until it is stopped.
struct Answering {
    address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Answering {
    fn start(answer: impl Fn(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let thread = thread::spawn(move || {
            let connections = listener.incoming().map(Result::unwrap);
            let served = connections.take_while(|_| !stopped.load(Ordering::SeqCst)).map(|stream| {
                stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
                answer(stream);
            });
            served.count()
        });
        Self { address, is_stopped, thread }
    }

    /// With TLS from the first byte, as MongoDB's.
    fn tls(acceptor: SslAcceptor) -> Self {
        // A probe ends most handshakes.
        Self::start(move |stream| drop(acceptor.accept(stream).map(|mut tls| tls.read(&mut [0]))))
    }

    fn probe(self, protocol: DatabaseProtocol, limit: Duration) -> Result<Probed, Error> {
        let target = ProbeTarget { address: self.address, protocol, server_name: None };
        self.probe_as(target, limit..=limit)
    }

    fn probe_as(self, target: ProbeTarget<'_>, limits: RangeInclusive<Duration>) -> Result<Probed, Error> {
        let probed = probe(target, limits);
        self.is_stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address).unwrap());
        let connections = self.thread.join().unwrap();
        assert!(connections <= MAX_PROBE_CONNECTIONS, "{connections}");
        probed
    }
}

fn accepted(acceptor: SslAcceptor) -> AcceptedTls {
    let certificate = acceptor.context().certificate().unwrap().to_der().unwrap();
    let probed = Answering::tls(acceptor).probe(DatabaseProtocol::MongoDb, TIME_LIMIT);
    let Ok(Probed::Tls(accepted)) = probed else { panic!("{probed:?}") };
    assert_eq!((&accepted.chain[..], &accepted.unknown[..]), (&[certificate][..], &[][..]));
    accepted
}

fn versions(accepted: &AcceptedTls) -> Vec<u16> {
    accepted.versions.iter().map(|(version, _)| *version).collect()
}

fn groups(accepted: &AcceptedTls) -> Vec<u16> {
    let mut groups: Vec<_> = accepted.groups.iter().map(|group| group.0).collect();
    groups.sort_unstable();
    groups
}

#[test]
fn versions_and_groups_are_those_of_the_configuration() {
    let authority = Authority::new();
    let both = accepted(authority.acceptor(ServerTls { groups: "X25519:P-384", ..ServerTls::default() }));
    assert_eq!(versions(&both), [TLS_1_3, TLS_1_2]);
    assert_eq!(groups(&both), [0x0018, 0x001d]);
    assert_eq!(both.weak_suite, None);

    let only = |version| ServerTls { only: Some(version), groups: "P-256", ..ServerTls::default() };
    let newest = accepted(authority.acceptor(only(SslVersion::TLS1_3)));
    assert_eq!((versions(&newest), groups(&newest)), (vec![TLS_1_3], vec![0x0017]));
    let older = accepted(authority.acceptor(only(SslVersion::TLS1_2)));
    assert_eq!((versions(&older), groups(&older)), (vec![TLS_1_2], vec![]));
}

#[test]
fn what_is_obsolete_or_weak_is_found() {
    let authority = Authority::new();
    let obsolete = || {
        let mut builder = authority.acceptor_builder(ServerTls { key: Key::Rsa2048, ..ServerTls::default() });
        builder.clear_options(SslOptions::NO_TLSV1 | SslOptions::NO_TLSV1_1);
        builder.set_min_proto_version(Some(SslVersion::TLS1)).unwrap();
        builder
    };
    let mut builder = obsolete();
    builder.set_cipher_list("ALL:COMPLEMENTOFALL:@SECLEVEL=0").unwrap();
    let found = accepted(builder.build());
    assert_eq!(versions(&found), [TLS_1_3, TLS_1_2, TLS_1_1, TLS_1_0]);
    // No encryption, or no authentication: which one is up to the server.
    assert!(found.weak_suite.is_some(), "{found:?}");
    // A client that offers better ones gets better ones.
    assert!(found.versions.iter().all(|(_, suite)| Some(*suite) != found.weak_suite), "{found:?}");

    let mut builder = obsolete();
    builder.set_max_proto_version(Some(SslVersion::TLS1_1)).unwrap();
    builder.set_cipher_list("DEFAULT:@SECLEVEL=0").unwrap();
    assert_eq!(versions(&accepted(builder.build())), [TLS_1_1, TLS_1_0]);
}

/// PostgreSQL's answer to a request for TLS.
#[test]
fn a_server_without_tls_is_no_error() {
    let server = Answering::start(|mut stream| {
        let mut request = [0; 8];
        if stream.read_exact(&mut request).is_ok() {
            stream.write_all(b"N").unwrap();
        }
    });
    let probed = server.probe(DatabaseProtocol::Postgres, TIME_LIMIT).unwrap();
    assert_eq!(probed, Probed::NoTls);
}

#[test]
fn tls_follows_the_request_of_the_protocol() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(ServerTls::default());
    let server = Answering::start(move |mut stream| {
        let mut request = [0; 8];
        if stream.read_exact(&mut request).is_ok() {
            stream.write_all(b"S").unwrap();
            drop(acceptor.accept(stream));
        }
    });
    let Probed::Tls(found) = server.probe(DatabaseProtocol::Postgres, TIME_LIMIT).unwrap() else { panic!() };
    assert_eq!(versions(&found), [TLS_1_3, TLS_1_2]);
}

#[test]
fn what_is_no_such_server_is_an_error() {
    let closing = Answering::start(drop);
    let error = closing.probe(DatabaseProtocol::MongoDb, TIME_LIMIT).unwrap_err();
    assert!(tells_of_an_end(&error.to_string()), "{error}");
    let http = Answering::start(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(http.probe(DatabaseProtocol::MySql, TIME_LIMIT).is_err());
    // What comes behind the answer is not encrypted, and must not be taken for TLS (CVE-2021-23222).
    let injecting = Answering::start(|mut stream| {
        let _ = stream.write_all(b"SSSS");
    });
    assert!(injecting.probe(DatabaseProtocol::Postgres, TIME_LIMIT).is_err());
}

/// Each byte comes in time, and the handshake never ends.
#[test]
fn a_server_that_never_finishes_its_handshake_is_given_up() {
    const LIMIT: Duration = Duration::from_millis(300);
    let dripping = Answering::start(|mut stream| {
        let _ = stream.read(&mut [0; 1_000]);
        // The header of a record of 16 KB, and then its content.
        let _ = stream.write_all(&[0x16, 3, 3, 0x40, 0]);
        while stream.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let error = dripping.probe(DatabaseProtocol::MongoDb, LIMIT).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[test]
fn a_silent_server_is_given_up() {
    const LIMIT: Duration = Duration::from_millis(50);
    let silent = Answering::start(|mut stream| {
        // Until the client gives up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = silent.probe(DatabaseProtocol::MongoDb, LIMIT).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

/// A connection that is closed before its hello was read is reset by the kernel.
fn tells_of_an_end(why: &str) -> bool {
    ["ended the connection", "Connection reset", "Broken pipe"].iter().any(|words| why.contains(words))
}

/// The connections for which `is_answered` is true are answered by TLS; the others end at once.
fn limited(is_answered: impl Fn(usize) -> bool + Send + 'static) -> AcceptedTls {
    let authority = Authority::new();
    let acceptor = authority.acceptor(ServerTls { groups: "X25519:P-384", ..ServerTls::default() });
    let connections = AtomicUsize::new(0);
    let server = Answering::start(move |stream| {
        if is_answered(connections.fetch_add(1, Ordering::SeqCst)) {
            drop(acceptor.accept(stream).map(|mut tls| tls.read(&mut [0])));
        }
    });
    let probed = server.probe(DatabaseProtocol::MongoDb, TIME_LIMIT);
    let Ok(Probed::Tls(accepted)) = probed else { panic!("{probed:?}") };
    accepted
}

#[test]
fn what_a_limit_on_connections_hides_is_not_refused() {
    // The certificate, TLS 1.2, and that TLS 1.1 is refused.
    let found = limited(|number| number < 3);
    assert_eq!((versions(&found), found.chain.len()), (vec![TLS_1_3, TLS_1_2], 1));
    assert_eq!(found.groups, []);
    assert_eq!(found.unknown, [ProbePart::WeakSuites, ProbePart::Groups]);
    assert!(found.reason.as_deref().is_some_and(tells_of_an_end), "{found:?}");
    let found = limited(|number| number < 1);
    assert_eq!(versions(&found), [TLS_1_3]);
    assert_eq!(found.unknown, [ProbePart::OlderVersions, ProbePart::WeakSuites, ProbePart::Groups]);
}

#[test]
fn a_connection_that_ends_is_tried_again() {
    let found = limited(|number| !matches!(number, 0 | 3));
    assert_eq!((versions(&found), found.chain.len()), (vec![TLS_1_3, TLS_1_2], 1));
    assert_eq!((groups(&found), &found.unknown[..]), (vec![0x0018, 0x001d], &[][..]));
}

/// As some servers refuse what they do not accept: without an alert.
#[test]
fn a_server_that_ends_what_it_refuses_has_refused_it() {
    let authority = Authority::new();
    let only = ServerTls { only: Some(SslVersion::TLS1_3), groups: "P-256", ..ServerTls::default() };
    let acceptor = authority.acceptor(only);
    let server = Answering::start(move |stream| {
        let mut hello = [0; 2_000];
        let length = stream.peek(&mut hello).unwrap();
        // The extension `supported_versions`.
        let offers_tls_1_3 = hello[..length].windows(3).any(|part| part == [0, 43, 0]);
        if offers_tls_1_3 {
            drop(acceptor.accept(stream).map(|mut tls| tls.read(&mut [0])));
        }
    });
    let probed = server.probe(DatabaseProtocol::MongoDb, TIME_LIMIT);
    let Ok(Probed::Tls(found)) = probed else { panic!("{probed:?}") };
    assert_eq!((versions(&found), groups(&found)), (vec![TLS_1_3], vec![0x0017]));
    assert_eq!(found.unknown, []);
}

#[test]
fn what_was_found_is_kept_when_time_is_over() {
    const LIMIT: Duration = Duration::from_secs(2);
    let authority = Authority::new();
    let acceptor = authority.acceptor(ServerTls::default());
    let connections = AtomicUsize::new(0);
    let server = Answering::start(move |mut stream| {
        if connections.fetch_add(1, Ordering::SeqCst) < 2 {
            drop(acceptor.accept(stream).map(|mut tls| tls.read(&mut [0])));
        } else {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let Probed::Tls(found) = server.probe(DatabaseProtocol::MongoDb, LIMIT).unwrap() else { panic!() };
    assert_eq!((versions(&found), found.chain.len()), (vec![TLS_1_3, TLS_1_2], 1));
    assert_eq!(found.unknown, [ProbePart::OlderVersions, ProbePart::WeakSuites, ProbePart::Groups]);
}

#[test]
fn the_server_name_is_sent_in_every_hello() {
    let authority = Authority::new();
    let mut builder = authority.acceptor_builder(ServerTls::default());
    builder.set_servername_callback(|ssl, _| match ssl.servername(NameType::HOST_NAME) {
        Some("db.example") => Ok(()),
        _ => Err(SniError::ALERT_FATAL),
    });
    let server = Answering::tls(builder.build());
    let target = ProbeTarget {
        address: server.address,
        protocol: DatabaseProtocol::MongoDb,
        server_name: Some("db.example"),
    };
    let probed = server.probe_as(target, TIME_LIMIT..=TIME_LIMIT).unwrap();
    let Probed::Tls(found) = probed else { panic!() };
    assert_eq!((versions(&found), found.chain.len()), (vec![TLS_1_3, TLS_1_2], 1));
    assert!(!found.groups.is_empty());
}
