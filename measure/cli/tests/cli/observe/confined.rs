//! A live observer has no rights left, whatever it began with.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use ciphertoll_testing::{missing, not_for_all};
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::support::until;

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_ciphertoll");
pub(super) const OBSERVE: [&str; 6] = ["observe", "--for", "10m", "--port", "1=postgres", "--interface=lo"];
const NOBODY: u32 = 65_534;
/// `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH`.
const RIGHTS_TO_READ: u64 = 1 << 19 | 1 << 2;
const RIGHT_TO_CAPTURE: &str = "-all,+net_raw";

/// What is in `/proc/PID/status` of an observer, and of the process that samples sockets for it.
struct Statuses {
    observer: String,
    sampler: String,
    /// What the descriptors of the latter are.
    descriptors: Vec<String>,
}

/// Of an observer that this command starts, once it observes; or what it said.
fn statuses(command: &[&str]) -> Result<Statuses, String> {
    let place = anyones_directory();
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .args(OBSERVE)
        .current_dir(&place)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", command[0]))?;
    let mut said = String::new();
    let stderr = child.stderr.take().expect("it has an output");
    BufReader::new(stderr).read_line(&mut said).expect("text");
    let statuses = said.starts_with("observing").then(|| read_statuses(child.id()));
    child.kill().and_then(|()| child.wait()).expect("it ends");
    statuses.ok_or(said)
}

fn read_statuses(observer: u32) -> Statuses {
    let read = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let pid = sockets_process(observer);
    // It has been started, and may not be ready.
    let sampler =
        until("a confined process", || Some(read(pid)).filter(|status| field(status, "Seccomp") == "2"));
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let descriptors =
        descriptors.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()));
    Statuses { observer: read(observer), sampler, descriptors: descriptors.collect() }
}

/// The process that samples sockets for this observer.
pub(super) fn sockets_process(observer: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{observer}/task/{observer}/children")).expect("it runs");
    let pids: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    let [pid] = pids[..] else { panic!("one child: {children:?}") };
    // The kernel lets its parent go on a moment before a program has its arguments.
    let arguments = until("a running process", || {
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
        (!arguments.is_empty()).then_some(arguments)
    });
    assert_eq!(arguments.split('\0').nth(1), Some("__sockets"), "{arguments:?}");
    pid
}

/// A command of another user with the right to capture packets.
pub(super) fn as_nobody(command: &[&str]) -> Vec<String> {
    let rights =
        ["bounding-set", "inh-caps", "ambient-caps"].map(|set| format!("--{set}={RIGHT_TO_CAPTURE}"));
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
    user.into_iter().chain(rights).chain(command.iter().map(|word| (*word).to_owned())).collect()
}

/// Where observers of any user can make their record.
pub(super) fn anyones_directory() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(&place, Permissions::from_mode(0o1777)).expect("it is ours");
    place
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name}: {status}")).trim()
}

#[track_caller]
fn assert_confined(status: &str) {
    assert_rights(status, 0);
}

#[track_caller]
fn assert_rights(status: &str, rights: u64) {
    for (name, value) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("Threads", "1")] {
        assert_eq!(field(status, name), value, "{name}: {status}");
    }
    for (set, rights) in [("CapEff", rights), ("CapPrm", rights), ("CapInh", 0), ("CapAmb", 0)] {
        assert_eq!(field(status, set), format!("{rights:016x}"), "{set}: {status}");
    }
}

#[test]
fn an_observer_that_root_started_has_no_rights_left() {
    if !geteuid().is_root() {
        return not_for_all("only root may capture packets");
    }
    let Statuses { observer, sampler, descriptors } = statuses(&[PROGRAM]).expect("it observes");
    assert_confined(&observer);
    let nobody = [NOBODY.to_string().as_str(); 4].join("\t");
    let assert_nobody = |status: &str| {
        assert_eq!((field(status, "Uid"), field(status, "Gid")), (&*nobody, &*nobody), "{status}");
        assert_eq!(field(status, "Groups"), "", "{status}");
    };
    assert_nobody(&observer);
    // The other process may read `/proc`, if this one may.
    let own = fs::read_to_string("/proc/self/status").expect("this process runs");
    let own = u64::from_str_radix(field(&own, "CapPrm"), 16).expect("a set");
    assert_rights(&sampler, own & RIGHTS_TO_READ);
    if own & RIGHTS_TO_READ == RIGHTS_TO_READ {
        assert_nobody(&sampler);
    }
    assert!(
        descriptors.len() >= 3 && !descriptors.iter().any(|what| what.starts_with("socket")),
        "{descriptors:?}"
    );
}

/// Containers take rights away, such as that to become another user.
#[test]
fn the_right_to_capture_is_enough() {
    if !geteuid().is_root() {
        return not_for_all("only root may give a process the right to capture packets");
    }
    let bounded = format!("--bounding-set={RIGHT_TO_CAPTURE}");
    let as_root = ["setpriv", &bounded, PROGRAM].map(str::to_owned);
    for command in [as_root.to_vec(), as_nobody(&[PROGRAM])] {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let Statuses { observer, sampler, .. } =
            statuses(&words).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert_confined(&observer);
        assert_confined(&sampler);
    }
}

/// Root of a user namespace, as in a container without root, may not become a user that the namespace does not have.
#[test]
fn an_observer_in_a_namespace_of_users_is_confined() {
    let command = ["unshare", "--user", "--map-root-user", "--net", PROGRAM];
    let possible = Command::new("unshare").args(&command[1..4]).arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        return missing("unshare may make no user namespaces here");
    }
    let Statuses { observer, sampler, .. } = statuses(&command).expect("it observes");
    assert_confined(&observer);
    assert_rights(&sampler, RIGHTS_TO_READ);
}

#[test]
fn without_the_right_one_line_says_how_to_get_it() {
    let mut command = Command::new(PROGRAM);
    if geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--bounding-set=-net_raw", PROGRAM]);
    }
    let output = command.args(OBSERVE).current_dir(anyones_directory().path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(9), 1), "{said}");
    assert!(said.contains("CAP_NET_RAW") && said.contains("tcpdump"), "{said}");
}

/// The capture is opened before, and `-` is open: nothing else is needed.
#[test]
fn any_user_may_read_a_capture() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("empty.pcap");
    // The header of a file without packets: Ethernet.
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1].map(u32::to_ne_bytes).concat();
    fs::write(&file, header).expect("written");
    let mut command = Command::new(PROGRAM);
    command.args(["observe", "--pcap", "-", "--format", "json"]).current_dir(&directory);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let input = fs::File::open(&file).expect("opened");
    let output = match command.stdin(input).output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return not_for_all("other users may not start this program where it was built");
        }
        output => output.expect("it starts"),
    };
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("\"segments\": 0"), "{printed}{said}");
}
