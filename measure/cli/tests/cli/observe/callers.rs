//! What `sudo ciphertoll observe` makes in a directory of the caller belongs to the caller, and nothing else does.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use ciphertoll_model::Engine;
use ciphertoll_testing::missing;
use tempfile::TempDir;

use super::capture;
use super::confined::PROGRAM;
use crate::support::{ciphertoll, is_root, until};

const CALLER: (u32, u32) = (12_345, 12_346);
const ROOT: (u32, u32) = (0, 0);

/// A directory of this user, with a capture.
fn directory_of((uid, gid): (u32, u32)) -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("trace.pcap"), capture()).expect("written");
    chown(&place, Some(uid), Some(gid)).expect("root may give it away");
    place
}

/// Observes as by `sudo`.
fn observe(place: &Path, capture: &str) {
    let output = Command::new(PROGRAM)
        .args(["observe", "--pcap", capture, "-o", "seen.txt"])
        .envs([("SUDO_UID", CALLER.0.to_string()), ("SUDO_GID", CALLER.1.to_string())])
        .current_dir(place)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn owner(path: &Path) -> (u32, u32) {
    let about = fs::symlink_metadata(path).expect("it exists");
    (about.uid(), about.gid())
}

/// The records in a run directory.
fn records(runs: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(runs).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn what_sudo_makes_in_a_directory_of_the_caller_is_the_callers() {
    if !is_root() {
        return missing("only root may give files away");
    }
    for user in [CALLER, ROOT] {
        let place = directory_of(user);
        observe(place.path(), "trace.pcap");
        let runs = place.path().join("ciphertoll-runs");
        let [record] = &records(&runs)[..] else { panic!("one record") };
        for path in [
            &runs,
            record,
            &record.join("observation.json"),
            &record.join("lock"),
            &place.path().join("seen.txt"),
        ] {
            assert_eq!(owner(path), user, "{}", path.display());
        }
        assert_eq!(owner(&place.path().join("trace.pcap")), ROOT);
    }
}

/// The caller may put links where root makes something.
#[test]
fn what_a_link_of_the_caller_leads_to_stays_roots() {
    if !is_root() {
        return missing("only root may give files away");
    }
    let (place, elsewhere) = (directory_of(CALLER), directory_of(ROOT));
    let (runs, file) = (elsewhere.path().join("runs"), elsewhere.path().join("file"));
    fs::create_dir(&runs).expect("made");
    fs::write(&file, "before").expect("written");
    symlink(&runs, place.path().join("ciphertoll-runs")).expect("linked");
    symlink(&file, place.path().join("seen.txt")).expect("linked");
    observe(place.path(), "trace.pcap");
    let [record] = &records(&runs)[..] else { panic!("one record") };
    for path in [&runs, record, &record.join("observation.json"), &file] {
        assert_eq!(owner(path), ROOT, "{}", path.display());
    }
}

/// An observer that saw nothing has no right to remove its record. The next one does, with the caller's rights.
#[test]
fn records_that_stayed_empty_are_removed_also_from_a_directory_of_the_caller() {
    if !is_root() {
        return missing("only root may give files away");
    }
    let place = directory_of(CALLER);
    let trace = capture();
    // The header alone.
    fs::write(place.path().join("empty.pcap"), &trace[..24]).expect("written");
    observe(place.path(), "empty.pcap");
    let runs = place.path().join("ciphertoll-runs");
    let [empty] = &records(&runs)[..] else { panic!("one record") };
    observe(place.path(), "trace.pcap");
    let [record] = &records(&runs)[..] else { panic!("one record: {:?}", records(&runs)) };
    assert_ne!(record, empty);
    assert!(fs::metadata(record.join("observation.json")).expect("a document").len() > 0);
}

/// A run makes files until it ends. One that is killed gives them away when it was resumed.
#[test]
fn a_run_by_sudo_leaves_nothing_of_roots_in_a_directory_of_the_caller() {
    if !is_root() {
        return missing("only root may give files away");
    }
    if !crate::url::real_server(Engine::MariaDb) {
        return;
    }
    let place = directory_of((NOBODY, NOBODY));
    let run = ["run", "--server", "mariadb", "--path", "plain", "--workload", "connect", "--clients", "1"];
    let run = [&run[..], &["--size", "smoke", "-q"]].concat();
    let output = by_sudo(place.path(), &run).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_all_are_nobodys(place.path());

    let place = directory_of((NOBODY, NOBODY));
    let mut killed = by_sudo(place.path(), &run).spawn().expect("it starts");
    let runs = place.path().join("ciphertoll-runs");
    until("a trial", || {
        let record = fs::read_dir(&runs).ok()?.next()?.ok()?.path();
        let events = fs::read_to_string(record.join("events.jsonl")).ok()?;
        events.contains("trial").then_some(())
    });
    killed.kill().expect("it runs");
    killed.wait().expect("it was started");
    let output = by_sudo(place.path(), &["resume", "-q"]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_all_are_nobodys(place.path());
}

// The user exists.
const NOBODY: u32 = 65_534;

fn by_sudo(place: &Path, arguments: &[&str]) -> Command {
    let mut command = ciphertoll(arguments);
    command
        .envs([("SUDO_UID", NOBODY.to_string()), ("SUDO_GID", NOBODY.to_string())])
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn assert_all_are_nobodys(place: &Path) {
    let mut left = vec![place.join("ciphertoll-runs")];
    let mut files = 0;
    while let Some(path) = left.pop() {
        assert_eq!(owner(&path), (NOBODY, NOBODY), "{}", path.display());
        if path.is_dir() {
            left.extend(records(&path));
        } else {
            files += 1;
        }
    }
    assert!(files > 4, "{files}");
}
