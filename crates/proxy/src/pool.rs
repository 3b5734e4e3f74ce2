//! Who gets which server connection. It knows connections and clients by number only and does no I/O, so that threads
//! can share one behind a lock.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Connections of one server: `K` is what those have in common that clients can take from one another, `S` their numbers and
/// `C` those of clients.
pub struct Pool<K, S, C> {
    limit: usize,
    /// Connections that there are, also those that are being opened or reset.
    open: usize,
    shelves: HashMap<K, Shelf<S, C>>,
}

struct Shelf<S, C> {
    /// The one used last is used next: the others grow old and are closed.
    idle: Vec<S>,
    /// As a client has left them, who may come back to them: the first has waited for that longest.
    kept: Vec<S>,
    /// Taken from there for those that wait, and not given back yet.
    stolen: usize,
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
    /// It waits, and this connection, kept for another client, is to be reset and given back.
    Steal(S),
    /// It waits, and this connection of others, idle or kept, is to be closed, so that one can be opened.
    Evict(S),
    /// It waits.
    Wait,
}

impl<S, C> Default for Shelf<S, C> {
    fn default() -> Self {
        Self { idle: Vec::new(), kept: Vec::new(), stolen: 0, waiting: VecDeque::new(), opening: 0, open: 0 }
    }
}

impl<K: Clone + Eq + Hash, S: Copy + PartialEq, C: Copy + PartialEq> Pool<K, S, C> {
    /// A pool of at most `limit` connections, over all keys.
    pub fn new(limit: usize) -> Self {
        Self { limit, open: 0, shelves: HashMap::new() }
    }

    /// A client wants a connection.
    pub fn ask(&mut self, key: &K, client: C) -> Asked<S> {
        let own = self.shelves.entry(key.clone()).or_default();
        if let Some(server) = own.idle.pop() {
            return Asked::Take(server);
        }
        own.waiting.push_back(client);
        self.refill(key)
    }

    /// What is to be done for those that wait: [`Asked::Open`] counts as begun.
    pub fn refill(&mut self, key: &K) -> Asked<S> {
        let Some(own) = self.shelves.get_mut(key) else { return Asked::Wait };
        if own.opening + own.stolen >= own.waiting.len() {
            return Asked::Wait;
        }
        if self.open < self.limit {
            self.open += 1;
            own.opening += 1;
            own.open += 1;
            return Asked::Open;
        }
        if let Some(kept) = oldest(&mut own.kept) {
            own.stolen += 1;
            return Asked::Steal(kept);
        }
        let others = self.shelves.values_mut();
        let idle = others.into_iter().find_map(|own| oldest(&mut own.idle).or_else(|| oldest(&mut own.kept)));
        idle.map_or(Asked::Wait, Asked::Evict)
    }

    /// A connection is opened for which nobody waits.
    pub fn open_unasked(&mut self, key: &K) {
        let own = self.shelves.entry(key.clone()).or_default();
        self.open += 1;
        own.opening += 1;
        own.open += 1;
    }

    /// A connection is there that was being opened. Then it must be [given back](Self::give_back).
    pub fn opened(&mut self, key: &K) {
        if let Some(own) = self.shelves.get_mut(key) {
            own.opening = own.opening.saturating_sub(1);
        }
    }

    /// A connection awaits a client: the one that has waited longest and has it now, if any waits.
    pub fn give_back(&mut self, key: &K, server: S) -> Option<C> {
        let own = self.shelves.entry(key.clone()).or_default();
        own.stolen = own.stolen.saturating_sub(1);
        let client = own.waiting.pop_front();
        if client.is_none() {
            own.idle.push(server);
        }
        client
    }

    /// Whether clients wait for connections of this key.
    pub fn is_waited_for(&self, key: &K) -> bool {
        self.shelves.get(key).is_some_and(|own| !own.waiting.is_empty())
    }

    /// A connection is kept as its client has left it.
    pub fn keep(&mut self, key: &K, server: S) {
        self.shelves.entry(key.clone()).or_default().kept.push(server);
    }

    /// A kept connection is kept no more; it must be given back, or is its client's again.
    pub fn unkeep(&mut self, key: &K, server: S) {
        if let Some(own) = self.shelves.get_mut(key) {
            own.kept.retain(|kept| *kept != server);
        }
    }

