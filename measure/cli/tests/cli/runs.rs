//! `runs`: what is listed, what is removed, and what is refused.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ciphertoll_testing::missing;
use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

use crate::support::{Answer, answer, items, one_document, text};

const OLD: &str = "20200101T000000Z-quick-a3f1";
/// Later than any test.
const NEW: &str = "20990101T000000Z-tls-0b0b";

/// A working directory with two recorded runs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(place.runs()).expect("a directory");
        for (record, name) in [("2026-11-21T0158", OLD), ("2026-11-21T0644", NEW)] {
            let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records").join(record);
            fs::create_dir(place.run(name)).expect("a directory");
            for file in ["spec.toml", "plan.json", "events.jsonl"] {
                fs::copy(record.join(file), place.run(name).join(file)).expect("a record");
            }
        }
        place
    }

    fn runs(&self) -> PathBuf {
        self.0.path().join("ciphertoll-runs")
    }

    fn run(&self, name: &str) -> PathBuf {
        self.runs().join(name)
    }

    fn has(&self) -> [bool; 2] {
        [OLD, NEW].map(|name| self.run(name).is_dir())
    }

    fn types(&self, arguments: &[&str]) -> Answer {
        answer(&[&["runs"], arguments].concat(), self.0.path())
    }

    /// The lock of a run, as its writer holds it.
    fn lock(&self, name: &str) -> Flock<File> {
        let file = File::create(self.run(name).join("lock")).expect("a lock file");
        Flock::lock(file, FlockArg::LockExclusiveNonblock).expect("nobody has it")
    }
}

