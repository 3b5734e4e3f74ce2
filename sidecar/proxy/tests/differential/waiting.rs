//! Waits for processes to wait: instead of sleeping, and instead of guessing when an answer is complete.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a process needs for what it has received; it may be busy with something else.
const SETTLED: Duration = Duration::from_millis(5);

/// Whether no thread of this process runs. A process to which bytes were sent counts as running from the moment at
/// which they were sent.
pub(crate) fn is_asleep(process: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    tasks.flatten().all(|task| fs::read(task.path().join("stat")).map_or(true, |stat| sleeps(&stat)))
}

/// Whether the first thread of this process does not run. `None` if there is no such process.
pub(crate) fn sleeps_alone(process: u32) -> Option<bool> {
    fs::read(format!("/proc/{process}/stat")).ok().map(|stat| sleeps(&stat))
}

/// The state follows the name, which is in parentheses and may contain some.
fn sleeps(stat: &[u8]) -> bool {
    let end = stat.iter().rposition(|&byte| byte == b')').unwrap_or_default();
    stat.get(end + 2) == Some(&b'S')
}

/// Lets a process read what was sent, so that what is sent next comes by itself.
pub(crate) fn let_read(process: u32) {
    let until = Instant::now() + SETTLED;
    while !is_asleep(process) && Instant::now() < until {
        thread::yield_now();
    }
}

/// The thread of a server that serves a client.
#[derive(Clone, Copy)]
pub(crate) enum ServerThread {
    Number(u32),
    /// It is not known which one it is.
    AnyOf,
}

impl ServerThread {
    /// Whether it does not run.
    pub(crate) fn sleeps(self, process: u32) -> bool {
        match self {
            Self::Number(thread) => {
                fs::read(format!("/proc/{process}/task/{thread}/stat")).is_ok_and(|stat| sleeps(&stat))
            }
            Self::AnyOf => is_asleep(process),
        }
    }
}
