//! `make bench-documents`: compares ciphertoll's loader and load generator with pymongo and go-ycsb, in shuffled rounds on a
//! private document database. Prints ratios; they do not change the exit code, because machines differ.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::{BenchArm, Generator, OperationKind, Route, Tools};
use ciphertoll_bench::documents::{engine_here, load, prepare_go_ycsb};
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::setup::{BenchSetup, on_server};
use ciphertoll_bench::{RoundArguments, ciphertoll_program, print_line};
use ciphertoll_lab::{Lab, Server, Tables};
use ciphertoll_load::driver;
use ciphertoll_model::{Auth, Engine, Scale, ServerLevel};
use clap::Parser;

/// Compare ciphertoll with pymongo and go-ycsb, in shuffled rounds on a private document database
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    rounds: RoundArguments,
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
    let [wants_load, wants_find] = [&loading, &finding].map(|title| title.contains(&arguments.only));
    if !wants_load && !wants_find {
        return Ok(());
    }
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    let tools = tools()?;
    print_line(&format!(
        "{} shuffled rounds; CPU is the client's, per operation; × is ciphertoll ÷ peer (95 %)",
        arguments.rounds.rounds
    ))?;
    let (seconds, rounds) = (arguments.seconds, &arguments.rounds);
    if wants_load {
        on_server(
            &ServerLevel::of(engine),
            &Tables::default(),
            &[],
            &tools,
            (arguments.load, seconds),
            |setup| compare_loaders(&loading, setup, rounds),
        )?;
    }
    if wants_find {
        let tables = Tables { ycsb: Some(arguments.scale), ..Tables::default() };
        on_server(&ServerLevel::of(engine), &tables, &[], &tools, (arguments.scale, seconds), |setup| {
            compare_finders(&finding, setup, rounds)
        })?;
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
    match driver::find("pymongo").and_then(|driver| driver.prepare(&cache)) {
        Ok(driver) => tools.pymongo = Some(driver),
        Err(error) => print_line(&format!("pymongo is skipped: {error}"))?,
    }
    Ok(tools)
}

fn compare_loaders(title: &str, setup: &BenchSetup<'_>, rounds: &RoundArguments) -> Result<()> {
    print_line(&format!(
        "\n{title} ({} {})\n  ciphertoll: {} connections, batches of {} documents; pymongo: 1 connection, same batches, created in advance;\n  \
         go-ycsb: {} threads, one document at a time; all over the unix socket",
        setup.server.engine().display_name(),
        setup.server.version(),
        setup.server.loading_connections(),
        Server::LOADING_BATCH,
        setup.server.loading_connections(),
    ))?;
    let loaders = installed(setup);
    let rounds = Rounds::take(loaders.len(), rounds, |index| load(loaders[index], setup))?;
    for (index, loader) in loaders.iter().enumerate() {
        let rate = |rate_per_s: &f64| *rate_per_s;
        let mut line = format!("  {:<16} {:>9.0} documents/s", loader.label(), rounds.level(index, rate));
        if index > 0 {
            let ratio = rounds.ratio(0, index, rate).context("too few rounds")?;
            write!(line, "   rate × {ratio}")?;
        }
        print_line(&line)?;
    }
    Ok(())
}

fn compare_finders(title: &str, setup: &BenchSetup<'_>, rounds: &RoundArguments) -> Result<()> {
    let engine = setup.server.engine();
    print_line(&format!("\n{title} ({} {})", engine.display_name(), setup.server.version()))?;
    if engine == Engine::FerretDb {
        print_line(
            "  FerretDB's SQLite backend scans for a key: read latency grows with the number of documents",
        )?;
    }
    prepare_go_ycsb(setup)?;
    let (work, auth) = (OperationKind::FindOne, Auth::default_of(engine));
    let arm = |generator| BenchArm { generator, work, route: Route::Plain, auth };
    let arms: Vec<BenchArm> = installed(setup).into_iter().map(arm).collect();
    let rounds = Rounds::run(&arms, rounds, setup)?;
    for (index, arm) in arms.iter().enumerate() {
        print_line(&rounds.line(index, arm.generator.label())?)?;
    }
    Ok(())
}

fn installed(setup: &BenchSetup<'_>) -> Vec<Generator> {
    let all = [Generator::Native, Generator::Pymongo, Generator::GoYcsb];
    all.into_iter().filter(|generator| generator.is_installed(setup.tools)).collect()
}
