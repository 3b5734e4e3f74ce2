//! `run --profile` on real servers.

use ciphertoll_lab::check_perf;
use ciphertoll_model::Engine;
use ciphertoll_testing::not_for_all;
use serde_json::Value;

use crate::support::{Session, is, items, one_document, real_server_of};

const ASKED: [&str; 11] = [
    "--server",
    "mariadb,postgres",
    "--path",
    "plain,tls1.3-p256",
    "--workload",
    "connect",
    "--blocks",
    "1",
    "--trial-time",
    "150ms",
    "--profile",
];

/// The share of a few samples: a server process ends in the TLS library even if it never used it.
const STRAY: f64 = 0.01;

#[test]
fn the_cpu_time_of_a_tls_connect_is_divided() {
    if ![Engine::MariaDb, Engine::Postgres].into_iter().all(real_server_of) {
        return;
    }
    if let Err(unusable) = check_perf() {
        not_for_all(&unusable);
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("the last profile", |event| is(event, "finished"));
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    let document = one_document(&finished.stdout);
    let cells = items(&document, "cells");
    assert_eq!(cells.len(), 4);
    let mut tls_contexts = 0.0;
    for cell in cells {
        let profile = &cell["cpu_profile"];
        let total: f64 = numbers(&profile["shares"]).sum();
        assert!((0.98..=1.02).contains(&total), "{}: {profile:#}", cell["id"]);
        for role in ["client", "server"] {
            assert!(numbers(&profile["samples"][role]).sum::<f64>() > 0.0, "{role}: {profile:#}");
        }
        let share = |part: &str| profile["shares"][part].as_f64().unwrap_or_default();
        assert!(share("network") > 0.0, "every connect uses the network: {profile:#}");
        let is_tls = cell["path"] != "plain";
        assert_eq!(share("handshake") > STRAY, is_tls, "{}: {profile:#}", cell["id"]);
        assert!(is_tls || share("tls_context") < STRAY, "{}: {profile:#}", cell["id"]);
        tls_contexts += share("tls_context");
        let forks = cell["server"] == "postgres";
        assert!(!forks || share("processes") > 0.05, "a process per connect: {profile:#}");
    }
    assert!(tls_contexts > STRAY, "clients build a context for each connect: {cells:#?}");
}

fn numbers(table: &Value) -> impl Iterator<Item = f64> {
    table.as_object().into_iter().flatten().filter_map(|(_, number)| number.as_f64())
}
