//! The command `ciphertoll-proxy`: parses, starts, ends.

mod arguments;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use ciphertoll_net::tls::Verification;
use ciphertoll_proxy::{
    Admin, Config, Crew, Dialect, Encryption, Ended, Fixed, Level, Listen, Log, MySql, Notifier, Postgres,
    Prepared, Protocol, Reloader, Resolved, Serving, Settings, StartError, ask_status, json_schema,
};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::{Arguments, Command};

// As all of ciphertoll: see docs/exit-codes.md.
const INTERNAL: u8 = 1;
const USAGE: u8 = 2;
const DONE_IN_PART: u8 = 6;
const UNREACHABLE: u8 = 7;
const HOST: u8 = 9;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.command {
        Some(Command::Schema) => print(&json_schema()),
        Some(Command::Status { admin, config }) => status(admin.as_ref(), config.as_deref()),
        None if arguments.check => check(&arguments),
        None => {
            let _flush = FlushLog;
            serve(arguments)
        }
    }
}

/// Writes the last lines of the log, also behind a panic.
struct FlushLog;

impl Drop for FlushLog {
    fn drop(&mut self) {
        Log::flush();
    }
}

/// stdout has one document, whoever reads it.
fn print(document: &str) -> ExitCode {
    match std::io::stdout().lock().write_all(document.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // Who has read enough of it has all that he wanted.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => say(&error, HOST),
    }
}

fn say(reason: &dyn std::fmt::Display, code: u8) -> ExitCode {
    print_line(reason);
    ExitCode::from(code)
}

#[expect(clippy::print_stderr, reason = "for commands that have no log")]
fn print_line(text: &dyn std::fmt::Display) {
    eprintln!("ciphertoll-proxy: {text}");
}

fn status(admin: Option<&Listen>, config: Option<&Path>) -> ExitCode {
    let place = match (admin, config.map(Config::read)) {
        (Some(place), _) => Some(place.clone()),
        (None, Some(Ok(config))) => config.admin,
        (None, Some(Err(error))) => return say(&error, USAGE),
        (None, None) => None,
    };
    let Some(place) = place else { return say(&"the settings have no \"admin\", where it is asked", USAGE) };
    match ask_status(&place) {
        Ok(status) => print(&status.to_string()),
        Err(error) => say(&error, UNREACHABLE),
    }
}

fn check(arguments: &Arguments) -> ExitCode {
    let resolved = load(arguments);
    if let Some(missing) = resolved.without_password.first() {
        return say(missing, USAGE);
    }
    let prepared = match resolved.settings.server.protocol {
        Protocol::Postgres => Prepared::<Postgres>::new(&resolved.settings, resolved.log).map(drop),
        Protocol::MySql => Prepared::<MySql>::new(&resolved.settings, resolved.log).map(drop),
    };
    for warning in warnings(&resolved.settings) {
        print_line(&format!("warning: {warning}"));
    }
    match prepared {
        Ok(()) => print(&format!("ok\n{}", resolved.effective.to_toml())),
        Err(error) if error.is_of_settings() => say(&error, USAGE),
        Err(error) => say(&error, HOST),
    }
}

/// What may not be as the operator expects, in one line each.
fn warnings(settings: &Settings) -> impl Iterator<Item = String> {
    let protocol = settings.server.protocol;
    settings.listen.iter().filter_map(move |place| place.libpq_warning(protocol))
}

/// The settings, or the end.
fn load(arguments: &Arguments) -> Resolved {
    arguments
        .load()
        .unwrap_or_else(|error| Arguments::command().error(ErrorKind::ValueValidation, error).exit())
}

