//! Proxies in a run: what they make of connects, proxies that are killed or stopped in mid-trial, and that nothing of them
//! stays.

use std::time::Duration;

use ciphertoll_model::Engine;
use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    Attack, Session, assert_gone, beside_others, best, is, items, medians_ns, one_document, real_server_of,
    until,
};

/// Paths, and what their processes are called in the ledger.
const PROXIES: [(&str, &str); 2] = [("proxy", "ciphertoll-proxy"), ("pgbouncer", "PgBouncer")];

/// What a trial takes, warm-up and all.
const TRIAL: Duration = Duration::from_millis(750);

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

/// Those that work here; in CI, all but those for whose calibration there was no time.
fn here(session: &Session) -> Vec<(&'static str, &'static str)> {
    let works =
        |path: &str| session.events().iter().any(|event| is(event, "proxy_tried") && event["path"] == path);
    let mut here: Vec<_> = PROXIES.into_iter().filter(|(path, _)| works(path)).collect();
    if here.len() < PROXIES.len() {
        ciphertoll_skip::missing(&format!("a proxy: {:?}", session.events()));
    }
    let none = here.is_empty();
    here.retain(|(path, _)| !session.lost_path_to_noise(path));
    assert!(none || !here.is_empty(), "no time for any: {:?}", session.events());
    here
}

#[test]
fn a_run_tells_what_a_proxy_makes_of_connects() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &[&ASKED[..], &FEW_BLOCKS].concat());
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let here = here(&session);
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

/// What is done to a proxy, and what is then said of it.
#[derive(Clone, Copy)]
struct Interruption {
    path: &'static str,
    program: &'static str,
    signal: Signal,
    happened: &'static str,
}

#[test]
fn a_proxy_that_is_killed_or_stopped_voids_its_trial_and_the_run_goes_on() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &[&ASKED[..], &MORE_BLOCKS].concat());
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let mut ahead = interruptions(&session);
    let mut done = Vec::new();
    while !ahead.is_empty() {
        done.push(interrupt(&mut session, &mut ahead));
    }
    if !done.is_empty() {
        session.wait_for("the end of its block", |event| is(event, "block_finished"));
    }
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    session.signal(Signal::SIGINT);
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    for (voided, Interruption { program, happened, .. }) in done {
        let reason = voided["reason"].to_string();
        let says_so = ["proxy", program, happened].iter().all(|word| reason.contains(word));
        assert!(says_so, "{program} {happened}: {reason}");
        let same = |event: &&Value| ["cell", "block", "arm"].iter().all(|key| event[*key] == voided[*key]);
        let again = finished.named("trial_finished").into_iter().any(|event| same(&event));
        assert!(again, "{program}: not tried again");
    }
}

/// What is to be done to the proxies that are here.
fn interruptions(session: &Session) -> Vec<Interruption> {
    let of =
        |(path, program): (&'static str, &'static str)| {
            [(Signal::SIGKILL, "ended"), (Signal::SIGSTOP, "stopped")]
                .map(|(signal, happened)| Interruption { path, program, signal, happened })
        };
    here(session).into_iter().flat_map(of).collect()
}

/// Waits for the next trial through a proxy to which something is still to be done, and does it: how it was voided.
fn interrupt(session: &mut Session, ahead: &mut Vec<Interruption>) -> (Value, Interruption) {
    loop {
        let of_path = |event: &Value| {
            let cell = event["cell"].as_str().unwrap_or_default();
            ahead.iter().position(|next| cell.contains(&format!("/{}/", next.path)))
        };
        let begun = session.next_trial(|event| of_path(event).is_some());
        let at = of_path(&begun).expect("it was asked for");
        let next = ahead[at];
        let chosen = |session: &mut Session| {
            let noted = session.processes();
            let process: ProcessIdentity =
                noted.iter().rfind(|noted| noted.what == next.program).expect("it is in the ledger").identity;
            Attack { process, signal: next.signal, gate: "proxy", trial: TRIAL }
        };
        if let Some(voided) = session.attack(&begun, chosen) {
            return (voided, ahead.remove(at));
        }
    }
}

#[test]
fn neither_a_killed_nor_an_interrupted_run_leaves_a_proxy() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let _machine = beside_others();
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = tempfile::tempdir().expect("a directory");
        let mut session = Session::start(place.path(), &[&ASKED[..], &MORE_BLOCKS].concat());
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
