//! A planted stall: the server is stopped for a moment in the middle of a window. An open loop counts
//! all who would have come meanwhile; a closed one does not come, and so hardly sees it.

use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Engine, LatencySummary, StatementProtocol, TrialPace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::arm::{Arm, Generator, Moment, Place, Route, Work, trial};

/// How long the server stands still.
pub const STALL: Duration = Duration::from_millis(200);
const CAPACITY_WINDOW_S: f64 = 1.0;
const WINDOW_S: f64 = 2.0;
/// Of the capacity, so that the server catches up within the window.
const LOAD: f64 = 0.5;
/// The stall shows where the 99th percentile has at least this share of it.
const SHOWN: f64 = 0.5;

/// What two paces tell of the same stall.
#[derive(Clone, Copy, Debug)]
pub struct Stalled {
    /// Operations per second of the closed loop without a stall.
    pub capacity_per_s: f64,
    /// Open loop: time from when an operation was due.
    pub response: LatencySummary,
    /// Open loop: time from when it was sent.
    pub service: LatencySummary,
    /// Closed loop.
    pub closed: LatencySummary,
}

impl Stalled {
    /// Plants one on the place's server, once for each pace.
    pub fn plant(place: &Place<'_>) -> Result<Self> {
        let engine = place.server.engine();
        let work = match engine {
            Engine::MariaDb | Engine::MySql => Work::PointSelect,
            Engine::Postgres => Work::SelectOnly(StatementProtocol::Prepared),
            Engine::MongoDb | Engine::FerretDb => bail!("{engine} has no rows to select"),
        };
        let auth = Auth::default_of(engine);
        let arm = Arm { generator: Generator::Native, work, route: Route::Plain, auth };
        let undisturbed = trial(&arm, place, TrialPace::Closed, CAPACITY_WINDOW_S, |_| Ok(()))?;
        let capacity_per_s =
            undisturbed.operations as f64 / Duration::from_nanos(undisturbed.window_ns).as_secs_f64();
        let server = place.server.pid();
        let stop_midway = |moment| match moment {
            Moment::Opened => {
                thread::sleep(Duration::from_secs_f64(WINDOW_S).saturating_sub(STALL) / 2);
                stop_for(server, STALL)
            }
            Moment::Closed => Ok(()),
        };
        let closed = trial(&arm, place, TrialPace::Closed, WINDOW_S, stop_midway)?;
        let half = TrialPace::Open { per_s: capacity_per_s * LOAD };
        let open = trial(&arm, place, half, WINDOW_S, stop_midway)?;
        let service = open.service.context("an open loop told no service time")?;
        Ok(Self { capacity_per_s, response: open.latency, service, closed: closed.latency })
    }

    /// Whether the open loop's 99th percentile tells of it.
    pub fn shows(&self) -> bool {
        self.response.p99_ns as f64 >= STALL.as_nanos() as f64 * SHOWN
    }
}

impl fmt::Display for Stalled {
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
        let answer = if self.shows() { "yes" } else { "no" };
        write!(formatter, "  the stall shows: {answer}")
    }
}

/// Stops the server and its children, which are `PostgreSQL`'s sessions, for this long.
fn stop_for(server: i32, time: Duration) -> Result<()> {
    let stopped = Stopped::stop(server)?;
    thread::sleep(time);
    drop(stopped);
    Ok(())
}

/// Processes that stand still until this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    /// The first process first: it starts no child any more when they are counted.
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

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            // One that has ended meanwhile needs no waking.
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// Children of any of its threads; one that ends while we look has none.
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
    fn a_server_and_its_children_stand_still_and_go_on() {
        let mut parent = Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let pid = parent.id().cast_signed();
        let child = loop {
            if let [child] = children(pid).unwrap()[..] {
                break child;
            }
        };
        let stopped = Stopped::stop(pid).unwrap();
        wait_for_state(pid, |state| state == "T");
        wait_for_state(child, |state| state == "T");
        drop(stopped);
        wait_for_state(pid, |state| state != "T");
        wait_for_state(child, |state| state != "T");
        kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
        parent.wait().unwrap();
    }

    #[test]
    fn only_a_high_percentile_tells() {
        let summary = |p99_ns| LatencySummary { p99_ns, ..LatencySummary::default() };
        let stalled = |p99_ns| Stalled {
            capacity_per_s: 1.0,
            response: summary(p99_ns),
            service: summary(0),
            closed: summary(0),
        };
        assert!(stalled(190_000_000).shows());
        assert!(!stalled(9_000_000).shows());
        assert!(stalled(190_000_000).to_string().ends_with("the stall shows: yes"));
    }
}
