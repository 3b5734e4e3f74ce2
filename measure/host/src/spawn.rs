//! Starting and ending of every child process.
//!
//! No code runs between fork and exec. A child starts as our own binary with the hidden command `__exec`: a fresh,
//! single-threaded process that gives up root, arms the parent-death signal, and then executes the program. The signal is
//! sent when the *thread* that started the child ends, not only when the process ends: spawn from the coordinator's main
//! thread only.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use ciphertoll_model::Namespace;
use ciphertoll_record::Context;
use ciphertoll_record::{Effect, ProcessEnd, ProcessIdentity, Scratch};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::error::Error;
use crate::exec::{EXEC_COMMAND, ExecRequest, Provisions, Stdin};
use crate::user::RunAs;

/// Servers call system programs only; they do not get the caller's PATH.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Clone, Debug)]
pub struct Launch {
    /// Name of the process in errors and in the ledger.
    pub what: String,
    pub program: PathBuf,
    /// Every user can read the arguments: no secrets.
    pub arguments: Vec<String>,
    /// The environment, except `PATH` and a fixed locale. No secrets.
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    pub run_as: RunAs,
    /// CPU affinity of the process and its children; all processors if absent.
    pub processors: Option<Vec<u16>>,
    /// Network namespace; ours if absent.
    pub namespace: Option<Namespace>,
    pub provisions: Provisions,
    /// The file that output is appended to.
    pub log: PathBuf,
}

/// A running child. Killed and reaped when dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    identity: ProcessIdentity,
    what: String,
    log: PathBuf,
    /// Length of the log before the start.
    log_start: u64,
    /// Set once the child is reaped.
    status: Option<ExitStatus>,
    /// Open for as long as the child should run; closed when we end.
    _stdin: Option<ChildStdin>,
}

impl Child {
    /// Starts a process; the ledger is written first. Call on the coordinator's main thread.
    pub fn spawn(scratch: &Scratch, helper: &Path, launch: &Launch) -> Result<Self, Error> {
        let Launch { what, program, .. } = launch;
        let (what, program) = (what.clone(), program.clone());
        let argument = serde_json::to_string(&launch.request())
            .map_err(|error| Error::Exec { program: program.clone(), reason: error.to_string() })?;
        let log = OpenOptions::new().append(true).create(true).open(&launch.log);
        let log = log.context("open", &launch.log)?;
        let log_start = log.metadata().context("inspect", &launch.log)?.len();
        scratch.ledger().note(&Effect::ProcessIntended { what: what.clone(), program: program.clone() })?;
        let mut command = Command::new(helper);
        command.arg(EXEC_COMMAND).arg(argument).process_group(0);
        let stdin = match launch.provisions.stdin {
            Stdin::Empty | Stdin::Connection(_) => Stdio::null(),
            Stdin::Held => Stdio::piped(),
        };
        command.stdin(stdin).stdout(log.try_clone().context("open", &launch.log)?).stderr(log);
        let mut process = command.spawn().context("start", helper)?;
        let pid = process.id().cast_signed();
        match note(scratch, pid, &what, program) {
            Ok(identity) => {
                let (log, stdin) = (launch.log.clone(), process.stdin.take());
                Ok(Self { process, identity, what, log, log_start, status: None, _stdin: stdin })
            }
            Err(error) => {
                // A process without a ledger entry must not live.
                let _ = process.kill().and_then(|()| process.wait());
                Err(error)
            }
        }
    }

    pub fn pid(&self) -> i32 {
        self.identity.pid
    }

