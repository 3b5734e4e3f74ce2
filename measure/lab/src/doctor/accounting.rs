//! Checks whether CPU time can be read: of a process, and of a control group.

use std::process::{Child, Command, Stdio};

use ciphertoll_host::accounting::CpuClock;
use ciphertoll_host::cgroup::{Cgroup, read_cpu_ns};

use super::finding::{CheckPurpose, Finding, IDLE, PROBE_COMMAND};

pub(super) fn cpu_accounting() -> Finding {
    let (purpose, name) = (CheckPurpose::Measure, "CPU accounting");
    if let Err(error) = CpuClock::of(std::process::id().cast_signed()).and_then(|clock| clock.read_ns()) {
        return Finding::no(
            purpose,
            name,
            error,
            "use a kernel that permits reading process CPU-time clocks",
        );
    }
    match check_cgroup() {
        Ok(()) => Finding::ok(purpose, name, "CPU-time clocks for processes, a cgroup for PostgreSQL"),
        Err(reason) => Finding::limited(
            purpose,
            name,
            format!(
                "CPU-time clocks for processes; no private cgroup ({reason}): PostgreSQL's CPU time is the sum of its processes"
            ),
            "run within `systemd-run --user --scope -p Delegate=yes`, or as root",
        ),
    }
}

/// Creates a group around an idle process, reads its CPU time, and removes it.
fn check_cgroup() -> Result<(), &'static str> {
    let idle = IdleProcess::start().ok_or("the idle process does not start")?;
    let cgroup = Cgroup::temporary(idle.0.id().cast_signed()).ok_or("it cannot be created")?;
    read_cpu_ns(cgroup.path()).map(drop).map_err(|_| "its CPU time cannot be read")
}

/// A waiting process; ended on drop, after its group is removed.
struct IdleProcess(Child);

impl IdleProcess {
    fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.args([PROBE_COMMAND, IDLE]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().ok().map(Self)
    }
}

impl Drop for IdleProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
