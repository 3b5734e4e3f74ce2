//! Servers that are missing, are other programs, or do not start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Answer, Session, answer, is_root, items, one_document, real_server, script, text};

/// A version that no real server has, so that its files cannot be confused with those of a real one.
const FAKE_VERSION: &str = "0.0.1";
/// Installs nothing.
const INSTALLS: &str = "exit 0";

/// A directory with a `mariadbd` that answers `--version` as `version` says and fails otherwise.
struct FakeServer {
    directory: TempDir,
}

impl FakeServer {
    fn new(version: &str, install: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).expect("a directory");
        // If the test runs as root, servers run as another user.
        open_to_all(directory.path());
        open_to_all(&bin);
        let server = format!(
            "case \"$*\" in *--version*) {version};; *) echo '[ERROR] not a server' >&2; exit 1;; esac"
        );
        script(&bin.join("mariadbd"), &server);
        script(&bin.join("mariadb-install-db"), install);
        Self { directory }
    }

    /// A program that reports to be MariaDB [`FAKE_VERSION`].
    fn versioned(install: &str) -> Self {
        Self::new(&format!("echo 'mariadbd  Ver {FAKE_VERSION}-MariaDB for Linux'"), install)
    }

    fn level(&self) -> String {
        format!("mariadb={}", text(self.directory.path()))
    }

    fn run(&self) -> Answer {
        run_on(&self.level())
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        // Removes the lock of the template that was never made from the cache.
        let cache = ciphertoll_host::cache::cache_directory();
        for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("mariadb-0.0.") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set a mode");
}

/// Runs on `server`, which cannot work; stderr has only errors.
#[track_caller]
fn run_on(server: &str) -> Answer {
    let place = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["run", "-q", "--server", server, "--workload", "connect", "--trial-time", "100ms"];
    answer(&arguments, place.path())
}

/// The error line, without lines about single cells, and without warnings: they are about what other tests do on this
/// machine at the same time.
#[track_caller]
fn last_line(answer: &Answer) -> &str {
    let others = |line: &&str| ["skipped: ", "warning: "].iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = answer.stderr.lines().filter(|line| !others(line)).collect();
    let [line] = lines[..] else { panic!("one line: {answer:?}") };
    line
}

#[test]
fn a_missing_server_is_reported_with_how_to_install_it() {
    let empty = tempfile::tempdir().expect("a temporary directory");
    let answer = run_on(&format!("mariadb={}", text(empty.path())));
    assert_eq!(answer.code, Some(5), "{answer:?}");
    let line = last_line(&answer);
    assert!(line.contains(text(empty.path())) && line.contains("mariadb-server-core"), "{line}");
}

#[test]
fn missing_servers_give_one_error_line_and_no_record() {
    let empty = tempfile::tempdir().expect("a temporary directory");
    let place = tempfile::tempdir().expect("a temporary directory");
    let [first, second] = ["a:postgres", "b:mariadb"].map(|name| format!("{name}={}", text(empty.path())));
    for servers in [first.clone(), format!("{first},{second}")] {
        let answer = answer(&["run", "--server", &servers], place.path());
        assert_eq!(answer.code, Some(5), "{answer:?}");
        let line = answer.one_line();
        assert!(line.contains(&first) && servers.split(',').all(|server| line.contains(server)), "{line}");
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0, "no record is made");
    }
    let report = answer(&["report"], place.path());
    assert_eq!(report.code, Some(2), "no run exists: {report:?}");
}

#[test]
fn a_program_that_is_not_mariadb_is_not_accepted_as_a_server() {
    for version in ["exit 1", "echo 'mariadbd  Ver 8.0.33 for Linux on x86_64 (MySQL Community)'"] {
        let answer = FakeServer::new(version, INSTALLS).run();
        assert_eq!(answer.code, Some(5), "{version}: {answer:?}");
        assert!(last_line(&answer).contains("found"), "{answer:?}");
    }
}

#[test]
fn a_wrong_version_is_reported_with_the_installed_one() {
    let fake = FakeServer::versioned(INSTALLS);
    let answer = run_on(&format!("mariadb-11.4={}", text(fake.directory.path())));
    assert_eq!(answer.code, Some(5), "{answer:?}");
    let line = last_line(&answer);
    assert!(line.contains("mariadb-11.4") && line.contains("(only 0.0.1)"), "{line}");
}

#[test]
fn the_error_of_a_server_that_exits_is_reported() {
    let answer = FakeServer::versioned(INSTALLS).run();
    assert_eq!(answer.code, Some(7), "{answer:?}");
    let line = last_line(&answer);
    assert!(line.contains("not a server") && line.contains("exit status: 1"), "{line}");
}

#[test]
fn the_error_of_a_failing_installer_is_reported() {
    let answer = FakeServer::versioned("echo 'FATAL: no room here' >&2; exit 1").run();
    assert_eq!(answer.code, Some(7), "{answer:?}");
    let line = last_line(&answer);
    assert!(line.contains("mariadb-install-db") && line.contains("no room here"), "{line}");
}

#[test]
fn a_server_without_execute_permission_is_reported() {
    if !is_root() {
        return;
    }
    let fake = FakeServer::versioned(INSTALLS);
    fs::set_permissions(fake.directory.path(), fs::Permissions::from_mode(0o700)).expect("set a mode");
    let answer = fake.run();
    assert_eq!(answer.code, Some(7), "{answer:?}");
    assert!(last_line(&answer).contains("Permission denied"), "{answer:?}");
}

#[test]
fn a_missing_server_is_skipped_and_the_others_are_measured() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let arguments = [
        ["--server", "mariadb,mariadb-99.9"],
        ["--path", "plain"],
        ["--workload", "connect"],
        ["--blocks", "2"],
        ["--trial-time", "100ms"],
    ];
    let finished = Session::start(place.path(), &arguments.concat()).finish();
    assert_eq!(finished.code, Some(6), "{:?}", finished.told());
    let document = one_document(&finished.stdout);
    let measured: Vec<&Value> = items(&document, "cells").iter().map(|cell| &cell["server"]).collect();
    assert_eq!(measured, ["mariadb"]);
    let [skipped] = items(&document, "skipped") else { panic!("one cell is skipped: {document}") };
    assert!(skipped["id"].as_str().is_some_and(|id| id.starts_with("mariadb-99.9/")), "{skipped}");
    assert!(skipped["reason"].as_str().is_some_and(|reason| reason.contains("mariadb-99.9")), "{skipped}");
}
