//! `make truth`: does ciphertoll say what is so? Simulated runs for the coverage of its intervals;
//! real ones for the null experiment and for a delay that is put in and must be found again; with `--at-rest`, pgbench
//! beside the native workloads instead. Prints Markdown; exits with 1 where a truth was missed more often than chance
//! explains.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_bench::at_rest::{TwoViews, two_views};
use ciphertoll_bench::real::RealRuns;
use ciphertoll_bench::say;
use ciphertoll_bench::truth::NullRun;
use ciphertoll_model::{AtRest, StealLimit};
use ciphertoll_stats::{Design, Estimate, Noise, coverage};
use clap::Parser;

/// Does ciphertoll say what is so?
#[derive(Parser)]
struct Arguments {
    /// Real runs of plain against plain
    #[arg(long, default_value_t = 20)]
    null_runs: u32,
    /// Real runs for each delay
    #[arg(long, default_value_t = 5)]
    delay_runs: u32,
    /// Simulated runs for each design
    #[arg(long, default_value_t = 20_000)]
    simulated_runs: u32,
    /// Only simulate: no server is needed
    #[arg(long)]
    simulate_only: bool,
    /// Seed of everything drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Does pgbench find the same cost of encrypted files? Levels such as none,gocryptfs; nothing else is done then
    #[arg(long, value_delimiter = ',', value_name = "LEVELS")]
    at_rest: Option<Vec<AtRest>>,
    /// With it: most of its CPU time that a trial may lose to the hypervisor and still count
    #[arg(long, value_name = "PERCENT", default_value_t)]
    max_steal: StealLimit,
}

/// A nominal 95 % interval is sound if it covers this often.
const SOUND_COVERAGE: std::ops::RangeInclusive<f64> = 0.93..=0.97;
/// Treatments, authentications, and what that compares.
const COMPARISONS: [(u32, u32, &str); 4] =
    [(1, 1, "1 path"), (2, 1, "2 paths"), (1, 2, "1 path × 2 auths"), (3, 2, "3 paths × 2 auths")];
/// False claims in 20 null runs that chance explains.
const FALSE_CLAIMS_PER_RUN: f64 = 0.1;
/// Injected delays, as a share of the plain operation's mean time.
const DELAYS: [f64; 3] = [0.03, 0.10, 0.30];
/// Chance alone misses one interval in twenty; this many in fifteen would be bad luck indeed.
const MISSED_SHARE: f64 = 0.15;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(levels) = &arguments.at_rest {
        let sound = files(levels, arguments.max_steal, arguments.seed)?;
        return Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut sound = simulate(&arguments)?;
    if arguments.simulate_only {
        return Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let real = RealRuns::begin("truth")?;
    let runs = NullRun::new(&real);
    let (null_sound, mean_ns) = null_experiment(&arguments, &runs)?;
    sound &= null_sound;
    sound &= injected_delays(&arguments, &runs, mean_ns)?;
    real.end()?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// pgbench beside the native workloads, on the same clusters.
fn files(levels: &[AtRest], max_steal: StealLimit, seed: u64) -> Result<bool> {
    let real = RealRuns::begin("truth")?;
    say("### Encryption at rest by two drivers: the rate as a share of that in the clear\n")?;
    say("| workload | at rest | native | pgbench | agree |")?;
    say("| --- | --- | --- | --- | --- |")?;
    let views = two_views(&real, levels, max_steal, seed)?;
    let told =
        |estimate: &Estimate| format!("{:.3} ({:.3}–{:.3})", estimate.value, estimate.low(), estimate.high());
    for view in &views {
        let TwoViews { workload, level, native, pgbench } = view;
        let agree = match (view.tell(), view.agree()) {
            (false, _) => "too wide to tell",
            (true, true) => "yes",
            (true, false) => "no",
        };
        say(&format!("| {workload} | {level} | {} | {} | {agree} |", told(native), told(pgbench)))?;
    }
    real.end()?;
    Ok(!views.is_empty() && views.iter().all(|view| view.tell() && view.agree()))
}

fn simulate(arguments: &Arguments) -> Result<bool> {
    say("### Coverage of the 95 % interval, stopping rule included (simulated)\n")?;
    say("| noise | comparisons | at most blocks | covered | false claims | mean blocks |")?;
    say("| --- | --- | --- | --- | --- | --- |")?;
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
                say(&format!(
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

/// Plain against plain; also the mean time that the delays are shares of.
fn null_experiment(arguments: &Arguments, runs: &NullRun<'_>) -> Result<(bool, f64)> {
    say("\n### Plain against plain on this machine\n")?;
    let mut claims = 0;
    let mut sum_ns = 0.0;
    for run in 0..arguments.null_runs {
        let result = runs.carry_out(arguments.seed + u64::from(run), None)?;
        claims += u32::from(result.claims_difference());
        sum_ns += result.baseline_mean_ns;
    }
    let allowed = (f64::from(arguments.null_runs) * FALSE_CLAIMS_PER_RUN) as u32;
    say(&format!(
        "{claims} of {} runs claimed a difference (at most {allowed} are explained by chance).",
        arguments.null_runs
    ))?;
    Ok((claims <= allowed, sum_ns / f64::from(arguments.null_runs.max(1))))
}

fn injected_delays(arguments: &Arguments, runs: &NullRun<'_>, mean_ns: f64) -> Result<bool> {
    say("\n### A delay put into one arm, and found again\n")?;
    say("| put in | runs | intervals that hold it | claimed | found, of what was put in, by run |")?;
    say("| --- | --- | --- | --- | --- |")?;
    let mut missed = 0;
    for share in DELAYS {
        let delay = Duration::from_nanos((mean_ns * share) as u64);
        let mut held = 0;
        let mut claimed = 0;
        let mut found = Vec::new();
        for run in 0..arguments.delay_runs {
            let result = runs.carry_out(arguments.seed + 1_000 + u64::from(run), Some(delay))?;
            let toll = result.time().context("no toll on the mean time")?;
            // The truth of this run: the same delay on what its own baseline took.
            let truth = 1.0 + delay.as_nanos() as f64 / result.baseline_mean_ns;
            held += u32::from((toll.ratio.low()..=toll.ratio.high()).contains(&truth));
            claimed += u32::from(result.claims_difference());
            let (low, high) = (toll.ratio.low(), toll.ratio.high());
            found.push(format!("{:.3} ({low:.3}–{high:.3}) of {truth:.3}", toll.ratio.value));
        }
        missed += arguments.delay_runs - held;
        say(&format!(
            "| {:.0} % | {} | {held} | {claimed} | {} |",
            share * 100.0,
            arguments.delay_runs,
            found.join(", ")
        ))?;
    }
    let all = f64::from(arguments.delay_runs) * DELAYS.len() as f64;
    Ok(f64::from(missed) <= all * MISSED_SHARE)
}
