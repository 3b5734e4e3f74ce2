//! Who gets which server connection. It knows connections and clients by number only and does no I/O, so that threads
//! can share one behind a lock.
//!
//! What is said of a connection another thread has is for that thread to do, and it hears of it later. Until then the
//! connection is in no list from which anybody else could get it: it is *coming*, and counts for those that wait.

mod list;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

use list::{Connections, LinkedMap};

/// Of those that wait, one of the thread that has the connection goes before others' that came so little before it: to move
/// a connection costs more than to hand it over.
const AT_ONCE: Duration = Duration::from_millis(10);
/// Of those that wait, how many are looked at for one of the same thread.
const LOOKED_AT: usize = 64;

/// What one of several threads has.
pub trait Local: Copy + Eq + Hash {
    /// That thread.
    fn thread(self) -> usize;
}

/// Connections of one server: `K` is what those have in common that clients can take from one another, `S` their numbers and
/// `C` those of clients.
pub struct Pool<K, S, C> {
    limit: usize,
    /// Connections that there are, also those that are being opened, reset or moved.
    open: usize,
    /// Clients that wait, of all keys.
    waiting: usize,
    shelves: HashMap<K, Shelf<S, C>>,
}

struct Shelf<S, C> {
    /// The one used last is used next: the others grow old and are closed.
    idle: Connections<S>,
    /// As a client has left them, who may come back to them: the first has waited for that longest.
    kept: Connections<S>,
    /// As clients have left them that do not come back.
    left: Connections<S>,
    /// Taken from those for clients that wait, and not given back yet.
    coming: HashSet<S>,
    /// Connections of others that are to be closed for clients that wait, and are not closed yet.
    promised: usize,
    /// Since when.
    waiting: LinkedMap<C, Instant>,
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
    /// It waits, and this connection, which is idle, is to be given back once more by the thread that has it.
    Fetch(S),
    /// It waits, and this connection, kept for another client, is to be reset and given back.
    Steal(S),
    /// It waits, and this connection of others, idle or kept, is to be closed, and then [`Pool::evicted`] to be told, so
    /// that one can be opened.
    Evict(S),
    /// It waits.
    Wait,
}

/// For whom a connection is as a client has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// For that client.
    ForItsClient,
    /// For nobody: others wait, for whom it is to be reset and given back.
    ForThoseThatWait,
}

impl<S, C> Default for Shelf<S, C> {
    fn default() -> Self {
        Self {
            idle: Connections::default(),
            kept: Connections::default(),
            left: Connections::default(),
            coming: HashSet::new(),
            promised: 0,
            waiting: LinkedMap::default(),
            opening: 0,
            open: 0,
        }
    }
}

impl<S: Local, C: Local> Shelf<S, C> {
    /// Clients that wait, and for whom nothing is on its way.
    fn in_want(&self) -> usize {
        self.waiting.len().saturating_sub(self.opening + self.coming.len() + self.promised)
    }

    /// Takes the client that gets a connection of this thread out of those that wait.
    fn take_next(&mut self, thread: usize) -> Option<C> {
        let client = self.next_waiting(thread)?;
        self.waiting.remove(client).map(|_| client)
    }

    /// The client that gets a connection of this thread: the one that has waited longest, or the first of the thread's own, if
    /// that came with it.
    fn next_waiting(&self, thread: usize) -> Option<C> {
        let (longest, first) = self.waiting.first()?;
        let mut at_once =
            self.waiting.iter().take(LOOKED_AT).take_while(|(_, since)| *since <= first + AT_ONCE);
        let own = at_once.find(|(client, _)| client.thread() == thread);
        Some(own.map_or(longest, |(client, _)| client))
    }

    fn lose(&mut self, server: S) {
        for list in [&mut self.idle, &mut self.kept, &mut self.left] {
            list.remove(server);
        }
        self.coming.remove(&server);
    }

    /// A connection is as a client has left it: whether it stays so.
    fn lay_down(&mut self, server: S, list: impl FnOnce(&mut Self) -> &mut Connections<S>) -> Kept {
        if self.waiting.is_empty() {
            list(self).push(server);
            return Kept::ForItsClient;
        }
        self.coming.insert(server);
        Kept::ForThoseThatWait
    }
}

impl<K: Clone + Eq + Hash, S: Local, C: Local> Pool<K, S, C> {
    /// A pool of at most `limit` connections, over all keys.
    pub fn new(limit: usize) -> Self {
        Self { limit, open: 0, waiting: 0, shelves: HashMap::new() }
    }

    /// A client wants a connection, `now`.
    pub fn ask(&mut self, key: &K, client: C, now: Instant) -> Asked<S> {
        let own = self.shelves.entry(key.clone()).or_default();
        if let Some(idle) = own.idle.take_newest_of(client.thread()) {
            return Asked::Take(idle);
        }
        own.waiting.push_back(client, now);
        self.waiting += 1;
        self.refill(key, client.thread())
    }

    /// What `thread` is to do, or to have done, for those that wait: it counts as begun.
    pub fn refill(&mut self, key: &K, thread: usize) -> Asked<S> {
        let Some(own) = self.shelves.get_mut(key) else { return Asked::Wait };
        if own.in_want() == 0 {
            return Asked::Wait;
        }
        if let Some(idle) = own.idle.take_newest() {
            own.coming.insert(idle);
            return Asked::Fetch(idle);
        }
        if let Some(left) = own.left.take_oldest(thread) {
            own.coming.insert(left);
            return Asked::Steal(left);
        }
        if self.open < self.limit {
            self.open += 1;
            own.opening += 1;
            own.open += 1;
            return Asked::Open;
        }
        if let Some(kept) = own.kept.take_oldest(thread) {
            own.coming.insert(kept);
            return Asked::Steal(kept);
        }
        let oldest = |own: &mut Shelf<S, C>| {
            let lists = [&mut own.idle, &mut own.left, &mut own.kept];
            lists.into_iter().find_map(|list| list.take_oldest(thread))
        };
        let Some(idle) = self.shelves.values_mut().find_map(oldest) else { return Asked::Wait };
        if let Some(own) = self.shelves.get_mut(key) {
            own.promised += 1;
        }
        Asked::Evict(idle)
    }

