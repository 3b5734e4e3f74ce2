//! `make bench-pools`: ciphertoll-proxy beside `PgBouncer` and, where it is installed, `ProxySQL`, each in front of one private
//! server and over TLS 1.3, and beside no proxy at all. Prints ratios; judges none by its exit code, for machines differ.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::Tools;
use ciphertoll_bench::interleave::{Ratio, Rounds};
use ciphertoll_bench::pools::calls::calls_per_op;
use ciphertoll_bench::pools::run::{ROWS, Run, run};
use ciphertoll_bench::pools::work::Work;
use ciphertoll_bench::pools::{Place, Pool, Way, crowd};
use ciphertoll_bench::{ciphertoll_program, peers_directory, say, start_server};
use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_lab::{Lab, Tables};
use ciphertoll_model::{Auth, Engine};
use clap::Parser;

/// The title under which many clients are found by `--only`.
const CROWD: &str = "PostgreSQL: many clients on few connections, transaction mode";

/// ciphertoll-proxy beside `PgBouncer` and `ProxySQL`, in shuffled rounds on one private server of each engine
#[derive(Parser)]
struct Arguments {
    /// Rounds that count
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Length of each run, in whole seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only work that has this in its title: PostgreSQL, MariaDB, connect, query, prepared, 1 client, many
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    crowd::raise_file_limit()?;
    say(&format!(
        "TLS 1.3 behind, verified; unix socket in front; pgbench on libpq, a loop on libmariadb, sysbench\n\
         {} shuffled rounds of {} s; times and CPU are per operation, CPU the proxy's; × is ours ÷ the peer's (95 %)",
        arguments.rounds, arguments.seconds
    ))?;
    for engine in [Engine::Postgres, Engine::MariaDb] {
        let asked = |work: &Work| work.engine == engine && work.title().contains(&arguments.only);
        let works: Vec<Work> = Work::ALL.into_iter().filter(asked).collect();
        let crowd = engine == Engine::Postgres && CROWD.contains(&arguments.only);
        if crowd || !works.is_empty() {
            on_server(engine, &works, crowd, &arguments)?;
        }
    }
    Ok(())
}

fn on_server(engine: Engine, works: &[Work], crowd: bool, arguments: &Arguments) -> Result<()> {
    let lab = Lab::open(ciphertoll_program()?)?;
    let tables = match engine {
        Engine::Postgres => Tables { pgbench: Some(ROWS.in_whole_branches()), ..Tables::default() },
        Engine::MariaDb | Engine::MySql => Tables { sysbench: Some(ROWS), ..Tables::default() },
        Engine::MongoDb | Engine::FerretDb => Tables::default(),
    };
    let mut server = start_server(&lab, engine, &tables)?;
    server.prepare_auth(Auth::default_of(engine))?;
    let place = Place {
        lab: &lab,
        server: &server,
        tools: &Tools::find(),
        peers: peers_directory()?,
        private: lab.scratch().make_directory("bench", 0o700)?,
    };
    say(&format!("\n{} {}", engine.display_name(), server.version()))?;
    for admission in [SocketAuth::Trusted, SocketAuth::Password] {
        let works: Vec<Work> = works.iter().copied().filter(|work| work.admission == admission).collect();
        if works.is_empty() {
            continue;
        }
        let mut pools = Vec::new();
        for way in Way::of(engine, admission) {
            match Pool::start(*way, admission, &place) {
                Ok(pool) => pools.push(pool),
                Err(error) => say(&format!("  {} is left out: {error:#}", way.label()))?,
            }
        }
        works.into_iter().try_for_each(|work| compare(work, &pools, &place, arguments))?;
    }
    if crowd {
        many(&place, arguments)?;
    }
    server.stop()?;
    Ok(())
}

