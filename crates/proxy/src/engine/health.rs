//! Upkeep of idle server connections: health checks, warm-up, maximum age.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::control::Health;
use super::{Activity, TICK, Worker};
use crate::fingerprint::Fingerprint;
use crate::pool::ConnectionPool;
use crate::protocol::Protocol;
use crate::slab::Id;

/// A connect within this time shows that the server is reachable.
const LATELY: Duration = Duration::from_secs(30);
pub(super) struct Upkeep {
    /// The fingerprints of TLS and of the credentials that it was opened with.
    fingerprints: (Fingerprint, Option<Fingerprint>),
    checked: Instant,
    /// While a health check runs: since when the connection has been idle.
    idle_since: Option<Instant>,
}

/// Results of recent connects.
pub(super) struct ConnectHistory {
    opened: Option<Instant>,
    /// Before connections are opened in advance again.
    backoff: Backoff,
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
    /// Since when a connection that becomes idle now has been idle: a health check does not count as use.
    pub(super) fn idle_since(&mut self, now: Instant) -> Instant {
        self.idle_since.take().unwrap_or(now)
    }

    /// The reason for closing a connection whose reset or health check has timed out.
    pub(super) fn timeout_reason(&self) -> &'static str {
        if self.idle_since.is_some() { "it did not answer in time" } else { "it was not reset in time" }
    }
}

impl<P: Protocol> Worker<P> {
    pub(super) fn new_upkeep(&self, key: &P::Key) -> Upkeep {
        let fingerprints = (self.upstream.fingerprint, self.protocol.fingerprint(key));
        Upkeep { fingerprints, checked: self.now, idle_since: None }
    }

    /// Why a connection must not be used by another client, although its session state is fine.
    pub(super) fn obsolete_reason(&self, id: Id) -> Option<&'static str> {
        let server = self.servers.get(id)?;
        if self.pool.read(ConnectionPool::is_over_limit) {
            return Some("the limit of server connections was lowered");
        }
        let login = self.protocol.fingerprint(&server.key);
        let is_current = login.is_some() && (self.upstream.fingerprint, login) == server.upkeep.fingerprints;
        (!is_current).then_some("it was opened with old settings")
    }

    /// Whether `warm-up` keeps an idle connection of this key open.
    pub(super) fn is_kept_warm(&self, key: &P::Key) -> bool {
        self.limits.warm > 0
            && self.protocol.default_keys().contains(key)
            && self.pool.read(|pool| pool.open_count(key)) <= self.limits.warm
    }

    /// Workers take turns, so that none repeats what another has just done.
    pub(super) fn maintain(&mut self) {
        let ticks = self.now.duration_since(self.services.began).as_millis() / TICK.as_millis();
        let is_turn = ticks % self.shared.threads() as u128 == self.shared.thread as u128;
        if self.drain.is_some() || !is_turn {
            return;
        }
        self.close_old();
        if !self.limits.health.is_zero() {
            self.check_idle();
        }
        if self.limits.warm > 0 {
            self.warm_up();
        }
    }

    /// Idle connections are never handed over, where their age would be checked. Connections that were opened
    /// together are not closed together, or clients would find none.
    fn close_old(&mut self) {
        let is_old = |id: &Id| {
            self.servers
                .get(*id)
                .is_some_and(|server| self.now.duration_since(server.opened_at) > self.limits.age)
        };
        if let Some(id) = self.idle_servers().into_iter().map(|(id, _)| id).find(is_old) {
            self.close_server(id, "it is old");
        }
    }

    fn check_idle(&mut self) {
        let idle = self.idle_servers();
        let mut left: HashMap<P::Key, usize> = HashMap::new();
        for (id, _) in &idle {
            if let Some(server) = self.servers.get(*id) {
                *left.entry(server.key.clone()).or_default() += 1;
            }
        }
        // At most half of the connections of a key at a time, or clients would have to wait for the
        // responses.
        for count in left.values_mut() {
            *count = count.div_ceil(2);
        }
        for (id, since) in idle {
            let Some(server) = self.servers.get(id) else { continue };
            let quiet = self.now.duration_since(since.max(server.upkeep.checked));
            if quiet >= self.limits.health
                && let Some(left) = left.get_mut(&server.key)
                && *left > 0
            {
                *left -= 1;
                self.check(id, since);
            }
        }
    }

    fn idle_servers(&self) -> Vec<(Id, Instant)> {
        let idle = |id: Id| Some((id, self.idle_since(id)?));
        self.servers.ids().into_iter().filter_map(idle).collect()
    }

    /// Since when a connection has been idle; `None` if it is in use.
    pub(super) fn idle_since(&self, id: Id) -> Option<Instant> {
        match self.servers.open(id)?.activity {
            Activity::Idle { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Starts a health check. The connection is not available to clients until the server has answered.
    fn check(&mut self, id: Id, since: Instant) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if !self.pool.with(|pool| pool.take_idle(&server.key, id)) {
            return;
        }
        server.upkeep.checked = self.now;
        server.upkeep.idle_since = Some(since);
        self.services.metrics.checks.increment();
        self.send_command(id, P::ping);
    }

    fn warm_up(&mut self) {
        let keys = self.protocol.default_keys().to_vec();
        for key in keys {
            let warm = self.limits.warm;
            while self.pool.read(|pool| pool.open_count(&key)) < warm && self.open_in_advance(&key) {}
        }
    }

    /// Opens a connection in advance if there is room and no connect has just failed. Returns whether it did.
    fn open_in_advance(&mut self, key: &P::Key) -> bool {
        let now = self.now;
        let may = !self.is_exclusive(key)
            && self.shared.server_health.read(|server_health| !server_health.connects.backoff.is_paused(now))
            && self.pool.with(|pool| pool.open_in_advance(key));
        if may {
            self.open_server(key);
        }
        may
    }

    /// Whether new clients would be served. If that is not known, a connection is opened to find out.
    pub(super) fn health(&mut self) -> Health {
        if self.drain.is_some() {
            return Health::Stopping;
        }
        let (up, opening) = self.pool.read(|pool| (pool.has_connection(), pool.is_opening()));
        let is_recent = |moment: Instant| self.now.duration_since(moment) < LATELY;
        let opened = self.shared.server_health.read(|server_health| server_health.connects.opened);
        if up || opened.is_some_and(is_recent) {
            return Health::Well;
        }
        if !opening && let Some(key) = self.protocol.default_keys().first().cloned() {
            self.open_in_advance(&key);
        }
        Health::NoServer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintBuilder;

    #[test]
    fn a_health_check_does_not_count_as_use() {
        let before = Instant::now();
        let fingerprints = (FingerprintBuilder::default().finish(), None);
        let mut upkeep = Upkeep { fingerprints, checked: before, idle_since: Some(before) };
        let now = before + Duration::from_secs(1);
        assert_eq!(upkeep.timeout_reason(), "it did not answer in time");
        assert_eq!((upkeep.idle_since(now), upkeep.idle_since(now)), (before, now));
        assert_eq!(upkeep.timeout_reason(), "it was not reset in time");
    }
}
