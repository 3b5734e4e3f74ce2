//! Round trips of a connect, counted on captures of real servers and compared with `model::round_trips`.

use std::sync::Arc;

use ciphertoll_lab::{Server, Tables};
use ciphertoll_model::round_trips::{ServerProperties, of_session};
use ciphertoll_model::{Auth, Endpoint, Engine, SecurityLevel, ServerLevel};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, Dialer};
use ciphertoll_wire::mysql;
use ciphertoll_wire::session::Login;

use crate::line::{DELAY, Line};
use ciphertoll_testing::not_for_all;

use crate::fixture::Fixture;
use crate::test_client::TestClient;

/// The query before the end of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    OneQuery,
}

/// The counted round trips without TCP's own, and whether there was a HelloRetryRequest.
struct Counted {
    round_trips: usize,
    hello_retry: Option<bool>,
}

fn counted(server: &Server, test_client: &TestClient, then: Then) -> Counted {
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    let mut dialer = as_the_tool_does(test_client.dialer(server, None, |_| ()), server.engine());
    let resumes = test_client.path.to_string().contains("+resume");
    if resumes {
        Client::dial(&dialer).and_then(Client::close).expect("a connection that brings a session");
    }
    // If both ends send first, the client's first message must be sent before the server's arrives.
    let eager = test_client.path.to_string().contains("+eager");
    let line = Line::to(address, if eager { DELAY * 5 } else { DELAY });
    dialer = Dialer { address: Address::Tcp(line.address), ..dialer };
    let mut client = Client::dial(&dialer).unwrap_or_else(|error| panic!("{}: {error}", test_client.path));
    let negotiated = client.negotiated();
    assert_eq!(negotiated.as_ref().is_some_and(|tls| tls.resumed), resumes, "{}", test_client.path);
    if then == Then::OneQuery {
        client.query("SELECT 1").expect("an answer");
    }
    client.close().expect("a goodbye");
    let hello_retry = negotiated.map(|tls| tls.hello_retry);
    Counted { round_trips: line.round_trips(), hello_retry }
}

/// MySQL's own clients begin with its newest plugin, independent of the account.
fn as_the_tool_does(mut dialer: Dialer, engine: Engine) -> Dialer {
    if let (Login::MySql(login), Engine::MySql) = (&mut dialer.login, engine) {
        Arc::make_mut(login).plugin = mysql::Plugin::CachingSha2Password;
    }
    dialer
}

fn expect(level: &ServerLevel, strength: SecurityLevel, kinds: &[(&str, &str)]) {
    let Some(fixture) = Fixture::of(level) else { return };
    let mut server = fixture.start_with(strength, &[]).unwrap();
    let version = fixture.build.version.clone();
    for &(path, auth) in kinds {
        let test_client = TestClient::new(path, auth.parse::<Auth>().unwrap());
        test_client.prepare(&mut server).unwrap_or_else(|error| panic!("{path} {auth}: {error}"));
        let Counted { round_trips, hello_retry } = counted(&server, &test_client, Then::Nothing);
        let peer = ServerProperties {
            engine: level.engine,
            version: &version,
            hello_retry: None,
            first_flight_bytes: None,
        };
        for peer in [peer, ServerProperties { hello_retry, ..peer }] {
            let said = of_session(&peer, test_client.path, test_client.auth);
            assert_eq!(said, u32::try_from(round_trips).ok(), "{level} {path} {auth}");
        }
    }
    let (path, auth) = kinds[0];
    let test_client = TestClient::new(path, auth.parse::<Auth>().unwrap());
    let [without, with] = [Then::Nothing, Then::OneQuery].map(|then| counted(&server, &test_client, then));
    assert_eq!(with.round_trips, without.round_trips + 1, "{level}: a query is one more");
}

#[test]
fn to_mariadb() {
    let level = ServerLevel::of(Engine::MariaDb);
    if Fixture::of(&level).is_some_and(|fixture| !fixture.build.version.starts_with("10.11.")) {
        return not_for_all("the MariaDB here is another than 10.11");
    }
    expect(
        &level,
        SecurityLevel::Default,
        &[
            ("plain", "native"),
            ("plain", "trust"),
            ("tls1.2-p256", "native"),
            ("tls1.2-p256+resume", "native"),
            ("tls1.2-p256+resume=id", "native"),
            ("tls1.2-rsa2048+suite=DHE-RSA-AES256-GCM-SHA384", "native"),
            ("tls1.2-rsa2048+suite=AES256-GCM-SHA384", "native"),
            ("tls1.2-p256+mtls", "native"),
            ("tls1.2-p256+eager", "native"),
            ("tls1.2-p256+resume+eager", "native"),
            ("tls1.3-p256", "native"),
            ("tls1.3-p256", "cert"),
            ("tls1.3-p256+resume", "native"),
            ("tls1.3-rsa4096", "trust"),
            ("tls1.3-rsa4096+chain=3", "native"),
            ("tls1.3-p256+group=p384", "native"),
            ("tls1.3-p256+mtls", "native"),
            ("tls1.3-p256+client=rustls", "native"),
            ("tls1.3-p256+eager", "native"),
            ("tls1.3-p256+resume+eager", "native"),
            ("tls1.3-p256+eager+client=rustls", "native"),
        ],
    );
}

