//! The load that real servers count, compared with what a client does to them in the meantime.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ciphertoll_lab::server_load::{self, LoadAbsence, LoadValue, ServerLoad};
use ciphertoll_lab::{Passwords, Server};
use ciphertoll_model::{Auth, Endpoint, Engine, ExitCode, SecurityLevel, ServerUrl, TlsVersion};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, postgres};

use crate::fixture::{Fixture, Way, connect};

const NAME: &str = "there";
/// Of each connection of the client.
const STATEMENTS: u64 = 3;
const SHORT: Duration = Duration::from_secs(2);
/// The client has one connection at a time. A busy machine has not yet ended a few of the earlier ones.
const MOST_OPEN: u64 = 8;

fn url(server: &Server, options: &str) -> ServerUrl {
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a private server has an address") };
    let (scheme, user) = (server.engine().label(), server.account(Auth::default_of(server.engine())).user);
    let url = format!("{scheme}://{user}@127.0.0.1:{}/{}?{options}", address.port(), server.database());
    url.parse().unwrap()
}

fn passwords(server: &Server) -> Passwords {
    let account = server.account(Auth::default_of(server.engine()));
    let password = Secret::new(fs::read(account.password_file).unwrap());
    Passwords::from([(NAME.to_owned(), password)])
}

/// Reads the load while a client connects again and again by `way`; also returns the number of its connects.
fn read_during_load(server: &Server, options: &str, interval: Duration, way: Way) -> (ServerLoad, u64) {
    let (there, passwords) = (url(server, options), passwords(server));
    let auth = Auth::default_of(server.engine());
    let reader = thread::spawn(move || server_load::read(NAME, &there, &passwords, interval));
    let mut connects = 0;
    while !reader.is_finished() {
        let mut client = connect(server, auth, way).unwrap();
        (0..STATEMENTS).for_each(|_| client.execute("SELECT 1").unwrap());
        client.close().unwrap();
        connects += 1;
    }
    (reader.join().unwrap().unwrap(), connects)
}

/// The client also works before the first reading and after the second.
#[track_caller]
fn assert_is_of(load: &ServerLoad, connects: u64, engine: Engine) {
    let counted = load.connects_per_s.unwrap() * load.seconds;
    let most = connects as f64 + 1.0;
    assert!(counted <= most && counted > most / 3.0, "{engine}: {counted} of {connects} connects: {load:?}");
}

#[test]
fn connects_statements_and_handshakes_of_mariadb_and_mysql_are_counted() {
    for fixture in [Engine::MariaDb, Engine::MySql].into_iter().flat_map(Fixture::all) {
        let server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
        let engine = server.engine();
        for (options, way, share) in
            [("ssl-mode=REQUIRED", Way::Tls, 1.0), ("ssl-mode=DISABLED", Way::Plain, 0.0)]
        {
            let (load, connects) = read_during_load(&server, options, SHORT, way);
            assert_is_of(&load, connects, engine);
            let each = load.statements_per_connection.unwrap();
            assert!((each - STATEMENTS as f64).abs() < 0.1, "{engine}: {load:?}");
            let encrypted = load.encrypted_connect_share.unwrap();
            assert!((encrypted - share).abs() < 0.02, "{engine}: {load:?}");
            assert!(load.connected_clients.is_some_and(|clients| clients <= MOST_OPEN), "{engine}: {load:?}");
            assert!(load.most_connected_clients.is_some_and(|clients| clients >= 2), "{engine}: {load:?}");
            assert_eq!(load.aborted_connects_per_s, Some(0.0), "{engine}: {load:?}");
            assert_eq!(load.absent.get(&LoadValue::TransactionsPerS), Some(&LoadAbsence::NotCounted));
            // A counter that may never leave 0 is not taken for a share of 0.
            assert_ne!(load.resumed_share, Some(0.0), "{engine}: {load:?}");
        }
    }
}

#[test]
fn the_reader_itself_is_not_counted() {
    for fixture in [Engine::MariaDb, Engine::MySql].into_iter().flat_map(Fixture::all) {
        let server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
        let there = url(&server, "ssl-mode=REQUIRED");
        let load = server_load::read(NAME, &there, &passwords(&server), SHORT).unwrap();
        let rates = (load.connects_per_s, load.statements_per_s, load.connected_clients);
        assert_eq!(rates, (Some(0.0), Some(0.0), Some(0)), "{load:?}");
        assert!(load.absent.contains_key(&LoadValue::EncryptedConnectShare), "{load:?}");
        assert_eq!(load.absent.get(&LoadValue::StatementsPerConnection), Some(&LoadAbsence::Idle));
        assert!(server_load::describe(&load).starts_with("your server takes 0 connects/s"), "{load:?}");
    }
}

