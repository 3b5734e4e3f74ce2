//! Clocks: monotonic, the real-time clock that the kernel stamps packets with, and the process's CPU time.

use nix::time::{ClockId, clock_gettime};

pub(crate) fn monotonic_ns() -> u64 {
    now_ns(ClockId::CLOCK_MONOTONIC)
}

/// The monotonic time of a packet that the kernel stamped with this real time.
pub(crate) fn monotonic_of(unix_ns: u64) -> u64 {
    /// An older stamp means that the real-time clock was set.
    const OLDEST_NS: u64 = 100_000_000;
    let age_ns = now_ns(ClockId::CLOCK_REALTIME).saturating_sub(unix_ns);
    monotonic_ns().saturating_sub(if age_ns > OLDEST_NS { 0 } else { age_ns })
}

pub(crate) fn process_cpu_ns() -> u64 {
    now_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

pub(crate) fn now_ns(clock: ClockId) -> u64 {
    // These clocks exist on every kernel.
    clock_gettime(clock).map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
