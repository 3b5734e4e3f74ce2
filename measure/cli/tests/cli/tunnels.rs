//! Tunnels in a run: ends that are killed or stopped in mid-trial, and that nothing of them stays.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::Signal;

use crate::support::{Between, Interruption, Session, assert_gone, is, real_link, real_server, until};

/// A path, and what one of its ends is called in the ledger: first the one that is killed, then the one that is stopped.
const ATTACKS: [(&str, [&str; 2]); 4] = [
    ("ssh-aes256-gcm", ["sshd", "ssh"]),
    ("openvpn-aes256-gcm", ["openvpn-client", "openvpn-server"]),
    ("wireguard", ["wireguard-server", "wireguard-client"]),
    ("stunnel", ["stunnel-client", "stunnel-server"]),
];

const TUNNELS: Between = Between { what: "tunnel", tried: "tunnel_tried", trial: Duration::from_millis(950) };

const ASKED: [&str; 12] = [
    "--server",
    "mariadb",
    "--path",
    "plain,ssh-aes256-gcm,openvpn-aes256-gcm,wireguard,stunnel",
    "--link",
    "2ms",
    "--workload",
    "connect",
    "--trial-time",
    "700ms",
    "--blocks",
    // More than are needed, for trials that are over before the test gets to them.
    "6",
];

#[test]
fn an_end_that_is_killed_or_stopped_voids_its_trial_and_the_run_goes_on() {
    if !real_server() {
        return;
    }
    if !real_link() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let of = |(path, [killed, stopped]): (&'static str, [&'static str; 2])| {
        [
            Interruption { path, process: killed, signal: Signal::SIGKILL },
            Interruption { path, process: stopped, signal: Signal::SIGSTOP },
        ]
    };
    let ahead = TUNNELS.here(&session, &ATTACKS).into_iter().flat_map(of).collect();
    TUNNELS.each_voids_its_trial(session, ahead);
}

/// Networks that some process is in that was there before `started`, as far as we may look. Later ones may have networks
/// whose numbers were others' before.
fn networks_before(started: ProcessIdentity) -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let old = processes.filter(|entry| {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let process = pid.and_then(|pid| ProcessIdentity::of(pid).ok());
        process.is_some_and(|process| process.start_time_ticks <= started.start_time_ticks)
    });
    old.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok()).collect()
}

/// A process that was started now, and is over.
fn started_now() -> ProcessIdentity {
    let mut child = Command::new("true").spawn().expect("true starts");
    let identity = ProcessIdentity::of(child.id().cast_signed()).expect("a child not yet reaped");
    child.wait().expect("its end");
    identity
}

/// The interfaces of our own network.
fn interfaces() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/net/dev").expect("interfaces");
    let name = |line: &str| line.split_once(':').map(|(name, _)| name.trim().to_owned());
    table.lines().filter_map(name).collect()
}

#[test]
fn neither_a_killed_nor_an_interrupted_run_leaves_anything() {
    if !real_server() {
        return;
    }
    if !real_link() {
        return;
    }
    let own = fs::read_link("/proc/self/ns/net").expect("a network");
    let interfaces_before = interfaces();
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = tempfile::tempdir().expect("a directory");
        let mut session = Session::start(place.path(), &ASKED);
        // Other tests have other networks at the same time.
        let network = |process: &ProcessIdentity| fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok();
        let (processes, of_run) = loop {
            session.wait_for("a trial through WireGuard, with both ends in separate networks", |event| {
                is(event, "trial_started")
                    && event["cell"].as_str().is_some_and(|cell| cell.contains("/wireguard/"))
            });
            session.load();
            let processes = session.identities();
            let mut of_run: BTreeSet<PathBuf> = processes.iter().filter_map(network).collect();
            of_run.remove(&own);
            // One that is over before the test looks has left the clients' network.
            if of_run.len() >= 2 {
                break (processes, of_run);
            }
        };
        let scratch = session.scratch().to_owned();
        session.signal(signal);
        let signalled = started_now();
        session.finish();
        if signal == Signal::SIGKILL {
            // The next start sweeps.
            assert!(real_link());
        }
        assert_gone(&processes, &scratch);
        until("the end of its networks", || networks_before(signalled).is_disjoint(&of_run).then_some(()));
        assert_eq!(interfaces(), interfaces_before, "{signal}");
    }
}
