//! `make bench-pools`: compares ciphertoll-proxy with `PgBouncer`, with `ProxySQL` if installed, and with direct connections,
//! on private servers over TLS 1.3. Prints ratios; they do not change the exit code, because machines differ.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::Tools;
use ciphertoll_bench::interleave::{Ratio, Rounds};
use ciphertoll_bench::pools::calls::calls_per_op;
use ciphertoll_bench::pools::run::{GeneratorRun, run};
use ciphertoll_bench::pools::work::PoolWorkload;
use ciphertoll_bench::pools::{PoolRoute, PooledServer, crowd};
use ciphertoll_bench::setup::{BenchSetup, on_server};
use ciphertoll_bench::{RoundArguments, print_line};
use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_lab::{Lab, Tables};
use ciphertoll_model::{Auth, Engine, Scale};
use clap::Parser;

/// The title of the measurement with many clients, matched by `--only`.
const CROWD: &str = "PostgreSQL: many clients on few connections, transaction mode";

/// Compare ciphertoll-proxy with `PgBouncer` and `ProxySQL`, in shuffled rounds on one private server per engine
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    rounds: RoundArguments,
    /// Length of each run, in whole seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Run only workloads with this text in their title: PostgreSQL, MariaDB, connect, query, prepared, 1 client, many
    #[arg(long, default_value = "")]
    only: String,
    /// Also measure ciphertoll-proxy of another build, in the same rounds
    #[arg(long, value_name = "DIRECTORY")]
    baseline: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    crowd::raise_file_limit()?;
    print_line(&format!(
        "upstream TLS 1.3, verified; downstream unix socket; pgbench on libpq, a loop on libmariadb, sysbench\n\
         {} shuffled rounds of {} s; latency and CPU (of the proxy) per operation; × is ciphertoll-proxy ÷ peer (95 %)",
        arguments.rounds.rounds, arguments.seconds
    ))?;
    let (rows, tools) = (Scale::DEFAULT, Tools::find());
    let baseline = arguments.baseline.map(|directory| Lab::open(directory.join("ciphertoll"))).transpose()?;
    for engine in [Engine::Postgres, Engine::MariaDb] {
        let asked = |work: &PoolWorkload| work.engine == engine && work.title().contains(&arguments.only);
        let works: Vec<PoolWorkload> = PoolWorkload::ALL.into_iter().filter(asked).collect();
        let crowd = engine == Engine::Postgres && CROWD.contains(&arguments.only);
        if !crowd && works.is_empty() {
            continue;
        }
        let pgbench = (engine == Engine::Postgres).then(|| rows.in_whole_branches());
        let sysbench = (engine == Engine::MariaDb).then_some(rows);
        let tables = Tables { pgbench, sysbench, ..Tables::default() };
        let auths = [Auth::default_of(engine)];
        on_server(engine, &tables, &auths, &tools, (rows, arguments.seconds), |setup| {
            measure(&works, crowd, setup, baseline.as_ref(), &arguments.rounds)
        })?;
    }
    Ok(())
}

fn measure(
    works: &[PoolWorkload],
    crowd: bool,
    setup: &BenchSetup<'_>,
    baseline: Option<&Lab>,
    rounds: &RoundArguments,
) -> Result<()> {
    let engine = setup.server.engine();
    print_line(&format!("\n{} {}", engine.display_name(), setup.server.version()))?;
    for admission in [SocketAuth::Trusted, SocketAuth::Password] {
        let works: Vec<PoolWorkload> =
            works.iter().copied().filter(|work| work.admission == admission).collect();
        if works.is_empty() {
            continue;
        }
        let mut pools = Vec::new();
        let routes = PoolRoute::of(engine, admission).iter().copied();
        let baselines = routes.clone().filter(|_| baseline.is_some()).filter_map(PoolRoute::in_baseline);
        for route in routes.chain(baselines) {
            match PooledServer::start(route, admission, setup, baseline) {
                Ok(pool) => pools.push(pool),
                Err(error) => print_line(&format!("  {} is skipped: {error:#}", route.label()))?,
            }
        }
        works.into_iter().try_for_each(|work| compare(work, &pools, setup, rounds))?;
    }
    if crowd { many(setup, rounds) } else { Ok(()) }
}

