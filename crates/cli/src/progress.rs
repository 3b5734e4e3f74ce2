//! Progress on stderr: only consumes events. A bar on a terminal, a line a block elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ciphertoll_model::{Arm, Cell, CellId, Event, LookDecision, Plan, TimestampedEvent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::arguments::ProgressFormat;

/// Shows a run as it goes.
pub(crate) struct Progress {
    display: Display,
    pace: Pace,
    /// A cell's name in few words, by its id.
    labels: BTreeMap<CellId, String>,
}

enum Display {
    Bar(ProgressBar),
    Lines,
    Json,
    Nothing,
}

/// How far the run is, and how long the rest will take.
struct Pace {
    trials: u64,
    /// What each block is expected to take, and each of its trials.
    blocks: Vec<Expected>,
    done: Duration,
    began: Option<Began>,
}

/// When this process began to measure, and what was done by then: a run that is gone on with has blocks.
struct Began {
    at: Instant,
    done: Duration,
}

struct Expected {
    block: Duration,
    /// By the cell's id.
    trials: BTreeMap<CellId, Duration>,
}

impl Progress {
    pub(crate) fn new(format: ProgressFormat, plan: &Plan) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let display = match format {
            ProgressFormat::Auto if terminal => Display::Bar(bar()),
            ProgressFormat::Auto | ProgressFormat::Plain => Display::Lines,
            ProgressFormat::Json => Display::Json,
            ProgressFormat::None => Display::Nothing,
        };
        let labels = plan.cells.iter().map(|cell| (cell.id(), label(cell))).collect();
        Self { display, pace: Pace::new(plan), labels }
    }

    pub(crate) fn event(&mut self, stamped: &TimestampedEvent) {
        self.pace.event(&stamped.event);
        match &self.display {
            Display::Bar(bar) => show_on_bar(bar, &self.pace, &self.labels, &stamped.event),
            Display::Lines => {
                if let Some(line) = line(&self.pace, &stamped.event) {
                    tell(&line);
                }
            }
            Display::Json => {
                if let Ok(line) = serde_json::to_string(stamped) {
                    tell(&line);
                }
            }
            Display::Nothing => {
                if let Some(warning) = warning(&stamped.event) {
                    tell(&warning);
                }
            }
        }
    }

    /// Clears the bar, so that what follows stands on a clean line.
    pub(crate) fn finish(&self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

impl Pace {
    fn new(plan: &Plan) -> Self {
        let expected = |block: &ciphertoll_model::Block| {
            let trial = |cell: &Cell| (cell.id(), plan.expected_trial(block.number, cell));
            Expected { block: plan.expected_block(block), trials: plan.cells.iter().map(trial).collect() }
        };
        Self {
            trials: plan.blocks.iter().map(|block| block.visits.len() as u64).sum(),
            blocks: plan.blocks.iter().map(expected).collect(),
            done: Duration::ZERO,
            began: None,
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            // A block that was cut short begins anew; those before it are done, by whichever process.
            Event::BlockStarted { block } => {
                self.done = self.blocks.iter().take(*block as usize).map(|block| block.block).sum();
                self.began.get_or_insert(Began { at: Instant::now(), done: self.done });
            }
            Event::TrialFinished { block, cell, .. } => {
                let expected = self.blocks.get(*block as usize).and_then(|block| block.trials.get(cell));
                self.done += expected.copied().unwrap_or_default();
            }
            // Trials that were lost, or are of skipped cells, are done with, too.
            Event::BlockFinished { block } => {
                self.done = self.blocks.iter().take(*block as usize + 1).map(|block| block.block).sum();
            }
            _ => {}
        }
    }

    /// What is undone, at the pace of what is done; as planned, before anything is.
    fn left(&self) -> Duration {
        let undone = self.expected().saturating_sub(self.done);
        match &self.began {
            Some(began) if self.done > began.done => {
                let done = self.done.saturating_sub(began.done);
                undone.mul_f64(began.at.elapsed().as_secs_f64() / done.as_secs_f64())
            }
            _ => undone,
        }
    }

    fn expected(&self) -> Duration {
        self.blocks.iter().map(|block| block.block).sum()
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The template is a constant that the library takes; its default would do as well.
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {wide_msg}") {
        bar.set_style(style.progress_chars("━━╌"));
    }
    bar
}

fn show_on_bar(bar: &ProgressBar, pace: &Pace, labels: &BTreeMap<CellId, String>, event: &Event) {
    if let Some(warning) = warning(event) {
        bar.suspend(|| tell(&warning));
    }
    match event {
        Event::Preparing { what } => bar.set_message(what.clone()),
        Event::TrialStarted { block, cell, arm, .. } => {
            bar.set_length(pace.expected().as_millis() as u64);
            bar.set_position(pace.done.as_millis() as u64);
            let again = if *arm == Arm::Repeat { " (again)" } else { "" };
            let stage = if *block == 0 { "calibration".to_owned() } else { format!("block {block}") };
            let cell = labels.get(cell).map_or(cell.0.as_str(), String::as_str);
            bar.set_message(format!("{} left · {stage} · {cell}{again}", clock(pace.left())));
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

fn line(pace: &Pace, event: &Event) -> Option<String> {
    match event {
        Event::Preparing { what } => Some(what.clone()),
        Event::ServerReady { server, version, elapsed_ms, .. } => {
            Some(format!("{server} {version} answers after {:.1} s", *elapsed_ms as f64 / 1e3))
        }
        Event::BlockFinished { block: 0 } => {
            Some(format!("calibrated · {} trials · {} left", pace.trials, clock(pace.left())))
        }
        Event::BlockFinished { block } => {
            let blocks = pace.blocks.len().saturating_sub(1);
            Some(format!("block {block} of at most {blocks} · {} left", clock(pace.left())))
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

#[expect(clippy::print_stderr, reason = "progress and warnings belong to stderr")]
pub(crate) fn tell(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Engine, ServerLevel, Spec};

    use super::*;

    #[test]
    fn one_block_is_no_blocks() {
        let said = |blocks| warning(&Event::Looked { blocks, decision: LookDecision::StopBudget }).unwrap();
        assert_eq!(said(1), "the time budget ends the run after 1 block");
        assert_eq!(said(2), "the time budget ends the run after 2 blocks");
    }

    #[test]
    fn a_run_that_is_gone_on_with_does_not_begin_at_nothing() {
        let plan = Plan::new(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 7).unwrap();
        let mut fresh = Pace::new(&plan);
        fresh.event(&Event::BlockStarted { block: 0 });
        assert_eq!((fresh.done, fresh.left()), (Duration::ZERO, fresh.expected()));

        let mut resumed = Pace::new(&plan);
        resumed.event(&Event::RunResumed { tool_version: "0.1.0".to_owned() });
        resumed.event(&Event::BlockStarted { block: 3 });
        let done: Duration = resumed.blocks.iter().take(3).map(|block| block.block).sum();
        assert_eq!(resumed.done, done);
        // What another process did says nothing about this one's pace: the rest takes what was planned.
        let rest = resumed.expected().saturating_sub(done);
        assert_eq!(resumed.left(), rest);
        resumed.event(&Event::BlockFinished { block: 3 });
        let by_now: Duration = resumed.blocks.iter().take(4).map(|block| block.block).sum();
        assert_eq!(resumed.done, by_now);
        // Twice as slow as planned, and whatever this test has taken: so is the rest.
        let took = by_now.saturating_sub(done) * 2;
        let at = Instant::now().checked_sub(took).unwrap();
        resumed.began = Some(Began { at, done });
        let rest = resumed.expected().saturating_sub(by_now);
        assert!(!rest.is_zero() && resumed.left() >= rest.mul_f64(1.99), "{:?} of {rest:?}", resumed.left());
    }
}
