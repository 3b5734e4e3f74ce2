//! SIGKILL to the coordinator, a load process, or a server.

use std::collections::BTreeSet;
use std::time::Duration;

use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::one_cell;
use crate::support::{
    Attack, Finished, MOMENT, Session, assert_gone, is, items, one_document, real_server, unswept,
};

/// Long enough that a trial which has just begun is certainly on its way.
const LONG_TRIAL: [&str; 2] = ["--trial-time", "20s"];
/// Long enough to be killed in, short enough to wait for its repetition; a second block, as a hypervisor may void the
/// repetition, or have no time for the test until the trial is over.
const SHORT_TRIAL: [&str; 4] = ["--trial-time", "1s", "--blocks", "2"];
/// What it takes, warm-up and all.
const SHORT: Duration = Duration::from_millis(1250);
const BLOCKS: usize = 2;
const SHORTEST_RUN: [&str; 4] = ["--trial-time", "100ms", "--blocks", "1"];

/// Kills what `chosen` finds in a trial: its event that tells how it was voided by `gate`.
#[track_caller]
fn kill_in_mid_trial(
    session: &mut Session,
    gate: &'static str,
    chosen: fn(&mut Session) -> ProcessIdentity,
) -> Value {
    signal_in_mid_trial(session, Signal::SIGKILL, gate, chosen)
}

/// The same for any signal.
#[track_caller]
fn signal_in_mid_trial(
    session: &mut Session,
    signal: Signal,
    gate: &'static str,
    chosen: fn(&mut Session) -> ProcessIdentity,
) -> Value {
    let attack = |session: &mut Session| Attack { process: chosen(session), signal, gate, trial: SHORT };
    session.attack_one(|_| true, attack).0
}

#[test]
fn a_killed_coordinator_takes_its_children_along_and_the_next_run_clears_its_files() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut first = Session::start(place.path(), &one_cell(&LONG_TRIAL));
    let load = first.wait_for_load(0);
    let (server, scratch) = (first.server(), first.scratch().to_owned());
    let processes = first.identities();
    assert!(load.is_alive() && server.is_alive());
    let lock = unswept();
    first.signal(Signal::SIGKILL);
    let first = first.finish();
    assert_eq!(first.code, None, "it was killed");
    for (child, what) in [(load, "load process"), (server, "server")] {
        assert!(child.wait(MOMENT).expect("wait"), "the {what} outlives its coordinator");
    }
    assert!(scratch.join("s1/password").exists(), "a killed run cannot clear up");
    drop(lock);

    let next = Session::start(place.path(), &one_cell(&SHORTEST_RUN)).finish();
    assert_eq!(next.code, Some(0), "{:?}", next.told());
    assert_gone(&processes, &scratch);
    let warned = next.named("warned");
    let cleared = |warning: &&&Value| {
        warning["message"]
            .as_str()
            .is_some_and(|message| message.contains("removed the remains of killed runs"))
    };
    // Another user's run on this machine may have swept first; ours then has nothing to tell.
    assert!(warned.iter().filter(cleared).count() <= 1, "{warned:?}");
}

#[test]
fn a_killed_load_process_voids_its_trial_and_the_repetition_counts() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&SHORT_TRIAL));
    let load = |session: &mut Session| session.load().expect("the trial that has begun has its load process");
    let voided = kill_in_mid_trial(&mut session, "load_failed", load);
    let server = session.server();
    assert!(server.is_alive(), "the server has nothing to do with it");
    session.wait_for("the repetition", |event| {
        is(event, "trial_started")
            && ["block", "cell", "arm"].iter().all(|key| event[*key] == voided[*key])
            && event["attempt"].as_u64() > voided["attempt"].as_u64()
    });
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    assert_eq!(finished.only_void("load_failed"), &voided);
    assert!(voided["reason"]["message"].as_str().is_some_and(|how| how.contains("signal 9")), "{voided}");
    assert_eq!(finished.named("server_ready").len(), 1, "the server stays up");
    it_is_reported(&finished, "the load process failed");
}

#[test]
fn a_killed_server_voids_the_trial_and_is_started_afresh() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&SHORT_TRIAL));
    session.wait_for_load(0);
    let first = session.server();
    let voided = kill_in_mid_trial(&mut session, "server_died", Session::server);
    session.wait_for("the fresh server", |event| is(event, "server_ready") && event["server"] == "mariadb");
    let second = session.server();
    assert_ne!(second, first);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    assert_eq!(finished.only_void("server_died"), &voided);
    assert_eq!(finished.named("server_ready").len(), 2);
    it_is_reported(&finished, "the server went away");
}

#[test]
fn a_stopped_server_voids_the_trial_and_is_started_afresh() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&SHORT_TRIAL));
    session.wait_for_load(0);
    let voided = signal_in_mid_trial(&mut session, Signal::SIGSTOP, "server_died", Session::server);
    session.wait_for("the fresh server", |event| is(event, "server_ready") && event["server"] == "mariadb");
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);
    assert_eq!(finished.only_void("server_died"), &voided);
    assert!(voided["reason"]["message"].as_str().is_some_and(|how| how.contains("stopped")), "{voided}");
    assert_eq!(finished.named("server_ready").len(), 2);
}

/// The report counts every block in which the cell has a trial that was not voided, and still tells of the void.
#[track_caller]
fn it_is_reported(finished: &Finished, reason: &str) {
    let document = one_document(&finished.stdout);
    let [cell] = items(&document, "cells") else { panic!("one cell: {document}") };
    let measured = finished.named("trial_finished").into_iter().filter(|event| event["arm"] == "main");
    let blocks: BTreeSet<u64> = measured.filter_map(|event| event["block"].as_u64()).collect();
    let counted = blocks.iter().filter(|block| **block > 0).count();
    let tried = finished.named("block_finished").len();
    assert_eq!(tried, 1 + BLOCKS, "calibration, and every block");
    assert_eq!((&document["complete"], &cell["blocks_used"]), (&true.into(), &counted.into()));
    let tells = |voided: &Value| voided["reason"].as_str().is_some_and(|said| said.contains(reason));
    assert!(items(cell, "voided").iter().any(tells), "{cell:#}");
}
