//! Pauses between failing attempts.

use std::time::{Duration, Instant};

/// Each pause is twice as long as the one before, within bounds.
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    pause: Duration,
    until: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pause: Duration::ZERO, until: None }
    }

    /// The end of the pause; `None` without one.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(self.first, self.longest);
        self.until = Some(now + self.pause);
    }

    /// Ends the pause. If the next attempt fails, too, the next pause is longer.
    pub(super) fn resume(&mut self) {
        self.until = None;
    }

    /// The next pause is short again.
    pub(super) fn succeeded(&mut self) {
        self.pause = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_an_attempt_succeeds() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let (mut backoff, mut now, mut pauses) = (Backoff::new(first, longest), Instant::now(), Vec::new());
        for _ in 0..7 {
            assert!(!backoff.is_paused(now));
            backoff.failed(now);
            assert!(backoff.is_paused(now));
            pauses.push(backoff.pause.as_secs());
            now = backoff.until().unwrap();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        backoff.resume();
        assert_eq!((backoff.until(), backoff.pause), (None, longest));
        backoff.succeeded();
        backoff.failed(now);
        assert_eq!(backoff.pause, first);
    }
}
