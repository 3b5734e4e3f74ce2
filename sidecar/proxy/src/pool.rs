//! Decides which client acquires which server connection. Connections and clients are IDs here, and there is
//! no I/O, so workers can share a pool behind a lock.
//!
//! A connection belongs to one worker. What another worker decides about it takes effect when its own worker
//! has read the message. Until then the connection is *reserved*: no other client can take it, and it counts
//! for the clients that wait.

mod actions;
mod fairness;
mod groups;
mod key_pool;
mod list;
mod operators;
mod pause;
mod recency;

use std::cell::Cell;
use std::time::Instant;

pub use actions::{Acceptable, PoolAction, Released};
use foldhash::HashMap;
use groups::{Groups, Membership};
use key_pool::KeyPool;
pub use list::WorkerBound;
use list::{ConnectionLists, Connections, Lists};
use pause::PauseRule;
use recency::Recency;

use crate::group_limits::GroupLimits;
use crate::protocol::PoolKey;

/// The connections to one server. `S` are IDs of connections, `C` of clients. Operations take constant time, except
/// where another key's connection is searched for, and where clients of several users wait.
pub struct ConnectionPool<K, S, C> {
    limit: usize,
    /// Including connections that are being opened, reset or moved.
    open: usize,
    connections: ConnectionLists<S>,
    /// How many connections were added to lists so far.
    order: u64,
    recency: Recency,
    clients: Lists<C, Instant>,
    waiting: usize,
    groups: Groups,
    /// By number.
    pools: Vec<Option<KeyPool<K>>>,
    numbers: HashMap<K, usize>,
    /// The number of the key that was found last, because most operations use one key.
    recent: Cell<usize>,
    pause: PauseRule<K>,
}

/// The part of one key, and the lists that all keys share.
type Parts<'a, K, S, C> = (&'a mut KeyPool<K>, &'a mut ConnectionLists<S>, &'a mut Lists<C, Instant>);

