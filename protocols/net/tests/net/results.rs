//! Answers in every portion: larger than any buffer, and a byte at a time.

use ciphertoll_wire::mysql::Row;

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::Driver;
use crate::server::{Goodbye, Server};

/// Rows whose sizes lie around those of a cell's length, a TLS record and a buffer.
fn rows() -> Vec<Row> {
    let sizes = [0, 1, 250, 251, 16_383, 16_384, 16_385, 18 * 1024 - 4, 18 * 1024, 100_000, 3_000_000];
    let cell = |size: usize| (0..size).map(|index| (index % 251) as u8).collect::<Vec<u8>>();
    sizes.into_iter().map(|size| vec![Some(cell(size)), None, Some(size.to_string().into_bytes())]).collect()
}

#[test]
fn large_results_are_read_whole() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL_AND_PLAIN {
            let acceptor = offer.map(|_| authority.acceptor(ServerTls::default()));
            let server = Server::tcp(move |listener| {
                let mut peer = listener.accept().log_in(acceptor.as_ref());
                while peer.next_query().is_some() {
                    peer.answer(&rows());
                }
            });
            let mut connection = match offer {
                Some(offer) => driver.connect_tls(&server.address, &authority.settings(offer)).unwrap(),
                None => driver.connect_plain(&server.address).unwrap(),
            };
            for _ in 0..3 {
                let (next, answer) = connection.query("SELECT");
                assert!(answer.unwrap() == rows(), "{driver:?} {offer:?}: other rows than were sent");
                connection = next;
            }
            connection.close().unwrap();
            server.join();
        }
    }
}

#[test]
fn a_server_that_sends_a_byte_at_a_time() {
    let authority = Authority::new();
    let small = vec![vec![Some(b"slow".to_vec())], vec![None]];
    for driver in Driver::ALL {
        for offer in Offer::ALL_AND_PLAIN {
            let acceptor = offer.map(|_| authority.acceptor(ServerTls::default()));
            let answer = small.clone();
            let server = Server::tcp(move |listener| {
                let mut peer = listener.accept_dribbling().log_in(acceptor.as_ref());
                peer.next_query();
                peer.answer(&answer);
                peer.goodbye()
            });
            let connection = match offer {
                Some(offer) => driver.connect_tls(&server.address, &authority.settings(offer)).unwrap(),
                None => driver.connect_plain(&server.address).unwrap(),
            };
            if offer.is_some() {
                let negotiated = connection.negotiated().unwrap();
                assert_eq!(negotiated.group.as_deref(), Some("x25519"), "{driver:?} {offer:?}");
            }
            let (connection, rows) = connection.query("SELECT");
            assert_eq!(rows.unwrap(), small, "{driver:?} {offer:?}");
            connection.close().unwrap();
            assert_eq!(server.join(), Goodbye::Orderly);
        }
    }
}

/// More than a library encrypts at once, and more than a socket takes at once.
#[test]
fn large_statements_arrive_whole() {
    let large = "x".repeat(3_000_000);
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            let acceptor = authority.acceptor(ServerTls::default());
            let server = Server::tcp(move |listener| {
                let mut peer = listener.accept().log_in(Some(&acceptor));
                let statement = peer.next_query();
                peer.answer(&[vec![None]]);
                (statement, peer.goodbye())
            });
            let connection = driver.connect_tls(&server.address, &authority.settings(offer)).unwrap();
            let (connection, rows) = connection.query(&large);
            assert_eq!(rows.unwrap(), [[None]]);
            connection.close().unwrap();
            let (statement, goodbye) = server.join();
            assert!(statement.as_deref() == Some(&large), "{driver:?} {offer:?}: another statement");
            assert_eq!(goodbye, Goodbye::Orderly, "{driver:?} {offer:?}");
        }
    }
}
