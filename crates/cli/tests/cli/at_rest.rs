//! Encryption at rest in a run: what is found in the files, a file system that is killed in mid-trial, and that nothing
//! stays mounted, not even after SIGKILL.

use std::path::{Path, PathBuf};

use ciphertoll_model::Engine;
use ciphertoll_record::{is_mounted, sweep};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Session, alone, assert_gone, is, items, one_document, real_server_of, until};

const LAYER: &str = "gocryptfs";
const ASKED: [&str; 12] = [
    "--server",
    "postgres",
    "--path",
    "plain",
    "--at-rest",
    "none,gocryptfs",
    "--workload",
    "point-select",
    "--trial-time",
    "500ms",
    "--blocks",
    "2",
];

/// A run that has its servers up, one of them on an encrypting file system; none where there is no such thing here.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn begun(place: &Path) -> Option<Session> {
    if !real_server_of(Engine::Postgres) {
        return None;
    }
    let mut session = Session::start(place, &ASKED);
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let skipped = session.events().iter().find(|event| is(event, "cell_skipped"));
    if let Some(skipped) = skipped {
        eprintln!("skipped: {skipped}");
        return None;
    }
    Some(session)
}

/// Where the file system of a run is mounted.
fn mounted(scratch: &Path) -> PathBuf {
    let servers = std::fs::read_dir(scratch).expect("the scratch directory").flatten();
    let mut mounts = servers.map(|server| server.path().join("gate/clear"));
    mounts.find(|mount| is_mounted(mount).expect("what is mounted")).expect("a file system")
}

fn layer_of(session: &mut Session) -> Pid {
    let processes = session.processes();
    Pid::from_raw(processes.iter().rfind(|noted| noted.what == LAYER).expect("its process").identity.pid)
}

#[test]
fn a_killed_file_system_voids_its_trial_and_the_run_goes_on() {
    let _machine = alone();
    let place = tempfile::tempdir().expect("a directory");
    let Some(mut session) = begun(place.path()) else { return };
    let first = mounted(session.scratch());
    let trial = session.wait_for("a trial with encrypted files", |event| {
        is(event, "trial_started") && event["cell"].as_str().is_some_and(|cell| cell.contains("/gocryptfs/"))
    });
    session.load();
    kill(layer_of(&mut session), Signal::SIGKILL).expect("it runs");
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    assert!(!is_mounted(&first).expect("what is mounted"));
    let voided = finished.named("trial_voided");
    let same =
        |event: &&&serde_json::Value| event["cell"] == trial["cell"] && event["block"] == trial["block"];
    let reason = &voided.iter().find(same).expect("the trial was voided")["reason"];
    assert_eq!(reason["gate"], "at_rest", "{voided:?}");
    let again = finished.named("trial_finished");
    assert!(again.iter().any(|event| same(&event)), "{:?}", finished.told());
    let found: Vec<(&str, bool)> = finished
        .named("at_rest_proven")
        .iter()
        .map(|proof| (proof["at_rest"].as_str().expect("a level"), proof["files_with_marker"] != 0))
        .collect();
    assert_eq!(
        found,
        [("none", true), (LAYER, false), (LAYER, false)],
        "and again when it was started afresh"
    );
    let document = one_document(&finished.stdout);
    let levels: Vec<&str> =
        items(&document, "cells").iter().filter_map(|cell| cell["at_rest"].as_str()).collect();
    assert_eq!(levels, ["none", LAYER]);
}

#[test]
fn a_killed_run_leaves_a_mount_to_the_sweep_and_to_nobody_else() {
    let _machine = alone();
    let place = tempfile::tempdir().expect("a directory");
    let Some(mut session) = begun(place.path()) else { return };
    let mount = mounted(session.scratch());
    let (scratch, processes) = session.kill_where_it_is().expect("it runs");
    session.finish();
    let root = scratch.parent().expect("the root of all scratch directories");
    until("a sweep", || sweep(root).expect("a sweep").left.is_empty().then_some(()));
    assert!(!is_mounted(&mount).expect("what is mounted"), "{}", mount.display());
    assert_gone(&processes, &scratch);
}
