//! Accepting clients, also when the machine runs out of file descriptors or memory.

use std::time::{Duration, Instant};

use ciphertoll_net::{Error, Fault};

use super::{ACCEPTS, DeferredWork, Worker};
use crate::log::Level;
use crate::protocol::Protocol;

/// Bounds of the pause between attempts to accept while the machine lacks resources.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// At most one log line about failures per interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The pause after failures to accept, and the failures that are not logged yet.
#[derive(Default)]
pub(super) struct Backoff {
    until: Option<Instant>,
    pause: Duration,
    logged: Option<Instant>,
    /// Since the last log line.
    failures: u64,
}

impl Backoff {
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn resume(&mut self) {
        self.until = None;
    }

    fn accepted(&mut self) {
        self.pause = Duration::ZERO;
    }

    fn pause(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.until = Some(now + self.pause);
    }

    /// Counts a failure. Returns the number of failures if a log line is due.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.failures += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.failures))
    }
}

impl<P: Protocol> Worker<P> {
    pub(super) fn accept(&mut self) {
        if self.drain.is_some() || self.backoff.is_paused(self.now) || !self.is_server_known() {
            return;
        }
        self.backoff.resume();
        self.start_early_clients();
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
                    self.accept_client(channel, peer);
                }
                Err(error) => {
                    self.accept_failed(&error);
                    if error.fault() == Fault::Host {
                        // No edge reports the clients that wait; the end of the pause does.
                        return self.backoff.pause(self.now);
                    }
                }
            }
        }
        self.deferred.push(DeferredWork::Accept);
    }

    /// Logs a failure to accept, at most once per interval.
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
