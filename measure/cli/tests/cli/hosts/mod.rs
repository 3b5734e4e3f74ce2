//! Load hosts: by ssh in network namespaces, and by commands on this machine.

mod fixture;
mod local;

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use self::fixture::{AHEAD_S, Fixture, HOSTS};
use crate::support::{Session, is, items, one_document, recorded_events, text, until};

const LOAD: [&str; 12] = [
    "--load-hosts",
    "ssh:load1,load2",
    "--load-hosts",
    "ssh:load3",
    "--workload",
    "connect,point-select",
    "--clients",
    "6",
    "--max-rate",
    "3000",
    "--scale",
    "1000",
];
/// Trials long enough to kill something in, and for windows of a busy machine to overlap by 98 %.
const TWO_BLOCKS: [&str; 6] = ["--trial-time", "2s", "--blocks", "2", "--path", "tls1.3"];

impl Fixture {
    fn session(&mut self, arguments: &[&str]) -> Session {
        let (url, runs) = (self.url(), self.place.join("runs"));
        let fixed =
            ["run", "--url", &url, "--prepare", "--progress", "json", "--json", "--run-dir", text(&runs)];
        Session::spawn(self.command(&[&fixed[..], &LOAD, arguments].concat()))
    }

    fn resume(&self) -> Session {
        let runs = self.place.join("runs");
        Session::spawn(self.command(&["resume", "--progress", "json", "--json", "--run-dir", text(&runs)]))
    }

    fn assert_clean(&self) {
        self.hosts.iter().for_each(fixture::Host::assert_clean);
    }

    /// Waits until all hosts run a load process in a trial that has begun.
    fn wait_for_loads(&self) {
        until("a load process on each host", || {
            let all = self.hosts.iter().all(|host| !host.processes("__load").is_empty());
            all.then_some(())
        });
    }
}

fn kill_now(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill a process of the hosts");
}

/// The trials of a record that were finished, each with the use of hosts.
fn uses_of_hosts(runs: &Path) -> Vec<Value> {
    let events = recorded_events(runs);
    let finished = events.into_iter().filter(|event| is(event, "trial_finished"));
    finished.map(|event| event["observation"]["hosts"].clone()).collect()
}

/// The reason for which a host voided a trial.
fn is_void_by(event: &Value, host: &str, gate: &str) -> bool {
    let reason = &event["reason"];
    is(event, "trial_voided")
        && reason["gate"] == "on_host"
        && reason["host"] == host
        && reason["reason"]["gate"] == gate
}

#[test]
fn three_hosts_by_ssh_measure_together_and_a_shifted_clock_changes_nothing() {
    let Some(mut fixture) = Fixture::start() else { return };
    let finished = fixture.session(&TWO_BLOCKS).finish();
    assert_eq!(finished.code, Some(0), "{:?}, {:?}", finished.told(), finished.named("trial_voided"));
    let document = one_document(&finished.stdout);
    for cell in items(&document, "cells") {
        assert!(cell["blocks_used"].as_u64() > Some(0), "{cell:#}");
        assert_eq!(cell["legs"][0]["tls_version"], "tls1.3", "{cell:#}");
    }
    let connected = finished.named("host_connected");
    let names: Vec<&str> = connected.iter().filter_map(|event| event["host"]["name"].as_str()).collect();
    assert_eq!(names, HOSTS);
    let uses = uses_of_hosts(&fixture.place.join("runs"));
    assert!(uses.len() >= 8, "two workloads, in calibration and two blocks, the baseline twice: {uses:?}");
    for used in uses {
        assert!(used["overlap"].as_f64() >= Some(0.98), "{used:#}");
        let hosts = items(&used, "hosts");
        assert_eq!(hosts.len(), HOSTS.len());
        for (at, host) in hosts.iter().enumerate() {
            assert_eq!((host["clients"].as_u64(), host["host"].as_str()), (Some(2), Some(HOSTS[at])));
            assert!(host["operations"].is_u64() && host["client_cpu_ns"].as_u64() > Some(0), "{host:#}");
            let ahead_s = host["clock_ahead_ns"].as_f64().expect("an offset") * 1e-9;
            let expected = if at + 1 == HOSTS.len() { AHEAD_S as f64 } else { 0.0 };
            assert!((ahead_s - expected).abs() < 1.0, "host {at} is {ahead_s} s ahead");
        }
    }
    fixture.assert_clean();
    for host in &fixture.hosts {
        let copies = host.copies();
        assert!(copies.len() == 1 && copies[0].starts_with("ciphertoll-"), "one copy, complete: {copies:?}");
    }
}

