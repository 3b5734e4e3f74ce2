//! Carries a plan out block by block in the planned order, repeats voided trials at the end of their block, and decides at the
//! planned looks whether to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ciphertoll_model::{
    Arm, Block, Cell, CellId, Ending, Event, ExitCode, LookDecision, Metric, Observation, Pace, Plan,
    Profiling, Skipped, TimestampedEvent, Timing, TrialPace, Visit, VoidReason,
};
use ciphertoll_stats::RunFacts;

use crate::gates::judge;
use crate::interrupt::Interrupt;
use crate::testbed::{ReadyTestbed, Testbed};
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// Where events go: the record, the progress display.
pub trait Sink {
    /// Records an event. An error ends the run.
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, TestbedError>;

    /// Records a trial's latency histogram in base64.
    fn histogram(&mut self, block: u32, cell: usize, arm: Arm, base64: &str) -> Result<(), TestbedError>;
}

/// Attempts at a trial …
const ATTEMPTS: u32 = 2;
/// … and at one that was voided because of noise, which may pass.
const ATTEMPTS_IN_NOISE: u32 = 5;

/// A run that has not begun.
pub struct Run<'a, B, S> {
    testbed: &'a mut B,
    state: RunState<'a, S>,
}

/// A run in progress.
struct RunState<'a, S> {
    plan: &'a Plan,
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
    Error(TestbedError),
}

impl From<TestbedError> for Stop {
    fn from(error: TestbedError) -> Self {
        Self::Error(error)
    }
}

/// The observation of a trial and its latency histogram in base64, or why it is void.
type TrialOutcome = Result<(Observation, String), VoidReason>;

impl<'a, B: Testbed, S: Sink> Run<'a, B, S> {
    pub fn new(plan: &'a Plan, testbed: &'a mut B, sink: &'a mut S, interrupt: &'a Interrupt) -> Self {
        Self::resuming(plan, testbed, sink, interrupt, Vec::new())
    }

    /// Resumes a run from its record. Recorded decisions and capacities stay, and an interrupted block starts again.
    pub fn resuming(
        plan: &'a Plan,
        testbed: &'a mut B,
        sink: &'a mut S,
        interrupt: &'a Interrupt,
        events: Vec<TimestampedEvent>,
    ) -> Self {
        Self { testbed, state: RunState::new(plan, sink, interrupt, events) }
    }

    /// Carries the plan out and returns all events. Takes the testbed down however the run ends.
    pub fn carry_out(self, tool_version: &str) -> Result<Vec<TimestampedEvent>, TestbedError> {
        let Self { testbed, mut state } = self;
        let (ended, down) = match state.begin(testbed, tool_version) {
            Ok(true) => state.prepare_and_measure(testbed),
            Ok(false) => (Ok(()), Ok(())),
            Err(stop) => (Err(stop), Ok(())),
        };
        let ending = match ended {
            Ok(()) => Ending::Complete,
            Err(Stop::Ending(ending)) => ending,
            Err(Stop::Error(error)) => {
                // The error that ended the run is the one to report, even if this cannot be recorded.
                let _ = state.sink.event(&Event::Finished { ending: Ending::Failed });
                return Err(error);
            }
        };
        state.record(&Event::Finished { ending }).map_err(Stop::into_error)?;
        down?;
        Ok(state.events)
    }
}

impl<'a, S: Sink> RunState<'a, S> {
    fn new(plan: &'a Plan, sink: &'a mut S, interrupt: &'a Interrupt, events: Vec<TimestampedEvent>) -> Self {
        let facts = RunFacts::of(plan, &events);
        let capacity = |(index, cell): (usize, &Cell)| Some((index, *facts.capacities.get(&cell.id())?));
        let capacities = plan.cells.iter().enumerate().filter_map(capacity).collect();
        let (used_before, began) = (facts.elapsed.measuring(), Instant::now());
        let dropped = BTreeSet::new();
        let mut state = Self { plan, sink, interrupt, events, dropped, capacities, began, used_before };
        state.note_dropped();
        state
    }

