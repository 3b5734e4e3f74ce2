//! Runs the workspace's tests, several processes at a time, and prints the slowest: `make test`, or
//! `cargo run -p ciphertoll-testing -- FILTER`.
//!
//! `cargo test` runs one test binary at a time, and most integration tests wait for servers and links: two processors
//! are half idle. Here integration tests have one process each, so that all of them run beside each other; the unit tests
//! of a crate share one, because they are short. Tests that share servers have a kind (`[KIND] NAME`, libtest-mimic) and
//! one process for each kind.

mod binaries;
mod processes;
mod scratch;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::binaries::{TestProcess, build, processes_of};
use crate::processes::{Finished, Limits, Plan, run_all};
use crate::scratch::Scratch;

/// How many tests the summary lists.
const SLOWEST: usize = 20;
/// Tests wait for servers and for time to pass: so many processes for each processor keep it busy.
const JOBS_PER_PROCESSOR: usize = 3;
/// How long each test took, for the order of the next run.
const SECONDS_FILE: &str = "test-seconds.json";

/// Run the workspace's tests in parallel, one process for each integration test or kind of tests
#[derive(Parser)]
struct RunnerArguments {
    /// Run only tests with one of these texts in their name, such as `cli::faults` or `with tracked resets`
    filters: Vec<String>,
    /// Number of processes at a time [default: three for each processor]
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Kill a process that takes longer
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    time_limit: u64,
    /// Print the names of the tests instead
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    run(&RunnerArguments::parse()).unwrap_or_else(|error| {
        // A closed standard error cannot be reported.
        let _ = writeln!(io::stderr(), "test-runner: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &RunnerArguments) -> Result<ExitCode> {
    let binaries = build()?;
    let target = binaries.first().and_then(|binary| binary.target_directory()).context("no test binaries")?;
    let (logs, seconds_file) = (target.join("test-logs"), target.join(SECONDS_FILE));
    let mut processes = Vec::new();
    for binary in &binaries {
        processes.extend(processes_of(binary, |name| is_chosen(name, arguments))?);
    }
    ensure!(!processes.is_empty(), "no test has a name with {}", arguments.filters.join(" or "));
    let known = read_seconds(&seconds_file);
    put_in_order(&mut processes, &known);
    if arguments.list {
        processes.iter().try_for_each(|process| say(&process.name))?;
        return Ok(ExitCode::SUCCESS);
    }
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let limits = Limits {
        jobs: arguments.jobs.map_or(JOBS_PER_PROCESSOR * processors, NonZeroUsize::get),
        time: Duration::from_secs(arguments.time_limit),
    };
    // Logs of tests that no longer exist would mislead.
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
    say(&format!(
        "{} test processes, {} at a time; their output is in {}",
        processes.len(),
        limits.jobs,
        logs.display()
    ))?;
    let scratch = match Scratch::in_memory(target) {
        Ok(scratch) => Some(scratch),
        Err(reason) => {
            say(&format!("temporary files of the tests are on disk, not in memory: {reason:#}"))?;
            None
        }
    };
    let (started, used) = (Instant::now(), cpu_of_children());
    let plan = Plan { limits, logs: &logs, scratch };
    let Some(finished) = run_all(processes, &plan, |process| say(&line(process)))? else {
        say("interrupted")?;
        return Ok(ExitCode::from(130));
    };
    write_seconds(&seconds_file, known, &finished);
    let took = started.elapsed();
    let share =
        cpu_of_children().saturating_sub(used).as_secs_f64() / (took.as_secs_f64() * processors as f64);
    summarise(&finished, took, share)
}

/// CPU time of all processes that were waited for. Servers that ended later are not in it.
fn cpu_of_children() -> Duration {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN);
    used.map_or(Duration::ZERO, |used| {
        let times = [used.user_time(), used.system_time()];
        times.iter().map(|time| Duration::from_micros(time.num_microseconds().unsigned_abs())).sum()
    })
}

fn is_chosen(name: &str, arguments: &RunnerArguments) -> bool {
    arguments.filters.is_empty() || arguments.filters.iter().any(|filter| name.contains(filter.as_str()))
}

/// The longest first, so that none is left alone at the end. Tests without a known time come before all others, those
/// with many cases first, and then by crate from the last to the first: `cli`'s tests are the shortest of the long ones.
fn put_in_order(processes: &mut [TestProcess], known: &BTreeMap<String, f64>) {
    processes.sort_by(|left, right| {
        let seconds = |process: &TestProcess| known.get(&process.name).copied().unwrap_or(f64::INFINITY);
        let by_time = seconds(right).total_cmp(&seconds(left));
        by_time
            .then(right.has_many_cases().cmp(&left.has_many_cases()))
            .then(right.crate_name.cmp(&left.crate_name))
    });
}

fn line(process: &Finished) -> String {
    let outcome = if process.passed() { "ok    " } else { "FAILED" };
    format!("{outcome} {:>6.1} s  {}", process.took.as_secs_f64(), process.name)
}

/// Prints what was skipped, the slowest tests and the output of the failed ones; and how busy the processors were, which
/// tells whether more processes at a time would be faster.
fn summarise(finished: &[Finished], took: Duration, busy: f64) -> Result<ExitCode> {
    let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
    for reason in finished.iter().flat_map(Finished::skipped) {
        *skipped.entry(reason).or_default() += 1;
    }
    for (reason, times) in &skipped {
        say(&format!("{reason}{}", if *times > 1 { format!(" ({times} times)") } else { String::new() }))?;
    }
    let mut slowest: Vec<&Finished> = finished.iter().collect();
    slowest.sort_by_key(|process| std::cmp::Reverse(process.took));
    say(&format!("The slowest {} of {}:", SLOWEST.min(slowest.len()), slowest.len()))?;
    slowest.iter().take(SLOWEST).try_for_each(|process| say(&line(process)))?;
    let failed: Vec<&Finished> = finished.iter().filter(|process| !process.passed()).collect();
    for process in &failed {
        say(&format!("\n== {}: {}", process.name, process.reason()))?;
        io::stdout().write_all(&process.output())?;
    }
    for process in &failed {
        say(&line(process))?;
    }
    let passed = finished.len() - failed.len();
    say(&format!(
        "{passed} test processes passed, {} failed, in {:.0} s; they used {:.0} % of the processors",
        failed.len(),
        took.as_secs_f64(),
        busy * 100.0
    ))?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_seconds(file: &Path) -> BTreeMap<String, f64> {
    fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// The file only improves the order: a failure to write it is no failure of the tests.
fn write_seconds(file: &Path, mut known: BTreeMap<String, f64>, finished: &[Finished]) {
    known.extend(finished.iter().map(|process| (process.name.clone(), process.took.as_secs_f64())));
    if let Ok(text) = serde_json::to_vec_pretty(&known) {
        let _ = fs::write(file, text);
    }
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::Tests;

    fn process(crate_name: &str, name: &str, tests: Tests) -> TestProcess {
        TestProcess {
            crate_name: crate_name.into(),
            name: name.into(),
            executable: "/bin/true".into(),
            directory: "/".into(),
            tests,
        }
    }

    #[test]
    fn unknown_tests_come_first_and_known_ones_by_their_time() {
        let mut processes = vec![
            process("cli", "cli::short", Tests::One("short".into())),
            process("cli", "cli::new", Tests::One("new".into())),
            process("cli", "cli::long", Tests::One("long".into())),
            process("wire", "wire::new", Tests::One("new".into())),
            process("proxy", "proxy", Tests::All),
        ];
        let known = BTreeMap::from([("cli::short".to_owned(), 0.5), ("cli::long".to_owned(), 30.0)]);
        put_in_order(&mut processes, &known);
        let names: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(names, ["proxy", "wire::new", "cli::new", "cli::long", "cli::short"]);
    }
}
