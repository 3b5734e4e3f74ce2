//! Accepting clients, also when the machine runs out of file descriptors or memory.

use std::time::{Duration, Instant};

use ciphertoll_net::{Error, Fault};

use super::{ACCEPTS, DeferredWork, Worker};
use crate::log::Level;
use crate::protocol::Protocol;

/// At most one log line about failures per interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Failures to accept that are not logged yet.
#[derive(Default)]
pub(super) struct UnloggedFailures {
    count: u64,
    logged: Option<Instant>,
}

impl UnloggedFailures {
    /// Counts a failure. Returns the number of failures if a log line is due.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
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
                    self.backoff.succeeded();
                    self.accept_client(channel, peer);
                }
                Err(error) => {
                    self.accept_failed(&error);
                    if error.fault() == Fault::Host {
                        // No edge reports the clients that wait; the end of the pause does.
                        return self.backoff.failed(self.now);
                    }
                }
            }
        }
        self.deferred.push(DeferredWork::Accept);
    }

    pub(super) fn accept_failed(&mut self, error: &Error) {
        if let Some(failures) = self.accept_failures.add(self.now) {
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("reason", error), ("failures", &failures)];
            self.log.event(Level::Warn, "accept-failed", &fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_together() {
        let (mut failures, now) = (UnloggedFailures::default(), Instant::now());
        assert_eq!(failures.add(now), Some(1));
        assert_eq!((0..5).filter_map(|_| failures.add(now)).count(), 0);
        assert_eq!(failures.add(now + LOG_INTERVAL), Some(6));
    }
}
