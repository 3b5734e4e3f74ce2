//! Decides which client acquires which server connection. Connections and clients are IDs here, and there is
//! no I/O, so workers can share a pool behind a lock.
//!
//! A connection belongs to one worker. What another worker decides about it takes effect when its own worker
//! has read the message. Until then the connection is *reserved*: no other client can take it, and it counts
//! for the clients that wait.

mod list;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

use list::{Connections, LinkedMap};

/// Among clients that started to wait within this time of the first one, a client on the connection's worker
/// goes first: moving a connection costs more than assigning it.
const LOCALITY_WINDOW: Duration = Duration::from_millis(10);
/// How many waiting clients are searched for one on the same worker.
const LOCALITY_SCAN: usize = 64;

/// An ID of something that belongs to one worker.
pub trait WorkerBound: Copy + Eq + Hash {
    fn thread(self) -> usize;
}

/// The connections to one server. `S` are IDs of connections, `C` of clients.
pub struct ConnectionPool<K, S, C> {
    limit: usize,
    /// Including connections that are being opened, reset or moved.
    open: usize,
    waiting: usize,
    pools: HashMap<K, KeyPool<S, C>>,
}

struct KeyPool<S, C> {
    /// The most recently used one is used next; the others grow old and are closed.
    idle: Connections<S>,
    /// Kept for clients between transactions, not reset. The oldest is first.
    kept: Connections<S>,
    /// Their clients have disconnected; not reset yet.
    orphaned: Connections<S>,
    /// Taken from the lists above for waiting clients, and not released yet.
    reserved: HashSet<S>,
    /// Connections of other keys that are being closed for waiting clients.
    evicting: usize,
    waiting: LinkedMap<C, Instant>,
    opening: usize,
    open: usize,
}

/// What to do for a client that wants a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAction<S> {
    Take(S),
    /// The client waits. Open a connection.
    Open,
    /// The client waits. The worker of this idle or kept connection must release it, after a reset if it is kept.
    Release(S),
    /// The client waits. This idle or kept connection of another key must be closed to make room, and then
    /// [`ConnectionPool::eviction_done`] be called.
    Evict(S),
    /// The client waits; no action is needed.
    Wait,
}

impl<S, C> Default for KeyPool<S, C> {
    fn default() -> Self {
        Self {
            idle: Connections::default(),
            kept: Connections::default(),
            orphaned: Connections::default(),
            reserved: HashSet::new(),
            evicting: 0,
            waiting: LinkedMap::default(),
            opening: 0,
            open: 0,
        }
    }
}

impl<S: WorkerBound, C: WorkerBound> KeyPool<S, C> {
    /// Waiting clients for which no connection is reserved or being opened.
    fn unserved(&self) -> usize {
        self.waiting.len().saturating_sub(self.opening + self.reserved.len() + self.evicting)
    }

    fn take_next(&mut self, thread: usize) -> Option<C> {
        let client = self.next_waiting(thread)?;
        self.waiting.remove(client).map(|_| client)
    }

    /// The client that gets a connection of this worker: the one that has waited longest, or the first of the
    /// worker's own within [`LOCALITY_WINDOW`].
    fn next_waiting(&self, thread: usize) -> Option<C> {
        let (longest, first) = self.waiting.first()?;
        let mut recent = self
            .waiting
            .iter()
            .take(LOCALITY_SCAN)
            .take_while(|(_, since)| *since <= first + LOCALITY_WINDOW);
        let local = recent.find(|(client, _)| client.thread() == thread);
        Some(local.map_or(longest, |(client, _)| client))
    }

    fn remove(&mut self, server: S) {
        for list in [&mut self.idle, &mut self.kept, &mut self.orphaned] {
            list.remove(server);
        }
        self.reserved.remove(&server);
    }

    fn keep_in(&mut self, server: S, list: impl FnOnce(&mut Self) -> &mut Connections<S>) -> bool {
        let is_kept = self.waiting.is_empty();
        if is_kept {
            list(self).push(server);
        } else {
            self.reserved.insert(server);
        }
        is_kept
    }
}

impl<K: Clone + Eq + Hash, S: WorkerBound, C: WorkerBound> ConnectionPool<K, S, C> {
    pub fn new(limit: usize) -> Self {
        Self { limit, open: 0, waiting: 0, pools: HashMap::new() }
    }

