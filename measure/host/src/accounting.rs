//! CPU time and memory of servers, tunnels and proxies.
//!
//! A server's CPU time is read from its process CPU-time clock, which is exact to the nanosecond and includes ended
//! threads. The sum of per-task `schedstat` loses every thread that ends between two readings, and connection churn ends
//! many; `/proc/PID/stat` counts in ticks of 10 ms.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ciphertoll_record::Context;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::cgroup;
use crate::error::Error;

/// The source of CPU times, for [`ciphertoll_model::Environment::cpu_accounting`].
pub const CPU_ACCOUNTING: &str = "process CPU-time clocks";

const NS_PER_S: u64 = 1_000_000_000;

/// The CPU-time clock of a process: user and system time of all its threads, ended ones included.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock {
    clock: ClockId,
    pid: i32,
}

#[derive(Clone, Debug)]
pub enum CpuMeter {
    /// The CPU-time clock of a server that is one process.
    Process { pid: i32 },
    /// The control group that contains all processes of the server.
    Cgroup { path: PathBuf },
    /// The first process and its children: CPU-time clocks of live processes, plus ticks of 10 ms of ended children.
    Tree { pid: i32 },
}

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Instant,
    /// CPU time of the server; 0 if it is on another machine.
    pub server_cpu_ns: u64,
    /// CPU time of tunnel and proxy processes; 0 if there are none.
    pub middle_cpu_ns: u64,
    /// Busy time of all processors together, exact to a tick.
    pub machine_busy_ns: u64,
    /// Time that the hypervisor took from all processors together, exact to a tick.
    pub machine_steal_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleDifference {
    pub elapsed: Duration,
    pub server_cpu_ns: u64,
    pub middle_cpu_ns: u64,
    pub machine_busy_ns: u64,
    pub machine_steal_ns: u64,
}

/// The start of the interval that a peak of resident memory covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPeak {
    /// The call of [`MemoryPeak::begin`].
    SinceBegin,
    /// The start of the process: the kernel did not let us reset the peak.
    SinceStart,
}

/// Ephemeral ports, and how many sockets are in `TIME_WAIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortUsage {
    /// Size of the range of ephemeral ports.
    pub usable: u32,
    /// Sockets of this network namespace in `TIME_WAIT`.
    pub in_time_wait: u32,
}

impl CpuClock {
    pub fn of(pid: i32) -> Result<Self, Error> {
        let clock = clock_getcpuclockid(Pid::from_raw(pid))
            .map_err(Into::into)
            .context("find the CPU clock of", &proc(pid, ""))?;
        Ok(Self { clock, pid })
    }

    pub fn read_ns(&self) -> Result<u64, Error> {
        let time = clock_gettime(self.clock)
            .map_err(Into::into)
            .context("read the CPU clock of", &proc(self.pid, ""))?;
        Ok(time.tv_sec().cast_unsigned() * NS_PER_S + time.tv_nsec().cast_unsigned())
    }
}

impl CpuMeter {
    pub fn label(&self) -> &'static str {
        match self {
            Self::Process { .. } => CPU_ACCOUNTING,
            Self::Cgroup { .. } => "cgroup cpu.stat",
            Self::Tree { .. } => "process CPU-time clocks, and ticks of 10 ms of children that ended",
        }
    }

    pub fn read_ns(&self) -> Result<u64, Error> {
        match self {
            Self::Process { pid } => CpuClock::of(*pid)?.read_ns(),
            Self::Cgroup { path } => cgroup::read_cpu_ns(path),
            Self::Tree { pid } => tree_ns(*pid),
        }
    }
}

