//! The measurements of a thread's clients: a histogram of all samples, and counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ciphertoll_model::{ErrorCount, ErrorKind, FurtherHistograms, Phase, TrialPace, TrialResult};
use ciphertoll_net::PhaseTimes;

use crate::Error;
use crate::legs::Legs;
use crate::operation::{DueOperation, Operation};
use crate::times::Times;
use crate::window::{MeasurementWindow, WindowPart};

/// Distinct error messages kept; a storm of errors adds nothing after its beginning.
const MAX_MESSAGES: usize = 16;

pub(crate) struct Recorder {
    window: MeasurementWindow,
    latency: Times,
    /// `None` in a closed loop, where an operation begins when it is due.
    open: Option<Box<OpenLoopTimes>>,
    operations_by_half: [u64; 2],
    /// Including those before and after the window.
    operations_in_all: u64,
    statements: u64,
    retries: u64,
    unfinished: u64,
    phase_sums: [Duration; Phase::ALL.len()],
    /// Times of TCP connects, which are compared with a link's round trip.
    tcp_connects: Times,
    /// CPU time of inspecting negotiated parameters within the window: ciphertoll's, not a client's.
    inspection: Duration,
    legs: Legs,
    failed_operations: u64,
    errors: BTreeMap<String, Errors>,
}

#[derive(Clone, Copy)]
struct Errors {
    kind: ErrorKind,
    count: u64,
}

struct OpenLoopTimes {
    service: Times,
    schedule_lag: Times,
}

