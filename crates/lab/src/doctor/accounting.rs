//! Whether CPU time can be counted: of a process, and of a group of them.

use std::process::{Child, Command, Stdio};

use super::{Finding, IDLE, PROBE_COMMAND, Purpose};
use crate::accounting::CpuClock;
use crate::cgroup::{Cgroup, read_cpu_ns};

/// A process's own clock, and a control group with a process in it.
pub(super) fn cpu_accounting() -> Finding {
    let (purpose, name) = (Purpose::Measure, "CPU accounting");
    if let Err(error) = CpuClock::of(std::process::id().cast_signed()).and_then(|clock| clock.read_ns()) {
        return Finding::no(purpose, name, error, "a kernel whose process CPU-time clocks can be read");
    }
    match group() {
        Ok(()) => Finding::ok(purpose, name, "processes by their clocks, PostgreSQL by a cgroup"),
        Err(reason) => Finding::limited(
            purpose,
            name,
            format!(
                "processes by their clocks; no cgroup of one's own ({reason}): PostgreSQL's CPU time is added up"
            ),
            "run within `systemd-run --user --scope -p Delegate=yes`, or as root",
        ),
    }
}

/// Makes a group around a process that does nothing, reads its time, and removes it.
fn group() -> Result<(), &'static str> {
    let idle = Idle::start().ok_or("no process to put into it")?;
    let cgroup = Cgroup::for_a_moment(idle.0.id().cast_signed()).ok_or("none can be made")?;
    read_cpu_ns(cgroup.path()).map(drop).map_err(|_| "its time cannot be read")
}

/// A process that waits; ended when dropped, which is after its group was.
struct Idle(Child);

impl Idle {
    fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.args([PROBE_COMMAND, IDLE]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().ok().map(Self)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // Its end is all that is wanted of it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
