//! The command `ciphertoll-proxy`: arguments, start, exit code.

mod arguments;
mod check;
mod serve;

use std::path::Path;
use std::process::ExitCode;

use ciphertoll_proxy::{ConfigFile, ListenAddress, Log, json_schema, read_status};
use clap::CommandFactory;

use crate::arguments::{Arguments, CommandLine, Subcommands};
use crate::check::{INTERNAL, UNREACHABLE, USAGE, check, fail, print};

fn main() -> ExitCode {
    let command_line = CommandLine::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let arguments = &command_line.arguments;
    match &arguments.command {
        Some(Subcommands::Schema) => print(json_schema().as_bytes()),
        Some(Subcommands::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "ciphertoll-proxy", &mut script);
            print(&script)
        }
        Some(Subcommands::Man) => {
            let mut page = Vec::new();
            match clap_mangen::Man::new(Arguments::command()).render(&mut page) {
                Ok(()) => print(&page),
                Err(error) => fail(&error, INTERNAL),
            }
        }
        Some(Subcommands::Status { admin, config }) => status(admin.as_ref(), config.as_deref()),
        None if arguments.check => check(&command_line),
        None => {
            let _flush = FlushLog;
            serve::serve(command_line)
        }
    }
}

/// Writes the last lines of the log, also after a panic.
struct FlushLog;

impl Drop for FlushLog {
    fn drop(&mut self) {
        Log::flush();
    }
}

fn status(admin: Option<&ListenAddress>, config: Option<&Path>) -> ExitCode {
    let address = match (admin, config.map(ConfigFile::read)) {
        (Some(address), _) => Some(address.clone()),
        (None, Some(Ok(config))) => config.admin,
        (None, Some(Err(error))) => return fail(&error, USAGE),
        (None, None) => None,
    };
    let Some(address) = address else { return fail(&"the configuration has no \"admin\" address", USAGE) };
    match read_status(&address) {
        Ok(status) => print(status.to_string().as_bytes()),
        Err(error) => fail(&error, UNREACHABLE),
    }
}
