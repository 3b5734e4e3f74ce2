//! Checks of the machine: processors, clock, memory, and sources of noise.

use std::fs;
use std::time::Instant;

use ciphertoll_host::environment::{MEMINFO, environment, meminfo_bytes};
use ciphertoll_host::processors::{ProcessorSplit, siblings, split_processors};
use ciphertoll_model::{CryptoInstruction, Environment};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::directories::size;
use super::finding::{CheckPurpose, Finding};
use crate::profiler::{PerfUnusable, check_perf};

const OURSELVES: Pid = Pid::from_raw(0);
/// The oldest kernel that CPU accounting and links were tested with.
const OLDEST_KERNEL: (u32, u32) = (5, 10);
const ENOUGH_MEMORY: u64 = 1 << 30;
/// A clock that needs a system call or a device access takes longer.
const FAST_CLOCK_NS: f64 = 200.0;
/// More steal makes verdicts less reliable.
const MUCH_STEAL_PERCENT: f64 = 1.0;

/// Tries to restrict this process to each half of the processors.
pub(super) fn processors() -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "processors");
    let Some(ProcessorSplit { client, server }) = split_processors() else {
        let seen = "one processor, which client and server share";
        return Finding::limited(purpose, name, seen, "use more processors, or a cpuset that permits them");
    };
    let halves =
        format!("{}: client {}, server {}", client.len() + server.len(), list(&client), list(&server));
    if let Some(reason) = [&client, &server].into_iter().find_map(|half| try_affinity(half).err()) {
        let seen = format!("{halves}; cannot set the affinity: {reason}");
        return Finding::limited(purpose, name, seen, "permit sched_setaffinity (seccomp), or use --pin off");
    }
    if client.first().is_some_and(|&first| server.iter().any(|one| siblings(first).contains(one))) {
        let seen = format!("{halves}; both are threads of the same core and slow each other down");
        return Finding::limited(purpose, name, seen, "use a machine with more cores");
    }
    Finding::ok(purpose, name, halves)
}

/// Samples the kernel for a moment.
pub(super) fn perf() -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "perf");
    match check_perf() {
        Ok(()) => Finding::ok(purpose, name, "samples user and kernel; run --profile"),
        Err(PerfUnusable { reason, cure }) => {
            Finding::limited(purpose, name, format!("{reason}; run --profile computes a part"), cure)
        }
    }
}

/// Formats a list as `0-3,8`.
fn list(processors: &[u16]) -> String {
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for &processor in processors {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == processor => *last = processor,
            _ => parts.push((processor, processor)),
        }
    }
    let part = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn try_affinity(processors: &[u16]) -> Result<(), String> {
    let text = |errno: nix::Error| errno.to_string();
    let mut set = CpuSet::new();
    processors.iter().try_for_each(|&processor| set.set(usize::from(processor))).map_err(text)?;
    let before = sched_getaffinity(OURSELVES).map_err(text)?;
    sched_setaffinity(OURSELVES, &set).map_err(text)?;
    let after = sched_getaffinity(OURSELVES).map_err(text)?;
    sched_setaffinity(OURSELVES, &before).map_err(text)?;
    if after == set { Ok(()) } else { Err("the kernel uses other processors".to_owned()) }
}

pub(super) fn all() -> Vec<Finding> {
    let environment = environment();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    vec![
        kernel(&environment.kernel),
        memory(meminfo_bytes(&read(MEMINFO), "MemAvailable")),
        clock_source(clock.trim(), clock_read_ns()),
        instructions(&environment),
        frequency(governor.trim()),
        steal(&read("/proc/stat")),
    ]
}

fn kernel(release: &str) -> Finding {
    let (purpose, name, seen) = (CheckPurpose::Measure, "kernel", format!("Linux {release}"));
    match version(release) {
        Some(version) if version >= OLDEST_KERNEL => Finding::ok(purpose, name, seen),
        _ => Finding::limited(purpose, name, seen, "use Linux 5.10 or later"),
    }
}

/// `(6, 1)` of `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn memory(available: Option<u64>) -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "memory");
    let cure = "end other programs: small tables need 1 GiB";
    match available {
        None => Finding::limited(purpose, name, "not reported by the kernel", "mount /proc"),
        Some(bytes) if bytes < ENOUGH_MEMORY => {
            Finding::limited(purpose, name, format!("{} available", size(bytes)), cure)
        }
        Some(bytes) => Finding::ok(purpose, name, format!("{} available", size(bytes))),
    }
}

