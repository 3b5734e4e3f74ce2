//! The command `ciphertoll-proxy`: parses, starts, ends.

use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use ciphertoll_net::tls::Verification;
use ciphertoll_proxy::{
    Dialect, Encryption, Ended, Level, Limits, Listen, ListenError, Log, MySql, Pooling, Postgres, Protocol,
    Proxy, ServerUrl, Settings, StartError, find_password,
};
use ciphertoll_wire::Secret;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;
use signal_hook::consts::{SIGINT, SIGTERM};

// As all of ciphertoll: see docs/exit-codes.md.
const INTERNAL: u8 = 1;
const USAGE: u8 = 2;
const DONE_IN_PART: u8 = 6;
const HOST: u8 = 9;

/// Pools encrypted connections to a PostgreSQL, MySQL or MariaDB server for applications on this machine.
///
/// Clients come by a local socket, in plaintext; behind, every connection is encrypted and the server's certificate
/// verified. The password is taken from `CIPHERTOLL_PASSWORD`, from PGPASSWORD or a password file (PGPASSFILE,
/// ~/.pgpass) or from `MYSQL_PWD`, never from an argument.
#[derive(Parser)]
#[command(name = "ciphertoll-proxy", version, max_term_width = 110)]
struct Arguments {
    /// Where clients come to
    #[arg(long, value_name = "PLACE", value_parser = listen,
          help = "Where clients come to: unix:/PATH/.s.PGSQL.6432 or unix:/PATH/mysqld.sock, or tcp:127.0.0.1:6432 where they must know the password")]
    listen: Listen,
    /// The server: postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE or mysql://USER@HOST:PORT/DATABASE?ssl-ca=FILE.
    /// Verified in full, unless sslmode or ssl-mode says less
    // Parsed later: clap would show a wrong value, which may have a password in it.
    #[arg(long, value_name = "URL")]
    server: String,
    /// How long a client has a server connection
    #[arg(long, value_name = "MODE", default_value = "session")]
    mode: Mode,
    /// A user, beside our own, whose processes may come by the unix socket (a number; may be repeated)
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
    /// The most server connections, over all databases
    #[arg(long, value_name = "N", default_value_t = Limits::default().server_connections,
          value_parser = at_least_one)]
    pool_size: usize,
    /// The most clients at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients, value_parser = at_least_one)]
    max_clients: usize,
    /// How many seconds a client waits for a server connection
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    queue_time: Duration,
    /// How many seconds a server connection may be idle
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    idle_time: Duration,
    /// How many seconds old a server connection may be when the next client gets it
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    max_age: Duration,
    /// How many seconds clients have to leave after SIGTERM or SIGINT; a second signal ends it at once
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    drain_time: Duration,
    /// What is logged, on stderr
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LogLevel,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Until it leaves
    Session,
    /// Until its transaction ends: more clients than connections
    Transaction,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Debug,
    Info,
    Warn,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let log = Log::new(match arguments.log {
        LogLevel::Debug => Level::Debug,
        LogLevel::Info => Level::Info,
        LogLevel::Warn => Level::Warn,
    });
    let failed = |event: &str, reason: &dyn std::fmt::Display, code: u8| {
        log.event(Level::Warn, event, &[("reason", reason)]);
        ExitCode::from(code)
    };
    let server: ServerUrl = match arguments.server.parse() {
        Ok(server) => server,
        Err(error) => {
            let message = format!("the URL of --server cannot be used: {error}");
            Arguments::command().error(ErrorKind::ValueValidation, message).exit()
        }
    };
    raise_file_limit();
    let ended = match server.protocol {
        Protocol::Postgres => serve::<Postgres>(arguments, server, log),
        Protocol::MySql => serve::<MySql>(arguments, server, log),
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
fn serve<D: Dialect>(
    arguments: Arguments,
    server: ServerUrl,
    log: Log,
) -> Result<Result<Ended, ciphertoll_net::Error>, StartError> {
    start::<D>(arguments, server, log).map(Proxy::run)
}

fn start<D: Dialect>(arguments: Arguments, server: ServerUrl, log: Log) -> Result<Proxy<D>, StartError> {
    let password = find_password(&server)?.unwrap_or_else(|| Secret::new(Vec::new()));
    let mut allowed_uids = arguments.allow_uid;
    allowed_uids.push(geteuid().as_raw());
    let place = match &arguments.listen {
        Listen::Unix(path) => format!("unix:{}", path.display()),
        Listen::Tcp(_) => "tcp".to_owned(),
    };
    let place_behind = server.place.to_string();
    let encryption = match &server.encryption {
        Encryption::None => "none",
        Encryption::Tls { verification: Verification::Full, .. } => "tls",
        Encryption::Tls { .. } => "tls, not verified in full",
    };
    let settings = Settings {
        listen: arguments.listen,
        server,
        password,
        allowed_uids,
        pooling: match arguments.mode {
            Mode::Session => Pooling::Session,
            Mode::Transaction => Pooling::Transaction,
        },
        limits: Limits {
            server_connections: arguments.pool_size,
            clients: arguments.max_clients,
            queue: arguments.queue_time,
            idle: arguments.idle_time,
            age: arguments.max_age,
            drain: arguments.drain_time,
            ..Limits::default()
        },
    };
    let proxy = Proxy::start(settings, log, signals().map_err(no_signals)?)?;
    let place = proxy.address().map_or(place, |address| format!("tcp:{address}"));
    let fields: [(&str, &dyn std::fmt::Display); 3] =
        [("at", &place), ("server", &place_behind), ("encryption", &encryption)];
    log.event(Level::Info, "listening", &fields);
    Ok(proxy)
}

/// A byte comes for each signal that asks for the end.
fn signals() -> std::io::Result<UnixStream> {
    let (ours, handlers) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, handlers.try_clone()?)?;
    }
    Ok(ours)
}

fn no_signals(source: std::io::Error) -> StartError {
    let source = ciphertoll_net::Error::Socket { doing: "cannot watch for signals", source };
    StartError::Host { what: "signals".to_owned(), source }
}

/// Every client is a file, and the usual soft limit is 1024.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it cannot be raised, clients beyond it wait at the door.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn listen(text: &str) -> Result<Listen, ListenError> {
    text.parse()
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1 on".to_owned()),
        Ok(number) => Ok(number),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds".to_owned())
}
