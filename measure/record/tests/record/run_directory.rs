//! Run directories, whole and damaged, as their readers find them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::{Ending, Engine, Event, ExitCode, Plan, SCHEMA_VERSION, ServerLevel, Spec};
use ciphertoll_record::{Error, Record, RunDirectory, Tail, resolve};
use ciphertoll_testing::not_for_all;
use jiff::Timestamp;
use rustix::fs::FlockOperation;
use tempfile::TempDir;

pub(crate) fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn spec(name: &str) -> Spec {
    Spec { name: name.to_owned(), ..Spec::quick(&[ServerLevel::of(Engine::MariaDb)]) }
}

pub(crate) fn create(runs: &Path, name: &str, now: Timestamp) -> Result<RunDirectory, Error> {
    let spec = spec(name);
    RunDirectory::create(runs, &spec, &Plan::new(&spec, 7).unwrap(), now)
}

pub(crate) fn started() -> Event {
    Event::RunStarted { schema_version: SCHEMA_VERSION, tool_version: "0.1.0".to_owned() }
}

pub(crate) fn block(number: u32) -> Event {
    Event::BlockFinished { block: number }
}

/// A run of two blocks, closed.
fn finished() -> (TempDir, PathBuf) {
    let runs = tempfile::tempdir().unwrap();
    let mut run = create(runs.path(), "quick", at("2026-11-21T01:15:00Z")).unwrap();
    for event in [started(), block(1), block(2)] {
        run.append(&event).unwrap();
    }
    let path = run.path().to_owned();
    (runs, path)
}

fn append_raw(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path.join("events.jsonl")).unwrap().write_all(bytes).unwrap();
}

#[test]
fn what_is_written_is_read() {
    let (_runs, path) = finished();
    let record = Record::open(&path).unwrap();
    assert_eq!(record.spec, spec("quick"));
    assert_eq!(record.plan, Plan::new(&spec("quick"), 7).unwrap());
    assert_eq!(
        record.events.iter().map(|stamped| stamped.event.clone()).collect::<Vec<_>>(),
        [started(), block(1), block(2)]
    );
    assert_eq!(record.tail, Tail::Whole);
    assert!(record.events.iter().all(|stamped| stamped.at_unix_ms > 1_700_000_000_000));
}

#[test]
fn histograms_stay_inside() {
    let runs = tempfile::tempdir().unwrap();
    let run = create(runs.path(), "quick", Timestamp::now()).unwrap();
    run.store_histogram("../1/tls1.3-p256", "HISTFAAAA").unwrap();
    assert_eq!(fs::read_to_string(run.path().join("histograms/1-tls1.3-p256")).unwrap(), "HISTFAAAA");
}

#[test]
fn a_torn_last_line_is_dropped() {
    for torn in [&b"{\"at_unix_ms\":1,\"eve"[..], b"\0\0\0\0\n", b"{\"at_unix_ms\":1}"] {
        let (_runs, path) = finished();
        append_raw(&path, torn);
        let record = Record::open(&path).unwrap();
        assert_eq!((record.events.len(), record.tail), (3, Tail::Torn), "{torn:?}");
    }
}

#[test]
fn resuming_cuts_a_torn_line_off() {
    let (_runs, path) = finished();
    append_raw(&path, b"{\"at_unix_ms\":1,\"eve");
    let (mut run, record) = RunDirectory::resume(&path).unwrap();
    assert_eq!(record.tail, Tail::Torn);
    run.append(&Event::Finished { ending: Ending::Complete }).unwrap();
    let record = Record::open(&path).unwrap();
    assert_eq!((record.events.len(), record.tail), (4, Tail::Whole));
}

#[test]
fn damage_before_the_last_line_is_told_with_its_place() {
    let (_runs, path) = finished();
    append_raw(&path, b"nonsense\n");
    append_raw(&path, b"{\"at_unix_ms\":1,\"event\":\"block_finished\",\"block\":3}\n");
    let error = Record::open(&path).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::RecordUnusable);
    assert!(error.to_string().contains("line 4"), "{error}");
}