impl Recorder {
    pub(crate) fn new(window: MeasurementWindow, pace: TrialPace) -> Self {
        let open = match pace {
            TrialPace::Closed => None,
            TrialPace::Open { .. } => {
                Some(Box::new(OpenLoopTimes { service: Times::new(), schedule_lag: Times::new() }))
            }
        };
        Self {
            window,
            latency: Times::new(),
            open,
            operations_by_half: [0; 2],
            operations_in_all: 0,
            statements: 0,
            retries: 0,
            unfinished: 0,
            phase_sums: Default::default(),
            tcp_connects: Times::new(),
            inspection: Duration::ZERO,
            legs: Legs::default(),
            failed_operations: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Records an operation of a closed loop; it is timed if it ended in the window.
    #[inline]
    pub(crate) fn closed(&mut self, operation: &Operation) {
        if self.count(operation) {
            self.latency.record(nanos(operation.ended - operation.began));
        }
    }

    /// Records an operation of an open loop; it is timed if it was due in the window, even if it ended late.
    /// Throughput counts it where it ended.
    pub(crate) fn open(&mut self, operation: &Operation, due: &DueOperation) {
        self.count(operation);
        if self.window.contains(due.intended) {
            self.latency.record(nanos(operation.ended.saturating_duration_since(due.intended)));
            if let Some(open) = &mut self.open {
                open.service.record(nanos(operation.ended - operation.began));
                open.schedule_lag.record(nanos(due.lag));
            }
        }
    }

    /// Counts an operation if it ended in the window; returns whether it did.
    #[inline]
    fn count(&mut self, operation: &Operation) -> bool {
        self.operations_in_all += 1;
        let half = match self.window.part(operation.ended) {
            WindowPart::FirstHalf => 0,
            WindowPart::SecondHalf => 1,
            WindowPart::WarmUp | WindowPart::Over => return false,
        };
        self.operations_by_half[half] += 1;
        self.statements += operation.statements;
        self.retries += operation.retries;
        true
    }

    /// Records the phases of an operation that ended in the window.
    pub(crate) fn phases(&mut self, ended: Instant, phases: &PhaseTimes) {
        if self.window.contains(ended) {
            for (sum, phase) in self.phase_sums.iter_mut().zip(Phase::ALL) {
                *sum += phases.of(phase);
            }
            let tcp_connect = phases.of(Phase::TcpConnect);
            if !tcp_connect.is_zero() {
                self.tcp_connects.record(nanos(tcp_connect));
            }
        }
    }

    pub(crate) fn inspected(&mut self, at: Instant, cpu: Duration) {
        if self.window.contains(at) {
            self.inspection += cpu;
        }
    }

    /// CPU time that the process used in the window outside of its clients.
    pub(crate) fn inspection(&self) -> Duration {
        self.inspection
    }

    pub(crate) fn unfinished(&mut self, operations: u64) {
        self.unfinished += operations;
    }

    pub(crate) fn legs(&mut self, legs: Legs) {
        self.legs.merge(legs);
    }

    pub(crate) fn error(&mut self, error: &Error) {
        self.failed_operations += 1;
        let (message, kind) = (error.to_string(), error.kind());
        // An error that needs more than counting must be kept even after a storm of others.
        if self.errors.len() < MAX_MESSAGES || kind != ErrorKind::Other || self.errors.contains_key(&message)
        {
            self.count_errors(message, Errors { kind, count: 1 });
        }
    }

    fn count_errors(&mut self, message: String, errors: Errors) {
        let known = self.errors.entry(message).or_insert(Errors { count: 0, ..errors });
        known.count += errors.count;
    }

    pub(crate) fn failed_operations(&self) -> u64 {
        self.failed_operations
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.latency.merge(&other.latency);
        if let (Some(mine), Some(theirs)) = (&mut self.open, other.open) {
            mine.service.merge(&theirs.service);
            mine.schedule_lag.merge(&theirs.schedule_lag);
        }
        for (mine, theirs) in self.operations_by_half.iter_mut().zip(other.operations_by_half) {
            *mine += theirs;
        }
        self.operations_in_all += other.operations_in_all;
        self.statements += other.statements;
        self.retries += other.retries;
        self.unfinished += other.unfinished;
        for (mine, theirs) in self.phase_sums.iter_mut().zip(other.phase_sums) {
            *mine += theirs;
        }
        self.tcp_connects.merge(&other.tcp_connects);
        self.inspection += other.inspection;
        self.legs(other.legs);
        self.failed_operations += other.failed_operations;
        for (message, errors) in other.errors {
            self.count_errors(message, errors);
        }
    }

    /// The trial's result; the caller fills in the usage of the whole process.
    pub(crate) fn result(&self) -> TrialResult {
        let error = |(message, errors): (&String, &Errors)| ErrorCount {
            message: message.clone(),
            count: errors.count,
            kind: errors.kind,
        };
        TrialResult {
            operations: self.operations_by_half.iter().sum(),
            operations_in_all: Some(self.operations_in_all),
            operations_by_half: self.operations_by_half,
            statements: Some(self.statements),
            retries: self.retries,
            unfinished: self.unfinished,
            window_ns: nanos(self.window.length()),
            errors: self.errors.iter().map(error).collect(),
            latency: self.latency.summary(),
            service: self.open.as_ref().map(|open| open.service.summary()),
            schedule_lag: self.open.as_ref().map(|open| open.schedule_lag.summary()),
            phase_sums_ns: self.phase_sums(),
            histogram_base64: self.latency.encode(),
            legs: self.legs.counts(),
            tcp_connect_ns_p50: Some(self.tcp_connects.summary())
                .filter(|all| all.count > 0)
                .map(|all| all.p50_ns),
            ..TrialResult::default()
        }
    }

    /// What [`Self::result`] only summarises.
    pub(crate) fn further_histograms(&self) -> FurtherHistograms {
        let encoded = |times: &Times| if times.is_empty() { String::new() } else { times.encode() };
        let open = self.open.as_deref();
        FurtherHistograms {
            service_base64: open.map_or_else(String::new, |open| encoded(&open.service)),
            schedule_lag_base64: open.map_or_else(String::new, |open| encoded(&open.schedule_lag)),
            tcp_connect_base64: encoded(&self.tcp_connects),
        }
    }

    fn phase_sums(&self) -> BTreeMap<Phase, u64> {
        Phase::ALL
            .into_iter()
            .zip(self.phase_sums)
            .filter(|(_, sum)| !sum.is_zero())
            .map(|(phase, sum)| (phase, nanos(sum)))
            .collect()
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests;
