//! Document databases at URLs: logins, refusals and loading, on a real server; and replica sets, simulated by relays
//! before one.

use std::net::SocketAddr;

use ciphertoll_model::{Endpoint, Engine};

use crate::replica_set::{Kind, ReplicaSet, SET};
use crate::support::{Answer, items, one_document};
use crate::url::{Elsewhere, cells, files_with, real_server};

const FEW_RECORDS: [&str; 2] = ["--scale", "100"];
/// The loopback address, as no certificate names it.
const ANOTHER_NAME: &str = "127.1";

/// One, where one is here.
fn ferretdb() -> Option<Elsewhere> {
    real_server(Engine::FerretDb).then(|| Elsewhere::start(Engine::FerretDb))
}

fn address(endpoint: &Endpoint) -> SocketAddr {
    match endpoint {
        Endpoint::Tcp(address) => *address,
        other => panic!("no TCP: {other:?}"),
    }
}

/// The URL of its account, for these hosts.
fn url(there: &Elsewhere, hosts: &str, options: &str) -> String {
    format!("there=mongodb://{}@{hosts}/?{options}", there.server.user())
}

fn plain(there: &Elsewhere) -> String {
    url(there, &address(&there.server.tcp_endpoint()).to_string(), "tls=false")
}

fn by_tls(there: &Elsewhere, options: &str) -> String {
    let (at, ca_file) = (address(&there.server.tls_endpoint()), there.ca_file());
    url(there, &at.to_string(), &format!("tls=true&tlsCAFile={ca_file}{options}"))
}

fn said(answer: &Answer, part: &str) {
    assert!(answer.stderr.contains(part), "{part}: {answer:?}");
}

/// Refused, with one line that has `part` in it.
fn refused(answer: &Answer, part: &str) {
    assert_eq!(answer.code, Some(7), "{answer:?}");
    assert_eq!(answer.stderr.trim_end().lines().count(), 1, "{answer:?}");
    said(answer, part);
}

fn ids(answer: &Answer) -> Vec<String> {
    cells(&one_document(&answer.stdout), "rate_per_s").into_iter().map(|(id, _)| id).collect()
}

