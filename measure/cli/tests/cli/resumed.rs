//! A run that was killed, at whatever moment, and gone on with: the same plan, a whole record.

use std::fs;
use std::path::{Path, PathBuf};

use ciphertoll_model::{Event, TimestampedEvent};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Session, answer, assert_blocks_used, is, one_document, real_server, text};

pub(crate) const ASKED: [&str; 12] = [
    "--path",
    "plain,tls1.3-p256",
    "--workload",
    "connect",
    "--blocks",
    "3",
    "--trial-time",
    "150ms",
    "--seed",
    "11",
    "--set",
    "mariadb.innodb_flush_log_at_trx_commit=2",
];
pub(crate) const BLOCKS: u64 = 3;

/// A moment in a run's life.
struct Moment {
    what: &'static str,
    is_now: fn(&Value) -> bool,
}

const MOMENTS: [Moment; 6] = [
    Moment { what: "before the server", is_now: |event| is(event, "run_started") },
    Moment { what: "the server is up", is_now: |event| is(event, "server_ready") },
    Moment { what: "calibration", is_now: |event| is(event, "trial_finished") && event["block"] == 0 },
    Moment { what: "a trial", is_now: |event| is(event, "trial_started") && event["block"] == 2 },
    Moment { what: "between blocks", is_now: |event| is(event, "block_finished") && event["block"] == 1 },
    Moment { what: "the last look", is_now: |event| is(event, "looked") },
];

#[test]
fn a_run_killed_at_any_moment_goes_on_by_the_same_plan() {
    if !real_server() {
        return;
    }
    for Moment { what, is_now } in &MOMENTS {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut session = Session::start(place.path(), &ASKED);
        session.wait_for(what, is_now);
        session.signal(Signal::SIGKILL);
        session.finish();
        let record = record_in(place.path());
        let plan = fs::read(record.join("plan.json")).expect("the plan");
        goes_on_to_the_end(place.path(), what);
        assert_eq!(fs::read(record.join("plan.json")).expect("the plan"), plan, "{what}");
        every_block_is_there_once(&record, what);
    }
}

/// A second time there is nothing left to do, and the report is the same.
#[test]
fn a_run_that_is_over_is_only_shown() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let first = Session::start(place.path(), &ASKED).finish();
    assert_eq!(first.code, Some(0), "{:?}", first.told());
    let events = record_in(place.path()).join("events.jsonl");
    let before = fs::read(&events).expect("the events");
    let again = answer(&["resume", "--run-dir", text(place.path()), "--json", "-q"], place.path());
    assert_eq!((again.code, &again.stdout), (Some(0), &first.stdout));
    assert_eq!(fs::read(&events).expect("the events"), before, "nothing was added");
}

#[track_caller]
fn goes_on_to_the_end(runs: &Path, what: &str) {
    let resumed = answer(&["resume", "--run-dir", text(runs), "--json", "-q"], runs);
    assert_eq!(resumed.code, Some(0), "{what}: {}", resumed.stderr);
    let document = one_document(&resumed.stdout);
    assert_eq!(document["complete"], true, "{what}");
    assert_blocks_used(&document, BLOCKS, what);
}

/// Blocks that were whole are not measured again; the one that was cut short begins anew.
#[track_caller]
pub(crate) fn every_block_is_there_once(record: &Path, what: &str) {
    let events = fs::read_to_string(record.join("events.jsonl")).expect("the events");
    let read = |line| serde_json::from_str::<TimestampedEvent>(line).expect("a whole event");
    let finished = events.lines().map(read).filter_map(|stamped| match stamped.event {
        Event::BlockFinished { block } => Some(u64::from(block)),
        _ => None,
    });
    assert_eq!(finished.collect::<Vec<_>>(), (0..=BLOCKS).collect::<Vec<_>>(), "{what}");
}

fn record_in(runs: &Path) -> PathBuf {
    let mut entries = fs::read_dir(runs).expect("the runs").map(|entry| entry.expect("an entry").path());
    entries.next().expect("a run")
}
