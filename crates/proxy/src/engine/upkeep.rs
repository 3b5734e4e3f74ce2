//! What upkeep must know of a server connection, and of recent connects.

use std::time::{Duration, Instant};

use super::backoff::Backoff;
use crate::fingerprint::Fingerprint;

/// Of TLS and of the credentials; `None` if the configuration has no such user.
pub(super) type LoginFingerprints = (Fingerprint, Option<Fingerprint>);

pub(super) struct Upkeep {
    /// The fingerprints that the connection was opened with.
    fingerprints: LoginFingerprints,
    pub(super) checked: Instant,
    /// While a health check runs: since when the connection has been idle.
    idle_since: Option<Instant>,
}

/// Results of recent connects.
pub(super) struct ConnectHistory {
    pub(super) opened: Option<Instant>,
    /// Before connections are opened in advance again.
    pub(super) backoff: Backoff,
}

impl Default for ConnectHistory {
    fn default() -> Self {
        Self { opened: None, backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)) }
    }
}

impl ConnectHistory {
    pub(super) fn opened(&mut self, now: Instant) {
        *self = Self { opened: Some(now), ..Self::default() };
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.backoff.failed(now);
    }
}

impl Upkeep {
    pub(super) fn new(fingerprints: LoginFingerprints, now: Instant) -> Self {
        Self { fingerprints, checked: now, idle_since: None }
    }

    pub(super) fn was_opened_with(&self, fingerprints: LoginFingerprints) -> bool {
        self.fingerprints == fingerprints
    }

    pub(super) fn start_check(&mut self, idle_since: Instant, now: Instant) {
        self.checked = now;
        self.idle_since = Some(idle_since);
    }

    /// Since when a connection that becomes idle now has been idle: a health check does not count as use.
    pub(super) fn idle_since(&mut self, now: Instant) -> Instant {
        self.idle_since.take().unwrap_or(now)
    }

    /// The reason for closing a connection whose reset or health check has timed out.
    pub(super) fn timeout_reason(&self) -> &'static str {
        if self.idle_since.is_some() { "it did not answer in time" } else { "it was not reset in time" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintBuilder;

    #[test]
    fn a_health_check_does_not_count_as_use() {
        let before = Instant::now();
        let now = before + Duration::from_secs(1);
        let mut upkeep = Upkeep::new((FingerprintBuilder::default().finish(), None), before);
        upkeep.start_check(before, now);
        assert_eq!(upkeep.timeout_reason(), "it did not answer in time");
        assert_eq!((upkeep.idle_since(now), upkeep.idle_since(now)), (before, now));
        assert_eq!(upkeep.timeout_reason(), "it was not reset in time");
    }
}
