//! Runs a command that prints a password: without a shell, in a separate process group, within bounds of time and output.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_wire::Secret;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::duration::HumanDuration;

/// Far longer than any token.
pub(super) const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// Only the first line is used.
const MAX_STDERR_BYTES: usize = 4 << 10;
const MAX_LINE_CHARACTERS: usize = 200;
/// How often a command whose output is still open is looked at: another process may have inherited its stdout.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// For the members of a killed group to end.
const REAP_ATTEMPTS: u32 = 100;
const REAP_INTERVAL: Duration = Duration::from_millis(5);
/// Variables that hold passwords, or belong to the service manager.
const HIDDEN_VARIABLES: [&str; 4] = ["CIPHERTOLL_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "NOTIFY_SOCKET"];

/// No error contains anything that the command has printed to stdout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("cannot start {program}: {reason}")]
    NotStarted { program: String, reason: String },
    #[error("{program} did not end within {time} and was killed")]
    TimedOut { program: String, time: HumanDuration },
    #[error("{program} printed more than 64 KiB and was killed")]
    TooMuch { program: String },
    #[error("{program} {status}{said}")]
    Failed { program: String, status: String, said: String },
    #[error("cannot read the output of {program}: {reason}")]
    Unreadable { program: String, reason: String },
    #[error("the proxy is stopping")]
    Stopping,
}

/// The commands that run now, so that none outlives the proxy.
#[derive(Default)]
pub struct RunningCommands(Mutex<Groups>);

#[derive(Default)]
struct Groups {
    groups: Vec<Pid>,
    is_stopping: bool,
}

impl RunningCommands {
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the commands that run, and starts no more.
    pub fn stop(&self) {
        let mut groups = self.groups();
        groups.is_stopping = true;
        for group in &groups.groups {
            // It may have ended. It is not reaped yet, so that its number belongs to no other.
            let _ = killpg(*group, Signal::SIGKILL);
        }
    }

    fn start(&self, command: &mut Command, program: &str) -> Result<Child, CommandError> {
        // Within the lock, so that a command that starts now is not missed by `stop`.
        let mut groups = self.groups();
        if groups.is_stopping {
            return Err(CommandError::Stopping);
        }
        let child = command.spawn().map_err(|error| CommandError::NotStarted {
            program: program.to_owned(),
            reason: error.to_string(),
        })?;
        groups.groups.push(group_of(&child));
        Ok(child)
    }

    fn reap(&self, child: &mut Child) -> Option<ExitStatus> {
        let mut groups = self.groups();
        let status = child.try_wait().ok().flatten()?;
        groups.groups.retain(|group| *group != group_of(child));
        Some(status)
    }

