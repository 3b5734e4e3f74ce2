//! `--scratch-dir`: where files of private servers are, and what is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_record::{Scratch, scratch_root_below};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Session, ciphertoll, is, is_root, one_document, real_server, text};

/// Prints the file with the password, which is a scratch file.
const PRINT: &str = "echo $CIPHERTOLL_OPTION_FILE";
const SHORT: [&str; 10] = [
    "--server",
    "mariadb",
    "--path",
    "plain",
    "--workload",
    "connect",
    "--size",
    "smoke",
    "--trial-time",
    "200ms",
];

/// A short path that servers may enter, with a working directory, and a scratch directory `s`.
fn place() -> TempDir {
    let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
    fs::create_dir(place.path().join("s")).expect("a directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("its mode");
    place
}

fn lab(place: &Path, arguments: &[&str], command: &str) -> Command {
    let fixed = [&["lab", "--server", "mariadb", "-q"], arguments, &["--", "sh", "-c", command]].concat();
    let mut lab = ciphertoll(&fixed);
    lab.current_dir(place).stdin(Stdio::null());
    lab
}

fn output(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

#[track_caller]
fn assert_in(place: &Path, output: &Output) {
    let printed = String::from_utf8_lossy(&output.stdout);
    let root = scratch_root_below(&fs::canonicalize(place).expect("a path").join("s"));
    assert!(output.status.success() && Path::new(printed.trim()).starts_with(&root), "{output:?}");
    let left: Vec<PathBuf> =
        fs::read_dir(root).expect("the root").flatten().map(|entry| entry.path()).collect();
    assert!(left.iter().all(|path| path.ends_with("lock")), "nothing is left: {left:?}");
}

#[test]
fn lab_has_its_files_in_the_chosen_directory() {
    if !real_server() {
        return;
    }
    let place = place();
    assert_in(place.path(), &output(lab(place.path(), &["--scratch-dir", "s"], PRINT)));
    let mut by_variable = lab(place.path(), &[], PRINT);
    by_variable.env("CIPHERTOLL_SCRATCH_DIR", place.path().join("s"));
    assert_in(place.path(), &output(by_variable));
}

#[test]
fn run_and_resume_use_and_sweep_the_chosen_directory() {
    if !real_server() {
        return;
    }
    let place = place();
    let (runs, chosen) = (place.path().join("runs"), place.path().join("s"));
    let root = scratch_root_below(&fs::canonicalize(&chosen).expect("a path"));
    // What a killed run leaves.
    let killed = root.join("0000dead");
    drop(Scratch::create(&root).expect("a scratch directory"));
    fs::create_dir(&killed).expect("a directory");
    let arguments = [&SHORT[..], &["--blocks", "2", "--scratch-dir", text(&chosen)]].concat();
    let mut session = Session::start(&runs, &arguments);
    session.wait_for("a block", |event| is(event, "block_started") && event["block"] == 1);
    assert!(!killed.exists(), "the sweep is in the chosen directory");
    let scratch = fs::read_dir(&root).expect("the root").flatten().filter(|entry| entry.path().is_dir());
    assert_eq!(scratch.count(), 1, "the run's own files are there");
    session.signal(Signal::SIGKILL);
    let finished = session.finish();
    assert_eq!(finished.code, None, "{:?}", finished.stderr);
    let resumed = Session::resume(&runs).finish();
    assert_eq!(resumed.code, Some(0), "{:?}", resumed.stderr);
    let left = fs::read_dir(&root).expect("the root").flatten().filter(|entry| entry.path().is_dir());
    assert_eq!(left.count(), 0, "the killed run's files were in the recorded directory");
}

#[test]
fn of_two_runs_at_the_same_time_each_is_told_of_the_other() {
    if !real_server() {
        return;
    }
    let place = place();
    let chosen = place.path().join("s");
    let start = |runs: &str| {
        let arguments = [&SHORT[..], &["--blocks", "30", "--scratch-dir", text(&chosen)]].concat();
        Session::start(&place.path().join(runs), &arguments)
    };
    let warns = |event: &Value, words: &str| {
        is(event, "warned") && event["message"].as_str().is_some_and(|message| message.contains(words))
    };
    let mut earlier = start("earlier");
    earlier.wait_for("a block", |event| is(event, "block_started"));
    let mut later = start("later");
    later.wait_for("the warning", |event| warns(event, "another run or lab of ciphertoll is in progress"));
    earlier.wait_for("the warning", |event| warns(event, "another run or lab of ciphertoll has begun"));
    for run in [earlier, later] {
        run.signal(Signal::SIGINT);
        let finished = run.finish();
        assert_eq!(finished.code, Some(130), "{:?}", finished.stderr);
        let told = finished.events.iter().filter(|event| warns(event, "another run or lab")).count();
        assert_eq!(told, 1, "not with each block: {:?}", finished.stderr);
    }
}

#[test]
fn the_specification_has_the_absolute_path() {
    let place = place();
    let dry = |arguments: &[&str]| {
        let mut command = ciphertoll(&[&["run", "--dry-run", "--format", "toml"], arguments].concat());
        command.current_dir(place.path());
        String::from_utf8(output(command).stdout).expect("UTF-8")
    };
    let toml = dry(&[&SHORT[..], &["--scratch-dir", "s"]].concat());
    let line = format!("scratch-dir = \"{}\"", place.path().join("s").display());
    assert!(toml.lines().any(|found| found == line), "{toml}");
    fs::write(place.path().join("asked.toml"), &toml).expect("write the TOML");
    assert!(dry(&["asked.toml"]).contains(&line));
    assert!(dry(&["asked.toml", "--scratch-dir", "/other"]).contains("scratch-dir = \"/other\""));
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_before_anything_is_made() {
    let place = place();
    let long = "x".repeat(60);
    for name in ["open", &long] {
        fs::create_dir(place.path().join(name)).expect("a directory");
    }
    fs::set_permissions(place.path().join("open"), Permissions::from_mode(0o777)).expect("its mode");
    for (directory, reason) in [
        ("none", "No such file"),
        ("/etc/passwd", "not a directory"),
        ("open", "other users can write to it"),
        (&long, "too long for Unix sockets"),
    ] {
        let arguments = ["run", "--scratch-dir", directory];
        let mut run = ciphertoll(&[&arguments[..], &SHORT].concat());
        run.current_dir(place.path());
        for command in [run, lab(place.path(), &arguments[1..], PRINT)] {
            let output = output(command);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), stderr.lines().count()), (Some(9), 1), "{output:?}");
            assert!(stderr.contains(reason), "{reason}: {stderr}");
        }
        assert!(!place.path().join("ciphertoll-runs").exists(), "{directory}");
    }
}

