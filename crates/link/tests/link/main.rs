//! A real link: processes at its ends, packets on their way.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ciphertoll_link::{Error, LinkProcess, SERVER};
use ciphertoll_model::{LinkShape, Namespace};

/// The program that Cargo builds beside the tests.
fn helper() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("a directory of the profile");
    let helper = profile.join("examples/link_helper");
    assert!(helper.is_file(), "{} is missing: cargo build -p ciphertoll-link --examples", helper.display());
    helper
}

/// A link, or a printed reason to skip.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn link() -> Option<LinkProcess> {
    match LinkProcess::start(&helper()) {
        Ok(link) => Some(link),
        Err(Error::Failed(reason)) => {
            eprintln!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Somebody who listens at the servers' end.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn at(link: &LinkProcess, address: Ipv4Addr) -> Self {
        let mut process =
            role("serve", link.servers(), &format!("{address}:0")).spawn().expect("the helper starts");
        let mut said = String::new();
        let stdout = process.stdout.take().expect("it has an output");
        BufReader::new(stdout).read_line(&mut said).expect("it says where it listens");
        Self { process, address: said.trim().to_owned() }
    }

    /// Sorted times of connects from `from`, ns.
    fn connects(&self, from: &Namespace, count: usize) -> Vec<u64> {
        let output =
            role("visit", from, &self.address).arg(count.to_string()).output().expect("the helper runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut times: Vec<u64> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.parse().expect("a time"))
            .collect();
        assert_eq!(times.len(), count);
        times.sort_unstable();
        times
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its stdin, too.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

fn role(role: &str, namespace: &Namespace, address: &str) -> Command {
    let mut command = Command::new(helper());
    command.arg(role).arg(serde_json::to_string(namespace).expect("it is text")).arg(address);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn shape(level: &str) -> LinkShape {
    level.parse().expect("a link")
}

#[test]
fn a_connect_takes_the_round_trip_and_not_much_more() {
    let Some(mut link) = link() else { return };
    let server = Server::at(&link, SERVER[0]);
    for (level, rtt_ns) in [("10ms", 10_000_000), ("45ms", 45_000_000), ("1ms", 1_000_000)] {
        let made = link.set(shape(level)).expect("it obeys");
        assert!(made.round_trip_ns_p50 >= rtt_ns / 10 * 9, "{level}: {made:?}");
        let times = server.connects(link.clients(), 9);
        // No timing test: only what a broken line would never keep, on however busy a machine.
        assert!(times[4] >= rtt_ns / 10 * 9, "{level}: {times:?}");
        assert!(times[0] < rtt_ns * 3, "{level}: {times:?}");
        let carried = link.carried().expect("it tells");
        assert!(
            carried.packets >= 9 * 3 && carried.dropped == 0 && carried.lost == 0,
            "{level}: {carried:?}"
        );
    }
}

#[test]
fn beside_the_long_way_there_is_a_short_one() {
    let Some(mut link) = link() else { return };
    link.set(shape("200ms")).expect("it obeys");
    let server = Server::at(&link, SERVER[1]);
    assert!(server.connects(link.clients(), 5)[0] < 100_000_000);
    // At the servers' end there is nothing in between, either.
    let server = Server::at(&link, Ipv4Addr::LOCALHOST);
    assert!(server.connects(link.servers(), 5)[0] < 100_000_000);
}

#[test]
fn what_is_lost_is_sent_again_by_tcp() {
    let Some(mut link) = link() else { return };
    link.set(shape("1ms+loss=20%")).expect("it obeys");
    let server = Server::at(&link, SERVER[0]);
    server.connects(link.clients(), 20);
    let carried = link.carried().expect("it tells");
    assert!(carried.lost > 0 && carried.packets > carried.lost, "{carried:?}");
}

#[test]
fn without_its_coordinator_there_is_no_link() {
    let Some(link) = link() else { return };
    let process = PathBuf::from(format!("/proc/{}", link.pid()));
    assert!(process.exists());
    drop(link);
    assert!(!process.exists());
}
