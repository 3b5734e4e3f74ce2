//! Carries a plan out: block by block in the planned order, voided trials again at the end of
//! their block, a look at the data at the planned looks.

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
    /// Takes an event. An error ends the run: what cannot be recorded is not measured.
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, BenchError>;

    /// Takes a trial's histogram of latencies, base64.
    fn histogram(&mut self, block: u32, cell: usize, arm: Arm, base64: &str) -> Result<(), BenchError>;
}

/// What failed twice by itself fails again …
const ATTEMPTS: u32 = 2;
/// … but what others did to the machine passes.
const ATTEMPTS_IN_NOISE: u32 = 5;

/// A run on its way.
pub struct Run<'a, B, S> {
    plan: &'a Plan,
    bench: &'a mut B,
    sink: &'a mut S,
    interrupt: &'a Interrupt,
    events: Vec<TimestampedEvent>,
    /// Cells that turned out not to be measurable.
    dropped: BTreeSet<usize>,
    /// Operations a second of the baselines whose paces are shares of it.
    capacities: BTreeMap<usize, f64>,
    began: Instant,
    /// What measuring took before a resumed run ended early: the budget counts it.
    used_before: Duration,
}

/// Why a run does not go on.
enum Stop {
    Ending(Ending),
    Error(BenchError),
}

/// What became of a visit.
enum Outcome {
    Observed,
    Voided(VoidReason),
}

impl<'a, B: Bench, S: Sink> Run<'a, B, S> {
    /// A run that has not begun.
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

    /// A run that ended early and goes on from its record: what was decided stays decided, what was found
    /// stays found, and a block that was cut short begins again.
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

    /// Carries the plan out and returns everything that happened. The bench is taken down however
    /// the run ends.
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
            // There may be nothing left to do but this.
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

    /// Blocks that the record has whole.
    fn blocks_done(&self) -> BTreeSet<u32> {
        let finished = self.events.iter().filter_map(|stamped| match stamped.event {
            Event::BlockFinished { block } => Some(block),
            _ => None,
        });
        finished.collect()
    }

    /// What was decided after `block`; decided now, where the record ends before.
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

    /// A machine's primitives do not change between the blocks of a run: what the record has is not timed again.
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
                let Outcome::Voided(reason) = self.visit(block.number, visit, attempt)? else {
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

    fn visit(&mut self, block: u32, visit: Visit, attempt: u32) -> Result<Outcome, Stop> {
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
                Ok(Outcome::Observed)
            }
            Err(TrialError::Void(reason)) => {
                let voided =
                    Event::TrialVoided { block, cell: cell.id(), arm, attempt, reason: reason.clone() };
                self.record(&voided)?;
                Ok(Outcome::Voided(reason))
            }
            Err(TrialError::Interrupted) => {
                self.check_interrupt()?;
                Err(Stop::Ending(Ending::Interrupted))
            }
            Err(TrialError::Fatal(error)) => Err(Stop::Error(error)),
        }
    }

    /// Has the bench do something, and records what it says of that.
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

    /// Blocks on another server's version would not be comparable with those that were recorded `before`.
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

    /// A closed loop of every baseline whose pace is a share of its capacity. Voided to the last attempt: neither
    /// it nor what is compared with it can be measured.
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
        // As long as a trial that counts.
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

    /// Looks at the data where the plan says so. Stops on precision, on the plan's end or on the
    /// budget, never on significance.
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

    /// When the next block would end, if it takes as long as those so far did on average.
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

    /// Learns from the bench's events which cells it cannot measure.
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

/// After how many attempts a trial that was voided for `reason` is missing from its block.
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

/// A seed of its own for every trial, the same whenever the plan is.
fn trial_seed(seed: u64, block: u32, cell: usize, arm: Arm) -> u64 {
    let position = (u64::from(block) << 32) | ((cell as u64) << 1) | u64::from(arm == Arm::Repeat);
    seed ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
