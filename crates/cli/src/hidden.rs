//! The hidden commands: the coordinator starts each of its child processes with one of them.

use std::env;
use std::process::ExitCode;

use crate::{doctor, lab};

/// Runs the hidden command that the arguments name. Returns `None` if they name none.
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

/// Replaces this process with the requested program; returns only if that fails.
#[expect(clippy::print_stderr, reason = "stderr is the log of the child process")]
fn exec(request: Option<std::ffi::OsString>) -> ExitCode {
    let Some(request) = request else { return ExitCode::from(2) };
    let error = ciphertoll_lab::run_exec_helper(&request.to_string_lossy());
    eprintln!("cannot start: {error}");
    ExitCode::from(127)
}
