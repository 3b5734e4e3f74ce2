//! What upkeep must know of a server connection, and of recent connects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use crate::fingerprint::Fingerprint;

/// Of TLS and of the credentials; `None` if the configuration has no such user.
pub(super) type LoginFingerprints = (Fingerprint, Option<Fingerprint>);

/// Which settings these are: clones have the same version, and no others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SettingsVersion(u64);

impl SettingsVersion {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

pub(super) struct Upkeep {
    /// The fingerprints that the connection was opened with.
    fingerprints: LoginFingerprints,
    /// Settings that have these fingerprints.
    version: SettingsVersion,
    pub(super) checked: Instant,
    /// While a health check runs: since when it has been idle.
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
    pub(super) fn new(fingerprints: LoginFingerprints, version: SettingsVersion, now: Instant) -> Self {
        Self { fingerprints, version, checked: now, idle_since: None }
    }

    /// Whether a connection would be opened in the same way with these settings. `fingerprints` are those of `version`.
    pub(super) fn is_of(
        &self,
        version: SettingsVersion,
        fingerprints: impl FnOnce() -> LoginFingerprints,
    ) -> bool {
        self.fingerprints.1.is_some() && (self.version == version || self.fingerprints == fingerprints())
    }

    /// Later questions about this version are answered at once.
    pub(super) fn remember(&mut self, version: SettingsVersion) {
        self.version = version;
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

    fn fingerprint(text: &[u8]) -> Fingerprint {
        let mut builder = FingerprintBuilder::default();
        builder.add(text);
        builder.finish()
    }

    #[test]
    fn new_settings_are_compared_by_their_fingerprints() {
        let (old, new) = (SettingsVersion::new(), SettingsVersion::new());
        let of = |password: &[u8]| (fingerprint(b"TLS"), Some(fingerprint(password)));
        let mut upkeep = Upkeep::new(of(b"secret"), old, Instant::now());
        assert!(upkeep.is_of(old, || of(b"not asked")));
        assert!(upkeep.is_of(new, || of(b"secret")));
        assert!(!upkeep.is_of(new, || of(b"another")));
        assert!(!upkeep.is_of(new, || (fingerprint(b"TLS"), None)));
        upkeep.remember(new);
        assert!(upkeep.is_of(new, || of(b"not asked")));
        let unknown = Upkeep::new((fingerprint(b"TLS"), None), old, Instant::now());
        assert!(!unknown.is_of(old, || of(b"secret")));
    }

    #[test]
    fn a_health_check_does_not_count_as_use() {
        let before = Instant::now();
        let now = before + Duration::from_secs(1);
        let mut upkeep = Upkeep::new((fingerprint(b""), None), SettingsVersion::new(), before);
        upkeep.start_check(before, now);
        assert_eq!(upkeep.timeout_reason(), "it did not answer in time");
        assert_eq!((upkeep.idle_since(now), upkeep.idle_since(now)), (before, now));
        assert_eq!(upkeep.timeout_reason(), "it was not reset in time");
    }
}
