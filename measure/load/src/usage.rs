//! The clocks of this process, and its peak memory.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// User and system CPU time of all threads, including ended ones.
pub fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// User and system CPU time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// `CLOCK_MONOTONIC` of this machine, or of this time namespace.
pub fn monotonic_now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}

/// Peak resident memory of a running process; 0 if it has ended. Not from `getrusage`, whose maximum includes the process
/// that forked this one.
pub(crate) fn resident_peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
