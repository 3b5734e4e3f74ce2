//! Scheduling priority for threads that must wake up on time.

use nix::libc;

/// `struct sched_attr` of `sched_setattr(2)`.
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Requests real-time scheduling for the calling thread. If that is not permitted, requests a short time slice (Linux
/// 6.12), which wakes the thread earlier than others. If neither works, the line's lateness counters show it.
pub fn ask_for() {
    const LOW: i32 = 10;
    let parameters = libc::sched_param { sched_priority: LOW };
    // SAFETY: 0 is the calling thread; the pointer is to a whole value that outlives the call, and is only read.
    #[expect(unsafe_code, reason = "nix has no sched_setscheduler")]
    let asked = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if asked != 0 {
        ask_for_short_slices();
    }
}

fn ask_for_short_slices() {
    const SLICE_NS: u64 = 100_000;
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns: SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: 0 is the calling thread; the pointer is to a whole value of the size it states, and is only read.
    #[expect(unsafe_code, reason = "no library has it")]
    let asked = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    let _ = asked;
}