fn compare(work: Work, pools: &[Pool], place: &Place<'_>, arguments: &Arguments) -> Result<()> {
    say(&format!("\n{}", work.title()))?;
    let pools: Vec<&Pool> = pools.iter().filter(|pool| pool.way.is_for(work)).collect();
    let sample = |index: usize| run(work, pools[index], place, arguments.seconds);
    let rounds = Rounds::take(pools.len(), arguments.rounds, arguments.seed, sample, |_| ())?;
    for (index, pool) in pools.iter().enumerate() {
        let mut line = level(pool.way.label(), &rounds, index);
        if let Some(calls) = calls_per_op(work, pool, place)? {
            write!(line, " {calls:>6.1} calls")?;
        }
        say(&line)?;
    }
    for (ours, own) in pools.iter().enumerate() {
        for (peer, other) in pools.iter().enumerate() {
            let beside = own.way.is_ours_beside(other.way);
            if beside || (own.way == Way::Proxy("proxy") && other.way == Way::Unix) {
                let rate = ratio(&rounds, ours, peer, |run| run.rate_per_s)?;
                let mut line = format!("  {} ÷ {}: rate × {rate}", own.way.label(), other.way.label());
                if beside {
                    let cpu = ratio(&rounds, ours, peer, |run| run.cpu_us_per_op)?;
                    let met = [(rate.value >= work.wanted.rate), (cpu.value <= work.wanted.cpu)].map(answer);
                    write!(line, "   CPU × {cpu}\n    wanted: ")?;
                    write!(
                        line,
                        "rate ≥ {:.2}: {}, CPU ≤ {:.2}: {}",
                        work.wanted.rate, met[0], work.wanted.cpu, met[1]
                    )?;
                }
                say(&line)?;
            }
        }
    }
    Ok(())
}

fn answer(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "no" }
}

fn ratio(rounds: &Rounds<Run>, ours: usize, peer: usize, value: impl Fn(&Run) -> f64) -> Result<Ratio> {
    rounds.ratio(ours, peer, value).context("too few rounds")
}

fn level(label: &str, rounds: &Rounds<Run>, index: usize) -> String {
    let rate = rounds.level(index, |run| run.rate_per_s);
    let mean = rounds.level(index, |run| run.mean_us);
    let cpu = rounds.level(index, |run| run.cpu_us_per_op);
    let cpu = if cpu.is_nan() { String::new() } else { format!("{cpu:>6.1} µs CPU") };
    format!("  {label:<27} {rate:>8.0} /s  {mean:>7.0} µs  {cpu}")
}

/// What one more client costs.
fn many(place: &Place<'_>, arguments: &Arguments) -> Result<()> {
    const MB: f64 = 1e6;
    let pool = Pool::start(Way::Proxy("proxy+mode=transaction"), SocketAuth::Trusted, place)?;
    say(&format!("\n{CROWD}"))?;
    let memory = crowd::memory(&pool, place)?;
    let [before, after] = [memory.before_bytes, memory.with_clients_bytes].map(|bytes| bytes as f64 / MB);
    say(&format!(
        "  memory: {before:.1} MB, with {} idle clients {after:.1} MB\n    wanted: ≤ 100 MB: {}",
        crowd::IDLE,
        answer(after <= 100.0)
    ))?;
    let sample = |index: usize| crowd::run(crowd::CLIENTS[index], &pool, place, arguments.seconds);
    let rounds = Rounds::take(crowd::CLIENTS.len(), arguments.rounds, arguments.seed, sample, |_| ())?;
    for (index, clients) in crowd::CLIENTS.into_iter().enumerate() {
        let mut line = level(&format!("query, text; {clients} clients"), &rounds, index);
        if index > 0 {
            write!(line, "   rate × {} of 10 clients'", ratio(&rounds, index, 0, |run| run.rate_per_s)?)?;
        }
        say(&line)?;
    }
    let last = ratio(&rounds, crowd::CLIENTS.len() - 1, 0, |run| run.rate_per_s)?;
    say(&format!("    wanted: rate ≥ 0.90 of 10 clients': {}", answer(last.value >= 0.9)))
}