fn serve(arguments: Arguments) -> ExitCode {
    let resolved = load(&arguments);
    let log = resolved.log;
    let failed = |event: &str, reason: &dyn std::fmt::Display, code: u8| {
        log.event(Level::Warn, event, &[("reason", reason)]);
        ExitCode::from(code)
    };
    raise_file_limit();
    let ended = match resolved.settings.server.protocol {
        Protocol::Postgres => run::<Postgres>(arguments, &resolved),
        Protocol::MySql => run::<MySql>(arguments, &resolved),
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) if error.is_of_settings() => return failed("not-started", &error, USAGE),
        Err(error) => return failed("not-started", &error, HOST),
    };
    match ended {
        Ok(Ended::Drained) => {
            log.event(Level::Info, "stopped", &[("cut_off", &0)]);
            ExitCode::SUCCESS
        }
        Ok(Ended::CutOff(clients)) => {
            log.event(Level::Warn, "stopped", &[("cut_off", &clients)]);
            ExitCode::from(DONE_IN_PART)
        }
        Err(error) => failed("failed", &error, INTERNAL),
    }
}

/// Serves until it is stopped; the outer error is one of the start.
fn run<D: Dialect>(
    arguments: Arguments,
    resolved: &Resolved,
) -> Result<Result<Ended, ciphertoll_net::Error>, StartError> {
    // The admin's socket is there as long as the proxy.
    let (proxy, _serving) = start::<D>(arguments, resolved)?;
    Ok(proxy.run())
}

fn start<D: Dialect>(
    arguments: Arguments,
    resolved: &Resolved,
) -> Result<(Crew<D>, Option<Serving>), StartError> {
    let Resolved { settings, admin, log, .. } = resolved;
    let log = *log;
    // Before anything can be asked for by a signal that would otherwise be the end.
    let reloads = signals(&[SIGHUP]).map_err(no_signals)?;
    let notifier = Notifier::from_environment();
    let proxy = Crew::start(settings, log, signals(&[SIGTERM, SIGINT]).map_err(no_signals)?, &notifier)?;
    let serving = admin.as_ref().map(|place| open_admin(place, &proxy, log)).transpose()?;
    let reloader =
        Reloader { orders: proxy.orders(), notifier: notifier.clone(), log, fixed: Fixed::of(resolved) };
    reloader.watch(reloads, move || arguments.load()).map_err(no_thread)?;
    announce(settings, &proxy, log);
    notifier.ready();
    Ok((proxy, serving))
}

fn open_admin<D: Dialect>(place: &Listen, proxy: &Crew<D>, log: Log) -> Result<Serving, StartError> {
    let admin = Admin::listen(place, proxy.orders())
        .map_err(|source| StartError::Host { what: place.to_string(), source })?;
    let place = admin.address().map_or_else(|| place.to_string(), |address| format!("tcp:{address}"));
    let serving = admin.serve().map_err(no_thread)?;
    log.event(Level::Info, "admin", &[("at", &place)]);
    Ok(serving)
}

fn announce<D: Dialect>(settings: &Settings, proxy: &Crew<D>, log: Log) {
    let encryption = match &settings.server.encryption {
        Encryption::None => "none",
        Encryption::Tls { verification: Verification::Full, .. } => "tls",
        Encryption::Tls { .. } => "tls, not verified in full",
    };
    for warning in warnings(settings) {
        log.event(Level::Warn, "socket-name", &[("reason", &warning)]);
    }
    let mut addresses = proxy.addresses().into_iter();
    for place in &settings.listen {
        let place = match place {
            Listen::Unix(_) => place.clone(),
            // Port 0 has become another one.
            Listen::Tcp(address) => Listen::Tcp(addresses.next().unwrap_or(*address)),
        };
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("at", &place), ("server", &settings.server.place), ("encryption", &encryption)];
        log.event(Level::Info, "listening", &fields);
    }
}

/// A byte comes for each of these signals.
fn signals(signals: &[i32]) -> std::io::Result<UnixStream> {
    let (ours, handlers) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, handlers.try_clone()?)?;
    }
    Ok(ours)
}

fn no_signals(source: std::io::Error) -> StartError {
    let source = ciphertoll_net::Error::Socket { doing: "cannot watch for signals", source };
    StartError::Host { what: "signals".to_owned(), source }
}

fn no_thread(source: std::io::Error) -> StartError {
    let source = ciphertoll_net::Error::Socket { doing: "cannot start it", source };
    StartError::Host { what: "thread".to_owned(), source }
}

/// Every client is a file, and the usual soft limit is 1024.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it cannot be raised, clients beyond it wait at the door.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