    /// A connection is no more, whoever had it; it has no number if it was never there. Others may be opened: see [`Self::refill`], for its key and those that
    /// [`Self::in_want`] names.
    pub fn closed(&mut self, key: &K, server: Option<S>) {
        self.open = self.open.saturating_sub(1);
        if let Some(own) = self.shelves.get_mut(key) {
            own.open = own.open.saturating_sub(1);
            own.stolen = own.stolen.saturating_sub(1);
            own.idle.retain(|idle| Some(*idle) != server);
            own.kept.retain(|kept| Some(*kept) != server);
        }
        self.tidy(key);
    }

    /// A client waits no more.
    pub fn forget(&mut self, key: &K, client: C) {
        if let Some(own) = self.shelves.get_mut(key) {
            own.waiting.retain(|waiting| *waiting != client);
        }
        self.tidy(key);
    }

    /// The client that has waited longest, which waits no more.
    pub fn first_waiting(&mut self, key: &K) -> Option<C> {
        self.shelves.get_mut(key)?.waiting.pop_front()
    }

    /// Whether there are connections of this key, those that are being opened left out: somebody will give one back.
    pub fn has_open(&self, key: &K) -> bool {
        self.shelves.get(key).is_some_and(|own| own.open > own.opening)
    }

    /// A key whose clients wait for more connections than are being opened, if there is one.
    pub fn in_want(&self) -> Option<K> {
        let mut wanting = self.shelves.iter().filter(|(_, own)| own.opening + own.stolen < own.waiting.len());
        wanting.next().map(|(key, _)| key.clone())
    }

    /// Connections that there are.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Whether there may be one more connection, though nobody waits for it; it counts as begun then.
    pub fn open_ahead(&mut self, key: &K) -> bool {
        if self.open >= self.limit {
            return false;
        }
        let own = self.shelves.entry(key.clone()).or_default();
        self.open += 1;
        own.opening += 1;
        own.open += 1;
        true
    }

    /// Takes this connection from those that clients can have, if it is one of them, until it is
    /// [given back](Self::give_back) or [closed](Self::closed).
    pub fn take_idle(&mut self, key: &K, server: S) -> bool {
        let Some(own) = self.shelves.get_mut(key) else { return false };
        let before = own.idle.len();
        own.idle.retain(|idle| *idle != server);
        own.idle.len() < before
    }

    /// How many clients wait already, where one more would have to wait until another one has done.
    pub fn queue_ahead(&self) -> Option<usize> {
        // One that is kept is nobody's who would have to be waited for.
        let can_be_had = |own: &Shelf<S, C>| !own.idle.is_empty() || !own.kept.is_empty();
        if self.open < self.limit || self.shelves.values().any(can_be_had) {
            return None;
        }
        let waiting = |own: &Shelf<S, C>| own.waiting.len().saturating_sub(own.opening + own.stolen);
        Some(self.shelves.values().map(waiting).sum())
    }

    /// Changes how many connections there may be. Those that are too many are closed when they come back.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Whether there are more connections than there may be.
    pub fn is_over(&self) -> bool {
        self.open > self.limit
    }

    /// Connections of this key, those that are being opened, too.
    pub fn open_of(&self, key: &K) -> usize {
        self.shelves.get(key).map_or(0, |own| own.open)
    }

    /// Every key, and how many clients wait for its connections.
    pub fn waiting(&self) -> impl Iterator<Item = (&K, usize)> {
        self.shelves.iter().map(|(key, own)| (key, own.waiting.len()))
    }

    /// Databases' names are clients' to make up: what nobody uses is not remembered.
    fn tidy(&mut self, key: &K) {
        let unused = |own: &Shelf<S, C>| own.open == 0 && own.waiting.is_empty();
        if self.shelves.get(key).is_some_and(unused) {
            self.shelves.remove(key);
        }
    }
}

