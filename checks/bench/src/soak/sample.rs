//! Samples of the sidecar, and the lines of the table.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};

use super::tally::{Cause, Tally};

#[derive(Clone, Copy, Debug)]
pub struct SoakSample {
    pub at: Duration,
    pub pid: i32,
    pub rss_bytes: u64,
    pub descriptors: u64,
    pub server_connections: u64,
    pub connected: u64,
    pub connects: u64,
    pub answers: u64,
    pub wrong: u64,
    pub killed: u64,
    pub errors: [u64; 3],
}

impl SoakSample {
    pub fn take(at: Duration, pid: i32, server_connections: u64, tally: &Tally) -> Result<Self> {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Self {
            at,
            pid,
            rss_bytes: resident_bytes(pid)?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).context("cannot list descriptors")?.count()
                as u64,
            server_connections,
            connected: count(&tally.connected),
            connects: count(&tally.connects),
            answers: count(&tally.answers),
            wrong: count(&tally.wrong),
            killed: count(&tally.killed),
            errors: [Cause::Kill, Cause::Restart, Cause::Unexplained].map(|cause| tally.errors(cause)),
        })
    }

    pub fn heading() -> &'static str {
        "| server | minute | RSS, MB | descriptors | server connections | clients | connects | answers | wrong | \
         connections killed | errors: kills | errors: restarts | errors: other |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    }

    pub fn line(&self, server: &str) -> String {
        const MB: f64 = 1e6;
        let [kills, restarts, other] = self.errors;
        format!(
            "| {server} | {} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {kills} | {restarts} | {other} |",
            self.at.as_secs() / 60,
            self.rss_bytes as f64 / MB,
            self.descriptors,
            self.server_connections,
            self.connected,
            self.connects,
            self.answers,
            self.wrong,
            self.killed,
        )
    }
}

fn resident_bytes(pid: i32) -> Result<u64> {
    const BYTES_PER_KB: u64 = 1024;
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read the sidecar's status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kb: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number")?;
    Ok(kb * BYTES_PER_KB)
}
