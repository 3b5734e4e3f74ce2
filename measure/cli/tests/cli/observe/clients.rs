//! Clients of this machine are named by a process that may see them, sees no packet, and ends with the observer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{fs, thread};

use ciphertoll_record::ProcessIdentity;
use ciphertoll_testing::{missing, not_for_all};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::capture;
use super::confined::{OBSERVE, PROGRAM, anyones_directory, as_nobody, sockets_process};
use super::lab::Observer;
use crate::support::{MOMENT, answer, is_root, one_document, system, text, until};

/// A client that connects when it is told to, and keeps its connections. It chooses its own name.
const CLIENT: &str = "\
printf 'shop\\033work' >/proc/$$/comm
read -r address port && exec 3<>/dev/tcp/$address/$port && echo connected
read -r _ && echo x >&3 && exec 4<>/dev/tcp/$address/$port && echo y >&4 && echo again
read -r _";
const SERVER: &str = "10.99.0.1";
const CLIENT_ADDRESS: &str = "10.99.0.2";

/// A process in a network of its own. Killed when dropped.
pub(super) struct Inside(Child);

impl Inside {
    pub(super) fn start(command: &[&str]) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.arg("--net").args(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = unshare.spawn().expect("unshare starts");
        until("a network namespace", || {
            let own = fs::read_link("/proc/self/ns/net").ok()?;
            fs::read_link(format!("/proc/{}/ns/net", child.id())).ok().filter(|network| *network != own)
        });
        Self(child)
    }

