//! What pgbench, sysbench and go-ycsb have in common: found here, run, and their CPU read from outside. They have
//! no window, so that the cost of a run that ends at once is taken off.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Build;
use ciphertoll_load::driver::PreparedDriver;
use ciphertoll_model::Engine;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::Place;

/// The tools that are here.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// `pgbench`.
    pub pgbench: Option<PathBuf>,
    /// `sysbench`.
    pub sysbench: Option<PathBuf>,
    /// `go-ycsb`.
    pub go_ycsb: Option<PathBuf>,
    /// The built-in driver on pymongo, where it was made ready.
    pub pymongo: Option<PreparedDriver>,
}

/// What a tool printed, and what its run cost.
pub(super) struct ToolRun {
    /// Its standard output.
    pub(super) printed: String,
    /// CPU of the whole process.
    pub(super) client_cpu_us: f64,
    /// CPU of the server meanwhile.
    pub(super) server_cpu_us: f64,
}

/// CPU per operation of client and server.
pub(super) struct CpuPerOperation {
    pub(super) client_us: f64,
    pub(super) server_us: f64,
}

impl Tools {
    /// Looks beside the servers, where packages put pgbench, and on PATH.
    pub fn find() -> Self {
        let builds = ciphertoll_lab::installed(Engine::Postgres);
        let beside = |build: &Build| Some(build.server_program.parent()?.join("pgbench"));
        let pgbench = builds.iter().filter_map(beside).find(|program| program.is_file());
        Self {
            pgbench: pgbench.or_else(|| on_path("pgbench")),
            sysbench: on_path("sysbench"),
            go_ycsb: on_path("go-ycsb"),
            pymongo: None,
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

impl ToolRun {
    /// Runs `command` to its end.
    pub(super) fn of(command: &mut Command, place: &Place<'_>) -> Result<Self> {
        let name = command.get_program().to_owned();
        let name = Path::new(&name).file_name().unwrap_or(OsStr::new("tool")).display().to_string();
        let meter = place.server.cpu_meter();
        let (client_before_us, server_before_ns) = (children_cpu_us()?, meter.read_ns()?);
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
        let server_cpu_us = meter.read_ns()?.saturating_sub(server_before_ns) as f64 * 1e-3;
        let client_cpu_us = children_cpu_us()? - client_before_us;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{name} failed: {}: {}", output.status, said.lines().last().unwrap_or_default());
        }
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self { printed, client_cpu_us, server_cpu_us })
    }

    /// What lies between this run of `operations` and one that ended at once, after `short_operations`.
    pub(super) fn beyond(
        &self,
        operations: f64,
        short: &Self,
        short_operations: f64,
    ) -> Result<CpuPerOperation> {
        let more = operations - short_operations;
        if more < 1.0 {
            bail!("a tool did no more operations than in a run that ends at once");
        }
        Ok(CpuPerOperation {
            client_us: (self.client_cpu_us - short.client_cpu_us) / more,
            server_us: (self.server_cpu_us - short.server_cpu_us) / more,
        })
    }
}

/// User and system CPU of all children that were waited for.
fn children_cpu_us() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the children's CPU")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}

/// Passwords go by a file of ours: as an argument all could see them.
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

/// The first number after `label` at the beginning of some line, whatever stands around it.
pub fn number_after(printed: &str, label: &str) -> Option<f64> {
    let rest = printed.lines().find_map(|line| line.trim_start().strip_prefix(label))?;
    rest.split_whitespace().find_map(|word| word.trim_start_matches('(').parse().ok())
}
