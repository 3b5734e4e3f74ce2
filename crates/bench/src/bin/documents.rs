//! `make bench-documents`: compares ciphertoll's loader and load generator with pymongo and go-ycsb, in shuffled rounds on a
//! private document database. Prints ratios; they do not change the exit code, because machines differ.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::{ArmSetup, BenchArm, Generator, OperationKind, Route, Sample, Tools};
use ciphertoll_bench::documents::{Loaded, Loader, engine_here, prepare_go_ycsb, prepare_pymongo};
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::{ciphertoll_program, peers_directory, print_line, start_server};
use ciphertoll_lab::{Lab, Server, Tables};
use ciphertoll_model::{Auth, Engine, Scale};
use clap::Parser;

/// Compare ciphertoll with pymongo and go-ycsb, in shuffled rounds on a private document database
#[derive(Parser)]
struct Arguments {
    /// Number of rounds, after a warm-up round
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Length of each measurement window of find-one; that of go-ycsb is approximate
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of documents for find-one
    #[arg(long, default_value = "1000")]
    scale: Scale,
    /// Number of documents to load
    #[arg(long, default_value = "5000")]
    load: Scale,
    /// Run only comparisons with this text in their title: find-one, load
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let engine = match engine_here() {
        Ok(engine) => engine,
        Err(error) => return print_line(&format!("document databases are skipped: {error}")),
    };
    let name = engine.display_name();
    let loading = format!("{name}: load {} documents into an empty server", arguments.load);
    let finding = format!("{name}: find-one, 1 client, plain, {} documents", arguments.scale);
    let [load, find] = [&loading, &finding].map(|title| title.contains(&arguments.only));
    if !load && !find {
        return Ok(());
    }
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    let tools = tools()?;
    print_line(&format!(
        "{} shuffled rounds; CPU is the client's, per operation; × is ciphertoll ÷ peer (95 %)",
        arguments.rounds
    ))?;
    if load {
        on_server(engine, None, &arguments, &tools, |setup| compare_loaders(&loading, setup, &arguments))?;
    }
    if find {
        let records = Some(arguments.scale);
        on_server(engine, records, &arguments, &tools, |setup| compare_finders(&finding, setup, &arguments))?;
    }
    Ok(())
}

/// Finds the installed tools. Prints which are missing, and why.
fn tools() -> Result<Tools> {
    let mut tools = Tools::find();
    if tools.go_ycsb.is_none() {
        print_line("go-ycsb is skipped: it is not in PATH; scripts/build-go-ycsb builds it (requires Go)")?;
    }
    let cache = Lab::open(ciphertoll_program()?)?.cache().to_owned();
    match prepare_pymongo(&cache) {
        Ok(driver) => tools.pymongo = Some(driver),
        Err(error) => print_line(&format!("pymongo is skipped: {error}"))?,
    }
    Ok(tools)
}

/// Starts a server with this many records, or none.
fn on_server(
    engine: Engine,
    records: Option<Scale>,
    arguments: &Arguments,
    tools: &Tools,
    measure: impl FnOnce(&ArmSetup<'_>) -> Result<()>,
) -> Result<()> {
    let program = ciphertoll_program()?;
    let lab = Lab::open(program.clone())?;
    let server = start_server(&lab, engine, &Tables { ycsb: records, ..Tables::default() })?;
    let rows = records.unwrap_or(arguments.load);
    let setup = ArmSetup {
        server: &server,
        program,
        peers: peers_directory()?,
        tools: tools.clone(),
        private: lab.scratch().make_directory("bench", 0o700)?,
        rows,
        accounts: rows,
        seconds: arguments.seconds,
    };
    measure(&setup)?;
    server.stop()?;
    Ok(())
}

fn compare_loaders(title: &str, setup: &ArmSetup<'_>, arguments: &Arguments) -> Result<()> {
    print_line(&format!(
        "\n{title} ({} {})\n  ciphertoll: {} connections, batches of {} documents; pymongo: 1 connection, same batches, created in advance;\n  \
         go-ycsb: {} threads, one document at a time; all over the unix socket",
        setup.server.engine().display_name(),
        setup.server.version(),
        setup.server.loading_connections(),
        Server::LOADING_BATCH,
        setup.server.loading_connections(),
    ))?;
    let loaders: Vec<Loader> =
        Loader::ALL.into_iter().filter(|loader| loader.is_installed(&setup.tools)).collect();
    let sample = |index: usize| loaders[index].run(setup);
    let rounds = Rounds::take(loaders.len(), arguments.rounds, arguments.seed, sample, |_| ())?;
    for (index, loader) in loaders.iter().enumerate() {
        let rate = |loaded: &Loaded| loaded.rate_per_s;
        let mut line = format!("  {:<16} {:>9.0} documents/s", loader.label(), rounds.level(index, rate));
        if index > 0 {
            let ratio = rounds.ratio(0, index, rate).context("too few rounds")?;
            write!(line, "   rate × {ratio}")?;
        }
        print_line(&line)?;
    }
    Ok(())
}

fn compare_finders(title: &str, setup: &ArmSetup<'_>, arguments: &Arguments) -> Result<()> {
    print_line(&format!("\n{title} ({} {})", setup.server.engine().display_name(), setup.server.version()))?;
    if setup.server.engine() == Engine::FerretDb {
        print_line(
            "  FerretDB's SQLite backend scans for a key: read latency grows with the number of documents",
        )?;
    }
    prepare_go_ycsb(setup)?;
    let all = [Generator::Native, Generator::Pymongo, Generator::GoYcsb];
    let arms: Vec<BenchArm> = all
        .into_iter()
        .filter(|generator| generator.is_installed(&setup.tools))
        .map(|generator| BenchArm {
            generator,
            work: OperationKind::FindOne,
            route: Route::Plain,
            auth: Auth::default_of(setup.server.engine()),
        })
        .collect();
    let rounds = Rounds::run(&arms, arguments.rounds, arguments.seed, setup, |_| ())?;
    let rate = |sample: &Sample| sample.rate_per_s;
    let cpu = |sample: &Sample| sample.cpu_us_per_op;
    for (index, arm) in arms.iter().enumerate() {
        let [level, cpu_us] = [rounds.level(index, rate), rounds.level(index, cpu)];
        let mut line = format!("  {:<16} {level:>9.0} /s   {cpu_us:>8.2} µs", arm.generator.label());
        if index > 0 {
            let rate = rounds.ratio(0, index, rate).context("too few rounds")?;
            let cpu = rounds.ratio(0, index, cpu).context("too few rounds")?;
            write!(line, "   rate × {rate}   CPU × {cpu}")?;
        }
        print_line(&line)?;
    }
    Ok(())
}