    /// Kills the process group of a command, and reaps its members if they are children of this process.
    fn kill(&self, child: &mut Child) {
        let group = group_of(child);
        let mut groups = self.groups();
        let _ = killpg(group, Signal::SIGKILL);
        groups.groups.retain(|known| *known != group);
        drop(groups);
        // As the first process of a container, this one inherits orphans.
        for _ in 0..REAP_ATTEMPTS {
            match waitpid(Pid::from_raw(-group.as_raw()), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => thread::sleep(REAP_INTERVAL),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }
}

fn group_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Runs a command, and returns what it has printed to stdout. `words` is not empty; `hidden` are variables that it does not
/// inherit.
pub(super) fn run(
    words: &[String],
    hidden: &[String],
    time_limit: Duration,
    running: &RunningCommands,
) -> Result<Secret, CommandError> {
    let program = words.first().cloned().unwrap_or_default();
    let until = Instant::now() + time_limit;
    let mut command = Command::new(&program);
    command.args(words.iter().skip(1)).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in HIDDEN_VARIABLES.into_iter().chain(hidden.iter().map(String::as_str)) {
        command.env_remove(name);
    }
    let mut child = running.start(&mut command, &program)?;
    let mut pipes = Pipes::of(&mut child);
    loop {
        if let Some(status) = running.reap(&mut child) {
            // What it wrote before it ended is in the pipes. Another process may still hold them open.
            while Instant::now() < until
                && pipes.read(Duration::ZERO).map_err(|error| unreadable(&program, &error))?
            {}
            return match (pipes.is_too_much(), status.success()) {
                (true, _) => Err(CommandError::TooMuch { program }),
                (false, true) => Ok(pipes.stdout.content()),
                (false, false) => {
                    Err(CommandError::Failed { status: ended(status), said: pipes.said(), program })
                }
            };
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || pipes.is_too_much() {
            running.kill(&mut child);
            return Err(if pipes.is_too_much() {
                CommandError::TooMuch { program }
            } else {
                CommandError::TimedOut { program, time: time_limit.into() }
            });
        }
        if let Err(error) = pipes.read(left.min(POLL_INTERVAL)) {
            running.kill(&mut child);
            return Err(unreadable(&program, &error));
        }
    }
}

fn unreadable(program: &str, error: &std::io::Error) -> CommandError {
    CommandError::Unreadable { program: program.to_owned(), reason: error.to_string() }
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "failed".to_owned(),
    }
}

/// What the command has printed.
struct Pipes {
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    stdout: PipeContent,
    stderr: PipeContent,
}

impl Pipes {
    fn of(child: &mut Child) -> Self {
        Self {
            out: child.stdout.take(),
            err: child.stderr.take(),
            // One byte more, to notice longer output.
            stdout: PipeContent::new(MAX_OUTPUT_BYTES + 1),
            stderr: PipeContent::new(MAX_STDERR_BYTES),
        }
    }

    fn is_too_much(&self) -> bool {
        self.stdout.length > MAX_OUTPUT_BYTES
    }

    /// Waits for output at most so long, and reads it. Returns whether there was any.
    fn read(&mut self, wait: Duration) -> std::io::Result<bool> {
        let wanted = PollFlags::IN;
        let mut fds = Vec::with_capacity(2);
        fds.extend(self.out.as_ref().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), wanted)));
        fds.extend(self.err.as_ref().map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), wanted)));
        if fds.is_empty() {
            // It has closed both and runs on.
            thread::sleep(wait.min(REAP_INTERVAL));
            return Ok(false);
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let out = self.out.is_some() && ready.next().unwrap_or_default();
        let err = self.err.is_some() && ready.next().unwrap_or_default();
        drop(ready);
        let read_out = out && !self.is_too_much() && self.stdout.fill(&mut self.out)?;
        let read_err = err && self.stderr.fill(&mut self.err)?;
        Ok(read_out || read_err)
    }

    /// The first line of stderr, unless it repeats what must not be shown.
    fn said(&self) -> String {
        let text = String::from_utf8_lossy(self.stderr.filled());
        let Some(line) = text.lines().find(|line| !line.trim().is_empty()) else { return String::new() };
        let printed = String::from_utf8_lossy(self.stdout.filled());
        if shares_word(&printed, line) {
            return " (stderr repeats the output and is not shown)".to_owned();
        }
        let shown = line.trim().chars().take(MAX_LINE_CHARACTERS);
        let shown: String = shown.map(|shown| if shown.is_control() { '?' } else { shown }).collect();
        format!(": {shown}")
    }
}

/// Whether a line has a word of a text that may be a secret.
fn shares_word(secret: &str, line: &str) -> bool {
    const SHORTEST: usize = 4;
    let is_separator = |at: char| at.is_whitespace() || at.is_control() || "\"'`,;:={}[]()<>".contains(at);
    let words = secret.split(is_separator).filter(|word| word.chars().count() >= SHORTEST);
    let whole = secret.trim();
    let is_whole = !whole.is_empty() && (line.contains(whole) || whole.contains(line.trim()));
    is_whole || words.into_iter().any(|word| line.contains(word))
}

/// Output up to a limit. It never grows, which would leave copies of a password in freed memory.
struct PipeContent {
    bytes: Vec<u8>,
    length: usize,
}

impl PipeContent {
    fn new(limit: usize) -> Self {
        Self { bytes: vec![0; limit], length: 0 }
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Reads once; what does not fit is dropped. Closes the pipe at its end, and then returns false.
    fn fill<R: Read>(&mut self, pipe: &mut Option<R>) -> std::io::Result<bool> {
        let Some(open) = pipe else { return Ok(false) };
        let mut dropped = [0; 1024];
        let room = self.length < self.bytes.len();
        let target = if room { &mut self.bytes[self.length..] } else { &mut dropped[..] };
        match open.read(target) {
            Ok(0) => *pipe = None,
            Ok(count) if room => self.length += count,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(pipe.is_some())
    }

    fn content(&self) -> Secret {
        Secret::new(self.filled().to_vec())
    }
}

impl Drop for PipeContent {
    fn drop(&mut self) {
        // Zeroed.
        drop(Secret::new(std::mem::take(&mut self.bytes)));
    }
}

#[cfg(test)]
mod tests;
