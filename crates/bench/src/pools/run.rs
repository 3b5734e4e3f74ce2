//! Runs an external generator once over one route.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::CpuMeter;
use ciphertoll_lab::proxy::RunningProxy;
use ciphertoll_model::{Auth, Endpoint, Engine, TlsVersion};

use super::work::{ClientAction, PoolWorkload};
use super::{PoolRoute, PooledServer};
use crate::arm::peer::{self, PeerResult};
use crate::arm::tool::{GeneratorResult, output};
use crate::arm::{pgbench, sysbench};
use crate::setup::BenchSetup;

const US_PER_NS: f64 = 1e-3;
/// Threads of the generators, which share the machine with proxy and server.
const THREADS: u16 = 2;

#[derive(Clone, Copy, Debug)]
pub struct GeneratorRun {
    pub operations: f64,
    pub rate_per_s: f64,
    /// Mean latency, as reported by the generator.
    pub mean_us: f64,
    /// The proxy's CPU time; NaN without a proxy.
    pub cpu_us_per_op: f64,
}

pub fn run(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    seconds: f64,
) -> Result<GeneratorRun> {
    measure(pool, || match (work.engine, work.act) {
        (Engine::Postgres, _) => pgbench(work, pool, setup, seconds),
        (Engine::MariaDb | Engine::MySql, ClientAction::Connect | ClientAction::ConnectQuery) => {
            libmariadb(work, pool, setup, seconds)
        }
        (Engine::MariaDb | Engine::MySql, ClientAction::Text | ClientAction::Prepared) => {
            sysbench(work, pool, setup, seconds)
        }
        (engine @ (Engine::MongoDb | Engine::FerretDb), _) => bail!("no proxy supports {engine}"),
    })
}

/// Runs a generator and measures the proxy's CPU time.
pub(super) fn measure(
    pool: &PooledServer,
    generate: impl FnOnce() -> Result<GeneratorResult>,
) -> Result<GeneratorRun> {
    let meter = pool.proxy().map(RunningProxy::cpu_meter);
    let read_ns = || meter.as_ref().map(CpuMeter::read_ns).transpose();
    let before_ns = read_ns()?;
    let GeneratorResult { operations, rate_per_s, mean_us, .. } = generate()?;
    let cpu_ns = read_ns()?.zip(before_ns).map(|(after, before)| after.saturating_sub(before));
    let cpu_us_per_op = cpu_ns.map_or(f64::NAN, |ns| ns as f64 * US_PER_NS / operations);
    Ok(GeneratorRun { operations, rate_per_s, mean_us, cpu_us_per_op })
}

fn pgbench(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
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
    let command = as_user(&mut command, pool, setup)?;
    let printed = output(command.args(["--time", &seconds.ceil().to_string(), setup.server.database()]))?;
    pgbench::parse(&printed)
}

/// Sets address and account for libpq.
pub(super) fn as_user<'c>(
    command: &'c mut Command,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
) -> Result<&'c mut Command> {
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("{} has no unix socket", pool.route.label()) };
    let auth = Auth::default_of(Engine::Postgres);
    let directory = socket.parent().context("the socket has no directory")?;
    let port = socket.extension().context("the socket name has no port")?;
    command.arg("--host").arg(directory).arg("--port").arg(port);
    command.args(["--username", &setup.server.account(auth).user]);
    // The environment is private; arguments are visible to other users.
    Ok(command.env("PGPASSWORD", setup.password(auth)?))
}

fn libmariadb(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    seconds: f64,
) -> Result<GeneratorResult> {
    let auth = Auth::default_of(setup.engine());
    let tls = (pool.route == PoolRoute::Tls).then_some(TlsVersion::Tls13);
    let mut command = peer::command("connect_libmariadb", setup, &pool.endpoint, tls, auth)?;
    if work.act == ClientAction::ConnectQuery {
        command.arg("--query");
    }
    command.args(["--clients", &work.clients.to_string(), "--seconds", &seconds.to_string()]);
    // No warm-up, because the proxy's CPU time is measured over the whole run.
    let PeerResult { operations, rate_per_s, mean_ns, .. } = peer::result(command.args(["--warm-up", "0"]))?;
    Ok(GeneratorResult { operations, rate_per_s, mean_us: mean_ns * US_PER_NS, p95_us: None })
}

fn sysbench(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    seconds: f64,
) -> Result<GeneratorResult> {
    let program = setup.tools.sysbench.as_ref().context("sysbench is not installed: install its package")?;
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("{} has no unix socket", pool.route.label()) };
    let config = sysbench::config(setup, Auth::default_of(setup.engine()), setup.rows)?;
    let prepared = if work.act == ClientAction::Prepared { "auto" } else { "disable" };
    let mut command = Command::new(program);
    command
        .arg(format!("--config-file={}", config.display()))
        .args(["--db-driver=mysql", "--rand-type=uniform"])
        .arg(format!("--mysql-socket={}", socket.display()))
        .args([format!("--db-ps-mode={prepared}"), format!("--threads={}", work.clients)])
        .args([&format!("--time={}", seconds.ceil()), "oltp_point_select", "run"]);
    sysbench::parse(&output(&mut command)?)
}
