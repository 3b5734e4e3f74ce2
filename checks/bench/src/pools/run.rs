//! Runs `pool_client` once over one route, and measures the CPU time of client, server and relay in its window.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_model::{Auth, Engine, TlsVersion};

use super::work::PoolWorkload;
use super::{PoolRoute, PooledServer};
use crate::arm::peer::{self, PeerResult};
use crate::setup::BenchSetup;

const US_PER_NS: f64 = 1e-3;
const WARM_UP_S: f64 = 0.1;
const CLIENT: &str = "pool_client";

#[derive(Clone, Copy, Debug)]
pub struct PoolSample {
    pub operations: f64,
    pub rate_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// CPU time per operation.
    pub client_us: f64,
    /// NaN without a proxy.
    pub relay_us: f64,
    pub server_us: f64,
}

impl PoolSample {
    /// CPU time per operation of proxy and server.
    pub fn relay_and_server_us(&self) -> f64 {
        self.relay_us + self.server_us
    }
}

/// The CPU clocks of relay and server.
struct PoolMeters {
    relay: Option<CpuMeter>,
    server: CpuMeter,
}

/// Readings of these clocks, in ns.
struct PoolReading {
    relay: Option<u64>,
    server: u64,
}

impl PoolMeters {
    fn of(pool: &PooledServer, setup: &BenchSetup<'_>) -> Result<Self> {
        let relay = pool.pid()?.map(|pid| CpuMeter::Process { pid });
        Ok(Self { relay, server: setup.server.cpu_meter() })
    }

    /// The relay first: reading a server of many processes takes longer.
    fn read(&self) -> Result<PoolReading> {
        let relay = self.relay.as_ref().map(CpuMeter::read_ns).transpose()?;
        Ok(PoolReading { relay, server: self.server.read_ns()? })
    }
}

/// One run with a short warm-up.
pub fn run(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    seconds: f64,
) -> Result<PoolSample> {
    let program = Command::new(setup.peers.join(CLIENT));
    run_client(program, work, pool, setup, (WARM_UP_S, seconds))
}

/// One run that counts every operation.
pub fn run_whole(
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    seconds: f64,
) -> Result<PoolSample> {
    run_client(Command::new(setup.peers.join(CLIENT)), work, pool, setup, (0.0, seconds))
}

/// One run on this processor only.
pub(super) fn run_on(
    processor: &str,
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    seconds: f64,
) -> Result<PoolSample> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processor]).arg(setup.peers.join(CLIENT));
    run_client(command, work, pool, setup, (WARM_UP_S, seconds))
}

fn run_client(
    mut command: Command,
    work: PoolWorkload,
    pool: &PooledServer,
    setup: &BenchSetup<'_>,
    (warm_up, seconds): (f64, f64),
) -> Result<PoolSample> {
    let tls = (pool.route == PoolRoute::Tls).then_some(TlsVersion::Tls13);
    let auth = auth(work, pool.route);
    peer::add_connection(&mut command, setup, &pool.endpoint, tls, auth)?;
    let (protocol, rows) = match work.engine {
        Engine::Postgres => ("postgres", setup.accounts()),
        Engine::MariaDb | Engine::MySql => ("mariadb", setup.rows),
        engine @ (Engine::MongoDb | Engine::FerretDb) => bail!("no proxy supports {engine}"),
    };
    command.args(["--protocol", protocol, "--operation", work.act.argument(), "--announce"]);
    command.args(["--clients", &work.clients.to_string(), "--rows", &rows.rows().to_string()]);
    command.args(["--seconds", &seconds.to_string(), "--warm-up", &warm_up.to_string()]);
    measure(&mut command, &PoolMeters::of(pool, setup)?)
}

/// How clients log in. Directly, PostgreSQL trusts its clients in the workloads in which proxies do.
fn auth(work: PoolWorkload, route: PoolRoute) -> Auth {
    let is_direct = matches!(route, PoolRoute::Unix | PoolRoute::Tls);
    if is_direct && work.engine == Engine::Postgres && work.admission == SocketAuth::Trusted {
        Auth::Trust
    } else {
        Auth::default_of(work.engine)
    }
}

/// Reads the meters when the client announces the start and the end of its window.
fn measure(command: &mut Command, meters: &PoolMeters) -> Result<PoolSample> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {CLIENT}"))?;
    let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let (mut readings, mut last) = (Vec::new(), String::new());
    for line in lines {
        last = line.with_context(|| format!("cannot read from {CLIENT}"))?;
        if ["opened", "closed"].contains(&last.as_str()) {
            readings.push(meters.read()?);
        }
    }
    let mut said = String::new();
    child.stderr.take().context("no stderr")?.read_to_string(&mut said).context("cannot read stderr")?;
    let status = child.wait().with_context(|| format!("cannot wait for {CLIENT}"))?;
    if !status.success() {
        bail!("{CLIENT} failed: {status}: {}", said.lines().last().unwrap_or_default());
    }
    let [opened, closed] = &readings[..] else { bail!("{CLIENT} did not announce its window") };
    Ok(sample(&peer::parse(&last)?, opened, closed))
}

fn sample(result: &PeerResult, opened: &PoolReading, closed: &PoolReading) -> PoolSample {
    let per_operation = |ns: u64| ns as f64 * US_PER_NS / result.operations;
    let relay = closed.relay.zip(opened.relay).map(|(end, begin)| end.saturating_sub(begin));
    PoolSample {
        operations: result.operations,
        rate_per_s: result.rate_per_s,
        p50_us: result.p50_ns * US_PER_NS,
        p99_us: result.p99_ns * US_PER_NS,
        client_us: result.cpu_us_per_op,
        relay_us: relay.map_or(f64::NAN, per_operation),
        server_us: per_operation(closed.server.saturating_sub(opened.server)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_per_operation() {
        let line = "{\"operations\":1000,\"seconds\":1.0,\"rate_per_s\":1000.0,\"cpu_us_per_op\":20.5,\
                    \"p50_ns\":90000,\"p99_ns\":250000,\"mean_ns\":100000.0}";
        let result = peer::parse(line).unwrap();
        let opened = PoolReading { relay: Some(1_000_000), server: 5_000_000 };
        let closed = PoolReading { relay: Some(51_000_000), server: 85_000_000 };
        let taken = sample(&result, &opened, &closed);
        assert_eq!((taken.relay_us, taken.server_us, taken.client_us), (50.0, 80.0, 20.5));
        assert_eq!((taken.p50_us, taken.p99_us), (90.0, 250.0));
        assert_eq!((taken.relay_and_server_us(), taken.operations), (130.0, 1000.0));
        let direct = PoolReading { relay: None, server: 0 };
        assert!(sample(&result, &direct, &direct).relay_us.is_nan());
        assert!(peer::parse("pool_client: no").is_err());
    }
}
