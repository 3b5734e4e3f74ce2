//! System calls, counted by strace in a run of its own: it slows what it watches.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::run::run;
use super::work::Work;
use super::{Place, Pool};

/// How long they are counted.
const SECONDS: f64 = 1.0;

/// System calls of the proxy for one operation; none where there is no proxy, no strace, or it may not watch.
pub fn calls_per_op(work: Work, pool: &Pool, place: &Place<'_>) -> Result<Option<f64>> {
    let Some(proxy) = pool.proxy() else { return Ok(None) };
    let begun = Command::new("strace")
        .args(["-f", "-c", "-p", &proxy.pid().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut strace) = begun else { return Ok(None) };
    let mut lines = BufReader::new(strace.stderr.take().context("stderr was asked for")?).lines();
    let attached = lines.by_ref().map_while(Result::ok).any(|line| line.contains("attached"));
    let seen = if attached { Some(run(work, pool, place, SECONDS)) } else { None };
    let watcher = i32::try_from(strace.id()).context("a process id")?;
    // It has ended by itself where it could not attach.
    let _ = kill(Pid::from_raw(watcher), Signal::SIGINT);
    let table: Vec<String> = lines.map_while(Result::ok).collect();
    strace.wait().context("cannot wait for strace")?;
    let Some(seen) = seen.transpose()? else { return Ok(None) };
    Ok(total(&table).map(|calls| calls / seen.operations))
}

/// The calls of the last line of strace's table: `100.00 0.1 12 4711 5 total`.
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
