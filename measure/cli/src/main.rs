//! The `ciphertoll` command: parses, dispatches, displays.
//!
//! # Where to change what
//!
//! - the environment of a command under `lab`: `cli::environment`

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "ciphertoll runs on Linux on x86-64 and aarch64; elsewhere use a container: \
     docker run --rm -it -v \"$PWD\":/ciphertoll -w /ciphertoll rust:1.95-bookworm make run"
);

mod advise;
mod arguments;
mod ascii;
mod compare;
mod completions;
mod doctor;
mod dsn;
mod environment;
mod failure;
mod hidden;
mod hosts;
mod lab;
mod observe;
mod observed;
mod output;
mod passwords;
mod predict;
mod presets;
mod program;
mod progress;
mod reference;
mod report;
mod request;
mod run;
mod runs;
mod scratch;
mod servers;
mod settings;
mod table;
mod tde;

use std::process;

use clap::Parser;

use crate::arguments::{Arguments, CliCommand, SchemaDocument, ServersCommand};
use crate::failure::Failure;
use ciphertoll_model::ExitCode;

fn main() -> process::ExitCode {
    // Hidden commands come first: they need a single-threaded process.
    if let Some(code) = hidden::dispatch() {
        return code;
    }
    let outcome = Arguments::try_parse().map_err(Failure::from_clap).and_then(dispatch);
    match outcome {
        Ok(code) => process::ExitCode::from(code),
        Err(failure) => {
            failure.print();
            process::ExitCode::from(failure.exit_code().code())
        }
    }
}

/// Returns the exit code: one of ciphertoll's, or that of the command that `lab` or `tde exec` ran.
fn dispatch(arguments: Arguments) -> Result<u8, Failure> {
    let code = match arguments.command {
        CliCommand::Run(arguments) => run::run(&arguments),
        CliCommand::Presets { name, json } => presets::presets(name.as_deref(), json),
        CliCommand::Lab(arguments) => return lab::lab(&arguments),
        CliCommand::Resume(arguments) => run::resume(&arguments),
        CliCommand::Report(arguments) => report::report(&arguments),
        CliCommand::Compare(arguments) => compare::compare(&arguments),
        CliCommand::Predict(arguments) => predict::predict(&arguments),
        CliCommand::Advise(arguments) => advise::advise(&arguments),
        CliCommand::Observe(arguments) => observe::observe(&arguments),
        CliCommand::Runs(arguments) => runs::runs(&arguments),
        CliCommand::Servers { command: Some(ServersCommand::Fetch { name }), .. } => servers::fetch(name),
        CliCommand::Servers { command: None, json } => servers::servers(json),
        CliCommand::Doctor { json, scratch_dir } => doctor::doctor(json, scratch_dir.as_deref()),
        CliCommand::Tde(arguments) => return tde::tde(&arguments),
        CliCommand::Completions { shell } => completions::completions(shell),
        CliCommand::Man { command } => completions::man(command.as_deref()),
        CliCommand::Schema(arguments) => output::print_document(&match arguments.document {
            SchemaDocument::Report => ciphertoll_report::json_schema(),
            SchemaDocument::Observation => ciphertoll_report::observation_schema(),
        }),
    };
    code.map(ExitCode::code)
}