#[test]
fn documents_at_a_url_are_measured_with_tls_and_without() {
    let Some(there) = ferretdb() else { return };
    let answer = there.run(&plain(&there), &[]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    said(&answer, "there is a FerretDB, and is measured as such");
    assert_eq!(ids(&answer), ["there/plain/as-asked/-/native/as-is/as-is/connect/1/10000"]);
    let answer = there.run(&by_tls(&there, "&authMechanism=SCRAM-SHA-256"), &[]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let document = one_document(&answer.stdout);
    let paths: Vec<&str> =
        items(&document, "cells").iter().filter_map(|cell| cell["path"].as_str()).collect();
    assert_eq!(paths, ["tls1.3", "tls1.2"]);
    for leg in items(&document, "cells").iter().flat_map(|cell| items(cell, "legs")) {
        assert!(leg["auth"].as_str().is_some_and(|auth| auth.starts_with("scram-")), "{leg:#}");
    }
    assert_eq!(files_with(&there.runs(), &there.password()), Vec::<String>::new());
    assert!(!files_with(&there.runs(), "ferretdb://").is_empty(), "the record says who answered");
    assert_eq!(files_with(&there.runs(), "mongodb://"), Vec::<String>::new());
}

#[test]
fn a_server_that_does_not_speak_tls_is_not_waited_for() {
    let Some(there) = ferretdb() else { return };
    let both = plain(&there).replace("tls=false", "authSource=admin");
    let answer = there.run(&both, &["--workload", "connect", "--path", "plain,tls1.3"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(ids(&answer), ["there/plain/as-asked/-/native/as-is/as-is/connect/1/10000"]);
}

#[test]
fn who_is_not_let_in_gets_one_line() {
    let Some(there) = ferretdb() else { return };
    refused(&there.run_with("wrong", &plain(&there), &[]), "AuthenticationFailed");
    refused(&there.run_with("wrong", &by_tls(&there, ""), &[]), "AuthenticationFailed");
    let unknown = there.run_without_password(&plain(&there));
    refused(&unknown, "no password found for");
    said(&unknown, "looked in CIPHERTOLL_PASSWORD_THERE, CIPHERTOLL_PASSWORD (");
    let at = address(&there.server.tls_endpoint());
    let without_ca = url(&there, &at.to_string(), "tls=true");
    refused(&there.run(&without_ca, &[]), "by tlsCAFile=FILE in the URL");
    let by_name = by_tls(&there, "").replace("127.0.0.1", ANOTHER_NAME);
    refused(&there.run(&by_name, &[]), "does not verify");
    let lenient = by_tls(&there, "&tlsAllowInvalidHostnames=true").replace("127.0.0.1", ANOTHER_NAME);
    assert_eq!(there.run(&lenient, &["--path", "tls1.3"]).code, Some(0));
    let of_a_set = plain(&there) + "&replicaSet=rs0&directConnection=true";
    refused(&there.run(&of_a_set, &[]), "it is in no replica set, but its URL names rs0");
    let elsewhere = url(&there, "127.0.0.1:1", "tls=false&replicaSet=rs0");
    refused(&there.run(&elsewhere, &[]), "127.0.0.1:1 does not reply (cannot connect");
}

#[test]
fn documents_are_loaded_where_that_was_asked_for() {
    let Some(there) = ferretdb() else { return };
    let asked = ["--workload", "connect-query,find-one", "--path", "plain"];
    let url = plain(&there);
    let answer = there.run(&url, &[&asked[..], &FEW_RECORDS].concat());
    assert_eq!(answer.code, Some(2), "{answer:?}");
    said(&answer, "--prepare loads them into a database called ciphertoll");
    for _ in 0..2 {
        let answer = there.run(&url, &[&asked[..], &FEW_RECORDS, &["--prepare"]].concat());
        assert!(matches!(answer.code, Some(0 | 6)), "{answer:?}");
        assert_eq!(ids(&answer).len(), 2);
    }
    let answer = there.run(&url, &["--query", r#"{"ping":1}"#, "--path", "plain"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let answer = there.run(&url, &["--query", r#"{"nosuch":1}"#, "--path", "plain"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    said(&answer, "refuses the statement of --query");
    let answer = there.run(&url, &["--query", "SELECT 1"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    said(&answer, "must be a command in JSON, such as {\"ping\":1}");
}

#[test]
fn of_a_replica_set_the_preferred_member_is_measured() {
    let Some(there) = ferretdb() else { return };
    let server = address(&there.server.tcp_endpoint());
    let kinds = [Kind::FarSecondary, Kind::Primary, Kind::Secondary];
    let set = ReplicaSet::before(server, &kinds);
    let asked = ["--workload", "find-one", "--path", "plain", "--prepare"];
    let go = |seed: Kind, options: &str| {
        let seed = set.address(seed).to_string();
        let url = url(&there, &seed, &format!("tls=false&replicaSet={SET}{options}"));
        there.run(&url, &[&asked[..], &FEW_RECORDS].concat())
    };
    // Who takes no writes cannot be loaded.
    refused_with(&go(Kind::Primary, "&readPreference=secondary"), "cannot load documents into");
    let cases = [
        (Kind::Secondary, "", Kind::Primary, "the primary of the replica set rs0 of 3 members"),
        (
            Kind::Primary,
            "&readPreference=secondary",
            Kind::Secondary,
            "a secondary of the replica set rs0 of 3",
        ),
        (Kind::FarSecondary, "&readPreference=secondaryPreferred", Kind::Secondary, "a secondary"),
    ];
    for (seed, options, chosen, described) in cases {
        let before = set.reads(chosen);
        let answer = go(seed, options);
        assert!(matches!(answer.code, Some(0 | 6)), "{answer:?}");
        said(&answer, &format!("there: using replica-set member {}, {described}", set.address(chosen)));
        assert!(set.reads(chosen) > before, "{options}: its clients read from it");
    }
    let member =
        format!("{}/?tls=false&replicaSet={SET}&readPreference=secondary", set.address(Kind::Secondary));
    let recorded = files_with(&there.runs(), &format!("{member}&directConnection=true"));
    assert!(!recorded.is_empty(), "the plan has the member that was chosen");
    assert!(!files_with(&there.runs(), "\"member\":\"secondary\"").is_empty(), "the record says what it was");
    let direct = url(&there, &set.address(Kind::FarSecondary).to_string(), "tls=false");
    let answer = there.run(&direct, &[&asked[..], &FEW_RECORDS].concat());
    assert!(matches!(answer.code, Some(0 | 6)), "{answer:?}");
    assert!(!answer.stderr.contains("using replica-set member"), "a single host is not a choice: {answer:?}");
}

/// Refused after the run has begun.
fn refused_with(answer: &Answer, part: &str) {
    assert_eq!(answer.code, Some(7), "{answer:?}");
    said(answer, part);
}

#[test]
fn a_unix_socket_is_a_host_whose_slashes_are_written_out() {
    let Some(there) = ferretdb() else { return };
    let Endpoint::Unix(socket) = there.server.unix_endpoint() else { panic!("no socket") };
    let socket = socket.display().to_string().replace('/', "%2F");
    let answer = there.run(&url(&there, &socket, "tls=false"), &[]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(ids(&answer), ["there/unix/as-asked/-/native/as-is/as-is/connect/1/10000"]);
}
