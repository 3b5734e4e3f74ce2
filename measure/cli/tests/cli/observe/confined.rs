//! A live observer has no rights left, whatever it began with.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use ciphertoll_testing::{missing, not_for_all};
use nix::unistd::geteuid;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ciphertoll");
const OBSERVE: [&str; 6] = ["observe", "--for", "10m", "--port", "1=postgres", "--interface=lo"];
const NOBODY: u32 = 65_534;

/// Lines of `/proc/PID/status` of an observer that this command starts, once it observes; `None` if it does not get so far.
fn status(command: &[&str]) -> Result<String, String> {
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
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
    let observes = said.starts_with("observing");
    child.kill().and_then(|()| child.wait()).expect("it ends");
    if observes { Ok(status.expect("it ran")) } else { Err(said) }
}

/// Where observers of any user can make their record.
fn anyones_directory() -> TempDir {
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
    for (name, value) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("Threads", "1")] {
        assert_eq!(field(status, name), value, "{name}: {status}");
    }
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(field(status, set), "0000000000000000", "{set}: {status}");
    }
}

#[test]
fn an_observer_that_root_started_has_no_rights_left() {
    if !geteuid().is_root() {
        return not_for_all("only root may capture packets");
    }
    let status = status(&[PROGRAM]).expect("it observes");
    assert_confined(&status);
    let nobody = [NOBODY.to_string().as_str(); 4].join("\t");
    assert_eq!((field(&status, "Uid"), field(&status, "Gid")), (&*nobody, &*nobody), "{status}");
    assert_eq!(field(&status, "Groups"), "", "{status}");
}

/// Containers take rights away, such as that to become another user.
#[test]
fn the_right_to_capture_is_enough() {
    if !geteuid().is_root() {
        return not_for_all("only root may give a process the right to capture packets");
    }
    let only = "-all,+net_raw";
    let bounded = format!("--bounding-set={only}");
    let (inherited, ambient) = (format!("--inh-caps={only}"), format!("--ambient-caps={only}"));
    let as_root = ["setpriv", &bounded, PROGRAM];
    let as_nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        &bounded,
        &inherited,
        &ambient,
        PROGRAM,
    ];
    for command in [&as_root[..], &as_nobody] {
        assert_confined(&status(command).unwrap_or_else(|error| panic!("{command:?}: {error}")));
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
    assert_confined(&status(&command).expect("it observes"));
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