fn oldest<S>(servers: &mut Vec<S>) -> Option<S> {
    (!servers.is_empty()).then(|| servers.remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_from_one_client_to_the_next() {
        let (mut pool, shop) = (Pool::new(1), "shop");
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
        let (mut pool, shop) = (Pool::new(1), "shop");
        assert_eq!(pool.ask(&shop, 'a'), Asked::Open);
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 1), Some('a'));
        assert_eq!(pool.ask(&shop, 'b'), Asked::Wait);
        pool.closed(&shop, Some(1));
        assert_eq!(pool.in_want(), Some(shop));
        assert_eq!(pool.refill(&shop), Asked::Open);
        assert_eq!((pool.in_want(), pool.refill(&shop)), (None, Asked::Wait));
        // It could not be opened: its client is told, and nothing of the database is remembered.
        pool.opened(&shop);
        assert_eq!(pool.first_waiting(&shop), Some('b'));
        pool.closed(&shop, None);
        assert_eq!((pool.open(), pool.shelves.len()), (0, 0));
    }

    #[test]
    fn a_kept_connection_is_taken_when_there_may_be_no_more() {
        let (mut pool, shop) = (Pool::new(1), "shop");
        assert_eq!(pool.ask(&shop, 'a'), Asked::Open);
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 1), Some('a'));
        pool.keep(&shop, 1);
        assert_eq!(pool.ask(&shop, 'b'), Asked::Steal(1));
        // It is on its way: nothing more is done for those that wait.
        assert_eq!((pool.ask(&shop, 'c'), pool.in_want()), (Asked::Wait, Some(shop)));
        assert_eq!(pool.give_back(&shop, 1), Some('b'));
        assert!(pool.is_waited_for(&shop));
        pool.keep(&shop, 1);
        pool.unkeep(&shop, 1);
        assert_eq!(pool.give_back(&shop, 1), Some('c'));
        // One that is kept does not stay in the way of other databases.
        pool.keep(&shop, 1);
        assert_eq!(pool.ask(&"till", 'd'), Asked::Evict(1));
    }

    #[test]
    fn idle_connections_of_others_make_room() {
        let mut pool = Pool::new(2);
        let (shop, till) = ("shop", "till");
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

    #[test]
    fn connections_are_opened_ahead_as_long_as_there_is_room() {
        let (mut pool, shop) = (Pool::<&str, u32, char>::new(2), "shop");
        assert!(pool.open_ahead(&shop) && pool.open_ahead(&shop) && !pool.open_ahead(&shop));
        // Who comes meanwhile gets one of those.
        assert_eq!((pool.ask(&shop, 'a'), pool.open_of(&shop)), (Asked::Wait, 2));
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 1), Some('a'));
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 2), None);
        pool.set_limit(1);
        assert!(pool.is_over());
        pool.closed(&shop, Some(2));
        assert!(!pool.is_over());
    }

    #[test]
    fn what_is_taken_away_is_nobodys_until_it_is_given_back() {
        let (mut pool, shop) = (Pool::new(2), "shop");
        assert!(pool.open_ahead(&shop));
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, 1), None::<char>);
        assert!(pool.take_idle(&shop, 1) && !pool.take_idle(&shop, 1));
        assert_eq!(pool.ask(&shop, 'a'), Asked::Open);
        assert_eq!(pool.give_back(&shop, 1), Some('a'));
    }

    #[test]
    fn only_who_depends_on_others_is_queued() {
        let (mut pool, shop, till) = (Pool::new(2), "shop", "till");
        assert_eq!(pool.queue_ahead(), None);
        for (key, client, server) in [(&shop, 'a', 1), (&till, 'b', 2)] {
            assert_eq!(pool.ask(key, client), Asked::Open);
            // Its connection is on its way: it waits for nobody.
            pool.opened(key);
            assert_eq!(pool.give_back(key, server), Some(client));
        }
        assert_eq!(pool.queue_ahead(), Some(0));
        assert_eq!(pool.ask(&shop, 'c'), Asked::Wait);
        assert_eq!(pool.queue_ahead(), Some(1));
        assert_eq!(pool.waiting().map(|(_, waiting)| waiting).sum::<usize>(), 1);
        // One of others' that is idle would make room, and so would one that is kept.
        assert_eq!(pool.give_back(&till, 2), None);
        assert_eq!(pool.queue_ahead(), None);
        assert!(pool.take_idle(&till, 2));
        assert_eq!(pool.queue_ahead(), Some(1));
        pool.keep(&till, 2);
        assert_eq!(pool.queue_ahead(), None);
    }
}
