//! Causes a fault in a running process, and ends it after the trial.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ciphertoll_record::ProcessIdentity;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::clock::{LIBRARY, STEP_S, SteppedClock};
use super::disk::SmallDisk;
use super::matrix::InjectedFault;
use super::process::{self, Limited};

/// How long a coordinator is stopped: longer than a trial.
const PAUSE: Duration = Duration::from_secs(4);
/// How long descriptors are counted: a process that connects again and again has a moment without a connection.
const COUNTING: Duration = Duration::from_millis(1_500);
const COUNT_EVERY: Duration = Duration::from_millis(2);
/// How long a dead process's port may stay occupied.
const PORT_LIMIT: Duration = Duration::from_secs(5);

/// What must be undone after the trial, so that the run can continue.
pub(super) enum ActiveFault {
    Nothing,
    DiskFull,
    SteppedClock,
    Limit {
        pid: i32,
        what: Limited,
        before: String,
    },
    /// The ports are free again when this is dropped.
    Ports {
        listeners: Vec<TcpListener>,
    },
}

/// What the injection needs besides the process.
pub(super) struct InjectionMeans<'a> {
    pub(super) disk: Option<&'a SmallDisk>,
    pub(super) clock: Option<&'a SteppedClock>,
    pub(super) is_coordinator: bool,
}

pub(super) fn inject(
    fault: InjectedFault,
    hit: ProcessIdentity,
    means: &InjectionMeans<'_>,
) -> Result<ActiveFault> {
    let pid = hit.pid;
    match fault {
        InjectedFault::Killed => signal(pid, Signal::SIGKILL).map(|()| ActiveFault::Nothing),
        InjectedFault::Stopped => stop(pid, means.is_coordinator).map(|()| ActiveFault::Nothing),
        InjectedFault::DiskFull => {
            means.disk.context("there is no small disk")?.fill()?;
            Ok(ActiveFault::DiskFull)
        }
        InjectedFault::Descriptors => exhaust_descriptors(pid),
        InjectedFault::PortTaken => take_ports(hit),
        InjectedFault::ClockStepped => {
            check_clock(pid)?;
            means.clock.context("there is no clock to step")?.set(STEP_S)?;
            Ok(ActiveFault::SteppedClock)
        }
        InjectedFault::MemoryLimit => {
            let what = Limited::AddressSpace;
            let before = process::soft_limit(pid, what)?;
            process::limit(pid, what, &process::virtual_bytes(pid)?.to_string())?;
            Ok(ActiveFault::Limit { pid, what, before })
        }
    }
}

impl ActiveFault {
    pub(super) fn lift(self, means: &InjectionMeans<'_>) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Ports { listeners } => {
                drop(listeners);
                Ok(())
            }
            Self::SteppedClock => means.clock.context("there is no clock to step")?.set(0),
            Self::DiskFull => means.disk.context("there is no small disk")?.free(),
            Self::Limit { pid, what, before } => {
                // The process may be gone.
                let _ = process::limit(pid, what, &before);
                Ok(())
            }
        }
    }
}

fn signal(pid: i32, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(pid), signal).with_context(|| format!("cannot send {signal} to process {pid}"))
}

/// Fails unless the process reads the clock that is stepped.
fn check_clock(pid: i32) -> Result<()> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("cannot read its mappings")?;
    if !maps.contains(LIBRARY) {
        bail!("process {pid} reads the machine's clock: {LIBRARY} is not loaded");
    }
    Ok(())
}

/// A stopped coordinator can do nothing about it, so it is continued.
fn stop(pid: i32, is_coordinator: bool) -> Result<()> {
    signal(pid, Signal::SIGSTOP)?;
    if is_coordinator {
        thread::sleep(PAUSE);
        signal(pid, Signal::SIGCONT)?;
    }
    Ok(())
}

/// Lowers the limit until the process cannot open what it closes and opens again and again.
fn exhaust_descriptors(pid: i32) -> Result<ActiveFault> {
    let what = Limited::Descriptors;
    let before = process::soft_limit(pid, what)?;
    let mut lowest = process::lowest_free_descriptor(pid)?;
    process::limit(pid, what, &lowest.to_string())?;
    let deadline = Instant::now() + COUNTING;
    while Instant::now() < deadline {
        let Ok(free) = process::lowest_free_descriptor(pid) else { break };
        if free < lowest {
            lowest = free;
            process::limit(pid, what, &lowest.to_string())?;
        }
        thread::sleep(COUNT_EVERY);
    }
    Ok(ActiveFault::Limit { pid, what, before })
}

/// Kills the process and listens on its ports, so that its next start cannot.
fn take_ports(hit: ProcessIdentity) -> Result<ActiveFault> {
    let ports = process::listening_ports(hit.pid);
    if ports.is_empty() {
        bail!("process {} listens on no TCP port", hit.pid);
    }
    signal(hit.pid, Signal::SIGKILL)?;
    let deadline = Instant::now() + PORT_LIMIT;
    let mut taken = Vec::new();
    for port in ports {
        loop {
            // The standard library sets SO_REUSEADDR, so connections in TIME_WAIT do not matter.
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                Ok(listener) => {
                    taken.push(listener);
                    break;
                }
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).context(format!("cannot take port {port}"));
                }
                Err(_) => thread::sleep(Duration::from_micros(200)),
            }
        }
    }
    Ok(ActiveFault::Ports { listeners: taken })
}
