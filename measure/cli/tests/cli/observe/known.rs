//! Known answers: what our own client knows of its connections is what the observer prints.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use ciphertoll_model::Engine;
use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{self, Group, Negotiated, ResumptionMethod, TlsLibrary, TlsParameters, TlsVersion};
use ciphertoll_net::{ConnectProgress, Dialer, Readiness, Received};
use ciphertoll_wire::postgres::{PostgresConnect, PostgresServerInfo};
use ciphertoll_wire::session::{Connect, Login, ServerInfo};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::geteuid;
use serde_json::{Value, json};

use super::lab::{Lab, Start};

pub(super) const QUERIES: [u64; 5] = [1, 2, 3, 10, 100];

/// A server of the lab, or `None` with the reason.
pub(super) fn lab(engine: Engine, server: &str, path: &str) -> Option<Lab> {
    if !geteuid().is_root() {
        ciphertoll_testing::not_for_all("only root may capture packets");
        return None;
    }
    if let Err(error) = ciphertoll_lab::find(&server.parse().expect("a level")) {
        ciphertoll_testing::missing(&format!("{server}: {error}"));
        return None;
    }
    Some(Lab::start(engine, server, path, &[]))
}

pub(super) fn parameters(version: TlsVersion, group: Option<Group>) -> TlsParameters {
    TlsParameters { group, ..TlsParameters::new(version) }
}

/// What the clients knew, as a list of connections.
pub(super) fn connects(lab: &Lab, start: Start, settings: Option<&tls::Settings>) -> Vec<Option<Negotiated>> {
    let dialer = lab.dialer(start, lab.password(), settings);
    let query = if lab.variable("CIPHERTOLL_URL").starts_with("mongodb") {
        "{\"listCollections\": 1}"
    } else {
        "SELECT 1"
    };
    let connect = |queries: &u64| {
        let mut client = Client::dial(&dialer).unwrap_or_else(|error| panic!("{error}"));
        for _ in 0..*queries {
            client.query(query).expect("an answer");
        }
        let negotiated = client.negotiated();
        client.close().expect("a goodbye");
        negotiated
    };
    QUERIES.iter().map(connect).collect()
}

pub(super) fn only_pair(seen: &Value) -> Value {
    let [pair] = &seen["pairs"].as_array().expect("a list")[..] else { panic!("{seen:#}") };
    pair.clone()
}

fn count(known: &[Option<Negotiated>], is: impl Fn(&Negotiated) -> bool) -> usize {
    known.iter().flatten().filter(|negotiated| is(negotiated)).count()
}

/// Sums a number over all kinds of encryption.
fn sum(pair: &Value, field: &str) -> u64 {
    pair["encryption"].as_array().expect("a list").iter().filter_map(|kind| kind[field].as_u64()).sum()
}

fn check(name: &str, seen: &Value, known: &[Option<Negotiated>]) {
    let pair = only_pair(seen);
    assert_eq!(pair["connections"]["begun"], known.len(), "{name}: {pair:#}");
    assert_eq!(pair["connections"]["unread"], 0, "{name}: {pair:#}");
    assert_eq!(pair["connections"]["open"], 0, "{name}: {pair:#}");
    assert_eq!(pair["failures"], json!([]), "{name}: {pair:#}");
    let shares = QUERIES.map(|queries| json!({ "queries": queries, "connections": 1 }));
    assert_eq!(pair["queries"]["distribution"], json!(shares), "{name}: {pair:#}");
    for kind in pair["encryption"].as_array().expect("a list") {
        let Some(first) = known.iter().flatten().next() else {
            assert_eq!(kind["kind"], "none", "{name}: {kind:#}");
            continue;
        };
        assert_eq!(
            (&kind["kind"], &kind["version"]),
            (&json!("tls"), &json!(first.version)),
            "{name}: {kind:#}"
        );
        let of_kind = |negotiated: &&Negotiated| {
            kind["group"].as_str() == negotiated.group.as_deref()
                && kind["suite"].as_str() == Some(negotiated.suite)
        };
        let like = known.iter().flatten().filter(of_kind).count();
        assert_eq!(kind["connections"], like, "{name}: {known:?} {kind:#}");
    }
    let resumed = count(known, |negotiated| negotiated.resumed);
    assert_eq!(sum(&pair, "resumed"), resumed as u64, "{name}: {pair:#}");
    let retried = count(known, |negotiated| negotiated.hello_retry);
    assert_eq!(sum(&pair, "hello_retries"), retried as u64, "{name}: {pair:#}");
    let unused = count(known, |negotiated| !negotiated.unused_shares.is_empty());
    assert_eq!(sum(&pair, "unused_key_shares"), unused as u64, "{name}: {pair:#}");
}

