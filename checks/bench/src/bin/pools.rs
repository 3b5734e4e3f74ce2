//! `make bench-pools`: compares ciphertoll-proxy with other proxies if installed, with the cheapest possible relays, and
//! with direct connections, on private servers over TLS 1.3. Prints ratios; they do not change the exit code, because
//! machines differ.

use std::path::PathBuf;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::Tools;
use ciphertoll_bench::interleave::{Ratio, Rounds};
use ciphertoll_bench::pools::calls::calls_per_op;
use ciphertoll_bench::pools::goal::judge_rate;
use ciphertoll_bench::pools::report::{PoolReport, heading, line};
use ciphertoll_bench::pools::run::run;
use ciphertoll_bench::pools::work::PoolWorkload;
use ciphertoll_bench::pools::{PoolRoute, PoolUse, PooledServer, crowd};
use ciphertoll_bench::setup::{BenchSetup, on_server};
use ciphertoll_bench::{RoundArguments, print_line};
use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_lab::{Lab, Tables};
use ciphertoll_model::{Auth, Engine, ProxyProgram, Scale, ServerLevel};
use clap::Parser;

/// The title of the measurement with many clients, matched by `--only`.
const CROWD: &str = "PostgreSQL: many clients on few connections, transaction mode";

/// Compare ciphertoll-proxy with other proxies and with the cheapest possible relays, in shuffled rounds on one private
/// server per engine
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    rounds: RoundArguments,
    /// Length of each run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Run only workloads with this text in their title: PostgreSQL, MariaDB, MySQL, connect, query, prepared, 1 client, many
    #[arg(long, default_value = "")]
    only: String,
    /// PostgreSQL to measure with, as in `ciphertoll run --server`
    #[arg(long, value_name = "SERVER", default_value = "postgres")]
    postgres: ServerLevel,
    /// MySQL to measure with, as in `ciphertoll run --server`; skipped if it is not found
    #[arg(long, value_name = "SERVER", default_value = "mysql")]
    mysql: ServerLevel,
    /// Also measure ciphertoll-proxy of another build, in the same rounds
    #[arg(long, value_name = "DIRECTORY")]
    baseline: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    crowd::raise_file_limit()?;
    print_line(&format!(
        "upstream TLS 1.3, verified; downstream unix socket; one C client on libpq and libmariadb\n\
         {} shuffled rounds of {} s, after a warm-up round; µs of latency, and µs of CPU time per operation;\n\
         calls: system calls of the relay per operation; × is ciphertoll-proxy ÷ peer (95 % interval)",
        arguments.rounds.rounds, arguments.seconds
    ))?;
    let (rows, tools) = (Scale::DEFAULT, Tools::find());
    let baseline = arguments.baseline.map(|directory| Lab::open(directory.join("ciphertoll"))).transpose()?;
    for level in [arguments.postgres, ServerLevel::of(Engine::MariaDb), arguments.mysql] {
        let engine = level.engine;
        let asked = |work: &PoolWorkload| work.engine == engine && work.title().contains(&arguments.only);
        let works: Vec<PoolWorkload> = PoolWorkload::ALL.into_iter().filter(asked).collect();
        let crowd = engine == Engine::Postgres && CROWD.contains(&arguments.only);
        if !crowd && works.is_empty() {
            continue;
        }
        let pgbench = (engine == Engine::Postgres).then(|| rows.in_whole_branches());
        let sysbench = engine.is_mysql_family().then_some(rows);
        let tables = Tables { pgbench, sysbench, ..Tables::default() };
        let trust = (engine == Engine::Postgres).then_some(Auth::Trust);
        let auths: Vec<Auth> = trust.into_iter().chain([Auth::default_of(engine)]).collect();
        if let (Engine::MySql, Err(missing)) = (engine, ciphertoll_lab::find(&level)) {
            print_line(&format!("\nMySQL is skipped: {missing}"))?;
            continue;
        }
        on_server(&level, &tables, &auths, &tools, (rows, arguments.seconds), |setup| {
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
    for program in ProxyProgram::all() {
        let version = setup.lab.proxy_version(program);
        if !version.is_empty() && ciphertoll_model::Proxy::of(program).impossible(engine).is_none() {
            print_line(&format!("  {} {version}", program.display_name()))?;
        }
    }
    for admission in [SocketAuth::Trusted, SocketAuth::Password] {
        let works: Vec<PoolWorkload> =
            works.iter().copied().filter(|work| work.admission == admission).collect();
        if works.is_empty() {
            continue;
        }
        let routes = PoolRoute::of(engine, admission);
        let of_baseline = routes.iter().filter(|_| baseline.is_some()).filter_map(|own| own.in_baseline());
        let mut pools = Vec::new();
        for route in routes.iter().copied().chain(of_baseline) {
            match PooledServer::start(route, PoolUse::of(admission), setup, baseline) {
                Ok(pool) => pools.push(pool),
                Err(error) => print_line(&format!("  {} is skipped: {error:#}", route.label()))?,
            }
        }
        for work in works {
            if let Err(error) = compare(work, &pools, setup, rounds) {
                // A process that has ended says why.
                pools.iter_mut().try_for_each(|pool| pool.check().context(pool.route.label()))?;
                return Err(error);
            }
        }
    }
    if crowd { many(setup, rounds) } else { Ok(()) }
}

/// Another proxy that serves no client within a run is left out of the workload.
fn compare(
    work: PoolWorkload,
    pools: &[PooledServer],
    setup: &BenchSetup<'_>,
    rounds: &RoundArguments,
) -> Result<()> {
    print_line(&format!("\n{}\n{}", work.title(), heading()))?;
    let mut pools: Vec<&PooledServer> = pools.iter().collect();
    let taken = loop {
        let mut failed = None;
        let sample = |arm: usize| {
            let sample = run(work, pools[arm], setup, setup.seconds).context(pools[arm].route.label());
            failed = sample.is_err().then_some(arm);
            sample
        };
        match Rounds::take(pools.len(), rounds, sample) {
            Ok(taken) => break taken,
            Err(error) => match failed {
                Some(arm) if matches!(pools[arm].route, PoolRoute::Peer(_)) => {
                    print_line(&format!("  {:<34} left out: {error:#}", pools[arm].route.label()))?;
                    pools.remove(arm);
                }
                _ => return Err(error),
            },
        }
    };
    for (arm, pool) in pools.iter().enumerate() {
        let calls = calls_per_op(work, pool, setup)?;
        print_line(&line(&pool.route.label(), &taken, arm, calls))?;
    }
    let routes: Vec<PoolRoute> = pools.iter().map(|pool| pool.route).collect();
    let report = PoolReport { work, routes: &routes, rounds: &taken };
    report.ratios()?.iter().try_for_each(|line| print_line(line))
}

fn answer(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "no" }
}

/// Many clients through each route that is there: memory per idle client, and throughput by the number of clients.
fn many(setup: &BenchSetup<'_>, rounds: &RoundArguments) -> Result<()> {
    let pool_use = PoolUse { admission: SocketAuth::Trusted, clients: crowd::POOL_CLIENTS };
    print_line(&format!("\n{CROWD}: {} connections", 2 * crowd::POOL_CLIENTS))?;
    let mut pools = Vec::new();
    for route in PoolRoute::CROWD {
        match PooledServer::start(route, pool_use, setup, None) {
            Ok(pool) => pools.push(pool),
            Err(error) => print_line(&format!("  {} is skipped: {error:#}", route.label()))?,
        }
    }
    for pool in &pools {
        print_memory(pool, setup)?;
    }
    print_line(&heading())?;
    let arms: Vec<(&PooledServer, u16)> =
        pools.iter().flat_map(|pool| crowd::CLIENTS.map(|clients| (pool, clients))).collect();
    let sample = |arm: usize| {
        let (pool, clients) = arms[arm];
        crowd::run(clients, pool, setup, setup.seconds)
            .with_context(|| format!("{}, {clients} clients", pool.route.label()))
    };
    let rounds = Rounds::take(arms.len(), rounds, sample)?;
    for (arm, (pool, clients)) in arms.iter().enumerate() {
        print_line(&line(&format!("{}, {clients} clients", pool.route.label()), &rounds, arm, None))?;
    }
    let [.., few, shared, most] = crowd::CLIENTS;
    for (at, pool) in pools.iter().enumerate() {
        let arm_of_most = (at + 1) * crowd::CLIENTS.len() - 1;
        let ratio_to = |arm| rounds.ratio(arm_of_most, arm, |run| run.rate_per_s).context("too few rounds");
        let (arm_of_few, arm_of_shared) = (arm_of_most - 2, arm_of_most - 1);
        let (to_few, to_shared) = (ratio_to(arm_of_few)?, ratio_to(arm_of_shared)?);
        // The rate on busy processors is inverse to the CPU time: this is the ratio of a relay that needs none.
        let without_relay = rounds.ratio(arm_of_few, arm_of_most, |run| run.client_us + run.server_us);
        let without_relay = without_relay.context("too few rounds")?;
        let goal = |ratio: Ratio| judge_rate(ratio, Some(crowd::LEAST_RATE));
        // The goal is for like with like: clients that keep their connections need no resets.
        let (goal_of_few, goal_of_shared) = if pool.route.resets_between_clients() {
            (String::new(), goal(to_shared))
        } else {
            (goal(to_few), String::new())
        };
        print_line(&format!(
            "  {}: {most} clients ÷ {few} clients: rate × {to_few}{goal_of_few}, \
             by the CPU of client and server alone × {without_relay}; ÷ {shared} clients: × {to_shared}{goal_of_shared}",
            pool.route.label(),
        ))?;
    }
    Ok(())
}

fn print_memory(pool: &PooledServer, setup: &BenchSetup<'_>) -> Result<()> {
    const MIB: f64 = (1 << 20) as f64;
    let memory = crowd::memory(pool, setup).context(pool.route.label())?;
    let [before, after] = [memory.before_bytes, memory.with_clients_bytes].map(|bytes| bytes as f64 / MIB);
    print_line(&format!(
        "  {}: {before:.1} MiB, with {} idle clients {after:.1} MiB [goal ≤ {:.0} MiB: {}]",
        pool.route.label(),
        crowd::IDLE,
        crowd::MOST_MIB,
        answer(after <= crowd::MOST_MIB)
    ))
}
