use std::collections::BTreeMap;

use ciphertoll_model::{Engine, ExitCode, ServerUrl, TlsVersion};

use super::between::ServerRestarted;
use super::reading::{CountsByPart, OpenTls, of_server};
use super::*;

#[expect(clippy::unnecessary_wraps, reason = "the type of the counters")]
fn of(count: u64) -> Result<CountsByPart, LoadAbsence> {
    Ok(of_server(count))
}

fn open(version: &str, suite: &str, connections: u64) -> OpenConnections {
    OpenConnections::from_names(version, suite, connections)
}

/// A reading of MySQL, with what a busy server has counted `times` over.
fn mysql(times: u64) -> LoadReading {
    LoadReading {
        start: ServerStart::SecondsAgo(1_000 + 10 * times),
        own_statements: 3 * times,
        connections: of(100 * times),
        statements: of(303 * times),
        statements_since: String::new(),
        transactions: Err(LoadAbsence::NotCounted),
        handshakes: of(80 * times),
        resumed_handshakes: of(20 * times),
        aborted_connects: of(5 * times),
        open: Ok(vec![open("TLSv1.2", "A", 3), open("TLSv1.3", "B", 6), open("", "", 1)]),
        connected_clients: Ok(10),
        most_connected_clients: Ok(99),
    }
}

/// A reading of PostgreSQL without `pg_stat_statements`.
fn postgres(times: u64) -> LoadReading {
    let not_counted = || Err(LoadAbsence::NotCounted);
    LoadReading {
        start: ServerStart::At("2026-11-25 12:00:00+00".to_owned()),
        own_statements: 5 * times,
        connections: of(20 * times),
        statements: not_counted(),
        transactions: of(45 * times),
        handshakes: not_counted(),
        resumed_handshakes: not_counted(),
        aborted_connects: not_counted(),
        most_connected_clients: Err(LoadAbsence::NotCounted),
        ..mysql(times)
    }
}

fn load(first: &LoadReading, second: &LoadReading) -> ServerLoad {
    load_between(first, second, 10.0).unwrap()
}

#[test]
fn rates_are_without_the_reader() {
    let load = load(&mysql(1), &mysql(2));
    assert_eq!((load.connects_per_s, load.statements_per_s), (Some(10.0), Some(30.0)));
    assert_eq!(load.statements_per_connection, Some(3.0));
    assert_eq!((load.encrypted_connect_share, load.resumed_share), (Some(0.8), Some(0.25)));
    assert_eq!(load.aborted_connects_per_s, Some(0.5));
    assert_eq!((load.connected_clients, load.most_connected_clients), (Some(10), Some(99)));
    let share = |version, share| TlsVersionShare { version, share };
    assert_eq!(load.versions, [share(TlsVersion::Tls13, 0.6), share(TlsVersion::Tls12, 0.3)]);
    assert_eq!(load.suites[0], SuiteShare { suite: "B".to_owned(), share: 0.6 });
    assert_eq!(load.absent, BTreeMap::from([(LoadValue::TransactionsPerS, LoadAbsence::NotCounted)]));
}

#[test]
fn absent_values_have_a_reason() {
    let right = |times| LoadReading { open: Err(LoadAbsence::MissingRight), ..postgres(times) };
    let load = load(&right(1), &right(2));
    assert_eq!((load.connects_per_s, load.transactions_per_s), (Some(2.0), Some(4.0)));
    assert_eq!(load.transactions_per_connection(), Some(2.0));
    for (value, absence) in [
        (LoadValue::StatementsPerS, LoadAbsence::NotCounted),
        (LoadValue::StatementsPerConnection, LoadAbsence::NotCounted),
        (LoadValue::EncryptedConnectShare, LoadAbsence::MissingRight),
        (LoadValue::Versions, LoadAbsence::MissingRight),
        (LoadValue::Suites, LoadAbsence::MissingRight),
        (LoadValue::ResumedShare, LoadAbsence::NotCounted),
    ] {
        assert_eq!(load.absent.get(&value), Some(&absence), "{value:?}");
    }
}

#[test]
fn open_connections_tell_the_share_if_handshakes_are_not_counted() {
    assert_eq!(load(&postgres(1), &postgres(2)).encrypted_connect_share, Some(0.9));
    let nobody = |times| LoadReading { open: Ok(Vec::new()), ..postgres(times) };
    let load = load(&nobody(1), &nobody(2));
    assert_eq!(load.absent.get(&LoadValue::EncryptedConnectShare), Some(&LoadAbsence::Idle));
    assert_eq!(load.absent.get(&LoadValue::Versions), Some(&LoadAbsence::Idle));
}

#[test]
fn an_idle_server_has_rates_but_no_shares() {
    let second = LoadReading { start: mysql(2).start, own_statements: 6, statements: of(306), ..mysql(1) };
    let first = mysql(1);
    let load = load(&first, &second);
    assert_eq!((load.connects_per_s, load.statements_per_s), (Some(0.0), Some(0.0)));
    assert_eq!(load.absent.get(&LoadValue::StatementsPerConnection), Some(&LoadAbsence::Idle));
    assert_eq!(load.absent.get(&LoadValue::ResumedShare), Some(&LoadAbsence::Idle));
    // Open connections are known even if none is new.
    assert_eq!(load.encrypted_connect_share, Some(0.9));
}

