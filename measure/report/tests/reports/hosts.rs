//! What reports say of load hosts and of a server on another machine.

use std::collections::BTreeMap;

use ciphertoll_model::{Arm, ConnectedHost, Event, HostRole, HostUse, HostsUse, Observation};
use ciphertoll_report::{Style, html, json, terminal};
use serde_json::Value;

use crate::fixture::{self, Run};

fn host(name: &str, role: HostRole, cpu_accounting: &str) -> Event {
    Event::HostConnected {
        host: ConnectedHost {
            name: name.to_owned(),
            node: None,
            role,
            tool_version: "0.1.0".to_owned(),
            architecture: "aarch64".to_owned(),
            kernel: "6.12.5".to_owned(),
            cpu_model: "Neoverse-V2".to_owned(),
            processors: 64,
            tls_library: "OpenSSL 3.0.17".to_owned(),
            cpu_accounting: cpu_accounting.to_owned(),
        },
    }
}

fn use_of(host: &str, clients: u16, operations: u64) -> HostUse {
    HostUse {
        host: host.to_owned(),
        clients,
        operations,
        client_cpu_ns: operations * 50_000,
        client_rss_peak_bytes: 9_000_000,
        schedule_lag_ns_p99: None,
        machine_busy_ns: operations * 60_000,
        machine_steal_ns: 0,
        processors: 64,
        clock_ahead_ns: 3_600_000_000_000,
        clock_uncertainty_ns: 110_000,
        opened_after_ns: 0,
    }
}

/// A quick run whose clients were on two hosts; calibration does not count.
fn on_hosts() -> Run {
    let mut run = fixture::quick();
    for name in ["load1", "load2"] {
        run.push(host(name, HostRole::Load, "process CPU-time clocks"));
    }
    run.push(host("db", HostRole::Server, "cgroup cpu.stat of postgres"));
    let cell = run.plan.cells[0].id();
    for (block, overlap, operations) in [(0, 0.5, 9), (1, 0.999, 20_000), (2, 0.9917, 30_000)] {
        let hosts = vec![use_of("load1", 4, operations), use_of("load2", 3, operations / 2)];
        let observation = Observation {
            metrics: BTreeMap::new(),
            operations,
            window_ns: 1_000_000_000,
            legs: Vec::new(),
            flags: Vec::new(),
            absent: BTreeMap::new(),
            hosts: Some(Box::new(HostsUse { overlap, overlap_uncertainty: 0.002, hosts })),
        };
        let observation = Box::new(observation);
        run.push(Event::TrialFinished { block, cell: cell.clone(), arm: Arm::Main, observation });
    }
    run
}

#[test]
fn hosts_have_a_section_with_their_share_of_the_work() {
    let run = on_hosts();
    let text = terminal(&run.report(), Style::Plain, 100);
    let section = text.split_once("\nHosts\n").expect("a section").1;
    let section: Vec<&str> = section.split("\n\n").next().expect("the section").lines().collect();
    let row = |name: &str| section.iter().find(|line| line.starts_with(name)).copied().unwrap_or_default();
    for (name, words) in [
        ("load1", ["64 × aarch64", "0.1.0", "4", "25.0 k/s", "50.0 µs", "1.25"]),
        ("load2", ["64 × aarch64", "0.1.0", "3", "12.5 k/s", "50.0 µs", "0.625"]),
    ] {
        let row = row(name);
        assert!(words.iter().all(|word| row.contains(word)), "{name}: {row}\n{text}");
    }
    let notes = section.join(" ").replace("  ", " ");
    assert!(notes.contains("overlapped by 99.17 % or more (± 0.20 %)"), "{notes}");
    assert!(notes.contains("The server's CPU was read on db: cgroup cpu.stat of postgres."), "{notes}");
    assert!(html(&run.report()).contains("id=\"hosts\""));
}

#[test]
fn the_document_has_every_host_and_a_run_without_hosts_has_none() {
    let document: Value = serde_json::from_str(&json(&on_hosts().report()).unwrap()).unwrap();
    let hosts = document["load_hosts"].as_array().unwrap();
    let names: Vec<&str> = hosts.iter().filter_map(|host| host["name"].as_str()).collect();
    assert_eq!(names, ["load1", "load2", "db"]);
    assert_eq!((&hosts[0]["rate_per_s"], &hosts[0]["clients"]), (&25_000.0.into(), &4.into()));
    assert!(hosts[2].get("rate_per_s").is_none(), "{}", hosts[2]);
    assert_eq!(document["least_window_overlap"], 0.9917);
    let local: Value = serde_json::from_str(&json(&fixture::quick().report()).unwrap()).unwrap();
    assert!(local.get("load_hosts").is_none() && local.get("least_window_overlap").is_none());
    assert!(!terminal(&fixture::quick().report(), Style::Plain, 100).contains("\nHosts\n"));
}