#[test]
fn doctor_checks_the_chosen_directory() {
    let place = place();
    for (directory, state) in [("s", "ok"), ("none", "no")] {
        let mut command = ciphertoll(&["doctor", "--json", "--scratch-dir", directory]);
        command.current_dir(place.path());
        let document = one_document(&String::from_utf8(output(command).stdout).expect("UTF-8"));
        let mut checks = document["checks"].as_array().expect("checks").iter();
        let check = checks.find(|check| check["name"] == "scratch").expect("the check");
        let seen = check["seen"].as_str().unwrap_or_default();
        // A small disk has limits of its own.
        assert!(check["state"] == state || (state == "ok" && seen.contains("MiB free")), "{check}");
        assert!(seen.contains(directory), "{check}");
    }
}

#[test]
fn an_ordinary_user_has_a_root_of_their_own() {
    if !real_server() {
        return;
    }
    let place = place();
    let program = place.path().join("ciphertoll");
    // Written by another process: a file that this process has open for writing cannot be executed.
    let copied = Command::new("cp").args([env!("CARGO_BIN_EXE_ciphertoll"), text(&program)]).status();
    assert!(copied.expect("cp starts").success(), "the program is copied");
    let mut command = Command::new(&program);
    command.args(["lab", "--server", "mariadb", "-q", "--scratch-dir", "s", "--", "sh", "-c", PRINT]);
    command.current_dir(place.path()).env("XDG_CACHE_HOME", place.path().join("s/cache"));
    let mut uid = geteuid();
    if is_root() {
        let user = User::from_name("nobody").ok().flatten().expect("there is nobody");
        std::os::unix::fs::chown(place.path().join("s"), Some(user.uid.as_raw()), None).expect("an owner");
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        uid = user.uid;
    }
    let output = output(command);
    let printed = String::from_utf8_lossy(&output.stdout);
    let root = place.path().join(format!("s/ciphertoll-{uid}"));
    assert!(output.status.success() && Path::new(printed.trim()).starts_with(root), "{output:?}");
}