#[test]
fn a_newer_version_is_refused_before_anything_else() {
    let (_runs, path) = finished();
    let newer =
        "{\"schema_version\":99,\"event\":\"run_started\",\"unheard\":\"of\"}\n{\"event\":\"later\"}\n";
    fs::write(path.join("events.jsonl"), newer).unwrap();
    let error = Record::open(&path).unwrap_err();
    assert!(matches!(error, Error::Newer { found: 99, .. }), "{error}");
    assert_eq!(error.exit_code(), ExitCode::RecordUnusable);

    let (_runs, path) = finished();
    fs::write(path.join("plan.json"), "{\"schema_version\":99}").unwrap();
    assert!(matches!(Record::open(&path), Err(Error::Newer { found: 99, .. })));
}

#[test]
fn what_is_no_record_is_unreadable() {
    let runs = tempfile::tempdir().unwrap();
    assert!(matches!(Record::open(runs.path()), Err(Error::Unreadable { .. })));
    assert!(matches!(RunDirectory::resume(runs.path()), Err(Error::Unreadable { .. })));
    assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 0, "nothing was made");
    let (_runs, path) = finished();
    fs::write(path.join("events.jsonl"), "").unwrap();
    assert!(matches!(Record::open(&path), Err(Error::Unreadable { .. })));
}

#[test]
fn one_writer_at_a_time_and_readers_any_time() {
    let runs = tempfile::tempdir().unwrap();
    let mut run = create(runs.path(), "quick", Timestamp::now()).unwrap();
    run.append(&started()).unwrap();
    let path = run.path().to_owned();
    let error = RunDirectory::resume(&path).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert_eq!(error.exit_code(), ExitCode::RecordUnusable);
    assert_eq!(Record::open(&path).unwrap().events.len(), 1);
    drop(run);
    RunDirectory::resume(&path).unwrap();
}

/// A process that is killed while it starts a child leaves its lock to the child, until that executes its program.
#[test]
fn a_lock_that_is_left_for_a_moment_is_waited_for() {
    let (_runs, path) = finished();
    let lock = File::open(path.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    // The child's stdin is the same open file, so the lock is held until the child ends.
    let mut heir = Command::new("sleep").arg("0.1").stdin(lock).spawn().unwrap();
    RunDirectory::resume(&path).unwrap();
    assert!(heir.wait().unwrap().success());
}

#[test]
fn runs_are_found_by_path_name_experiment_and_as_latest() {
    let runs = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (name, time) in [
        ("quick", "2026-11-21T01:15:00Z"),
        ("tls", "2026-11-21T01:15:01Z"),
        ("quick", "2026-11-22T01:15:00Z"),
    ] {
        let mut run = create(runs.path(), name, at(time)).unwrap();
        run.append(&started()).unwrap();
        paths.push(run.path().to_owned());
    }
    let found = |asked: &str| resolve(runs.path(), asked);
    assert_eq!(found("latest").unwrap(), paths[2]);
    assert_eq!(found("quick").unwrap(), paths[2]);
    assert_eq!(found("tls").unwrap(), paths[1]);
    assert_eq!(found(paths[0].file_name().unwrap().to_str().unwrap()).unwrap(), paths[0]);
    assert_eq!(found(paths[0].to_str().unwrap()).unwrap(), paths[0]);
    let error = found("qick").unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Usage);
    assert!(error.to_string().contains("the newest is 20261122T011500Z-quick-"), "{error}");
    assert!(resolve(&runs.path().join("none"), "latest").is_err());
}

/// A file system of a few pages, unmounted when dropped.
struct TinyDisk(TempDir);

impl TinyDisk {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(place.path()).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(place));
        }
        not_for_all("mounting a small file system takes root");
        None
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).status().unwrap();
    }
}

#[test]
fn a_full_disk_is_told_and_what_was_written_stays_readable() {
    let Some(disk) = TinyDisk::mount() else { return };
    let mut run = create(disk.0.path(), "quick", Timestamp::now()).unwrap();
    run.append(&started()).unwrap();
    let mut written = 1;
    let error = loop {
        match run.append(&Event::Warned { message: "x".repeat(5_000) }) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert_eq!(error.exit_code(), ExitCode::HostResource);
    assert!(error.to_string().contains("disk full"), "{error}");
    let record = Record::open(run.path()).unwrap();
    assert_eq!((record.events.len(), record.tail), (written, Tail::Whole));
    let before = fs::read_dir(disk.0.path()).unwrap().count();
    fs::write(disk.0.path().join("filler"), vec![0; 300_000]).unwrap_err();
    let error = create(disk.0.path(), "second", Timestamp::now()).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert_eq!(fs::read_dir(disk.0.path()).unwrap().count(), before + 1, "only the filler is new");
}
