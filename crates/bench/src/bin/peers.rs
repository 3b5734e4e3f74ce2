//! `make bench`: ciphertoll's load generator beside sysbench, a libmariadb loop and the floor, in
//! shuffled rounds on one private server. Prints ratios; judges none, for machines differ.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context, Result};
use ciphertoll_bench::arm::{Arm, FloorMode, Generator, Place, Route, Work};
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::{ciphertoll_program, peers_directory};
use ciphertoll_lab::{Lab, MariaDb, Start};
use ciphertoll_model::{Engine, Scale, ServerKey, ServerLevel, TlsVersion};
use clap::Parser;

/// ciphertoll's load generator beside its peers, in shuffled rounds on one private server
#[derive(Parser)]
struct Arguments {
    /// Rounds that count
    #[arg(long, default_value_t = 12)]
    rounds: u32,
    /// Length of each run's window
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only comparisons whose title contains this: connect, point-select, TLS
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What is compared with what.
struct Comparison {
    title: &'static str,
    work: Work,
    route: Route,
    peers: &'static [Generator],
}

const FLOORS: [Generator; 2] = [Generator::Floor(FloorMode::Epoll), Generator::Floor(FloorMode::Threads)];

const COMPARISONS: [Comparison; 6] = [
    Comparison {
        title: "connect, 1 client, plain",
        work: Work::Connect,
        route: Route::Plain,
        peers: &[Generator::Libmariadb],
    },
    Comparison {
        title: "connect, 1 client, TLS 1.3, a context per connect",
        work: Work::Connect,
        route: Route::Tls(TlsVersion::Tls13),
        peers: &[Generator::Libmariadb],
    },
    Comparison {
        title: "connect, 1 client, TLS 1.2, a context per connect",
        work: Work::Connect,
        route: Route::Tls(TlsVersion::Tls12),
        peers: &[Generator::Libmariadb],
    },
    Comparison {
        title: "point-select, 8 clients, plain",
        work: Work::PointSelect,
        route: Route::Plain,
        peers: &[FLOORS[0], FLOORS[1], Generator::Sysbench],
    },
    Comparison {
        title: "point-select, 8 clients, unix socket",
        work: Work::PointSelect,
        route: Route::Unix,
        peers: &FLOORS,
    },
    Comparison {
        title: "point-select, 8 clients, TLS 1.3",
        work: Work::PointSelect,
        route: Route::Tls(TlsVersion::Tls13),
        peers: &FLOORS,
    },
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    let program = ciphertoll_program()?;
    let lab = Lab::open(program.clone())?;
    let server = start(&lab)?;
    let private = lab.scratch().make_directory("bench", 0o700)?;
    let place = Place {
        server: &server,
        program,
        peers: peers_directory()?,
        private,
        rows: Scale::DEFAULT.rows(),
        seconds: arguments.seconds,
    };
    say(&format!(
        "MariaDB {}; {} shuffled rounds of {} s; CPU is the client's, per operation; × is ciphertoll ÷ peer (95 %)",
        server.version(),
        arguments.rounds,
        arguments.seconds
    ))?;
    for comparison in COMPARISONS.iter().filter(|comparison| comparison.title.contains(&arguments.only)) {
        compare(comparison, &arguments, &place)?;
    }
    server.stop()?;
    Ok(())
}

fn start(lab: &Lab) -> Result<MariaDb> {
    let build = ciphertoll_lab::find(&ServerLevel::of(Engine::MariaDb))?;
    let template = lab.template(&build, Scale::DEFAULT, &mut |_| ())?;
    let log = lab.scratch().path().join("server.log");
    let start = Start {
        build: &build,
        template: &template,
        name: "s1",
        key: ServerKey::P256,
        log,
        preferred_port: None,
    };
    Ok(lab.start(&start)?)
}

fn compare(comparison: &Comparison, arguments: &Arguments, place: &Place<'_>) -> Result<()> {
    let Comparison { title, work, route, peers } = *comparison;
    let generators: Vec<Generator> = [Generator::Native].into_iter().chain(peers.iter().copied()).collect();
    let arms: Vec<Arm> = generators.iter().map(|&generator| Arm { generator, work, route }).collect();
    say(&format!("\n{title}"))?;
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
    Ok(())
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot write to stdout")
}
