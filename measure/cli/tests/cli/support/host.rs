//! The machine of the tests: exclusive use, installed servers, and checks that nothing is left behind.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ciphertoll_lab::find;
use ciphertoll_model::{Engine, ServerLevel};
use ciphertoll_record::{ProcessIdentity, scratch_root};
use ciphertoll_testing::{missing, no_server};
use nix::fcntl::{Flock, FlockArg};

/// Timeout of anything, including the creation of a template.
pub(crate) const TIME_LIMIT: Duration = Duration::from_mins(2);
/// Timeout of anything that takes milliseconds on an idle machine.
pub(crate) const MOMENT: Duration = Duration::from_mins(1);
/// Polling interval of states without a kernel event.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Writes a shell script that all users may run. Another process writes it: while this process, or a child that another
/// test has just forked, has the file open for writing, it cannot be executed.
pub(crate) fn script(path: &Path, body: &str) {
    let text = format!("#!/bin/sh\n{body}");
    let mut write = Command::new("sh");
    write.args(["-c", "printf '%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(path).arg(text);
    assert!(write.status().expect("sh starts").success(), "write a script");
}

/// Whether a real server is installed. In CI one must be; elsewhere the test reports why it is skipped.
pub(crate) fn real_server() -> bool {
    real_server_of(Engine::MariaDb)
}

/// The same for an engine.
pub(crate) fn real_server_of(engine: Engine) -> bool {
    find(&ServerLevel::of(engine)).inspect_err(|error| no_server(engine, error)).is_ok()
}

/// Whether a long link can be made. In CI it must be possible; elsewhere the test reports why it is skipped.
pub(crate) fn real_link() -> bool {
    let made =
        super::ciphertoll(&["lab", "--server", "mariadb", "--link", "0ms", "-q", "--", "true"]).output();
    let made = made.expect("the program starts");
    if made.status.success() {
        return true;
    }
    missing(&String::from_utf8_lossy(&made.stderr));
    false
}

/// Whether we may mount.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Looks until `found` finds something; fails after [`MOMENT`], saying what was looked for.
#[track_caller]
pub(crate) fn until<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    until_within(MOMENT, what, found)
}

/// The same after `limit`.
#[track_caller]
pub(crate) fn until_within<T>(limit: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Keeps every sweep waiting, and with it every run that begins, while it is held: for a look at what a killed run has
/// left, which the run of another test would clear.
pub(crate) fn unswept() -> Flock<File> {
    let lock = File::open(scratch_root().join("lock")).expect("the lock of all scratch directories");
    Flock::lock(lock, FlockArg::LockExclusive).expect("to lock it")
}

/// Fails unless every process has ended and nothing of the scratch directory is left: no file, no socket.
#[track_caller]
pub(crate) fn assert_gone(processes: &[ProcessIdentity], scratch: &Path) {
    assert!(!processes.is_empty(), "nothing was started, so nothing is proven");
    for process in processes {
        assert!(process.wait(MOMENT).expect("wait for a process"), "{process:?} is left");
    }
    assert!(!scratch.exists(), "{} is left", scratch.display());
    let sockets = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
    let scratch = scratch.display().to_string();
    assert!(!sockets.contains(&scratch), "a socket is left below {scratch}");
    let mounts = fs::read_to_string("/proc/mounts").expect("/proc/mounts");
    assert!(!mounts.contains(&scratch), "a mount is left below {scratch}");
    let run = Path::new(&scratch).file_name().expect("a name").display().to_string();
    let groups = control_groups(Path::new("/sys/fs/cgroup"));
    assert!(!groups.iter().any(|group| group.contains(&run)), "a control group is left: {run} in {groups:?}");
}

/// The names of the control groups that runs made, below this one.
fn control_groups(above: &Path) -> Vec<String> {
    let inside = fs::read_dir(above).into_iter().flatten().flatten();
    let directories = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .flat_map(|entry| match entry.file_name().to_string_lossy().into_owned() {
            name if name.starts_with("ciphertoll-") => vec![name],
            _ => control_groups(&entry.path()),
        })
        .collect()
}

/// Runs a command of the system and returns what it complained of, if it failed.
pub(crate) fn system(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