    /// Acquires a connection for a client, or adds the client to the wait queue.
    pub fn acquire(&mut self, key: &K, client: C, now: Instant) -> PoolAction<S> {
        let key_pool = self.pools.entry(key.clone()).or_default();
        if let Some(idle) = key_pool.idle.take_newest_of(client.thread()) {
            return PoolAction::Take(idle);
        }
        key_pool.waiting.push_back(client, now);
        self.waiting += 1;
        self.next_action(key, client.thread())
    }

    /// What the worker `thread` must do for waiting clients. The pool counts it as started.
    pub fn next_action(&mut self, key: &K, thread: usize) -> PoolAction<S> {
        let Some(key_pool) = self.pools.get_mut(key) else { return PoolAction::Wait };
        if key_pool.unserved() == 0 {
            return PoolAction::Wait;
        }
        let has_room = self.open < self.limit;
        let free = key_pool.idle.take_newest().or_else(|| key_pool.orphaned.take_oldest(thread));
        let free = match free {
            None if !has_room => key_pool.kept.take_oldest(thread),
            free => free,
        };
        if let Some(server) = free {
            key_pool.reserved.insert(server);
            return PoolAction::Release(server);
        }
        if has_room {
            self.open_unconditionally(key);
            return PoolAction::Open;
        }
        let oldest = |key_pool: &mut KeyPool<S, C>| {
            let lists = [&mut key_pool.idle, &mut key_pool.orphaned, &mut key_pool.kept];
            lists.into_iter().find_map(|list| list.take_oldest(thread))
        };
        let Some(idle) = self.pools.values_mut().find_map(oldest) else { return PoolAction::Wait };
        if let Some(key_pool) = self.pools.get_mut(key) {
            key_pool.evicting += 1;
        }
        PoolAction::Evict(idle)
    }

    /// A connection was closed, or had been closed before, for waiting clients of this key.
    pub fn eviction_done(&mut self, key: &K) {
        if let Some(key_pool) = self.pools.get_mut(key) {
            key_pool.evicting = key_pool.evicting.saturating_sub(1);
        }
        self.remove_unused(key);
    }

    /// Counts a connection that is opened even if the limit is reached.
    pub fn open_unconditionally(&mut self, key: &K) {
        let key_pool = self.pools.entry(key.clone()).or_default();
        self.open += 1;
        key_pool.opening += 1;
        key_pool.open += 1;
    }

    /// A connect has ended: the connection must be [released](Self::release) or [closed](Self::closed).
    pub fn opened(&mut self, key: &K) {
        if let Some(key_pool) = self.pools.get_mut(key) {
            key_pool.opening = key_pool.opening.saturating_sub(1);
        }
    }

    /// Releases a connection: to the waiting client that it returns, otherwise to the idle ones.
    pub fn release(&mut self, key: &K, server: S) -> Option<C> {
        let key_pool = self.pools.entry(key.clone()).or_default();
        key_pool.reserved.remove(&server);
        let client = key_pool.take_next(server.thread());
        match client {
            Some(_) => self.waiting -= 1,
            None => key_pool.idle.push(server),
        }
        client
    }

    /// Whether this connection must still be released to the clients that wait.
    pub fn is_reserved(&self, key: &K, server: S) -> bool {
        self.pools.get(key).is_some_and(|key_pool| key_pool.reserved.contains(&server))
    }

    /// Keeps a connection for its client, which is between transactions. If it returns false, the connection must
    /// be reset and released to the next waiting client.
    pub fn keep(&mut self, key: &K, server: S) -> bool {
        let key_pool = self.pools.entry(key.clone()).or_default();
        key_pool.keep_in(server, |key_pool| &mut key_pool.kept)
    }

    /// The same for a connection whose client has disconnected.
    pub fn keep_orphaned(&mut self, key: &K, server: S) -> bool {
        let key_pool = self.pools.entry(key.clone()).or_default();
        key_pool.keep_in(server, |key_pool| &mut key_pool.orphaned)
    }

    /// Takes a kept connection for its client, or to reset it. Returns false if it is no longer kept.
    pub fn take_kept(&mut self, key: &K, server: S) -> bool {
        let Some(key_pool) = self.pools.get_mut(key) else { return false };
        key_pool.kept.remove(server) || key_pool.orphaned.remove(server)
    }

