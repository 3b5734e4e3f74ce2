//! `make truth`: validates ciphertoll's statistics. Simulated runs check the coverage of its intervals; real runs check A/A
//! comparisons and injected delays. With `--at-rest`, compares pgbench with the native driver instead. Prints Markdown;
//! exits with 1 if errors are more frequent than chance explains.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_bench::at_rest::{DriverComparison, compare_drivers};
use ciphertoll_bench::print_line;
use ciphertoll_bench::real::RealRuns;
use ciphertoll_bench::truth::NullResult;
use ciphertoll_model::{AtRest, StealLimit};
use ciphertoll_stats::{Design, Estimate, Noise, coverage};
use clap::Parser;

/// Validate ciphertoll's statistics with simulated runs, A/A comparisons and injected delays
#[derive(Parser)]
struct Arguments {
    /// Number of real A/A runs
    #[arg(long, default_value_t = 20)]
    null_runs: u32,
    /// Number of real runs per injected delay
    #[arg(long, default_value_t = 5)]
    delay_runs: u32,
    /// Number of simulated runs per design
    #[arg(long, default_value_t = 20_000)]
    simulated_runs: u32,
    /// Only simulate; needs no server
    #[arg(long)]
    simulate_only: bool,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead, compare the cost of encryption at rest as measured by pgbench and by the native driver, for these levels
    #[arg(long, value_delimiter = ',', value_name = "LEVELS")]
    at_rest: Option<Vec<AtRest>>,
    /// With --at-rest: maximum CPU time that the hypervisor may take from a trial before it is voided
    #[arg(long, value_name = "PERCENT", default_value_t)]
    max_steal: StealLimit,
}

/// Accepted coverage of a nominal 95 % interval.
const SOUND_COVERAGE: std::ops::RangeInclusive<f64> = 0.93..=0.97;
/// Numbers of treatments and authentications, and the label.
const COMPARISONS: [(u32, u32, &str); 4] =
    [(1, 1, "1 path"), (2, 1, "2 paths"), (1, 2, "1 path × 2 auths"), (3, 2, "3 paths × 2 auths")];
/// Maximum share of A/A runs with a false claim.
const FALSE_CLAIMS_PER_RUN: f64 = 0.1;
/// Injected delays, as shares of the mean latency of plain.
const DELAYS: [f64; 3] = [0.03, 0.10, 0.30];
/// Maximum share of intervals that miss the true value. The expected share is 5 %.
const MISSED_SHARE: f64 = 0.15;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let sound = match &arguments.at_rest {
        Some(levels) => compare_at_rest(levels, arguments.max_steal, arguments.seed)?,
        None => validate(&arguments)?,
    };
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn validate(arguments: &Arguments) -> Result<bool> {
    let mut sound = simulate(arguments)?;
    if !arguments.simulate_only {
        let runs = RealRuns::begin("truth", None)?;
        let (null_sound, mean_ns) = null_experiment(arguments, &runs)?;
        sound &= null_sound;
        sound &= injected_delays(arguments, &runs, mean_ns)?;
        runs.end()?;
    }
    Ok(sound)
}

fn compare_at_rest(levels: &[AtRest], max_steal: StealLimit, seed: u64) -> Result<bool> {
    let real = RealRuns::begin("truth", None)?;
    print_line(
        "### Encryption at rest, measured with two drivers: throughput as a share of that without encryption\n",
    )?;
    print_line("| workload | at rest | native | pgbench | agree |")?;
    print_line("| --- | --- | --- | --- | --- |")?;
    let views = compare_drivers(&real, levels, max_steal, seed)?;
    let shown =
        |estimate: &Estimate| format!("{:.3} ({:.3}–{:.3})", estimate.value, estimate.low(), estimate.high());
    for view in &views {
        let DriverComparison { workload, level, native, pgbench } = view;
        let agree = match (view.is_precise(), view.agrees()) {
            (false, _) => "inconclusive",
            (true, true) => "yes",
            (true, false) => "no",
        };
        print_line(&format!("| {workload} | {level} | {} | {} | {agree} |", shown(native), shown(pgbench)))?;
    }
    real.end()?;
    Ok(!views.is_empty() && views.iter().all(|view| view.is_precise() && view.agrees()))
}

