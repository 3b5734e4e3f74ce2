//! The command `ciphertoll-proxy`: arguments, start, exit code.

mod arguments;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ciphertoll_net::tls::Verification;
use ciphertoll_proxy::{
    AdminServer, AdminSocket, Config, ControlHandle, HandoverLock, Inheritance, Level, ListenAddress, Log,
    MySql, Notifier, Postgres, PreparedSettings, Protocol, ProtocolKind, Reloader, Resolved, Settings,
    SignalTask, SocketFile, StartError, Upgrader, UpstreamEncryption, Workers, json_schema, read_status,
};
use clap::CommandFactory;
use clap::error::ErrorKind;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

use crate::arguments::{Arguments, CommandLine, Subcommands};

// The exit codes of docs/exit-codes.md.
const INTERNAL: u8 = 1;
const USAGE: u8 = 2;
const DONE_IN_PART: u8 = 6;
const UNREACHABLE: u8 = 7;
const HOST: u8 = 9;

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
            serve(command_line)
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

fn print(document: &[u8]) -> ExitCode {
    match std::io::stdout().lock().write_all(document) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe because it has read enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error, HOST),
    }
}

fn fail(reason: &dyn std::fmt::Display, code: u8) -> ExitCode {
    print_line(reason);
    ExitCode::from(code)
}

#[expect(clippy::print_stderr, reason = "for commands that have no log")]
fn print_line(text: &dyn std::fmt::Display) {
    eprintln!("ciphertoll-proxy: {text}");
}

