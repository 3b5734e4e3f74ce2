//! Servers that go away where the protocol goes on.

use std::io;

use ciphertoll_net::{Address, Error, Fault};

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::Driver;
use crate::server::{OFFERED, Server, greeting};

/// The beginning of a `ServerHello`'s record.
const RECORD_BEGUN: [u8; 9] = [22, 3, 3, 0, 122, 2, 0, 0, 118];

/// The connection ended, in whichever words.
#[track_caller]
fn expect_end(driver: Driver, error: &Error) {
    let ended = match error {
        Error::Closed => true,
        // A server that has not read everything when it closes resets the connection (RFC 1122, 4.2.2.13).
        Error::Socket { source, .. } => {
            matches!(source.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        }
        Error::Unresolved { .. }
        | Error::NoPassword { .. }
        | Error::TimedOut { .. }
        | Error::OtherProtocol { .. }
        | Error::Tls(_)
        | Error::TlsSettings(_)
        | Error::Protocol(_) => false,
    };
    assert!(ended, "{driver:?}: {error:?}");
    assert_eq!(error.fault(), Fault::Server);
}

#[track_caller]
fn expect_closed(driver: Driver, error: &Error) {
    assert!(matches!(error, Error::Closed), "{driver:?}: {error:?}");
}

#[test]
fn before_the_greeting() {
    for driver in Driver::ALL {
        let server = Server::tcp(|listener| drop(listener.accept()));
        expect_closed(driver, &driver.refusal(&server.address, None));
        server.join();
    }
}

#[test]
fn anywhere_in_the_greeting() {
    let whole = greeting(OFFERED).len();
    for driver in Driver::ALL {
        let server = Server::tcp(move |listener| {
            for length in 1..whole {
                let mut peer = listener.accept();
                peer.send(&greeting(OFFERED)[..length]);
                peer.finish();
            }
        });
        for _ in 1..whole {
            expect_closed(driver, &driver.refusal(&server.address, None));
        }
        server.join();
    }
}

#[test]
fn after_the_login() {
    for driver in Driver::ALL {
        for answer in [&[][..], &[7], &[7, 0, 0, 2, 0, 0]] {
            let server = Server::tcp(move |listener| {
                let mut peer = listener.accept();
                peer.greet();
                peer.await_login();
                peer.send(answer);
                peer.finish();
            });
            expect_closed(driver, &driver.refusal(&server.address, None));
            server.join();
        }
    }
}

/// The client may have sent its `ClientHello` already: then this is a reset.
#[test]
fn after_the_request_for_tls() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ONE_EACH {
            let server = Server::tcp(|listener| {
                let mut peer = listener.accept();
                peer.greet();
                peer.await_tls_request();
            });
            let error = driver.refusal(&server.address, Some(&authority.settings(offer)));
            expect_end(driver, &error);
            server.join();
        }
    }
}

#[test]
fn in_the_handshake() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            for length in 0..RECORD_BEGUN.len() {
                let server = Server::tcp(move |listener| {
                    let mut peer = listener.accept();
                    peer.greet();
                    peer.await_tls_request();
                    peer.read_tls_record();
                    peer.send(&RECORD_BEGUN[..length]);
                    peer.cut();
                });
                let error = driver.refusal(&server.address, Some(&authority.settings(offer)));
                expect_closed(driver, &error);
                server.join();
            }
        }
    }
}

/// How a server ends its side of an encrypted connection.
#[derive(Clone, Copy, Debug)]
enum End {
    CloseAlert,
    /// What an attacker on the path can do.
    Truncation,
}

fn server_that_ends_after_the_tls_login(
    authority: &Authority,
    answer: &'static [u8],
    end: End,
) -> (Address, Server<()>) {
    let acceptor = authority.acceptor(ServerTls::default());
    let server = Server::tcp(move |listener| {
        let mut peer = listener.accept();
        peer.greet();
        peer.await_tls_request();
        peer.start_tls(&acceptor).unwrap();
        peer.await_login();
        if !answer.is_empty() {
            peer.send(answer);
        }
        match end {
            End::CloseAlert => peer.finish(),
            End::Truncation => peer.cut(),
        }
    });
    (server.address.clone(), server)
}

#[test]
fn after_the_login_over_tls() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            for end in [End::CloseAlert, End::Truncation] {
                for answer in [&[][..], &[7, 0, 0, 3, 0]] {
                    let (address, server) = server_that_ends_after_the_tls_login(&authority, answer, end);
                    let error = driver.refusal(&address, Some(&authority.settings(offer)));
                    expect_closed(driver, &error);
                    server.join();
                }
            }
        }
    }
}

#[test]
fn in_the_middle_of_a_result() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in [None, Some(Offer::OPENSSL_1_3), Some(Offer::RUSTLS_1_3)] {
            let acceptor = offer.map(|_| authority.acceptor(ServerTls::default()));
            let server = Server::tcp(move |listener| {
                let mut peer = listener.accept().log_in(acceptor.as_ref());
                peer.next_query();
                let answer = peer.encode_rows(&[vec![Some(vec![b'x'; 50_000])]]);
                peer.send(&answer[..answer.len() / 2]);
                peer.finish();
            });
            let connection = match offer {
                Some(offer) => driver.connect_tls(&server.address, &authority.settings(offer)).unwrap(),
                None => driver.connect_plain(&server.address).unwrap(),
            };
            let (_, rows) = connection.query("SELECT");
            expect_closed(driver, &rows.unwrap_err());
            server.join();
        }
    }
}