impl<K: PoolKey, S: WorkerBound, C: WorkerBound> ConnectionPool<K, S, C> {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            open: 0,
            connections: Lists::default(),
            order: 0,
            recency: Recency::default(),
            clients: Lists::default(),
            waiting: 0,
            groups: Groups::default(),
            pools: Vec::new(),
            numbers: HashMap::default(),
            recent: Cell::new(0),
            pause: PauseRule::default(),
        }
    }

    fn number(&self, key: &K) -> Option<usize> {
        let recent = self.recent.get();
        if self.pools.get(recent).and_then(Option::as_ref).is_some_and(|pool| pool.key == *key) {
            return Some(recent);
        }
        let number = *self.numbers.get(key)?;
        self.recent.set(number);
        Some(number)
    }

    fn get(&self, key: &K) -> Option<&KeyPool<K>> {
        self.pools[self.number(key)?].as_ref()
    }

    fn get_mut(&mut self, key: &K) -> Option<Parts<'_, K, S, C>> {
        let number = self.number(key)?;
        let pool = self.pools[number].as_mut()?;
        Some((pool, &mut self.connections, &mut self.clients))
    }

    fn get_or_add(&mut self, key: &K) -> Parts<'_, K, S, C> {
        let number = self.number(key).unwrap_or_else(|| {
            let free = self.pools.iter().position(Option::is_none);
            let number = free.unwrap_or_else(|| {
                self.pools.push(None);
                self.pools.len() - 1
            });
            self.numbers.insert(key.clone(), number);
            number
        });
        let Self { pools, connections, clients, groups, pause, .. } = self;
        let pool = pools[number].get_or_insert_with(|| {
            let membership = groups.join(key.user(), key.database());
            KeyPool::new(key.clone(), membership, pause.covers(key), clients.create())
        });
        (pool, connections, clients)
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Acquires a connection for a client, or adds the client to the wait queue.
    pub fn acquire(&mut self, key: &K, client: C, acceptable: Acceptable, now: Instant) -> PoolAction<S> {
        let thread = client.thread();
        let (pool, connections, clients) = self.get_or_add(key);
        if !pool.is_paused
            && let Some(taken) = pool.take_newest_of(connections, thread, acceptable)
        {
            return taken;
        }
        clients.push_back(pool.waiting, client, now);
        let groups = pool.groups;
        self.count_waiting(groups);
        self.next_action(key, thread)
    }

    fn count_waiting(&mut self, groups: Membership) {
        self.waiting += 1;
        self.groups.add_waiting(groups);
    }

    /// Removes a client from the wait queue. Returns false if it does not wait.
    fn remove_waiting(&mut self, groups: Membership, client: C) -> bool {
        let has_waited = self.clients.remove(client).is_some();
        if has_waited {
            self.waiting -= 1;
            self.groups.remove_waiting(groups);
        }
        has_waited
    }

    /// After [`PoolAction::TakeUnreset`]: the client waits, and the connection is reserved until it is reset.
    pub fn wait_for(&mut self, key: &K, server: S, client: C, now: Instant) {
        let order = self.next_order();
        let (pool, connections, clients) = self.get_or_add(key);
        pool.reserved.push(connections, server, order);
        clients.push_back(pool.waiting, client, now);
        let groups = pool.groups;
        self.count_waiting(groups);
    }

    /// What the worker `thread` must do for waiting clients. The pool counts it as started.
    pub fn next_action(&mut self, key: &K, thread: usize) -> PoolAction<S> {
        let has_room = self.get(key).is_some_and(|pool| self.has_room(pool));
        let order = self.next_order();
        let Some((pool, connections, clients)) = self.get_mut(key) else { return PoolAction::Wait };
        if pool.unserved(clients) == 0 {
            return PoolAction::Wait;
        }
        let free = pool.idle.take_newest(connections);
        let free = free.or_else(|| pool.orphaned.take_oldest(connections, thread, u64::MAX));
        let free = match free {
            None if !has_room => pool.kept.take_oldest(connections, thread, u64::MAX),
            free => free,
        };
        if let Some(server) = free {
            pool.reserved.push(connections, server, order);
            return PoolAction::Release(server);
        }
        if has_room && self.get(key).is_some_and(|pool| self.must_yield(pool)) {
            return PoolAction::Yield;
        }
        if has_room {
            self.open_unconditionally(key);
            return PoolAction::Open;
        }
        match self.take_evictable(key, thread) {
            Some(oldest) => PoolAction::Evict(oldest),
            None => PoolAction::Wait,
        }
    }

    fn take_evictable(&mut self, key: &K, thread: usize) -> Option<S> {
        let own = self.get(key)?;
        let number = self.evictable(own)?;
        let until = self.evictable_until(self.pools[number].as_ref()?, own);
        let (order, gains) = (self.order, own.groups);
        let victim = self.pools[number].as_mut()?;
        let oldest = victim.take_oldest(&mut self.connections, thread, until)?;
        victim.leaving.push(&mut self.connections, oldest, order);
        let loses = victim.groups;
        self.groups.add_eviction(loses, gains);
        if let Some((pool, ..)) = self.get_mut(key) {
            pool.evicting += 1;
        }
        Some(oldest)
    }

    /// A connection was closed, or had been closed before, for waiting clients of this key.
    pub fn eviction_done(&mut self, key: &K) {
        if let Some((pool, ..)) = self.get_mut(key) {
            pool.evicting = pool.evicting.saturating_sub(1);
            let groups = pool.groups;
            self.groups.remove_coming(groups);
        }
        self.remove_unused(key);
    }

    /// Counts a connection that is opened even if the limit is reached.
    pub fn open_unconditionally(&mut self, key: &K) {
        self.open += 1;
        let (pool, ..) = self.get_or_add(key);
        pool.opening += 1;
        pool.open += 1;
        let groups = pool.groups;
        self.groups.add_open(groups);
    }

    /// A connect has ended: the connection must be [released](Self::release) or [closed](Self::closed).
    pub fn opened(&mut self, key: &K) {
        if let Some((pool, ..)) = self.get_mut(key) {
            pool.opening = pool.opening.saturating_sub(1);
            pool.has_new = true;
        }
    }

    /// Releases a connection: to the client that is next, or to the idle ones.
    pub fn release(&mut self, key: &K, server: S) -> Released<K, C> {
        let order = self.next_order();
        let (pool, connections, clients) = self.get_or_add(key);
        pool.reserved.remove(connections, server);
        // A new connection serves at least one client, or two users could close each other's for ever.
        let is_new = std::mem::take(&mut pool.has_new) && clients.len(pool.waiting) > 0;
        if !is_new && let Some(successor) = self.successor_of(key) {
            return self.replace(key, successor);
        }
        let (pool, connections, clients) = self.get_or_add(key);
        let Some(client) = pool.next_waiting(clients, server.thread()) else {
            pool.idle.push(connections, server, order);
            return Released::Idle;
        };
        let groups = pool.groups;
        self.remove_waiting(groups, client);
        Released::Assigned(client)
    }

    /// Counts a connection of this key as closed, and one of another key as being opened.
    fn replace(&mut self, key: &K, successor: usize) -> Released<K, C> {
        let Some(next) = self.pools[successor].as_ref().map(|pool| pool.key.clone()) else {
            return Released::Idle;
        };
        self.open_unconditionally(&next);
        self.closed(key, None);
        Released::Replaced(next)
    }

    /// Whether this connection must still be released to the clients that wait.
    pub fn is_reserved(&self, key: &K, server: S) -> bool {
        self.get(key).is_some_and(|pool| pool.reserved.contains(&self.connections, server))
    }

    /// Keeps a connection for its client, which is between transactions. If it returns false, the connection must
    /// be reset and released to the next waiting client.
    pub fn keep(&mut self, key: &K, server: S) -> bool {
        self.keep_in(key, server, |pool| &mut pool.kept)
    }

    /// The same for a connection whose client has disconnected.
    pub fn keep_orphaned(&mut self, key: &K, server: S) -> bool {
        self.keep_in(key, server, |pool| &mut pool.orphaned)
    }

    /// The same for a connection that was kept for its client; `None` if it is no longer kept.
    pub fn orphan(&mut self, key: &K, server: S) -> Option<bool> {
        let (pool, connections, _) = self.get_mut(key)?;
        pool.kept.remove(connections, server).then(|| self.keep_orphaned(key, server))
    }

    fn keep_in(
        &mut self,
        key: &K,
        server: S,
        list: impl FnOnce(&mut KeyPool<K>) -> &mut Connections,
    ) -> bool {
        let order = self.next_order();
        let is_due = self.successor_of(key).is_some();
        let (pool, connections, clients) = self.get_or_add(key);
        let is_kept = !pool.is_paused && !is_due && clients.len(pool.waiting) == 0;
        let list = if is_kept { list(pool) } else { &mut pool.reserved };
        list.push(connections, server, order);
        is_kept
    }

    /// Takes a kept connection for its client. Returns false if it is no longer kept, or if the key is paused.
    pub fn resume_kept(&mut self, key: &K, server: S) -> bool {
        let Some((pool, connections, _)) = self.get_mut(key) else { return false };
        !pool.is_paused && pool.kept.remove(connections, server)
    }

    /// Takes a kept connection to reset or close it. Returns false if it is no longer kept.
    pub fn take_kept(&mut self, key: &K, server: S) -> bool {
        let Some((pool, connections, _)) = self.get_mut(key) else { return false };
        pool.kept.remove(connections, server) || pool.orphaned.remove(connections, server)
    }

    /// Assigns a connection without a reset to the next client, if that is on the same worker and `may` use it.
    pub fn assign_unreset(&mut self, key: &K, server: S, may: impl FnOnce(C) -> bool) -> Option<C> {
        if self.successor_of(key).is_some() {
            return None;
        }
        let (pool, connections, clients) = self.get_mut(key)?;
        let client = pool.next_waiting(clients, server.thread())?;
        if client.thread() != server.thread() || !may(client) {
            return None;
        }
        pool.reserved.remove(connections, server);
        let groups = pool.groups;
        self.remove_waiting(groups, client);
        Some(client)
    }

    /// A connection has ended, in whatever state; `None` if it was never opened. There is room for another one.
    pub fn closed(&mut self, key: &K, server: Option<S>) {
        self.open = self.open.saturating_sub(1);
        if let Some((pool, connections, _)) = self.get_mut(key) {
            pool.open = pool.open.saturating_sub(1);
            pool.has_new = false;
            let was_leaving = server.is_some_and(|server| pool.remove(connections, server));
            let groups = pool.groups;
            self.groups.remove_open(groups);
            if was_leaving {
                self.groups.remove_leaving(groups);
            }
        }
        self.remove_unused(key);
    }

    pub fn leave_queue(&mut self, key: &K, client: C) {
        let Some(groups) = self.get(key).map(|pool| pool.groups) else { return };
        if self.remove_waiting(groups, client) {
            self.remove_unused(key);
        }
    }

    /// Adds a client to the front of the queue, because the connection that it was assigned broke.
    pub fn requeue_first(&mut self, key: &K, client: C, since: Instant) {
        let (pool, _, clients) = self.get_or_add(key);
        clients.push_front(pool.waiting, client, since);
        let groups = pool.groups;
        self.count_waiting(groups);
    }

    /// The client that has waited longest. Clients of a paused key wait on.
    pub fn pop_waiting(&mut self, key: &K) -> Option<C> {
        let (pool, _, clients) = self.get_mut(key)?;
        if pool.is_paused {
            return None;
        }
        let (client, _) = clients.first(pool.waiting)?;
        let groups = pool.groups;
        self.remove_waiting(groups, client);
        Some(client)
    }

    /// Whether a connection of this key is open, which will be released some time.
    pub fn has_open(&self, key: &K) -> bool {
        self.get(key).is_some_and(|pool| pool.open > pool.opening)
    }

    /// Whether a client waits for a connection of this key.
    pub fn has_waiting(&self, key: &K) -> bool {
        self.get(key).is_some_and(|pool| self.clients.len(pool.waiting) > 0)
    }

    pub fn open(&self) -> usize {
        self.open
    }

    /// Counts a connection to open in advance, if there is room.
    pub fn open_in_advance(&mut self, key: &K) -> bool {
        if self.open >= self.limit || self.is_paused(key) {
            return false;
        }
        self.get_or_add(key);
        let has_room = self.get(key).is_some_and(|pool| self.has_room(pool));
        if has_room {
            self.open_unconditionally(key);
        } else {
            self.remove_unused(key);
        }
        has_room
    }

    /// Takes an idle connection until it is [released](Self::release) or [closed](Self::closed).
    pub fn take_idle(&mut self, key: &K, server: S) -> bool {
        let Some((pool, connections, _)) = self.get_mut(key) else { return false };
        pool.idle.remove(connections, server)
    }

    /// The number of unserved waiting clients; `None` if another client of this key would not have to wait.
    pub fn queue_length(&self, key: &K) -> Option<usize> {
        if self.is_paused(key) {
            return Some(self.waiting);
        }
        // A kept connection can be taken without waiting for its client.
        let is_available = match self.get(key) {
            Some(pool) => self.is_servable(pool),
            None => self.open < self.limit || self.pools.iter().flatten().any(KeyPool::has_available),
        };
        if is_available {
            return None;
        }
        Some(self.pools.iter().flatten().map(|pool| pool.unserved(&self.clients)).sum())
    }

    /// Changes the limits. Surplus connections are closed when they are released.
    pub fn set_limits(&mut self, limit: usize, groups: GroupLimits) {
        self.limit = limit;
        let pools = self.pools.iter_mut().flatten();
        self.groups.set_limits(groups, pools.map(|pool| (pool.key.database(), pool.open, &mut pool.groups)));
    }

    /// Whether too many connections are open: in all, or of the user or the database of this key.
    pub fn is_over_limit(&self, key: &K) -> bool {
        let is_over = |pool: &KeyPool<K>| self.groups.is_over_limit(pool.groups);
        self.open > self.limit || self.groups.has_limits && self.get(key).is_some_and(is_over)
    }

    /// Connections of this key, including connections that are being opened.
    pub fn open_count(&self, key: &K) -> usize {
        self.get(key).map_or(0, |pool| pool.open)
    }

    pub fn has_connection(&self) -> bool {
        self.pools.iter().flatten().any(|pool| pool.open > pool.opening)
    }

    pub fn is_opening(&self) -> bool {
        self.pools.iter().flatten().any(|pool| pool.opening > 0)
    }

    /// Clients can name any number of databases, so unused keys are removed.
    fn remove_unused(&mut self, key: &K) {
        let Some(number) = self.number(key) else { return };
        let is_unused = |pool: &mut KeyPool<K>| {
            pool.open == 0
                && self.clients.len(pool.waiting) == 0
                && pool.evicting == 0
                && [&pool.idle, &pool.kept, &pool.orphaned, &pool.reserved, &pool.leaving]
                    .iter()
                    .all(|list| list.count() == 0)
        };
        let Some(pool) = self.pools[number].take_if(is_unused) else { return };
        self.numbers.remove(key);
        self.clients.discard(pool.waiting);
        self.groups.leave(pool.groups);
        for list in [pool.idle, pool.kept, pool.orphaned, pool.reserved, pool.leaving] {
            list.discard(&mut self.connections);
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
