//! A real link of each kind: processes at its ends, packets on their way.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_link::{Error, LinkProcess, Made, SERVER};
use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use ciphertoll_skip::{missing, not_for_all};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The program that Cargo builds beside the tests.
fn helper() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("a directory of the profile");
    let helper = profile.join("examples/link_helper");
    assert!(helper.is_file(), "{} is missing: cargo build -p ciphertoll-link --examples", helper.display());
    helper
}

fn link() -> Option<LinkProcess> {
    link_by(LinkKind::Ring)
}

/// A link, or a printed reason to skip.
fn link_by(kind: LinkKind) -> Option<LinkProcess> {
    match LinkProcess::start_by(&helper(), kind) {
        Ok(link) => {
            assert_eq!((link.kind(), link.instead()), (kind, None));
            Some(link)
        }
        Err(Error::Failed(reason)) => {
            let told = if kind == LinkKind::Netem { not_for_all } else { missing };
            told(&reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Somebody who listens at the servers' end.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn at(link: &LinkProcess, address: Ipv4Addr) -> Self {
        let mut process =
            role("serve", link.servers(), SocketAddr::from((address, 0))).spawn().expect("the helper starts");
        let mut said = String::new();
        let stdout = process.stdout.take().expect("it has an output");
        BufReader::new(stdout).read_line(&mut said).expect("it says where it listens");
        Self { process, address: said.trim().parse().expect("an address") }
    }

    /// Sorted times of connects from `from`, ns.
    fn connects(&self, from: Option<&Namespace>, count: usize) -> Vec<u64> {
        times(role("visit", from, self.address), count)
    }
}

fn times(mut role: Command, count: usize) -> Vec<u64> {
    let output = role.arg(count.to_string()).output().expect("the helper runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let mut times: Vec<u64> = said.lines().map(|line| line.parse().expect("a time")).collect();
    assert_eq!(times.len(), count);
    times.sort_unstable();
    times
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its stdin, too.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

fn role(role: &str, namespace: Option<&Namespace>, address: SocketAddr) -> Command {
    let mut command = Command::new(helper());
    command.arg(role).arg(serde_json::to_string(&namespace).expect("it is text")).arg(address.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn shape(level: &str) -> LinkShape {
    level.parse().expect("a link")
}

/// No timing test: only what a broken line would never keep, on however busy a machine. The line's own part, which was taken
/// off, was that of another moment.
fn assert_long(times: &[u64], round_trips: u64, shape: LinkShape, made: Made) {
    const GRAIN_NS: u64 = 50_000;
    const MOMENT_NS: u64 = 20_000_000;
    let rtt_ns = shape.rtt_ns();
    let least_ns = round_trips * rtt_ns.saturating_sub(made.overhead_ns);
    assert!(times[0] + GRAIN_NS >= least_ns, "{shape} {made:?}: {times:?}");
    assert!(times[0] < round_trips * rtt_ns * 3 + MOMENT_NS, "{shape} {made:?}: {times:?}");
}

fn a_connect_takes_the_round_trip_by(kind: LinkKind) {
    let Some(mut link) = link_by(kind) else { return };
    let server = Server::at(&link, SERVER[0]);
    assert_eq!(link.address_of(server.address.port()).expect("it tells"), server.address);
    for level in ["10ms", "45ms", "1ms"] {
        let made = link.set(shape(level)).expect("it obeys");
        assert_long(&[made.round_trip_ns_p50], 1, shape(level), made);
        assert_long(&server.connects(link.clients(), 9), 1, shape(level), made);
        let carried = link.carried().expect("it tells");
        assert!(carried.packets >= 9 * 3 && carried.dropped == 0 && carried.lost == 0, "{carried:?}");
        assert!(kind == LinkKind::Netem || carried.cpu_ns > 0, "{level}: {carried:?}");
    }
}

#[test]
fn a_connect_takes_the_round_trip_and_not_much_more() {
    a_connect_takes_the_round_trip_by(LinkKind::Ring);
}

#[test]
fn a_connect_takes_the_round_trip_by_a_tunnel() {
    a_connect_takes_the_round_trip_by(LinkKind::Tun);
}

#[test]
fn a_connect_takes_the_round_trip_by_the_kernels_queue() {
    a_connect_takes_the_round_trip_by(LinkKind::Netem);
}

#[test]
fn a_first_word_takes_two_round_trips_by_a_relay() {
    let mut link = link_by(LinkKind::Relay).expect("every machine can");
    assert_eq!((link.clients(), link.servers()), (None, None));
    let server = Server::at(&link, Ipv4Addr::LOCALHOST);
    let relay = link.address_of(server.address.port()).expect("it listens");
    assert_ne!(relay, server.address);
    assert_eq!(link.address_of(server.address.port()).expect("it still listens"), relay);
    for level in ["10ms", "45ms"] {
        let made = link.set(shape(level)).expect("it obeys");
        assert_long(&times(role("talk", None, relay), 9), 2, shape(level), made);
        let mut packets = 0;
        // What was said may be heard before it is counted: the last word here, and calibration's before it.
        while packets < 9 * 2 {
            let carried = link.carried().expect("it tells");
            assert!(carried.dropped == 0 && carried.cpu_ns > 0, "{carried:?}");
            packets += carried.packets;
        }
        assert!(packets <= 9 * 2 + 1, "{level}: {packets}");
    }
    assert!(link.lacks(shape("1ms+loss=1%")).is_some_and(|lacks| lacks.contains("relay")));
    assert_eq!(link.lacks(shape("1ms")), None);
}

#[test]
fn the_best_that_can_be_made_is_made() {
    let link = LinkProcess::start(&helper()).expect("a relay at least");
    assert_eq!(link.instead().is_none(), link.kind() == LinkKind::Ring, "{:?}", link.instead());
    assert!(link.mtu_bytes() >= 1_500);
}

#[test]
fn beside_the_long_way_there_is_a_short_one() {
    for kind in [LinkKind::Ring, LinkKind::Tun] {
        let Some(mut link) = link_by(kind) else { continue };
        link.set(shape("200ms")).expect("it obeys");
        let server = Server::at(&link, SERVER[1]);
        assert!(server.connects(link.clients(), 5)[0] < 100_000_000);
        // At the servers' end there is nothing in between, either.
        let server = Server::at(&link, Ipv4Addr::LOCALHOST);
        assert!(server.connects(link.servers(), 5)[0] < 100_000_000);
    }
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
fn one_that_is_stopped_is_down_and_stays_so() {
    let Some(mut link) = link() else { return };
    assert!(!link.is_down());
    let process = Pid::from_raw(link.pid());
    kill(process, Signal::SIGSTOP).expect("it runs");
    let asked = Instant::now();
    assert!(matches!(link.carried(), Err(Error::Down(_))));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    kill(process, Signal::SIGCONT).expect("it is still there");
    assert!(link.is_down(), "what it says now nobody has asked for");
}

#[test]
fn one_that_is_stopped_while_it_is_set_is_not_waited_for() {
    let Some(mut link) = link() else { return };
    let process = Pid::from_raw(link.pid());
    // Its calibration would take a minute.
    let set = std::thread::spawn(move || (link.set(shape("5s")), link));
    kill(process, Signal::SIGSTOP).expect("it runs");
    let (set, mut link) = set.join().expect("it ends");
    assert!(matches!(set, Err(Error::Down(_))), "{set:?}");
    assert!(link.is_down());
}

#[test]
fn without_its_coordinator_there_is_no_link() {
    for kind in LinkKind::ALL {
        let Some(link) = link_by(kind) else { continue };
        let process = PathBuf::from(format!("/proc/{}", link.pid()));
        assert!(process.exists());
        drop(link);
        assert!(!process.exists());
    }
}