#[test]
fn to_mysql_8_0() {
    expect(
        &"mysql-8.0".parse().unwrap(),
        SecurityLevel::Default,
        &[
            ("plain", "caching-sha2"),
            ("plain", "trust"),
            ("plain", "native"),
            ("tls1.2-p256", "caching-sha2"),
            ("tls1.2-p256+resume", "caching-sha2"),
            ("tls1.3-p256", "caching-sha2"),
            ("tls1.3-p256", "native"),
            ("tls1.3-p256", "cert"),
            ("tls1.3-p256+resume", "caching-sha2"),
            ("tls1.3-p256+mtls", "caching-sha2"),
            ("tls1.3-p256+eager", "caching-sha2"),
        ],
    );
}

#[test]
fn to_postgres_with_a_single_group() {
    let level = ServerLevel::of(Engine::Postgres);
    if Fixture::of(&level).is_some_and(|fixture| !fixture.build.version.starts_with("15.")) {
        return not_for_all("the PostgreSQL here is another than 15");
    }
    expect(
        &level,
        SecurityLevel::Default,
        &[
            ("plain", "trust"),
            ("plain", "scram-4096"),
            ("plain", "md5"),
            ("tls1.2-p256", "trust"),
            ("tls1.2-p256", "scram-4096"),
            // A HelloRetryRequest makes it as slow as TLS 1.2 …
            ("tls1.3-p256", "trust"),
            ("tls1.3-p256", "scram-4096"),
            ("tls1.3-p256+client=rustls", "scram-4096"),
            // … unless the client offers the server's group.
            ("tls1.3-p256+group=p256", "trust"),
            ("tls1.3-p256+group=p256", "scram-4096"),
            ("tls1.3-p256+group=p256", "cert"),
        ],
    );
}

#[test]
fn to_postgres_18() {
    expect(
        &"postgres-18".parse().unwrap(),
        SecurityLevel::Default,
        &[
            ("plain", "trust"),
            ("plain", "scram-4096"),
            ("plain", "scram-1"),
            ("plain", "md5"),
            ("tls1.2-p256", "trust"),
            ("tls1.2-p256", "scram-4096"),
            ("tls1.3-p256", "trust"),
            ("tls1.3-p256", "scram-4096"),
            ("tls1.3-p256", "scram-4096+plus"),
            ("tls1.3-p256", "md5"),
            ("tls1.3-p256", "cert"),
            ("tls1.3-p256+mtls", "scram-4096"),
            ("tls1.3-p256+direct", "trust"),
            ("tls1.3-p256+direct", "scram-4096"),
            ("tls1.2-p256+direct", "scram-4096"),
            ("tls1.3-p256+eager", "trust"),
            ("tls1.3-p256+eager", "scram-4096"),
            ("tls1.2-p256+eager", "trust"),
            ("tls1.2-p256+eager", "scram-4096"),
        ],
    );
}

/// Deprecated versions take as many round trips as TLS 1.2.
#[test]
fn with_deprecated_tls_versions() {
    let kinds = [("tls1.0-rsa2048", "trust"), ("tls1.1-rsa2048", "trust")];
    for engine in [Engine::MariaDb, Engine::Postgres] {
        expect(&ServerLevel::of(engine), SecurityLevel::Obsolete, &kinds);
    }
}

/// Plugins of newer versions, if they are installed.
#[test]
fn with_plugins_of_mariadb() {
    for fixture in Fixture::all(Engine::MariaDb) {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        for (path, auth) in
            [("plain", "ed25519"), ("tls1.3-p256", "ed25519"), ("plain", "parsec"), ("tls1.3-p256", "parsec")]
        {
            let test_client = TestClient::new(path, auth.parse::<Auth>().unwrap());
            if let Err(error) = test_client.prepare(&mut server) {
                not_for_all(&error);
                continue;
            }
            let Counted { round_trips, hello_retry } = counted(&server, &test_client, Then::Nothing);
            let peer = ServerProperties {
                engine: Engine::MariaDb,
                version: &fixture.build.version,
                hello_retry,
                first_flight_bytes: None,
            };
            let said = of_session(&peer, test_client.path, test_client.auth);
            assert_eq!(said, u32::try_from(round_trips).ok(), "{} {path} {auth}", fixture.build.version);
        }
    }
}
