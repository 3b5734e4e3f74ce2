//! Server connections that nobody has: are there enough of them, and are they still there?

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::orders::Health;
use super::{Duty, Proxy, ServerStage};
use crate::dialect::Dialect;
use crate::mark::Mark;
use crate::pool::Pool;
use crate::slab::Id;

/// A connection that was opened so lately shows that the server is there.
const LATELY: Duration = Duration::from_secs(30);
/// From one attempt to open connections that nobody waits for to the next, where they fail.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is known of a server connection for its upkeep.
pub(super) struct Upkeep {
    /// What it was encrypted with when it was opened, and what it was logged in with.
    marks: (Mark, Option<Mark>),
    /// When it was asked last whether it is there.
    checked: Instant,
    /// Since when nobody had it that is being asked.
    idle_since: Option<Instant>,
}

/// How it went with connections lately.
#[derive(Default)]
pub(super) struct Warmth {
    opened: Option<Instant>,
    /// No connection is opened ahead before this.
    not_before: Option<Instant>,
    pause: Duration,
}

impl Warmth {
    pub(super) fn opened(&mut self, now: Instant) {
        *self = Self { opened: Some(now), ..Self::default() };
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.not_before = Some(now + self.pause);
    }

    fn may_try(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|moment| now >= moment)
    }
}

impl Upkeep {
    /// Of a connection that is idle from now on, or again.
    pub(super) fn idle_since(&mut self, now: Instant) -> Instant {
        self.idle_since.take().unwrap_or(now)
    }

    /// Why it is closed if its time is over.
    pub(super) fn overdue(&self) -> &'static str {
        if self.idle_since.is_some() { "it did not answer in time" } else { "it was not reset in time" }
    }
}

impl<D: Dialect> Proxy<D> {
    pub(super) fn upkeep_of(&self, key: &D::Key) -> Upkeep {
        let marks = (self.upstream.mark(), self.dialect.mark(key));
        Upkeep { marks, checked: self.now, idle_since: None }
    }

