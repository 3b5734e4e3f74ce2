//! The arguments of `runs`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_model::parse_with_unit;
use ciphertoll_record::DEFAULT_RUNS;
use clap::{Args, Subcommand};

const RUNS_EXAMPLES: &str = "\
Examples:
  ciphertoll runs
      every run: its state, start, size, and what was run; the newest last
  ciphertoll runs --json
      the same as JSON
  ciphertoll runs rm --older-than 30d
      remove runs that began more than 30 days ago";

const REMOVE_EXAMPLES: &str = "\
Examples:
  ciphertoll runs rm 20261121T011500Z-quick-a3f1
      remove this run, after a question
  ciphertoll runs rm --older-than 8w --yes
      remove runs that began more than 8 weeks ago, in a script
  ciphertoll runs rm --all --run-dir nightly
      remove every run in the directory `nightly`

A run that is in progress is never removed. If a named run is in progress or is not a run, nothing
is removed (exit code 8). --older-than and --all leave runs in progress out (exit code 6).";

/// The recorded run that a command reads.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    /// The run: a directory, a name, or `latest`
    #[arg(value_name = "RUN", default_value = "latest")]
    pub(crate) run: String,
    /// The directory that holds the run directories
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = RUNS_EXAMPLES)]
pub(crate) struct RunsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    /// The directory that holds the run directories
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Remove runs
    Rm(RemoveArguments),
}

#[derive(Args, Debug)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArguments {
    #[command(flatten)]
    pub(crate) which: RunSelection,
    /// Remove without a question; required without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory that holds the run directories
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RUNS)]
    pub(crate) run_dir: PathBuf,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct RunSelection {
    /// The runs: each a directory, the full name of a run, or `latest`
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Every run that began longer ago than this: 12h, 30d, 8w
    #[arg(long, value_name = "AGE", allow_hyphen_values = true)]
    pub(crate) older_than: Option<Age>,
    /// Every run
    #[arg(long)]
    pub(crate) all: bool,
}

/// An age in hours, days or weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// A hundred years: longer ages are typing errors.
        const LONGEST_HOURS: f64 = 100.0 * 366.0 * 24.0;
        const UNITS_HOURS: [(&str, f64); 3] = [("h", 1.0), ("d", 24.0), ("w", 168.0)];
        let is_whole = text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(['.', ' ']);
        let hours = parse_with_unit(text, &UNITS_HOURS).filter(|_| is_whole);
        let valid = hours.filter(|hours| (1.0..=LONGEST_HOURS).contains(hours));
        let invalid = || format!("\"{text}\" is not an age; write 12h, 30d or 8w, up to 100 years");
        valid.map(|hours| Self(Duration::from_hours(hours as u64))).ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        let hours = |text: &str| text.parse::<Age>().map(|age| age.0.as_secs() / 3600);
        assert_eq!([hours("12h"), hours("30d"), hours("8w")], [Ok(12), Ok(720), Ok(1344)]);
        for wrong in ["", "30", "d", "0d", "-1d", "1.5d", "30m", "1dd", "99999999999999999999w", "9999999w"] {
            assert!(hours(wrong).is_err_and(|error| error.contains("12h, 30d or 8w")), "{wrong}");
        }
    }
}
