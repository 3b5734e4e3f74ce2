//! Carries a plan out block by block in the planned order, repeats voided trials at the end of their block, and decides at the
//! planned looks whether to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ciphertoll_model::{
    Arm, Block, Cell, Ending, Event, LookDecision, Metric, Pace, Plan, Skipped, TimestampedEvent, Timing,
    TrialPace, Visit, VoidReason,
};

use crate::bench::{Bench, BenchError, Emit, TrialError, TrialRequest};
use crate::elapsed;
use crate::gates::judge;
use crate::interrupt::Interrupt;

/// Where events go: the record, the progress display.
pub trait Sink {
    /// Records an event. An error ends the run.
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, BenchError>;

    /// Records a trial's latency histogram in base64.
    fn histogram(&mut self, block: u32, cell: usize, arm: Arm, base64: &str) -> Result<(), BenchError>;
}

/// Attempts at a trial …
const ATTEMPTS: u32 = 2;
/// … and at one that was voided because of noise, which may pass.
const ATTEMPTS_IN_NOISE: u32 = 5;

/// A run in progress.
pub struct Run<'a, B, S> {
    plan: &'a Plan,
    bench: &'a mut B,
    sink: &'a mut S,
    interrupt: &'a Interrupt,
    events: Vec<TimestampedEvent>,
    /// Cells that cannot be measured.
    dropped: BTreeSet<usize>,
    /// Operations per second of baselines whose pace is a share of their capacity.
    capacities: BTreeMap<usize, f64>,
    began: Instant,
    /// Measuring time before the run was resumed, which counts towards the budget.
    used_before: Duration,
}

/// Why a run stops.
enum Stop {
    Ending(Ending),
    Error(BenchError),
}

enum VisitOutcome {
    Observed,
    Voided(VoidReason),
}

impl<'a, B: Bench, S: Sink> Run<'a, B, S> {
    pub fn new(plan: &'a Plan, bench: &'a mut B, sink: &'a mut S, interrupt: &'a Interrupt) -> Self {
        Self {
            plan,
            bench,
            sink,
            interrupt,
            events: Vec::new(),
            dropped: BTreeSet::new(),
            capacities: BTreeMap::new(),
            began: Instant::now(),
            used_before: Duration::ZERO,
        }
    }

    /// Resumes a run from its record. Recorded decisions and capacities stay, and an interrupted block starts again.
    pub fn resuming(
        plan: &'a Plan,
        bench: &'a mut B,
        sink: &'a mut S,
        interrupt: &'a Interrupt,
        events: Vec<TimestampedEvent>,
    ) -> Self {
        let used_before = elapsed::measuring(&events);
        let mut run = Self { events, used_before, ..Self::new(plan, bench, sink, interrupt) };
        run.note_dropped();
        for stamped in &run.events {
            if let Event::CapacityFound { cell, per_s } = &stamped.event
                && let Some(index) = plan.cells.iter().position(|known| known.id() == *cell)
            {
                run.capacities.insert(index, *per_s);
            }
        }
        run
    }

    /// Carries the plan out and returns all events. Takes the bench down however the run ends.
    pub fn carry_out(mut self, tool_version: &str) -> Result<Vec<TimestampedEvent>, BenchError> {
        let ended = self.measure(tool_version);
        let down = self.bench.down();
        let ending = match ended {
            Ok(()) => Ending::Complete,
            Err(Stop::Ending(ending)) => ending,
            Err(Stop::Error(error)) => {
                // The error that ended the run is the one to report, even if this cannot be recorded.
                let _ = self.sink.event(&Event::Finished { ending: Ending::Failed });
                return Err(error);
            }
        };
        self.record(&Event::Finished { ending }).map_err(Stop::into_error)?;
        down?;
        Ok(self.events)
    }

    fn measure(&mut self, tool_version: &str) -> Result<(), Stop> {
        let tool_version = tool_version.to_owned();
        let done = self.blocks_done();
        if self.events.is_empty() {
            let schema_version = ciphertoll_model::SCHEMA_VERSION;
            self.record(&Event::RunStarted { schema_version, tool_version })?;
            self.sweep()?;
        } else {
            self.record(&Event::RunResumed { tool_version })?;
            // The sweep may be all that is left to do.
            self.sweep()?;
            if let Some(last) = done.last()
                && self.decided(*last)? != LookDecision::GoOn
            {
                return Ok(());
            }
        }
        self.prepare()?;
        self.time_primitives()?;
        self.began = Instant::now();
        self.find_capacities()?;
        for block in self.plan.blocks.iter().filter(|block| !done.contains(&block.number)) {
            self.block(block)?;
            if block.number > 0 && self.look(block.number)? != LookDecision::GoOn {
                break;
            }
        }
        Ok(())
    }

