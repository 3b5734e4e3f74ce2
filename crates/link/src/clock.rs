//! The clocks: one that only goes forward, the one that the kernel stamps packets by, and that of a process's CPU time.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment.
pub(crate) fn monotonic_ns() -> u64 {
    now_ns(ClockId::CLOCK_MONOTONIC)
}

/// When a packet came, by the first clock, that came at this time by the second.
pub(crate) fn monotonic_of(unix_ns: u64) -> u64 {
    /// A step of the second clock is no age.
    const OLDEST_NS: u64 = 100_000_000;
    let age_ns = now_ns(ClockId::CLOCK_REALTIME).saturating_sub(unix_ns);
    monotonic_ns().saturating_sub(if age_ns > OLDEST_NS { 0 } else { age_ns })
}

/// CPU time of this process, all threads.
pub(crate) fn process_cpu_ns() -> u64 {
    now_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

pub(crate) fn now_ns(clock: ClockId) -> u64 {
    // Clocks that every kernel has do not fail.
    clock_gettime(clock).map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
