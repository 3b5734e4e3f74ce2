//! Runs processes, a few at a time, with a limit of time; their output goes to files.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::binaries::TestProcess;
use crate::scratch::Scratch;

/// How often limits and signals are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How tests report what they skip.
const SKIPPED: &str = "skipped: ";

pub(crate) struct Limits {
    /// Number of processes at a time.
    pub(crate) jobs: usize,
    /// A process that takes longer is killed.
    pub(crate) time: Duration,
}

/// How processes are run.
pub(crate) struct Plan<'a> {
    pub(crate) limits: Limits,
    /// The directory for their output.
    pub(crate) logs: &'a Path,
    /// `None` if they use the directories for temporary files as they are.
    pub(crate) scratch: Option<Scratch>,
}

/// A process that has ended.
pub(crate) struct Finished {
    pub(crate) name: String,
    pub(crate) took: Duration,
    log: PathBuf,
    outcome: Outcome,
}

enum Outcome {
    Ended(ExitStatus),
    TookTooLong,
    NotStarted(anyhow::Error),
}

/// Process IDs and their start.
type Running = Mutex<HashMap<i32, Instant>>;

impl Finished {
    pub(crate) fn passed(&self) -> bool {
        matches!(&self.outcome, Outcome::Ended(status) if status.success())
    }

    /// How it ended.
    pub(crate) fn reason(&self) -> String {
        match &self.outcome {
            Outcome::Ended(status) => status.to_string(),
            Outcome::TookTooLong => "killed because it took too long".into(),
            Outcome::NotStarted(error) => format!("could not be started: {error:#}"),
        }
    }

    pub(crate) fn output(&self) -> Vec<u8> {
        fs::read(&self.log).unwrap_or_default()
    }

    /// What its tests say that they have skipped.
    pub(crate) fn skipped(&self) -> Vec<String> {
        let output = self.output();
        let output = String::from_utf8_lossy(&output);
        // The harness may have begun the line with the name of the test.
        output.lines().filter_map(|line| line.find(SKIPPED).map(|at| line[at..].to_owned())).collect()
    }
}

/// Runs all processes and reports each as it ends; `None` after SIGINT or SIGTERM, which end all of them.
pub(crate) fn run_all(
    processes: Vec<TestProcess>,
    plan: &Plan<'_>,
    mut report: impl FnMut(&Finished) -> Result<()>,
) -> Result<Option<Vec<Finished>>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("watch signals")?;
    }
    let (queue, running) = (&Mutex::new(VecDeque::from(processes)), &Running::default());
    let (sender, receiver) = mpsc::channel();
    let mut finished = Vec::new();
    thread::scope(|scope| -> Result<()> {
        for _ in 0..plan.limits.jobs {
            let sender = sender.clone();
            scope.spawn(move || work(queue, running, plan, &sender));
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(CHECK_INTERVAL) {
                Ok(process) => {
                    report(&process)?;
                    finished.push(process);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if interrupted.load(Ordering::SeqCst) {
                locked(queue).clear();
                end(running, Duration::ZERO, Signal::SIGTERM);
            }
            end(running, plan.limits.time, Signal::SIGKILL);
        }
    })?;
    Ok((!interrupted.load(Ordering::SeqCst)).then_some(finished))
}

/// Runs processes of the queue, one after the other.
fn work(queue: &Mutex<VecDeque<TestProcess>>, running: &Running, plan: &Plan<'_>, sender: &Sender<Finished>) {
    loop {
        let Some(process) = locked(queue).pop_front() else { return };
        // Versions have dots, so that this is no extension.
        let log = plan.logs.join(process.name.replace([':', ' ', '(', ')', '/'], "_") + ".log");
        let started = Instant::now();
        let entered = plan.scratch.as_ref().map_or(Ok(()), |scratch| scratch.enter(&process.name));
        let outcome = match entered.and_then(|()| run(&process, running, &log)) {
            Ok(status) if !status.success() && started.elapsed() > plan.limits.time => Outcome::TookTooLong,
            Ok(status) => Outcome::Ended(status),
            Err(error) => Outcome::NotStarted(error),
        };
        let finished = Finished { name: process.name, took: started.elapsed(), log, outcome };
        // The receiver ends early only after an error of its own.
        if sender.send(finished).is_err() {
            return;
        }
    }
}

fn run(process: &TestProcess, running: &Running, log: &Path) -> Result<ExitStatus> {
    let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let mut command = process.command();
    command.stdout(output.try_clone()?).stderr(output);
    let mut child = command.spawn().with_context(|| format!("start {}", process.executable.display()))?;
    let id = child.id().cast_signed();
    locked(running).insert(id, Instant::now());
    let status = child.wait();
    locked(running).remove(&id);
    Ok(status?)
}

/// Signals processes that have run for so long.
fn end(running: &Running, after: Duration, signal: Signal) {
    for (id, started) in locked(running).iter() {
        if started.elapsed() >= after {
            // It may have ended just now; its ID is not reused before it is waited for and removed here.
            let _ = kill(Pid::from_raw(*id), signal);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::Tests;

    fn shell(name: &str, directory: &Path, script: &str) -> TestProcess {
        let executable = directory.join(name);
        fs::write(&executable, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&executable, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (crate_name, directory) = ("crate".into(), directory.to_owned());
        TestProcess { crate_name, name: name.into(), executable, directory, tests: Tests::All }
    }

    #[test]
    fn outcomes_output_and_limits_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name, script| shell(name, directory.path(), script);
        let processes = vec![
            of("passes", "echo 'skipped: no such server'"),
            of("fails", "echo why; exit 3"),
            of("hangs", "exec tail -f /dev/null"),
            TestProcess { executable: "/nonexistent".into(), ..of("missing", "") },
        ];
        let limits = Limits { jobs: 2, time: Duration::from_millis(300) };
        let plan = Plan { limits, logs: directory.path(), scratch: None };
        let mut reported = 0;
        let finished = run_all(processes, &plan, |_| {
            reported += 1;
            Ok(())
        });
        let finished = finished.unwrap().unwrap();
        assert_eq!(reported, 4);
        let of = |name| finished.iter().find(|process| process.name == name).unwrap();
        assert!(of("passes").passed());
        assert_eq!(of("passes").skipped(), ["skipped: no such server"]);
        assert!(!of("fails").passed());
        assert_eq!(of("fails").output(), b"why\n");
        assert!(of("hangs").reason().contains("too long"));
        assert!(of("missing").reason().starts_with("could not be started"));
    }
}