    /// Assigns a connection without a reset to the next client, if that is on the same worker and `may` use it.
    pub fn assign_unreset(&mut self, key: &K, server: S, may: impl FnOnce(C) -> bool) -> Option<C> {
        let key_pool = self.pools.get_mut(key)?;
        let client = key_pool.next_waiting(server.thread())?;
        if client.thread() != server.thread() || !may(client) {
            return None;
        }
        key_pool.waiting.remove(client);
        self.waiting -= 1;
        key_pool.reserved.remove(&server);
        Some(client)
    }

    /// A connection has ended, in whatever state; `None` if it was never opened. There is room for another one.
    pub fn closed(&mut self, key: &K, server: Option<S>) {
        self.open = self.open.saturating_sub(1);
        if let Some(key_pool) = self.pools.get_mut(key) {
            key_pool.open = key_pool.open.saturating_sub(1);
            if let Some(server) = server {
                key_pool.remove(server);
            }
        }
        self.remove_unused(key);
    }

    pub fn leave_queue(&mut self, key: &K, client: C) {
        if let Some(key_pool) = self.pools.get_mut(key) {
            self.waiting -= usize::from(key_pool.waiting.remove(client).is_some());
        }
        self.remove_unused(key);
    }

    /// Adds a client to the front of the queue, because the connection that it was assigned broke.
    pub fn requeue_first(&mut self, key: &K, client: C, since: Instant) {
        self.pools.entry(key.clone()).or_default().waiting.push_front(client, since);
        self.waiting += 1;
    }

    pub fn pop_waiting(&mut self, key: &K) -> Option<C> {
        let key_pool = self.pools.get_mut(key)?;
        let (client, _) = key_pool.waiting.first()?;
        key_pool.waiting.remove(client);
        self.waiting -= 1;
        Some(client)
    }

    /// Whether a connection of this key is open, which will be released some time.
    pub fn has_open(&self, key: &K) -> bool {
        self.pools.get(key).is_some_and(|key_pool| key_pool.open > key_pool.opening)
    }

    pub fn unserved_key(&self) -> Option<K> {
        // The common case.
        if self.waiting == 0 {
            return None;
        }
        let mut unserved = self.pools.iter().filter(|(_, key_pool)| key_pool.unserved() > 0);
        unserved.next().map(|(key, _)| key.clone())
    }

    pub fn open(&self) -> usize {
        self.open
    }

    /// Counts a connection to open in advance, if there is room.
    pub fn open_in_advance(&mut self, key: &K) -> bool {
        let has_room = self.open < self.limit;
        if has_room {
            self.open_unconditionally(key);
        }
        has_room
    }

    /// Takes an idle connection until it is [released](Self::release) or [closed](Self::closed).
    pub fn take_idle(&mut self, key: &K, server: S) -> bool {
        let Some(key_pool) = self.pools.get_mut(key) else { return false };
        key_pool.idle.remove(server)
    }

    /// The number of unserved clients, if another client would have to wait for one of them.
    pub fn queue_length(&self) -> Option<usize> {
        // A kept connection can be taken without waiting for its client.
        let is_available = |key_pool: &KeyPool<S, C>| {
            !key_pool.idle.is_empty() || !key_pool.kept.is_empty() || !key_pool.orphaned.is_empty()
        };
        if self.open < self.limit || self.pools.values().any(is_available) {
            return None;
        }
        Some(self.pools.values().map(KeyPool::unserved).sum())
    }

    /// Changes the limit. Surplus connections are closed when they are released.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub fn is_over_limit(&self) -> bool {
        self.open > self.limit
    }

    /// Connections of this key, including connections that are being opened.
    pub fn open_count(&self, key: &K) -> usize {
        self.pools.get(key).map_or(0, |key_pool| key_pool.open)
    }

    pub fn has_connection(&self) -> bool {
        self.pools.values().any(|key_pool| key_pool.open > key_pool.opening)
    }

    pub fn is_opening(&self) -> bool {
        self.pools.values().any(|key_pool| key_pool.opening > 0)
    }

    /// Clients can name any number of databases, so unused keys are removed.
    fn remove_unused(&mut self, key: &K) {
        let unused = |key_pool: &KeyPool<S, C>| {
            key_pool.open == 0 && key_pool.waiting.is_empty() && key_pool.evicting == 0
        };
        if self.pools.get(key).is_some_and(unused) {
            self.pools.remove(key);
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
