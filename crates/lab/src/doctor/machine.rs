//! The machine itself: processors, clock, memory, and what makes its numbers scatter.

use std::fs;
use std::time::Instant;

use ciphertoll_model::{CryptoInstruction, Environment};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::places::size;
use super::{Finding, Purpose};
use crate::environment::environment;
use crate::processors::{Apart, processors_apart, siblings};

const OURSELVES: Pid = Pid::from_raw(0);
/// The oldest kernel that the servers' accounting and the links were made for.
const OLDEST_KERNEL: (u32, u32) = (5, 10);
/// Servers, their caches, clients.
const ENOUGH_MEMORY: u64 = 1 << 30;
/// A clock that is read by a system call, or from a device, takes longer.
const FAST_CLOCK_NS: f64 = 200.0;
/// From here on verdicts suffer.
const MUCH_STEAL_PERCENT: f64 = 1.0;

/// Keeping to processors, done once for each half.
pub(super) fn processors() -> Finding {
    let (purpose, name) = (Purpose::Measure, "processors");
    let Some(Apart { client, server }) = processors_apart() else {
        let seen = "1: client and server share it";
        return Finding::limited(purpose, name, seen, "more processors, or a cpuset that allows them");
    };
    let halves =
        format!("{}: client {}, server {}", client.len() + server.len(), list(&client), list(&server));
    if let Some(reason) = [&client, &server].into_iter().find_map(|half| keep_to(half).err()) {
        let seen = format!("{halves}; cannot keep to them: {reason}");
        return Finding::limited(
            purpose,
            name,
            seen,
            "let sched_setaffinity pass (seccomp); without: --pin off",
        );
    }
    if client.first().is_some_and(|&first| server.iter().any(|one| siblings(first).contains(one))) {
        let seen = format!("{halves}, threads of one core: one slows the other");
        return Finding::limited(purpose, name, seen, "a machine with more cores");
    }
    Finding::ok(purpose, name, halves)
}

/// `0-3,8`.
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

fn keep_to(processors: &[u16]) -> Result<(), String> {
    let told = |errno: nix::Error| errno.to_string();
    let mut set = CpuSet::new();
    processors.iter().try_for_each(|&processor| set.set(usize::from(processor))).map_err(told)?;
    let before = sched_getaffinity(OURSELVES).map_err(told)?;
    sched_setaffinity(OURSELVES, &set).map_err(told)?;
    let after = sched_getaffinity(OURSELVES).map_err(told)?;
    sched_setaffinity(OURSELVES, &before).map_err(told)?;
    if after == set { Ok(()) } else { Err("the kernel chose others".to_owned()) }
}

/// What is only looked at.
pub(super) fn all() -> Vec<Finding> {
    let environment = environment();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    vec![
        kernel(&environment.kernel),
        memory(available_bytes(&read("/proc/meminfo"))),
        clock_source(clock.trim(), clock_read_ns()),
        instructions(&environment),
        frequency(governor.trim()),
        steal(&read("/proc/stat")),
    ]
}

fn kernel(release: &str) -> Finding {
    let (purpose, name, seen) = (Purpose::Measure, "kernel", format!("Linux {release}"));
    match version(release) {
        Some(version) if version >= OLDEST_KERNEL => Finding::ok(purpose, name, seen),
        _ => Finding::limited(purpose, name, seen, "Linux 5.10 or later"),
    }
}

/// `(6, 1)` of `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn memory(available: Option<u64>) -> Finding {
    let (purpose, name) = (Purpose::Measure, "memory");
    let cure = "end other work: 1 GiB is enough for small tables";
    match available {
        None => Finding::limited(purpose, name, "the kernel does not tell", "mount /proc"),
        Some(bytes) if bytes < ENOUGH_MEMORY => {
            Finding::limited(purpose, name, format!("{} available", size(bytes)), cure)
        }
        Some(bytes) => Finding::ok(purpose, name, format!("{} available", size(bytes))),
    }
}

