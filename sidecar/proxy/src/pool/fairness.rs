//! Whose turn it is: no user waits behind another one that has more connections.
//!
//! Clients of one key are served in their order. Among users, the one with the fewest connections is next: it
//! gets the available room, and a connection that another user releases is closed for it, unless their
//! numbers of connections are equal or differ by one. A user without a connection gets one in any case. Where
//! the limit of a database is what keeps a client waiting, only connections with that database count.
//!
//! An idle or kept connection is closed to make room for another key. If it is of another user, who has no more
//! connections, it must have been unused for a second: otherwise a busy user's clients would close it in each pause
//! between two queries, and each query of its own user would need a new connection.

use std::cmp::Reverse;
use std::time::Instant;

use super::{ConnectionPool, KeyPool, WorkerBound};
use crate::protocol::PoolKey;

impl<K: PoolKey, S: WorkerBound, C: WorkerBound> ConnectionPool<K, S, C> {
    /// Whether a connection of this key may be opened.
    pub(super) fn has_room(&self, pool: &KeyPool<K>) -> bool {
        self.open < self.limit && !self.groups.is_full(pool.groups)
    }

    /// Whether something can be done for a client of this key that waits.
    pub(super) fn is_servable(&self, pool: &KeyPool<K>) -> bool {
        self.has_room(pool) || pool.has_available() || self.evictable(pool).is_some()
    }

    /// The number of the key whose idle or kept connection is closed to make room for a connection of `own`.
    /// If two must be closed, this is the key of the first.
    pub(super) fn evictable(&self, own: &KeyPool<K>) -> Option<usize> {
        let is_of_user = |other: &KeyPool<K>| other.groups.user == own.groups.user;
        let is_of_database = |other: &KeyPool<K>| other.groups.database == own.groups.database;
        match (self.groups.user_is_full(own.groups), self.groups.database_is_full(own.groups)) {
            (false, false) => self.find_available(own, |_| true),
            (true, false) => self.find_available(own, is_of_user),
            (false, true) => self.find_available(own, is_of_database),
            (true, true) => {
                self.find_available(own, |other| is_of_user(other) && is_of_database(other)).or_else(|| {
                    let of_user = self.find_available(own, is_of_user)?;
                    self.find_available(own, is_of_database).map(|_| of_user)
                })
            }
        }
    }

    /// A key with an idle or kept connection, of the user that has the most connections.
    fn find_available(&self, own: &KeyPool<K>, is_suitable: impl Fn(&KeyPool<K>) -> bool) -> Option<usize> {
        let numbered = self.pools.iter().enumerate();
        let pools = numbered.filter_map(|(number, pool)| Some((number, pool.as_ref()?)));
        let available = pools.filter(|(_, pool)| {
            pool.has_unused(&self.connections, self.evictable_until(pool, own))
                && is_suitable(pool)
                && self.groups.may_give(pool.groups, own.groups)
        });
        available
            .min_by_key(|(_, pool)| Reverse(self.groups.user_share(pool.groups)))
            .map(|(number, _)| number)
    }

    /// Available connections of `other` with this number and earlier ones may be closed for `own`.
    pub(super) fn evictable_until(&self, other: &KeyPool<K>, own: &KeyPool<K>) -> u64 {
        let of_own = self.groups.user_share(own.groups);
        let is_protected = other.groups.user != own.groups.user
            && of_own > 0
            && self.groups.user_share(other.groups) <= of_own;
        if is_protected { self.recency.unused_until() } else { u64::MAX }
    }

    /// To be called a few times per second. Returns whether clients that wait may be served now.
    pub fn tick(&mut self, now: Instant) -> bool {
        self.recency.record(self.order, now) && self.waiting > 0
    }

    fn unserved_pools(&self) -> impl Iterator<Item = (usize, &KeyPool<K>)> {
        let numbered = self.pools.iter().enumerate();
        let pools = numbered.filter_map(|(number, pool)| Some((number, pool.as_ref()?)));
        pools.filter(|(_, pool)| pool.unserved(&self.clients) > 0)
    }

    fn longest_wait(&self, pool: &KeyPool<K>) -> Option<Instant> {
        self.clients.first(pool.waiting).map(|(_, since)| since)
    }

    /// The next key to serve, among the keys with unserved clients.
    pub fn unserved_key(&self) -> Option<K> {
        // The common case.
        if self.waiting == 0 {
            return None;
        }
        let mut unserved = self.unserved_pools();
        let (_, first) = unserved.next()?;
        let Some((_, second)) = unserved.next() else { return Some(first.key.clone()) };
        let rank = |pool: &&KeyPool<K>| {
            let open = self.groups.user_share(pool.groups);
            (!self.is_servable(pool), open, self.longest_wait(pool))
        };
        let all = [first, second].into_iter().chain(unserved.map(|(_, pool)| pool));
        all.min_by_key(rank).map(|pool| pool.key.clone())
    }

    /// Whether the available room belongs to another user that has fewer connections.
    pub(super) fn must_yield(&self, own: &KeyPool<K>) -> bool {
        if self.groups.waiting_users <= 1 {
            return false;
        }
        let open = self.groups.user_share(own.groups);
        self.unserved_pools().any(|(_, other)| {
            other.groups.user != own.groups.user
                && self.groups.user_share(other.groups) < open
                && self.is_servable(other)
        })
    }

    /// The number of the key of another user for which a connection of this key is closed when it is released.
    pub(super) fn successor_of(&self, key: &K) -> Option<usize> {
        // The common case.
        if self.groups.waiting_users == 0 { None } else { self.successor(self.get(key)?) }
    }

    fn successor(&self, own: &KeyPool<K>) -> Option<usize> {
        let waits_itself = self.groups.users.get(own.groups.user).is_some_and(|user| user.waiting > 0);
        if self.groups.waiting_users <= usize::from(waits_itself) {
            return None;
        }
        let candidates = self.unserved_pools().filter_map(|(number, other)| {
            let count = self.deserves(other, own)?;
            Some((count, self.longest_wait(other), number))
        });
        candidates.min().map(|(_, _, number)| number)
    }

    /// How many connections the user of `other` has; `None` if it should not get the one that `own` releases.
    fn deserves(&self, other: &KeyPool<K>, own: &KeyPool<K>) -> Option<usize> {
        let groups = &self.groups;
        let is_candidate = other.groups.user != own.groups.user
            && !groups.user_is_full(other.groups)
            && groups.may_give(own.groups, other.groups)
            && !self.is_servable(other);
        if !is_candidate || self.open > self.limit {
            return None;
        }
        let (before, after) = match groups.database(other.groups).filter(|database| database.is_full()) {
            None => (groups.user_share(own.groups), groups.user_share(other.groups)),
            Some(database) if database.is_over_limit() => return None,
            Some(_) if other.groups.database != own.groups.database => return None,
            Some(_) => (self.open_in_database(own), self.open_in_database(other)),
        };
        (before > after + 1 || after == 0).then_some(after)
    }

    /// Connections of this key's user with its database.
    fn open_in_database(&self, own: &KeyPool<K>) -> usize {
        self.pools.iter().flatten().filter(|pool| pool.groups == own.groups).map(|pool| pool.open).sum()
    }
}

#[cfg(test)]
mod tests;