fn status(admin: Option<&ListenAddress>, config: Option<&Path>) -> ExitCode {
    let address = match (admin, config.map(Config::read)) {
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

fn check(command_line: &CommandLine) -> ExitCode {
    let resolved = load(command_line);
    if let Some(missing) = resolved.without_password.first() {
        return fail(missing, USAGE);
    }
    let prepared = match resolved.settings.server.protocol {
        ProtocolKind::Postgres => {
            PreparedSettings::<Postgres>::new(&resolved.settings, resolved.log).map(drop)
        }
        ProtocolKind::MySql => PreparedSettings::<MySql>::new(&resolved.settings, resolved.log).map(drop),
    };
    for (_, warning) in warnings(&resolved) {
        print_line(&format!("warning: {warning}"));
    }
    match prepared {
        Ok(()) => print(format!("ok\n{}", resolved.effective.to_toml()).as_bytes()),
        Err(error) if error.is_configuration_error() => fail(&error, USAGE),
        Err(error) => fail(&error, HOST),
    }
}

/// Settings that probably do not do what the operator expects: the event in the log, and a line about it.
fn warnings(resolved: &Resolved) -> impl Iterator<Item = (&'static str, String)> {
    let Settings { server, listen, .. } = &resolved.settings;
    let names = listen.iter().filter_map(|address| address.libpq_warning(server.protocol));
    let load = resolved.effective.limits.thread_load;
    let load = load.map(|_| "limits.thread-load has no effect: all threads serve clients".to_owned());
    names.map(|name| ("socket-name", name)).chain(load.map(|load| ("setting-ignored", load)))
}

fn load(command_line: &CommandLine) -> Resolved {
    command_line
        .load()
        .unwrap_or_else(|error| Arguments::command().error(ErrorKind::ValueValidation, error).exit())
}

fn serve(command_line: CommandLine) -> ExitCode {
    let resolved = Arc::new(load(&command_line));
    let log = resolved.log;
    let failed = |event: &str, reason: &dyn std::fmt::Display, code: u8| {
        log.event(Level::Warn, event, &[("reason", reason)]);
        ExitCode::from(code)
    };
    raise_file_limit();
    let ended = match resolved.settings.server.protocol {
        ProtocolKind::Postgres => run::<Postgres>(command_line, &resolved),
        ProtocolKind::MySql => run::<MySql>(command_line, &resolved),
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) if error.is_configuration_error() => return failed("not-started", &error, USAGE),
        Err(error) => return failed("not-started", &error, HOST),
    };
    // Makes room for the last line.
    Log::flush();
    match ended {
        Ok(0) => {
            log.event(Level::Info, "stopped", &[("cut_off", &0)]);
            ExitCode::SUCCESS
        }
        Ok(clients) => {
            log.event(Level::Warn, "stopped", &[("cut_off", &clients)]);
            ExitCode::from(DONE_IN_PART)
        }
        Err(error) => failed("failed", &error, INTERNAL),
    }
}

/// Serves until the proxy is stopped; see [`Workers::run`]. The outer error is one of the start.
fn run<P: Protocol>(
    command_line: CommandLine,
    resolved: &Arc<Resolved>,
) -> Result<Result<usize, ciphertoll_net::Error>, StartError> {
    // Keeps the admin socket file until the proxy ends.
    let (workers, _socket_file, handover) = start::<P>(command_line, resolved)?;
    let ended = workers.run();
    handover.wait();
    Ok(ended)
}

fn start<P: Protocol>(
    command_line: CommandLine,
    resolved: &Arc<Resolved>,
) -> Result<(Workers<P>, Option<SocketFile>, HandoverLock), StartError> {
    let Resolved { settings, admin, log, .. } = &**resolved;
    let log = *log;
    // First, because the default action of these signals ends the process.
    let reload_signals = signals(&[SIGHUP]).map_err(signal_error)?;
    let upgrade_signals = signals(&[SIGUSR2]).map_err(signal_error)?;
    let mut inheritance = command_line.arguments.take_over.then(Inheritance::receive).transpose()?;
    let notifier = Notifier::from_environment();
    let stops = signals(&[SIGTERM, SIGINT]).map_err(signal_error)?;
    let mut workers = Workers::start(settings, log, stops, &notifier, &mut inheritance)?;
    let admin = admin.as_ref().map(|address| open_admin(address, workers.control(), &mut inheritance));
    let admin = admin.transpose()?;
    // The last step that can fail: the running proxy goes on if it does.
    if let Some(inheritance) = inheritance {
        inheritance.confirm()?;
        workers.own_files(&settings.listen);
    }
    let (socket_file, admin) = admin.map(|admin| serve_admin(admin, log)).transpose()?.unzip();
    let mut upgrader =
        Upgrader::new(workers.control(), notifier.clone(), log, settings.listen.clone(), admin)
            .map_err(signal_error)?;
    let handover = upgrader.handover();
    workers.on_signal(SignalTask::Upgrade, upgrade_signals, move || upgrader.upgrade())?;
    let mut reloader = Reloader {
        control: workers.control(),
        notifier: notifier.clone(),
        log,
        started_with: Arc::clone(resolved),
    };
    workers.on_signal(SignalTask::Reload, reload_signals, move || reloader.reload(|| command_line.load()))?;
    announce(resolved, &workers);
    notifier.ready();
    Ok((workers, socket_file, handover))
}

fn open_admin<P: Protocol>(
    address: &ListenAddress,
    control: ControlHandle<P>,
    inheritance: &mut Option<Inheritance>,
) -> Result<AdminServer<P>, StartError> {
    let inherited = inheritance.as_mut().and_then(|inheritance| inheritance.take(address));
    AdminServer::listen(address, control, inherited)
        .map_err(|source| StartError::Host { what: address.to_string(), source })
}

fn serve_admin<P: Protocol>(
    admin: AdminServer<P>,
    log: Log,
) -> Result<(SocketFile, AdminSocket), StartError> {
    let address = admin.address();
    let served = admin.serve().map_err(thread_error)?;
    log.event(Level::Info, "admin", &[("at", &address)]);
    Ok(served)
}

fn announce<P: Protocol>(resolved: &Resolved, workers: &Workers<P>) {
    let Resolved { settings, log, .. } = resolved;
    let encryption = match &settings.server.encryption {
        UpstreamEncryption::None => "none",
        UpstreamEncryption::Tls { verification: Verification::Full, .. } => "tls",
        UpstreamEncryption::Tls { .. } => "tls, not fully verified",
    };
    for (event, warning) in warnings(resolved) {
        log.event(Level::Warn, event, &[("reason", &warning)]);
    }
    let mut addresses = workers.addresses().into_iter();
    for address in &settings.listen {
        let address = match address {
            ListenAddress::Unix(_) => address.clone(),
            // Port 0 was replaced by the port that the kernel chose.
            ListenAddress::Tcp(address) => ListenAddress::Tcp(addresses.next().unwrap_or(*address)),
        };
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("at", &address), ("server", &settings.server.label()), ("encryption", &encryption)];
        log.event(Level::Info, "listening", &fields);
    }
}

/// A stream that receives a byte for each of these signals.
fn signals(signals: &[i32]) -> std::io::Result<UnixStream> {
    let (ours, handlers) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, handlers.try_clone()?)?;
    }
    Ok(ours)
}

fn signal_error(source: std::io::Error) -> StartError {
    start_error("signals", "cannot watch for signals", source)
}

fn thread_error(source: std::io::Error) -> StartError {
    start_error("thread", "cannot start a thread", source)
}

fn start_error(what: &str, doing: &'static str, source: std::io::Error) -> StartError {
    StartError::Host { what: what.to_owned(), source: ciphertoll_net::Error::Socket { doing, source } }
}

/// Every client is a file descriptor, and the usual soft limit is 1024.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If the limit cannot be raised, clients beyond it wait in the accept queue.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
