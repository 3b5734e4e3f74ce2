//! Many clients on few server connections: memory per idle client, and throughput as the number of active clients grows.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_model::{Auth, Endpoint, Engine};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::PooledServer;
use super::run::{PoolSample, run_on};
use super::work::{ClientAction, PoolWorkload};
use crate::setup::BenchSetup;

/// The first two numbers of clients keep their connections. With the third, most transactions are of another client than
/// the last one on the connection, as with the last number.
pub const CLIENTS: [u16; 4] = [10, 100, 200, 5_000];
pub const IDLE: usize = 10_000;
/// Goals: the memory with [`IDLE`] clients, and the rate of the most clients ÷ that of few. The few are as many as there
/// are connections, or twice as many if only then connections are reset between clients, as with the most.
pub const MOST_MIB: f64 = 20.0;
pub const LEAST_RATE: f64 = 0.8;
/// Clients that determine the size of the pool: 100 connections.
pub const POOL_CLIENTS: u16 = 50;
/// The load generator is pinned to this processor, so that it cannot take more of the proxy's with more clients.
const PROCESSOR: &str = "0";
/// Protocol 3.0.
const VERSION: [u8; 4] = [0, 3, 0, 0];
/// `ReadyForQuery`, idle.
const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];
const MAX_GREETING_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
pub struct ProxyMemory {
    pub before_bytes: u64,
    /// With [`IDLE`] logged-in clients.
    pub with_clients_bytes: u64,
}

/// Every client needs a file descriptor, and the usual soft limit is 1024.
pub fn raise_file_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")
}

/// Measures the memory of the proxy before and after logging in [`IDLE`] clients.
pub fn memory(pool: &PooledServer, setup: &BenchSetup<'_>) -> Result<ProxyMemory> {
    let pid = pool.pid()?.context("there is no proxy")?;
    let before_bytes = resident_bytes(pid)?;
    let clients: Vec<UnixStream> = (0..IDLE).map(|_| log_in(pool, setup)).collect::<Result<_>>()?;
    let with_clients_bytes = resident_bytes(pid)?;
    drop(clients);
    Ok(ProxyMemory { before_bytes, with_clients_bytes })
}

fn log_in(pool: &PooledServer, setup: &BenchSetup<'_>) -> Result<UnixStream> {
    let Endpoint::Unix(socket) = &pool.endpoint else { bail!("the proxy has no unix socket") };
    let account = setup.server.account(Auth::default_of(Engine::Postgres));
    let parameters = format!("user\0{}\0database\0{}\0\0", account.user, setup.server.database());
    let length = u32::try_from(2 * VERSION.len() + parameters.len()).context("a name is too long")?;
    let mut client = UnixStream::connect(socket).context("cannot connect to the proxy")?;
    client.write_all(&[&length.to_be_bytes(), &VERSION, parameters.as_bytes()].concat()).context("log in")?;
    let (mut greeting, mut chunk) = (Vec::new(), [0; 1024]);
    while !greeting.ends_with(&READY) {
        let count = client.read(&mut chunk).context("log in")?;
        greeting.extend_from_slice(&chunk[..count]);
        if count == 0 || greeting.len() > MAX_GREETING_BYTES {
            bail!("the proxy refused a client: {}", String::from_utf8_lossy(&greeting));
        }
    }
    Ok(client)
}

fn resident_bytes(pid: i32) -> Result<u64> {
    const BYTES_PER_KB: u64 = 1024;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the proxy's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kb: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is a number")?;
    Ok(kb * BYTES_PER_KB)
}

/// Reads rows by key with this many concurrent clients.
pub fn run(clients: u16, pool: &PooledServer, setup: &BenchSetup<'_>, seconds: f64) -> Result<PoolSample> {
    let (act, admission) = (ClientAction::Text, SocketAuth::Trusted);
    let work = PoolWorkload { engine: Engine::Postgres, act, admission, clients };
    run_on(PROCESSOR, work, pool, setup, seconds)
}
