//! Upkeep of idle server connections: health checks, warm-up, maximum age, the worker that has them.

use std::time::Instant;

use foldhash::HashMap;

use super::agenda::TICK;
use super::worker::Worker;
use crate::protocol::{PoolKey, Protocol};
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    /// Whether `warm-up` or `min-pool-size` keeps an idle connection of this key open.
    pub(super) fn is_kept_warm(&self, key: &P::Key) -> bool {
        let warm = self.warm_count(key);
        warm > 0
            && self.env.protocol.default_keys().contains(key)
            && self.pool.read(|pool| pool.open_count(key)) <= warm
    }

    /// Connections of a default key that are opened in advance.
    fn warm_count(&self, key: &P::Key) -> usize {
        let limits = &self.env.limits;
        limits.groups.warm(key.user(), key.database()).max(limits.warm)
    }

    /// Workers take turns, so that none repeats what another has just done.
    pub(super) fn maintain(&mut self) {
        let ticks = self.env.now.duration_since(self.env.services.began).as_millis() / TICK.as_millis();
        let is_turn = ticks % self.shared.threads() as u128 == self.shared.thread as u128;
        if self.env.is_ending() || !is_turn {
            return;
        }
        self.close_old();
        self.want_passwords();
        if !self.env.limits.health.is_zero() {
            self.check_idle();
        }
        if self.env.limits.warm > 0 || self.env.limits.groups.has_warm() {
            self.warm_up();
        }
    }

    /// Idle connections are never handed over, where their age would be checked. Connections that were opened
    /// together are not closed together, or clients would find none.
    fn close_old(&mut self) {
        let is_old = |id: &Id| {
            self.servers
                .get(*id)
                .is_some_and(|server| self.env.now.duration_since(server.opened_at) > self.env.limits.age)
        };
        if let Some(id) = self.idle_servers().into_iter().map(|(id, _)| id).find(is_old) {
            self.close_server(id, "it is old");
        }
    }

    /// Passwords of users with connections stay valid: a request to cancel may need one (MySQL and MariaDB).
    fn want_passwords(&self) {
        let servers = self.servers.ids().into_iter().filter_map(|id| self.servers.get(id));
        for server in servers.filter(|server| server.password.version > 0) {
            self.env.protocol.keep_password(&server.key);
        }
    }

    fn check_idle(&mut self) {
        let idle = self.idle_servers();
        let mut left: HashMap<P::Key, usize> = HashMap::default();
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
            let quiet = self.env.now.duration_since(since.max(server.upkeep.checked));
            if quiet >= self.env.limits.health
                && let Some(left) = left.get_mut(&server.key)
                && *left > 0
            {
                *left -= 1;
                self.check(id, since);
            }
        }
    }

    fn idle_servers(&self) -> Vec<(Id, Instant)> {
        let idle = |id: Id| Some((id, self.servers.open(id)?.idle_since()?));
        self.servers.ids().into_iter().filter_map(idle).collect()
    }

    /// Starts a health check. The connection is not available to clients until the server has answered.
    fn check(&mut self, id: Id, since: Instant) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if !self.pool.with(|pool| pool.take_idle(&server.key, id)) {
            return;
        }
        server.upkeep.start_check(since, self.env.now);
        self.env.services.metrics.checks.increment();
        if server.link.is_some() {
            self.ask(id);
        } else {
            self.send_command(id, P::ping);
        }
    }

    fn warm_up(&mut self) {
        let keys = self.env.protocol.default_keys().to_vec();
        for key in keys {
            let warm = self.warm_count(&key);
            while self.pool.read(|pool| pool.open_count(&key)) < warm && self.open_in_advance(&key) {}
        }
    }

    /// Opens a connection in advance if there is room and no connect has just failed. Returns whether it did.
    pub(super) fn open_in_advance(&mut self, key: &P::Key) -> bool {
        let now = self.env.now;
        let may = !self.exclusive.has(key.database(), now)
            && self.shared.server_health.read(|server_health| !server_health.connects.backoff.is_paused(now))
            && self.pool.with(|pool| pool.open_in_advance(key));
        if may {
            self.open_server(key);
        }
        may
    }
}
