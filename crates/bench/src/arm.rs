//! Who makes the load: ciphertoll's own generator, sysbench, or a C loop. Each runs once and says
//! its rate and what CPU an operation cost it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::MariaDb;
use ciphertoll_load::LoadProcess;
use ciphertoll_model::{
    Auth, Clients, Ctx, Endpoint, Engine, LoadMessage, Statement, TlsSpec, TlsVersion, TrialResult, TrialSpec,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Deserialize;

const PATIENCE: Duration = Duration::from_secs(1);
const WARM_UP_S: f64 = 0.25;
/// The table of the lab's templates, and sysbench's.
const TABLE: &str = "sbtest1";

/// What one run of an arm yields.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Operations per second.
    pub rate_per_s: f64,
    /// CPU of the client per operation.
    pub cpu_us_per_op: f64,
}

/// How the bytes get to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// TCP, not encrypted.
    Plain,
    /// A unix socket.
    Unix,
    /// TLS over TCP, verified, a new context for each connect.
    Tls(TlsVersion),
}

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Connect and close, one client.
    Connect,
    /// Read a row by key, prepared, eight clients.
    PointSelect,
}

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// ciphertoll's own.
    Native,
    /// A C loop on libmariadb.
    Libmariadb,
    /// A C loop that sends and receives messages encoded beforehand, with this I/O.
    Floor(FloorMode),
    /// sysbench's `oltp_point_select`.
    Sysbench,
}

/// How the floor waits for its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorMode {
    /// One thread, epoll.
    Epoll,
    /// A blocking thread for each connection.
    Threads,
}

/// One arm of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Who.
    pub generator: Generator,
    /// What.
    pub work: Work,
    /// Which way.
    pub route: Route,
}

/// Where arms are run.
pub struct Place<'a> {
    /// The server.
    pub server: &'a MariaDb,
    /// The `ciphertoll` program.
    pub program: PathBuf,
    /// The compiled C peers.
    pub peers: PathBuf,
    /// A directory for files that hold the password: ours alone.
    pub private: PathBuf,
    /// Rows in the table.
    pub rows: u32,
    /// Length of a run's window.
    pub seconds: f64,
}

impl Generator {
    /// For the table of results.
    pub fn label(self) -> &'static str {
        match self {
            Self::Native => "ciphertoll",
            Self::Libmariadb => "libmariadb loop",
            Self::Floor(FloorMode::Epoll) => "floor, epoll",
            Self::Floor(FloorMode::Threads) => "floor, threads",
            Self::Sysbench => "sysbench",
        }
    }
}

impl Work {
    fn clients(self) -> u16 {
        match self {
            Self::Connect => 1,
            Self::PointSelect => 8,
        }
    }
}

impl Arm {
    /// Runs it once.
    pub fn run(&self, place: &Place<'_>) -> Result<Sample> {
        match self.generator {
            Generator::Native => native(*self, place),
            Generator::Libmariadb => peer(*self, place, "connect_libmariadb", &[]),
            Generator::Floor(mode) => {
                let mode = match mode {
                    FloorMode::Epoll => "epoll",
                    FloorMode::Threads => "threads",
                };
                let rows = place.rows.to_string();
                let extra = ["--mode", mode, "--rows", &rows];
                peer(*self, place, "floor_point_select", &extra)
            }
            Generator::Sysbench => sysbench(*self, place),
        }
    }
}

fn native(arm: Arm, place: &Place<'_>) -> Result<Sample> {
    let server = place.server;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u16);
    let nanos = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
    let spec = TrialSpec {
        engine: Engine::MariaDb,
        auth: Auth::Native,
        endpoint: if arm.route == Route::Unix { server.unix_endpoint() } else { server.tcp_endpoint() },
        user: server.user().to_owned(),
        password_file: server.password_file().to_owned(),
        database: Some(server.database().to_owned()),
        tls: match arm.route {
            Route::Plain | Route::Unix => None,
            Route::Tls(version) => Some(TlsSpec {
                version,
                ca_file: server.ca_file(),
                server_name: server.server_name().to_owned(),
                ctx: Ctx::PerConnect,
            }),
        },
        statement: match arm.work {
            Work::Connect => Statement::Connect,
            Work::PointSelect => Statement::PointSelect { table: TABLE.to_owned(), rows: place.rows },
        },
        clients: Clients::new(arm.work.clients()).context("number of clients")?,
        threads: arm.work.clients().min(processors),
        warm_up_ns: nanos(WARM_UP_S),
        window_ns: nanos(place.seconds),
        seed: 1,
        injected_delay_ns: 0,
    };
    let result = finish(LoadProcess::start(&place.program, &spec)?)?;
    if let Some(error) = result.errors.first() {
        bail!("an operation failed: {}", error.message);
    }
    let operations = result.operations as f64;
    Ok(Sample {
        rate_per_s: operations / (result.window_ns as f64 * 1e-9),
        cpu_us_per_op: result.client_cpu_ns as f64 * 1e-3 / operations,
    })
}

