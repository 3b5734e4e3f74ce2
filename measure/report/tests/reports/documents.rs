//! Runs on servers that are asked for documents: what they are called, and what they are not.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Ending, Event, Factor, Flag, Limitations, Metric, Phase, Plan, Refusal, Refused, Spec, Unlike, Workload,
    YcsbMix,
};
use ciphertoll_report::{Style, dry_run, html, json, markdown, terminal};
use ciphertoll_stats::Verdict;

use crate::fixture::{Run, TLS13, estimate, measured, measured_as, ratio_of};

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
    let connect = run.comparison(Workload::Connect, TLS13);
    ratio_of(connect, Metric::LatencyNsMean, 1.53, 0.04, Some(Verdict::Differs));
    connect.cell.metrics.insert(Metric::PhaseNsServerGreeting, estimate(61_000.0, 0.02));
    for workload in WORKLOADS {
        ratio_of(run.comparison(workload, TLS13), Metric::RatePerS, 0.97, 0.01, Some(Verdict::Differs));
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
        assert!(text.contains("FerretDB is not MongoDB"), "{text}");
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
    assert!(!text.contains("scans the collection"), "{text}");
}

fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A study on one server of two, by two drivers; one of them builds its client in what goes by the name of a connect.
fn by_two_drivers() -> Run {
    let spec = "[[grid]]\nserver = [\"ferretdb\", \"mongodb\"]\npath = [\"plain\", \"tls1.3-p256\"]\n\
                driver = [\"native\", \"pymongo\"]\nworkload = [\"connect\", \"first-query\", \"find-one\"]\nclients = [1]\n";
    let mut spec = Spec::from_toml(spec).unwrap();
    "mongodb-tls-2024".clone_into(&mut spec.name);
    let absent = Refusal {
        server: "mongodb".to_owned(),
        what: Refused::Everything,
        reason: "no mongodb found; install it".to_owned(),
    };
    let unlike = Unlike {
        driver: "pymongo".parse().unwrap(),
        workload: Workload::Connect,
        reason: "it builds the client without connecting".to_owned(),
    };
    let limitations = Limitations { refusals: &[absent], unlike: &[unlike], obstacle: None };
    let plan = Plan::knowing(&spec, 42, &limitations).unwrap();
    let mut run = measured_as(plan, 10);
    for comparison in run.own_comparisons() {
        if comparison.cell.cell.treatment.path == TLS13 {
            ratio_of(comparison, Metric::LatencyNsMean, 2.9, 0.04, Some(Verdict::Differs));
        }
    }
    for cell in run.cells() {
        cell.flags = vec![(2, Flag::CpuElsewhere { share: 0.5 })];
        if cell.cell.workload == Workload::FirstQuery {
            cell.metrics
                .retain(|metric, _| Phase::ALL.iter().all(|phase| Metric::of_phase(*phase) != *metric));
            cell.metrics.insert(Metric::PhaseNsFirstQuery, estimate(90_000.0, 0.02));
        }
    }
    run.end(Ending::Complete);
    run
}

#[test]
fn drivers_are_compared_by_what_both_do() {
    let run = by_two_drivers();
    let compared = |workload: Workload| {
        let of_drivers = run.plan.strata.iter().filter(|stratum| stratum.factor == Some(Factor::Driver));
        of_drivers.filter(|stratum| run.plan.cells[stratum.baseline].workload == workload).count()
    };
    assert_eq!([Workload::Connect, Workload::FirstQuery, Workload::FindOne].map(compared), [0, 2, 2]);
    let report = run.report();
    let why =
        "Drivers are not compared under connect: with pymongo, it builds the client without connecting.";
    let said =
        "With pymongo, connect differs from that of other drivers: it builds the client without connecting.";
    let texts = [terminal(&report, Style::Plain, 100), html(&report)].map(|text| in_a_line(&text));
    for text in texts.iter().chain([&dry_run(&run.plan)]) {
        assert_eq!(text.matches(why).count(), 1, "{text}");
    }
    for text in texts {
        assert_eq!(text.matches(said).count(), 1, "{text}");
    }
}

/// Each cell is compared among paths and among drivers, and has its flags once.
#[test]
fn caveats_of_a_cell_are_listed_once() {
    let run = by_two_drivers();
    let text = terminal(&run.report(), Style::Plain, 100);
    let disturbed: Vec<&str> =
        text.lines().filter(|line| line.contains("disturbed by other processes")).collect();
    let flags = run.analysis.cells().into_iter().flat_map(|cell| cell.flags.clone());
    let trials: u32 = flags.map(|(trials, _)| trials).sum();
    let start = format!("! {trials} trials disturbed");
    assert!(matches!(disturbed.as_slice(), [one] if one.starts_with(&start)), "{text}");
    let connections = in_a_line(&text).matches(" connections)").count();
    assert_eq!(connections, 4, "two paths by two drivers: {text}");
    for heading in ["driver native", "driver pymongo"] {
        assert_eq!(text.lines().filter(|line| *line == heading).count(), 1, "{text}");
    }
    assert!(!text.contains("Breakdown of connect time · first-query"), "one phase is no table: {text}");
}

#[test]
fn a_server_that_is_not_here_is_named_once() {
    let run = by_two_drivers();
    for text in [terminal(&run.report(), Style::Plain, 100), dry_run(&run.plan)] {
        let text = in_a_line(&text);
        assert!(
            text.contains("all of mongodb (12 configurations)") && !text.contains("mongodb/plain"),
            "{text}"
        );
    }
}
