//! Tunnels in a run: ends that are killed or stopped in mid-trial, and that nothing of them stays.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{Session, assert_gone, beside_others, is, real_link, real_server, until};

/// A path, and what one of its ends is called in the ledger: first the one that is killed, then the one that is stopped.
const ATTACKS: [(&str, [&str; 2]); 4] = [
    ("ssh-aes256-gcm", ["sshd", "ssh"]),
    ("openvpn-aes256-gcm", ["openvpn-client", "openvpn-server"]),
    ("wireguard", ["wireguard-server", "wireguard-client"]),
    ("stunnel", ["stunnel-client", "stunnel-server"]),
];

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
    "2",
];

/// What was done to a tunnel, and in which trial.
struct Attack {
    block: Value,
    cell: Value,
    end: &'static str,
    happened: &'static str,
}

#[test]
fn an_end_that_is_killed_or_stopped_voids_its_trial_and_the_run_goes_on() {
    if !real_server() {
        return;
    }
    let _machine = beside_others();
    if !real_link() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("calibration's end", |event| is(event, "block_finished"));
    let works = |session: &Session, path: &str| {
        session.events().iter().any(|event| is(event, "tunnel_tried") && event["path"] == path)
    };
    let here: Vec<_> = ATTACKS.into_iter().filter(|(path, _)| works(&session, path)).collect();
    if here.len() < ATTACKS.len() {
        ciphertoll_skip::missing(&format!("a tunnel: {:?}", session.events()));
    }
    let attacks: Vec<Attack> = (0..2 * here.len()).map(|_| attack(&mut session, &here)).collect();
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    for Attack { block, cell, end, happened } in attacks {
        let same = |event: &&&Value| event["cell"] == cell && event["block"] == block;
        let voided = finished.named("trial_voided");
        let first = voided.iter().find(|event| same(event) && event["attempt"] == 1);
        let reason = first.map(|event| event["reason"].to_string()).unwrap_or_default();
        let says_so = ["tunnel", end, happened].iter().all(|word| reason.contains(word));
        assert!(says_so, "{end} {happened}: {reason}");
        assert!(finished.named("trial_finished").iter().any(|event| same(&event)), "{end}: not tried again");
    }
}

/// Waits for the next trial through one of these tunnels and ends or stops one of its ends.
fn attack(session: &mut Session, here: &[(&str, [&'static str; 2])]) -> Attack {
    let path_of = |event: &Value| {
        let cell = event["cell"].as_str().unwrap_or_default();
        here.iter().find(|(path, _)| cell.contains(&format!("/{path}/"))).copied()
    };
    let begun = session.wait_for("a trial through a tunnel", |event| {
        is(event, "trial_started") && event["attempt"] == 1 && path_of(event).is_some()
    });
    session.load();
    let (_, ends) = path_of(&begun).expect("it was asked for");
    let (end, signal, happened) = match begun["block"].as_u64() {
        Some(1) => (ends[0], Signal::SIGKILL, "ended"),
        _ => (ends[1], Signal::SIGSTOP, "stopped"),
    };
    let process: ProcessIdentity =
        session.processes().iter().rfind(|noted| noted.what == end).expect("it is in the ledger").identity;
    kill(Pid::from_raw(process.pid), signal).expect("it runs");
    Attack { block: begun["block"].clone(), cell: begun["cell"].clone(), end, happened }
}

/// Networks that some process is in, as far as we may look.
fn networks() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").expect("processes");
    processes.flatten().filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok()).collect()
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
    let _machine = beside_others();
    if !real_link() {
        return;
    }
    let own = fs::read_link("/proc/self/ns/net").expect("a network");
    let interfaces_before = interfaces();
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let place = tempfile::tempdir().expect("a directory");
        let mut session = Session::start(place.path(), &ASKED);
        session.wait_for("a trial through WireGuard", |event| {
            is(event, "trial_started")
                && event["cell"].as_str().is_some_and(|cell| cell.contains("/wireguard/"))
        });
        session.load();
        let scratch = session.scratch().to_owned();
        // Other tests have networks of their own at the same time.
        let network = |process: &ProcessIdentity| fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok();
        let processes = session.identities();
        let mut of_run: BTreeSet<PathBuf> = processes.iter().filter_map(network).collect();
        of_run.remove(&own);
        assert!(of_run.len() >= 2, "both ends are in networks of their own: {of_run:?}");
        session.signal(signal);
        session.finish();
        if signal == Signal::SIGKILL {
            // The next start sweeps.
            assert!(real_link());
        }
        assert_gone(&processes, &scratch);
        until("the end of its networks", || networks().is_disjoint(&of_run).then_some(()));
        assert_eq!(interfaces(), interfaces_before, "{signal}");
    }
}
