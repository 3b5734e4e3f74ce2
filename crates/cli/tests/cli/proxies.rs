//! Proxies in a run: what they make of connects, proxies that are killed or stopped in mid-trial, and that nothing of them
//! stays.

use std::time::Duration;

use ciphertoll_model::Engine;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    Between, Interruption, Session, assert_gone, best, is, items, medians_ns, one_document, real_server_of,
    until,
};

/// Paths, and what their processes are called in the ledger.
const PROXIES: [(&str, &str); 2] = [("proxy", "ciphertoll-proxy"), ("pgbouncer", "PgBouncer")];

const BETWEEN: Between = Between { what: "proxy", tried: "proxy_tried", trial: Duration::from_millis(750) };

const ASKED: [&str; 8] = [
    "--server",
    "postgres",
    "--path",
    "plain,tls1.3-p256,proxy,pgbouncer",
    "--workload",
    "connect-query",
    "--trial-time",
    "500ms",
];
const FEW_BLOCKS: [&str; 2] = ["--blocks", "2"];
/// More than are needed, for trials that are over before the test gets to them.
const MORE_BLOCKS: [&str; 2] = ["--blocks", "6"];

#[test]
fn a_run_tells_what_a_proxy_makes_of_connects() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &[&ASKED[..], &FEW_BLOCKS].concat());
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let here = BETWEEN.here(&session, &PROXIES);
    // They are known from here on, should the run be over before the test asks again.
    session.identities();
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    let document = one_document(&finished.stdout);
    for (path, program) in here {
        let cell = items(&document, "cells").iter().find(|cell| cell["path"] == path).expect("a cell");
        let has_blocks = cell["blocks_used"].as_u64() > Some(0);
        assert!(has_blocks || !items(cell, "voided").is_empty(), "{cell:#}");
        if has_blocks {
            // They need no login by SCRAM, as plain ones do.
            let [proxied, plain] = [path, "plain"].map(|path| best(&medians_ns(&finished.events, path)));
            assert!(proxied < plain, "{path}: {proxied} ns, plain: {plain} ns");
            is_cured(&document, cell, program);
        }
    }
}

/// More than a pool for one client has, and what replaces a connection that broke.
const FEW: u64 = 10;

/// Its own connections are few, and encrypted.
fn is_cured(document: &Value, cell: &Value, program: &str) {
    for metric in ["setup_ns", "rss_bytes_middle"] {
        assert!(cell["metrics"][metric]["value"].as_f64() > Some(0.0), "{metric}: {cell:#}");
    }
    let (front, behind): (Vec<&Value>, Vec<&Value>) =
        items(cell, "legs").iter().partition(|leg| leg["from"] == "client");
    assert!(front.iter().all(|leg| leg["tls_version"].is_null() && leg["auth"] == "trust"), "{front:?}");
    assert!(!behind.is_empty(), "{cell:#}");
    for leg in &behind {
        assert_eq!((&leg["tls_version"], &leg["key"]), (&"tls1.3".into(), &"p256".into()), "{leg}");
        assert_eq!(leg["library"], program);
    }
    let connections =
        |legs: &[&Value]| legs.iter().filter_map(|leg| leg["connections"].as_u64()).sum::<u64>();
    // However few connects there was time for.
    let pools = cell["blocks_used"].as_u64().expect("a number of blocks") * FEW;
    assert!(connections(&behind) <= pools && connections(&behind) < connections(&front), "{cell:#}");
    assert!(items(document, "cells").iter().any(|cell| cell["path"] == "tls1.3-p256"));
}

#[test]
fn a_proxy_that_is_killed_or_stopped_voids_its_trial_and_the_run_goes_on() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &[&ASKED[..], &MORE_BLOCKS].concat());
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let of = |(path, process): (&'static str, &'static str)| {
        [Signal::SIGKILL, Signal::SIGSTOP].map(|signal| Interruption { path, process, signal })
    };
    let ahead = BETWEEN.here(&session, &PROXIES).into_iter().flat_map(of).collect();
    BETWEEN.each_voids_its_trial(session, ahead);
}

#[test]
fn neither_a_killed_nor_an_interrupted_run_leaves_a_proxy() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = tempfile::tempdir().expect("a directory");
        let mut session = Session::start(place.path(), &[&ASKED[..], &MORE_BLOCKS].concat());
        session.wait_for("calibration's end", |event| is(event, "block_finished"));
        let Some((path, program)) = BETWEEN.here(&session, &PROXIES).first().copied() else { return };
        session.wait_for("a trial through a proxy", |event| {
            is(event, "trial_started")
                && event["cell"].as_str().is_some_and(|cell| cell.contains(&format!("/{path}/")))
        });
        session.load();
        let scratch = session.scratch().to_owned();
        let noted = session.processes();
        assert!(noted.iter().any(|noted| noted.what == program), "{noted:?}");
        let processes = session.identities();
        session.signal(signal);
        session.finish();
        if signal == Signal::SIGKILL {
            // Children die with their parent; what they have left, the next start sweeps.
            until("the end of its processes", || {
                processes.iter().all(|process| !process.is_alive()).then_some(())
            });
            ciphertoll_record::sweep(&ciphertoll_record::scratch_root()).expect("a sweep");
        }
        assert_gone(&processes, &scratch);
    }
}
