//! The hidden commands: the coordinator starts each of its child processes with one of them; one prints documentation.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use ciphertoll_host::exec::EXEC_COMMAND;
use ciphertoll_host::sockets::{SOCKETS_COMMAND, run_sockets_process};
use ciphertoll_hosts::{HOST_COMMAND, POD_COMMAND};
use ciphertoll_lab::doctor::PROBE_COMMAND;
use ciphertoll_link::LINK_COMMAND;
use ciphertoll_load::driver::{DRIVE_COMMAND, run_drive_process};

use crate::observe::ASK_COMMAND;
use crate::program::watch_signals;
use crate::reference::{REFERENCE_COMMAND, reference};
use crate::{doctor, lab, observe};

/// Runs the hidden command that the arguments name. Returns `None` if they name none.
pub(crate) fn dispatch() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let command = arguments.next()?;
    let succeeded = match command.to_str()? {
        "__load" => ciphertoll_load::run_load_process().is_ok(),
        DRIVE_COMMAND => run_drive_process(&arguments.collect::<Vec<_>>()).is_ok(),
        HOST_COMMAND => ciphertoll_hosts::run_host_process().is_ok(),
        POD_COMMAND => pod(arguments.next()),
        LINK_COMMAND => ciphertoll_link::run_link_process().is_ok(),
        lab::WITHIN_COMMAND => return Some(lab::within(arguments)),
        SOCKETS_COMMAND => sockets(arguments.next()),
        EXEC_COMMAND => return Some(exec(arguments.next())),
        ASK_COMMAND => observe::answer().is_ok(),
        REFERENCE_COMMAND => return Some(print_reference(arguments.next())),
        PROBE_COMMAND => return Some(doctor::probe(arguments.next(), arguments.next())),
        _ => return None,
    };
    Some(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits in a pod for agents.
fn pod(idle_limit_s: Option<OsString>) -> bool {
    let idle_limit_s = idle_limit_s.and_then(|seconds| seconds.to_str()?.parse().ok());
    idle_limit_s.is_some_and(|seconds| ciphertoll_hosts::wait_in_pod(Duration::from_secs(seconds)).is_ok())
}

/// Samples which process has which connection. Signals that are meant for the observer do not end it.
fn sockets(ports: Option<OsString>) -> bool {
    let ports = ports.and_then(|ports| ports.into_string().ok());
    let sample = |ports: String| watch_signals().is_ok() && run_sockets_process(&ports).is_ok();
    ports.is_some_and(sample)
}

/// Replaces this process with the requested program; returns only if that fails.
#[expect(clippy::print_stderr, reason = "stderr is the log of the child process")]
fn exec(request: Option<OsString>) -> ExitCode {
    let Some(request) = request else { return ExitCode::from(2) };
    let error = ciphertoll_host::exec::run_exec_helper(&request.to_string_lossy());
    eprintln!("cannot start: {error}");
    ExitCode::from(127)
}

fn print_reference(page: Option<OsString>) -> ExitCode {
    match reference(&page.unwrap_or_default().to_string_lossy()) {
        Ok(code) => ExitCode::from(code.code()),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code().code())
        }
    }
}
