//! Progress of a run on stderr, made from its events: a bar on a terminal, otherwise a line per block.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, Instant};

use ciphertoll_model::{Arm, Cell, CellId, Event, HostRole, LookDecision, Plan, TimestampedEvent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::arguments::ProgressFormat;
use crate::ascii::{is_plain, on_screen};

pub(crate) struct ProgressDisplay {
    format: ProgressOutput,
    estimate: TimeEstimate,
    /// Short names of cells.
    labels: BTreeMap<CellId, String>,
}

enum ProgressOutput {
    Bar(ProgressBar),
    Lines,
    Json,
    Nothing,
}

/// How much of the run is done, and how long the rest will take.
struct TimeEstimate {
    trials: u64,
    blocks: Vec<ExpectedBlock>,
    /// Expected time of all blocks and trials that are done.
    done: Duration,
    start: Option<MeasurementStart>,
}

/// When this process began to measure. A resumed run has blocks that are done already.
struct MeasurementStart {
    at: Instant,
    done: Duration,
}

struct ExpectedBlock {
    block: Duration,
    trials: BTreeMap<CellId, Duration>,
}

impl ProgressDisplay {
    pub(crate) fn new(format: ProgressFormat, plan: &Plan) -> Self {
        let terminal = io::stderr().is_terminal();
        let format = match format {
            ProgressFormat::Auto if terminal => ProgressOutput::Bar(bar("{bar:24} {wide_msg}")),
            ProgressFormat::Auto | ProgressFormat::Plain => ProgressOutput::Lines,
            ProgressFormat::Json => ProgressOutput::Json,
            ProgressFormat::None => ProgressOutput::Nothing,
        };
        let labels = plan.cells.iter().map(|cell| (cell.id(), label(cell))).collect();
        Self { format, estimate: TimeEstimate::new(plan), labels }
    }

    pub(crate) fn event(&mut self, stamped: &TimestampedEvent) {
        self.estimate.event(&stamped.event);
        match &self.format {
            ProgressOutput::Bar(bar) => show_on_bar(bar, &self.estimate, &self.labels, &stamped.event),
            ProgressOutput::Lines => {
                if let Some(line) = line(&self.estimate, &stamped.event) {
                    tell(&line);
                }
            }
            ProgressOutput::Json => {
                if let Ok(line) = serde_json::to_string(stamped) {
                    tell_machine(&line);
                }
            }
            ProgressOutput::Nothing => {
                if let Some(warning) = warning(&stamped.event) {
                    tell(&warning);
                }
            }
        }
    }

    /// Clears the bar, so that the next output starts on an empty line.
    pub(crate) fn finish(&self) {
        if let ProgressOutput::Bar(bar) = &self.format {
            bar.finish_and_clear();
        }
    }
}

impl TimeEstimate {
    fn new(plan: &Plan) -> Self {
        let expected = |block: &ciphertoll_model::Block| {
            let trial = |cell: &Cell| (cell.id(), plan.expected_trial(block.number, cell));
            ExpectedBlock {
                block: plan.expected_block(block),
                trials: plan.cells.iter().map(trial).collect(),
            }
        };
        Self {
            trials: plan.blocks.iter().map(|block| block.visits.len() as u64).sum(),
            blocks: plan.blocks.iter().map(expected).collect(),
            done: Duration::ZERO,
            start: None,
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            // An interrupted block starts again. All blocks before it are done, perhaps by an earlier process.
            Event::BlockStarted { block } => {
                self.done = self.blocks.iter().take(*block as usize).map(|block| block.block).sum();
                self.start.get_or_insert(MeasurementStart { at: Instant::now(), done: self.done });
            }
            Event::TrialFinished { block, cell, .. } => {
                let expected = self.blocks.get(*block as usize).and_then(|block| block.trials.get(cell));
                self.done += expected.copied().unwrap_or_default();
            }
            // Voided trials and trials of skipped cells count as done, too.
            Event::BlockFinished { block } => {
                self.done = self.blocks.iter().take(*block as usize + 1).map(|block| block.block).sum();
            }
            _ => {}
        }
    }

    /// The expected time of the rest, scaled by how long this process took so far compared with the plan.
    fn left(&self) -> Duration {
        let undone = self.expected().saturating_sub(self.done);
        match &self.start {
            Some(start) if self.done > start.done => {
                let done = self.done.saturating_sub(start.done);
                undone.mul_f64(start.at.elapsed().as_secs_f64() / done.as_secs_f64())
            }
            _ => undone,
        }
    }

    fn expected(&self) -> Duration {
        self.blocks.iter().map(|block| block.block).sum()
    }
}

/// A bar on stderr.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The template is valid; otherwise the default style would do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars(if is_plain() { "##-" } else { "━━╌" }));
    }
    bar
}

