//! `make bench-documents`: ciphertoll's loader and its load generator beside pymongo and go-ycsb, in shuffled rounds on a
//! private server of documents. Prints ratios; judges none by its exit code, for machines differ.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::{Arm, Generator, Place, Route, Sample, Tools, Work};
use ciphertoll_bench::documents::{Loaded, Loader, engine_here, prepare_go_ycsb, prepare_pymongo};
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::{ciphertoll_program, peers_directory, say, start_server};
use ciphertoll_lab::{Lab, Server, Tables};
use ciphertoll_model::{Auth, Engine, Scale};
use clap::Parser;

/// ciphertoll beside pymongo and go-ycsb, in shuffled rounds on a private server of documents
#[derive(Parser)]
struct Arguments {
    /// Rounds that count
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Length of each run's window in which documents are found; go-ycsb's is about as long
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Documents that are found
    #[arg(long, default_value = "1000")]
    scale: Scale,
    /// Documents that are loaded
    #[arg(long, default_value = "5000")]
    load: Scale,
    /// Only what has this in its title: find-one, load
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
        Err(error) => return say(&format!("documents are left out: {error}")),
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
    say(&format!(
        "{} shuffled rounds; CPU is the client's, per operation; × is ciphertoll ÷ peer (95 %)",
        arguments.rounds
    ))?;
    if load {
        on_server(engine, None, &arguments, &tools, |place| compare_loaders(&loading, place, &arguments))?;
    }
    if find {
        let records = Some(arguments.scale);
        on_server(engine, records, &arguments, &tools, |place| compare_finders(&finding, place, &arguments))?;
    }
    Ok(())
}

/// The peers that are here; those that are not are named, with the reason.
fn tools() -> Result<Tools> {
    let mut tools = Tools::find();
    if tools.go_ycsb.is_none() {
        say("go-ycsb is left out: it is not in PATH; scripts/build-go-ycsb builds it where there is Go")?;
    }
    let cache = Lab::open(ciphertoll_program()?)?.cache().to_owned();
    match prepare_pymongo(&cache) {
        Ok(driver) => tools.pymongo = Some(driver),
        Err(error) => say(&format!("pymongo is left out: {error}"))?,
    }
    Ok(tools)
}

/// Starts a server with so many records, or with none.
fn on_server(
    engine: Engine,
    records: Option<Scale>,
    arguments: &Arguments,
    tools: &Tools,
    measure: impl FnOnce(&Place<'_>) -> Result<()>,
) -> Result<()> {
    let program = ciphertoll_program()?;
    let lab = Lab::open(program.clone())?;
    let server = start_server(&lab, engine, &Tables { ycsb: records, ..Tables::default() })?;
    let rows = records.unwrap_or(arguments.load);
    let place = Place {
        server: &server,
        program,
        peers: peers_directory()?,
        tools: tools.clone(),
        private: lab.scratch().make_directory("bench", 0o700)?,
        rows,
        accounts: rows,
        seconds: arguments.seconds,
    };
    measure(&place)?;
    server.stop()?;
    Ok(())
}

fn compare_loaders(title: &str, place: &Place<'_>, arguments: &Arguments) -> Result<()> {
    say(&format!(
        "\n{title} ({} {})\n  ciphertoll: {} connections, {} documents at once; pymongo: 1 and as many, made beforehand;\n  \
         go-ycsb: {} threads, one document at a time; by the unix socket",
        place.server.engine().display_name(),
        place.server.version(),
        place.server.loading_connections(),
        Server::LOADING_BATCH,
        place.server.loading_connections(),
    ))?;
    let loaders: Vec<Loader> =
        Loader::ALL.into_iter().filter(|loader| loader.is_here(&place.tools)).collect();
    let sample = |index: usize| loaders[index].run(place);
    let rounds = Rounds::take(loaders.len(), arguments.rounds, arguments.seed, sample, |_| ())?;
    for (index, loader) in loaders.iter().enumerate() {
        let rate = |loaded: &Loaded| loaded.rate_per_s;
        let mut line = format!("  {:<16} {:>9.0} documents/s", loader.label(), rounds.level(index, rate));
        if index > 0 {
            let ratio = rounds.ratio(0, index, rate).context("too few rounds")?;
            write!(line, "   rate × {ratio}")?;
        }
        say(&line)?;
    }
    Ok(())
}

fn compare_finders(title: &str, place: &Place<'_>, arguments: &Arguments) -> Result<()> {
    say(&format!("\n{title} ({} {})", place.server.engine().display_name(), place.server.version()))?;
    if place.server.engine() == Engine::FerretDb {
        say("  FerretDB's SQLite back end scans for a key: reads take longer the more documents there are")?;
    }
    prepare_go_ycsb(place)?;
    let all = [Generator::Native, Generator::Pymongo, Generator::GoYcsb];
    let arms: Vec<Arm> = all
        .into_iter()
        .filter(|generator| generator.is_here(&place.tools))
        .map(|generator| Arm {
            generator,
            work: Work::FindOne,
            route: Route::Plain,
            auth: Auth::default_of(place.server.engine()),
        })
        .collect();
    let rounds = Rounds::run(&arms, arguments.rounds, arguments.seed, place, |_| ())?;
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
        say(&line)?;
    }
    Ok(())
}
