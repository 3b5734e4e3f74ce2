//! How many times a connect waits for the server, counted on a capture of real servers.

use ciphertoll_lab::{Server, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, Dialer};

use crate::line::Line;
use crate::stand::{Stand, skipped};
use crate::visitor::Visitor;

/// TCP's own not counted.
fn round_trips(server: &Server, visitor: &Visitor) -> usize {
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    let mut dialer = visitor.dialer(server, None, |_| ());
    let resumes = visitor.path.to_string().contains("+resume");
    if resumes {
        Client::dial(&dialer).and_then(Client::close).expect("a connection that brings a session");
    }
    let line = Line::to(address);
    dialer = Dialer { address: Address::Tcp(line.address), ..dialer };
    let client = Client::dial(&dialer).unwrap_or_else(|error| panic!("{}: {error}", visitor.path));
    assert_eq!(client.negotiated().is_some_and(|tls| tls.resumed), resumes, "{}", visitor.path);
    client.close().expect("a goodbye");
    line.round_trips()
}

fn expect(level: &ServerLevel, expected: &[(&str, &str, usize)]) {
    let Some(stand) = Stand::of(level) else { return };
    let mut server = stand.start(&Tables::default(), None).unwrap();
    for &(path, auth, count) in expected {
        let visitor = Visitor::new(path, auth.parse::<Auth>().unwrap());
        visitor.prepare(&mut server).unwrap_or_else(|error| panic!("{path} {auth}: {error}"));
        assert_eq!(round_trips(&server, &visitor), count, "{level} {path} {auth}");
    }
}

#[test]
fn to_mariadb() {
    expect(
        &ServerLevel::of(Engine::MariaDb),
        &[
            ("plain", "native", 2),
            ("tls1.2-p256", "native", 4),
            ("tls1.2-p256+resume", "native", 3),
            ("tls1.2-p256+resume=id", "native", 3),
            ("tls1.3-p256", "native", 3),
            ("tls1.3-p256+resume", "native", 3),
            ("tls1.3-rsa4096", "trust", 3),
            ("tls1.2-p256+eager", "native", 3),
            ("tls1.3-p256+eager", "native", 2),
            ("tls1.3-p256+eager+client=rustls", "native", 2),
            ("tls1.3-p256+mtls", "native", 3),
            ("tls1.3-p256+client=rustls", "native", 3),
        ],
    );
}

#[test]
fn to_mysql_8_0() {
    expect(
        &"mysql-8.0".parse().unwrap(),
        &[
            ("plain", "caching-sha2", 2),
            ("tls1.2-p256", "caching-sha2", 4),
            ("tls1.2-p256+resume", "caching-sha2", 3),
            ("tls1.3-p256", "caching-sha2", 3),
            ("tls1.3-p256+resume", "caching-sha2", 3),
            ("tls1.3-p256+mtls", "caching-sha2", 3),
            ("tls1.3-p256+eager", "caching-sha2", 2),
        ],
    );
}

#[test]
fn to_postgres_that_takes_one_group() {
    let level = ServerLevel::of(Engine::Postgres);
    if Stand::of(&level).is_some_and(|stand| !stand.build.version.starts_with("15.")) {
        return skipped("the PostgreSQL here is another than 15");
    }
    expect(
        &level,
        &[
            ("plain", "trust", 1),
            ("plain", "scram-4096", 3),
            ("tls1.2-p256", "trust", 4),
            ("tls1.2-p256", "scram-4096", 6),
            // A HelloRetryRequest makes it no faster than its predecessor …
            ("tls1.3-p256", "trust", 4),
            ("tls1.3-p256", "scram-4096", 6),
            // … unless the group is named that the server takes.
            ("tls1.3-p256+group=p256", "trust", 3),
            ("tls1.3-p256+group=p256", "scram-4096", 5),
        ],
    );
}

#[test]
fn to_postgres_18() {
    expect(
        &"postgres-18".parse().unwrap(),
        &[
            ("plain", "trust", 1),
            ("plain", "scram-4096", 3),
            ("tls1.2-p256", "trust", 4),
            ("tls1.2-p256", "scram-4096", 6),
            ("tls1.3-p256", "trust", 3),
            ("tls1.3-p256", "scram-4096", 5),
            ("tls1.3-p256+direct", "trust", 2),
            ("tls1.3-p256+direct", "scram-4096", 4),
            ("tls1.3-p256+eager", "trust", 2),
            ("tls1.3-p256+eager", "scram-4096", 4),
            ("tls1.2-p256+eager", "trust", 3),
            ("tls1.2-p256+eager", "scram-4096", 5),
        ],
    );
}
