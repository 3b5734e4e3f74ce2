//! Ctrl-C and SIGTERM: the run ends soon, reports what it has, and leaves nothing.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;

use super::one_cell;
use crate::support::{Session, answer, assert_gone, is, items, one_document, real_server, text};

const MANY_BLOCKS: [&str; 4] = ["--trial-time", "100ms", "--blocks", "30"];
const BLOCKS: u64 = 30;
/// Even calibration takes longer than what is waited for.
const LONG_TRIAL: [&str; 2] = ["--trial-time", "20m"];

#[test]
fn ctrl_c_ends_with_130_and_a_report_of_the_blocks_that_are_complete() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&MANY_BLOCKS));
    session.wait_for_load(3);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    session.signal(Signal::SIGINT);
    let finished = session.finish();
    assert_eq!(finished.code, Some(130), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    assert_eq!(finished.named("finished")[0]["ending"], "interrupted");
    let document = one_document(&finished.stdout);
    let [cell] = items(&document, "cells") else { panic!("one cell: {document}") };
    // At least those before the trial that was waited for; more, where the test was late.
    let blocks = |name: &str| -> BTreeSet<u64> {
        let events = finished.named(name).into_iter().filter(|event| event["arm"] != "repeat");
        events.filter_map(|event| event["block"].as_u64()).filter(|block| *block > 0).collect()
    };
    let complete = blocks("block_finished");
    assert!((2..BLOCKS).contains(&(complete.len() as u64)), "{complete:?}");
    let counted = complete.intersection(&blocks("trial_finished")).count();
    assert_eq!((&document["complete"], &cell["blocks_used"]), (&false.into(), &counted.into()));
    assert!(cell["metrics"]["rate_per_s"]["value"].as_f64().is_some_and(|rate| rate > 0.0), "{cell:#}");
    let report =
        answer(&["report", "latest", "--run-dir", text(place.path()), "--format", "json"], place.path());
    assert_eq!((report.code, report.stdout), (Some(0), finished.stdout), "the record says the same");
    let terminal = answer(&["report", "--run-dir", text(place.path())], place.path());
    assert_eq!(terminal.code, Some(0), "{terminal:?}");
}

#[test]
fn sigterm_ends_with_143_in_the_middle_of_a_long_trial() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&LONG_TRIAL));
    session.wait_for_load(0);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    session.signal(Signal::SIGTERM);
    // It does not wait for the trial's end, which is beyond the limit of time.
    let finished = session.finish();
    assert_eq!(finished.code, Some(143), "{:?}", finished.told());
    assert_gone(&processes, &scratch);
    assert_eq!(finished.named("finished")[0]["ending"], "terminated");
    assert_eq!(one_document(&finished.stdout)["complete"], false);
}

/// The server may be up before the test gets to its signal; then the moment was missed.
const TRIES: u32 = 3;

#[test]
fn a_signal_before_the_first_trial_ends_the_run_too() {
    if !real_server() {
        return;
    }
    for _ in 0..TRIES {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut session = Session::start(place.path(), &one_cell(&LONG_TRIAL));
        session.wait_for("the preparation", |event| is(event, "preparing"));
        let scratch = session.scratch().to_owned();
        session.signal(Signal::SIGINT);
        let finished = session.finish();
        assert_eq!(finished.code, Some(130), "{:?}", finished.told());
        assert!(!scratch.exists(), "{} is left", scratch.display());
        let document = one_document(&finished.stdout);
        assert_eq!(document["complete"], false);
        if finished.named("trial_started").is_empty() {
            return;
        }
    }
    panic!("a trial was begun each of {TRIES} times");
}