    fn network(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn run(&self, script: &str) {
        system("nsenter", &[&format!("--net={}", self.network()), "sh", "-ec", script]).expect("a network");
    }

    /// Its input and output.
    fn talk(&mut self) -> (ChildStdin, BufReader<ChildStdout>) {
        let output = self.0.stdout.take().expect("it has an output");
        (self.0.stdin.take().expect("it has an input"), BufReader::new(output))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// As on a host with a container: the client has a network of its own, and the observer sees its packets in another one.
#[test]
fn a_client_in_another_network_is_named() {
    if !is_root() {
        return not_for_all("only root may capture packets");
    }
    for program in ["ip", "nsenter", "unshare", "bash"] {
        if let Err(error) = system("sh", &["-c", "command -v \"$0\"", program]) {
            return missing(&format!("{program} ({error})"));
        }
    }
    let (host, mut client) = (Inside::start(&["cat"]), Inside::start(&["bash", "-c", CLIENT]));
    host.run(&format!(
        "ip link add client0 type veth peer name eth0 netns {}; ip addr add {SERVER}/24 dev client0; \
         ip link set client0 up; ip link set lo up",
        client.pid()
    ));
    client.run(&format!("ip addr add {CLIENT_ADDRESS}/24 dev eth0; ip link set eth0 up"));
    let network = fs::File::open(host.network()).expect("it runs");
    let listener = thread::spawn(move || {
        setns(network, CloneFlags::CLONE_NEWNET).expect("root may enter it");
        TcpListener::bind((SERVER, 0)).expect("a port")
    });
    let listener = listener.join().expect("no panic");
    let port = listener.local_addr().expect("an address").port();
    let (mut tell, mut said) = client.talk();
    let mut command = |line: &str, expected: &str| {
        writeln!(tell, "{line}").expect("it reads");
        let mut answer = String::new();
        said.read_line(&mut answer).expect("text");
        assert_eq!(answer.trim_end(), expected);
    };
    command(&format!("{SERVER} {port}"), "connected");
    let observer = Observer::start(&host.pid().to_string(), &format!("{port}=postgres"), &[]);
    // A packet of the connection that began before, and another connection, which is open at the end.
    command("", "again");
    let seen = observer.end();
    let [pair] = &seen["pairs"].as_array().expect("a list")[..] else { panic!("{seen:#}") };
    assert_eq!(
        (&pair["client"], &pair["connections"]["begun"]),
        (&json!(CLIENT_ADDRESS), &json!(1)),
        "{pair:#}"
    );
    let [process] = &pair["processes"].as_array().expect("a list")[..] else { panic!("{pair:#}") };
    assert_eq!((&process["name"], &process["connections"]), (&json!("shop?work"), &json!(2)), "{pair:#}");
}

/// An observer that observes: its process, and what it says.
fn observer(command: &mut Command) -> (Child, Vec<String>) {
    let mut child =
        command.stderr(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn().expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("it has an output")).lines();
    let mut said = Vec::new();
    for line in lines.map_while(Result::ok) {
        let observes = line.starts_with("observing");
        said.push(line);
        if observes {
            break;
        }
    }
    assert!(said.last().is_some_and(|line| line.starts_with("observing")), "{said:?}");
    (child, said)
}

#[test]
fn the_process_that_names_clients_ends_with_the_observer() {
    if !is_root() {
        return not_for_all("only root may capture packets");
    }
    for (signal, is_to_group) in
        [(Signal::SIGINT, true), (Signal::SIGTERM, true), (Signal::SIGTERM, false), (Signal::SIGKILL, false)]
    {
        let place = tempfile::tempdir().expect("a directory");
        let (mut child, said) = observer(Command::new(PROGRAM).args(OBSERVE).current_dir(&place));
        assert_eq!(said.len(), 1, "{said:?}");
        let sampler = sockets_process(child.id());
        let sampler = ProcessIdentity::of(sampler.cast_signed()).expect("it runs");
        let observer = Pid::from_raw(child.id().cast_signed());
        if is_to_group { killpg(observer, signal) } else { kill(observer, signal) }.expect("it runs");
        let status = child.wait().expect("its end");
        assert_eq!(status.success(), signal != Signal::SIGKILL, "{signal}: {status}");
        assert!(sampler.wait(MOMENT).expect("to wait"), "{signal}: it is left");
    }
}

/// Services that end get signals in all their processes.
#[test]
fn the_process_that_names_clients_answers_after_signals() {
    if !is_root() {
        return not_for_all("only root may capture packets");
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(PROGRAM);
    let child = command.args(OBSERVE).current_dir(&place).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = child.spawn().expect("it starts");
    let mut said =
        BufReader::new(child.stderr.take().expect("it has an output")).lines().map_while(Result::ok);
    assert!(said.next().is_some_and(|line| line.starts_with("observing")));
    let sampler = sockets_process(child.id());
    // It is confined after it handles signals.
    until("a confined process", || {
        fs::read_to_string(format!("/proc/{sampler}/status")).ok()?.contains("Seccomp:\t2").then_some(())
    });
    for process in [sampler, child.id()] {
        kill(Pid::from_raw(process.cast_signed()), Signal::SIGTERM).expect("it runs");
    }
    assert!(child.wait().expect("its end").success());
    let rest: Vec<_> = said.collect();
    assert!(!rest.iter().any(|line| line.contains("not named")), "{rest:?}");
}

#[test]
fn an_observer_that_can_start_no_process_observes() {
    if !is_root() {
        return not_for_all("only root may give a process the right to capture packets");
    }
    let place = anyones_directory();
    let command = as_nobody(&["prlimit", "--nproc=1", PROGRAM]);
    let (mut child, said) =
        observer(Command::new(&command[0]).args(&command[1..]).args(OBSERVE).current_dir(&place));
    child.kill().and_then(|()| child.wait()).expect("it ends");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("clients are not named by their processes: "), "{said:?}");
}

#[test]
fn a_capture_names_no_processes() {
    let place = tempfile::tempdir().expect("a directory");
    let trace = place.path().join("trace.pcap");
    fs::write(&trace, capture()).expect("written");
    let seen = answer(&["observe", "--pcap", text(&trace), "--format", "json"], place.path());
    let seen: Value = one_document(&seen.stdout);
    assert_eq!(
        (&seen["pairs"][0]["connections"]["begun"], seen["pairs"][0].get("processes")),
        (&json!(10), None)
    );
}
