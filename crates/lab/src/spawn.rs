//! How every process is started and ended.
//!
//! No code runs between fork and exec. Our own binary is started with its hidden command `__exec`: a
//! fresh, single-threaded process that gives up root, arms the parent-death signal, and turns itself
//! into the program. The signal comes when the *thread* that started the child ends, not only when
//! the process does: spawn from the coordinator's main thread and from nowhere else.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use ciphertoll_model::Namespace;
use ciphertoll_record::{Effect, Ended, ProcessIdentity, Scratch};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, getppid, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error};
use crate::user::{RunAs, ServerUser};

/// The hidden command that must lead to [`run_exec_helper`].
pub const EXEC_COMMAND: &str = "__exec";

/// What a child may read and write beyond its owner: nothing.
const CHILD_UMASK: u32 = 0o077;

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
    /// Where its output goes, appended.
    pub log: PathBuf,
}

/// What the helper is told, as JSON in its one argument. Everybody can read it: no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// As whom it runs, where not as the caller.
    pub user: Option<ServerUser>,
    /// The processors that it keeps to; all, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Vec<u16>>,
    /// The network that it joins; its caller's, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Who must still be the parent once the parent-death signal is armed.
    pub expected_parent: i32,
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
}

/// The child's side: becomes the program that `argument`, an [`ExecRequest`], asks for. Returns only
/// where that fails; the caller prints the error, which goes to the child's log, and exits.
pub fn run_exec_helper(argument: &str) -> Error {
    let request: ExecRequest = match serde_json::from_str(argument) {
        Ok(request) => request,
        Err(error) => {
            return Error::Exec { program: EXEC_COMMAND.into(), reason: format!("not a request: {error}") };
        }
    };
    let failed = |step: &str, error: io::Error| Error::Exec {
        program: request.program.clone(),
        reason: format!("{step}: {error}"),
    };
    // First, as who has given up root may not.
    if let Some(namespace) = &request.namespace
        && let Err(error) = ciphertoll_link::join(namespace)
    {
        return failed("join the link's network", error);
    }
    if let Some(processors) = &request.processors
        && let Err(errno) = keep_to(processors)
    {
        return failed(&format!("keep to the processors {processors:?}"), errno.into());
    }
    if let Some(user) = request.user
        && let Err(errno) = become_user(user)
    {
        return failed("give up root", errno.into());
    }
    umask(Mode::from_bits_truncate(CHILD_UMASK));
    // Armed after the change of user, which clears it.
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return failed("arm the parent-death signal", errno.into());
    }
    // Compared after arming: a parent that died before sends no signal any more.
    if getppid() != Pid::from_raw(request.expected_parent) {
        return failed("look at the parent", io::Error::other("it is gone"));
    }
    let mut command = Command::new(&request.program);
    command.args(&request.arguments).env_clear().envs(&request.environment).current_dir(&request.directory);
    failed("exec", command.exec())
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
        command.stdin(Stdio::null()).stdout(log.try_clone().context("open", &launch.log)?).stderr(log);
        let mut process = command.spawn().context("start", helper)?;
        let pid = process.id().cast_signed();
        match note(scratch, pid, &what, program) {
            Ok(identity) => {
                Ok(Self { process, identity, what, log: launch.log.clone(), log_start, status: None })
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

    /// Waits for its end, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        if self.identity.wait(limit).context("wait for", &self.proc_path())? {
            return self.reap().map(Some);
        }
        Ok(None)
    }

    /// Ends it: SIGTERM, `grace`, SIGKILL. Members of its process group that are left get SIGKILL.
    pub fn stop(&mut self, grace: Duration) -> Result<Ended, Error> {
        let ended = self.identity.end(grace).context("end", &self.proc_path())?;
        self.reap()?;
        Ok(ended)
    }

    /// Ends it as [`Self::stop`] does, but asks with another signal first.
    pub fn stop_by(&mut self, signal: Signal, grace: Duration) -> Result<Ended, Error> {
        // Until it is reaped its id cannot mean anybody else.
        if self.ended().is_none()
            && kill(Pid::from_raw(self.identity.pid), signal).is_ok()
            && self.wait(grace)?.is_some()
        {
            return Ok(Ended::Terminated);
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
        let text = fs::read(&self.log).unwrap_or_default();
        let own = text.get(self.log_start as usize..).unwrap_or_default();
        let text = String::from_utf8_lossy(own);
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

/// What is inherited by every thread and child that comes after.
fn keep_to(processors: &[u16]) -> nix::Result<()> {
    const OURSELVES: Pid = Pid::from_raw(0);
    let mut set = CpuSet::new();
    processors.iter().try_for_each(|&processor| set.set(usize::from(processor)))?;
    sched_setaffinity(OURSELVES, &set)
}

fn become_user(user: ServerUser) -> nix::Result<()> {
    setgroups(&[user.group_id()])?;
    setgid(user.group_id())?;
    setuid(user.user_id())
}

fn open_log(path: &Path) -> Result<File, Error> {
    OpenOptions::new().append(true).create(true).open(path).context("open", path)
}

fn tells_of_error(line: &str) -> bool {
    ["[ERROR]", "rror:", "cannot", "FATAL", "PANIC"].iter().any(|word| line.contains(word))
}
