//! The `ciphertoll` command: parses, dispatches, displays.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "ciphertoll runs on Linux on x86-64 and aarch64; elsewhere use a container: \
     docker run --rm -it -v \"$PWD\":/ciphertoll -w /ciphertoll rust:1.95-bookworm make run"
);

mod arguments;
mod compare;
mod completions;
mod doctor;
mod environment;
mod failure;
mod hidden;
mod lab;
mod passwords;
mod presets;
mod progress;
mod report;
mod request;
mod run;
mod servers;
mod tde;

use std::io::Write;
use std::process;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use ciphertoll_model::ExitCode;

fn main() -> process::ExitCode {
    // Hidden commands come first: they must find the process single-threaded.
    if let Some(code) = hidden::dispatch() {
        return code;
    }
    let outcome = Arguments::try_parse().map_err(Failure::from_clap).and_then(dispatch);
    match outcome {
        Ok(code) => process::ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            process::ExitCode::from(failure.exit_code().code())
        }
    }
}

/// The exit code: one of ours, or that of a command that was run.
fn dispatch(arguments: Arguments) -> Result<u8, Failure> {
    let code = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Presets { json } => presets::presets(json),
        Command::Lab(arguments) => return lab::lab(&arguments),
        Command::Resume(arguments) => run::resume(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Servers(arguments) => servers::servers(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Tde(arguments) => return tde::tde(&arguments),
        Command::Completions { shell } => completions::completions(shell),
        Command::Man { command } => completions::man(command.as_deref()),
        Command::Schema => print_document(&ciphertoll_report::json_schema()),
    };
    code.map(ExitCode::code)
}

/// Prints the one document that stdout carries. A closed pipe is the reader's choice, no error.
fn print_document(document: &str) -> Result<ExitCode, Failure> {
    let mut stdout = std::io::stdout().lock();
    // Every document ends in one line's end; CSV has its own.
    let document = document.strip_suffix('\n').unwrap_or(document);
    let written = stdout.write_all(document.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ExitCode::HostResource, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(ExitCode::Done),
    }
}
