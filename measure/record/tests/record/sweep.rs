//! Scratch directories of runs that live, ended and were killed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use ciphertoll_model::ExitCode;
use ciphertoll_record::{Effect, Error, ProcessIdentity, Scratch, SweepReport, sweep};
use tempfile::TempDir;

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn identity(&self) -> ProcessIdentity {
        ProcessIdentity::of(self.0.id().cast_signed()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn root() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("ciphertoll-0");
    (place, root)
}

fn process(identity: ProcessIdentity) -> Effect {
    Effect::Process { identity, what: "MariaDB".to_owned(), program: "/usr/sbin/mariadbd".into() }
}

/// What a run leaves behind that is killed: its scratch directory without its lock.
fn abandon(root: &Path, effects: &[Effect]) -> PathBuf {
    let scratch = Scratch::create(root).unwrap();
    scratch.make_directory("server", 0o700).unwrap();
    for effect in effects {
        scratch.ledger().note(effect).unwrap();
    }
    let left = root.join("0000dead");
    let copied = Command::new("cp").arg("-r").arg(scratch.path()).arg(&left).status().unwrap();
    assert!(copied.success());
    left
}

#[test]
fn a_scratch_directory_lives_as_long_as_its_run() {
    let (_place, root) = root();
    let scratch = Scratch::create(&root).unwrap();
    let path = scratch.path().to_owned();
    let server = scratch.make_directory("mariadb", 0o700).unwrap();
    assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o711);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o711);
    assert_eq!(fs::metadata(&server).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(path.join("ledger.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
    let found = sweep(&root).unwrap();
    assert_eq!(
        found,
        SweepReport { in_progress: 1, ..SweepReport::default() },
        "a run that lives is not touched"
    );
    assert!(server.is_dir());
    drop(scratch);
    assert!(!path.exists());
    let scratch = Scratch::create(&root).unwrap();
    scratch.close().unwrap();
    assert_eq!(sweep(&root).unwrap(), SweepReport::default());
}

#[test]
fn a_run_sees_others_that_are_in_progress_and_no_dead_ones() {
    let (_place, root) = root();
    let first = Scratch::create(&root).unwrap();
    abandon(&root, &[]);
    assert_eq!(first.others_in_progress().unwrap(), BTreeSet::new());
    let second = Scratch::create(&root).unwrap();
    assert_eq!(first.others_in_progress().unwrap(), BTreeSet::from([second.path().to_owned()]));
    assert_eq!(second.others_in_progress().unwrap(), BTreeSet::from([first.path().to_owned()]));
    second.close().unwrap();
    assert_eq!(first.others_in_progress().unwrap(), BTreeSet::new());
}

#[test]
fn a_killed_runs_child_is_ended_and_its_files_are_removed() {
    let (_place, root) = root();
    let sleeper = Sleeper::start();
    let identity = sleeper.identity();
    let left = abandon(&root, &[process(identity)]);
    let report = sweep(&root).unwrap();
    assert_eq!(report, SweepReport { processes_killed: 1, directories_removed: 1, ..SweepReport::default() });
    assert!(!identity.is_alive() && !left.exists());
    assert_eq!(sweep(&root).unwrap(), SweepReport::default());
}

#[test]
fn a_process_that_took_over_the_id_is_not_touched() {
    let (_place, root) = root();
    let sleeper = Sleeper::start();
    let identity = sleeper.identity();
    let earlier = ProcessIdentity { start_time_ticks: identity.start_time_ticks - 1, ..identity };
    let left = abandon(&root, &[process(earlier)]);
    let report = sweep(&root).unwrap();
    assert_eq!(report, SweepReport { processes_killed: 0, directories_removed: 1, ..SweepReport::default() });
    assert!(identity.is_alive() && !left.exists());
}

#[test]
fn ids_of_an_earlier_boot_mean_nothing() {
    let (_place, root) = root();
    let sleeper = Sleeper::start();
    let left = abandon(&root, &[process(sleeper.identity())]);
    let ledger = left.join("ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(&ledger, text.replace(boot_id.trim(), "before")).unwrap();
    assert_eq!(sweep(&root).unwrap().processes_killed, 0);
    assert!(sleeper.identity().is_alive());
}

#[test]
fn a_ledger_that_is_not_understood_is_left_and_told() {
    let (_place, root) = root();
    let left = abandon(&root, &[]);
    fs::write(left.join("ledger.jsonl"), "{\"schema_version\":99,\"boot_id\":\"x\"}\n").unwrap();
    let report = sweep(&root).unwrap();
    assert_eq!((report.directories_removed, report.left.len()), (0, 1));
    assert_eq!(report.left[0].path, left);
    assert!(left.is_dir());
}

#[test]
fn a_run_killed_before_its_first_line_is_cleared() {
    let (_place, root) = root();
    let left = abandon(&root, &[]);
    fs::write(left.join("ledger.jsonl"), "").unwrap();
    assert_eq!(sweep(&root).unwrap().directories_removed, 1);
    let left_without_lock = root.join("0000beef");
    fs::create_dir(&left_without_lock).unwrap();
    assert_eq!(sweep(&root).unwrap().directories_removed, 1);
    assert!(!left.exists() && !left_without_lock.exists());
}

#[test]
fn a_root_that_others_control_is_refused() {
    let (place, root) = root();
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &root).unwrap();
    for error in [Scratch::create(&root).unwrap_err(), sweep(&root).unwrap_err()] {
        assert!(matches!(error, Error::Untrusted { .. }), "{error}");
        assert_eq!(error.exit_code(), ExitCode::HostResource);
    }
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Scratch::create(&elsewhere).unwrap_err();
    assert!(error.to_string().contains("written to by others"), "{error}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn links_are_removed_and_not_followed() {
    let (place, root) = root();
    let precious = place.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "").unwrap();
    let left = abandon(&root, &[]);
    symlink(&precious, left.join("link")).unwrap();
    symlink(&precious, root.join("link")).unwrap();
    assert_eq!(sweep(&root).unwrap().directories_removed, 1);
    assert!(precious.join("file").is_file());
}