#[test]
fn what_our_client_negotiates_with_postgresql_is_what_is_seen() {
    let Some(lab) = lab(Engine::Postgres, "postgres", "tls1.3-p256") else { return };
    for (group, retried) in [(None, true), (Some(Group::P256), false)] {
        let settings = lab.settings(parameters(TlsVersion::Tls13, group));
        let observer = lab.observe();
        let known = connects(&lab, Start::Tls, Some(&settings));
        let seen = observer.end();
        assert_eq!(count(&known, |negotiated| negotiated.hello_retry) > 0, retried, "{known:?}");
        check("postgres", &seen, &known);
    }
}

#[test]
fn sessions_that_our_client_resumes_on_mariadb_are_seen_as_resumed() {
    for (path, version, methods) in [
        ("tls1.3-p256", TlsVersion::Tls13, vec![ResumptionMethod::Any]),
        ("tls1.2-rsa2048", TlsVersion::Tls12, vec![ResumptionMethod::Any, ResumptionMethod::SessionId]),
    ] {
        let Some(lab) = lab(Engine::MariaDb, "mariadb", path) else { return };
        for method in methods {
            let settings = tls::Settings {
                resumption: tls::Resumption::WithinContext(method),
                ..lab.settings(parameters(version, None))
            };
            let observer = lab.observe();
            let known = connects(&lab, Start::Tls, Some(&settings));
            let seen = observer.end();
            assert_eq!(count(&known, |negotiated| negotiated.resumed), QUERIES.len() - 1, "{known:?}");
            check(path, &seen, &known);
        }
        let settings = lab.settings(parameters(version, Some(Group::P384)));
        let observer = lab.observe();
        let known = connects(&lab, Start::Tls, Some(&settings));
        check(path, &observer.end(), &known);
    }
}

/// rustls sends shares for X25519MLKEM768 and X25519.
#[test]
fn a_post_quantum_key_exchange_is_seen_and_so_is_its_unused_share() {
    for (engine, server, start) in [
        (Engine::MariaDb, "mariadb-11.8", Start::Tls),
        (Engine::Postgres, "debian-13:postgres-17", Start::Tls),
        (Engine::Postgres, "debian-13:postgres-17", Start::DirectTls),
        (Engine::Postgres, "postgres-18", Start::DirectTls),
    ] {
        let Some(lab) = lab(engine, server, "tls1.3-p256") else { continue };
        let parameters = TlsParameters { library: TlsLibrary::Rustls, ..parameters(TlsVersion::Tls13, None) };
        let observer = lab.observe();
        let known = connects(&lab, start, Some(&lab.settings(parameters)));
        check(server, &observer.end(), &known);
        if engine == Engine::MariaDb {
            let hybrid = |negotiated: &Negotiated| negotiated.group.as_deref() == Some("x25519mlkem768");
            assert_eq!(count(&known, hybrid), QUERIES.len(), "{known:?}");
        }
    }
}

#[test]
fn documents_are_seen_with_and_without_tls() {
    for (path, start) in [("plain", Start::Plain), ("tls1.3-p256", Start::Tls)] {
        let Some(lab) = lab(Engine::FerretDb, "ferretdb", path) else { return };
        let settings = (start == Start::Tls).then(|| lab.settings(parameters(TlsVersion::Tls13, None)));
        let observer = lab.observe();
        let known = connects(&lab, start, settings.as_ref());
        let seen = observer.end();
        check(path, &seen, &known);
    }
}

#[test]
fn a_client_certificate_is_seen_up_to_tls_1_2() {
    let Some(lab) = lab(Engine::Postgres, "postgres", "tls1.2-p256+mtls") else { return };
    let settings = tls::Settings {
        identity: Some(tls::Identity {
            certificate_file: lab.variable("PGSSLCERT").into(),
            key_file: lab.variable("PGSSLKEY").into(),
        }),
        ..lab.settings(parameters(TlsVersion::Tls12, None))
    };
    let observer = lab.observe();
    let known = connects(&lab, Start::Tls, Some(&settings));
    let seen = observer.end();
    check("mtls", &seen, &known);
    assert_eq!(sum(&only_pair(&seen), "client_certificates"), QUERIES.len() as u64, "{seen:#}");
}