fn show_on_bar(bar: &ProgressBar, estimate: &TimeEstimate, labels: &BTreeMap<CellId, String>, event: &Event) {
    if let Some(warning) = warning(event) {
        bar.suspend(|| tell(&warning));
    }
    match event {
        Event::Preparing { what } => bar.set_message(on_screen(what).into_owned()),
        Event::TrialStarted { block, cell, arm, .. } => {
            bar.set_length(estimate.expected().as_millis() as u64);
            bar.set_position(estimate.done.as_millis() as u64);
            let again = if *arm == Arm::Repeat { " (again)" } else { "" };
            let stage = if *block == 0 { "calibration".to_owned() } else { format!("block {block}") };
            let cell = labels.get(cell).map_or(cell.0.as_str(), String::as_str);
            let message = format!("{} left · {stage} · {cell}{again}", clock(estimate.left()));
            bar.set_message(on_screen(&message).into_owned());
        }
        _ => {}
    }
}

/// `mariadb, tls1.3-p256, shared, connect at 8`.
fn label(cell: &Cell) -> String {
    let treatment = &cell.treatment;
    let ctx = treatment.ctx.map_or_else(String::new, |ctx| format!("{ctx}, "));
    let server = treatment.server.short_name();
    format!("{server}, {}, {ctx}{} at {}", treatment.path, cell.workload, cell.clients)
}

fn line(estimate: &TimeEstimate, event: &Event) -> Option<String> {
    match event {
        Event::Preparing { what } => Some(what.clone()),
        Event::ServerReady { server, version, elapsed_ms, .. } => {
            Some(format!("{server} {version} ready after {:.1} s", *elapsed_ms as f64 / 1e3))
        }
        Event::HostConnected { host } => {
            let what = match host.role {
                HostRole::Load => "load host",
                HostRole::Server => "host of the server",
            };
            Some(format!("{what} {} connected: {} × {}", host.name, host.processors, host.architecture))
        }
        Event::BlockFinished { block: 0 } => {
            Some(format!("calibrated · {} trials · {} left", estimate.trials, clock(estimate.left())))
        }
        Event::BlockFinished { block } => {
            let blocks = estimate.blocks.len().saturating_sub(1);
            Some(format!("block {block} of at most {blocks} · {} left", clock(estimate.left())))
        }
        _ => warning(event),
    }
}

fn warning(event: &Event) -> Option<String> {
    match event {
        Event::Warned { message } => Some(format!("warning: {message}")),
        Event::CellSkipped { skipped } => Some(format!("skipped: {} ({})", skipped.id, skipped.reason)),
        Event::TrialVoided { block, cell, reason, .. } => {
            Some(format!("voided: {cell} in block {block}: {reason}"))
        }
        Event::Looked { decision: LookDecision::StopBudget, blocks } => {
            let noun = if *blocks == 1 { "block" } else { "blocks" };
            Some(format!("the time budget ends the run after {blocks} {noun}"))
        }
        _ => None,
    }
}

/// `1:05`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Progress and warnings. Without a reader of stderr the work goes on.
pub(crate) fn tell(line: &str) {
    tell_machine(&on_screen(line));
}

fn tell_machine(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Engine, ServerLevel, Spec};

    use super::*;

    #[test]
    fn one_block_is_singular() {
        let message =
            |blocks| warning(&Event::Looked { blocks, decision: LookDecision::StopBudget }).unwrap();
        assert_eq!(message(1), "the time budget ends the run after 1 block");
        assert_eq!(message(2), "the time budget ends the run after 2 blocks");
    }

    #[test]
    fn a_resumed_run_counts_the_blocks_that_are_done() {
        let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 7).unwrap();
        let mut fresh = TimeEstimate::new(&plan);
        fresh.event(&Event::BlockStarted { block: 0 });
        assert_eq!((fresh.done, fresh.left()), (Duration::ZERO, fresh.expected()));

        let mut resumed = TimeEstimate::new(&plan);
        resumed.event(&Event::RunResumed { tool_version: "0.1.0".to_owned() });
        resumed.event(&Event::BlockStarted { block: 3 });
        let done: Duration = resumed.blocks.iter().take(3).map(|block| block.block).sum();
        assert_eq!(resumed.done, done);
        // The speed of another process says nothing about this one: the rest takes what was planned.
        let rest = resumed.expected().saturating_sub(done);
        assert_eq!(resumed.left(), rest);
        resumed.event(&Event::BlockFinished { block: 3 });
        let done_now: Duration = resumed.blocks.iter().take(4).map(|block| block.block).sum();
        assert_eq!(resumed.done, done_now);
        // At least twice as slow as planned, and so is the rest.
        let took = done_now.saturating_sub(done) * 2;
        let at = Instant::now().checked_sub(took).unwrap();
        resumed.start = Some(MeasurementStart { at, done });
        let rest = resumed.expected().saturating_sub(done_now);
        assert!(!rest.is_zero() && resumed.left() >= rest.mul_f64(1.99), "{:?} of {rest:?}", resumed.left());
    }
}