#[test]
fn killed_load_processes_and_connections_void_a_trial_and_the_run_continues() {
    let Some(mut fixture) = Fixture::start() else { return };
    let mut session = fixture.session(&TWO_BLOCKS);
    session.next_trial(|_| true);
    fixture.wait_for_loads();
    kill_now(fixture.hosts[1].processes("__load")[0].pid);
    let voided = session.wait_for("a void trial", |event| is(event, "trial_voided"));
    assert!(is_void_by(&voided, "load2", "load_failed"), "{voided}");
    session.next_trial(|_| true);
    fixture.wait_for_loads();
    for connection in fixture.hosts[0].sessions() {
        kill_now(connection.pid);
    }
    let voided = session.wait_for("a void trial", |event| is(event, "trial_voided"));
    assert!(is_void_by(&voided, "load1", "host_lost"), "{voided}");
    let again = session.wait_for("a new connection", |event| is(event, "host_connected"));
    assert_eq!(again["host"]["name"], "load1");
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_eq!(one_document(&finished.stdout)["complete"], true);
    fixture.assert_clean();
}

#[test]
fn a_killed_coordinator_leaves_nothing_on_the_hosts_and_the_run_can_be_resumed() {
    let Some(mut fixture) = Fixture::start() else { return };
    let mut session = fixture.session(&TWO_BLOCKS);
    session.next_trial(|_| true);
    fixture.wait_for_loads();
    session.signal(Signal::SIGKILL);
    assert_eq!(session.finish().code, None, "it was killed");
    fixture.assert_clean();
    let resumed = fixture.resume().finish();
    assert_eq!(resumed.code, Some(0), "{:?}", resumed.told());
    assert_eq!(one_document(&resumed.stdout)["complete"], true);
    fixture.assert_clean();
}

#[test]
fn a_host_that_is_lost_for_good_ends_the_run_with_one_line_and_the_run_can_be_resumed() {
    let Some(mut fixture) = Fixture::start() else { return };
    let mut session = fixture.session(&TWO_BLOCKS);
    session.next_trial(|_| true);
    fixture.wait_for_loads();
    fixture.hosts[2].stop();
    let finished = session.finish();
    assert_eq!(finished.code, Some(9), "{:?}", finished.told());
    let last = finished.told().pop().expect("a line").to_owned();
    assert!(last.starts_with("ciphertoll: host load3: ") && last.contains("(record: "), "{last}");
    fixture.hosts[2].start_again();
    let resumed = fixture.resume().finish();
    assert_eq!(resumed.code, Some(0), "{:?}", resumed.told());
    assert_eq!(one_document(&resumed.stdout)["complete"], true);
    fixture.assert_clean();
}

#[test]
fn the_cpu_of_a_server_is_read_on_its_own_host() {
    let Some(mut fixture) = Fixture::start() else { return };
    // The server has no sshd, so that a command enters its network.
    let server = format!("exec:nsenter --net=/proc/{}/ns/net", fixture.there.server.pid());
    let arguments = ["--server-host", &server, "--trial-time", "1s", "--blocks", "1", "--path", "tls1.3"];
    let finished = fixture.session(&arguments).finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    let connected = finished.named("host_connected");
    let server =
        connected.iter().find(|event| event["host"]["role"] == "server").expect("the host of the server");
    let accounting = server["host"]["cpu_accounting"].as_str().expect("a source");
    assert!(accounting.ends_with("of postgres"), "{accounting}");
    let trials = finished.named("trial_finished");
    // On a busy machine the window may contain too little for a cost, but it was read.
    let was_read = |trial: &Value| {
        let observation = &trial["observation"];
        let cost = observation["metrics"]["cpu_us_per_op_server"].as_f64();
        let too_little = observation["absent"]["cpu_us_per_op_server"]["cpu_ns"].as_u64();
        cost.is_some_and(|cost| cost > 1.0) || too_little.is_some_and(|nanos| nanos > 0)
    };
    assert!(!trials.is_empty() && trials.iter().all(|trial| was_read(trial)), "{trials:?}");
}
