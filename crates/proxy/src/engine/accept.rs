//! Taking clients from the listeners, also where the machine has no descriptors or memory left for them.

use std::time::{Duration, Instant};

use ciphertoll_net::{Error, Fault};

use super::{ACCEPTS, Proxy, Turn};
use crate::dialect::Dialect;
use crate::log::Level;

/// From one attempt to accept to the next while the machine lacks resources.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// At most one line about failures in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The pause after failures to accept, and which of them are logged.
#[derive(Default)]
pub(super) struct Backoff {
    /// No client is accepted before this.
    until: Option<Instant>,
    pause: Duration,
    logged: Option<Instant>,
    /// Failures since the last line.
    failures: u64,
}

impl Backoff {
    /// When the next attempt is due, if there is a pause.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Listeners are looked at again.
    fn resume(&mut self) {
        self.until = None;
    }

    /// There are resources again.
    fn accepted(&mut self) {
        self.pause = Duration::ZERO;
    }

    fn pause(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.until = Some(now + self.pause);
    }

    /// Counts a failure; how many are to be logged in one line, if it is time for one.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.failures += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.failures))
    }
}

impl<D: Dialect> Proxy<D> {
    /// Lets clients in.
    pub(super) fn accept(&mut self) {
        if self.drain.is_some() || self.backoff.is_paused(self.now) || !self.is_introduced() {
            return;
        }
        self.backoff.resume();
        self.let_in_early();
        for at in 0..self.listeners.len() {
            self.accept_at(at);
        }
    }

    fn accept_at(&mut self, at: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get_mut(at) else { return };
            match listener.accept() {
                Ok(None) => return,
                Ok(Some((channel, peer))) => {
                    self.backoff.accepted();
                    self.newcomer(channel, peer);
                }
                Err(error) => {
                    self.accept_failed(&error);
                    if error.fault() == Fault::Host {
                        // No edge tells of the clients that wait: the end of the pause does.
                        return self.backoff.pause(self.now);
                    }
                }
            }
        }
        self.again.push(Turn::Accept);
    }

    /// Logs that a client could not be accepted, unless that was logged a moment ago.
    pub(super) fn accept_failed(&mut self, error: &Error) {
        if let Some(failures) = self.backoff.failed(self.now) {
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("reason", error), ("failures", &failures)];
            self.log.event(Level::Warn, "accept-failed", &fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_client_is_accepted() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(!backoff.is_paused(now));
            backoff.pause(now);
            assert!(backoff.is_paused(now) && !backoff.is_due(now));
            pauses.push(backoff.pause.as_millis());
            now += backoff.pause;
            assert!(backoff.is_due(now));
            backoff.resume();
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        backoff.accepted();
        backoff.pause(now);
        assert_eq!(backoff.pause, FIRST_PAUSE);
    }

    #[test]
    fn failures_are_logged_together() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert_eq!(backoff.failed(now), Some(1));
        assert_eq!((0..5).filter_map(|_| backoff.failed(now)).count(), 0);
        assert_eq!(backoff.failed(now + LOG_INTERVAL), Some(6));
    }
}
