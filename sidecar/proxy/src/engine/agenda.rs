//! What a worker has to do that no edge announces.

use std::time::{Duration, Instant};

use crate::slab::Id;

/// Interval of timeouts and upkeep.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// The same for the search for a host, while none is known to be usable.
pub(super) const SEARCH_TICK: Duration = Duration::from_millis(50);

pub(super) struct Agenda {
    deferred: Vec<DeferredWork>,
    /// Clients may be waiting for connections that can be opened now.
    pub(super) check_unserved: bool,
    pub(super) next_tick: Instant,
    /// `None` while a host is known to be usable.
    pub(super) next_search: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeferredWork {
    /// Pass on what the client has sent.
    Client(Id),
    /// Read what the server has sent on this connection.
    Server(Id),
    /// This client has not sent anything to this connection yet.
    Park(Id, Id),
}

impl Agenda {
    pub(super) fn new(now: Instant) -> Self {
        Self { deferred: Vec::new(), check_unserved: false, next_tick: now, next_search: None }
    }

    pub(super) fn defer(&mut self, work: DeferredWork) {
        self.deferred.push(work);
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    pub(super) fn take_deferred(&mut self) -> Vec<DeferredWork> {
        std::mem::take(&mut self.deferred)
    }

    /// Keeps the memory of finished work.
    pub(super) fn give_back(&mut self, mut done: Vec<DeferredWork>) {
        if self.deferred.is_empty() {
            done.clear();
            self.deferred = done;
        }
    }

    /// Until when the worker may wait for events; `None` if there is work now. `resume` is another time at which there
    /// is something to do.
    pub(super) fn until(&self, resume: Option<Instant>) -> Option<Instant> {
        let next = [resume, self.next_search].into_iter().flatten().fold(self.next_tick, Instant::min);
        (!self.has_deferred()).then_some(next)
    }
}
