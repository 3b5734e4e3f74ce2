//! One soak: a server, its sidecar, its clients, and the verdict.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ciphertoll_lab::{Lab, Server};
use ciphertoll_model::Engine;

use super::clients::Load;
use super::control::Control;
use super::disturbance::{Disturbance, FIRST_RESTART, KILLED_AT_ONCE, due};
use super::sample::SoakSample;
use super::site::{POOL_SIZE, Sidecar, start_server};
use super::tally::Cause;
use super::verdict::trends;
use crate::print_line;

const SAMPLE_EVERY: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(500);
const HOLDERS: usize = 8;
const CHURNERS: usize = 4;
/// Memory settles while all clients connect, and after the first restart of the server, when they all do so again: this
/// share of the time is not judged, and never less than this time.
const WARM_UP_SHARE: f64 = 1.0 / 3.0;
const SHORTEST_WARM_UP: Duration = FIRST_RESTART.saturating_add(Duration::from_mins(1));
/// Shorter soaks leave nothing to judge.
pub const SHORTEST_SOAK: Duration = SHORTEST_WARM_UP.saturating_add(Duration::from_secs(90));

#[derive(Clone, Copy, Debug)]
pub struct SoakPlan {
    pub engine: Engine,
    pub time: Duration,
    /// Connected clients.
    pub clients: usize,
    /// Statements per second of these clients.
    pub statements_per_s: f64,
    /// Clients per second that connect, query and disconnect.
    pub churn_per_s: f64,
    pub upgrade: Upgrade,
}

/// Whether the sidecar is upgraded at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    AtTheEnd,
    Never,
}

pub struct SoakResult {
    pub lines: Vec<String>,
    pub passed: bool,
}

/// Everything that the main loop disturbs and looks at.
struct Soak<'a> {
    plan: SoakPlan,
    server: Server,
    sidecar: Sidecar,
    control: Control,
    load: &'a Load,
    began: Instant,
    samples: Vec<SoakSample>,
}

/// Runs a soak. `helper` is the program ciphertoll.
pub fn carry_out(plan: SoakPlan, helper: &Path, proxy: &Path) -> Result<SoakResult> {
    let lab = Lab::open(helper.to_owned())?;
    let server = start_server(&lab, plan.engine)?;
    let sidecar = Sidecar::start(proxy, &lab, &server)?;
    let load = Load::new(plan.engine, sidecar.socket(), server.user(), server.database())?;
    let control = Control::of(&server)?;
    let mut soak =
        Soak { plan, server, sidecar, control, load: &load, began: Instant::now(), samples: Vec::new() };
    thread::scope(|scope| {
        let per_holder = plan.clients.div_ceil(HOLDERS);
        for holder in 0..HOLDERS {
            let numbers = holder * per_holder..((holder + 1) * per_holder).min(plan.clients);
            let load = &load;
            scope.spawn(move || load.hold(numbers, plan.statements_per_s / HOLDERS as f64));
        }
        for number in 0..CHURNERS {
            let load = &load;
            scope.spawn(move || load.churn(number, plan.churn_per_s / CHURNERS as f64));
        }
        let ran = soak.disturb_and_sample().and_then(|()| soak.upgrade());
        // Whatever happened, the scope waits for the clients.
        load.stop();
        ran
    })?;
    soak.judge()
}

