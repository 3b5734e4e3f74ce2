//! Counts system calls with strace, in a separate run, because strace slows the relay down.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::PooledServer;
use super::run::run_whole;
use super::work::PoolWorkload;
use crate::setup::BenchSetup;

const SECONDS: f64 = 1.0;

/// System calls of the relay per operation. `None` without one, or if strace is missing or not permitted.
pub fn calls_per_op(work: PoolWorkload, pool: &PooledServer, setup: &BenchSetup<'_>) -> Result<Option<f64>> {
    let Some(pid) = pool.pid()? else { return Ok(None) };
    let begun = Command::new("strace")
        .args(["-f", "-c", "-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut strace) = begun else { return Ok(None) };
    let mut lines = BufReader::new(strace.stderr.take().context("no stderr")?).lines();
    let attached = lines.by_ref().map_while(Result::ok).any(|line| line.contains("attached"));
    let run = if attached { Some(run_whole(work, pool, setup, SECONDS)) } else { None };
    let watcher = i32::try_from(strace.id()).context("a process id")?;
    // strace has already exited if it could not attach.
    let _ = kill(Pid::from_raw(watcher), Signal::SIGINT);
    let table: Vec<String> = lines.map_while(Result::ok).collect();
    strace.wait().context("cannot wait for strace")?;
    let Some(run) = run.transpose()? else { return Ok(None) };
    Ok(total(&table).map(|calls| calls / run.operations))
}

/// The number of calls in the last line of strace's table, such as `100.00 0.1 12 4711 5 total`.
fn total(table: &[String]) -> Option<f64> {
    let line = table.iter().rev().find(|line| line.trim_end().ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read() {
        let table = [
            "% time     seconds  usecs/call     calls    errors syscall",
            " 51.46    0.004567           4      1042           sendto",
            "100.00    0.008875           4      2051        17 total",
        ];
        assert_eq!(total(&table.map(ToOwned::to_owned)), Some(2051.0));
        assert_eq!(total(&[]), None);
    }
}
