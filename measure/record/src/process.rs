//! Identifies a process by id and start time: the kernel reuses ids, but not together with the start time.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The longest time from SIGKILL to the end of a process, unless the disk hangs.
const KILL_DEADLINE: Duration = Duration::from_mins(1);

/// A process id and when that process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    /// Clock ticks from boot to the process's start, as in `/proc/PID/stat`.
    pub start_time_ticks: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It had ended before, or its id belongs to another process.
    AlreadyGone,
    /// After SIGTERM.
    Terminated,
    /// After SIGKILL.
    Killed,
}

impl ProcessIdentity {
    /// The current process with id `pid`.
    pub fn of(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_time_ticks =
            start_time(&stat).ok_or_else(|| io::Error::other("unexpected /proc/PID/stat"))?;
        Ok(Self { pid, start_time_ticks })
    }

    /// Whether this process still runs. An ended process that was not reaped does not. If it cannot be looked at, because
    /// this process has no free file descriptor, it counts as alive.
    pub fn is_alive(&self) -> bool {
        match self.open() {
            Ok(Some(process)) => !wait(&process, Duration::ZERO).unwrap_or(false),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Whether this process is stopped (SIGSTOP, a debugger).
    pub fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // Field 3 of `/proc/PID/stat`.
        let state = stat.rsplit_once(')').map_or("", |(_, after_name)| after_name.trim_start());
        start_time(&stat) == Some(self.start_time_ticks) && state.starts_with(['T', 't'])
    }

    /// Waits until the process has ended, at most `limit`; says whether it has.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        self.open()?.map_or(Ok(true), |process| wait(&process, limit))
    }

    /// Ends the process: SIGTERM, `grace`, SIGKILL. Reaping it is its parent's task.
    pub fn end(&self, grace: Duration) -> io::Result<ProcessEnd> {
        let Some(process) = self.open()? else { return Ok(ProcessEnd::AlreadyGone) };
        if wait(&process, Duration::ZERO)? || !signal(&process, Signal::TERM)? {
            return Ok(ProcessEnd::AlreadyGone);
        }
        if wait(&process, grace)? {
            return Ok(ProcessEnd::Terminated);
        }
        signal(&process, Signal::KILL)?;
        if wait(&process, KILL_DEADLINE)? {
            return Ok(ProcessEnd::Killed);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} survives SIGKILL", self.pid)))
    }

    /// A handle of the process if it is still the same. Opened first and compared afterwards, so that the handle cannot belong
    /// to a process that reused the id in between.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        match Self::of(self.pid) {
            Ok(found) => Ok((found == *self).then_some(process)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether `/proc/PID` could not be read because there is no such process.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Sends a signal; false if the process has ended.
fn signal(process: &OwnedFd, signal: Signal) -> io::Result<bool> {
    match pidfd_send_signal(process, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until the process has ended, at most `limit`; says whether it has.
fn wait(process: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Field 22 of `/proc/PID/stat`, counted from the last `)`, because a program's name may contain any character.
fn start_time(stat: &str) -> Option<u64> {
    const FIELDS_AFTER_NAME: usize = 19;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(FIELDS_AFTER_NAME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn start_time_is_found_behind_a_hostile_name() {
        let stat = "7 (a) R 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(start_time(stat), Some(4242));
    }

    #[test]
    fn a_process_is_alive_until_it_ends() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id().cast_signed()).unwrap();
        // Another start time is another process.
        let other = ProcessIdentity { start_time_ticks: identity.start_time_ticks + 1, ..identity };
        assert_eq!(other.end(Duration::ZERO).unwrap(), ProcessEnd::AlreadyGone);
        assert!(identity.is_alive());
        assert_eq!(identity.end(Duration::from_mins(1)).unwrap(), ProcessEnd::Terminated);
        assert!(!identity.is_alive(), "ended though not reaped");
        child.wait().unwrap();
        assert_eq!(identity.end(Duration::ZERO).unwrap(), ProcessEnd::AlreadyGone);
    }

    #[test]
    fn a_process_deaf_to_sigterm_is_killed() {
        let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let identity = ProcessIdentity::of(child.id().cast_signed()).unwrap();
        assert_eq!(identity.end(Duration::from_millis(50)).unwrap(), ProcessEnd::Killed);
        child.wait().unwrap();
    }
}