    /// Blocks that are complete in the record.
    fn blocks_done(&self) -> BTreeSet<u32> {
        let finished = self.events.iter().filter_map(|stamped| match stamped.event {
            Event::BlockFinished { block } => Some(block),
            _ => None,
        });
        finished.collect()
    }

    /// The recorded decision after `block`; if there is none, decides now.
    fn decided(&mut self, block: u32) -> Result<LookDecision, Stop> {
        let recorded = self.events.iter().rev().find_map(|stamped| match stamped.event {
            Event::Looked { blocks, decision } if blocks == block => Some(decision),
            _ => None,
        });
        match recorded {
            Some(decision) => Ok(decision),
            None if block == 0 => Ok(LookDecision::GoOn),
            None => self.look(block),
        }
    }

    fn sweep(&mut self) -> Result<(), Stop> {
        self.with_bench(|bench, emit| bench.sweep(emit))
    }

    fn prepare(&mut self) -> Result<(), Stop> {
        let plan = self.plan;
        let before = self.events.len();
        let environment = self.with_bench(|bench, emit| bench.prepare(plan, emit));
        self.check_versions(before)?;
        let environment = environment?;
        self.note_dropped();
        self.record(&Event::EnvironmentSeen { environment })?;
        self.check_interrupt()
    }

    /// Times the primitives unless the record has them: they do not change during a run.
    fn time_primitives(&mut self) -> Result<(), Stop> {
        if self.events.iter().any(|stamped| matches!(stamped.event, Event::PrimitivesMeasured { .. })) {
            return Ok(());
        }
        let cells = self.plan.cells.iter().enumerate();
        let cells: Vec<&Cell> =
            cells.filter(|(index, _)| !self.dropped.contains(index)).map(|(_, cell)| cell).collect();
        self.with_bench(|bench, emit| bench.time_primitives(&cells, emit))?;
        self.check_interrupt()
    }

    fn block(&mut self, block: &Block) -> Result<(), Stop> {
        self.record(&Event::BlockStarted { block: block.number })?;
        self.with_bench(|bench, emit| bench.begin_block(emit))?;
        let mut due: Vec<Visit> = block.visits.clone();
        due.retain(|visit| !self.dropped.contains(&visit.cell));
        for attempt in 1.. {
            let mut again = Vec::new();
            for visit in due {
                let VisitOutcome::Voided(reason) = self.visit(block.number, visit, attempt)? else {
                    continue;
                };
                if attempt < attempts(&reason) {
                    again.push(visit);
                } else if block.number == 0 {
                    self.drop_cell(visit.cell, attempt, &reason)?;
                }
            }
            if again.is_empty() {
                break;
            }
            due = again;
        }
        if self.dropped.len() == self.plan.cells.len() {
            return Err(Stop::Error(self.nothing_left()));
        }
        self.record(&Event::BlockFinished { block: block.number })
    }

    fn visit(&mut self, block: u32, visit: Visit, attempt: u32) -> Result<VisitOutcome, Stop> {
        self.check_interrupt()?;
        let Visit { cell: index, arm } = visit;
        let cell = &self.plan.cells[index];
        self.record(&Event::TrialStarted { block, cell: cell.id(), arm, attempt })?;
        let seed = trial_seed(self.plan.seed, block, index, arm);
        let timing = self.plan.timing_of(block, cell);
        let request = self.request(index, arm, self.trial_pace(index), timing, seed);
        match self.up_and_measure(&request) {
            Ok((observation, histogram)) => {
                self.sink.histogram(block, index, arm, &histogram).map_err(Stop::Error)?;
                let observation = Box::new(observation);
                self.record(&Event::TrialFinished { block, cell: cell.id(), arm, observation })?;
                Ok(VisitOutcome::Observed)
            }
            Err(TrialError::Void(reason)) => {
                let voided =
                    Event::TrialVoided { block, cell: cell.id(), arm, attempt, reason: reason.clone() };
                self.record(&voided)?;
                Ok(VisitOutcome::Voided(reason))
            }
            Err(TrialError::Interrupted) => {
                self.check_interrupt()?;
                Err(Stop::Ending(Ending::Interrupted))
            }
            Err(TrialError::Fatal(error)) => Err(Stop::Error(error)),
        }
    }

