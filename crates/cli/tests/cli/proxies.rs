//! Proxies in a run: what they make of connects, proxies that are killed or stopped in mid-trial, and that nothing of them
//! stays.

use ciphertoll_model::Engine;
use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{
    Finished, Session, assert_gone, beside_others, is, items, one_document, real_server_of, until,
};

/// Paths, and what their processes are called in the ledger.
const PROXIES: [(&str, &str); 2] = [("proxy", "ciphertoll-proxy"), ("pgbouncer", "PgBouncer")];

const ASKED: [&str; 10] = [
    "--server",
    "postgres",
    "--path",
    "plain,tls1.3-p256,proxy,pgbouncer",
    "--workload",
    "connect-query",
    "--trial-time",
    "500ms",
    "--blocks",
    "2",
];

/// Those that work here; in CI, all.
fn here(session: &Session) -> Vec<(&'static str, &'static str)> {
    let works =
        |path: &str| session.events().iter().any(|event| is(event, "proxy_tried") && event["path"] == path);
    let here: Vec<_> = PROXIES.into_iter().filter(|(path, _)| works(path)).collect();
    if here.len() < PROXIES.len() {
        ciphertoll_skip::missing(&format!("a proxy: {:?}", session.events()));
    }
    here
}

#[test]
fn a_run_tells_what_a_proxy_makes_of_connects() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let here = here(&session);
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
            is_cured(&document, cell, program);
        }
    }
}

/// Its connects are cheaper than plain ones, which log in by SCRAM; and its own connections are few, and encrypted.
fn is_cured(document: &Value, cell: &Value, program: &str) {
    let toll = cell["toll"]["latency_ns_mean"]["value"].as_f64().expect("a toll");
    assert!(toll < 1.0, "{cell:#}");
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
    assert!(connections(&behind) * 10 < connections(&front), "{cell:#}");
    assert!(items(document, "cells").iter().any(|cell| cell["path"] == "tls1.3-p256"));
}

/// What was done to a proxy, and in which trial.
struct Attack {
    block: Value,
    cell: Value,
    program: &'static str,
    happened: &'static str,
}

#[test]
fn a_proxy_that_is_killed_or_stopped_voids_its_trial_and_the_run_goes_on() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let here = here(&session);
    let attacks: Vec<Attack> = (0..2 * here.len()).map(|_| attack(&mut session, &here)).collect();
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    for attack in &attacks {
        was_voided_and_done_again(&finished, attack);
    }
}

/// Waits for the next trial through a proxy, and ends or stops the proxy.
fn attack(session: &mut Session, here: &[(&str, &'static str)]) -> Attack {
    let program_of = |event: &Value| {
        let cell = event["cell"].as_str().unwrap_or_default();
        here.iter().find(|(path, _)| cell.contains(&format!("/{path}/"))).map(|(_, program)| *program)
    };
    let begun = session.wait_for("a trial through a proxy", |event| {
        is(event, "trial_started") && event["attempt"] == 1 && program_of(event).is_some()
    });
    session.load();
    let program = program_of(&begun).expect("it was asked for");
    let (signal, happened) = match begun["block"].as_u64() {
        Some(1) => (Signal::SIGKILL, "ended"),
        _ => (Signal::SIGSTOP, "stopped"),
    };
    let noted = session.processes();
    let process: ProcessIdentity =
        noted.iter().rfind(|noted| noted.what == program).expect("it is in the ledger").identity;
    kill(Pid::from_raw(process.pid), signal).expect("it runs");
    Attack { block: begun["block"].clone(), cell: begun["cell"].clone(), program, happened }
}

#[track_caller]
fn was_voided_and_done_again(finished: &Finished, attack: &Attack) {
    let Attack { block, cell, program, happened } = attack;
    let same = |event: &&&Value| event["cell"] == *cell && event["block"] == *block;
    let voided = finished.named("trial_voided");
    let first = voided.iter().find(|event| same(event) && event["attempt"] == 1);
    let reason = first.map(|event| event["reason"].to_string()).unwrap_or_default();
    let says_so = ["proxy", program, happened].iter().all(|word| reason.contains(word));
    assert!(says_so, "{program} {happened}: {reason}");
    assert!(finished.named("trial_finished").iter().any(|event| same(&event)), "{program}: not tried again");
}

#[test]
fn neither_a_killed_nor_an_interrupted_run_leaves_a_proxy() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let _machine = beside_others();
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = tempfile::tempdir().expect("a directory");
        let mut session = Session::start(place.path(), &ASKED);
        session.wait_for("calibration's end", |event| is(event, "block_finished"));
        let Some((path, program)) = here(&session).first().copied() else { return };
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
