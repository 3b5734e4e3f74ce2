//! `make bench`: ciphertoll's load generator beside pgbench, sysbench, a libmariadb loop and the floor,
//! in shuffled rounds on one private server of each engine. Prints ratios and whether they are as is
//! wanted; judges none by its exit code, for machines differ.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ciphertoll_bench::agreement::Agreement;
use ciphertoll_bench::arm::{Generator, Place, Tools};
use ciphertoll_bench::comparison::{Comparison, comparisons};
use ciphertoll_bench::goal::goals;
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::stall::{STALL, Stalled};
use ciphertoll_bench::{ciphertoll_program, peers_directory, say, start_server};
use ciphertoll_lab::{Lab, Tables};
use ciphertoll_model::{Engine, Scale};
use clap::Parser;

/// ciphertoll's load generator beside its peers, in shuffled rounds on one private server of each engine
#[derive(Parser)]
struct Arguments {
    /// Rounds that count
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Length of each run's window; pgbench and sysbench take the next whole second
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Only what has this in its title: PostgreSQL, connect, point-select, TLS, stall
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What is measured on one engine.
struct Programme {
    engine: Engine,
    comparisons: Vec<Comparison>,
    /// The title of the planted stall.
    stall: Option<String>,
}

impl Programme {
    fn of(engine: Engine, only: &str) -> Self {
        let stall =
            format!("{}: a planted stall of {} ms, 8 clients", engine.display_name(), STALL.as_millis());
        let own: Vec<Comparison> =
            comparisons().into_iter().filter(|comparison| comparison.engine == engine).collect();
        // Where there is no peer to be beside, there is nothing to start a server for.
        let stall = Some(stall).filter(|title| !own.is_empty() && title.contains(only));
        let asked = |comparison: &Comparison| comparison.title.contains(only);
        Self { engine, comparisons: own.into_iter().filter(asked).collect(), stall }
    }

    fn is_empty(&self) -> bool {
        self.comparisons.is_empty() && self.stall.is_none()
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    let tools = Tools::find();
    say(&format!(
        "{} shuffled rounds of {} s; CPU is the client's, per operation; × is ciphertoll ÷ peer (95 %);\n\
         (close): the interval holds the limit",
        arguments.rounds, arguments.seconds
    ))?;
    for engine in Engine::SQL {
        let programme = Programme::of(engine, &arguments.only);
        if !programme.is_empty() {
            carry_out(&programme, &tools, &arguments)?;
        }
    }
    Ok(())
}

fn carry_out(programme: &Programme, tools: &Tools, arguments: &Arguments) -> Result<()> {
    let program = ciphertoll_program()?;
    let lab = Lab::open(program.clone())?;
    let rows = Scale::DEFAULT;
    let accounts = rows.in_whole_branches();
    let pgbench = (programme.engine == Engine::Postgres).then_some(accounts);
    let tables = Tables { sysbench: Some(rows), pgbench, ..Tables::default() };
    let mut server = start_server(&lab, programme.engine, &tables)?;
    for comparison in &programme.comparisons {
        server.prepare_auth(comparison.auth)?;
    }
    let place = Place {
        server: &server,
        program,
        peers: peers_directory()?,
        tools: tools.clone(),
        private: lab.scratch().make_directory("bench", 0o700)?,
        rows,
        accounts,
        seconds: arguments.seconds,
    };
    say(&format!("\n{} {}", programme.engine.display_name(), server.version()))?;
    let mut agreements = Vec::new();
    for comparison in &programme.comparisons {
        agreements.extend(compare(comparison, arguments, &place)?);
    }
    if !agreements.is_empty() {
        say(&format!(
            "\n{}: agreement with what the tools print of themselves",
            programme.engine.display_name()
        ))?;
        agreements.iter().try_for_each(|line| say(line))?;
    }
    if let Some(title) = &programme.stall {
        say(&format!("\n{title}\n{}", Stalled::plant(&place)?))?;
    }
    server.stop()?;
    Ok(())
}

/// Prints what came out; what the tools agree on comes later, with the others.
fn compare(comparison: &Comparison, arguments: &Arguments, place: &Place<'_>) -> Result<Vec<String>> {
    say(&format!("\n{}", comparison.title))?;
    let (here, missing): (Vec<Generator>, Vec<Generator>) =
        comparison.peers.iter().copied().partition(|peer| peer.is_here(&place.tools));
    for peer in missing {
        say(&format!("  {} is not installed here", peer.label()))?;
    }
    let generators: Vec<Generator> = [Generator::Native].into_iter().chain(here).collect();
    let arms = comparison.arms(&generators);
    let rounds = Rounds::run(&arms, arguments.rounds, arguments.seed, place, |_| ())?;
    for (index, generator) in generators.iter().enumerate() {
        let rate = rounds.level(index, |sample| sample.rate_per_s);
        let cpu = rounds.level(index, |sample| sample.cpu_us_per_op);
        let mut line = format!("  {:<16} {rate:>9.0} /s   {cpu:>8.2} µs", generator.label());
        if index > 0 {
            let rate = rounds.ratio(0, index, |sample| sample.rate_per_s).context("too few rounds")?;
            let cpu = rounds.ratio(0, index, |sample| sample.cpu_us_per_op).context("too few rounds")?;
            write!(line, "   rate × {rate}   CPU × {cpu}")?;
        }
        say(&line)?;
    }
    for goal in goals(&generators, &rounds) {
        say(&format!("  {goal}"))?;
    }
    agreements(comparison, &generators, &rounds)
}

fn agreements(comparison: &Comparison, generators: &[Generator], rounds: &Rounds) -> Result<Vec<String>> {
    let processors = std::thread::available_parallelism().context("number of processors")?.get();
    let clients = comparison.work.clients();
    let tools = generators.iter().copied().enumerate().filter(|(_, generator)| generator.is_tool());
    let agreements = tools.filter_map(|tool| Agreement::of(rounds, 0, tool, clients, processors));
    Ok(agreements.map(|agreement| format!("  {}\n    {agreement}", comparison.title)).collect())
}
