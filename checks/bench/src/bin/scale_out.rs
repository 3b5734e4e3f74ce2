//! `make bench-scale-out`: the coordinator's CPU and memory per trial with many load hosts. Fails if they exceed one
//! core or 1 GiB.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ciphertoll_bench::print_line;
use ciphertoll_bench::scale_out::mock_agent::{MOCK_AGENT_COMMAND, run_mock_agent};
use ciphertoll_bench::scale_out::{Simulation, TrialCost};
use clap::Parser;

const MOST_CORES: f64 = 1.0;
const MOST_MEMORY_BYTES: u64 = 1 << 30;
/// The windows of all hosts must have this share in common, as in a run.
const LEAST_OVERLAP: f64 = 0.98;

/// Simulate many load hosts and print what the coordinator costs per trial
#[derive(Parser)]
struct SimulationArguments {
    /// Load hosts: a process each
    #[arg(long, default_value_t = 1_000)]
    hosts: usize,
    /// Trials
    #[arg(long, default_value_t = 5)]
    trials: usize,
    /// Length of the window in seconds; the warm-up takes a quarter of it
    #[arg(long, default_value_t = 2.0)]
    window: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(MOCK_AGENT_COMMAND), Some(number)) = (arguments.next().as_deref(), arguments.next()) {
        return run_mock_agent(number.parse()?);
    }
    measure(&SimulationArguments::parse())
}

fn measure(arguments: &SimulationArguments) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let password_file = directory.path().join("password");
    std::fs::write(&password_file, "simulated")?;
    let window = Duration::try_from_secs_f64(arguments.window).context("a length of the window")?;
    let mut simulation =
        Simulation::start(&std::env::current_exe()?, arguments.hosts, password_file, window)?;
    let (cpu, took) = simulation.connecting;
    print_line(&format!(
        "{} load hosts connected in {:.2} s, {:.2} s of CPU; peak memory {} MiB",
        arguments.hosts,
        took.as_secs_f64(),
        cpu.as_secs_f64(),
        peak_memory_bytes()? >> 20
    ))?;
    let mut worst: f64 = 0.0;
    for number in 1..=arguments.trials {
        let cost = simulation.trial()?;
        let cores = cost.cpu.as_secs_f64() / cost.wall.as_secs_f64();
        worst = worst.max(cores);
        print_line(&format!("trial {number}: {}", line(&cost, cores)?))?;
        if cost.overlap < LEAST_OVERLAP {
            bail!("the windows overlapped by {:.1} % only", cost.overlap * 100.0);
        }
    }
    let memory_bytes = peak_memory_bytes()?;
    print_line(&format!(
        "at most {worst:.2} cores (goal: {MOST_CORES}) and {} MiB (goal: {} MiB)",
        memory_bytes >> 20,
        MOST_MEMORY_BYTES >> 20
    ))?;
    if worst > MOST_CORES || memory_bytes > MOST_MEMORY_BYTES {
        bail!("the coordinator needs more than the goal");
    }
    Ok(())
}

fn line(cost: &TrialCost, cores: f64) -> Result<String> {
    Ok(format!(
        "{:.2} s, {:.3} s of CPU ({cores:.2} cores), peak memory {} MiB, {} operations, overlap {:.2} %, clocks ± {:.2} ms",
        cost.wall.as_secs_f64(),
        cost.cpu.as_secs_f64(),
        peak_memory_bytes()? >> 20,
        cost.operations,
        cost.overlap * 100.0,
        cost.uncertainty.as_secs_f64() * 1e3
    ))
}

/// Of this process, without the agents.
fn peak_memory_bytes() -> Result<u64> {
    Ok(ciphertoll_host::accounting::MemoryPeak::read_bytes(std::process::id().cast_signed())?)
}