impl Soak<'_> {
    fn disturb_and_sample(&mut self) -> Result<()> {
        let mut last = Duration::ZERO;
        let mut next_sample = SAMPLE_EVERY;
        while last < self.plan.time {
            thread::sleep(TICK);
            let now = self.began.elapsed();
            for what in due(last, now) {
                self.disturb(what)?;
            }
            last = now;
            self.sidecar.check()?;
            if now >= next_sample {
                self.sample()?;
                next_sample = now + SAMPLE_EVERY;
            }
        }
        Ok(())
    }

    fn disturb(&mut self, what: Disturbance) -> Result<()> {
        let tally = &self.load.tally;
        match what {
            Disturbance::Reload => self.sidecar.reload(),
            Disturbance::Kill => {
                let mut ids = self.control.connections()?;
                ids.truncate(KILLED_AT_ONCE);
                tally.note_kill(ids.len());
                self.control.kill(&ids)?;
                // Kills may take effect late.
                tally.note_kill(0);
                Ok(())
            }
            Disturbance::Restart => {
                tally.note_restart_begins();
                self.server.restart().context("cannot restart the server")?;
                tally.note_restart_ends();
                Ok(())
            }
        }
    }

    fn sample(&mut self) -> Result<()> {
        let connections = self.control.connections()?.len() as u64;
        let at = self.began.elapsed();
        let sample = SoakSample::take(at, self.sidecar.pid(), connections, &self.load.tally)?;
        let minute = |sample: &SoakSample| sample.at.as_secs() / 60;
        if self.samples.last().is_none_or(|last| minute(last) != minute(&sample)) {
            print_line(&sample.line(self.plan.engine.display_name()))?;
        }
        self.samples.push(sample);
        Ok(())
    }

    /// Upgrades the sidecar, makes all clients connect to the new process, and waits for the end of the old one.
    fn upgrade(&mut self) -> Result<()> {
        if self.plan.upgrade == Upgrade::Never {
            return Ok(());
        }
        let engine = self.plan.engine.display_name();
        self.sidecar.upgrade()?;
        let upgraded = Instant::now();
        self.load.reconnect_all();
        let code = self.sidecar.await_end_of_old()?;
        print_line(&format!(
            "| {engine} | upgrade | all clients moved in {:.0} s; the old process exited with {code} |",
            upgraded.elapsed().as_secs_f64()
        ))?;
        anyhow::ensure!(code == 0, "the old process exited with {code}");
        self.sidecar.check()?;
        self.sample()
    }

    fn judge(mut self) -> Result<SoakResult> {
        self.sidecar.check()?;
        let engine = self.plan.engine.display_name();
        let tally = &self.load.tally;
        let last = *self.samples.last().context("the soak was too short for a sample")?;
        let warm_up = self.plan.time.mul_f64(WARM_UP_SHARE).max(SHORTEST_WARM_UP);
        let first_pid = self.samples[0].pid;
        let judged: Vec<SoakSample> = self
            .samples
            .iter()
            .copied()
            .filter(|sample| sample.at >= warm_up && sample.pid == first_pid)
            .collect();
        let mut lines = vec![format!("{engine} {}:", self.server.version())];
        let mut passed = true;
        for (what, unit, trend) in trends(&judged) {
            let Some(trend) = trend else {
                passed = false;
                lines.push(format!("  {what}: too few samples after the warm-up"));
                continue;
            };
            passed &= trend.is_flat;
            lines.push(format!("  {}", trend.line(what, unit)));
        }
        let most = self.samples.iter().map(|sample| sample.server_connections).max().unwrap_or_default();
        let errors = |cause| tally.errors(cause);
        let (kills, restarts, other) =
            (errors(Cause::Kill), errors(Cause::Restart), errors(Cause::Unexplained));
        let wrong = tally.wrong.load(std::sync::atomic::Ordering::Relaxed);
        let killed = tally.killed.load(std::sync::atomic::Ordering::Relaxed);
        let panics = self.sidecar.warnings();
        passed &= wrong == 0 && other == 0 && kills <= killed && panics == 0 && last.answers > 0;
        lines.push(format!(
            "  {} answers, {} connects; wrong answers: {wrong}; errors: {kills} from {killed} killed connections, \
             {restarts} from restarts of the server, {other} unexplained; at most {most} server connections \
             (pool size {POOL_SIZE})",
            last.answers, last.connects
        ));
        lines.extend(tally.messages().into_iter().map(|message| format!("    {message}")));
        lines.push(format!("  {}", if passed { "passed" } else { "FAILED" }));
        Ok(SoakResult { lines, passed })
    }
}
