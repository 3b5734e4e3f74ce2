use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::*;

/// A program that says how it was started.
fn program(place: &TempDir) -> PathBuf {
    let program = place.path().join("program");
    fs::write(&program, "#!/bin/sh\necho agent $1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Runs the script as a login shell would, sends `content` if it is asked for, and returns all lines.
fn run(place: &TempDir, script: &str, own: &str, content: &[u8]) -> (Vec<String>, bool) {
    let line = format!("exec sh -c '{script}' sh '{own}'");
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .env("XDG_CACHE_HOME", place.path().join("cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if announcement(line.as_bytes()) == Some(Announcement::Absent) {
            // The end of stdin after that is a broken connection, if the content is incomplete.
            stdin.take().unwrap().write_all(content).unwrap();
        }
        lines.push(line);
    }
    (lines, child.wait().unwrap().success())
}

fn files(place: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(place.path().join("cache/ciphertoll/hosts")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_host_receives_the_program_once() {
    let place = tempfile::tempdir().unwrap();
    let bootstrap = Bootstrap::of(&program(&place)).unwrap();
    let content = bootstrap.content().unwrap();
    let (lines, is_ok) = run(&place, &bootstrap.script(), "", &content);
    assert_eq!((lines, is_ok), (vec![format!("{MARKER} {ABSENT}"), "agent __host".to_owned()], true));
    let (lines, is_ok) = run(&place, &bootstrap.script(), "", &content);
    assert_eq!((lines, is_ok), (vec![format!("{MARKER} {PRESENT}"), "agent __host".to_owned()], true));
    assert_eq!(files(&place), [format!("ciphertoll-{}", bootstrap.sha256())]);
}

#[test]
fn a_host_that_sees_the_program_receives_nothing() {
    let place = tempfile::tempdir().unwrap();
    let program = program(&place);
    let bootstrap = Bootstrap::of(&program).unwrap();
    let (lines, _) = run(&place, &bootstrap.script(), program.to_str().unwrap(), b"");
    assert_eq!(lines, [format!("{MARKER} {PRESENT}"), "agent __host".to_owned()]);
    assert_eq!(files(&place), Vec::<String>::new());
}

#[test]
fn a_copy_that_was_changed_or_is_incomplete_is_never_started() {
    let place = tempfile::tempdir().unwrap();
    let bootstrap = Bootstrap::of(&program(&place)).unwrap();
    let content = bootstrap.content().unwrap();
    let (lines, is_ok) = run(&place, &bootstrap.script(), "", b"#!/bin/sh");
    assert_eq!((lines, is_ok), (vec![format!("{MARKER} {ABSENT}")], false));
    assert_eq!(files(&place), Vec::<String>::new(), "nothing is left");
    run(&place, &bootstrap.script(), "", &content);
    let copy = place.path().join(format!("cache/ciphertoll/hosts/ciphertoll-{}", bootstrap.sha256()));
    fs::write(&copy, "#!/bin/sh\necho another\n").unwrap();
    let (lines, _) = run(&place, &bootstrap.script(), "", &content);
    assert_eq!(lines, [format!("{MARKER} {ABSENT}"), "agent __host".to_owned()]);
}

#[test]
fn the_script_fits_between_single_quotes_on_one_line() {
    let place = tempfile::tempdir().unwrap();
    let script = Bootstrap::of(&program(&place)).unwrap().script();
    assert!(!script.contains(['\'', '\n', '!']), "{script}");
}

#[test]
fn what_a_login_shell_prints_is_no_announcement() {
    assert_eq!(announcement(b"Welcome!"), None);
    assert_eq!(announcement(b"ciphertoll-bootstrap present\r"), Some(Announcement::Present));
    assert_eq!(announcement(b"ciphertoll-bootstrap maybe"), None);
    assert_eq!(announcement(&[0xff, 0xfe]), None);
}