    /// A connection of others was closed, or had been already, for clients of this key: see [`Self::refill`].
    pub fn evicted(&mut self, key: &K) {
        if let Some(own) = self.shelves.get_mut(key) {
            own.promised = own.promised.saturating_sub(1);
        }
        self.tidy(key);
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
        own.coming.remove(&server);
        let client = own.take_next(server.thread());
        match client {
            Some(_) => self.waiting -= 1,
            None => own.idle.push(server),
        }
        client
    }

    /// Whether this connection is still to be given back for those that wait.
    pub fn is_coming(&self, key: &K, server: S) -> bool {
        self.shelves.get(key).is_some_and(|own| own.coming.contains(&server))
    }

    /// A connection is as its client has left it: whether it stays so.
    pub fn keep(&mut self, key: &K, server: S) -> Kept {
        let own = self.shelves.entry(key.clone()).or_default();
        own.lay_down(server, |own| &mut own.kept)
    }

    /// A connection is as its client has left it, who does not come back.
    pub fn leave(&mut self, key: &K, server: S) -> Kept {
        let own = self.shelves.entry(key.clone()).or_default();
        own.lay_down(server, |own| &mut own.left)
    }

    /// A kept connection, or one that was left, is so no more, if it was until now; then it must be given back, or is its
    /// client's again.
    pub fn unkeep(&mut self, key: &K, server: S) -> bool {
        let Some(own) = self.shelves.get_mut(key) else { return false };
        own.kept.remove(server) || own.left.remove(server)
    }

    /// Gives a connection that has not been reset to the client that is next, if that is one of the same thread's who
    /// `may` have it so.
    pub fn give_as_it_is(&mut self, key: &K, server: S, may: impl FnOnce(C) -> bool) -> Option<C> {
        let own = self.shelves.get_mut(key)?;
        let client = own.next_waiting(server.thread())?;
        if client.thread() != server.thread() || !may(client) {
            return None;
        }
        own.waiting.remove(client);
        self.waiting -= 1;
        own.coming.remove(&server);
        Some(client)
    }

    /// A connection is no more, whoever had it; it has no number if it was never there. Others may be opened: see [`Self::refill`], for its key and those that
    /// [`Self::in_want`] names.
    pub fn closed(&mut self, key: &K, server: Option<S>) {
        self.open = self.open.saturating_sub(1);
        if let Some(own) = self.shelves.get_mut(key) {
            own.open = own.open.saturating_sub(1);
            if let Some(server) = server {
                own.lose(server);
            }
        }
        self.tidy(key);
    }

    /// A client waits no more.
    pub fn forget(&mut self, key: &K, client: C) {
        if let Some(own) = self.shelves.get_mut(key) {
            self.waiting -= usize::from(own.waiting.remove(client).is_some());
        }
        self.tidy(key);
    }

    /// A client waits again that was to have a connection which broke before it had it: its turn has come already.
    pub fn wait_first(&mut self, key: &K, client: C, since: Instant) {
        self.shelves.entry(key.clone()).or_default().waiting.push_front(client, since);
        self.waiting += 1;
    }

    /// The client that has waited longest, which waits no more.
    pub fn first_waiting(&mut self, key: &K) -> Option<C> {
        let own = self.shelves.get_mut(key)?;
        let (client, _) = own.waiting.first()?;
        own.waiting.remove(client);
        self.waiting -= 1;
        Some(client)
    }

    /// Whether there are connections of this key, those that are being opened left out: somebody will give one back.
    pub fn has_open(&self, key: &K) -> bool {
        self.shelves.get(key).is_some_and(|own| own.open > own.opening)
    }

    /// A key whose clients wait for more connections than are being opened, if there is one.
    pub fn in_want(&self) -> Option<K> {
        // As it is mostly.
        if self.waiting == 0 {
            return None;
        }
        let mut wanting = self.shelves.iter().filter(|(_, own)| own.in_want() > 0);
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
        own.idle.remove(server)
    }

    /// How many clients wait already, where one more would have to wait until another one has done.
    pub fn queue_ahead(&self) -> Option<usize> {
        // One that is kept is nobody's who would have to be waited for.
        let can_be_had =
            |own: &Shelf<S, C>| !own.idle.is_empty() || !own.kept.is_empty() || !own.left.is_empty();
        if self.open < self.limit || self.shelves.values().any(can_be_had) {
            return None;
        }
        Some(self.shelves.values().map(Shelf::in_want).sum())
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

    /// Whether there is a connection, those that are being opened left out.
    pub fn has_any(&self) -> bool {
        self.shelves.values().any(|own| own.open > own.opening)
    }

    /// Whether a connection is being opened.
    pub fn is_opening(&self) -> bool {
        self.shelves.values().any(|own| own.opening > 0)
    }

    /// Databases' names are clients' to make up: what nobody uses is not remembered.
    fn tidy(&mut self, key: &K) {
        let unused = |own: &Shelf<S, C>| own.open == 0 && own.waiting.is_empty() && own.promised == 0;
        if self.shelves.get(key).is_some_and(unused) {
            self.shelves.remove(key);
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