/// Failures of which the reason is known.
#[test]
fn each_failure_is_seen_as_what_it_was() {
    let Some(lab) = lab(Engine::Postgres, "postgres", "tls1.2-p256") else { return };
    let trusted = lab.settings(parameters(TlsVersion::Tls12, None));
    let foreign = |version| tls::Settings {
        anchors: tls::TrustAnchors::System,
        ..lab.settings(parameters(version, None))
    };
    let refused = |start, settings: &tls::Settings, password: &str| {
        let error = Client::dial(&lab.dialer(start, password, Some(settings))).err().expect("refused");
        error.to_string()
    };
    let observer = lab.observe();
    refused(Start::Tls, &foreign(TlsVersion::Tls12), lab.password());
    refused(Start::Tls, &trusted, "wrong");
    refused(Start::Tls, &lab.settings(parameters(TlsVersion::Tls13, None)), "wrong");
    reset_before_the_login(&lab);
    cancel(&lab);
    let seen = observer.end();
    let pair = only_pair(&seen);
    assert_eq!(pair["connections"]["cancel_requests"], 1, "{pair:#}");
    let failure = |reason: &str, connections| json!({ "reason": reason, "connections": connections });
    let failures = pair["failures"].as_array().expect("a list");
    for expected in [
        failure("TLS alert by the client: unknown_ca", 1),
        failure("ended during the login, which is encrypted: most likely refused", 2),
        failure("reset by the client before the login was complete", 1),
    ] {
        assert!(failures.contains(&expected), "{expected}: {pair:#}");
    }
    assert_eq!((failures.len(), &pair["connections"]["begun"]), (3, &json!(4)), "{pair:#}");
}

#[test]
fn a_wrong_password_without_encryption_is_seen_with_the_servers_code() {
    for (engine, server, code) in
        [(Engine::Postgres, "postgres", "28P01"), (Engine::MariaDb, "mariadb", "1045")]
    {
        let Some(lab) = lab(engine, server, "plain") else { return };
        let observer = lab.observe();
        assert!(Client::dial(&lab.dialer(Start::Plain, "wrong", None)).is_err());
        let known = connects(&lab, Start::Plain, None);
        let seen = observer.end();
        let pair = only_pair(&seen);
        let failures = json!([{ "reason": format!("refused: {code}"), "connections": 1 }]);
        assert_eq!(pair["failures"], failures, "{pair:#}");
        assert_eq!(pair["connections"]["begun"], known.len() + 1, "{pair:#}");
    }
}

/// Clients that log in and leave, such as health checks, and one with a wrong password.
#[test]
fn a_login_without_a_query_is_no_failure() {
    for (engine, server) in [(Engine::Postgres, "postgres"), (Engine::MariaDb, "mariadb")] {
        let Some(lab) = lab(engine, server, "tls1.3-p256") else { return };
        let settings = lab.settings(parameters(TlsVersion::Tls13, Some(Group::P256)));
        let dialer = |password: &str| lab.dialer(Start::Tls, password, Some(&settings));
        let observer = lab.observe();
        let client = Client::dial(&dialer(lab.password())).unwrap_or_else(|error| panic!("{error}"));
        client.close().expect("a goodbye");
        // Without a goodbye.
        drop(Client::dial(&dialer(lab.password())).unwrap_or_else(|error| panic!("{error}")));
        assert!(Client::dial(&dialer("wrong")).is_err());
        let pair = only_pair(&observer.end());
        assert_eq!(
            (&pair["connections"]["begun"], &pair["connections"]["sessions"]),
            (&json!(3), &json!(2)),
            "{pair:#}"
        );
        let reason = "ended during the login, which is encrypted: most likely refused";
        assert_eq!(pair["failures"], json!([{ "reason": reason, "connections": 1 }]), "{pair:#}");
        assert_eq!(pair["queries"]["distribution"], json!([{ "queries": 0, "connections": 2 }]), "{pair:#}");
    }
}

/// Ends a connection by RST after the server's first answer.
fn reset_before_the_login(lab: &Lab) {
    let mut stream = TcpStream::connect(lab.address).expect("a connection");
    stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).expect("an SSLRequest");
    stream.read_exact(&mut [0]).expect("an answer");
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&stream, sockopt::Linger, &at_once).expect("an option");
}

