//! Stops the server briefly in the middle of a measurement window. An open loop counts all operations that were due
//! meanwhile. A closed loop sends none, and so barely shows the stall (coordinated omission).

use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Engine, LatencySummary, StatementProtocol, TrialPace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::arm::{BenchArm, Generator, OperationKind, Route, WindowEvent, trial};
use crate::setup::BenchSetup;

pub const STALL: Duration = Duration::from_millis(200);
const CAPACITY_WINDOW_S: f64 = 1.0;
const WINDOW_S: f64 = 2.0;
/// Share of the capacity, so that the server catches up within the window.
const LOAD: f64 = 0.5;
/// The stall is visible if the 99th percentile is at least this share of it.
const SHOWN: f64 = 0.5;

#[derive(Clone, Copy, Debug)]
pub struct StallResult {
    /// Throughput of the closed loop without a stall.
    pub capacity_per_s: f64,
    /// Open loop: latency from the scheduled start.
    pub response: LatencySummary,
    /// Open loop: latency from the actual start.
    pub service: LatencySummary,
    pub closed: LatencySummary,
}

impl StallResult {
    /// Stalls the server once per pacing.
    pub fn measure(setup: &BenchSetup<'_>) -> Result<Self> {
        let engine = setup.server.engine();
        let work = match engine {
            Engine::MariaDb | Engine::MySql => OperationKind::PointSelect,
            Engine::Postgres => OperationKind::SelectOnly(StatementProtocol::Prepared),
            Engine::MongoDb | Engine::FerretDb => bail!("{engine} has no rows to select"),
        };
        let auth = Auth::default_of(engine);
        let arm = BenchArm { generator: Generator::Native, work, route: Route::Plain, auth };
        let undisturbed = trial(&arm, setup, TrialPace::Closed, CAPACITY_WINDOW_S, |_| Ok(()))?;
        let capacity_per_s =
            undisturbed.operations as f64 / Duration::from_nanos(undisturbed.window_ns).as_secs_f64();
        let server = setup.server.pid();
        let stop_midway = |moment| match moment {
            WindowEvent::Opened => {
                thread::sleep(Duration::from_secs_f64(WINDOW_S).saturating_sub(STALL) / 2);
                stop_for(server, STALL)
            }
            WindowEvent::Closed => Ok(()),
        };
        let closed = trial(&arm, setup, TrialPace::Closed, WINDOW_S, stop_midway)?;
        let half = TrialPace::Open { per_s: capacity_per_s * LOAD };
        let open = trial(&arm, setup, half, WINDOW_S, stop_midway)?;
        let service = open.service.context("an open loop reported no service time")?;
        Ok(Self { capacity_per_s, response: open.latency, service, closed: closed.latency })
    }

    /// Whether the open loop's 99th percentile shows the stall.
    pub fn is_visible(&self) -> bool {
        self.response.p99_ns as f64 >= STALL.as_nanos() as f64 * SHOWN
    }
}

impl fmt::Display for StallResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 * 1e-6;
        writeln!(
            formatter,
            "  open loop, {:.0} /s of {:.0}:  response p99 {:.1} ms, longest {:.1} ms; service p50 {:.3} ms, p99 {:.3} ms",
            self.capacity_per_s * LOAD,
            self.capacity_per_s,
            ms(self.response.p99_ns),
            ms(self.response.max_ns),
            ms(self.service.p50_ns),
            ms(self.service.p99_ns)
        )?;
        writeln!(
            formatter,
            "  closed loop, same stall:  p99 {:.3} ms, longest {:.1} ms",
            ms(self.closed.p99_ns),
            ms(self.closed.max_ns)
        )?;
        let answer = if self.is_visible() { "yes" } else { "no" };
        write!(formatter, "  the stall is visible: {answer}")
    }
}

/// Stops the server and its children, such as PostgreSQL's backends, for this long.
fn stop_for(server: i32, time: Duration) -> Result<()> {
    let stopped = StoppedProcesses::stop(server)?;
    thread::sleep(time);
    drop(stopped);
    Ok(())
}

/// Stopped processes, which continue when this is dropped.
struct StoppedProcesses(Vec<Pid>);

impl StoppedProcesses {
    /// Stops the parent first, so that it starts no more children.
    fn stop(server: i32) -> Result<Self> {
        let mut stopped = Self(Vec::new());
        stopped.add(server)?;
        for child in children(server)? {
            stopped.add(child)?;
        }
        Ok(stopped)
    }

    fn add(&mut self, pid: i32) -> Result<()> {
        let pid = Pid::from_raw(pid);
        self.0.push(pid);
        kill(pid, Signal::SIGSTOP).with_context(|| format!("cannot stop process {pid}"))
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        for pid in &self.0 {
            // The process may have ended.
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// Children of all threads; ignores threads that end meanwhile.
fn children(server: i32) -> Result<Vec<i32>> {
    let tasks = format!("/proc/{server}/task");
    let mut found = Vec::new();
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let list = task?.path().join("children");
        let list = fs::read_to_string(list).unwrap_or_default();
        found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The state's letter in `/proc/PID/stat`.
    fn state(pid: i32) -> String {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.split_ascii_whitespace().next().unwrap().to_owned()
    }

    fn wait_for_state(pid: i32, wanted: impl Fn(&str) -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        while !wanted(&state(pid)) {
            assert!(std::time::Instant::now() < deadline, "process {pid} is in state {}", state(pid));
            thread::yield_now();
        }
    }

    #[test]
    fn a_server_and_its_children_stop_and_continue() {
        let mut parent = Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let pid = parent.id().cast_signed();
        let child = loop {
            if let [child] = children(pid).unwrap()[..] {
                break child;
            }
        };
        let stopped = StoppedProcesses::stop(pid).unwrap();
        wait_for_state(pid, |state| state == "T");
        wait_for_state(child, |state| state == "T");
        drop(stopped);
        wait_for_state(pid, |state| state != "T");
        wait_for_state(child, |state| state != "T");
        kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
        parent.wait().unwrap();
    }

    #[test]
    fn a_stall_is_visible_in_a_high_percentile() {
        let summary = |p99_ns| LatencySummary { p99_ns, ..LatencySummary::default() };
        let stalled = |p99_ns| StallResult {
            capacity_per_s: 1.0,
            response: summary(p99_ns),
            service: summary(0),
            closed: summary(0),
        };
        assert!(stalled(190_000_000).is_visible());
        assert!(!stalled(9_000_000).is_visible());
        assert!(stalled(190_000_000).to_string().ends_with("the stall is visible: yes"));
    }
}
