//! `make bench-pools`: ciphertoll-proxy beside `PgBouncer`, in front of one private PostgreSQL, over TLS 1.3. Prints ratios;
//! judges none by its exit code, for machines differ.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::{Sample, Tools};
use ciphertoll_bench::ciphertoll_program;
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::pools::{POOLS, Pool, Work};
use ciphertoll_lab::{Lab, Server, Start, Tables};
use ciphertoll_model::{Auth, Engine, Scale, ServerKey, ServerLevel, Strength};
use clap::Parser;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// ciphertoll-proxy beside `PgBouncer`, in shuffled rounds on one private PostgreSQL
#[derive(Parser)]
struct Arguments {
    /// Rounds that count
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Length of each run, in whole seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only work that has this in its title: connect, query, prepared, 1 client
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    let pgbench = Tools::find().pgbench.context("there is no pgbench: install PostgreSQL's package")?;
    let lab = Lab::open(ciphertoll_program()?)?;
    let mut server = start(&lab)?;
    server.prepare_auth(Auth::default_of(Engine::Postgres))?;
    let (mut pools, mut missing) = (Vec::new(), Vec::new());
    for label in POOLS {
        match Pool::start(label, &lab, &server) {
            Ok(pool) => pools.push(pool),
            Err(error) => missing.push(format!("  {label} is left out: {error:#}")),
        }
    }
    say(&format!(
        "PostgreSQL {}, TLS 1.3 behind, verified; unix socket in front, peer or trust; pgbench on libpq\n\
         {} shuffled rounds of {} s; times and CPU are per operation, CPU the proxy's",
        server.version(),
        arguments.rounds,
        arguments.seconds
    ))?;
    missing.iter().try_for_each(|line| say(line))?;
    for work in Work::ALL.into_iter().filter(|work| work.title().contains(&arguments.only)) {
        compare(work, &pools, &pgbench, &server, &arguments)?;
    }
    drop(pools);
    server.stop()?;
    Ok(())
}

fn start(lab: &Lab) -> Result<Server> {
    let build = ciphertoll_lab::find(&ServerLevel::of(Engine::Postgres))?;
    let tables = Tables { sysbench: None, pgbench: Some(Scale::DEFAULT.in_whole_branches()) };
    let template = lab.template(&build, &tables, &mut |_| (), &|| false)?;
    let log = lab.scratch().path().join("server.log");
    let start = Start {
        build: &build,
        template: &template,
        name: "s1",
        key: ServerKey::P256,
        log,
        preferred_port: None,
        processors: None,
        strength: Strength::Default,
    };
    Ok(lab.start(&start)?)
}

fn compare(work: Work, pools: &[Pool], pgbench: &Path, server: &Server, arguments: &Arguments) -> Result<()> {
    say(&format!("\n{}", work.title()))?;
    let rounds = rounds(work, pools, pgbench, server, arguments)?;
    for (index, pool) in pools.iter().enumerate() {
        let rate = rounds.level(index, |sample| sample.rate_per_s);
        let mean = rounds.level(index, |sample| sample.mean_us);
        let cpu = rounds.level(index, |sample| sample.cpu_us_per_op);
        let calls = pool.calls(pgbench, work, server)?;
        let calls = calls.map_or_else(|| "     –".to_owned(), |calls| format!("{calls:>6.1}"));
        let mut line =
            format!("  {:<27} {rate:>8.0} /s  {mean:>7.0} µs  {cpu:>6.1} µs CPU {calls} calls", pool.label);
        let mode = |label: &str| label.contains("transaction");
        let peer =
            pools.iter().position(|peer| mode(peer.label) == mode(pool.label)).filter(|peer| *peer < index);
        if let Some(peer) = peer {
            let rate = rounds.ratio(peer, index, |sample| sample.rate_per_s).context("too few rounds")?;
            let cpu = rounds.ratio(peer, index, |sample| sample.cpu_us_per_op).context("too few rounds")?;
            write!(line, "\n    ours ÷ this: rate × {rate}   CPU × {cpu}")?;
        }
        say(&line)?;
    }
    Ok(())
}

/// Every pool once in each round, in random order; the first round counts for nothing.
fn rounds(
    work: Work,
    pools: &[Pool],
    pgbench: &Path,
    server: &Server,
    arguments: &Arguments,
) -> Result<Rounds> {
    let mut random = Pcg64Mcg::seed_from_u64(arguments.seed);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); pools.len()];
    for round in 0..=arguments.rounds {
        let mut order: Vec<usize> = (0..pools.len()).collect();
        order.shuffle(&mut random);
        for index in order {
            let sample = pools[index].sample(pgbench, work, server, arguments.seconds)?;
            if round > 0 {
                samples[index].push(sample);
            }
        }
    }
    Ok(Rounds::of(samples))
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot write to stdout")
}
