//! `make bench`: compares ciphertoll's load generator with pgbench, sysbench and C loops, in shuffled rounds on one private
//! server per engine. Prints ratios and whether they meet the goals; they do not change the exit code, because machines
//! differ.

use anyhow::{Context, Result};
use ciphertoll_bench::agreement::Agreement;
use ciphertoll_bench::arm::{Generator, Tools};
use ciphertoll_bench::comparison::{COMPARISONS, PeerComparison};
use ciphertoll_bench::goal::goals;
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::setup::{BenchSetup, on_server};
use ciphertoll_bench::stall::{STALL, StallResult};
use ciphertoll_bench::{RoundArguments, print_line};
use ciphertoll_lab::Tables;
use ciphertoll_model::{Auth, Engine, Scale, ServerLevel};
use clap::Parser;

/// Compare ciphertoll's load generator with other tools, in shuffled rounds on one private server per engine
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    rounds: RoundArguments,
    /// Length of each measurement window; pgbench and sysbench round it up to whole seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Run only comparisons with this text in their title: PostgreSQL, connect, point-select, TLS, stall
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    let tools = Tools::find();
    print_line(&format!(
        "{} shuffled rounds of {} s; CPU is the client's, per operation; × is ciphertoll ÷ peer (95 %);\n\
         (close): the interval contains the limit",
        arguments.rounds.rounds, arguments.seconds
    ))?;
    for engine in Engine::SQL {
        let own = COMPARISONS.iter().filter(|comparison| comparison.engine == engine);
        let asked: Vec<_> = own.clone().filter(|own| own.title.contains(&arguments.only)).collect();
        let stall =
            format!("{}: a server stall of {} ms, 8 clients", engine.display_name(), STALL.as_millis());
        // An engine without comparisons needs no server.
        let stall = Some(stall).filter(|title| own.count() > 0 && title.contains(&arguments.only));
        if asked.is_empty() && stall.is_none() {
            continue;
        }
        let rows = Scale::DEFAULT;
        let pgbench = (engine == Engine::Postgres).then(|| rows.in_whole_branches());
        let tables = Tables { sysbench: Some(rows), pgbench, ..Tables::default() };
        let auths: Vec<Auth> = asked.iter().map(|comparison| comparison.auth).collect();
        on_server(&ServerLevel::of(engine), &tables, &auths, &tools, (rows, arguments.seconds), |setup| {
            measure(&asked, stall.as_deref(), setup, &arguments.rounds)
        })?;
    }
    Ok(())
}

fn measure(
    comparisons: &[&PeerComparison],
    stall: Option<&str>,
    setup: &BenchSetup<'_>,
    rounds: &RoundArguments,
) -> Result<()> {
    let engine = setup.server.engine().display_name();
    print_line(&format!("\n{engine} {}", setup.server.version()))?;
    let mut agreements = Vec::new();
    for comparison in comparisons {
        agreements.extend(compare(comparison, rounds, setup)?);
    }
    if !agreements.is_empty() {
        print_line(&format!("\n{engine}: agreement with the figures that the tools report"))?;
        agreements.iter().try_for_each(|line| print_line(line))?;
    }
    if let Some(title) = stall {
        print_line(&format!("\n{title}\n{}", StallResult::measure(setup)?))?;
    }
    Ok(())
}

/// Prints the results, and returns the lines about agreement with the tools.
fn compare(
    comparison: &PeerComparison,
    rounds: &RoundArguments,
    setup: &BenchSetup<'_>,
) -> Result<Vec<String>> {
    print_line(&format!("\n{}", comparison.title))?;
    let (here, missing): (Vec<Generator>, Vec<Generator>) =
        comparison.peers.iter().copied().partition(|peer| peer.is_installed(setup.tools));
    for peer in missing {
        print_line(&format!("  {} is not installed", peer.label()))?;
    }
    let generators: Vec<Generator> = [Generator::Native].into_iter().chain(here).collect();
    let arms = comparison.arms(&generators);
    let rounds = Rounds::run(&arms, rounds, setup)?;
    for (index, generator) in generators.iter().enumerate() {
        print_line(&rounds.line(index, generator.label())?)?;
    }
    for goal in goals(&generators, &rounds) {
        print_line(&format!("  {goal}"))?;
    }
    agreements(comparison, &generators, &rounds)
}

fn agreements(comparison: &PeerComparison, generators: &[Generator], rounds: &Rounds) -> Result<Vec<String>> {
    let processors = std::thread::available_parallelism().context("number of processors")?.get();
    let clients = comparison.work.clients();
    let tools = generators.iter().copied().enumerate().filter(|(_, generator)| generator.is_tool());
    let agreements = tools.filter_map(|tool| Agreement::of(rounds, 0, tool, clients, processors));
    Ok(agreements.map(|agreement| format!("  {}\n    {agreement}", comparison.title)).collect())
}
