//! The open loop's schedule: when operations are due, and which client begins them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::drive::Pacer;
use crate::operation::{DueOperation, Operation};
use crate::recorder::Recorder;
use crate::window::MeasurementWindow;

/// The minimum overtime for operations still due when the window closes.
const MIN_OVERTIME: Duration = Duration::from_secs(2);

/// How long after the window an open loop continues at most.
pub fn overtime(window_length: Duration) -> Duration {
    window_length.max(MIN_OVERTIME)
}

/// One thread's share of a Poisson schedule. The backlog needs no memory: the times are drawn when a client is free
/// to begin, so the backlog may grow without limit.
pub(crate) struct Schedule {
    window: MeasurementWindow,
    random: Pcg64Mcg,
    rate_per_s: f64,
    /// The earliest operation not begun, from the start of the warm-up. Seconds as a float: gaps truncated to
    /// nanoseconds would add up to a rate that is too high.
    next_s: f64,
    /// Free clients, the longest first, with the time since when.
    free: VecDeque<(usize, Instant)>,
    running: Vec<Option<DueOperation>>,
    backlog: Backlog,
}

/// What happens to operations that were due in the warm-up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backlog {
    Kept,
    /// The window has opened: it must not begin with the warm-up's queue.
    Dropped,
}

impl Schedule {
    /// A schedule of `rate_per_s`, which must be positive. No client is free yet.
    pub(crate) fn new(window: MeasurementWindow, rate_per_s: f64, clients: usize, seed: u64) -> Self {
        let mut schedule = Self {
            window,
            random: Pcg64Mcg::seed_from_u64(seed),
            rate_per_s,
            next_s: 0.0,
            free: VecDeque::with_capacity(clients),
            running: vec![None; clients],
            backlog: Backlog::Kept,
        };
        schedule.advance();
        schedule
    }

    /// The earliest due operation, for the client that has been free longest; `None` if nothing is due or no client
    /// is free.
    fn begin_at(&mut self, now: Instant) -> Option<DueOperation> {
        if self.backlog == Backlog::Kept && now >= self.window.opens {
            self.backlog = Backlog::Dropped;
            while self.next() < self.window.opens {
                self.advance();
            }
        }
        let intended = self.next();
        if intended > now || intended >= self.window.closes {
            return None;
        }
        let (client, free_since) = self.free.pop_front()?;
        self.advance();
        let due =
            DueOperation { client, intended, lag: now.saturating_duration_since(intended.max(free_since)) };
        self.running[client] = Some(due);
        Some(due)
    }

    /// The client's operation has ended or failed; `None` if it had none.
    fn end(&mut self, client: usize) -> Option<DueOperation> {
        self.running[client].take()
    }

    /// Operations that were due in the window and have not ended.
    pub(crate) fn unfinished(mut self) -> u64 {
        let mut count = self.running_in_window() as u64;
        while self.next() < self.window.closes {
            count += u64::from(self.next() >= self.window.opens);
            self.advance();
        }
        count
    }

    fn running_in_window(&self) -> usize {
        self.running.iter().flatten().filter(|due| self.window.contains(due.intended)).count()
    }

    fn next(&self) -> Instant {
        self.window.starts + Duration::from_secs_f64(self.next_s)
    }

    /// Gaps between independent events are exponentially distributed.
    fn advance(&mut self) {
        let uniform: f64 = self.random.random();
        self.next_s -= (1.0 - uniform).ln() / self.rate_per_s;
    }
}

/// An open loop, which is over when all operations due in the window have ended or their overtime is over.
impl Pacer for Schedule {
    fn free(&mut self, client: usize, at: Instant) {
        self.free.push_back((client, at));
    }

    fn begin(&mut self) -> Option<(usize, Instant)> {
        let now = Instant::now();
        Some((self.begin_at(now)?.client, now))
    }

    fn ended(&mut self, client: usize, operation: &Operation, recorder: &mut Recorder) {
        if let Some(due) = self.end(client) {
            recorder.open(operation, &due);
        }
    }

    fn failed(&mut self, client: usize) {
        self.end(client);
    }

    fn wake_at(&self) -> Option<Instant> {
        let next = self.next();
        (!self.free.is_empty() && next < self.window.closes).then_some(next)
    }

    fn wait_until(&self, now: Instant) -> Option<Instant> {
        let closes = self.window.closes;
        if now < closes {
            return Some(closes);
        }
        let is_done = self.next() >= closes && self.running_in_window() == 0;
        let ends = closes + overtime(self.window.length());
        (now < ends && !is_done).then_some(ends)
    }
}

#[cfg(test)]
mod tests;
