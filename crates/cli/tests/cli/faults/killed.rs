//! SIGKILL, which nobody can catch: of the coordinator, of a load process, of a server.

use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::one_cell;
use crate::support::{
    Finished, MOMENT, Session, assert_gone, beside_others, is, items, one_document, real_server,
};

/// Long enough that a trial which has just begun is certainly on its way.
const LONG_TRIAL: [&str; 2] = ["--trial-time", "20s"];
/// Long enough to be killed in, short enough to wait for its repetition; a second block, as a hypervisor may void the
/// repetition.
const SHORT_TRIAL: [&str; 4] = ["--trial-time", "1s", "--blocks", "2"];
const BLOCKS: usize = 2;
const SHORTEST_RUN: [&str; 4] = ["--trial-time", "100ms", "--blocks", "1"];

/// Ends a process that a ledger named and that still runs.
#[track_caller]
fn kill_now(process: ProcessIdentity) {
    assert!(process.is_alive(), "{process:?} ended before it could be killed");
    kill(Pid::from_raw(process.pid), Signal::SIGKILL).expect("send SIGKILL");
}

#[test]
fn a_killed_coordinator_takes_its_children_along_and_the_next_run_clears_its_files() {
    if !real_server() {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut first = Session::start(place.path(), &one_cell(&LONG_TRIAL));
    let load = first.wait_for_load(0);
    let (server, scratch) = (first.server(), first.scratch().to_owned());
    let processes = first.identities();
    assert!(load.is_alive() && server.is_alive());
    first.signal(Signal::SIGKILL);
    let first = first.finish();
    assert_eq!(first.code, None, "it was killed");
    for (child, what) in [(load, "load process"), (server, "server")] {
        assert!(child.wait(MOMENT).expect("wait"), "the {what} outlives its coordinator");
    }
    assert!(scratch.join("s1/password").exists(), "a killed run cannot clear up");

    let next = Session::start(place.path(), &one_cell(&SHORTEST_RUN)).finish();
    assert_eq!(next.code, Some(0), "{:?}", next.told());
    assert_gone(&processes, &scratch);
    let warned = next.named("warned");
    let cleared = |warning: &&&Value| {
        warning["message"].as_str().is_some_and(|message| message.contains("cleared what killed runs left"))
    };
    // Another user's run on this machine may have swept first; ours then has nothing to tell.
    assert!(warned.iter().filter(cleared).count() <= 1, "{warned:?}");
}

#[test]
fn a_killed_load_process_voids_its_trial_and_the_repetition_counts() {
    if !real_server() {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&SHORT_TRIAL));
    let load = session.wait_for_load(1);
    let server = session.server();
    kill_now(load);
    session.wait_for("the voided trial", |event| is(event, "trial_voided"));
    assert!(server.is_alive(), "the server has nothing to do with it");
    session.wait_for("the repetition", |event| is(event, "trial_started") && event["attempt"] == 2);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    let voided = finished.only_void("load_failed");
    assert_eq!(voided["block"], 1, "{voided}");
    assert!(voided["reason"]["message"].as_str().is_some_and(|how| how.contains("signal 9")), "{voided}");
    assert_eq!(finished.named("server_ready").len(), 1, "the server stays up");
    it_is_reported(&finished, "the load process failed");
}

#[test]
fn a_killed_server_voids_the_trial_and_is_started_afresh() {
    if !real_server() {
        return;
    }
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&SHORT_TRIAL));
    session.wait_for_load(1);
    let first = session.server();
    kill_now(first);
    session.wait_for("the fresh server", |event| is(event, "server_ready") && event["server"] == "mariadb");
    let second = session.server();
    assert_ne!(second, first);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    let voided = finished.only_void("server_died");
    assert_eq!(voided["block"], 1, "{voided}");
    assert_eq!(finished.named("server_ready").len(), 2);
    it_is_reported(&finished, "the server went away");
}

/// The report counts every block whose repetition was not voided as well, and still tells of the void.
#[track_caller]
fn it_is_reported(finished: &Finished, reason: &str) {
    let document = one_document(&finished.stdout);
    let [cell] = items(&document, "cells") else { panic!("one cell: {document}") };
    let lost = finished.named("trial_voided").into_iter().filter(|voided| voided["attempt"] == 2).count();
    assert_eq!((&document["complete"], &cell["blocks_used"]), (&true.into(), &(BLOCKS - lost).into()));
    let tells = |voided: &Value| voided["reason"].as_str().is_some_and(|said| said.contains(reason));
    assert!(items(cell, "voided").iter().any(tells), "{cell:#}");
}
