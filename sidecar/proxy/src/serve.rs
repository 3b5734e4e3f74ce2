//! Serves clients until the process is told to stop.

use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use ciphertoll_net::tls::Verification;
use ciphertoll_proxy::{
    AdminServer, AdminSocket, Credentials, FileWatch, HandoverLock, Inheritance, Level, ListenAddress, Log,
    MySql, Notifier, Postgres, Protocol, ProtocolKind, ReloadedServer, Reloader, ResolvedServer,
    ResolvedServers, RunningServer, ServerWorkers, SignalTask, SocketFile, StartError, Upgrader,
    UpstreamEncryption, Workers,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, raise};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

use crate::arguments::CommandLine;
use crate::check::{DONE_IN_PART, HOST, INTERNAL, USAGE, load, warnings};

/// How many clients were cut off, or why it failed.
type Ended = Result<usize, ciphertoll_net::Error>;

pub(crate) fn serve(command_line: CommandLine) -> ExitCode {
    let resolved = Arc::new(load(&command_line));
    let log = resolved.log;
    let failed = |event: &str, reason: &dyn std::fmt::Display, code: u8| {
        log.event(Level::Warn, event, &[("reason", reason)]);
        ExitCode::from(code)
    };
    raise_file_limit();
    let ended = match run(command_line, &resolved) {
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

/// Serves until the proxy is stopped. The outer error is one of the start.
fn run(command_line: CommandLine, resolved: &Arc<ResolvedServers>) -> Result<Ended, StartError> {
    // Keeps the admin socket file until the proxy ends.
    let (workers, _socket_file, handover, _commands) = start(command_line, resolved)?;
    let ended = run_all(workers);
    handover.wait();
    Ok(ended)
}

/// Serves each server on separate threads; the first server also uses this thread.
fn run_all(mut workers: Vec<Box<dyn ServerWorkers>>) -> Ended {
    let first = workers.remove(0);
    let start = |workers: Box<dyn ServerWorkers>| {
        thread::Builder::new().name("serve-0".to_owned()).spawn(move || run_or_stop_all(workers))
    };
    let others: Vec<_> = workers.into_iter().map(start).collect();
    if others.iter().any(Result::is_err) {
        stop_all();
    }
    let mut ended = vec![run_or_stop_all(first)];
    for thread in others {
        let doing = "cannot start a thread";
        let thread = thread.map_err(|source| ciphertoll_net::Error::Socket { doing, source })?;
        ended.push(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    }
    ended.into_iter().sum()
}

/// If the workers of a server end without having been stopped, those of all others end too.
fn run_or_stop_all(workers: Box<dyn ServerWorkers>) -> Ended {
    let ended = catch_unwind(AssertUnwindSafe(|| workers.run()));
    if !matches!(ended, Ok(Ok(_))) {
        stop_all();
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

fn stop_all() {
    // To this process, whose handlers are installed.
    let _ = raise(Signal::SIGTERM);
}

type Started = (Vec<Box<dyn ServerWorkers>>, Option<SocketFile>, HandoverLock, StopCommands);

/// Kills the commands that print passwords when the proxy ends.
struct StopCommands(Vec<Credentials>);

impl Drop for StopCommands {
    fn drop(&mut self) {
        self.0.iter().for_each(Credentials::stop);
    }
}

fn start(command_line: CommandLine, resolved: &Arc<ResolvedServers>) -> Result<Started, StartError> {
    let ResolvedServers { admin, log, .. } = &**resolved;
    let log = *log;
    // First, because the default action of these signals ends the process.
    let reload_signals = signals(&[SIGHUP]).map_err(signal_error)?;
    let upgrade_signals = signals(&[SIGUSR2]).map_err(signal_error)?;
    let mut inheritance = command_line.arguments.take_over.then(Inheritance::receive).transpose()?;
    let notifier = Notifier::from_environment();
    let settings = || resolved.servers.iter().map(|server| &server.resolved.settings);
    let files: Vec<FileWatch> = settings().map(FileWatch::of).collect();
    let start = |server| start_workers(server, log, &notifier, &mut inheritance);
    let started = resolved.servers.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let (mut workers, running): (Vec<_>, Vec<_>) = started.into_iter().unzip();
    let admin = admin.as_ref().map(|address| open_admin(address, running.clone(), &mut inheritance));
    let admin = admin.transpose()?;
    // The last step that can fail: the running proxy goes on if it does.
    if let Some(inheritance) = inheritance {
        inheritance.confirm()?;
        for (workers, server) in workers.iter_mut().zip(&resolved.servers) {
            workers.own_files(&server.resolved.settings.listen);
        }
    }
    let (socket_file, admin) = admin.map(|admin| serve_admin(admin, log)).transpose()?.unzip();
    let mut upgrader = Upgrader::new(running.clone(), notifier.clone(), log, admin).map_err(signal_error)?;
    let handover = upgrader.handover();
    for (server, workers) in resolved.servers.iter().zip(&workers) {
        announce(server, log, &**workers);
    }
    let credentials: Vec<Credentials> = running
        .iter()
        .zip(&resolved.servers)
        .map(|(running, server)| running.credentials(&server.resolved.settings, server.log(log)))
        .collect();
    let current = running.iter().zip(&credentials).zip(&files).map(|((running, credentials), files)| {
        ReloadedServer { running: running.clone(), credentials: credentials.clone(), files: files.clone() }
    });
    let reloader = Reloader::new(current.collect(), notifier.clone(), log, Arc::clone(resolved));
    for (number, workers) in workers.iter_mut().enumerate() {
        let (reloader, credentials) = (reloader.clone(), credentials[number].clone());
        let mut watch = files[number].ticker(move || reloader.look_at_files(number));
        workers.on_tick(Box::new(move |now| {
            credentials.tick(now);
            watch(now);
        }));
    }
    let reload: Arc<dyn Fn() -> bool + Send + Sync> =
        Arc::new(move || reloader.reload(|| command_line.load()));
    for server in &running {
        server.open_console(Arc::clone(&reload));
    }
    if let Some(first) = workers.first_mut() {
        first.on_signal(SignalTask::Upgrade, upgrade_signals, Box::new(move || upgrader.upgrade()))?;
        let on_signal = move || {
            reload();
        };
        first.on_signal(SignalTask::Reload, reload_signals, Box::new(on_signal))?;
    }
    notifier.ready();
    Ok((workers, socket_file, handover, StopCommands(credentials)))
}

fn start_workers(
    server: &ResolvedServer,
    log: Log,
    notifier: &Notifier,
    inheritance: &mut Option<Inheritance>,
) -> Result<StartedServer, StartError> {
    match server.resolved.settings.server.protocol {
        ProtocolKind::Postgres => start_workers_of::<Postgres>(server, log, notifier, inheritance),
        ProtocolKind::MySql => start_workers_of::<MySql>(server, log, notifier, inheritance),
    }
}

type StartedServer = (Box<dyn ServerWorkers>, RunningServer);

fn start_workers_of<P: Protocol>(
    server: &ResolvedServer,
    log: Log,
    notifier: &Notifier,
    inheritance: &mut Option<Inheritance>,
) -> Result<StartedServer, StartError> {
    let stops = signals(&[SIGTERM, SIGINT]).map_err(signal_error)?;
    let (settings, log) = (&server.resolved.settings, server.log(log));
    let workers = Workers::<P>::start(settings, log, stops, notifier, inheritance)?;
    let running = RunningServer::new(server.name.clone(), settings.listen.clone(), workers.control());
    Ok((Box::new(workers), running))
}

fn open_admin(
    address: &ListenAddress,
    servers: Vec<RunningServer>,
    inheritance: &mut Option<Inheritance>,
) -> Result<AdminServer, StartError> {
    let inherited = inheritance.as_mut().and_then(|inheritance| inheritance.take(address));
    AdminServer::listen(address, servers, inherited)
        .map_err(|source| StartError::Host { what: address.to_string(), source })
}

fn serve_admin(admin: AdminServer, log: Log) -> Result<(SocketFile, AdminSocket), StartError> {
    let address = admin.address();
    let served = admin.serve().map_err(thread_error)?;
    log.event(Level::Info, "admin", &[("at", &address)]);
    Ok(served)
}

fn announce(server: &ResolvedServer, log: Log, workers: &dyn ServerWorkers) {
    let (settings, log) = (&server.resolved.settings, server.log(log));
    let encryption = match &settings.server.encryption {
        UpstreamEncryption::None => "none",
        UpstreamEncryption::Tls { verification: Verification::Full, .. } => "tls",
        UpstreamEncryption::Tls { .. } => "tls, not fully verified",
    };
    for (event, warning) in warnings(&server.resolved) {
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
