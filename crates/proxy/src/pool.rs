//! Who gets which server connection. It knows connections and clients by number only and does no I/O, so that threads
//! can share one behind a lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What connections have in common that clients can take from one another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
}

/// Connections of one server, `S` being their numbers and `C` those of clients.
pub struct Pool<S, C> {
    limit: usize,
    /// Connections that there are, also those that are being opened or reset.
    open: usize,
    shelves: HashMap<Arc<PoolKey>, Shelf<S, C>>,
}

struct Shelf<S, C> {
    /// The one used last is used next: the others grow old and are closed.
    idle: Vec<S>,
    waiting: VecDeque<C>,
    opening: usize,
    open: usize,
}

/// What a client that asks for a connection gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<S> {
    /// This one, which is the client's now.
    Take(S),
    /// It waits, and a connection is to be opened.
    Open,
    /// It waits, and this idle connection of others is to be closed, so that one can be opened.
    Evict(S),
    /// It waits.
    Wait,
}

impl<S, C> Default for Shelf<S, C> {
    fn default() -> Self {
        Self { idle: Vec::new(), waiting: VecDeque::new(), opening: 0, open: 0 }
    }
}

impl<S: Copy + PartialEq, C: Copy + PartialEq> Pool<S, C> {
    /// A pool of at most `limit` connections, over all keys.
    pub fn new(limit: usize) -> Self {
        Self { limit, open: 0, shelves: HashMap::new() }
    }

    /// A client wants a connection.
    pub fn ask(&mut self, key: &Arc<PoolKey>, client: C) -> Asked<S> {
        let own = self.shelves.entry(Arc::clone(key)).or_default();
        if let Some(server) = own.idle.pop() {
            return Asked::Take(server);
        }
        own.waiting.push_back(client);
        self.refill(key)
    }

    /// What is to be done for those that wait: [`Asked::Open`] counts as begun.
    pub fn refill(&mut self, key: &Arc<PoolKey>) -> Asked<S> {
        let Some(own) = self.shelves.get_mut(key) else { return Asked::Wait };
        if own.opening >= own.waiting.len() {
            return Asked::Wait;
        }
        if self.open < self.limit {
            self.open += 1;
            own.opening += 1;
            own.open += 1;
            return Asked::Open;
        }
        let idle = self.shelves.values_mut().find_map(|own| {
            // The oldest of that shelf.
            (!own.idle.is_empty()).then(|| own.idle.remove(0))
        });
        idle.map_or(Asked::Wait, Asked::Evict)
    }

    /// A connection is there that was being opened. Then it must be [given back](Self::give_back).
    pub fn opened(&mut self, key: &Arc<PoolKey>) {
        if let Some(own) = self.shelves.get_mut(key) {
            own.opening = own.opening.saturating_sub(1);
        }
    }

    /// A connection awaits a client: the one that has waited longest and has it now, if any waits.
    pub fn give_back(&mut self, key: &Arc<PoolKey>, server: S) -> Option<C> {
        let own = self.shelves.entry(Arc::clone(key)).or_default();
        let client = own.waiting.pop_front();
        if client.is_none() {
            own.idle.push(server);
        }
        client
    }

    /// A connection is no more, whoever had it; it has no number if it was never there. Others may be opened: see [`Self::refill`], for its key and those that
    /// [`Self::in_want`] names.
    pub fn closed(&mut self, key: &Arc<PoolKey>, server: Option<S>) {
        self.open = self.open.saturating_sub(1);
        if let Some(own) = self.shelves.get_mut(key) {
            own.open = own.open.saturating_sub(1);
            own.idle.retain(|idle| Some(*idle) != server);
        }
        self.tidy(key);
    }

    /// A client waits no more.
    pub fn forget(&mut self, key: &Arc<PoolKey>, client: C) {
        if let Some(own) = self.shelves.get_mut(key) {
            own.waiting.retain(|waiting| *waiting != client);
        }
        self.tidy(key);
    }

