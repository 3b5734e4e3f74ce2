//! A run directory that cannot be written: full at once, full on the way, forbidden.

use std::fs;
use std::path::{Path, PathBuf};

use super::one_cell;
use crate::support::{
    Session, Tmpfs, answer, assert_gone, is, items, one_document, real_server, text, until,
};

/// Room for a few trials.
const SMALL: &str = "size=64k";
/// Room for the specification and for nothing else.
const TINY: &str = "size=4k";
const MANY_TRIALS: [&str; 4] = ["--trial-time", "100ms", "--blocks", "30"];

#[test]
fn a_disk_that_fills_ends_the_run_with_one_line_and_a_readable_record() {
    if !real_server() {
        return;
    }
    let Some(disk) = Tmpfs::mount(SMALL) else { return };
    let mut session = Session::start(disk.path(), &one_cell(&MANY_TRIALS));
    // They are there to be asked for until the disk is full, which may be before the first trial is heard of.
    until("a process of the run", || (!session.identities().is_empty()).then_some(()));
    session.wait_for("a trial", |event| is(event, "trial_started"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(9), "{:?}", finished.told());
    let told = finished.told();
    let [line] = told[..] else { panic!("one line: {told:?}") };
    assert!(line.starts_with("ciphertoll: disk full: cannot write"), "{line}");
    assert_eq!(finished.stdout, "", "no document of a run that failed");
    assert_gone(&processes, &scratch);

    let runs = text(disk.path());
    let report = answer(&["report", "latest", "--run-dir", runs, "--format", "json"], disk.path());
    assert_eq!((report.code, report.stderr.as_str()), (Some(0), ""), "the record is readable");
    let document = one_document(&report.stdout);
    assert_eq!(document["complete"], false);
    let completed = finished.named("block_finished").iter().filter(|event| event["block"] != 0).count();
    let [cell] = items(&document, "cells") else { panic!("one cell: {document}") };
    assert_eq!(cell["blocks_used"], completed, "what was told was recorded");
}

#[test]
fn a_disk_that_is_full_from_the_start_gets_one_line_and_no_half_a_run() {
    let Some(disk) = Tmpfs::mount(TINY) else { return };
    it_is_refused(disk.path(), disk.path(), "disk full: cannot");
}

#[test]
fn a_run_directory_that_cannot_be_made_gets_one_line() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("file");
    fs::write(&file, "").expect("a file");
    it_is_refused(place.path(), &file.join("runs"), "cannot make");
    assert!(file.is_file());
}

#[test]
fn a_read_only_run_directory_gets_one_line() {
    let Some(disk) = Tmpfs::mount("size=64k,ro") else { return };
    it_is_refused(disk.path(), &disk.path().join("runs"), "Read-only file system");
}

/// `run` says in one line that it cannot write to `runs`, which is at or below `place`, and leaves no trace there.
#[track_caller]
fn it_is_refused(place: &Path, runs: &Path, said: &str) {
    let before = names_in(place);
    let answer = answer(&[&["run", "-q", "--run-dir", text(runs)], &one_cell(&[])[..]].concat(), place);
    assert_eq!(answer.code, Some(9), "{answer:?}");
    let line = answer.one_line();
    assert!(line.contains(said) && line.contains(text(place)), "{line}");
    assert_eq!(names_in(place), before, "nothing half-made is left");
}

fn names_in(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
}
