//! The command `ciphertoll-proxy`: arguments, start, exit code.

mod arguments;
mod check;
mod serve;

use std::path::Path;
use std::process::ExitCode;

use ciphertoll_proxy::{
    ConfigFile, Imported, ListenAddress, Log, ServerName, json_schema, read_status, run_command,
};
use clap::CommandFactory;

use crate::arguments::{Arguments, CommandLine, Subcommands};
use crate::check::{DONE_IN_PART, INTERNAL, UNREACHABLE, USAGE, check, fail, print, print_line};

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
        Some(Subcommands::Import { file, userlist, database, strict }) => {
            import(file, userlist.as_deref(), database.as_deref(), *strict)
        }
        Some(Subcommands::Console { command, admin, config, server_name, json }) => {
            match admin_address(admin.as_ref(), config.as_deref()) {
                Ok(address) => console(&address, server_name.as_ref(), command, *json),
                Err(code) => code,
            }
        }
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
    let address = match admin_address(admin, config) {
        Ok(address) => address,
        Err(code) => return code,
    };
    match read_status(&address) {
        Ok(status) => print(status.to_string().as_bytes()),
        Err(error) => fail(&error, UNREACHABLE),
    }
}

/// The admin address that is given, or that of the configuration. The error is printed already.
fn admin_address(admin: Option<&ListenAddress>, config: Option<&Path>) -> Result<ListenAddress, ExitCode> {
    let address = match (admin, config.map(ConfigFile::read)) {
        (Some(address), _) => Some(address.clone()),
        (None, Some(Ok(config))) => config.admin,
        (None, Some(Err(error))) => return Err(fail(&error, USAGE)),
        (None, None) => None,
    };
    address.ok_or_else(|| fail(&"the configuration has no \"admin\" address", USAGE))
}

fn console(address: &ListenAddress, server: Option<&ServerName>, command: &str, as_json: bool) -> ExitCode {
    match run_command(address, server.map(ServerName::as_str), command, as_json) {
        Ok(output) => print(output.as_bytes()),
        Err(error) => fail(&error, UNREACHABLE),
    }
}

fn import(file: &Path, userlist: Option<&Path>, database: Option<&str>, is_strict: bool) -> ExitCode {
    let imported = match Imported::from_pgbouncer(file, userlist, database) {
        Ok(imported) => imported,
        Err(error) => return fail(&error, USAGE),
    };
    for note in &imported.notes {
        print_line(note);
    }
    let printed = print(imported.toml.as_bytes());
    if is_strict && imported.has_lost_settings() && printed == ExitCode::SUCCESS {
        return ExitCode::from(DONE_IN_PART);
    }
    printed
}
