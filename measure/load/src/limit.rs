//! The rate limit of a closed loop: when the next operation may begin, and which client begins it. Has no clock; it
//! is told the time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One thread's share of the rate. Unused time is lost instead of made up for, so that a stall of the server is not
/// followed by a burst.
pub(crate) struct RateLimit {
    gap: Duration,
    next: Instant,
    /// Waiting clients, the longest first.
    parked: VecDeque<usize>,
}

impl RateLimit {
    /// At most `per_s`, which must be positive, from `starts` on.
    pub(crate) fn new(starts: Instant, per_s: f64, clients: usize) -> Self {
        // Rounded up, and at most five hundred years.
        let gap = Duration::from_nanos((1e9 / per_s).ceil() as u64);
        Self { gap, next: starts, parked: VecDeque::with_capacity(clients) }
    }

    pub(crate) fn park(&mut self, client: usize) {
        self.parked.push_back(client);
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The client that begins now; `None` if none waits or it is too early.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<usize> {
        if now < self.next {
            return None;
        }
        let client = self.parked.pop_front()?;
        self.next = now + self.gap;
        Some(client)
    }

    /// When to ask again, unless a client is parked before; `None` if none waits.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.is_awaited().then_some(self.next)
    }
}

#[cfg(test)]
mod tests;