fn simulate(arguments: &Arguments) -> Result<bool> {
    print_line("### Coverage of the 95 % interval, stopping rule included (simulated)\n")?;
    print_line("| noise | comparisons | at most blocks | covered | false claims | mean blocks |")?;
    print_line("| --- | --- | --- | --- | --- | --- |")?;
    let mut sound = true;
    for noise in [Noise::Normal, Noise::StudentT3, Noise::Stalls] {
        for (treatments, authentications, compared) in COMPARISONS {
            for max_blocks in [6, 10, 20] {
                let design = Design {
                    seed: arguments.seed,
                    runs: arguments.simulated_runs,
                    treatments,
                    authentications,
                    true_ratio: 1.0,
                    trial_sd: 0.02,
                    noise,
                    drift_sd: 0.002,
                    max_blocks,
                };
                let seen = coverage(&design);
                sound &= SOUND_COVERAGE.contains(&seen.covered);
                print_line(&format!(
                    "| {noise:?} | {compared} | {max_blocks} | {:.1} % | {:.1} % | {:.1} |",
                    seen.covered * 100.0,
                    seen.claimed * 100.0,
                    seen.mean_blocks
                ))?;
            }
        }
    }
    Ok(sound)
}

/// A/A runs. Also returns the mean latency, to which the delays are relative.
fn null_experiment(arguments: &Arguments, runs: &RealRuns) -> Result<(bool, f64)> {
    print_line("\n### A/A runs (plain compared with plain) on this machine\n")?;
    let mut claims = 0;
    let mut sum_ns = 0.0;
    for run in 0..arguments.null_runs {
        let result = NullResult::measure(runs, arguments.seed + u64::from(run), None)?;
        claims += u32::from(result.claims_difference());
        sum_ns += result.baseline_mean_ns;
    }
    let allowed = (f64::from(arguments.null_runs) * FALSE_CLAIMS_PER_RUN) as u32;
    print_line(&format!(
        "{claims} of {} runs claimed a difference (at most {allowed} are explained by chance).",
        arguments.null_runs
    ))?;
    Ok((claims <= allowed, sum_ns / f64::from(arguments.null_runs.max(1))))
}

fn injected_delays(arguments: &Arguments, runs: &RealRuns, mean_ns: f64) -> Result<bool> {
    print_line("\n### Injected delays\n")?;
    print_line("| delay | runs | intervals that contain it | claimed | measured of true ratio, by run |")?;
    print_line("| --- | --- | --- | --- | --- |")?;
    let mut missed = 0;
    for share in DELAYS {
        let delay = Duration::from_nanos((mean_ns * share) as u64);
        let mut held = 0;
        let mut claimed = 0;
        let mut found = Vec::new();
        for run in 0..arguments.delay_runs {
            let result = NullResult::measure(runs, arguments.seed + 1_000 + u64::from(run), Some(delay))?;
            let toll = result.time().context("no comparison of the mean latency")?;
            // The true ratio of this run, relative to its own baseline.
            let truth = 1.0 + delay.as_nanos() as f64 / result.baseline_mean_ns;
            held += u32::from((toll.ratio.low()..=toll.ratio.high()).contains(&truth));
            claimed += u32::from(result.claims_difference());
            let (low, high) = (toll.ratio.low(), toll.ratio.high());
            found.push(format!("{:.3} ({low:.3}–{high:.3}) of {truth:.3}", toll.ratio.value));
        }
        missed += arguments.delay_runs - held;
        print_line(&format!(
            "| {:.0} % | {} | {held} | {claimed} | {} |",
            share * 100.0,
            arguments.delay_runs,
            found.join(", ")
        ))?;
    }
    let all = f64::from(arguments.delay_runs) * DELAYS.len() as f64;
    Ok(f64::from(missed) <= all * MISSED_SHARE)
}
