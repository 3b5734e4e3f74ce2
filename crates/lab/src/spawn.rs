//! How every process is started and ended.
//!
//! No code runs between fork and exec. Our own binary is started with its hidden command `__exec`: a
//! fresh, single-threaded process that gives up root, arms the parent-death signal, and turns itself
//! into the program. The signal comes when the *thread* that started the child ends, not only when
//! the process does: spawn from the coordinator's main thread and from nowhere else.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use ciphertoll_model::Namespace;
use ciphertoll_record::{Effect, ProcessEnd, ProcessIdentity, Scratch};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::error::{Context, Error};
use crate::exec::{EXEC_COMMAND, ExecRequest, Provisions, Stdin};
use crate::user::RunAs;

/// A process to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What it is for, in errors and in the ledger.
    pub what: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments. Everybody can read them: no secrets.
    pub arguments: Vec<String>,
    /// Its whole environment, beside `PATH` and a fixed locale. No secrets.
    pub environment: BTreeMap<String, String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// As whom it runs.
    pub run_as: RunAs,
    /// The processors that it and all its children keep to; all, where absent.
    pub processors: Option<Vec<u16>>,
    /// The network that it is in; ours, where absent.
    pub namespace: Option<Namespace>,
    /// What it gets beside.
    pub provisions: Provisions,
    /// Where its output goes, appended.
    pub log: PathBuf,
}

/// A running child. Killed and reaped when dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    identity: ProcessIdentity,
    what: String,
    log: PathBuf,
    /// Length of the log before its first line.
    log_start: u64,
    /// How it ended, once it was reaped.
    status: Option<ExitStatus>,
    /// Closed when it is to end, or when we do.
    _stdin: Option<ChildStdin>,
}

impl Child {
    /// Starts a process; in the ledger before it runs. To be called on the coordinator's main thread.
    pub fn spawn(scratch: &Scratch, helper: &Path, launch: &Launch) -> Result<Self, Error> {
        let Launch { what, program, .. } = launch;
        let (what, program) = (what.clone(), program.clone());
        let argument = serde_json::to_string(&launch.request())
            .map_err(|error| Error::Exec { program: program.clone(), reason: error.to_string() })?;
        let log = open_log(&launch.log)?;
        let log_start = log.metadata().context("look at", &launch.log)?.len();
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
                // What is not in the ledger must not live.
                let _ = process.kill().and_then(|()| process.wait());
                Err(error)
            }
        }
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.identity.pid
    }

    /// The process id and start time.
    pub fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && !self.identity.is_alive() {
            // A failure to reap is told by whoever stops the child.
            let _ = self.reap();
        }
        self.status
    }

    /// Fails if it ended, or does nothing any more, since somebody has stopped it.
    pub fn check(&mut self) -> Result<(), Error> {
        if let Some(status) = self.ended() {
            return Err(self.died(status));
        }
        if self.identity.is_stopped() {
            return Err(Error::Stopped { what: self.what.clone() });
        }
        Ok(())
    }

    /// What it is for.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What it has written to its log.
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(text.get(self.log_start as usize..).unwrap_or_default()).into_owned()
    }

    /// Waits for its end, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        if self.identity.wait(limit).context("wait for", &self.proc_path())? {
            return self.reap().map(Some);
        }
        Ok(None)
    }

    /// Ends it: SIGTERM, `grace`, SIGKILL. Members of its process group that are left get SIGKILL.
    pub fn stop(&mut self, grace: Duration) -> Result<ProcessEnd, Error> {
        let ended = self.identity.end(grace).context("end", &self.proc_path())?;
        self.reap()?;
        Ok(ended)
    }

    /// Ends it as [`Self::stop`] does, but asks with another signal first.
    pub fn stop_by(&mut self, signal: Signal, grace: Duration) -> Result<ProcessEnd, Error> {
        // Until it is reaped its id cannot mean anybody else.
        if self.ended().is_none()
            && kill(Pid::from_raw(self.identity.pid), signal).is_ok()
            && self.wait(grace)?.is_some()
        {
            return Ok(ProcessEnd::Terminated);
        }
        self.stop(Duration::ZERO)
    }

    /// That it ended although it should not have, with what its log says.
    pub fn died(&self, status: ExitStatus) -> Error {
        Error::Died { what: self.what.clone(), status: status.to_string(), log_end: self.log_end() }
    }

    /// That it did not do its work within `limit`.
    pub fn too_slow(&self, limit: Duration, last: String) -> Error {
        Error::TooSlow { what: self.what.clone(), limit, last, log_end: self.log_end() }
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines it logged that tell of errors; where none do, simply the last.
    fn log_end(&self) -> String {
        const LINES: usize = 3;
        let text = self.said();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut telling: Vec<&str> = lines.iter().filter(|line| tells_of_error(line)).copied().collect();
        if telling.is_empty() {
            telling = lines;
        }
        let last = &telling[telling.len().saturating_sub(LINES)..];
        if last.is_empty() { "(empty)".to_owned() } else { last.join(" | ") }
    }

    /// Reaps a child that has ended or was sent SIGKILL.
    fn reap(&mut self) -> Result<ExitStatus, Error> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Before reaping: until then the id, and with it the group's, cannot mean anybody else. That
        // nobody is left in the group is not an error.
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
        // Kills the child too: it leads its group. A child that was reaped is left alone by `reap`.
        let _ = self.reap();
    }
}

impl Launch {
    fn request(&self) -> ExecRequest {
        let mut environment = self.environment.clone();
        environment.entry("PATH".to_owned()).or_insert_with(search_path);
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

/// Programs that servers call themselves are system programs; the caller's PATH is no business of theirs.
fn search_path() -> String {
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()
}

fn note(scratch: &Scratch, pid: i32, what: &str, program: PathBuf) -> Result<ProcessIdentity, Error> {
    let identity = ProcessIdentity::of(pid).context("look at", &PathBuf::from(format!("/proc/{pid}")))?;
    scratch.ledger().note(&Effect::Process { identity, what: what.to_owned(), program })?;
    Ok(identity)
}

fn open_log(path: &Path) -> Result<File, Error> {
    OpenOptions::new().append(true).create(true).open(path).context("open", path)
}

fn tells_of_error(line: &str) -> bool {
    // PostgreSQL says what is wrong with a setting at the level LOG.
    ["[ERROR]", "rror:", "cannot", "FATAL", "PANIC", "parameter \""].iter().any(|word| line.contains(word))
}
