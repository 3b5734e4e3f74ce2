//! The cost of observing: the CPU time of `ciphertoll observe` compared with a loop over the same ring that only counts
//! packets ([`bare`]), while recorded connections are repeated ([`traffic`]).

pub mod bare;
pub mod conversation;
pub mod traffic;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::ciphertoll_program;
use crate::observe::bare::BARE_COMMAND;
use crate::observe::traffic::Traffic;

/// The observer's CPU time compared with the loop's, at most.
pub const MOST_CPU: f64 = 1.5;

/// Who looks at the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    Bare,
    Observe,
}

impl Watcher {
    pub const ALL: [Self; 2] = [Self::Bare, Self::Observe];

    pub fn label(self) -> &'static str {
        match self {
            Self::Bare => "counting loop",
            Self::Observe => "observe",
        }
    }

    fn command(self, port: u16) -> Result<Command> {
        Ok(match self {
            Self::Bare => {
                let own = std::env::current_exe().context("cannot find this executable")?;
                let mut command = Command::new(own);
                command.args([BARE_COMMAND, &port.to_string()]);
                command
            }
            Self::Observe => {
                let mut command = Command::new(ciphertoll_program()?);
                let port = format!("{port}=postgres");
                command.args(["observe", "--interface", "lo", "--for", "60m", "--format", "json"]);
                command.args(["--port", &port]);
                command
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObserveSample {
    /// Of the process, and per packet.
    pub cores: f64,
    pub cpu_ns_per_packet: f64,
    pub packets_per_s: f64,
    pub connects_per_s: f64,
    /// The part of the packets that the kernel dropped.
    pub dropped: f64,
}

/// Runs the traffic for so long before a watcher.
pub fn measure(watcher: Watcher, traffic: &Traffic, window: Duration) -> Result<ObserveSample> {
    let port = traffic.address().port();
    let mut child = watcher
        .command(port)?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start")?;
    let outcome = watch(&mut child, traffic, window);
    if outcome.is_err() {
        // The error says more than that it had ended already.
        let _ = child.kill();
    }
    child.wait().context("cannot wait")?;
    outcome
}

fn watch(child: &mut Child, traffic: &Traffic, window: Duration) -> Result<ObserveSample> {
    let mut said = String::new();
    let stderr = child.stderr.take().context("no output")?;
    BufReader::new(stderr).read_line(&mut said)?;
    ensure!(said.contains("observing"), "{said}");
    let mut stdout = child.stdout.take().context("no output")?;
    let (cpu_before, began) = (cpu_ns(child.id())?, Instant::now());
    let connects = traffic.run(window)?;
    let (cpu_after, seconds) = (cpu_ns(child.id())?, began.elapsed().as_secs_f64());
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let mut printed = String::new();
    stdout.read_to_string(&mut printed)?;
    let document: Value = serde_json::from_str(&printed).context("no document")?;
    let number = |name: &str| document[name].as_u64().unwrap_or_default() as f64;
    let (packets, dropped) = (number("segments"), number("dropped"));
    if packets == 0.0 {
        bail!("no packet was seen");
    }
    let cpu = (cpu_after - cpu_before) as f64;
    Ok(ObserveSample {
        cores: cpu * 1e-9 / seconds,
        cpu_ns_per_packet: cpu / packets,
        packets_per_s: packets / seconds,
        connects_per_s: connects as f64 / seconds,
        dropped: dropped / (packets + dropped),
    })
}

/// The CPU time of a process and of its children: another process names clients.
fn cpu_ns(pid: u32) -> Result<u64> {
    let read = |path: String| fs::read_to_string(&path).with_context(|| format!("cannot read {path}"));
    let own = |pid: &str| {
        let text = read(format!("/proc/{pid}/schedstat"))?;
        text.split_whitespace()
            .next()
            .and_then(|number| number.parse::<u64>().ok())
            .context("no number in schedstat")
    };
    let children = read(format!("/proc/{pid}/task/{pid}/children"))?;
    let children: Result<u64> = children.split_whitespace().map(own).sum();
    Ok(own(&pid.to_string())? + children?)
}