    /// What has been recorded so far.
    fn facts(&self) -> RunFacts<'_> {
        RunFacts::of(self.plan, &self.events)
    }

    /// Clears what killed runs left behind. Returns whether trials are left.
    fn begin(&mut self, testbed: &mut impl Testbed, tool_version: &str) -> Result<bool, Stop> {
        let tool_version = tool_version.to_owned();
        if self.events.is_empty() {
            let schema_version = ciphertoll_model::SCHEMA_VERSION;
            self.record(&Event::RunStarted { schema_version, tool_version })?;
            self.emitting(|emit| testbed.sweep(emit))?;
            return Ok(true);
        }
        let last = self.facts().blocks_done.last().copied();
        self.record(&Event::RunResumed { tool_version })?;
        // The sweep may be all that is left to do.
        self.emitting(|emit| testbed.sweep(emit))?;
        match last {
            Some(last) => Ok(self.decided(last)? == LookDecision::GoOn || !self.unprofiled().is_empty()),
            None => Ok(true),
        }
    }

    /// How the run ended, and whether the testbed could be taken down.
    fn prepare_and_measure(
        &mut self,
        testbed: &mut impl Testbed,
    ) -> (Result<(), Stop>, Result<(), TestbedError>) {
        let (plan, before) = (self.plan, self.events.len());
        match self.emitting(|emit| testbed.prepare(plan, emit)) {
            Ok(mut ready) => {
                let ended = self.check_versions(before).and_then(|()| self.measure(&mut ready));
                (ended, ready.down())
            }
            Err(stop) => (self.check_versions(before).and(Err(stop)), Ok(())),
        }
    }

    fn measure(&mut self, testbed: &mut dyn ReadyTestbed) -> Result<(), Stop> {
        let done = self.facts().blocks_done;
        self.note_dropped();
        self.record(&Event::EnvironmentSeen { environment: testbed.environment() })?;
        self.check_interrupt()?;
        self.time_primitives(testbed)?;
        self.began = Instant::now();
        self.find_capacities(testbed)?;
        let mut decision = done.last().map_or(Ok(LookDecision::GoOn), |last| self.decided(*last))?;
        for block in self.plan.blocks.iter().filter(|block| !done.contains(&block.number)) {
            if decision != LookDecision::GoOn {
                break;
            }
            self.block(testbed, block)?;
            if block.number > 0 {
                decision = self.look(block.number)?;
            }
        }
        self.profile(testbed)
    }

    /// Profiles every configuration in a trial of its own, after all that count.
    fn profile(&mut self, testbed: &mut dyn ReadyTestbed) -> Result<(), Stop> {
        if !testbed.can_profile() {
            return Ok(());
        }
        for index in self.unprofiled() {
            self.check_interrupt()?;
            let cell = &self.plan.cells[index];
            let id = cell.id();
            self.record(&Event::Preparing { what: format!("profiling {id}") })?;
            let seed = trial_seed(self.plan.seed, u32::MAX, index, Arm::Main);
            let timing = self.plan.profile_timing(cell);
            let request = self.request(index, Arm::Main, self.trial_pace(index), timing, seed);
            let profiled = match self.bring_up(testbed, cell) {
                Ok(()) => testbed.profile(&request),
                Err(error) => Err(error),
            };
            match profiled {
                Ok(Ok(profile)) => self.record(&Event::Profiled { cell: id, profile })?,
                Ok(Err(reason)) => self.warn_unprofiled(&id, &reason)?,
                Err(TrialError::Void(reason)) => self.warn_unprofiled(&id, &reason.to_string())?,
                Err(TrialError::Interrupted) => return Err(Stop::Ending(Ending::Interrupted)),
                Err(TrialError::Fatal(error)) => return Err(Stop::Error(error)),
            }
        }
        Ok(())
    }

    fn warn_unprofiled(&mut self, cell: &CellId, reason: &str) -> Result<(), Stop> {
        self.record(&Event::Warned { message: format!("{cell} was not profiled: {reason}") })
    }

    /// The cells that are to be profiled and were not.
    fn unprofiled(&self) -> Vec<usize> {
        if self.plan.profile == Profiling::Off {
            return Vec::new();
        }
        let profiles = self.facts().profiles;
        let cells = self.plan.cells.iter().enumerate();
        let left =
            cells.filter(|(index, cell)| !self.dropped.contains(index) && !profiles.contains_key(&cell.id()));
        left.map(|(index, _)| index).collect()
    }

    /// The recorded decision after `block`; if there is none, decides now.
    fn decided(&mut self, block: u32) -> Result<LookDecision, Stop> {
        let recorded = self.facts().looks.get(&block).copied();
        match recorded {
            Some(decision) => Ok(decision),
            None if block == 0 => Ok(LookDecision::GoOn),
            None => self.look(block),
        }
    }

    /// Times the primitives unless the record has them: they do not change during a run.
    fn time_primitives(&mut self, testbed: &mut dyn ReadyTestbed) -> Result<(), Stop> {
        if self.facts().primitives.is_some() {
            return Ok(());
        }
        let cells = self.plan.cells.iter().enumerate();
        let cells: Vec<&Cell> =
            cells.filter(|(index, _)| !self.dropped.contains(index)).map(|(_, cell)| cell).collect();
        self.emitting(|emit| testbed.time_primitives(&cells, emit))?;
        self.check_interrupt()
    }

    fn block(&mut self, testbed: &mut dyn ReadyTestbed, block: &Block) -> Result<(), Stop> {
        self.record(&Event::BlockStarted { block: block.number })?;
        self.emitting(|emit| testbed.begin_block(emit))?;
        let mut due: Vec<Visit> = block.visits.clone();
        due.retain(|visit| !self.dropped.contains(&visit.cell));
        for attempt in 1.. {
            let mut again = Vec::new();
            for visit in due {
                let Err(reason) = self.visit(testbed, block.number, visit, attempt)? else { continue };
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

    fn visit(
        &mut self,
        testbed: &mut dyn ReadyTestbed,
        block: u32,
        visit: Visit,
        attempt: u32,
    ) -> Result<Result<(), VoidReason>, Stop> {
        let Visit { cell: index, arm } = visit;
        let cell = &self.plan.cells[index];
        let seed = trial_seed(self.plan.seed, block, index, arm);
        let timing = self.plan.timing_of(block, cell);
        let request = self.request(index, arm, self.trial_pace(index), timing, seed);
        let (observation, histogram) = match self.attempt(testbed, block, &request, attempt)? {
            Ok(measured) => measured,
            Err(reason) => return Ok(Err(reason)),
        };
        self.sink.histogram(block, index, arm, &histogram)?;
        let observation = Box::new(observation);
        self.record(&Event::TrialFinished { block, cell: cell.id(), arm, observation })?;
        Ok(Ok(()))
    }

    /// Attempts a trial. Records its beginning and, if it is void, the reason.
    fn attempt(
        &mut self,
        testbed: &mut dyn ReadyTestbed,
        block: u32,
        request: &TrialRequest<'_>,
        attempt: u32,
    ) -> Result<TrialOutcome, Stop> {
        self.check_interrupt()?;
        let (cell, arm) = (request.cell.id(), request.arm);
        self.record(&Event::TrialStarted { block, cell: cell.clone(), arm, attempt })?;
        match self.up_and_measure(testbed, request) {
            Ok(measured) => Ok(Ok(measured)),
            Err(TrialError::Void(reason)) => {
                self.record(&Event::TrialVoided { block, cell, arm, attempt, reason: reason.clone() })?;
                Ok(Err(reason))
            }
            Err(TrialError::Interrupted) => {
                self.check_interrupt()?;
                Err(Stop::Ending(Ending::Interrupted))
            }
            Err(TrialError::Fatal(error)) => Err(Stop::Error(error)),
        }
    }

    /// Records the events that `act` emits.
    fn emitting<T>(&mut self, act: impl FnOnce(&mut Emit<'_>) -> Result<T, TestbedError>) -> Result<T, Stop> {
        let Self { sink, events, .. } = self;
        let mut unrecorded = None;
        let acted = act(&mut |event| match sink.event(&event) {
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
        let (recorded, happened) = (RunFacts::of(self.plan, recorded), RunFacts::of(self.plan, happened));
        for now in &happened.servers {
            let then = recorded.server_version(now.name).unwrap_or(now.version);
            if now.version != then {
                let (server, now) = (now.name, now.version);
                let message = format!("{server} was {then} in the record and is {now} now: begin a new run");
                return Err(Stop::Error(TestbedError { message, exit_code: ExitCode::NothingRan }));
            }
        }
        Ok(())
    }

    /// Measures in a closed loop the capacity of every baseline whose pace is a share of it. If all attempts are voided, the
    /// baseline and the cells compared with it are dropped.
    fn find_capacities(&mut self, testbed: &mut dyn ReadyTestbed) -> Result<(), Stop> {
        for baseline in self.plan.paced_baselines() {
            if self.dropped.contains(&baseline) || self.capacities.contains_key(&baseline) {
                continue;
            }
            let mut attempt = 1;
            let found = loop {
                match self.capacity(testbed, baseline, attempt)? {
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

    fn capacity(
        &mut self,
        testbed: &mut dyn ReadyTestbed,
        index: usize,
        attempt: u32,
    ) -> Result<Result<f64, VoidReason>, Stop> {
        // As long as a counted trial.
        let timing = self.plan.timing_of(1, &self.plan.cells[index]);
        let seed = trial_seed(self.plan.seed, 0, index, Arm::Repeat);
        let request = self.request(index, Arm::Main, TrialPace::Closed, timing, seed);
        let measured = self.attempt(testbed, 0, &request, attempt)?;
        Ok(measured.and_then(|(observation, _)| {
            observation.metrics.get(&Metric::RatePerS).copied().ok_or(VoidReason::NoOperations)
        }))
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
        testbed: &mut dyn ReadyTestbed,
        request: &TrialRequest<'_>,
    ) -> Result<(Observation, String), TrialError> {
        self.bring_up(testbed, request.cell)?;
        let measured = testbed.trial(request)?;
        let observation = judge(request.cell, &measured, self.plan.noise_limits(), &self.plan.settings)
            .map_err(TrialError::Void)?;
        Ok((observation, measured.load.histogram_base64))
    }

    fn bring_up(&mut self, testbed: &mut dyn ReadyTestbed, cell: &Cell) -> Result<(), TrialError> {
        let mut happened = Vec::new();
        let up = testbed.up(cell, &mut |event| happened.push(event));
        for event in happened {
            self.record(&event).map_err(|stop| TrialError::Fatal(stop.into_error()))?;
        }
        up
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
        self.used_before + self.began.elapsed() + self.facts().elapsed.mean_block().unwrap_or_default()
    }

    fn drop_cell(&mut self, index: usize, attempts: u32, reason: &VoidReason) -> Result<(), Stop> {
        self.dropped.insert(index);
        let times = if attempts == ATTEMPTS { "twice".to_owned() } else { format!("{attempts} times") };
        let reason = format!("failed {times} in calibration: {reason}");
        let skipped = Skipped::cell(&self.plan.cells[index], reason);
        self.record(&Event::CellSkipped { skipped })
    }

    /// Drops the cells that the testbed has skipped.
    fn note_dropped(&mut self) {
        let skipped = |cell: &Cell, facts: &RunFacts<'_>| {
            let id = cell.to_string();
            facts.skipped.iter().any(|skipped| skipped.id == id)
        };
        let facts = RunFacts::of(self.plan, &self.events);
        let cells = self.plan.cells.iter().enumerate();
        self.dropped.extend(cells.filter(|(_, cell)| skipped(cell, &facts)).map(|(index, _)| index));
    }

    fn nothing_left(&self) -> TestbedError {
        let facts = self.facts();
        let last_reason = facts.skipped.last().map_or("no cell", |skipped| &skipped.reason);
        let last_void = self.events.iter().rev().find_map(|stamped| match &stamped.event {
            Event::TrialVoided { reason, .. } => Some(reason),
            _ => None,
        });
        let way_out = match last_void {
            Some(VoidReason::Steal { .. }) => "; --max-steal 100% keeps such trials, with wide intervals",
            _ => "",
        };
        let message = format!("nothing could run: {last_reason}{way_out}");
        TestbedError { message, exit_code: ExitCode::NothingRan }
    }

    fn check_interrupt(&self) -> Result<(), Stop> {
        self.interrupt.ending().map_or(Ok(()), |ending| Err(Stop::Ending(ending)))
    }

    fn record(&mut self, event: &Event) -> Result<(), Stop> {
        self.events.push(self.sink.event(event)?);
        Ok(())
    }
}

impl Stop {
    fn into_error(self) -> TestbedError {
        match self {
            Self::Error(error) => error,
            Self::Ending(ending) => TestbedError {
                message: format!("the run ended early: {ending:?}"),
                exit_code: ExitCode::Interrupted,
            },
        }
    }
}

/// The number of attempts at a trial that is voided for `reason`.
fn attempts(reason: &VoidReason) -> u32 {
    if reason.is_noise() { ATTEMPTS_IN_NOISE } else { ATTEMPTS }
}

/// A different seed for every trial, the same for the same plan.
fn trial_seed(seed: u64, block: u32, cell: usize, arm: Arm) -> u64 {
    let position = (u64::from(block) << 32) | ((cell as u64) << 1) | u64::from(arm == Arm::Repeat);
    seed ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
