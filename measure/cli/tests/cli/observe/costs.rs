//! What observed connections cost, from recorded runs, and documents that no observer wrote.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::capture;
use crate::support::{Answer, answer, text};

const CALIBRATED: &str = "20261121T000000Z-calibrate-aaaa";

/// A directory with the record of a calibration of PostgreSQL in its run directory.
fn calibrated() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let run = place.path().join("ciphertoll-runs").join(CALIBRATED);
    fs::create_dir_all(run.parent().expect("a parent")).expect("made");
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/calibration-postgres");
    symlink(recording, run).expect("linked");
    place
}

/// Ten seconds, in which one client had 100 sessions of two queries by TLS 1.3.
fn observation() -> Value {
    json!({
        "source": "a test", "seconds": 10.0, "segments": 5_000, "truncated": false, "evicted": 0, "findings": [],
        "pairs": [{
            "client": "10.0.0.7", "server": "10.0.0.5:5432", "protocol": "postgres",
            "connections": { "begun": 100, "sessions": 100, "began_before": 0, "open": 0, "cancel_requests": 0, "unread": 0 },
            "bytes": { "by_client": 1, "by_server": 1 }, "phases": [], "logins": [], "failures": [],
            "processes": [{ "name": "php-fpm", "connections": 3 }],
            "queries": {
                "by_turns": true, "median": 2, "p95": 2, "max": 2,
                "distribution": [{ "queries": 2, "connections": 100 }],
            },
            "encryption": [{
                "kind": "tls", "version": "tls1.3", "offered_groups": [], "connections": 100, "sessions": 100,
                "resumed": 0, "hello_retries": 0, "unused_key_shares": 0, "offered_sessions": 0,
            }],
        }],
    })
}

fn advised(place: &TempDir, observation: &Value) -> Answer {
    fs::write(place.path().join("seen.json"), observation.to_string()).expect("written");
    answer(&["advise", CALIBRATED, "--observed", "seen.json", "--json"], place.path())
}

fn cores(answer: &Answer) -> f64 {
    let document: Value =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{}", answer.stderr));
    document["servers"][0]["today"]["cores"]["value"].as_f64().unwrap_or_else(|| panic!("{document:#}"))
}

#[test]
fn connections_that_failed_cost_nothing_and_those_that_began_before_are_named() {
    let place = calibrated();
    let alone = cores(&advised(&place, &observation()));
    assert!(alone > 0.0);
    let mut probed = observation();
    let pair = &mut probed["pairs"][0];
    pair["connections"]["begun"] = json!(100_100);
    pair["connections"]["began_before"] = json!(50);
    let mut failed = pair["encryption"][0].clone();
    failed["kind"] = json!("unknown");
    (failed["connections"], failed["sessions"]) = (json!(100_000), json!(0));
    pair["encryption"].as_array_mut().expect("a list").push(failed);
    assert!((cores(&advised(&place, &probed)) / alone - 1.0).abs() < 1e-9);
    let said = answer(&["advise", CALIBRATED, "--observed", "seen.json"], place.path()).stdout;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("took 10.0 connects/s") && said.contains("without 50 connections that began"),
        "{said}"
    );
}

#[test]
fn what_no_observer_can_have_seen_is_refused_in_one_line() {
    let place = calibrated();
    let huge = json!(u64::MAX);
    for (pointer, value) in [
        ("/seconds", json!(1e-308)),
        ("/seconds", json!(0)),
        ("/seconds", json!(-5)),
        ("/seconds", json!(1e300)),
        ("/pairs", json!([])),
        ("/pairs/0/connections/begun", huge.clone()),
        ("/pairs/0/connections/sessions", huge.clone()),
        ("/pairs/0/connections/sessions", json!(101)),
        ("/pairs/0/queries/distribution/0/queries", huge.clone()),
        ("/pairs/0/queries/distribution/0/connections", huge.clone()),
        ("/pairs/0/processes/0/connections", huge.clone()),
        ("/pairs/0/encryption/0/connections", huge),
        ("/pairs/0/encryption/0/resumed", json!(101)),
        ("/pairs/0/round_trip_ms", json!({ "median": 1e308, "p95": 1.0, "max": 1.0 })),
        ("/pairs/0/server", json!("\u{1b}[31mX\nY:5432")),
        ("/pairs/0/client", json!("\u{1b}[31m")),
        ("/pairs/0/protocol", json!("\u{1b}[31m")),
    ] {
        let mut document = observation();
        document["pairs"][0]["round_trip_ms"] = Value::Null;
        *document.pointer_mut(pointer).expect("it exists") = value.clone();
        let refused = advised(&place, &document);
        assert_eq!(
            (refused.code, refused.stderr.lines().count()),
            (Some(2), 1),
            "{pointer} {value}: {}",
            refused.stderr
        );
        assert!(
            !refused.stderr.contains(|c: char| c.is_control() && c != '\n'),
            "{pointer}: {}",
            refused.stderr
        );
    }
}

/// One record must not hide the others.
#[test]
fn runs_lists_a_record_with_impossible_numbers() {
    let place = calibrated();
    let record = place.path().join("ciphertoll-runs/20261122T000000Z-observe-bbbb");
    fs::create_dir(&record).expect("made");
    fs::write(record.join("lock"), "").expect("written");
    let mut document = observation();
    document["pairs"][0]["connections"]["begun"] = json!(u64::MAX);
    let pair = document["pairs"][0].clone();
    document["pairs"].as_array_mut().expect("a list").push(pair);
    fs::write(record.join("observation.json"), document.to_string()).expect("written");
    let listed = answer(&["runs"], place.path());
    assert_eq!((listed.code, listed.stdout.contains("observe-bbbb")), (Some(0), true), "{}", listed.stderr);
}

/// An observer that root has started reads the run directory, and must not wait for what somebody has put there.
#[test]
fn a_fifo_in_the_run_directory_is_not_waited_for() {
    let place = calibrated();
    let run = place.path().join("ciphertoll-runs/20270101T000000Z-x-aaaa");
    fs::create_dir(&run).expect("made");
    fs::write(run.join("plan.json"), "").expect("written");
    mkfifo(&run.join("events.jsonl"), Mode::S_IRUSR | Mode::S_IWUSR).expect("made");
    let trace = place.path().join("trace.pcap");
    fs::write(&trace, capture()).expect("written");
    let seen = answer(&["observe", "--pcap", text(&trace)], place.path());
    assert_eq!(seen.code, Some(0), "{}", seen.stderr);
}

#[test]
fn an_observation_that_cannot_be_recorded_is_printed() {
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("trace.pcap"), capture()).expect("written");
    // No file may grow.
    let script = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} observe --pcap trace.pcap",
        env!("CARGO_BIN_EXE_ciphertoll")
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(&place).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("this observation is not recorded"), "{said}");
    assert!(!said.contains("recorded in"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("10 new connections"), "{said}");
}
