//! The connections and the waiting clients of one key.

use std::time::{Duration, Instant};

use super::actions::{Acceptable, PoolAction};
use super::groups::Membership;
use super::list::{ConnectionLists, Connections, ListId, Lists, WorkerBound};

/// Among clients that started to wait within this time of the first one, a client on the connection's worker
/// goes first: moving a connection costs more than assigning it.
pub(super) const LOCALITY_WINDOW: Duration = Duration::from_millis(10);
/// How many waiting clients are searched for one on the same worker.
const LOCALITY_SCAN: usize = 64;

pub(super) struct KeyPool<K> {
    pub(super) key: K,
    pub(super) groups: Membership,
    /// No connection is handed out or opened: see [`super::pause`].
    pub(super) is_paused: bool,
    /// The most recently used one is used next; the others grow old and are closed.
    pub(super) idle: Connections,
    /// Kept for clients between transactions, not reset. The oldest is first.
    pub(super) kept: Connections,
    /// Their clients have disconnected; not reset yet.
    pub(super) orphaned: Connections,
    /// Taken from the lists above for waiting clients, and not released yet.
    pub(super) reserved: Connections,
    /// Taken from the lists above to be closed for clients of other keys.
    pub(super) leaving: Connections,
    /// Connections of other keys that are being closed for waiting clients.
    pub(super) evicting: usize,
    pub(super) waiting: ListId,
    pub(super) opening: usize,
    /// A connect has ended, and its connection is not released yet.
    pub(super) has_new: bool,
    pub(super) open: usize,
}

impl<K> KeyPool<K> {
    pub(super) fn new(key: K, groups: Membership, is_paused: bool, waiting: ListId) -> Self {
        Self {
            key,
            groups,
            is_paused,
            idle: Connections::default(),
            kept: Connections::default(),
            orphaned: Connections::default(),
            reserved: Connections::default(),
            leaving: Connections::default(),
            evicting: 0,
            waiting,
            opening: 0,
            has_new: false,
            open: 0,
        }
    }

    /// Waiting clients for which a connection may be opened, and none is reserved or being opened.
    pub(super) fn unserved<C: WorkerBound>(&self, clients: &Lists<C, Instant>) -> usize {
        if self.is_paused {
            return 0;
        }
        clients.len(self.waiting).saturating_sub(self.opening + self.reserved.count() + self.evicting)
    }

    /// The client that gets a connection of this worker: the one that has waited longest, or the first of the
    /// worker's own within [`LOCALITY_WINDOW`].
    pub(super) fn next_waiting<C: WorkerBound>(
        &self,
        clients: &Lists<C, Instant>,
        thread: usize,
    ) -> Option<C> {
        if self.is_paused {
            return None;
        }
        let (longest, first) = clients.first(self.waiting)?;
        let is_recent = |(_, since): &(C, Instant)| *since <= first + LOCALITY_WINDOW;
        let mut recent = clients.iter(self.waiting).take(LOCALITY_SCAN).take_while(is_recent);
        let local = recent.find(|(client, _)| client.thread() == thread);
        Some(local.map_or(longest, |(client, _)| client))
    }

    pub(super) fn has_available(&self) -> bool {
        !self.is_paused && self.idle.count() + self.kept.count() + self.orphaned.count() > 0
    }

    /// The newest connection of this worker, which is the one whose data is most likely in the caches.
    pub(super) fn take_newest_of<S: WorkerBound>(
        &mut self,
        lists: &mut ConnectionLists<S>,
        thread: usize,
        acceptable: Acceptable,
    ) -> Option<PoolAction<S>> {
        let idle = self.idle.newest_of(lists, thread);
        let orphaned = match acceptable {
            Acceptable::Any => self.orphaned.newest_of(lists, thread),
            Acceptable::Reset => None,
        };
        match (idle, orphaned) {
            (Some((_, idle_order)), Some((orphaned, order))) if order > idle_order => {
                self.orphaned.remove(lists, orphaned).then_some(PoolAction::TakeUnreset(orphaned))
            }
            (Some((idle, _)), _) => self.idle.remove(lists, idle).then_some(PoolAction::Take(idle)),
            (None, Some((orphaned, _))) => {
                self.orphaned.remove(lists, orphaned).then_some(PoolAction::TakeUnreset(orphaned))
            }
            (None, None) => None,
        }
    }

    /// Whether an available connection is one of the first `until`: see [`super::recency`].
    pub(super) fn has_unused<S: WorkerBound>(&self, lists: &ConnectionLists<S>, until: u64) -> bool {
        !self.is_paused
            && [&self.idle, &self.orphaned, &self.kept].iter().any(|list| list.has_until(lists, until))
    }

    pub(super) fn take_oldest<S: WorkerBound>(
        &mut self,
        lists: &mut ConnectionLists<S>,
        thread: usize,
        until: u64,
    ) -> Option<S> {
        let all = [&mut self.idle, &mut self.orphaned, &mut self.kept];
        all.into_iter().find_map(|list| list.take_oldest(lists, thread, until))
    }

    /// Returns whether its eviction was on the way.
    pub(super) fn remove<S: WorkerBound>(&mut self, lists: &mut ConnectionLists<S>, server: S) -> bool {
        let all = [&mut self.idle, &mut self.kept, &mut self.orphaned, &mut self.reserved];
        !all.into_iter().any(|list| list.remove(lists, server)) && self.leaving.remove(lists, server)
    }
}
