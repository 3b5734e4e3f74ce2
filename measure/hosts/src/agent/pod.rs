//! The first process of a load pod: waits for agents, and ends when there is none for a while.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The hidden command; its argument is the idle limit in seconds.
pub const POD_COMMAND: &str = "__pod";

/// Agents of a run live as long as the run. The coordinator needs less to reach a new pod.
pub(crate) const POD_IDLE_LIMIT: Duration = Duration::from_mins(10);

/// How often the processes are counted.
const CHECK_EVERY: u16 = 5_000;

/// Waits until no other process has run in this pod for `idle_limit`. An error after SIGTERM or SIGINT: a pod that is ended
/// has failed, so that Kubernetes replaces it; one that succeeds is not replaced.
///
/// The first process of a process namespace ignores signals that it does not handle, and orphans become its children.
pub fn wait_in_pod(idle_limit: Duration) -> io::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let caught = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut last_busy = Instant::now();
    while last_busy.elapsed() < idle_limit {
        match poll(&mut [PollFd::new(caught.as_fd(), PollFlags::POLLIN)], PollTimeout::from(CHECK_EVERY)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        while let Some(signal) = caught.read_signal()? {
            if signal.ssi_signo != Signal::SIGCHLD as u32 {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        reap();
        if has_other_processes()? {
            last_busy = Instant::now();
        }
    }
    Ok(())
}

fn reap() {
    while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}

/// Whether this process namespace, which is the pod's container, has another process.
fn has_other_processes() -> io::Result<bool> {
    let this = std::process::id().to_string();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().iter().all(u8::is_ascii_digit) && name != *this {
            return Ok(true);
        }
    }
    Ok(false)
}
