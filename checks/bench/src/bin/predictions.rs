//! `make predict-truth`: predicts situations that a calibration did not contain, then measures them. Prints Markdown; exits with 1 if
//! the predictions miss their goals.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use ciphertoll_bench::predictions::{BreakEvenCheck, Compared, check_break_even, compare_server};
use ciphertoll_bench::print_line;
use ciphertoll_model::ServerLevel;
use clap::Parser;

/// Predict situations that a calibration did not contain, then measure them
#[derive(Parser)]
struct PredictionArguments {
    /// The servers to calibrate; a server at a URL as NAME=URL
    #[arg(long, value_delimiter = ',', default_value = "mariadb,postgres")]
    server: Vec<ServerLevel>,
    /// The directory of the records; those that it has already are not measured again
    #[arg(long, value_name = "DIR", default_value = "ciphertoll-runs/predictions")]
    records: PathBuf,
}

/// Share of the measurements that lie inside the interval of their prediction.
const INSIDE: f64 = 0.90;
/// Median of the absolute errors.
const MEDIAN_ERROR: f64 = 0.10;

fn main() -> Result<ExitCode> {
    let arguments = PredictionArguments::parse();
    let mut all = Vec::new();
    for server in &arguments.server {
        all.extend(compare_server(server, &arguments.records)?);
    }
    if all.is_empty() {
        bail!("nothing could be predicted or measured: was the machine too busy? See CIPHERTOLL_MAX_STEAL");
    }
    print_line(
        "| server | path | situation | quantity | predicted | interval | measured | error | inside |",
    )?;
    print_line("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
    for compared in &all {
        print_line(&row(compared))?;
    }
    let inside = all.iter().filter(|compared| compared.is_inside()).count();
    let share = inside as f64 / all.len() as f64;
    let mut errors: Vec<f64> = all.iter().map(|compared| compared.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    print_line(&format!(
        "\n{inside} of {} measurements ({:.0} %) lie inside the interval of their prediction; goal: {:.0} %. Median error: {:.1} %; \
         goal: {:.0} %.",
        all.len(),
        share * 100.0,
        INSIDE * 100.0,
        median * 100.0,
        MEDIAN_ERROR * 100.0,
    ))?;
    let mut is_sound = share >= INSIDE && median <= MEDIAN_ERROR;
    // At a URL there is one server and no proxy of ours to choose.
    for server in arguments.server.iter().filter(|server| server.url.is_none()) {
        match check_break_even(server, &arguments.records)? {
            Some(check) => is_sound &= print_break_even(&check)?,
            None => print_line(&format!("\n{}: no break-even with an interval.", server.short_name()))?,
        }
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether each choice of `advise` costs less than the other one, or no more than can be told.
fn print_break_even(check: &BreakEvenCheck) -> Result<bool> {
    let BreakEvenCheck { server, paths: [short, long], queries, interval, measured } = check;
    print_line(&format!(
        "\n{server}: {short} and {long} cost the same at {queries:.0} ({:.0}–{:.0}) queries per connection.\n\n\
         | queries per connection | `advise` chooses | CPU time of {short} ÷ {long} |\n| --- | --- | --- |",
        interval.low, interval.high
    ))?;
    let mut is_sound = true;
    for (count, chosen, ratio) in measured {
        let (low, high) = (ratio.low(), ratio.high());
        print_line(&format!("| {count} | {chosen} | {:.3} ({low:.3}–{high:.3}) |", ratio.value))?;
        // Within the interval of the break-even, either choice is right.
        let is_open = (interval.low..=interval.high).contains(&f64::from(*count));
        is_sound &= is_open || if chosen == short { low <= 1.0 } else { high >= 1.0 };
    }
    Ok(is_sound)
}

fn row(compared: &Compared) -> String {
    // Times are in ns.
    let divisor = if compared.quantity.ends_with("ms") { 1e6 } else { 1.0 };
    let number = |value: f64| {
        let value = value / divisor;
        if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
    };
    let Compared { server, path, situation, quantity, predicted, measured } = compared;
    format!(
        "| {server} | {path} | {situation} | {quantity} | {} | {}–{} | {} | {:+.0} % | {} |",
        number(predicted.value),
        number(predicted.low()),
        number(predicted.high()),
        number(*measured),
        compared.error() * 100.0,
        if compared.is_inside() { "yes" } else { "**no**" },
    )
}
