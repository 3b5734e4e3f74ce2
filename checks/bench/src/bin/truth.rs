//! `make truth`: validates ciphertoll's statistics. Simulated runs check the coverage of its intervals; real runs check A/A
//! comparisons and injected slowdowns. With `--at-rest`, compares pgbench with the native driver instead. Prints Markdown;
//! exits with 1 if errors are more frequent than chance explains.

use std::process::ExitCode;

use anyhow::{Context, Result};
use ciphertoll_bench::at_rest::{DriverComparison, compare_drivers};
use ciphertoll_bench::print_line;
use ciphertoll_bench::real::RealRuns;
use ciphertoll_bench::truth::NullRuns;
use ciphertoll_model::{AtRest, StealLimit};
use ciphertoll_stats::{CONFIDENCE, Design, Estimate, Interval, LogSummary, Noise, coverage};
use clap::Parser;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Validate ciphertoll's statistics with simulated runs, A/A comparisons and injected slowdowns
#[derive(Parser)]
struct Arguments {
    /// Number of real A/A runs
    #[arg(long, default_value_t = 20)]
    null_runs: u32,
    /// Number of real runs per injected slowdown
    #[arg(long, default_value_t = 20)]
    slowed_runs: u32,
    /// Number of blocks of a real run with a slowdown
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(6..))]
    slowed_blocks: u32,
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
    /// Maximum CPU time that the hypervisor may take from a trial before it is voided
    #[arg(long, value_name = "PERCENT", default_value_t)]
    max_steal: StealLimit,
}

/// Accepted coverage of a nominal 95 % interval.
const SOUND_COVERAGE: std::ops::RangeInclusive<f64> = 0.93..=0.97;
/// Numbers of treatments and authentications, and the label.
const COMPARISONS: [(u32, u32, &str); 4] =
    [(1, 1, "1 path"), (2, 1, "2 paths"), (1, 2, "1 path × 2 auths"), (3, 2, "3 paths × 2 auths")];
/// Blocks of an A/A run: many short runs estimate the rate of false claims better than few long ones.
const NULL_BLOCKS: u32 = 6;
/// Maximum share of A/A runs with a false claim.
const FALSE_CLAIMS_PER_RUN: f64 = 0.1;
/// Injected slowdowns: connects of plain that do their work twice, as a share of all.
const SLOWDOWNS: [f64; 3] = [0.03, 0.10, 0.30];
/// Maximum share of intervals that miss the true value. The expected share is 5 %.
const MISSED_SHARE: f64 = 0.15;
/// Limits of the 95 % interval of the mean error, as a share of the true ratio.
const MOST_MEAN_ERROR: f64 = 0.005;

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
        keep_to_one_processor().context("cannot keep to one processor")?;
        let runs = NullRuns { real: RealRuns::begin("truth", None)?, max_steal: arguments.max_steal };
        sound &= null_experiment(arguments, &runs)?;
        sound &= injected_slowdowns(arguments, &runs)?;
        runs.real.end()?;
    }
    Ok(sound)
}

