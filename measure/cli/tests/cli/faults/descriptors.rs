//! A program that cannot open another file or socket.

use std::process::Command;

use ciphertoll_record::{scratch_root, sweep};

use super::one_cell;
use crate::support::{Session, assert_gone, real_server};

const LONG_RUN: [&str; 4] = ["--trial-time", "1s", "--blocks", "30"];
/// Standard input, output and error.
const NO_MORE: &str = "--nofile=3:";

#[test]
fn a_coordinator_without_descriptors_ends_with_one_line_and_does_not_take_its_server_for_dead() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &one_cell(&LONG_RUN));
    session.wait_for_load(1);
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let limited = Command::new("prlimit").args(["--pid", &session.pid().to_string(), NO_MORE]).status();
    assert!(limited.expect("prlimit starts").success());
    let finished = session.finish();
    assert_eq!(finished.code, Some(9), "{:?}", finished.told());
    let told = finished.told();
    let [line] = told[..] else { panic!("one line: {told:?}") };
    assert!(line.starts_with("ciphertoll: ") && line.contains("Too many open files"), "{line}");
    assert_eq!(finished.named("server_ready").len(), 1, "the server was alive");
    assert!(!finished.stderr.iter().any(|line| line.contains("SIGKILL")), "{:?}", finished.told());
    // It could not list its scratch directory either, to remove it; a later run can.
    sweep(&scratch_root()).expect("a sweep");
    assert_gone(&processes, &scratch);
}
