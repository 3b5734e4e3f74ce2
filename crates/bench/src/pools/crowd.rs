//! Many clients on few connections: what one costs that says nothing, and whether those that speak are served as fast
//! as if there were fewer of them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_lab::proxy::RunningProxy;
use ciphertoll_model::{Auth, Endpoint, Engine};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::run::{Run, as_user};
use super::{Place, Pool};
use crate::arm::number_after;

/// Clients that speak, at once.
pub const CLIENTS: [u16; 4] = [10, 100, 1_000, 5_000];
/// Clients that say nothing.
pub const IDLE: usize = 10_000;
/// The generator keeps to this processor: it must not have the proxy's as well where there are more of its clients.
const PROCESSOR: &str = "0";
/// Protocol 3.0.
const VERSION: [u8; 4] = [0, 3, 0, 0];
/// `ReadyForQuery`, idle.
const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];
/// The longest greeting that is read.
const MAX_GREETING_BYTES: usize = 16 << 10;

/// What the proxy holds in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Before anybody came.
    pub before_bytes: u64,
    /// With [`IDLE`] clients that have logged in.
    pub with_clients_bytes: u64,
}

/// Every client is a file, and the usual soft limit is 1024.
pub fn raise_file_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of files")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of files")
}

/// Logs [`IDLE`] clients in, and reads what the proxy has of the machine's memory.
pub fn memory(pool: &Pool, place: &Place<'_>) -> Result<Memory> {
    let proxy = pool.proxy().context("there is a proxy")?;
    let before_bytes = resident_bytes(proxy)?;
    let clients: Vec<UnixStream> = (0..IDLE).map(|_| log_in(pool, place)).collect::<Result<_>>()?;
    let with_clients_bytes = resident_bytes(proxy)?;
    drop(clients);
    Ok(Memory { before_bytes, with_clients_bytes })
}

fn log_in(pool: &Pool, place: &Place<'_>) -> Result<UnixStream> {
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("the proxy has no unix socket") };
    let account = place.server.account(Auth::default_of(Engine::Postgres));
    let parameters = format!("user\0{}\0database\0{}\0\0", account.user, place.server.database());
    let length = u32::try_from(2 * VERSION.len() + parameters.len()).context("a name is too long")?;
    let mut client = UnixStream::connect(socket).context("cannot connect to the proxy")?;
    client.write_all(&[&length.to_be_bytes(), &VERSION, parameters.as_bytes()].concat()).context("log in")?;
    let (mut greeting, mut chunk) = (Vec::new(), [0; 1024]);
    while !greeting.ends_with(&READY) {
        let count = client.read(&mut chunk).context("log in")?;
        greeting.extend_from_slice(&chunk[..count]);
        if count == 0 || greeting.len() > MAX_GREETING_BYTES {
            bail!("the proxy did not let a client in: {}", String::from_utf8_lossy(&greeting));
        }
    }
    Ok(client)
}

fn resident_bytes(proxy: &RunningProxy) -> Result<u64> {
    const BYTES_PER_KB: u64 = 1024;
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.pid())).context("the proxy's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kb: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is a number")?;
    Ok(kb * BYTES_PER_KB)
}

/// Rows read by their key by so many clients at once.
pub fn run(clients: u16, pool: &Pool, place: &Place<'_>, seconds: f64) -> Result<Run> {
    const US_PER_MS: f64 = 1e3;
    let pgbench =
        place.tools.pgbench.as_ref().context("there is no pgbench: install PostgreSQL's package")?;
    let proxy = pool.proxy().context("there is a proxy")?;
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", PROCESSOR]).arg(pgbench);
    command.args(["--no-vacuum", "--protocol", "simple", "--select-only", "--progress", "3600"]);
    command.args(["--client", &clients.to_string(), "--time", &seconds.ceil().to_string()]);
    as_user(&mut command, pool, place)?.arg(place.server.database());
    let meter = proxy.cpu_meter();
    let before_ns = meter.read_ns()?;
    let output = command.stdin(Stdio::null()).output().context("cannot run taskset and pgbench")?;
    let cpu_us = meter.read_ns()?.saturating_sub(before_ns) as f64 * 1e-3;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pgbench failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |what: &str| number_after(&printed, what).with_context(|| format!("no {what:?}: {printed}"));
    let operations = number("number of transactions actually processed:")?;
    Ok(Run {
        operations,
        rate_per_s: number("tps =")?,
        mean_us: number("latency average =")? * US_PER_MS,
        // That of the clients' logins is in it, too: they are few for the operations of one client.
        cpu_us_per_op: cpu_us / operations,
    })
}
