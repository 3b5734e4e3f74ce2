//! Runs an external generator once over one route.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Endpoint, Engine, Scale};
use serde::Deserialize;

use super::work::{ClientAction, PoolWorkload};
use super::{PoolRoute, PoolSetup, PooledServer};
use crate::arm::{SysbenchResult, number_after, write_private};

const US_PER_MS: f64 = 1e3;
const US_PER_NS: f64 = 1e-3;
/// Threads of the generators, which share the machine with proxy and server.
const THREADS: u16 = 2;
/// Rows of the tables, also passed to sysbench.
pub const ROWS: Scale = Scale::DEFAULT;

#[derive(Clone, Copy, Debug)]
pub struct GeneratorRun {
    pub operations: f64,
    pub rate_per_s: f64,
    /// Mean latency, as reported by the generator.
    pub mean_us: f64,
    /// The proxy's CPU time; NaN without a proxy.
    pub cpu_us_per_op: f64,
}

struct GeneratorResult {
    operations: f64,
    rate_per_s: f64,
    mean_us: f64,
}

/// Output of the loop on libmariadb.
#[derive(Deserialize)]
struct LoopResult {
    operations: f64,
    rate_per_s: f64,
    mean_ns: f64,
}

pub fn run(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &PoolSetup<'_>,
    seconds: f64,
) -> Result<GeneratorRun> {
    let meter = pool.proxy().map(ciphertoll_lab::proxy::RunningProxy::cpu_meter);
    let read_ns = || meter.as_ref().map(ciphertoll_lab::CpuMeter::read_ns).transpose();
    let before_ns = read_ns()?;
    let GeneratorResult { operations, rate_per_s, mean_us } = match (work.engine, work.act) {
        (Engine::Postgres, _) => pgbench(work, pool, setup, seconds)?,
        (Engine::MariaDb | Engine::MySql, ClientAction::Connect | ClientAction::ConnectQuery) => {
            libmariadb(work, pool, setup, seconds)?
        }
        (Engine::MariaDb | Engine::MySql, ClientAction::Text | ClientAction::Prepared) => {
            sysbench(work, pool, setup, seconds)?
        }
        (engine @ (Engine::MongoDb | Engine::FerretDb), _) => {
            bail!("no proxy supports {engine}")
        }
    };
    let cpu_ns = read_ns()?.zip(before_ns).map(|(after, before)| after.saturating_sub(before));
    let cpu_us_per_op = cpu_ns.map_or(f64::NAN, |ns| ns as f64 * US_PER_NS / operations);
    Ok(GeneratorRun { operations, rate_per_s, mean_us, cpu_us_per_op })
}

fn pgbench(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &PoolSetup<'_>,
    seconds: f64,
) -> Result<GeneratorResult> {
    let program =
        setup.tools.pgbench.as_ref().context("pgbench is not installed: install the PostgreSQL package")?;
    let (clients, jobs) = (work.clients.to_string(), work.clients.min(THREADS).to_string());
    let mut command = Command::new(program);
    command.args(["--no-vacuum", "--client", &clients, "--jobs", &jobs, "--progress", "3600"]);
    match work.act {
        ClientAction::Connect => bail!("pgbench cannot connect without a query"),
        ClientAction::ConnectQuery => {
            // The minimal query; pgbench's own scripts read a table.
            let script = setup.private.join("select-1.sql");
            std::fs::write(&script, "SELECT 1;\n").context("cannot write a script")?;
            command.args(["--protocol", "simple", "--connect", "--file"]).arg(script);
        }
        ClientAction::Text => _ = command.args(["--protocol", "simple", "--select-only"]),
        ClientAction::Prepared => _ = command.args(["--protocol", "prepared", "--select-only"]),
    }
    let printed = as_user(&mut command, pool, setup)?;
    let printed = output(printed.args(["--time", &seconds.ceil().to_string(), setup.server.database()]))?;
    let number = |what: &str| number_after(&printed, what).with_context(|| format!("no {what:?}: {printed}"));
    // The latency of a transaction excludes its connect.
    let connect_ms = number_after(&printed, "average connection time =").unwrap_or(0.0);
    Ok(GeneratorResult {
        operations: number("number of transactions actually processed:")?,
        rate_per_s: number("tps =")?,
        mean_us: (number("latency average =")? + connect_ms) * US_PER_MS,
    })
}

