//! Reads the settings, checks them, and says what is wrong; exit codes.

use std::io::Write as _;
use std::process::ExitCode;

use ciphertoll_proxy::{
    MySql, Postgres, PreparedSettings, ProtocolKind, Resolved, ResolvedServer, ResolvedServers,
};
use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::{Arguments, CommandLine};

// The exit codes of docs/exit-codes.md.
pub(crate) const INTERNAL: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const DONE_IN_PART: u8 = 6;
pub(crate) const UNREACHABLE: u8 = 7;
pub(crate) const HOST: u8 = 9;

pub(crate) fn print(document: &[u8]) -> ExitCode {
    match std::io::stdout().lock().write_all(document) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe because it has read enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error, HOST),
    }
}

pub(crate) fn fail(reason: &dyn std::fmt::Display, code: u8) -> ExitCode {
    print_line(reason);
    ExitCode::from(code)
}

#[expect(clippy::print_stderr, reason = "for commands that have no log")]
pub(crate) fn print_line(text: &dyn std::fmt::Display) {
    eprintln!("ciphertoll-proxy: {text}");
}

pub(crate) fn check(command_line: &CommandLine) -> ExitCode {
    let resolved = load(command_line);
    for ResolvedServer { name, resolved } in &resolved.servers {
        let named = name.as_ref().map_or(String::new(), |name| format!("server \"{}\": ", name.as_str()));
        if let Some(missing) = resolved.without_password.first() {
            return fail(&format!("{named}{missing}"), USAGE);
        }
        let prepared = match resolved.settings.server.protocol {
            ProtocolKind::Postgres => {
                PreparedSettings::<Postgres>::new(&resolved.settings, resolved.log).map(drop)
            }
            ProtocolKind::MySql => PreparedSettings::<MySql>::new(&resolved.settings, resolved.log).map(drop),
        };
        match prepared {
            Ok(()) => {}
            Err(error) if error.is_configuration_error() => return fail(&format!("{named}{error}"), USAGE),
            Err(error) => return fail(&format!("{named}{error}"), HOST),
        }
        if let Err(reason) =
            resolved.settings.password_sources().cells.iter().try_for_each(|cell| cell.check())
        {
            return fail(&format!("{named}{reason}"), USAGE);
        }
        for (_, warning) in warnings(resolved) {
            print_line(&format!("warning: {named}{warning}"));
        }
    }
    print(format!("ok\n{}", resolved.effective_toml()).as_bytes())
}

/// Settings that probably do not do what the operator expects: the event in the log, and a line about it.
pub(crate) fn warnings(resolved: &Resolved) -> impl Iterator<Item = (&'static str, String)> {
    let (server, listen) = (&resolved.settings.server, &resolved.settings.listen);
    let names = listen.iter().filter_map(|address| address.libpq_warning(server.protocol));
    let load = resolved.effective.limits.thread_load;
    let load = load.map(|_| "limits.thread-load has no effect: all threads serve clients".to_owned());
    names.map(|name| ("socket-name", name)).chain(load.map(|load| ("setting-ignored", load)))
}

pub(crate) fn load(command_line: &CommandLine) -> ResolvedServers {
    command_line
        .load()
        .unwrap_or_else(|error| Arguments::command().error(ErrorKind::ValueValidation, error).exit())
}
