//! A complete run on a real server, from arguments to report, and the report from the record alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{
    Finished, Session, answer, assert_blocks_used, assert_gone, is, items, one_document, real_server, text,
};

const BLOCKS: u64 = 2;
/// Several paths, workloads, TLS contexts and numbers of clients.
const ASKED: [&str; 12] = [
    "--path",
    "plain,unix,tls1.3-p256,tls1.2-rsa2048",
    "--ctx",
    "per-connect,shared",
    "--workload",
    "connect,connect-query,point-select",
    "--clients",
    "1,4",
    "--blocks",
    "2",
    "--trial-time",
    "150ms",
];
/// Two workloads of connects: plain, unix, and two TLS paths with two contexts each, at two numbers of
/// clients. Pooled point selects have one context.
const CELLS: usize = 2 * 2 * (2 + 2 * 2) + 2 * 4;

#[test]
fn a_run_measures_every_cell_and_its_report_comes_from_its_record() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("a trial", |event| is(event, "trial_started"));
    let scratch = session.scratch().to_owned();
    // Remembers the processes, in case the run ends before the test asks again.
    session.identities();
    session.wait_for("the last look", |event| is(event, "looked"));
    let processes = session.identities();
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    let document = one_document(&finished.stdout);
    assert_eq!(document["complete"], true);
    every_cell_is_filled(&document);
    connects_are_divided(&document);
    for cell in items(&document, "cells") {
        legs_are_as_planned(cell);
        phases_add_up(cell["id"].as_str(), &metrics_of(cell), 0.01);
    }
    let record = record_in(place.path());
    trials_are_plausible(&record, document["environment"]["cpus"].as_f64().expect("processors"));
    reports_are_identical(place.path(), &record, &finished);
}

fn every_cell_is_filled(document: &Value) {
    let cells = items(document, "cells");
    assert_eq!(cells.len(), CELLS);
    assert_blocks_used(document, BLOCKS, "each cell");
    let ids: BTreeSet<&str> = cells.iter().filter_map(|cell| cell["id"].as_str()).collect();
    assert_eq!(ids.len(), CELLS, "ids tell cells apart");
    for cell in cells {
        let id = &cell["id"];
        assert_eq!(cell["blocks_planned"], BLOCKS, "{id}");
        let used = cell["blocks_used"].as_u64().expect("a number of blocks");
        for metric in
            ["rate_per_s", "latency_ns_mean", "latency_ns_p50", "rss_bytes_client", "rss_bytes_server"]
        {
            let value = cell["metrics"][metric]["value"].as_f64();
            assert!(value.is_some_and(|value| value > 0.0) || used < BLOCKS, "{id}: {metric} {value:?}");
        }
        assert_eq!(cell["toll"].is_null(), cell["path"] == "plain", "{id}: all but the baseline have a toll");
    }
    let skipped = items(document, "skipped");
    assert!(!skipped.is_empty(), "shared contexts where there is none to share are skipped");
    for skipped in skipped {
        assert!(skipped["reason"].as_str().is_some_and(|reason| reason.contains("context")), "{skipped}");
    }
}

/// The breakdown uses primitives that were timed in this run.
fn connects_are_divided(document: &Value) {
    for key in ["p256", "rsa2048"] {
        let time = &document["primitives"]["signatures"][key];
        assert!(time["sign_ns"].as_u64() > Some(0) && time["verify_ns"].as_u64() > Some(0), "{key}: {time}");
    }
    assert!(document["primitives"]["key_exchanges"]["x25519"]["agree_ns"].as_u64() > Some(0));
    for cell in items(document, "cells") {
        let is_divided = cell["workload"] == "connect" && cell["clients"] == 1;
        let Some(parts) = cell["connect_cost_ns"].as_object() else {
            assert!(!is_divided || cell["blocks_used"].as_u64() < Some(BLOCKS), "{cell:#}");
            continue;
        };
        assert!(is_divided, "{}: others connect at fewer clients", cell["id"]);
        let is_encrypted = cell["path"].as_str().is_some_and(|path| path.starts_with("tls"));
        for part in ["signature", "chain", "key_exchange"] {
            assert_eq!(parts.contains_key(part), is_encrypted, "{}: {part}", cell["id"]);
        }
        let sum: f64 = parts.values().filter_map(Value::as_f64).sum();
        let mean = cell["metrics"]["latency_ns_mean"]["value"].as_f64().expect("a mean time");
        assert!((sum / mean - 1.0).abs() < 0.01, "{}: {sum} of {mean}", cell["id"]);
    }
}

fn legs_are_as_planned(cell: &Value) {
    let (version, key) = match cell["path"].as_str().expect("a path") {
        "tls1.3-p256" => (Some("tls1.3"), Some("p256")),
        "tls1.2-rsa2048" => (Some("tls1.2"), Some("rsa2048")),
        _ => (None, None),
    };
    let legs = items(cell, "legs");
    assert!(!legs.is_empty(), "{}: nothing was observed", cell["id"]);
    for leg in legs {
        assert_eq!(leg["tls_version"].as_str(), version, "{}", cell["id"]);
        assert_eq!(leg["key"].as_str(), key, "{}", cell["id"]);
        assert_ne!(leg["resumed"], true, "{}", cell["id"]);
        assert!(leg["connections"].as_u64().is_some_and(|connections| connections > 0), "{leg}");
    }
}

