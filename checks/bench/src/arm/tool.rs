//! Finds and runs pgbench, sysbench and go-ycsb, and measures their CPU time. They have no measurement window, so the cost
//! of a minimal run is subtracted.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::kinds::Sample;
use crate::setup::BenchSetup;

pub(super) struct ToolRun {
    pub(super) printed: String,
    pub(super) client_cpu_us: f64,
    pub(super) server_cpu_us: f64,
}

/// Figures that a generator reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GeneratorResult {
    pub(crate) operations: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) mean_us: f64,
    /// 95th percentile of latency, if the generator reports it.
    pub(crate) p95_us: Option<f64>,
}

impl ToolRun {
    pub(super) fn of(command: &mut Command, setup: &BenchSetup<'_>) -> Result<Self> {
        let meter = setup.server.cpu_meter();
        let (client_before_us, server_before_ns) = (children_cpu_us()?, meter.read_ns()?);
        let printed = output(command)?;
        let server_cpu_us = meter.read_ns()?.saturating_sub(server_before_ns) as f64 * 1e-3;
        Ok(Self { printed, client_cpu_us: children_cpu_us()? - client_before_us, server_cpu_us })
    }

    /// The reported figures, and the CPU time per operation beyond a minimal run of `short_operations`.
    pub(super) fn sample(
        &self,
        result: GeneratorResult,
        short: &Self,
        short_operations: f64,
    ) -> Result<Sample> {
        let more = result.operations - short_operations;
        if more < 1.0 {
            bail!("the tool did no more operations than in its minimal run");
        }
        Ok(Sample {
            rate_per_s: result.rate_per_s,
            cpu_us_per_op: (self.client_cpu_us - short.client_cpu_us) / more,
            server_cpu_us_per_op: Some((self.server_cpu_us - short.server_cpu_us) / more),
            mean_us: result.mean_us,
            p95_us: result.p95_us,
        })
    }
}

/// Runs a program and returns what it printed. An error contains the last line of its complaints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or(OsStr::new("tool"));
    let name = name.display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// User and system CPU time of all children that have exited.
fn children_cpu_us() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the children's CPU")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}

/// Writes a private file, for passwords: arguments are visible to other users.
pub(crate) fn write_private(path: &Path, contents: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(contents.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// The first number after `label` at the start of a line.
pub(crate) fn number_after(printed: &str, label: &str) -> Option<f64> {
    let rest = printed.lines().find_map(|line| line.trim_start().strip_prefix(label))?;
    rest.split_whitespace().find_map(|word| word.trim_start_matches('(').parse().ok())
}