    /// Why no other client may have a connection, if so, though there is nothing wrong with its session.
    pub(super) fn outlived(&self, id: Id) -> Option<&'static str> {
        let server = self.servers.get(id)?;
        if self.pool.look(Pool::is_over) {
            return Some("there are more than there may be");
        }
        let login = self.dialect.mark(&server.key);
        let is_current = login.is_some() && (self.upstream.mark(), login) == server.upkeep.marks;
        (!is_current).then_some("its settings are of the past")
    }

    /// Whether a connection that nobody needs is one of those that are to be there nevertheless.
    pub(super) fn is_kept_warm(&self, key: &D::Key) -> bool {
        self.limits.warm > 0
            && self.dialect.usual_keys().contains(key)
            && self.pool.look(|pool| pool.open_of(key)) <= self.limits.warm
    }

    /// Looks after connections that nobody has. Threads do so in turn, so that none does what another one has just done.
    pub(super) fn look_after(&mut self) {
        if self.drain.is_some() || !self.has_its_turn() {
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

    /// One that is idle for ever would never be handed over, and so would never be too old for that. Those that were opened
    /// together are not closed together, or clients would find none.
    fn close_old(&mut self) {
        let is_old = |id: &Id| {
            self.servers.get(*id).is_some_and(|server| self.now.duration_since(server.born) > self.limits.age)
        };
        if let Some(id) = self.idle().into_iter().map(|(id, _)| id).find(is_old) {
            self.close_server(id, "it is old");
        }
    }

    fn check_idle(&mut self) {
        let idle = self.idle();
        let mut left: HashMap<D::Key, usize> = HashMap::new();
        for (id, _) in &idle {
            if let Some(server) = self.servers.get(*id) {
                *left.entry(server.key.clone()).or_default() += 1;
            }
        }
        // Of each kind no more than half at a time, or clients would have to wait for the answers.
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

    /// Those that clients could have, and since when nobody has had them.
    fn idle(&self) -> Vec<(Id, Instant)> {
        let idle = |id: Id| Some((id, self.idle_since(id)?));
        self.servers.ids().into_iter().filter_map(idle).collect()
    }

    /// Since when nobody has had a connection that clients could have.
    pub(super) fn idle_since(&self, id: Id) -> Option<Instant> {
        match &self.servers.get(id)?.stage {
            ServerStage::Up(backend) => match backend.duty {
                Duty::Idle { since, .. } => Some(since),
                _ => None,
            },
            ServerStage::Connecting { .. } => None,
        }
    }

    /// Asks the server of a connection whether it is there. Until it has answered no client gets it.
    fn check(&mut self, id: Id, since: Instant) {
        let (now, until) = (self.now, self.now + self.limits.reset);
        let Some(server) = self.servers.get_mut(id) else { return };
        if !self.pool.with(|pool| pool.take_idle(&server.key, id)) {
            return;
        }
        server.upkeep.checked = now;
        server.upkeep.idle_since = Some(since);
        let ServerStage::Up(backend) = &mut server.stage else { return };
        let asked = self.dialect.ping(&mut backend.facts, backend.channel.output());
        match (asked, backend.channel.send()) {
            (Ok(errand), Ok(_)) => {
                backend.duty = Duty::Resetting { errand, until };
                self.ops.metrics.checks.up();
                self.watch_server(id);
            }
            (Err(error), _) => self.close_server(id, &error.to_string()),
            (_, Err(error)) => self.server_lost(id, Some(&error)),
        }
    }

    /// Opens connections that are to be there before anybody asks for them.
    fn warm_up(&mut self) {
        let keys = self.dialect.usual_keys().to_vec();
        for key in keys {
            let warm = self.limits.warm;
            while self.pool.look(|pool| pool.open_of(&key)) < warm && self.open_ahead(&key) {}
        }
    }

    /// Opens a connection that nobody waits for, if there is room and it did not fail just now.
    fn open_ahead(&mut self, key: &D::Key) -> bool {
        let now = self.now;
        let may = !self.is_vacated(key)
            && self.commons.outlook.look(|outlook| outlook.warmth.may_try(now))
            && self.pool.with(|pool| pool.open_ahead(key));
        if may {
            self.open_server(key);
        }
        may
    }

    /// Whether clients that come now would be served. Where nobody knows, a connection is opened to find out.
    pub(super) fn health(&mut self) -> Health {
        if self.drain.is_some() {
            return Health::Stopping;
        }
        let (up, opening) = self.pool.look(|pool| (pool.has_any(), pool.is_opening()));
        let lately = |moment: Instant| self.now.duration_since(moment) < LATELY;
        if up || self.commons.outlook.look(|outlook| outlook.warmth.opened.is_some_and(lately)) {
            return Health::Well;
        }
        if !opening && let Some(key) = self.dialect.usual_keys().first().cloned() {
            self.open_ahead(&key);
        }
        Health::NoServer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::Marker;

    #[test]
    fn what_fails_is_tried_again_ever_more_seldom() {
        let (mut warmth, mut now) = (Warmth::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(warmth.may_try(now));
            warmth.failed(now);
            assert!(!warmth.may_try(now));
            pauses.push(warmth.pause.as_secs());
            now += warmth.pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        warmth.failed(now);
        warmth.opened(now);
        assert!(warmth.may_try(now));
        warmth.failed(now);
        assert_eq!(warmth.pause, FIRST_PAUSE);
    }

    #[test]
    fn a_check_does_not_make_a_connection_less_idle() {
        let before = Instant::now();
        let marks = (Marker::default().finish(), None);
        let mut upkeep = Upkeep { marks, checked: before, idle_since: Some(before) };
        let now = before + Duration::from_secs(1);
        assert_eq!(upkeep.overdue(), "it did not answer in time");
        assert_eq!((upkeep.idle_since(now), upkeep.idle_since(now)), (before, now));
        assert_eq!(upkeep.overdue(), "it was not reset in time");
    }
}