/// Name and value of a cell's metrics.
fn metrics_of(cell: &Value) -> Vec<(&str, f64)> {
    let metrics = cell["metrics"].as_object().expect("metrics");
    metrics
        .iter()
        .map(|(name, estimate)| (name.as_str(), estimate["value"].as_f64().expect("a value")))
        .collect()
}

/// The phases of a connect follow one another without a gap.
#[track_caller]
fn phases_add_up(what: Option<&str>, metrics: &[(&str, f64)], tolerance: f64) {
    let phases = || metrics.iter().filter(|(name, _)| name.starts_with("phase_ns_"));
    let sum: f64 = phases().map(|(_, value)| value).sum();
    let mean = metrics.iter().find(|(name, _)| *name == "latency_ns_mean").map(|(_, value)| value);
    // Pooled workloads connect before the window and have no phases.
    if let Some(mean) = mean
        && phases().next().is_some()
    {
        assert!((sum / mean - 1.0).abs() <= tolerance, "{what:?}: phases {sum}, mean {mean}");
    }
}

/// Within each trial, phases add up exactly, and client and server used no more CPU time than available.
fn trials_are_plausible(record: &Path, cpus: f64) {
    // Server, clients and window are not read at exactly the same time.
    const GRAIN: f64 = 1.05;
    const MOST: f64 = 1.5;
    let events = fs::read_to_string(record.join("events.jsonl")).expect("events");
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    let mut shares = Vec::new();
    for event in events.filter(|event| is(event, "trial_finished")) {
        let observation = &event["observation"];
        let metrics = observation["metrics"].as_object().expect("metrics");
        let metrics: Vec<(&str, f64)> =
            metrics.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?))).collect();
        let of = |wanted: &str| metrics.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let [operations, window_us] = [("operations", 1.0), ("window_ns", 1e-3)]
            .map(|(name, unit)| observation[name].as_f64().unwrap_or(0.0) * unit);
        phases_add_up(event["cell"].as_str(), &metrics, 1e-6);
        let roles = [of("cpu_us_per_op_client"), of("cpu_us_per_op_server")];
        let total = of("cpu_us_per_op_total");
        // On a busy machine, trials get too little CPU time for a metric, and say how much it was.
        let too_little = &observation["absent"]["cpu_us_per_op_total"];
        let used_us = total
            .map(|total| total * operations)
            .or_else(|| too_little["cpu_ns"].as_f64().map(|cpu_ns| cpu_ns * 1e-3))
            .unwrap_or_else(|| panic!("{event}: neither CPU time nor a reason"));
        let share = used_us / (cpus * window_us);
        assert!(share <= MOST, "{event}: more CPU than {cpus} processors");
        shares.push(share);
        let roles_us: f64 = roles.into_iter().flatten().sum::<f64>() * operations;
        assert!(roles_us <= used_us * 1.000_001, "{event}");
        let rate = of("rate_per_s").expect("a rate");
        assert!((rate * window_us * 1e-6 / operations - 1.0).abs() < 1e-6, "{event}");
    }
    // On a busy machine, most trials are below the limit.
    shares.sort_by(f64::total_cmp);
    let median = shares.get(shares.len() / 2).expect("a trial");
    assert!(*median <= GRAIN, "{shares:?}: more CPU than {cpus} processors");
}

fn reports_are_identical(runs: &Path, record: &Path, finished: &Finished) {
    let report = |run: &str, format: &str| {
        let answer = answer(&["report", run, "--run-dir", text(runs), "--format", format], runs);
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
        answer.stdout
    };
    assert_eq!(report("latest", "json"), finished.stdout, "the record says what the run said");
    assert_eq!(report(text(record), "json"), finished.stdout);
    let terminal = report("latest", "terminal");
    assert_eq!(report("run", "terminal"), terminal);
    assert!(terminal.contains("tls1.2-rsa2048") && !terminal.contains('\u{1b}'), "{terminal}");
    // A copy elsewhere has the same name, so the same report.
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let copy = elsewhere.path().join(record.file_name().expect("a name"));
    fs::create_dir(&copy).expect("a directory");
    for name in ["spec.toml", "plan.json", "events.jsonl"] {
        fs::copy(record.join(name), copy.join(name)).expect("copy the record");
    }
    assert_eq!(report(text(&copy), "json"), finished.stdout);
}

/// The only run directory.
fn record_in(runs: &Path) -> PathBuf {
    let entries: Vec<PathBuf> =
        fs::read_dir(runs).expect("runs").flatten().map(|entry| entry.path()).collect();
    let [only] = &entries[..] else { panic!("one run: {entries:?}") };
    only.clone()
}