#[test]
fn a_restart_is_no_load_and_a_reset_counter_is_absent() {
    assert_eq!(load_between(&mysql(2), &mysql(1), 10.0), Err(ServerRestarted));
    // `FLUSH STATUS` just before each reading.
    let flushed = |times| LoadReading { start: ServerStart::SecondsAgo(0), ..mysql(times) };
    assert_eq!(load_between(&flushed(1), &flushed(2), 10.0), Err(ServerRestarted));
    let restarted = LoadReading { start: ServerStart::At("later".to_owned()), ..postgres(2) };
    assert_eq!(load_between(&postgres(1), &restarted, 10.0), Err(ServerRestarted));
    assert_eq!(load_between(&postgres(1), &mysql(2), 10.0), Err(ServerRestarted));
    let second = LoadReading { connections: of(7), ..mysql(2) };
    let fallen = load(&mysql(1), &second);
    assert_eq!(fallen.absent.get(&LoadValue::ConnectsPerS), Some(&LoadAbsence::Reset));
    assert_eq!(fallen.statements_per_s, Some(30.0));
    let second = LoadReading { statements_since: "evicted".to_owned(), ..mysql(2) };
    let evicted = load(&mysql(1), &second);
    assert_eq!(evicted.absent.get(&LoadValue::StatementsPerS), Some(&LoadAbsence::Reset));
}

#[test]
fn databases_may_come_and_go() {
    let counts = |all: &[(&str, u64)]| {
        Ok(all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<CountsByPart>())
    };
    let first = LoadReading { connections: counts(&[("1", 50), ("2", 1_000)]), ..postgres(1) };
    let second = LoadReading { connections: counts(&[("1", 60), ("3", 10)]), ..postgres(2) };
    assert_eq!(load(&first, &second).connects_per_s, Some(2.0));
}

#[test]
fn names_of_tls_versions_are_read() {
    let version = |name: &str| open(name, "S", 1).tls.map(|OpenTls { version, .. }| version);
    assert_eq!(version("TLSv1.3"), Some(Some(TlsVersion::Tls13)));
    assert_eq!(version("TLSv1"), Some(Some(TlsVersion::Tls10)));
    assert_eq!((version("TLSv9"), version("")), (Some(None), None));
}

#[test]
fn the_load_is_a_sentence() {
    let all_tls12 = |times| LoadReading {
        open: Ok(vec![open("TLSv1.2", "A", 3)]),
        resumed_handshakes: of(0),
        aborted_connects: of(0),
        connections: of(2_120 * times),
        statements: of((3 + 6_572) * times),
        ..mysql(times)
    };
    assert_eq!(
        describe(&load(&all_tls12(1), &all_tls12(2))),
        "your server takes 212 connects/s, 3.1 statements each; 100 % of connections use TLS 1.2"
    );
    assert_eq!(
        describe(&load(&postgres(1), &postgres(2))),
        "your server takes 2 connects/s, at least 2 statements each (it counts transactions, and statements are unknown: \
         pg_stat_statements is not in use); 60 % of connections use TLS 1.3, 30 % of connections use TLS 1.2"
    );
    let unlisted = |times| LoadReading { open: Err(LoadAbsence::NotCounted), ..mysql(times) };
    assert_eq!(
        describe(&load(&unlisted(1), &unlisted(2))),
        "your server takes 10 connects/s, 3 statements each; 80 % of connections use TLS; 25 % of TLS handshakes are \
         resumed; 0.50 connects/s fail"
    );
    let old = |times| LoadReading {
        connections: Err(LoadAbsence::NotCounted),
        open: Err(LoadAbsence::MissingRight),
        ..postgres(times)
    };
    assert_eq!(
        describe(&load(&old(1), &old(2))),
        "the connects of your server are unknown (it does not count them); it runs at least 4 statements/s (it counts \
         transactions); whether they use TLS is unknown (the account lacks the right to read them)"
    );
}

#[test]
fn the_load_is_serialised_with_reasons() {
    let load = load(&postgres(1), &postgres(2));
    let json = serde_json::to_value(&load).unwrap();
    assert_eq!(json["absent"]["statements_per_s"], "not_counted");
    assert_eq!(json["versions"][0], serde_json::json!({ "version": "tls1.3", "share": 0.6 }));
    assert_eq!(serde_json::from_value::<ServerLoad>(json).unwrap(), load);
}

#[test]
fn document_databases_are_refused() {
    for engine in [Engine::MongoDb, Engine::FerretDb] {
        let url: ServerUrl = format!("{}://a@h/", engine.label()).parse().unwrap();
        let error = read("docs", &url, &Passwords::new(), Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::NoLoadCounters { .. }), "{error}");
        assert_eq!(error.exit_code(), ExitCode::ServerRefused);
    }
}