    /// Calls the bench and records the events that it emits.
    fn with_bench<T>(
        &mut self,
        act: impl FnOnce(&mut B, &mut Emit<'_>) -> Result<T, BenchError>,
    ) -> Result<T, Stop> {
        let Self { bench, sink, events, .. } = self;
        let mut unrecorded = None;
        let acted = act(bench, &mut |event| match sink.event(&event) {
            Ok(stamped) => events.push(stamped),
            Err(error) => unrecorded = Some(error),
        });
        match unrecorded {
            Some(error) => Err(Stop::Error(error)),
            None => acted.map_err(Stop::Error),
        }
    }

    /// Fails if a server has another version than in the first `before` events: its blocks would not be comparable.
    fn check_versions(&self, before: usize) -> Result<(), Stop> {
        let (recorded, happened) = self.events.split_at(before);
        let recorded: BTreeMap<_, _> = recorded.iter().filter_map(ready_server).collect();
        let changed = happened
            .iter()
            .filter_map(ready_server)
            .filter_map(|(server, now)| Some((server, now, *recorded.get(server)?)))
            .find(|(_, now, then)| now != then);
        match changed {
            None => Ok(()),
            Some((server, now, then)) => Err(Stop::Error(BenchError {
                message: format!("{server} was {then} in the record and is {now} now: begin a new run"),
                exit_code: ciphertoll_model::ExitCode::NothingRan,
            })),
        }
    }

    /// Measures in a closed loop the capacity of every baseline whose pace is a share of it. If all attempts are voided, the
    /// baseline and the cells compared with it are dropped.
    fn find_capacities(&mut self) -> Result<(), Stop> {
        for baseline in self.plan.paced_baselines() {
            if self.dropped.contains(&baseline) || self.capacities.contains_key(&baseline) {
                continue;
            }
            let mut attempt = 1;
            let found = loop {
                match self.capacity(baseline, attempt)? {
                    Err(reason) if attempt < attempts(&reason) => attempt += 1,
                    found => break found,
                }
            };
            match found {
                Ok(per_s) => {
                    self.capacities.insert(baseline, per_s);
                    self.record(&Event::CapacityFound { cell: self.plan.cells[baseline].id(), per_s })?;
                }
                Err(reason) => {
                    for cell in 0..self.plan.cells.len() {
                        if self.plan.baseline_of(cell) == baseline {
                            self.drop_cell(cell, attempt, &reason)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn capacity(&mut self, index: usize, attempt: u32) -> Result<Result<f64, VoidReason>, Stop> {
        self.check_interrupt()?;
        let (arm, cell) = (Arm::Main, &self.plan.cells[index]);
        self.record(&Event::TrialStarted { block: 0, cell: cell.id(), arm, attempt })?;
        // As long as a counted trial.
        let (pace, timing) = (TrialPace::Closed, self.plan.timing_of(1, cell));
        let seed = trial_seed(self.plan.seed, 0, index, Arm::Repeat);
        match self.up_and_measure(&self.request(index, arm, pace, timing, seed)) {
            Ok((observation, _)) => match observation.metrics.get(&Metric::RatePerS) {
                Some(per_s) => Ok(Ok(*per_s)),
                None => Ok(Err(VoidReason::NoOperations)),
            },
            Err(TrialError::Void(reason)) => {
                let cell = cell.id();
                self.record(&Event::TrialVoided { block: 0, cell, arm, attempt, reason: reason.clone() })?;
                Ok(Err(reason))
            }
            Err(TrialError::Interrupted) => {
                self.check_interrupt()?;
                Err(Stop::Ending(Ending::Interrupted))
            }
            Err(TrialError::Fatal(error)) => Err(Stop::Error(error)),
        }
    }

    fn request(
        &self,
        index: usize,
        arm: Arm,
        pace: TrialPace,
        timing: Timing,
        seed: u64,
    ) -> TrialRequest<'a> {
        let plan = self.plan;
        let cell = &plan.cells[index];
        let (max_per_s, query) = (plan.rate_limit_per_s(cell), plan.query.as_deref());
        TrialRequest { cell, arm, pace, timing, seed, max_per_s, query }
    }

    /// A cell's pace as a rate.
    fn trial_pace(&self, cell: usize) -> TrialPace {
        match self.plan.cells[cell].pace {
            Pace::Closed => TrialPace::Closed,
            Pace::PerSecond(rate) => TrialPace::Open { per_s: f64::from(rate) },
            Pace::OfBaselineCapacity(percent) => {
                let capacity = self.capacities.get(&self.plan.baseline_of(cell)).copied();
                TrialPace::Open { per_s: percent.fraction() * capacity.unwrap_or_default() }
            }
        }
    }

    fn up_and_measure(
        &mut self,
        request: &TrialRequest<'_>,
    ) -> Result<(ciphertoll_model::Observation, String), TrialError> {
        let mut happened = Vec::new();
        let up = self.bench.up(request.cell, &mut |event| happened.push(event));
        for event in happened {
            self.record(&event).map_err(|stop| TrialError::Fatal(stop.into_error()))?;
        }
        up?;
        let measured = self.bench.trial(request)?;
        let observation = judge(request.cell, &measured, self.plan.noise_limits(), &self.plan.settings)
            .map_err(TrialError::Void)?;
        Ok((observation, measured.load.histogram_base64))
    }

    /// Decides at a planned look whether to stop: on precision, at the end of the plan or of the budget, never on significance.
    fn look(&mut self, blocks: u32) -> Result<LookDecision, Stop> {
        let last = blocks >= self.plan.counted_blocks();
        let over_budget = self.plan.budget.is_some_and(|budget| self.projected_end() > budget.duration());
        let planned_look = self.plan.looks.contains(&blocks);
        if !(last || over_budget || planned_look) {
            return Ok(LookDecision::GoOn);
        }
        let decision = if last {
            LookDecision::StopPlanned
        } else if planned_look && ciphertoll_stats::precise_enough(self.plan, &self.events) {
            LookDecision::StopPrecise
        } else if over_budget {
            LookDecision::StopBudget
        } else {
            LookDecision::GoOn
        };
        self.record(&Event::Looked { blocks, decision })?;
        Ok(decision)
    }

    /// The expected end of the next block, from the mean of those so far.
    fn projected_end(&self) -> Duration {
        self.used_before + self.began.elapsed() + elapsed::mean_block(&self.events).unwrap_or_default()
    }

    fn drop_cell(&mut self, index: usize, attempts: u32, reason: &VoidReason) -> Result<(), Stop> {
        self.dropped.insert(index);
        let times = if attempts == ATTEMPTS { "twice".to_owned() } else { format!("{attempts} times") };
        let reason = format!("failed {times} in calibration: {reason}");
        let skipped = Skipped::cell(&self.plan.cells[index], reason);
        self.record(&Event::CellSkipped { skipped })
    }

    /// Drops the cells that the bench has skipped.
    fn note_dropped(&mut self) {
        for stamped in &self.events {
            if let Event::CellSkipped { skipped } = &stamped.event {
                let found = self.plan.cells.iter().position(|cell| cell.to_string() == skipped.id);
                self.dropped.extend(found);
            }
        }
    }

    fn nothing_left(&self) -> BenchError {
        let last_reason = self.events.iter().rev().find_map(|stamped| match &stamped.event {
            Event::CellSkipped { skipped } => Some(skipped.reason.clone()),
            _ => None,
        });
        BenchError {
            message: format!("nothing could run: {}", last_reason.unwrap_or_else(|| "no cell".to_owned())),
            exit_code: ciphertoll_model::ExitCode::NothingRan,
        }
    }

    fn check_interrupt(&self) -> Result<(), Stop> {
        self.interrupt.ending().map_or(Ok(()), |ending| Err(Stop::Ending(ending)))
    }

    fn record(&mut self, event: &Event) -> Result<(), Stop> {
        let stamped = self.sink.event(event).map_err(Stop::Error)?;
        self.events.push(stamped);
        Ok(())
    }
}

impl Stop {
    fn into_error(self) -> BenchError {
        match self {
            Self::Error(error) => error,
            Self::Ending(ending) => BenchError {
                message: format!("the run ended early: {ending:?}"),
                exit_code: ciphertoll_model::ExitCode::Interrupted,
            },
        }
    }
}

/// The number of attempts at a trial that is voided for `reason`.
fn attempts(reason: &VoidReason) -> u32 {
    if reason.is_noise() { ATTEMPTS_IN_NOISE } else { ATTEMPTS }
}

/// A server's name and version.
fn ready_server(stamped: &TimestampedEvent) -> Option<(&str, &str)> {
    match &stamped.event {
        Event::ServerReady { server, version, .. } => Some((server, version)),
        _ => None,
    }
}

/// A different seed for every trial, the same for the same plan.
fn trial_seed(seed: u64, block: u32, cell: usize, arm: Arm) -> u64 {
    let position = (u64::from(block) << 32) | ((cell as u64) << 1) | u64::from(arm == Arm::Repeat);
    seed ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
