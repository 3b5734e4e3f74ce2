//! How long trials are, and how long they must be over a long link: there an operation waits for the server several times,
//! and a window that is shorter than an operation measures nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Block, Plan, Timing};
use crate::cell::Cell;
use crate::duration::Span;
use crate::factor::{Link, LinkShape, Workload};
use crate::round_trips;
use crate::spec::Spec;

/// What one trial costs beside its warm-up and window: the process, its connects, the reload.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(120);

/// Operations of each client that a window should have room for …
pub const OPERATIONS_WANTED: u32 = 10;
/// … and the fewest, whatever window was asked for.
pub const OPERATIONS_LEAST: u32 = 3;

/// The trials of one workload over one link, where the plan's own timing is too short for them. All cells of a workload and
/// a link have the same: that of the slowest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongerTrials {
    /// The link.
    pub link: Link,
    /// The workload.
    pub workload: Workload,
    /// What an operation is expected to take at most.
    pub operation: Span,
    /// Operations of each client that the window was to have room for.
    pub operations: u32,
    /// Warm-up and window of the blocks that count.
    pub timing: Timing,
    /// Warm-up and window of calibration.
    pub calibration: Timing,
}

impl LongerTrials {
    /// Those that `cells` need in place of `own`. A window that was asked for by name is lengthened only as far as it must be.
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
    /// How long all blocks take, without the servers' preparation.
    pub fn expected_duration(&self) -> Duration {
        self.blocks.iter().map(|block| self.expected_block(block)).sum()
    }

    /// How long the trials of a block take.
    pub fn expected_block(&self, block: &Block) -> Duration {
        block.visits.iter().map(|visit| self.expected_trial(block.number, &self.cells[visit.cell])).sum()
    }

    /// How long a trial of `cell` takes in a block.
    pub fn expected_trial(&self, block: u32, cell: &Cell) -> Duration {
        let Timing { warm_up, window } = self.timing_of(block, cell);
        warm_up.duration() + window.duration() + TRIAL_OVERHEAD
    }

    /// Warm-up and window of `cell` in a block. Calibration only finds out whether each cell works, and warms
    /// what is cold.
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

    /// As it is, or so much longer that `operations` fit into the window, and one into the warm-up.
    fn with_room_for(self, operation: Duration, operations: u32) -> Self {
        let window = self.window.max(in_millis(operation * operations));
        let warm_up = Self::warm_up_of(window).max(in_millis(operation));
        Self { warm_up: self.warm_up.max(warm_up), window }
    }
}

/// What an operation over a made link waits for. What client and server compute is left out: it is short compared with links
/// for which this matters.
fn expected_operation(cell: &Cell) -> Option<Duration> {
    let shape = cell.treatment.link.shape().filter(|shape| *shape != LinkShape::of_rtt_us(0))?;
    // Each way takes up to the jitter longer, half of it on average.
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
mod tests {
    use super::*;

    fn plan(rest: &str) -> Plan {
        let grid = "[[grid]]\nserver = [\"postgres\"]\npath = [\"plain\", \"tls1.3-p256\"]\n\
                    workload = [\"connect-query\"]\nclients = [4]\n";
        Plan::new(
            &Spec::from_toml(&format!("{rest}\n{grid}link = [\"local\", \"45ms\", \"170ms\"]\n")).unwrap(),
            1,
        )
        .unwrap()
    }

    fn millis(timing: Timing) -> [u64; 2] {
        [timing.warm_up, timing.window].map(|span| span.duration().as_millis() as u64)
    }

    fn of_links(plan: &Plan, block: u32) -> Vec<(String, [u64; 2])> {
        let mut timings: Vec<_> = plan
            .cells
            .iter()
            .map(|cell| (cell.treatment.link.to_string(), millis(plan.timing_of(block, cell))))
            .collect();
        timings.dedup();
        timings
    }

    fn named(expected: [(&str, [u64; 2]); 3]) -> Vec<(String, [u64; 2])> {
        expected.map(|(link, timing)| (link.to_owned(), timing)).to_vec()
    }

    /// TLS 1.3 to PostgreSQL with SCRAM, and a query: 8 round trips, of 45 ms and of 170 ms.
    #[test]
    fn a_window_has_room_for_ten_operations_of_each_client() {
        let plan = plan("");
        let expected = [("local", [400, 2_000]), ("45ms", [720, 3_600]), ("170ms", [2_720, 13_600])];
        assert_eq!(of_links(&plan, 1), named(expected));
    }

    #[test]
    fn a_window_that_was_asked_for_has_room_for_three() {
        let plan = plan("trial-time = \"2s\"");
        let expected = [("local", [400, 2_000]), ("45ms", [400, 2_000]), ("170ms", [1_360, 4_080])];
        assert_eq!(of_links(&plan, 1), named(expected));
        assert_eq!(plan.longer.iter().map(|longer| longer.operations).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn calibration_has_room_for_three_operations() {
        for rest in ["", "trial-time = \"2s\""] {
            let expected = [("local", [400, 400]), ("45ms", [400, 1_080]), ("170ms", [1_360, 4_080])];
            assert_eq!(of_links(&plan(rest), 0), named(expected), "{rest}");
        }
    }

    #[test]
    fn a_window_that_is_long_enough_stays() {
        let plan = plan("size = \"full\"\ntrial-time = \"30s\"");
        assert_eq!(plan.longer, []);
        let same = [6_000, 30_000];
        assert_eq!(of_links(&plan, 1), named([("local", same), ("45ms", same), ("170ms", same)]));
    }

    #[test]
    fn the_expected_time_is_that_of_the_longer_trials() {
        let plan = plan("blocks = 2");
        // Both paths and the baseline's second copy, over each of three links; 120 ms for each trial beside.
        let counted = 2 * 3 * (2_400 + 4_320 + 16_320 + 3 * 120);
        let calibration = 2 * (800 + 1_480 + 5_440 + 3 * 120);
        assert_eq!(plan.expected_duration(), Duration::from_millis(counted + calibration));
    }

    #[test]
    fn large_answers_and_narrow_links_take_longer() {
        let text = "[[grid]]\npath = [\"plain\"]\nworkload = [\"bulk-read+bytes=1m\"]\n\
                    link = [\"10ms\", \"10ms+rate=8mbit\"]\nclients = [1]\n";
        let plan = Plan::new(&Spec::from_toml(text).unwrap(), 1).unwrap();
        let operation = |cell: &Cell| expected_operation(cell).unwrap().as_millis();
        // 14,600 bytes at once, then twice as many in each round trip: seven of them.
        assert_eq!(operation(&plan.cells[0]), 70);
        assert_eq!(operation(&plan.cells[1]), 70 + 1_048);
    }

    #[test]
    fn networks_that_are_joined_directly_are_no_long_link() {
        let text = "[[grid]]\npath = [\"plain\"]\nlink = [\"0ms\"]\nclients = [1]\n";
        assert_eq!(Plan::new(&Spec::from_toml(text).unwrap(), 1).unwrap().longer, []);
    }
}