#[test]
fn runs_are_listed_with_state_time_size_and_contents() {
    let place = Place::new();
    let _lock = place.lock(NEW);
    let listed = place.types(&[]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    let rows: Vec<&str> = listed.stdout.lines().filter(|line| line.starts_with("20")).collect();
    let [old, new] = rows[..] else { panic!("{listed:?}") };
    for part in
        [OLD, "complete", "2020-01-01 00:00", "kB", "2 of 2 blocks: mariadb; connect; plain, tls1.3-p256"]
    {
        assert!(old.contains(part), "{part}: {old}");
    }
    assert!(new.starts_with(NEW) && new.contains("in progress"), "{new}");
    assert!(listed.stdout.contains("2 runs, "), "{listed:?}");
    let document = one_document(&place.types(&["--json"]).stdout);
    let [old, new] = items(&document, "runs") else { panic!("{document}") };
    assert_eq!((&old["state"], &new["state"]), (&"complete".into(), &"in_progress".into()));
    assert_eq!((&old["began_at"], &old["blocks_completed"]), (&"2020-01-01T00:00:00Z".into(), &2.into()));
    assert_eq!(old["paths"], serde_json::json!(["plain", "tls1.3-p256"]));
}

#[test]
fn a_damaged_run_is_listed_with_the_reason_and_can_be_removed() {
    let place = Place::new();
    fs::write(place.run(OLD).join("events.jsonl"), "").expect("damage");
    let listed = place.types(&[]);
    assert!(listed.stdout.contains("unreadable") && listed.stdout.contains("run_started"), "{listed:?}");
    assert_eq!(place.types(&["rm", OLD, "--yes"]).code, Some(0));
    assert_eq!(place.has(), [false, true]);
}

#[test]
fn without_a_runs_directory_there_are_no_runs() {
    let place = tempfile::tempdir().expect("a directory");
    let listed = answer(&["runs"], place.path());
    assert_eq!((listed.code, listed.stdout.as_str()), (Some(0), "no runs in ciphertoll-runs\n"));
    let removed = answer(&["runs", "rm", "--all"], place.path());
    assert_eq!((removed.code, removed.stdout.as_str()), (Some(0), "removed 0 runs (0 B)\n"));
    assert_eq!(fs::read_dir(place.path()).expect("the directory").count(), 0, "nothing was made");
}

#[test]
fn runs_are_removed_by_name_and_age() {
    let place = Place::new();
    let removed = place.types(&["rm", "--older-than", "8w", "--yes", "--json"]);
    assert_eq!((removed.code, removed.stderr.as_str()), (Some(0), ""));
    let document = one_document(&removed.stdout);
    assert_eq!(items(&document, "removed")[0]["name"], OLD);
    assert!(document["freed_bytes"].as_u64().is_some_and(|bytes| bytes > 1_000), "{document}");
    assert_eq!(place.has(), [false, true]);
    let removed = place.types(&["rm", text(&place.run(NEW)), "--yes"]);
    assert!(removed.stdout.starts_with("removed 1 run ("), "{removed:?}");
    assert_eq!(fs::read_dir(place.runs()).expect("the directory").count(), 0);
}

#[test]
fn without_a_terminal_removal_needs_yes() {
    let place = Place::new();
    let refused = place.types(&["rm", "--all"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.one_line().contains("--yes"), "{refused:?}");
    assert_eq!(place.has(), [true; 2]);
}

#[test]
fn a_terminal_is_asked() {
    let place = Place::new();
    for (reply, code, left) in [("n\n", 0, [true; 2]), ("\n", 0, [true; 2]), ("y\n", 0, [false; 2])] {
        let command = format!("{} runs rm --all", env!("CARGO_BIN_EXE_ciphertoll"));
        let mut terminal = Command::new("script");
        terminal.args(["-q", "-e", "-c", &command, "/dev/null"]).current_dir(place.0.path());
        let terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut terminal) = terminal else { return missing("script (bsdutils) is not installed") };
        terminal.stdin.take().expect("its stdin").write_all(reply.as_bytes()).expect("it reads");
        let output = terminal.wait_with_output().expect("it ends");
        let screen = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(screen.contains("Remove 2 runs (") && screen.contains(OLD), "{screen}");
        assert_eq!((output.status.code(), place.has()), (Some(code), left), "{screen}");
        assert_eq!(screen.contains("nothing was removed"), left == [true; 2], "{screen}");
    }
}

#[test]
fn what_must_stay_is_refused_before_anything_is_removed() {
    let place = Place::new();
    let _lock = place.lock(NEW);
    fs::create_dir(place.run("other")).expect("a directory");
    std::os::unix::fs::symlink(place.run(OLD), place.run("link")).expect("a link");
    for (asked, code, message) in [
        (NEW, 8, "in use by another ciphertoll"),
        ("other", 8, "is not a run"),
        ("link", 8, "symbolic link"),
        ("link/", 8, "symbolic link"),
        ("nothing", 2, "no run \"nothing\""),
        ("quick", 2, "the newest of this experiment is"),
    ] {
        let refused = place.types(&["rm", OLD, asked, "--yes"]);
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.one_line().contains(message), "{refused:?}");
        assert_eq!(place.has(), [true; 2], "{asked}");
    }
    let in_part = place.types(&["rm", "--all", "--yes"]);
    assert_eq!((in_part.code, in_part.stdout.starts_with("removed 1 run (")), (Some(6), true), "{in_part:?}");
    assert!(in_part.stderr.contains("was not removed: it is in progress"), "{in_part:?}");
    assert_eq!(place.has(), [false, true]);
    assert!(place.run("other").is_dir());
}

#[test]
fn an_interrupted_removal_is_told_and_finished() {
    let place = Place::new();
    drop(place.lock(OLD));
    fs::rename(place.run(OLD), place.run(".ciphertoll-removed-0000dead")).expect("rename");
    let listed = place.types(&[]);
    assert!(listed.stderr.contains("1 directory of interrupted removals"), "{listed:?}");
    let removed = place.types(&["rm", "--older-than", "100w", "--yes"]);
    assert_eq!(removed.stdout, "removed 0 runs (0 B), and the remains of 1 interrupted removal\n");
    assert_eq!(fs::read_dir(place.runs()).expect("the directory").count(), 1);
}