/// Sets address and account for libpq.
pub(super) fn as_user<'c>(
    command: &'c mut Command,
    pool: &PooledServer,
    setup: &PoolSetup<'_>,
) -> Result<&'c mut Command> {
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("{} has no unix socket", pool.route.label()) };
    let account = setup.server.account(Auth::default_of(Engine::Postgres));
    let password = std::fs::read(&account.password_file).context("cannot read the password")?;
    let directory = socket.parent().context("the socket has no directory")?;
    let port = socket.extension().context("the socket name has no port")?;
    command.arg("--host").arg(directory).arg("--port").arg(port).args(["--username", &account.user]);
    // The environment is private; arguments are visible to other users.
    let password = String::from_utf8(password).context("the password is not UTF-8")?;
    Ok(command.env("PGPASSWORD", password))
}

fn libmariadb(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &PoolSetup<'_>,
    seconds: f64,
) -> Result<GeneratorResult> {
    let account = setup.server.account(Auth::default_of(setup.server.engine()));
    let mut command = Command::new(setup.peers.join("connect_libmariadb"));
    match &pool.endpoint {
        Endpoint::Unix(socket) => _ = command.arg("--socket").arg(socket),
        Endpoint::Tcp(address) => {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            command.args(["--host", &host, "--port", &port]);
        }
        Endpoint::Host { .. } => bail!("{} is on another host", pool.route.label()),
    }
    if pool.route == PoolRoute::Tls {
        command.args(["--tls", "1.3", "--ca"]).arg(setup.server.ca_file());
    }
    if work.act == ClientAction::ConnectQuery {
        command.arg("--query");
    }
    command
        .args(["--user", &account.user, "--database", setup.server.database()])
        .args(["--clients", &work.clients.to_string(), "--seconds", &seconds.to_string()])
        // No warm-up, because the proxy's CPU time is measured over the whole run.
        .args(["--warm-up", "0", "--password-file"])
        .arg(account.password_file);
    let result: LoopResult =
        serde_json::from_str(&output(&mut command)?).context("the loop printed no result")?;
    Ok(GeneratorResult {
        operations: result.operations,
        rate_per_s: result.rate_per_s,
        mean_us: result.mean_ns * US_PER_NS,
    })
}

fn sysbench(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &PoolSetup<'_>,
    seconds: f64,
) -> Result<GeneratorResult> {
    let program = setup.tools.sysbench.as_ref().context("sysbench is not installed: install its package")?;
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("{} has no unix socket", pool.route.label()) };
    let account = setup.server.account(Auth::default_of(setup.server.engine()));
    let password = std::fs::read_to_string(&account.password_file).context("cannot read the password")?;
    // A private file, because arguments are visible to other users.
    let config = setup.private.join("sysbench.cnf");
    let database = setup.server.database();
    let text = format!("mysql-user={}\nmysql-password={password}\nmysql-db={database}\n", account.user);
    write_private(&config, &text)?;
    let prepared = if work.act == ClientAction::Prepared { "auto" } else { "disable" };
    let mut command = Command::new(program);
    command
        .arg(format!("--config-file={}", config.display()))
        .args([
            "--db-driver=mysql",
            "--rand-type=uniform",
            "--tables=1",
            &format!("--table-size={}", ROWS.rows()),
        ])
        .arg(format!("--mysql-socket={}", socket.display()))
        .args([format!("--db-ps-mode={prepared}"), format!("--threads={}", work.clients)])
        .args([&format!("--time={}", seconds.ceil()), "oltp_point_select", "run"]);
    let printed = output(&mut command)?;
    let result =
        SysbenchResult::of(&printed).with_context(|| format!("sysbench printed no result: {printed}"))?;
    Ok(GeneratorResult {
        operations: result.transactions,
        rate_per_s: result.rate_per_s,
        mean_us: result.mean_us,
    })
}

fn output(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("it")).display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{name} failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
