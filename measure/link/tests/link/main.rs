//! Real links of each kind, with clients and servers at their ends.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ciphertoll_link::{Error, LinkCalibration, LinkProcess, SERVER};
use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use ciphertoll_testing::missing;
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
    match LinkProcess::start(&helper(), Some(kind)) {
        Ok(link) => {
            assert_eq!((link.kind(), link.fallback_reason()), (kind, None));
            Some(link)
        }
        Err(Error::Failed(reason)) => {
            missing(&reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A server at the servers' end.
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
        // It would also exit at the end of stdin.
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

/// Not a timing test: even a busy machine keeps these bounds, only a broken link does not. The overhead that was
/// subtracted was measured at another time.
fn assert_long(times: &[u64], round_trips: u64, shape: LinkShape, made: LinkCalibration) {
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
    assert_eq!(link.find_address(server.address.port()).expect("it tells"), server.address);
    for level in ["10ms", "45ms", "1ms"] {
        let made = link.set(shape(level)).expect("it obeys");
        assert_long(&[made.round_trip_ns_p50], 1, shape(level), made);
        assert_long(&server.connects(link.clients(), 9), 1, shape(level), made);
        let carried = link.read_counters().expect("it tells");
        assert!(carried.packets >= 9 * 3 && carried.dropped == 0 && carried.lost == 0, "{carried:?}");
        assert!(carried.cpu_ns > 0, "{level}: {carried:?}");
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
fn a_link_of_the_kernels_queues_is_refused_with_what_replaces_it() {
    let error = LinkProcess::start(&helper(), Some(LinkKind::Netem)).err().expect("refused").to_string();
    assert!(error.contains("use ring, tun or relay"), "{error}");
}

#[test]
fn a_first_word_takes_two_round_trips_by_a_relay() {
    let mut link = link_by(LinkKind::Relay).expect("every machine can");
    assert_eq!((link.clients(), link.servers()), (None, None));
    let server = Server::at(&link, Ipv4Addr::LOCALHOST);
    let relay = link.find_address(server.address.port()).expect("it listens");
    assert_ne!(relay, server.address);
    assert_eq!(link.find_address(server.address.port()).expect("it still listens"), relay);
    for level in ["10ms", "45ms"] {
        let made = link.set(shape(level)).expect("it obeys");
        assert_long(&times(role("talk", None, relay), 9), 2, shape(level), made);
        let mut packets = 0;
        // Bytes may arrive before they are counted: the last echo here, and calibration's before it.
        while packets < 9 * 2 {
            let carried = link.read_counters().expect("it tells");
            assert!(carried.dropped == 0 && carried.cpu_ns > 0, "{carried:?}");
            packets += carried.packets;
        }
        assert!(packets <= 9 * 2 + 1, "{level}: {packets}");
    }
    assert!(link.missing_feature(shape("1ms+loss=1%")).is_some_and(|lacks| lacks.contains("relay")));
    assert_eq!(link.missing_feature(shape("1ms")), None);
}

#[test]
fn start_chooses_the_best_possible_kind() {
    let link = LinkProcess::start(&helper(), None).expect("a relay at least");
    assert_eq!(
        link.fallback_reason().is_none(),
        link.kind() == LinkKind::Ring,
        "{:?}",
        link.fallback_reason()
    );
    assert!(link.mtu_bytes() >= 1_500);
}

#[test]
fn there_is_an_undelayed_pair_too() {
    for kind in [LinkKind::Ring, LinkKind::Tun] {
        let Some(mut link) = link_by(kind) else { continue };
        link.set(shape("200ms")).expect("it obeys");
        let server = Server::at(&link, SERVER[1]);
        assert!(server.connects(link.clients(), 5)[0] < 100_000_000);
        // At the servers' end there is no delay, either.
        let server = Server::at(&link, Ipv4Addr::LOCALHOST);
        assert!(server.connects(link.servers(), 5)[0] < 100_000_000);
    }
}

#[test]
fn lost_packets_are_sent_again_by_tcp() {
    let Some(mut link) = link() else { return };
    link.set(shape("1ms+loss=20%")).expect("it obeys");
    let server = Server::at(&link, SERVER[0]);
    server.connects(link.clients(), 20);
    let carried = link.read_counters().expect("it tells");
    assert!(carried.lost > 0 && carried.packets > carried.lost, "{carried:?}");
}

#[test]
fn a_stopped_link_is_down_for_good() {
    let Some(mut link) = link() else { return };
    assert!(!link.is_down());
    let process = Pid::from_raw(link.pid());
    kill(process, Signal::SIGSTOP).expect("it runs");
    assert!(matches!(link.read_counters(), Err(Error::Down(_))));
    kill(process, Signal::SIGCONT).expect("it is still there");
    assert!(link.is_down(), "a reply after SIGCONT belongs to an earlier command");
}

#[test]
fn a_link_stopped_while_being_set_is_not_waited_for() {
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
fn dropping_a_link_ends_its_process() {
    for kind in LinkKind::MADE {
        let Some(link) = link_by(kind) else { continue };
        let process = PathBuf::from(format!("/proc/{}", link.pid()));
        assert!(process.exists());
        drop(link);
        assert!(!process.exists());
    }
}