fn clock_source(name: &str, read_ns: f64) -> Finding {
    let known = if name.is_empty() { "unknown clock source" } else { name };
    let seen = format!("{known}, {read_ns:.0} ns per read");
    if read_ns <= FAST_CLOCK_NS {
        return Finding::ok(CheckPurpose::Measure, "clock", seen);
    }
    let cure = "use a clock source without system calls: `tsc` on x86 (kernel parameter clocksource=tsc)";
    Finding::limited(CheckPurpose::Measure, "clock", seen, cure)
}

/// Duration of one clock read; the fastest of several batches, because others may be interrupted.
fn clock_read_ns() -> f64 {
    const BATCHES: u32 = 20;
    const READS: u32 = 1_000;
    let batch = || {
        let began = Instant::now();
        let last = (0..READS).map(|_| Instant::now()).max().unwrap_or(began);
        last.duration_since(began).as_nanos() as f64 / f64::from(READS)
    };
    (0..BATCHES).map(|_| batch()).fold(f64::INFINITY, f64::min)
}

fn instructions(environment: &Environment) -> Finding {
    let names: Vec<&str> = CryptoInstruction::ALL
        .into_iter()
        .filter(|instruction| environment.crypto_instructions.contains(instruction))
        .map(CryptoInstruction::label)
        .collect();
    let (purpose, name) = (CheckPurpose::Measure, "instructions");
    let seen = format!("{}: {}", environment.cpu_model, names.join(" "));
    if environment.crypto_instructions.contains(&CryptoInstruction::Aes) {
        return Finding::ok(purpose, name, seen);
    }
    let seen = format!("{}: no AES instructions", environment.cpu_model);
    Finding::limited(
        purpose,
        name,
        seen,
        "use a processor with AES instructions, or a virtual machine that exposes them (CPU type host)",
    )
}

fn frequency(governor: &str) -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "CPU frequency");
    match governor {
        "" => Finding::ok(purpose, name, "not adjustable (as in most virtual machines)"),
        "performance" => Finding::ok(purpose, name, "governor performance"),
        other => Finding::limited(
            purpose,
            name,
            format!("governor {other}"),
            "cpupower frequency-set -g performance",
        ),
    }
}

fn steal(stat: &str) -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "steal");
    let Some(percent) = steal_percent(stat) else {
        return Finding::limited(purpose, name, "not reported by the kernel", "mount /proc");
    };
    let seen = format!("{percent:.2} % of the CPU time since boot was taken by the hypervisor");
    if percent < MUCH_STEAL_PERCENT {
        return Finding::ok(purpose, name, seen);
    }
    Finding::limited(purpose, name, seen, "use a machine with dedicated processors, or more blocks")
}

/// Percentage since boot, from the first line of `/proc/stat`; user time includes guest time.
fn steal_percent(stat: &str) -> Option<f64> {
    const TIMES: usize = 8;
    const STEAL: usize = 7;
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).take(TIMES).collect();
    let all: u64 = ticks.iter().sum();
    (all > 0).then(|| Some(100.0 * *ticks.get(STEAL)? as f64 / all as f64)).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::finding::CheckOutcome;
    use super::*;

    fn is_limited(finding: &Finding) -> bool {
        matches!(finding.verdict, CheckOutcome::Limited { .. })
    }

    #[test]
    fn old_kernels_are_limited() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(kernel("5.10").verdict, CheckOutcome::Ok);
        for old in ["5.4.0", "4.18.0-553.el8", "unknown"] {
            assert!(is_limited(&kernel(old)), "{old}");
        }
    }

    #[test]
    fn little_memory_much_steal_and_a_slow_governor_are_limitations() {
        assert!(is_limited(&memory(Some(1 << 20))) && is_limited(&memory(None)));
        let percent = steal_percent("cpu  40 0 10 100 0 0 0 50 7 0\ncpu0 1\n").unwrap();
        assert!((percent - 25.0).abs() < 1e-9, "{percent}");
        assert_eq!(steal_percent("cpu  0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(steal_percent("cpu  1 2 3\n"), None);
        assert!(is_limited(&frequency("powersave")));
        assert_eq!(frequency("performance").verdict, CheckOutcome::Ok);
        assert_eq!(frequency("").verdict, CheckOutcome::Ok);
    }

    #[test]
    fn a_slow_clock_is_a_limitation() {
        assert_eq!(clock_source("tsc", 25.0).seen, "tsc, 25 ns per read");
        assert!(is_limited(&clock_source("hpet", 900.0)));
        assert!(clock_read_ns() > 0.0);
    }

    #[test]
    fn processors_are_listed_in_ranges() {
        assert_eq!(list(&[0, 1, 2, 8]), "0-2,8");
        assert_eq!(list(&[3]), "3");
    }
}