fn finish(mut load: LoadProcess) -> Result<TrialResult> {
    loop {
        if let Some(LoadMessage::Finished(result)) = load.next_message(PATIENCE)? {
            return Ok(*result);
        }
    }
}

/// What a C peer prints.
#[derive(Deserialize)]
struct PeerResult {
    rate_per_s: f64,
    cpu_us_per_op: f64,
}

fn peer(arm: Arm, place: &Place<'_>, name: &str, extra: &[&str]) -> Result<Sample> {
    let mut command = Command::new(place.peers.join(name));
    match (arm.route, server_address(place.server)?) {
        (Route::Unix, _) => {
            let Endpoint::Unix(socket) = place.server.unix_endpoint() else { bail!("no unix socket") };
            command.arg("--socket").arg(socket)
        }
        (_, (host, port)) => command.args(["--host", &host, "--port", &port]),
    };
    if let Route::Tls(version) = arm.route {
        let version = match version {
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        };
        command.args(["--tls", version]).arg("--ca").arg(place.server.ca_file());
    }
    command
        .args(["--user", place.server.user(), "--database", place.server.database()])
        .args(["--clients", &arm.work.clients().to_string()])
        .arg("--password-file")
        .arg(place.server.password_file())
        .args(["--seconds", &place.seconds.to_string(), "--warm-up", &WARM_UP_S.to_string()])
        .args(extra);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", output.status);
    }
    let PeerResult { rate_per_s, cpu_us_per_op } =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{name} printed no result"))?;
    Ok(Sample { rate_per_s, cpu_us_per_op })
}

/// sysbench's CPU is that of the whole process, its start included: it has no other.
fn sysbench(arm: Arm, place: &Place<'_>) -> Result<Sample> {
    let config = sysbench_config(place)?;
    let (host, port) = server_address(place.server)?;
    let before = children_cpu_us()?;
    let output = Command::new("sysbench")
        .arg(format!("--config-file={}", config.display()))
        .args([format!("--mysql-host={host}"), format!("--mysql-port={port}")])
        .arg(format!("--threads={}", arm.work.clients()))
        .arg(format!("--time={}", (place.seconds + WARM_UP_S).ceil()))
        .args(["oltp_point_select", "run"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run sysbench")?;
    let used = children_cpu_us()? - before;
    if !output.status.success() {
        bail!("sysbench failed: {}", output.status);
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let (transactions, rate_per_s) = transactions(&printed).context("sysbench printed no transactions")?;
    Ok(Sample { rate_per_s, cpu_us_per_op: used / transactions })
}

/// The password goes by a file of ours: sysbench would take it as an argument, for all to see.
fn sysbench_config(place: &Place<'_>) -> Result<PathBuf> {
    let path = place.private.join("sysbench.cnf");
    let password = fs::read_to_string(place.server.password_file()).context("cannot read the password")?;
    let config = format!(
        "mysql-user={}\nmysql-password={password}\nmysql-db={}\ntables=1\ntable-size={}\n",
        place.server.user(),
        place.server.database(),
        place.rows
    );
    write_private(&path, &config)?;
    Ok(path)
}

fn write_private(path: &Path, contents: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(contents.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// `transactions:   123456 (61728.00 per sec.)`
fn transactions(printed: &str) -> Option<(f64, f64)> {
    let line = printed.lines().find_map(|line| line.trim().strip_prefix("transactions:"))?;
    let mut words = line.split_whitespace();
    let count = words.next()?.parse().ok()?;
    let rate = words.next()?.trim_start_matches('(').parse().ok()?;
    Some((count, rate))
}

/// User and system CPU of all children that were waited for.
fn children_cpu_us() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the children's CPU")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}

fn server_address(server: &MariaDb) -> Result<(String, String)> {
    match server.tcp_endpoint() {
        Endpoint::Tcp(address) => Ok((address.ip().to_string(), address.port().to_string())),
        Endpoint::Unix(_) => bail!("the server does not listen on TCP"),
    }
}

#[cfg(test)]
mod tests {
    use super::transactions;

    #[test]
    fn reads_what_sysbench_prints() {
        let printed =
            "SQL statistics:\n    transactions:                        94310  (47143.41 per sec.)\n";
        assert_eq!(transactions(printed), Some((94_310.0, 47_143.41)));
        assert_eq!(transactions("nothing"), None);
    }
}