/// This process and all that it starts. A processor that falls asleep between two operations takes long to wake up, on a
/// virtual machine longer than many an operation, and whether it does differs from trial to trial.
fn keep_to_one_processor() -> nix::Result<()> {
    let ours = Pid::from_raw(0);
    let permitted = sched_getaffinity(ours)?;
    let mut one = CpuSet::new();
    let first = (0..CpuSet::count()).find(|&processor| permitted.is_set(processor).unwrap_or_default());
    one.set(first.unwrap_or_default())?;
    sched_setaffinity(ours, &one)
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

fn null_experiment(arguments: &Arguments, runs: &NullRuns) -> Result<bool> {
    print_line("\n### A/A runs (plain compared with plain) on this machine\n")?;
    let mut claims = 0;
    for run in 0..arguments.null_runs {
        let result = runs.measure(arguments.seed + u64::from(run), NULL_BLOCKS, 0.0)?;
        claims += u32::from(result.claims_difference());
    }
    let allowed = (f64::from(arguments.null_runs) * FALSE_CLAIMS_PER_RUN) as u32;
    print_line(&format!(
        "{claims} of {} runs claimed a difference (at most {allowed} are explained by chance).",
        arguments.null_runs
    ))?;
    Ok(claims <= allowed)
}

fn injected_slowdowns(arguments: &Arguments, runs: &NullRuns) -> Result<bool> {
    print_line("\n### Injected slowdowns\n")?;
    print_line(
        "| true ratio | runs | intervals that contain it | claimed | mean error | measured, by run |",
    )?;
    print_line("| --- | --- | --- | --- | --- | --- |")?;
    let mut missed = 0;
    let mut all = Vec::new();
    for share in SLOWDOWNS {
        let found = (0..arguments.slowed_runs)
            .map(|run| {
                let seed = arguments.seed + 1_000 + u64::from(run);
                FoundSlowdown::measure(runs, seed, arguments.slowed_blocks, share)
            })
            .collect::<Result<Vec<_>>>()?;
        let held = found.iter().filter(|found| found.is_held()).count();
        missed += found.len() - held;
        print_line(&format!(
            "| {:.2} | {} | {held} | {} | {} | {} |",
            1.0 + share,
            found.len(),
            found.iter().filter(|found| found.is_claimed).count(),
            mean_error(&found).1,
            found.iter().map(FoundSlowdown::to_string).collect::<Vec<_>>().join(", ")
        ))?;
        all.extend(found);
    }
    let (is_small, shown) = mean_error(&all);
    print_line(&format!("\nMean error of {} runs: {shown}.", all.len()))?;
    Ok(is_small && missed as f64 <= all.len() as f64 * MISSED_SHARE)
}

/// What a run found of the slowdown that was injected into it.
struct FoundSlowdown {
    found: Estimate,
    true_ratio: f64,
    is_claimed: bool,
}

impl FoundSlowdown {
    fn measure(runs: &NullRuns, seed: u64, blocks: u32, share: f64) -> Result<Self> {
        let result = runs.measure(seed, blocks, share)?;
        let time = result.time().context("no comparison of the mean latency")?;
        Ok(Self { found: time.ratio, true_ratio: 1.0 + share, is_claimed: result.claims_difference() })
    }

    fn is_held(&self) -> bool {
        (self.found.low()..=self.found.high()).contains(&self.true_ratio)
    }

    fn log_error(&self) -> f64 {
        (self.found.value / self.true_ratio).ln()
    }

    /// Its precision, by its own interval: others disturb some runs more than the rest.
    fn weight(&self) -> f64 {
        (self.found.high() / self.found.low()).ln().powi(-2)
    }
}

impl std::fmt::Display for FoundSlowdown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.3} ({:.3}–{:.3})", self.found.value, self.found.low(), self.found.high())
    }
}

/// Whether the interval of the weighted mean error contains 0 and is within its limits, and the mean with that interval, which
/// comes from how much the runs differ, not from their own intervals.
fn mean_error(found: &[FoundSlowdown]) -> (bool, String) {
    let Some(summary) = LogSummary::of(&influences(found)) else {
        return (false, "–".to_owned());
    };
    let Interval { low, high } = summary.interval(CONFIDENCE);
    let is_small = (low..=high).contains(&0.0) && low.abs().max(high.abs()) <= MOST_MEAN_ERROR;
    let percent = |log: f64| format!("{:+.2} %", log.exp_m1() * 100.0);
    (is_small, format!("{} ({} to {})", percent(summary.mean()), percent(low), percent(high)))
}

/// Values whose mean is the weighted mean of the errors, and whose standard error is that of the weighted mean.
fn influences(found: &[FoundSlowdown]) -> Vec<f64> {
    let total: f64 = found.iter().map(FoundSlowdown::weight).sum();
    let mean = found.iter().map(|run| run.weight() * run.log_error()).sum::<f64>() / total;
    let count = found.len() as f64;
    found.iter().map(|run| mean + count * run.weight() / total * (run.log_error() - mean)).collect()
}
