//! `make soak`: runs the sidecar under churn, reloads, killed connections, restarts of the server and thousands of clients.
//! Prints a table with a line per minute and a verdict; exits with 1 if memory, descriptors or server connections grow, if an
//! answer is wrong, or if an error has no explanation.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ciphertoll_bench::pools::crowd::raise_file_limit;
use ciphertoll_bench::soak::run::{SHORTEST_SOAK, SoakPlan, SoakResult, Upgrade, carry_out};
use ciphertoll_bench::soak::sample::SoakSample;
use ciphertoll_bench::{ciphertoll_program, print_line};
use ciphertoll_model::{Engine, ServerLevel};
use clap::Parser;

/// Soak the sidecar in front of PostgreSQL and MariaDB, at the same time
#[derive(Parser)]
struct SoakArguments {
    /// Duration, without the upgrade at the end; at least 5
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Connected clients of each sidecar
    #[arg(long, default_value_t = 5_000)]
    clients: usize,
    /// Statements per second of the connected clients of each sidecar
    #[arg(long, default_value_t = 400.0)]
    statements: f64,
    /// Clients per second that connect, query and disconnect, of each sidecar
    #[arg(long, default_value_t = 40.0)]
    churn: f64,
    /// Only this server: postgres or mariadb
    #[arg(long)]
    only: Option<ServerLevel>,
    /// Do not upgrade the sidecar at the end
    #[arg(long)]
    no_upgrade: bool,
    /// The program ciphertoll, with ciphertoll-proxy in its directory [default: beside this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = SoakArguments::parse();
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).context("--minutes")?;
    if time < SHORTEST_SOAK {
        bail!(
            "--minutes must be at least {:.0}: memory settles before it is judged",
            SHORTEST_SOAK.as_secs_f64() / 60.0
        );
    }
    ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
    raise_file_limit()?;
    let program =
        arguments.program.clone().map_or_else(ciphertoll_program, |file| Ok(file.canonicalize()?))?;
    let proxy = program.with_file_name("ciphertoll-proxy");
    if !proxy.is_file() {
        bail!("{} not found: build it first (cargo build --release -p ciphertoll-proxy)", proxy.display());
    }
    print_line(&format!(
        "{} minutes, transaction mode, {} clients and {} connects per second on each sidecar\n\n{}",
        arguments.minutes,
        arguments.clients,
        arguments.churn,
        SoakSample::heading()
    ))?;
    let engines = [Engine::Postgres, Engine::MariaDb];
    let soaks: Vec<_> = engines
        .into_iter()
        .filter(|engine| arguments.only.as_ref().is_none_or(|only| only.engine == *engine))
        .map(|engine| {
            let (plan, program, proxy) = (plan(&arguments, engine, time), program.clone(), proxy.clone());
            thread::spawn(move || carry_out(plan, &program, &proxy))
        })
        .collect();
    let results: Vec<SoakResult> = soaks
        .into_iter()
        .map(|soak| soak.join().unwrap_or_else(|_| Err(anyhow!("a soak panicked"))))
        .collect::<Result<_>>()?;
    print_line("")?;
    for line in results.iter().flat_map(|result| &result.lines) {
        print_line(line)?;
    }
    let passed = !results.is_empty() && results.iter().all(|result| result.passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn plan(arguments: &SoakArguments, engine: Engine, time: Duration) -> SoakPlan {
    SoakPlan {
        engine,
        time,
        clients: arguments.clients,
        statements_per_s: arguments.statements,
        churn_per_s: arguments.churn,
        upgrade: if arguments.no_upgrade { Upgrade::Never } else { Upgrade::AtTheEnd },
    }
}
