//! Document databases in a run: what is measured, what cannot be, and a server that is killed during a trial.

use std::time::Duration;

use ciphertoll_model::Engine;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Attack, Session, assert_gone, ciphertoll, is, items, one_document, text};
use crate::url::real_server;

/// Its store looks through all of them for one.
const FEW_RECORDS: [&str; 2] = ["--scale", "100"];

const ASKED: [&str; 10] = [
    "--server",
    "ferretdb",
    "--workload",
    "connect,connect-query,first-query,find-one,ycsb-a",
    "--path",
    "plain,tls1.3-p256,tls1.2-rsa2048+suite=ECDHE-RSA-AES128-GCM-SHA256",
    "--auth",
    "scram-15000,scram-sha1",
    "--size",
    "smoke",
];

/// What cannot be had of it, and a part of the reason.
const IMPOSSIBLE: [(&str, &str, &str); 7] = [
    ("--path", "tls1.3-p256+eager", "TLS always starts with the first byte"),
    ("--path", "plain+compress=zlib", "FerretDB compresses no messages"),
    ("--path", "tls1.3-p256+compress=zlib", "FerretDB compresses no messages"),
    ("--auth", "cert", "login by certificate"),
    ("--auth", "md5", "it is PostgreSQL's"),
    ("--workload", "point-select", "needs SQL, which FerretDB does not support"),
    ("--path", "proxy", "does not speak MongoDB's protocol"),
];

fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A run to its end, and its record as a person and as a program is told it.
fn run(arguments: &[&str]) -> (String, Value) {
    let place = tempfile::tempdir().expect("a directory");
    let fixed = ["run", "-q", "--details", "--run-dir", text(place.path())];
    let output = ciphertoll(&[&fixed, arguments].concat()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // On a busy machine no operation may end within a short window, which leaves its cell out.
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 6)), "{:?}: {said}{told}", output.status);
    let report = ["report", "--run-dir", text(place.path()), "--format", "json"];
    let output = ciphertoll(&report).output().expect("the program starts");
    (said, one_document(&String::from_utf8_lossy(&output.stdout)))
}

#[test]
fn documents_are_measured_as_rows_are() {
    if !real_server(Engine::FerretDb) {
        return;
    }
    let (said, document) = run(&[&ASKED[..], &FEW_RECORDS].concat());
    assert!(said.contains("(not MongoDB)"), "{said}");
    let cells = items(&document, "cells");
    assert_eq!(cells.len(), 5 * 3 * 2, "{document:#}");
    for cell in cells.iter().filter(|cell| cell["blocks_used"].as_u64() > Some(0)) {
        let is_plain = field(cell, "path") == "plain";
        assert!(!items(cell, "legs").is_empty(), "{cell:#}");
        for leg in items(cell, "legs") {
            let version = field(leg, "tls_version");
            assert!(field(cell, "path").starts_with(if is_plain { "plain" } else { version }), "{cell:#}");
            assert_eq!(is_plain, version.is_empty(), "{cell:#}");
            assert!(field(leg, "auth").starts_with(field(cell, "auth")), "{cell:#}");
        }
        let phase = |name: &str| cell["metrics"][format!("phase_ns_{name}")]["value"].as_f64();
        if field(cell, "workload") == "connect" {
            assert!(phase("server_greeting") > Some(0.0) && phase("auth") > Some(0.0), "{cell:#}");
            assert_eq!(phase("tls_handshake").is_some(), !is_plain, "{cell:#}");
            assert_eq!(phase("tls_request"), None, "{cell:#}");
        }
    }
    let measured = cells.iter().filter(|cell| cell["blocks_used"].as_u64() > Some(0)).count();
    assert!(measured * 2 > cells.len(), "a hypervisor may void some: {document:#}");
}

#[test]
fn what_cannot_be_asked_of_it_has_a_reason() {
    if !real_server(Engine::FerretDb) {
        return;
    }
    for (factor, level, reason) in IMPOSSIBLE {
        let asked = ["run", "--server", "ferretdb", factor, level, "--dry-run"];
        let output = ciphertoll(&asked).output().expect("the program starts");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(reason), "{level}: {said}");
    }
}

#[test]
fn a_published_study_of_a_driver_ends_with_both_columns() {
    if !real_server(Engine::FerretDb) {
        return;
    }
    let (said, document) = run(&["mongodb-tls-2024", "--server", "ferretdb", "--size", "smoke"]);
    for part in
        ["Compared with the published study: mongodb-tls-2024", "5.36 ×", "driver pymongo", "Deviation: "]
    {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    let published = |cell: &&Value| cell["published"]["latency_ns_mean"]["value"].as_f64().is_some();
    let cells: Vec<&Value> = items(&document, "cells").iter().filter(published).collect();
    let phases: Vec<&str> = cells.iter().map(|cell| field(cell, "workload")).collect();
    assert_eq!(phases, ["connect", "first-find-any", "connect-find-any", "find-any"], "{document:#}");
    assert!(cells.iter().all(|cell| field(cell, "driver") == "pymongo"), "{document:#}");
}

#[test]
fn a_killed_server_of_documents_is_started_afresh() {
    if !real_server(Engine::FerretDb) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let asked = ["--server", "ferretdb", "--workload", "find-one", "--path", "plain", "--blocks", "5"];
    let more = ["--trial-time", "700ms"];
    let trial = Duration::from_millis(950);
    let mut session = Session::start(place.path(), &[&asked[..], &more, &FEW_RECORDS].concat());
    session.wait_for_load(0);
    let first = session.server();
    let kill = |session: &mut Session| {
        let (process, signal) = (session.server(), Signal::SIGKILL);
        Attack { process, signal, gate: "server_died", trial }
    };
    let (voided, _) = session.attack_one(|_| true, kill);
    session.wait_for("the fresh server", |event| is(event, "server_ready"));
    assert_ne!(session.server(), first);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.named("trial_voided"));
    assert_gone(&processes, &scratch);
    assert_eq!(finished.only_void("server_died"), &voided);
}