/// A child that ends between the two readings is counted twice in this reading only.
fn tree_ns(pid: i32) -> Result<u64, Error> {
    let path = proc(pid, &format!("task/{pid}/children"));
    let children = fs::read_to_string(&path).context("read", &path)?;
    let living = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    let living_ns: u64 = living.filter_map(|child| CpuClock::of(child).ok()?.read_ns().ok()).sum();
    let path = proc(pid, "stat");
    let stat = fs::read_to_string(&path).context("read", &path)?;
    let ended_ticks = ended_children_ticks(&stat).ok_or_else(|| unexpected(&path))?;
    let ended_ns = ended_ticks * (NS_PER_S / ticks_per_s());
    Ok(CpuClock::of(pid)?.read_ns()? + living_ns + ended_ns)
}

/// Fields 16 and 17 of `/proc/PID/stat`, counted from the last `)`, because a program's name may contain any character.
fn ended_children_ticks(stat: &str) -> Option<u64> {
    const FIELDS_BEFORE: usize = 13;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(FIELDS_BEFORE);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

impl Sample {
    /// Reads the clocks of the machine, of the server if it is local, and of tunnel and proxy processes.
    pub fn take(server: Option<&CpuMeter>, middle: &[CpuMeter]) -> Result<Self, Error> {
        let server_cpu_ns = server.map_or(Ok(0), CpuMeter::read_ns)?;
        let middle_cpu_ns = middle.iter().map(CpuMeter::read_ns).sum::<Result<u64, Error>>()?;
        let machine = MachineTimes::read()?;
        Ok(Self {
            at: Instant::now(),
            server_cpu_ns,
            middle_cpu_ns,
            machine_busy_ns: machine.busy_ns,
            machine_steal_ns: machine.steal_ns,
        })
    }

    pub fn since(&self, earlier: &Self) -> SampleDifference {
        SampleDifference {
            elapsed: self.at.saturating_duration_since(earlier.at),
            server_cpu_ns: self.server_cpu_ns.saturating_sub(earlier.server_cpu_ns),
            middle_cpu_ns: self.middle_cpu_ns.saturating_sub(earlier.middle_cpu_ns),
            machine_busy_ns: self.machine_busy_ns.saturating_sub(earlier.machine_busy_ns),
            machine_steal_ns: self.machine_steal_ns.saturating_sub(earlier.machine_steal_ns),
        }
    }
}

impl MemoryPeak {
    /// Resets the peak of the process, if the kernel permits.
    pub fn begin(pid: i32) -> Self {
        const RESET_PEAK: &str = "5";
        match fs::write(proc(pid, "clear_refs"), RESET_PEAK) {
            Ok(()) => Self::SinceBegin,
            Err(_) => Self::SinceStart,
        }
    }

    pub fn read_bytes(pid: i32) -> Result<u64, Error> {
        const BYTES_PER_KB: u64 = 1024;
        let path = proc(pid, "status");
        let status = fs::read_to_string(&path).context("read", &path)?;
        let kilobytes = number_after(&status, "VmHWM:").ok_or_else(|| unexpected(&path))?;
        Ok(kilobytes * BYTES_PER_KB)
    }
}

impl PortUsage {
    pub fn read_of(pid: i32) -> Result<Self, Error> {
        let path = Path::new("/proc/sys/net/ipv4/ip_local_port_range");
        let text = fs::read_to_string(path).context("read", path)?;
        let bounds: Vec<u32> = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [first, last] = bounds[..] else { return Err(unexpected(path)) };
        let path = &proc(pid, "net/sockstat");
        let text = fs::read_to_string(path).context("read", path)?;
        let in_time_wait = number_after(&text, " tw ").ok_or_else(|| unexpected(path))? as u32;
        Ok(Self { usable: (last + 1).saturating_sub(first), in_time_wait })
    }
}

/// CPU times of all processors of the machine together since it started, exact to a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineTimes {
    /// Without idle time and steal.
    pub busy_ns: u64,
    /// The part of the busy time in which interrupts were handled, among them all packets.
    pub interrupts_ns: u64,
    /// Time that the hypervisor gave to others.
    pub steal_ns: u64,
}