    /// The client that has waited longest, which waits no more.
    pub fn first_waiting(&mut self, key: &Arc<PoolKey>) -> Option<C> {
        self.shelves.get_mut(key)?.waiting.pop_front()
    }

    /// Whether there are connections of this key, those that are being opened left out: somebody will give one back.
    pub fn has_open(&self, key: &Arc<PoolKey>) -> bool {
        self.shelves.get(key).is_some_and(|own| own.open > own.opening)
    }

    /// A key whose clients wait for more connections than are being opened, if there is one.
    pub fn in_want(&self) -> Option<Arc<PoolKey>> {
        let mut wanting = self.shelves.iter().filter(|(_, own)| own.opening < own.waiting.len());
        wanting.next().map(|(key, _)| Arc::clone(key))
    }

    /// Connections that there are.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Databases' names are clients' to make up: what nobody uses is not remembered.
    fn tidy(&mut self, key: &Arc<PoolKey>) {
        let unused = |own: &Shelf<S, C>| own.open == 0 && own.waiting.is_empty();
        if self.shelves.get(key).is_some_and(unused) {
            self.shelves.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(database: &str) -> Arc<PoolKey> {
        Arc::new(PoolKey { user: "app".to_owned(), database: database.to_owned() })
    }

    #[test]
    fn a_connection_goes_from_one_client_to_the_next() {
        let (mut pool, shop) = (Pool::new(1), key("shop"));
        assert_eq!(pool.ask(&shop, 'a'), Asked::Open);
        assert_eq!(pool.ask(&shop, 'b'), Asked::Wait);
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 1), Some('a'));
        assert_eq!(pool.ask(&shop, 'c'), Asked::Wait);
        assert_eq!(pool.give_back(&shop, 1), Some('b'));
        pool.forget(&shop, 'c');
        assert_eq!(pool.give_back(&shop, 1), None);
        assert_eq!(pool.ask(&shop, 'd'), Asked::Take(1));
        assert_eq!((pool.open(), pool.has_open(&shop)), (1, true));
    }

    #[test]
    fn who_waits_gets_the_place_of_one_that_broke() {
        let (mut pool, shop) = (Pool::new(1), key("shop"));
        assert_eq!(pool.ask(&shop, 'a'), Asked::Open);
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 1), Some('a'));
        assert_eq!(pool.ask(&shop, 'b'), Asked::Wait);
        pool.closed(&shop, Some(1));
        assert_eq!(pool.in_want(), Some(Arc::clone(&shop)));
        assert_eq!(pool.refill(&shop), Asked::Open);
        assert_eq!((pool.in_want(), pool.refill(&shop)), (None, Asked::Wait));
        // It could not be opened: its client is told, and nothing of the database is remembered.
        pool.opened(&shop);
        assert_eq!(pool.first_waiting(&shop), Some('b'));
        pool.closed(&shop, None);
        assert_eq!((pool.open(), pool.shelves.len()), (0, 0));
    }

    #[test]
    fn idle_connections_of_others_make_room() {
        let mut pool = Pool::new(2);
        let (shop, till) = (key("shop"), key("till"));
        for (client, server) in [('a', 1), ('b', 2)] {
            assert_eq!(pool.ask(&shop, client), Asked::Open);
            pool.opened(&shop);
            assert_eq!(pool.give_back(&shop, server), Some(client));
        }
        assert_eq!(pool.give_back(&shop, 2), None);
        assert_eq!(pool.ask(&till, 'c'), Asked::Evict(2));
        pool.closed(&shop, Some(2));
        assert_eq!(pool.refill(&till), Asked::Open);
        assert_eq!(pool.ask(&till, 'd'), Asked::Wait);
        // The last one used is the first one taken.
        assert_eq!(pool.give_back(&shop, 1), None);
        assert_eq!(pool.ask(&shop, 'e'), Asked::Take(1));
    }
}