#[test]
fn open_connections_of_the_performance_schema_are_listed() {
    for fixture in Fixture::all(Engine::MariaDb) {
        let server = fixture.start_with(SecurityLevel::Default, &["mariadb.performance_schema=ON"]).unwrap();
        let auth = Auth::default_of(Engine::MariaDb);
        let _open = connect(&server, auth, Way::Tls).unwrap();
        let there = url(&server, "ssl-mode=REQUIRED");
        let load = server_load::read(NAME, &there, &passwords(&server), Duration::ZERO).unwrap();
        assert_eq!(load.connected_clients, Some(1), "{load:?}");
        match load.absent.get(&LoadValue::Versions) {
            // An account without rights on the schema.
            Some(absence) => assert_eq!(*absence, LoadAbsence::MissingRight, "{load:?}"),
            None => assert_eq!(load.versions[0].version, TlsVersion::Tls13, "{load:?}"),
        }
    }
}

/// Executes statements as the owner of the cluster.
fn as_owner(server: &Server, statements: &[&str]) {
    let Endpoint::Unix(socket) = server.unix_endpoint() else { panic!("no socket") };
    let login = postgres::PostgresLogin {
        startup: Vec::new(),
        user: "ciphertoll".to_owned(),
        password: Secret::new(Vec::new()),
        database: Some(server.database().to_owned()),
        encryption: postgres::PostgresTlsMode::Plain,
        channel_binding: postgres::ChannelBinding::Disabled,
    };
    let mut client = Client::connect(&Address::Unix(socket), Login::Postgres(Arc::new(login)), None).unwrap();
    for statement in statements {
        client.execute(statement).unwrap();
    }
    client.close().unwrap();
}

#[test]
fn connects_and_transactions_of_postgres_are_counted() {
    for fixture in Fixture::all(Engine::Postgres) {
        let server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
        // Raised to ten seconds.
        let (load, connects) = read_during_load(&server, "sslmode=require", SHORT, Way::Tls);
        assert!(load.seconds >= 10.0, "{load:?}");
        assert_is_of(&load, connects, Engine::Postgres);
        let each = load.transactions_per_connection().unwrap();
        assert!((each - STATEMENTS as f64).abs() < 0.5, "{load:?}");
        assert!(load.connected_clients.is_some_and(|clients| clients <= MOST_OPEN), "{load:?}");
        for (value, absence) in [
            (LoadValue::StatementsPerS, LoadAbsence::NotCounted),
            (LoadValue::Versions, LoadAbsence::MissingRight),
            (LoadValue::EncryptedConnectShare, LoadAbsence::MissingRight),
        ] {
            assert_eq!(load.absent.get(&value), Some(&absence), "{load:?}");
        }
        let sentence = server_load::describe(&load);
        assert!(sentence.contains("at least 3") && sentence.contains("lacks the right"), "{sentence}");
    }
}

#[test]
fn statements_and_encryption_of_postgres_need_an_extension_and_a_right() {
    for fixture in Fixture::all(Engine::Postgres) {
        let preload = "postgres.shared_preload_libraries=pg_stat_statements";
        let server = match fixture.start_with(SecurityLevel::Default, &[preload]) {
            Ok(server) => server,
            Err(error) => {
                ciphertoll_testing::missing(&format!("pg_stat_statements: {error}"));
                continue;
            }
        };
        let user = server.account(Auth::default_of(Engine::Postgres)).user;
        let grant = format!("GRANT pg_monitor TO {user}");
        as_owner(
            &server,
            &[
                "CREATE SCHEMA \"Its own\"",
                "CREATE EXTENSION pg_stat_statements SCHEMA \"Its own\"",
                &grant,
                &format!("GRANT USAGE ON SCHEMA \"Its own\" TO {user}"),
            ],
        );
        let _open = connect(&server, Auth::default_of(Engine::Postgres), Way::Tls).unwrap();
        let (load, connects) = read_during_load(&server, "sslmode=require", SHORT, Way::Tls);
        assert_is_of(&load, connects, Engine::Postgres);
        let each = load.statements_per_connection.unwrap();
        assert!((each - STATEMENTS as f64).abs() < 0.5, "{load:?}");
        assert_eq!(load.encrypted_connect_share, Some(1.0), "{load:?}");
        assert_eq!((load.versions[0].version, load.versions[0].share), (TlsVersion::Tls13, 1.0), "{load:?}");
        assert!(load.suites[0].suite.starts_with("TLS_AES_"), "{load:?}");
        let sentence = server_load::describe(&load);
        assert!(sentence.ends_with("statements each; 100 % of connections use TLS 1.3"), "{sentence}");
    }
}

#[test]
fn a_server_that_refuses_the_login_is_told() {
    for fixture in [Engine::MariaDb, Engine::Postgres].into_iter().flat_map(Fixture::all) {
        let server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
        let options =
            if server.engine() == Engine::Postgres { "sslmode=require" } else { "ssl-mode=REQUIRED" };
        let wrong = Passwords::from([(NAME.to_owned(), Secret::new(b"wrong".to_vec()))]);
        let error = server_load::read(NAME, &url(&server, options), &wrong, SHORT).unwrap_err();
        assert!(matches!(error, ciphertoll_lab::Error::WrongPassword { .. }), "{error}");
        assert_eq!(error.exit_code(), ExitCode::ServerRefused);
    }
}