/// What can be had without swapping, of `/proc/meminfo`.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

fn clock_source(name: &str, read_ns: f64) -> Finding {
    let known = if name.is_empty() { "clock source not told" } else { name };
    let seen = format!("{known}, read in {read_ns:.0} ns");
    if read_ns <= FAST_CLOCK_NS {
        return Finding::ok(Purpose::Measure, "clock", seen);
    }
    let cure = "a clock source that needs no system call: `tsc` on x86 (kernel parameter clocksource=tsc)";
    Finding::limited(Purpose::Measure, "clock", seen, cure)
}

/// What one look at the clock takes: of several batches the fastest, as others may be interrupted.
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
        .iter()
        .filter(|(instruction, _)| environment.crypto_instructions.contains(instruction))
        .map(|(_, name)| *name)
        .collect();
    let (purpose, name) = (Purpose::Measure, "instructions");
    let seen = format!("{}: {}", environment.cpu_model, names.join(" "));
    if environment.crypto_instructions.contains(&CryptoInstruction::Aes) {
        return Finding::ok(purpose, name, seen);
    }
    let seen = format!("{}: no AES", environment.cpu_model);
    Finding::limited(
        purpose,
        name,
        seen,
        "a processor with AES, or a virtual machine that passes it on (CPU type host)",
    )
}

fn frequency(governor: &str) -> Finding {
    let (purpose, name) = (Purpose::Measure, "CPU frequency");
    match governor {
        "" => Finding::ok(purpose, name, "not ours to set (as in most virtual machines)"),
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
    let (purpose, name) = (Purpose::Measure, "steal");
    let Some(percent) = steal_percent(stat) else {
        return Finding::limited(purpose, name, "the kernel does not tell", "mount /proc");
    };
    let seen = format!("the hypervisor took {percent:.2} % of the CPU time since boot");
    if percent < MUCH_STEAL_PERCENT {
        return Finding::ok(purpose, name, seen);
    }
    Finding::limited(purpose, name, seen, "a machine whose processors are not shared; else more blocks")
}

/// Of the time since boot, of the first line of `/proc/stat`; guests' times are in others already.
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
    use super::super::Verdict;
    use super::*;

    fn is_limited(finding: &Finding) -> bool {
        matches!(finding.verdict, Verdict::Limited { .. })
    }

    #[test]
    fn old_kernels_are_told_from_new_ones() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(kernel("5.10").verdict, Verdict::Ok);
        for old in ["5.4.0", "4.18.0-553.el8", "unknown"] {
            assert!(is_limited(&kernel(old)), "{old}");
        }
    }

    #[test]
    fn memory_steal_and_governor_are_read_as_the_kernel_writes_them() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available_bytes("MemTotal: 9 kB\n"), None);
        assert!(is_limited(&memory(Some(1 << 20))) && is_limited(&memory(None)));
        let percent = steal_percent("cpu  40 0 10 100 0 0 0 50 7 0\ncpu0 1\n").unwrap();
        assert!((percent - 25.0).abs() < 1e-9, "{percent}");
        assert_eq!(steal_percent("cpu  0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(steal_percent("cpu  1 2 3\n"), None);
        assert!(is_limited(&frequency("powersave")));
        assert_eq!(frequency("performance").verdict, Verdict::Ok);
        assert_eq!(frequency("").verdict, Verdict::Ok);
    }

    #[test]
    fn a_slow_clock_is_a_limit() {
        assert_eq!(clock_source("tsc", 25.0).seen, "tsc, read in 25 ns");
        assert!(is_limited(&clock_source("hpet", 900.0)));
        assert!(clock_read_ns() > 0.0);
    }

    #[test]
    fn processors_are_listed_in_ranges() {
        assert_eq!(list(&[0, 1, 2, 8]), "0-2,8");
        assert_eq!(list(&[3]), "3");
    }
}