impl MachineTimes {
    pub fn read() -> Result<Self, Error> {
        let path = Path::new("/proc/stat");
        let text = fs::read_to_string(path).context("read", path)?;
        Self::parse(&text, ticks_per_s()).ok_or_else(|| unexpected(path))
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal. User time includes guest time.
    fn parse(text: &str, ticks_per_s: u64) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
        let to_ns = |ticks: u64| ticks * (NS_PER_S / ticks_per_s);
        let interrupts = irq + softirq;
        Some(Self {
            busy_ns: to_ns(user + nice + system + interrupts),
            interrupts_ns: to_ns(interrupts),
            steal_ns: to_ns(steal),
        })
    }
}

fn ticks_per_s() -> u64 {
    const USUAL: u64 = 100;
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
    ticks.filter(|&ticks| ticks > 0).unwrap_or(USUAL)
}

fn number_after(text: &str, label: &str) -> Option<u64> {
    let (_, after) = text.split_once(label)?;
    after.split_ascii_whitespace().next()?.parse().ok()
}

/// The CPU time of this process, without its children. A confined process may ask.
pub fn own_cpu_time() -> std::io::Result<Duration> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?))
}

pub fn proc(pid: i32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

pub fn unexpected(path: &Path) -> Error {
    let reason = std::io::Error::other("unexpected contents");
    Error::Record(ciphertoll_record::Error::from_io("understand", path, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        std::process::id().cast_signed()
    }

    fn own_cpu() -> Duration {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
    }

    /// Uses CPU time, not wall-clock time, so that the test holds on a busy machine.
    fn burn(duration: Duration) {
        let end = own_cpu() + duration;
        while own_cpu() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn ended_threads_stay_counted() {
        let clock = CpuClock::of(own_pid()).unwrap();
        let before = clock.read_ns().unwrap();
        std::thread::spawn(|| burn(Duration::from_millis(20))).join().unwrap();
        assert!(clock.read_ns().unwrap() - before >= 20_000_000);
    }

    #[test]
    fn a_process_tree_includes_ended_children() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 30 12 20 0";
        assert_eq!(ended_children_ticks(stat), Some(42));
        assert_eq!(ended_children_ticks("7 (a) S 1"), None);
        let own_ns = CpuClock::of(own_pid()).unwrap().read_ns().unwrap();
        assert!(CpuMeter::Tree { pid: own_pid() }.read_ns().unwrap() >= own_ns);
    }

    #[test]
    fn samples_increase() {
        let before = Sample::take(Some(&CpuMeter::Process { pid: own_pid() }), &[]).unwrap();
        burn(Duration::from_millis(50));
        let difference =
            Sample::take(Some(&CpuMeter::Process { pid: own_pid() }), &[]).unwrap().since(&before);
        assert!(difference.elapsed >= Duration::from_millis(50));
        assert!(difference.server_cpu_ns > 0);
    }

    #[test]
    fn machine_times_exclude_idle_time_and_count_guests_once() {
        let times = MachineTimes::parse("cpu  1 2 4 1000 1000 8 16 32 64 128\ncpu0 9\n", 100).unwrap();
        assert_eq!((times.busy_ns, times.interrupts_ns), (310_000_000, 240_000_000));
        assert_eq!(times.steal_ns, 320_000_000);
        assert!(MachineTimes::parse("cpu 1 2\n", 100).is_none());
    }

    #[test]
    fn memory_and_ports_are_readable() {
        MemoryPeak::begin(own_pid());
        assert!(MemoryPeak::read_bytes(own_pid()).unwrap() > 1 << 20);
        let ports = PortUsage::read_of(std::process::id().cast_signed()).unwrap();
        assert!(ports.usable > 1_000);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let pid = child.id().cast_signed();
        assert!(Sample::take(Some(&CpuMeter::Process { pid }), &[]).is_err());
        assert!(MemoryPeak::read_bytes(pid).is_err());
    }
}
