//! `make compare-truth`: measures how often `ciphertoll compare` reports a regression between identical runs, and how often
//! it detects an injected slowdown. Prints a line per pair; exits with 1 if either rate is out of bounds.

use std::process::ExitCode;

use anyhow::Result;
use ciphertoll_bench::pairs::{DetectionCounts, FinishedRun, RunPair, SLOWDOWN, TIME, time};
use ciphertoll_bench::print_line;
use ciphertoll_bench::real::RealRuns;
use ciphertoll_stats::{Change, ChangeVerdict, RunComparison};
use clap::Parser;

/// Validate `ciphertoll compare`: false alarms between identical runs, and detection of an injected slowdown
#[derive(Parser)]
struct Arguments {
    /// Number of pairs, each with an identical and a slowed run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pairs: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let runs = RealRuns::begin("compare-truth", None)?;
    print_line("MariaDB, connects over a 5 ms link: latency cost of TLS 1.3, new ÷ base (95 % interval)\n")?;
    let mut counts = DetectionCounts::default();
    let mut base = FinishedRun::carry_out(&runs, arguments.seed, None)?;
    for number in 1..=arguments.pairs {
        let (pair, next) = RunPair::carry_out(&runs, &base, number, arguments.seed)?;
        base = next;
        counts.add(&pair.identical, &pair.slowed)?;
        print_line(&line(number, &pair))?;
    }
    runs.end()?;
    let DetectionCounts { pairs, called, found } = counts;
    print_line(&format!(
        "\nfalse alarms: {called} of {pairs} identical pairs (at most {} of {pairs})",
        counts.max_called()
    ))?;
    print_line(&format!(
        "detected: {found} of {pairs} slowed pairs (at least {} of {pairs})",
        counts.min_found()
    ))?;
    Ok(if counts.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(number: u32, pair: &RunPair) -> String {
    format!(
        "pair {number:>2}: identical {}; slowed by {:.0} % {}",
        verdicts(&pair.identical),
        SLOWDOWN * 100.0,
        verdicts(&pair.slowed)
    )
}

/// The verdict of the latency, and all other regressions.
fn verdicts(comparison: &RunComparison) -> String {
    let time = time(comparison).map_or_else(|| "no latency".to_owned(), latency_verdict);
    let is_other = |change: &&Change| change.metric != TIME;
    let worse = |change: &&Change| change.verdict == ChangeVerdict::Regression;
    let others = comparison.changes.iter().filter(is_other).filter(worse);
    others.fold(time, |text, change| format!("{text}, {} regression", change.metric))
}

fn latency_verdict(change: &Change) -> String {
    let ratio = change.ratio;
    let verdict = match change.verdict {
        ChangeVerdict::Regression => "regression".to_owned(),
        ChangeVerdict::Improvement => "improvement".to_owned(),
        ChangeVerdict::Negligible { .. } => "negligible".to_owned(),
        ChangeVerdict::SameWithin { margin } => format!("same ±{:.0} %", margin * 100.0),
        ChangeVerdict::Inconclusive { smallest_detectable_change } => {
            format!("inconclusive (smallest detectable change {:.0} %)", smallest_detectable_change * 100.0)
        }
    };
    format!("{:.3} ({:.3}–{:.3}) {verdict}", ratio.value, ratio.low(), ratio.high())
}