fn compare(
    work: PoolWorkload,
    pools: &[PooledServer],
    setup: &BenchSetup<'_>,
    rounds: &RoundArguments,
) -> Result<()> {
    print_line(&format!("\n{}", work.title()))?;
    let pools: Vec<&PooledServer> = pools.iter().filter(|pool| pool.route.is_for(work)).collect();
    let sample = |index: usize| run(work, pools[index], setup, setup.seconds);
    let rounds = Rounds::take(pools.len(), rounds, sample)?;
    for (index, pool) in pools.iter().enumerate() {
        let mut line = level(&pool.route.label(), &rounds, index);
        if let Some(calls) = calls_per_op(work, pool, setup)? {
            write!(line, " {calls:>6.1} calls")?;
        }
        print_line(&line)?;
    }
    for (ours, own) in pools.iter().enumerate() {
        for (peer, other) in pools.iter().enumerate() {
            let is_peer = own.route.is_peer_of(other.route);
            if is_peer || (own.route == PoolRoute::Proxy("proxy") && other.route == PoolRoute::Unix) {
                let rate = ratio(&rounds, ours, peer, |run| run.rate_per_s)?;
                let mut line = format!("  {} ÷ {}: rate × {rate}", own.route.label(), other.route.label());
                if is_peer {
                    let is_other_build = matches!(other.route, PoolRoute::Baseline(_));
                    let cpu = ratio(&rounds, ours, peer, |run| run.cpu_us_per_op)?;
                    write!(line, "   CPU × {cpu}")?;
                    if !is_other_build {
                        let met = [(rate.value >= work.goal.rate), (cpu.value <= work.goal.cpu)].map(answer);
                        let goal = &work.goal;
                        write!(
                            line,
                            "\n    goal: rate ≥ {:.2}: {}, CPU ≤ {:.2}: {}",
                            goal.rate, met[0], goal.cpu, met[1]
                        )?;
                    }
                }
                print_line(&line)?;
            }
        }
    }
    Ok(())
}

fn answer(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "no" }
}

fn ratio(
    rounds: &Rounds<GeneratorRun>,
    ours: usize,
    peer: usize,
    value: impl Fn(&GeneratorRun) -> f64,
) -> Result<Ratio> {
    rounds.ratio(ours, peer, value).context("too few rounds")
}

fn level(label: &str, rounds: &Rounds<GeneratorRun>, index: usize) -> String {
    let rate = rounds.level(index, |run| run.rate_per_s);
    let mean = rounds.level(index, |run| run.mean_us);
    let cpu = rounds.level(index, |run| run.cpu_us_per_op);
    let cpu = if cpu.is_nan() { String::new() } else { format!("{cpu:>6.1} µs CPU") };
    format!("  {label:<27} {rate:>8.0} /s  {mean:>7.0} µs  {cpu}")
}

fn many(setup: &BenchSetup<'_>, rounds: &RoundArguments) -> Result<()> {
    const MB: f64 = 1e6;
    let pool =
        PooledServer::start(PoolRoute::Proxy("proxy+mode=transaction"), SocketAuth::Trusted, setup, None)?;
    print_line(&format!("\n{CROWD}"))?;
    let memory = crowd::memory(&pool, setup)?;
    let [before, after] = [memory.before_bytes, memory.with_clients_bytes].map(|bytes| bytes as f64 / MB);
    print_line(&format!(
        "  memory: {before:.1} MB, with {} idle clients {after:.1} MB\n    goal: ≤ 100 MB: {}",
        crowd::IDLE,
        answer(after <= 100.0)
    ))?;
    let sample = |index: usize| crowd::run(crowd::CLIENTS[index], &pool, setup, setup.seconds);
    let rounds = Rounds::take(crowd::CLIENTS.len(), rounds, sample)?;
    for (index, clients) in crowd::CLIENTS.into_iter().enumerate() {
        let mut line = level(&format!("query, text; {clients} clients"), &rounds, index);
        if index > 0 {
            write!(line, "   rate × {} of 10 clients'", ratio(&rounds, index, 0, |run| run.rate_per_s)?)?;
        }
        print_line(&line)?;
    }
    let last = ratio(&rounds, crowd::CLIENTS.len() - 1, 0, |run| run.rate_per_s)?;
    print_line(&format!("    goal: rate ≥ 0.90 of 10 clients': {}", answer(last.value >= 0.9)))
}
