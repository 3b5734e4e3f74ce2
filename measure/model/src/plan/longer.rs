//! The duration of trials. Over a long link, operations take several round trips, and a window shorter than an
//! operation would measure nothing.

use std::time::Duration;

use super::parts::{Block, LongerTrials, Plan, Timing};
use crate::cell::Cell;
use crate::duration::Span;
use crate::factor::{Link, LinkShape, Workload};
use crate::profile::Profiling;
use crate::round_trips;
use crate::spec::Spec;

/// Time of a trial beyond warm-up and window: starting the process, its connects, the reload.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(120);
/// The shortest window of a trial that profiles.
const PROFILE_WINDOW: Span = Span::from_millis(4_000);

/// Operations per client that a window should have room for.
pub const OPERATIONS_WANTED: u32 = 10;
/// The minimum, even for a window given by the user.
pub const OPERATIONS_LEAST: u32 = 3;

impl LongerTrials {
    /// The longer timings that `cells` need instead of `own`. A window given by the user is lengthened only to the
    /// minimum.
    pub(super) fn of(spec: &Spec, cells: &[Cell], own: Timing) -> Vec<Self> {
        let operations = match spec.trial_time {
            Some(_) => OPERATIONS_LEAST,
            None => OPERATIONS_WANTED,
        };
        let mut kinds: Vec<(Link, Workload)> = Vec::new();
        for cell in cells {
            let kind = (cell.treatment.link, cell.workload);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let longer = |(link, workload): (Link, Workload)| {
            let alike = cells.iter().filter(|cell| cell.treatment.link == link && cell.workload == workload);
            let operation = alike.filter_map(expected_operation).max()?;
            let timing = own.with_room_for(operation, operations);
            let calibration = own.of_calibration().with_room_for(operation, OPERATIONS_LEAST);
            let is_longer = timing != own || calibration != own.of_calibration();
            let operation = in_millis(operation);
            is_longer.then_some(Self { link, workload, operation, operations, timing, calibration })
        };
        kinds.into_iter().filter_map(longer).collect()
    }

    pub(super) fn is_for(&self, cell: &Cell) -> bool {
        self.link == cell.treatment.link && self.workload == cell.workload
    }
}

impl Plan {
    /// Time of all blocks, without preparing servers.
    pub fn expected_duration(&self) -> Duration {
        let profiles = if self.profile == Profiling::On { self.cells.as_slice() } else { &[] };
        let profiles = profiles.iter().map(|cell| expected_time(self.profile_timing(cell)));
        self.blocks.iter().map(|block| self.expected_block(block)).chain(profiles).sum()
    }

    /// Warm-up and window of the trial that profiles `cell`: long enough for some hundred samples.
    pub fn profile_timing(&self, cell: &Cell) -> Timing {
        let Timing { warm_up, window } = self.timing_of(1, cell);
        Timing { warm_up, window: window.max(PROFILE_WINDOW) }
    }

    /// Time of a block.
    pub fn expected_block(&self, block: &Block) -> Duration {
        block.visits.iter().map(|visit| self.expected_trial(block.number, &self.cells[visit.cell])).sum()
    }

    /// Time of a trial of `cell` in a block.
    pub fn expected_trial(&self, block: u32, cell: &Cell) -> Duration {
        expected_time(self.timing_of(block, cell))
    }

    /// Warm-up and window of `cell` in a block. Calibration is shorter: it checks that each cell works, and warms
    /// caches.
    pub fn timing_of(&self, block: u32, cell: &Cell) -> Timing {
        let longer = self.longer.iter().find(|longer| longer.is_for(cell));
        match (block, longer) {
            (0, Some(longer)) => longer.calibration,
            (0, None) => self.timing.of_calibration(),
            (_, Some(longer)) => longer.timing,
            (_, None) => self.timing,
        }
    }
}

fn expected_time(Timing { warm_up, window }: Timing) -> Duration {
    warm_up.duration() + window.duration() + TRIAL_OVERHEAD
}

impl Timing {
    pub(super) fn of(spec: &Spec) -> Self {
        let window = spec.trial_time.unwrap_or_else(|| spec.size.trial_time());
        Self { warm_up: Self::warm_up_of(window), window }
    }

    fn warm_up_of(window: Span) -> Span {
        let warm_up = (window.duration() / 5).max(Duration::from_millis(250));
        Span::from_millis(warm_up.as_millis() as u64)
    }

    fn of_calibration(self) -> Self {
        Self { warm_up: self.warm_up, window: self.warm_up.min(self.window) }
    }

    /// The timing, lengthened so that `operations` fit into the window and one into the warm-up.
    fn with_room_for(self, operation: Duration, operations: u32) -> Self {
        let window = self.window.max(in_millis(operation * operations));
        let warm_up = Self::warm_up_of(window).max(in_millis(operation));
        Self { warm_up: self.warm_up.max(warm_up), window }
    }
}

/// The time that an operation waits for an emulated link. Computing time is ignored: it is short compared with the
/// links for which this matters.
fn expected_operation(cell: &Cell) -> Option<Duration> {
    let shape = cell.treatment.link.shape().filter(|shape| *shape != LinkShape::of_rtt_us(0))?;
    // Jitter adds half of its maximum on average, in each direction.
    let round_trip = Duration::from_nanos(shape.rtt_ns() + shape.jitter_ns());
    let sending = match (cell.workload, shape.rate_bits_per_s()) {
        (Workload::BulkRead { bytes }, Some(bits_per_s)) => {
            Duration::from_secs_f64(f64::from(bytes.number()) * 8.0 / bits_per_s as f64)
        }
        _ => Duration::ZERO,
    };
    Some(round_trip * round_trips::of_operation_at_most(cell) + sending)
}

fn in_millis(duration: Duration) -> Span {
    Span::from_millis(duration.as_micros().div_ceil(1_000) as u64)
}

#[cfg(test)]
mod tests;
