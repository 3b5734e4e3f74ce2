//! `make compare-truth`: does `ciphertoll compare` call equal runs a regression, and does it find a
//! planted one? Prints a line for each pair; exits with 1 where either happens more often, or more
//! seldom, than promised.

use std::process::ExitCode;

use anyhow::Result;
use ciphertoll_bench::pairs::{Pair, Ran, SLOWDOWN, TIME, Tally, time};
use ciphertoll_bench::real::RealRuns;
use ciphertoll_bench::say;
use ciphertoll_stats::{Change, ChangeVerdict, RunComparison};
use clap::Parser;

/// Does `ciphertoll compare` find a planted slowdown, and nothing where nothing was planted?
#[derive(Parser)]
struct Arguments {
    /// Pairs of each kind, identical and slowed; a pair of each takes three runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pairs: u32,
    /// Seed of everything drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let runs = RealRuns::begin("compare-truth")?;
    say(
        "MariaDB, connects over a link of 5 ms: the toll of TLS 1.3 on the time, new ÷ base (95 % interval)\n",
    )?;
    let mut tally = Tally::default();
    let mut base = Ran::carry_out(&runs, arguments.seed, None)?;
    for number in 1..=arguments.pairs {
        let (pair, next) = Pair::carry_out(&runs, &base, number, arguments.seed)?;
        base = next;
        tally.add(&pair.identical, &pair.slowed)?;
        say(&line(number, &pair))?;
    }
    runs.end()?;
    let Tally { pairs, called, found } = tally;
    say(&format!(
        "\ncalled a regression: {called} of {pairs} identical pairs (at most {} of {pairs})",
        tally.most_called()
    ))?;
    say(&format!("found: {found} of {pairs} planted (at least {} of {pairs})", tally.least_found()))?;
    Ok(if tally.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(number: u32, pair: &Pair) -> String {
    format!(
        "pair {number:>2}: identical {}; {:.0} % planted ({:.1} µs) {}",
        told(&pair.identical),
        SLOWDOWN * 100.0,
        pair.delay.as_nanos() as f64 / 1_000.0,
        told(&pair.slowed)
    )
}

/// The time's verdict, and any other metric that is called a regression, too.
fn told(comparison: &RunComparison) -> String {
    let time = time(comparison).map_or_else(|| "no time".to_owned(), of_time);
    let is_other = |change: &&Change| change.metric != TIME;
    let worse = |change: &&Change| change.verdict == ChangeVerdict::Regression;
    let others = comparison.changes.iter().filter(is_other).filter(worse);
    others.fold(time, |told, change| format!("{told}, {} regression", change.metric))
}

fn of_time(change: &Change) -> String {
    let ratio = change.ratio;
    let verdict = match change.verdict {
        ChangeVerdict::Regression => "regression".to_owned(),
        ChangeVerdict::Improvement => "improvement".to_owned(),
        ChangeVerdict::Negligible { .. } => "negligible".to_owned(),
        ChangeVerdict::SameWithin { margin } => format!("same ±{:.0} %", margin * 100.0),
        ChangeVerdict::Inconclusive { smallest_detectable_change } => {
            format!("cannot tell (would see {:.0} %)", smallest_detectable_change * 100.0)
        }
    };
    format!("{:.3} ({:.3}–{:.3}) {verdict}", ratio.value, ratio.low(), ratio.high())
}
