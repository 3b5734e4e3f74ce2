//! Which connections have not been used for a second.
//!
//! Connections that become available are numbered in their order. So that no clock is read for each of them, the last
//! number is recorded a few times per second.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(250);
/// A second has four; its first end and its last are both recorded.
const RECORDS: usize = 5;

#[derive(Default)]
pub(super) struct Recency {
    /// The last numbers at the latest ends of intervals. The oldest is first.
    orders: [u64; RECORDS],
    recorded: Option<Instant>,
}

impl Recency {
    /// Records the last number. Returns whether more connections are unused now.
    pub(super) fn record(&mut self, order: u64, now: Instant) -> bool {
        if self.recorded.is_some_and(|recorded| now < recorded + INTERVAL) {
            return false;
        }
        self.recorded = Some(now);
        let before = self.unused_until();
        self.orders.rotate_left(1);
        self.orders[RECORDS - 1] = order;
        before < self.unused_until()
    }

    /// Connections with this number and earlier ones were not used for a second.
    pub(super) fn unused_until(&self) -> u64 {
        self.orders[0]
    }
}
