//! Logins that succeed, and logins that the server refuses in its own words.

use ciphertoll_net::{Address, Error, Fault};
use ciphertoll_wire::{mysql, session};
use tempfile::TempDir;

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::Driver;
use crate::server::{Goodbye, Listener, Server, err, nobody};

fn row(text: &str) -> mysql::Row {
    vec![Some(text.as_bytes().to_vec()), None]
}

/// Logs a client in, answers one statement and waits for the goodbye.
fn one_statement(listener: &Listener) -> (Option<String>, Goodbye) {
    let mut peer = listener.accept().log_in(None);
    let statement = peer.next_query();
    peer.answer(&[row("one"), row("")]);
    (statement, peer.goodbye())
}

fn logs_in_and_queries(driver: Driver, server: Server<(Option<String>, Goodbye)>) {
    let connection = driver.connect_plain(&server.address).unwrap();
    let session::ServerInfo::MySql(info) = connection.server() else { panic!("another protocol") };
    assert_eq!(info.version, "10.11.19-MariaDB");
    assert_eq!(info.connection_id, 42);
    assert_eq!(connection.negotiated(), None);
    let (connection, rows) = connection.query("SELECT a, b FROM t");
    assert_eq!(rows.unwrap(), [row("one"), row("")]);
    connection.close().unwrap();
    assert_eq!(server.join(), (Some("SELECT a, b FROM t".to_owned()), Goodbye::Orderly));
}

#[test]
fn plain_over_tcp() {
    for driver in Driver::ALL {
        logs_in_and_queries(driver, Server::tcp(one_statement));
    }
}

#[test]
fn plain_over_a_unix_socket() {
    for driver in Driver::ALL {
        logs_in_and_queries(driver, Server::unix(one_statement));
    }
}

#[test]
fn tls_ends_with_a_close_alert() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ALL {
            let acceptor = authority.acceptor(ServerTls::default());
            let server = Server::tcp(move |listener| listener.accept().log_in(Some(&acceptor)).goodbye());
            let connection = driver.connect_tls(&server.address, &authority.settings(offer)).unwrap();
            connection.close().unwrap();
            assert_eq!(server.join(), Goodbye::Orderly, "{driver:?} {offer:?}");
        }
    }
}

#[test]
fn tls_over_a_unix_socket() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for offer in Offer::ONE_EACH {
            let acceptor = authority.acceptor(ServerTls::default());
            let server = Server::unix(move |listener| listener.accept().log_in(Some(&acceptor)).goodbye());
            let connection = driver.connect_tls(&server.address, &authority.settings(offer)).unwrap();
            assert_eq!(connection.negotiated().unwrap().library, offer.library);
            connection.close().unwrap();
            assert_eq!(server.join(), Goodbye::Orderly, "{offer:?}");
        }
    }
}

#[track_caller]
fn expect_server_error(error: &Error, expected: u16) {
    let Error::Protocol(session::Error::MySql(mysql::Error::Server { code, .. })) = error else {
        panic!("{error:?}")
    };
    assert_eq!(*code, expected);
    assert_eq!(error.fault(), Fault::Server);
}

#[test]
fn a_wrong_password_is_the_servers_refusal() {
    let authority = Authority::new();
    for driver in Driver::ALL {
        for settings in Offer::ALL_AND_PLAIN.map(|offer| offer.map(|offer| authority.settings(offer))) {
            let acceptor = settings.is_some().then(|| authority.acceptor(ServerTls::default()));
            let server = Server::tcp(move |listener| {
                let mut peer = listener.accept();
                peer.greet();
                if let Some(acceptor) = &acceptor {
                    peer.await_tls_request();
                    peer.start_tls(acceptor).unwrap();
                }
                peer.await_login();
                peer.refuse(1045, "Access denied for user 'toll'@'localhost'");
                peer.finish();
            });
            let error = driver.refusal(&server.address, settings.as_ref());
            expect_server_error(&error, 1045);
            assert!(!error.is_too_many_connections());
            assert_eq!(
                error.to_string(),
                "the server refused: Access denied for user 'toll'@'localhost' (error 1045, SQL state 28000)"
            );
            server.join();
        }
    }
}

#[test]
fn an_error_in_place_of_the_greeting() {
    for driver in Driver::ALL {
        let server = Server::tcp(|listener| {
            let mut peer = listener.accept();
            peer.send(&err(0, 1040, "Too many connections"));
            peer.finish();
        });
        let error = driver.refusal(&server.address, None);
        expect_server_error(&error, 1040);
        assert!(error.is_too_many_connections());
        server.join();
    }
}

#[test]
fn a_refused_statement_leaves_the_connection_usable() {
    for driver in Driver::ALL {
        let server = Server::tcp(|listener| {
            let mut peer = listener.accept().log_in(None);
            peer.next_query();
            peer.send(&err(1, 1064, "You have an error in your SQL syntax"));
            peer.next_query();
            peer.answer(&[row("still here")]);
            peer.goodbye()
        });
        let connection = driver.connect_plain(&server.address).unwrap();
        let (connection, refused) = connection.query("SELEKT");
        expect_server_error(&refused.unwrap_err(), 1064);
        let (connection, rows) = connection.query("SELECT");
        assert_eq!(rows.unwrap(), [row("still here")]);
        connection.close().unwrap();
        assert_eq!(server.join(), Goodbye::Orderly);
    }
}

#[test]
fn nobody_listens() {
    let (_taken, address) = nobody();
    let tcp = Address::Tcp(address);
    let directory = TempDir::new().unwrap();
    let unix = Address::Unix(directory.path().join("nobody.sock"));
    for driver in Driver::ALL {
        for (address, kind) in
            [(&tcp, std::io::ErrorKind::ConnectionRefused), (&unix, std::io::ErrorKind::NotFound)]
        {
            let error = driver.refusal(address, None);
            assert!(!error.is_too_many_connections());
            let Error::Socket { doing, source } = &error else { panic!("{driver:?}: {error:?}") };
            assert_eq!((*doing, source.kind()), ("cannot connect", kind), "{driver:?}");
            assert_eq!(error.fault(), Fault::Server);
        }
    }
}
