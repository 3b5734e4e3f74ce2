//! Runs on servers that are asked for documents: what they are called, and what they are not.

use std::collections::BTreeMap;

use ciphertoll_model::{Ending, Event, Metric, Spec, Workload, YcsbMix};
use ciphertoll_report::{Style, html, json, markdown, terminal};
use ciphertoll_stats::Verdict;

use crate::fixture::{Run, TLS13, estimate, measured, toll};

const WORKLOADS: [Workload; 2] = [Workload::FindOne, Workload::Ycsb(YcsbMix::A)];

/// Connects, finds and a mix on the server that a level asks for.
fn documents(level: &str, version: &str) -> Run {
    let spec = format!(
        "[[grid]]\nserver = [\"{level}\"]\npath = [\"plain\", \"tls1.3-p256\"]\n\
         workload = [\"connect\", \"find-one\", \"ycsb-a\"]\nclients = [1]\n"
    );
    let mut run = measured(&Spec::from_toml(&spec).unwrap(), 10);
    run.push(Event::ServerReady {
        server: level.split(':').next().unwrap().to_owned(),
        version: version.to_owned(),
        tls_library: Some("Go's crypto/tls".to_owned()),
        settings: BTreeMap::new(),
        elapsed_ms: 110,
    });
    let connect = run.cell(Workload::Connect, TLS13);
    toll(connect, Metric::LatencyNsMean, 1.53, 0.04, Some(Verdict::Differs));
    connect.metrics.insert(Metric::PhaseNsServerGreeting, estimate(61_000.0, 0.02));
    for workload in WORKLOADS {
        toll(run.cell(workload, TLS13), Metric::RatePerS, 0.97, 0.01, Some(Verdict::Differs));
    }
    run.end(Ending::Complete);
    run
}

#[test]
fn a_run_on_ferretdb() {
    insta::assert_snapshot!(terminal(&documents("ferretdb", "1.24.2").report(), Style::Plain, 100));
}

/// Whatever it was called on the command line.
#[test]
fn ferretdb_is_nowhere_taken_for_mongodb() {
    let run = documents("mongo:ferretdb", "1.24.2");
    let report = run.report();
    for text in [terminal(&report, Style::Plain, 100), html(&report), markdown(&report)] {
        assert!(text.contains("FerretDB, not MongoDB"), "{text}");
        assert!(text.contains("mongo (FerretDB 1.24.2, not MongoDB)"), "{text}");
    }
    // For machines it is a version, and the id says which engine.
    let machines = json(&report).unwrap();
    assert!(!machines.contains("not MongoDB"), "{machines}");
}

#[test]
fn mongodb_is_itself() {
    let run = documents("mongodb", "8.0.4");
    let text = terminal(&run.report(), Style::Plain, 100);
    assert!(text.contains("MongoDB 8.0.4") && !text.contains("not MongoDB"), "{text}");
    assert!(!text.contains("reads it through"), "{text}");
}
