//! The hidden commands: each is a fresh process with one job, started by the coordinator.

use std::env;
use std::process::ExitCode;

use crate::{doctor, lab};

/// Runs the hidden command that was asked for, if one was.
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let command = arguments.next()?;
    if command == "__load" {
        return Some(match ciphertoll_load::run_load_process() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        });
    }
    if command == ciphertoll_load::driver::DRIVE_COMMAND {
        let rest: Vec<_> = arguments.collect();
        return Some(match ciphertoll_load::driver::run_drive_process(&rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        });
    }
    if command == ciphertoll_link::LINK_COMMAND {
        return Some(match ciphertoll_link::run_link_process() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        });
    }
    if command == lab::WITHIN_COMMAND {
        return Some(lab::within(arguments));
    }
    if command == ciphertoll_lab::EXEC_COMMAND {
        return Some(exec(arguments.next()));
    }
    if command == ciphertoll_lab::doctor::PROBE_COMMAND {
        return Some(doctor::probe(arguments.next(), arguments.next()));
    }
    None
}

/// Becomes the program that was asked for; comes back only if that fails.
#[expect(clippy::print_stderr, reason = "stderr is the child's log, the one place its failure can go")]
fn exec(request: Option<std::ffi::OsString>) -> ExitCode {
    let Some(request) = request else { return ExitCode::from(2) };
    let error = ciphertoll_lab::run_exec_helper(&request.to_string_lossy());
    eprintln!("cannot start: {error}");
    ExitCode::from(127)
}
