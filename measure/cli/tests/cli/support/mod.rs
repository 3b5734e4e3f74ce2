//! Shared by the tests: running the program, and a session to wait for events of a run.

mod between;
mod host;
mod session;
mod ssh;
mod tmpfs;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) use between::{Between, Interruption};
pub(crate) use host::{
    MOMENT, TIME_LIMIT, assert_gone, is_root, real_link, real_server, real_server_of, script, system,
    unswept, until, until_within,
};
pub(crate) use session::{Attack, Finished, Session};
pub(crate) use ssh::{SSHD, Ssh};
pub(crate) use tmpfs::Tmpfs;

use ciphertoll_model::VoidReason;
use serde_json::Value;

/// The name of load processes in the ledger.
pub(crate) const LOAD: &str = "load";

/// The program, with a fixed output format, and without voiding trials for steal or lateness.
pub(crate) fn ciphertoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciphertoll"));
    command.args(arguments).env("COLUMNS", "100").env_remove("CLICOLOR_FORCE");
    command.env_remove("CIPHERTOLL_SCRATCH_DIR");
    command.env("CIPHERTOLL_MAX_STEAL", "100%").env("CIPHERTOLL_MAX_LATENESS", "100%");
    command
}

/// Runs the program, for commands that start no server.
pub(crate) fn answer(arguments: &[&str], directory: &Path) -> Answer {
    let output = ciphertoll(arguments).current_dir(directory).output().expect("the program starts");
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// The one line on stderr of a program that failed and said nothing else.
    #[track_caller]
    pub(crate) fn one_line(&self) -> &str {
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert!(self.stdout.is_empty(), "an error leaves stdout alone: {self:?}");
        let [line] = lines[..] else { panic!("one line on stderr: {self:?}") };
        assert!(line.starts_with("ciphertoll: "), "the line says who talks: {line}");
        line
    }
}

/// The path as text: tests make their own directories, whose names are plain.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The one JSON document that stdout carries, ended by a newline.
#[track_caller]
pub(crate) fn one_document(stdout: &str) -> Value {
    assert!(stdout.ends_with("}\n"), "one document and a newline");
    serde_json::from_str(stdout).expect("stdout is exactly one JSON document")
}

/// The items of an array, or of nothing.
pub(crate) fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The events of the one run below `runs`.
#[track_caller]
pub(crate) fn recorded_events(runs: &Path) -> Vec<Value> {
    let runs: Vec<_> = fs::read_dir(runs).expect("runs").flatten().map(|entry| entry.path()).collect();
    let [only] = &runs[..] else { panic!("one run: {runs:?}") };
    let events = fs::read_to_string(only.join("events.jsonl")).expect("events");
    events.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
}

/// The median time of every trial, calibration left out, of the cells with this word in their ids.
#[track_caller]
pub(crate) fn medians_ns<'a>(events: impl IntoIterator<Item = &'a Value>, word: &str) -> Vec<f64> {
    let of_cell =
        |event: &&Value| event["cell"].as_str().is_some_and(|id| id.split('/').any(|part| part == word));
    let trials = events.into_iter().filter(|event| is(event, "trial_finished") && event["block"] != 0);
    let medians = trials.filter(of_cell).map(|event| &event["observation"]["metrics"]["latency_ns_p50"]);
    let medians: Vec<f64> = medians.filter_map(Value::as_f64).collect();
    assert!(!medians.is_empty(), "no trial of {word}");
    medians
}

/// The shortest of these times: anything may have kept the machine busy in the others.
pub(crate) fn best(times_ns: &[f64]) -> f64 {
    times_ns.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Whether the event voids a trial for which the machine had no time.
pub(crate) fn is_noise(event: &Value) -> bool {
    let reason = serde_json::from_value::<VoidReason>(event["reason"].clone());
    is(event, "trial_voided") && reason.is_ok_and(|reason| reason.is_noise())
}

/// Fails unless each cell has all `blocks`, except blocks in which it or its baseline was voided.
#[track_caller]
pub(crate) fn assert_blocks_used(document: &Value, blocks: u64, what: &str) {
    let cells = items(document, "cells");
    assert!(!cells.is_empty(), "{what}: no cell: {document:#}");
    let voided = |cell: &Value| -> BTreeSet<u64> {
        items(cell, "voided").iter().filter_map(|voided| voided["block"].as_u64()).collect()
    };
    let baselines = cells.iter().filter(|cell| cell["path"] == "plain");
    let of_baselines: BTreeSet<u64> = baselines.flat_map(voided).collect();
    for cell in cells {
        let used = cell["blocks_used"].as_u64().expect("a number of blocks");
        let lost = voided(cell).union(&of_baselines).filter(|block| **block > 0).count() as u64;
        assert!(used > 0 && used <= blocks && used + lost >= blocks, "{what}: {cell:#}");
    }
}

/// The event called `name`, if `event` is one.
pub(crate) fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}
