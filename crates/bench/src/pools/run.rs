//! pgbench through a proxy.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_lab::proxy::RunningProxy;
use ciphertoll_model::{Auth, Endpoint, Engine};

use super::Work;
use crate::arm::{Sample, number_after};

const US_PER_MS: f64 = 1e3;
const US_PER_NS: f64 = 1e-3;
/// pgbench's threads; the machine is shared with proxy and server.
const THREADS: u16 = 2;

/// Runs it for so many seconds. The CPU of the sample is the proxy's.
pub fn run(
    pgbench: &Path,
    work: Work,
    server: &Server,
    proxy: &RunningProxy,
    seconds: f64,
) -> Result<Sample> {
    let meter = proxy.cpu_meter();
    let before_ns = meter.read_ns()?;
    let mut command = command(pgbench, work, server, proxy)?;
    let printed = printed(command.args(["--time", &seconds.ceil().to_string()]))?;
    let cpu_us = meter.read_ns()?.saturating_sub(before_ns) as f64 * US_PER_NS;
    let number = |what: &str| number_after(&printed, what).with_context(|| format!("no {what:?}: {printed}"));
    let operations = number("number of transactions actually processed:")?;
    // A transaction's time leaves out the connect that was made for it.
    let connect_ms = number_after(&printed, "average connection time =").unwrap_or(0.0);
    Ok(Sample {
        rate_per_s: number("tps =")?,
        cpu_us_per_op: cpu_us / operations,
        server_cpu_us_per_op: None,
        mean_us: (number("latency average =")? + connect_ms) * US_PER_MS,
        p95_us: None,
    })
}

/// So many operations of each client.
pub(super) fn run_count(
    pgbench: &Path,
    work: Work,
    server: &Server,
    proxy: &RunningProxy,
    count: u32,
) -> Result<f64> {
    let mut command = command(pgbench, work, server, proxy)?;
    printed(command.args(["--transactions", &count.to_string()]))?;
    Ok(f64::from(count) * f64::from(work.clients()))
}

fn command(pgbench: &Path, work: Work, server: &Server, proxy: &RunningProxy) -> Result<Command> {
    let Endpoint::Unix(socket) = proxy.endpoint() else { bail!("the proxy has no unix socket") };
    let directory = socket.parent().context("a socket lies in a directory")?;
    let port = socket.extension().context("PostgreSQL's sockets end with a port")?;
    let clients = work.clients();
    let mut command = Command::new(pgbench);
    command
        .arg("--no-vacuum")
        .args(["--client", &clients.to_string(), "--jobs", &clients.min(THREADS).to_string()])
        .arg("--host")
        .arg(directory)
        .arg("--port")
        .arg(port)
        .args(["--username", &server.account(Auth::default_of(Engine::Postgres)).user]);
    match work {
        Work::Connect { .. } => {
            // What pgbench has of its own reads a table; this is the least that can be asked.
            let script = directory.join("select-1.sql");
            std::fs::write(&script, "SELECT 1;\n").context("cannot write a script")?;
            command.args(["--protocol", "simple", "--connect", "--file"]).arg(script)
        }
        Work::Simple => command.args(["--protocol", "simple", "--select-only"]),
        Work::Prepared => command.args(["--protocol", "prepared", "--select-only"]),
    };
    command.args(["--progress", "3600"]).arg(server.database()).stdin(Stdio::null());
    Ok(command)
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot run pgbench")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pgbench failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