/// A query that another connection cancels, and a connection that ends without a goodbye.
#[test]
fn a_cancelled_query_is_seen_as_one_and_its_connection_goes_on() {
    let Some(lab) = lab(Engine::Postgres, "postgres", "tls1.3-p256") else { return };
    for start in [Start::Plain, Start::Tls] {
        let settings = lab.settings(parameters(TlsVersion::Tls13, Some(Group::P256)));
        let dialer = lab.dialer(start, lab.password(), (start == Start::Tls).then_some(&settings));
        let connect = || Client::dial(&dialer).unwrap_or_else(|error| panic!("{error}"));
        let observer = lab.observe();
        let (mut cancelled, mut watching) = (connect(), connect());
        let ServerInfo::Postgres(server) = cancelled.server().clone() else { panic!("PostgreSQL") };
        let sleeping = std::thread::spawn(move || {
            let error = cancelled.query("SELECT pg_sleep(600)").expect_err("it is cancelled");
            cancelled.query("SELECT 1").expect("the connection is still of use");
            cancelled.close().expect("a goodbye");
            error.to_string()
        });
        let is_active = format!(
            "SELECT 1 FROM pg_stat_activity WHERE pid = {} AND wait_event = 'PgSleep'",
            server.process_id
        );
        let mut asked = 1;
        while watching.query(&is_active).expect("an answer").is_empty() {
            asked += 1;
        }
        cancel_query(&dialer, &server);
        let error = sleeping.join().expect("no panic");
        assert!(error.contains("57014"), "{error}");
        watching.close().expect("a goodbye");
        // Without a goodbye.
        drop(connect());
        let seen = observer.end();
        let pair = only_pair(&seen);
        assert_eq!(pair["connections"]["cancel_requests"], 1, "{start:?}: {pair:#}");
        assert_eq!(
            (&pair["connections"]["begun"], &pair["failures"]),
            (&json!(3), &json!([])),
            "{start:?}: {pair:#}"
        );
        let mut queries = vec![0, 2, asked];
        queries.sort_unstable();
        let mut shares: Vec<Value> = Vec::new();
        for count in queries {
            match shares.last_mut().filter(|share| share["queries"] == count) {
                Some(share) => share["connections"] = json!(2),
                None => shares.push(json!({ "queries": count, "connections": 1 })),
            }
        }
        assert_eq!(pair["queries"]["distribution"], json!(shares), "{start:?}: {pair:#}");
    }
}

/// Through the sidecar: clients without encryption, and few connections by TLS behind it, which carry all queries.
#[test]
fn both_sides_of_the_sidecar_are_seen() {
    for (engine, server) in [(Engine::MariaDb, "mariadb"), (Engine::Postgres, "postgres")] {
        let Some(lab) = lab(engine, server, "proxy") else { return };
        let lab = lab.behind_the_sidecar();
        let observer = lab.observe();
        lab.end_server_connection();
        connects(&lab, Start::Plain, None);
        let pair = only_pair(&observer.end());
        // One after another, the clients share a connection; the sidecar may have opened another one in advance.
        let begun = pair["connections"]["begun"].as_u64().expect("a number");
        assert!((1..=2).contains(&begun), "{pair:#}");
        let [kind] = &pair["encryption"].as_array().expect("a list")[..] else { panic!("{pair:#}") };
        assert_eq!((&kind["kind"], &kind["version"]), (&json!("tls"), &json!("tls1.3")), "{pair:#}");
        let shares = pair["queries"]["distribution"].as_array().expect("a list").iter();
        let seen: u64 = shares
            .filter_map(|share| Some(share["queries"].as_u64()? * share["connections"].as_u64()?))
            .sum();
        // The sidecar resets the connection between clients, and asks nothing else.
        let sent: u64 = QUERIES.iter().sum();
        assert!((sent..=sent + 2 * QUERIES.len() as u64).contains(&seen), "{seen} of {sent}: {pair:#}");
    }
}

/// Asks for the query of a connection to be cancelled, encrypted as the connection is.
fn cancel_query(dialer: &Dialer, server: &PostgresServerInfo) {
    let Login::Postgres(login) = &dialer.login else { panic!("PostgreSQL") };
    let machine =
        PostgresConnect::cancelling(Arc::clone(login), server.process_id, server.cancel_key.clone());
    let mut connecting = dialer.dial_as(Connect::Postgres(machine)).expect("a connection");
    let mut channel = loop {
        match connecting.advance(Readiness::Readable).expect("an answer") {
            ConnectProgress::Pending(next) => connecting = next,
            ConnectProgress::Done(connected) => break connected.channel,
        }
    };
    channel.send().expect("a request");
    // The server ends the connection when it has handled the request.
    while channel.receive().expect("an answer") != Received::Closed {}
}

/// A request to cancel a query of a process that does not exist.
fn cancel(lab: &Lab) {
    let mut stream = TcpStream::connect(lab.address).expect("a connection");
    let request = [0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4];
    stream.write_all(&request).expect("a request");
    stream.read_to_end(&mut Vec::new()).expect("the server closes it");
}
