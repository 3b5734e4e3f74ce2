//! A generator that is not ours, once, by one way.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Endpoint, Engine, Scale};
use serde::Deserialize;

use super::work::{Act, Work};
use super::{Place, Pool, Way};
use crate::arm::{SysbenchTold, number_after, write_private};

const US_PER_MS: f64 = 1e3;
const US_PER_NS: f64 = 1e-3;
/// The generators' threads; the machine is shared with proxy and server.
const THREADS: u16 = 2;
/// Of the tables; sysbench must be told.
pub const ROWS: Scale = Scale::DEFAULT;

/// What one run has shown.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Operations, from its first to its last.
    pub operations: f64,
    /// Per second.
    pub rate_per_s: f64,
    /// Of one operation, as the generator says.
    pub mean_us: f64,
    /// The proxy's CPU for an operation; not a number where there is no proxy.
    pub cpu_us_per_op: f64,
}

/// What a generator has printed of itself.
struct Told {
    operations: f64,
    rate_per_s: f64,
    mean_us: f64,
}

/// What the loop on libmariadb prints.
#[derive(Deserialize)]
struct Looped {
    operations: f64,
    rate_per_s: f64,
    mean_ns: f64,
}

/// Runs it for so many seconds.
pub fn run(work: Work, pool: &Pool, place: &Place<'_>, seconds: f64) -> Result<Run> {
    let meter = pool.proxy().map(ciphertoll_lab::proxy::RunningProxy::cpu_meter);
    let read_ns = || meter.as_ref().map(ciphertoll_lab::CpuMeter::read_ns).transpose();
    let before_ns = read_ns()?;
    let Told { operations, rate_per_s, mean_us } = match (work.engine, work.act) {
        (Engine::Postgres, _) => pgbench(work, pool, place, seconds)?,
        (Engine::MariaDb | Engine::MySql, Act::Connect | Act::ConnectQuery) => {
            libmariadb(work, pool, place, seconds)?
        }
        (Engine::MariaDb | Engine::MySql, Act::Text | Act::Prepared) => sysbench(work, pool, place, seconds)?,
        (engine @ (Engine::MongoDb | Engine::FerretDb), _) => {
            bail!("no proxy here speaks {engine}'s protocol")
        }
    };
    let cpu_ns = read_ns()?.zip(before_ns).map(|(after, before)| after.saturating_sub(before));
    let cpu_us_per_op = cpu_ns.map_or(f64::NAN, |ns| ns as f64 * US_PER_NS / operations);
    Ok(Run { operations, rate_per_s, mean_us, cpu_us_per_op })
}

fn pgbench(work: Work, pool: &Pool, place: &Place<'_>, seconds: f64) -> Result<Told> {
    let program =
        place.tools.pgbench.as_ref().context("there is no pgbench: install PostgreSQL's package")?;
    let (clients, jobs) = (work.clients.to_string(), work.clients.min(THREADS).to_string());
    let mut command = Command::new(program);
    command.args(["--no-vacuum", "--client", &clients, "--jobs", &jobs, "--progress", "3600"]);
    match work.act {
        Act::Connect => bail!("pgbench does not connect without asking something"),
        Act::ConnectQuery => {
            // What pgbench has of its own reads a table; this is the least that can be asked.
            let script = place.private.join("select-1.sql");
            std::fs::write(&script, "SELECT 1;\n").context("cannot write a script")?;
            command.args(["--protocol", "simple", "--connect", "--file"]).arg(script);
        }
        Act::Text => _ = command.args(["--protocol", "simple", "--select-only"]),
        Act::Prepared => _ = command.args(["--protocol", "prepared", "--select-only"]),
    }
    let printed = as_user(&mut command, pool, place)?;
    let printed = output(printed.args(["--time", &seconds.ceil().to_string(), place.server.database()]))?;
    let number = |what: &str| number_after(&printed, what).with_context(|| format!("no {what:?}: {printed}"));
    // A transaction's time leaves out the connect that was made for it.
    let connect_ms = number_after(&printed, "average connection time =").unwrap_or(0.0);
    Ok(Told {
        operations: number("number of transactions actually processed:")?,
        rate_per_s: number("tps =")?,
        mean_us: (number("latency average =")? + connect_ms) * US_PER_MS,
    })
}

/// Has libpq go to the pool as the account.
pub(super) fn as_user<'c>(
    command: &'c mut Command,
    pool: &Pool,
    place: &Place<'_>,
) -> Result<&'c mut Command> {
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("{} has no unix socket", pool.way.label()) };
    let account = place.server.account(Auth::default_of(Engine::Postgres));
    let password = std::fs::read(&account.password_file).context("cannot read the password")?;
    let directory = socket.parent().context("a socket lies in a directory")?;
    let port = socket.extension().context("PostgreSQL's sockets end with a port")?;
    command.arg("--host").arg(directory).arg("--port").arg(port).args(["--username", &account.user]);
    // By its environment, which only we can read; arguments are for all to see.
    let password = String::from_utf8(password).context("a password that is no text")?;
    Ok(command.env("PGPASSWORD", password))
}

fn libmariadb(work: Work, pool: &Pool, place: &Place<'_>, seconds: f64) -> Result<Told> {
    let account = place.server.account(Auth::default_of(place.server.engine()));
    let mut command = Command::new(place.peers.join("connect_libmariadb"));
    match &pool.endpoint {
        Endpoint::Unix(socket) => _ = command.arg("--socket").arg(socket),
        Endpoint::Tcp(address) => {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            command.args(["--host", &host, "--port", &port]);
        }
        Endpoint::Host { .. } => bail!("{} is somewhere else", pool.way.label()),
    }
    if pool.way == Way::Tls {
        command.args(["--tls", "1.3", "--ca"]).arg(place.server.ca_file());
    }
    if work.act == Act::ConnectQuery {
        command.arg("--query");
    }
    command
        .args(["--user", &account.user, "--database", place.server.database()])
        .args(["--clients", &work.clients.to_string(), "--seconds", &seconds.to_string()])
        // All of it counts, as the proxy's CPU is read from its beginning to its end.
        .args(["--warm-up", "0", "--password-file"])
        .arg(account.password_file);
    let told: Looped = serde_json::from_str(&output(&mut command)?).context("the loop printed no result")?;
    Ok(Told { operations: told.operations, rate_per_s: told.rate_per_s, mean_us: told.mean_ns * US_PER_NS })
}

fn sysbench(work: Work, pool: &Pool, place: &Place<'_>, seconds: f64) -> Result<Told> {
    let program = place.tools.sysbench.as_ref().context("there is no sysbench: install its package")?;
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("{} has no unix socket", pool.way.label()) };
    let account = place.server.account(Auth::default_of(place.server.engine()));
    let password = std::fs::read_to_string(&account.password_file).context("cannot read the password")?;
    // sysbench would take it as an argument, for all to see.
    let config = place.private.join("sysbench.cnf");
    let database = place.server.database();
    let text = format!("mysql-user={}\nmysql-password={password}\nmysql-db={database}\n", account.user);
    write_private(&config, &text)?;
    let prepared = if work.act == Act::Prepared { "auto" } else { "disable" };
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
    let told =
        SysbenchTold::of(&printed).with_context(|| format!("sysbench printed no result: {printed}"))?;
    Ok(Told { operations: told.transactions, rate_per_s: told.rate_per_s, mean_us: told.mean_us })
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