    pub fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && !self.identity.is_alive() {
            // The call that stops the child reports a failure to reap.
            let _ = self.reap();
        }
        self.status
    }

    /// Fails if the child has ended or is stopped (SIGSTOP).
    pub fn check(&mut self) -> Result<(), Error> {
        if let Some(status) = self.ended() {
            return Err(self.died(status));
        }
        if self.identity.is_stopped() {
            return Err(Error::Stopped { what: self.what.clone() });
        }
        Ok(())
    }

    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn output(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(text.get(self.log_start as usize..).unwrap_or_default()).into_owned()
    }

    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        if self.identity.wait(limit).context("wait for", &self.proc_path())? {
            return self.reap().map(Some);
        }
        Ok(None)
    }

    /// Waits for the end. Fails unless the child succeeds within `limit`.
    pub fn finish(&mut self, limit: Duration) -> Result<(), Error> {
        match self.wait(limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.died(status)),
            None => Err(self.too_slow(limit, "still running".to_owned())),
        }
    }

    /// Ends the child: SIGTERM, and SIGKILL after `grace`. Remaining members of its process group get SIGKILL.
    pub fn stop(&mut self, grace: Duration) -> Result<ProcessEnd, Error> {
        let ended = self.identity.end(grace).context("end", &self.proc_path())?;
        self.reap()?;
        Ok(ended)
    }

    /// Like [`Self::stop`], but sends `signal` instead of SIGTERM.
    pub fn stop_by(&mut self, signal: Signal, grace: Duration) -> Result<ProcessEnd, Error> {
        // Until the child is reaped, its id is not reused.
        if self.ended().is_none()
            && kill(Pid::from_raw(self.identity.pid), signal).is_ok()
            && self.wait(grace)?.is_some()
        {
            return Ok(ProcessEnd::Terminated);
        }
        self.stop(Duration::ZERO)
    }

    /// The error for an unexpected end, with the end of the log.
    pub fn died(&self, status: ExitStatus) -> Error {
        Error::Died { what: self.what.clone(), status: status.to_string(), log_end: self.log_end() }
    }

    /// The error for an exceeded limit, with the end of the log.
    pub fn too_slow(&self, limit: Duration, last: String) -> Error {
        Error::TooSlow { what: self.what.clone(), limit, last, log_end: self.log_end() }
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of the log that report errors; the last lines if none do.
    fn log_end(&self) -> String {
        const LINES: usize = 3;
        let text = self.output();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut errors: Vec<&str> = lines.iter().filter(|line| reports_error(line)).copied().collect();
        if errors.is_empty() {
            errors = lines;
        }
        let last = &errors[errors.len().saturating_sub(LINES)..];
        if last.is_empty() { "(empty)".to_owned() } else { last.join(" | ") }
    }

    /// Reaps a child that has ended or that gets SIGKILL with its group.
    fn reap(&mut self) -> Result<ExitStatus, Error> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Before reaping: until then the id of the child, and so of its group, is not reused. The group may be empty.
        let _ = killpg(Pid::from_raw(self.identity.pid), Signal::SIGKILL);
        let status = self.process.wait().context("wait for", &self.proc_path())?;
        self.status = Some(status);
        Ok(status)
    }

    fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.identity.pid))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Also kills the child, which leads its group. `reap` does nothing for a reaped child.
        let _ = self.reap();
    }
}

impl Launch {
    fn request(&self) -> ExecRequest {
        let mut environment = self.environment.clone();
        environment.entry("PATH".to_owned()).or_insert_with(|| SEARCH_PATH.to_owned());
        environment.insert("LC_ALL".to_owned(), "C".to_owned());
        ExecRequest {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment,
            directory: self.directory.clone(),
            user: self.run_as.other(),
            processors: self.processors.clone(),
            namespace: self.namespace.clone(),
            provisions: self.provisions.clone(),
            expected_parent: Pid::this().as_raw(),
        }
    }
}

fn note(scratch: &Scratch, pid: i32, what: &str, program: PathBuf) -> Result<ProcessIdentity, Error> {
    let identity = ProcessIdentity::of(pid).context("inspect", &PathBuf::from(format!("/proc/{pid}")))?;
    scratch.ledger().note(&Effect::Process { identity, what: what.to_owned(), program })?;
    Ok(identity)
}

fn reports_error(line: &str) -> bool {
    // PostgreSQL reports errors in settings at the level LOG.
    ["[ERROR]", "rror:", "cannot", "FATAL", "PANIC", "parameter \""].iter().any(|word| line.contains(word))
}
