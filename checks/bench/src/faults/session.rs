//! A run of the program: its events as they come, and the processes in its ledger.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ciphertoll_record::{Effect, ProcessIdentity, scratch_root_below};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::process;

/// A run that is silent for longer hangs. A tunnel may take three minutes to start.
pub const SILENCE_LIMIT: Duration = Duration::from_mins(4);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const LEDGER: &str = "ledger.jsonl";
const LOAD: &str = "load";

/// A process that was seen in a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenProcess {
    pub(super) identity: ProcessIdentity,
    pub(super) what: String,
}

/// A run in progress, killed when dropped.
pub(super) struct Session {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    lines: Receiver<String>,
    told: Vec<String>,
    events: Vec<Value>,
    scratch_root: PathBuf,
    processes: Vec<SeenProcess>,
    networks: BTreeSet<PathBuf>,
    scratch_names: BTreeSet<String>,
}

/// A run that has ended.
pub(super) struct Finished {
    /// `None` if it hung, or a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) hung: bool,
    pub(super) stdout: String,
    /// Lines on stderr that are not events.
    pub(super) told: Vec<String>,
    pub(super) events: Vec<Value>,
    pub(super) processes: Vec<SeenProcess>,
    /// Networks of its own that its processes were in.
    pub(super) networks: BTreeSet<PathBuf>,
    /// Names of its scratch directories.
    pub(super) scratch_names: BTreeSet<String>,
}

impl Session {
    /// Starts the command, which is `run` or `resume` with events on stderr, and keeps its scratch files in `scratch`.
    pub(super) fn start(mut command: Command, scratch: &Path) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start ciphertoll")?;
        let stdout = read_all(child.stdout.take().context("no stdout")?);
        let lines = read_lines(child.stderr.take().context("no stderr")?);
        Ok(Self {
            child,
            stdout: Some(stdout),
            lines,
            told: Vec::new(),
            events: Vec::new(),
            scratch_root: scratch_root_below(scratch),
            processes: Vec::new(),
            networks: BTreeSet::new(),
            scratch_names: BTreeSet::new(),
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The next event. `None` if the run has ended or is silent.
    fn next_event(&mut self) -> Result<Option<Value>> {
        loop {
            let line = match self.lines.recv_timeout(SILENCE_LIMIT) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return Ok(None),
            };
            self.look_at_ledger();
            if !line.starts_with('{') {
                self.told.push(line);
                continue;
            }
            let event: Value = serde_json::from_str(&line).context("an event is not JSON")?;
            self.events.push(event.clone());
            return Ok(Some(event));
        }
    }

    /// Waits until the load process of a trial of this path runs, after calibration.
    pub(super) fn await_trial(&mut self, path: &str) -> Result<()> {
        let cell = format!("/{path}/");
        while let Some(event) = self.next_event()? {
            let is_wanted = event["event"] == "trial_started"
                && event["block"] != 0
                && event["attempt"] == 1
                && event["cell"].as_str().is_some_and(|id| id.contains(&cell));
            if is_wanted && self.await_load() {
                return Ok(());
            }
        }
        bail!("no trial of {path} began: {}", self.story())
    }

    /// Whether the load process of this trial appears in the ledger.
    fn await_load(&mut self) -> bool {
        let deadline = Instant::now() + SILENCE_LIMIT;
        while Instant::now() < deadline {
            self.look_at_ledger();
            if self.newest(LOAD).is_some_and(|load| load.is_alive()) {
                return true;
            }
            if !self.is_running() {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Waits for the end of the trial that was hit: whether there is one.
    pub(super) fn await_end_of_trial(&mut self) -> Result<bool> {
        while let Some(event) = self.next_event()? {
            if event["event"] == "trial_voided" || event["event"] == "trial_finished" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The newest process whose name in the ledger is `name`, or begins with it and continues with a version.
    pub(super) fn newest(&self, name: &str) -> Option<ProcessIdentity> {
        let is_named = |seen: &&SeenProcess| {
            seen.what.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.processes.iter().rfind(is_named).map(|seen| seen.identity)
    }

    pub(super) fn look_at_ledger(&mut self) {
        let directories = fs::read_dir(&self.scratch_root).into_iter().flatten().flatten();
        for directory in directories.filter(|entry| entry.path().join(LEDGER).exists()) {
            self.scratch_names.insert(directory.file_name().to_string_lossy().into_owned());
            let text = fs::read_to_string(directory.path().join(LEDGER)).unwrap_or_default();
            for effect in text.lines().filter_map(|line| serde_json::from_str::<Effect>(line).ok()) {
                let Effect::Process { identity, what, .. } = effect else { continue };
                let seen = SeenProcess { identity, what };
                if !self.processes.contains(&seen) {
                    self.processes.push(seen);
                }
            }
        }
        let own = process::network(nix::unistd::getpid().as_raw());
        let alive = self.processes.iter().filter(|seen| seen.identity.is_alive());
        let networks = alive.filter_map(|seen| process::network(seen.identity.pid));
        self.networks.extend(networks.filter(|network| Some(network) != own.as_ref()));
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Reads on until the program ends. A program that hangs is killed.
    pub(super) fn finish(self) -> Result<Finished> {
        self.finish_while(|| Ok(()))
    }

    /// The same; calls `keep_up` after each event.
    pub(super) fn finish_while(mut self, mut keep_up: impl FnMut() -> Result<()>) -> Result<Finished> {
        while self.next_event()?.is_some() {
            keep_up()?;
        }
        let deadline = Instant::now() + SILENCE_LIMIT;
        let mut status = None;
        // After a timeout the pipe is still open.
        let hung_up = matches!(self.lines.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        while hung_up && status.is_none() && Instant::now() < deadline {
            status = self.child.try_wait().context("cannot wait for ciphertoll")?;
            thread::sleep(POLL_INTERVAL);
        }
        let hung = status.is_none();
        if hung {
            let _ = kill(Pid::from_raw(self.pid()), Signal::SIGKILL);
            status = Some(self.child.wait().context("cannot wait for ciphertoll")?);
        }
        let stdout = self.stdout.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        Ok(Finished {
            code: status.filter(|_| !hung).and_then(|status| status.code()),
            hung,
            stdout,
            told: std::mem::take(&mut self.told),
            events: std::mem::take(&mut self.events),
            processes: std::mem::take(&mut self.processes),
            networks: std::mem::take(&mut self.networks),
            scratch_names: std::mem::take(&mut self.scratch_names),
        })
    }

    /// The last lines of the run.
    fn story(&self) -> String {
        let last = self.events.iter().rev().take(3).map(ToString::to_string);
        self.told.iter().cloned().chain(last).collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(Pid::from_raw(self.pid()), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// On a thread: a full pipe would stop the program.
fn read_all(mut stdout: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    })
}

/// On a thread: reading a pipe has no time limit.
fn read_lines(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
