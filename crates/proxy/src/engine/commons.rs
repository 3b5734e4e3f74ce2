//! What the threads of a proxy have in common: one pool of server connections with one queue, one number of clients, one
//! memory of how opening went. Each thread has sockets of its own, and what it has nobody else touches.
//!
//! # Why nobody waits while a connection is idle elsewhere
//!
//! The [`Pool`] is behind one lock, so that whatever is done to it is before or after whatever else is. Two acts matter. A
//! client that asks looks for connections that are idle or kept and for room, and is entered among those that wait, in
//! *one* act. A connection that is given back or kept looks for those that wait, and is entered as idle or kept, in *one*
//! act. Of two such acts one is first: the later one finds what the earlier one has entered.
//!
//! - The connection's is later: it finds the client and is its. Where the two are on different threads, the connection
//!   goes to the client's by letter, and is attached, or given back once more if the client has left.
//! - The client's is later: it finds the connection. Where that is on another thread, it becomes *coming* in the same act,
//!   from where nobody else can take it, and its thread is sent a letter. That thread gives it back once more, for whoever
//!   is first then, which takes it from those that are coming. If it has broken meanwhile, that act took it from there, too,
//!   and its thread looks for clients in want before it sleeps.
//!
//! Those in want are those that wait and have nothing coming, opening or promised for them. Whatever makes room (a connection
//! that ends, a higher limit, one that is idle or kept and of another key) is followed on the same thread by
//! [`Proxy::relieve`](super::Proxy::relieve), which leaves nobody in want while anything could be done; and whatever is coming,
//! opening or promised ends in a connection given back or in one that has ended.
//!
//! So all depends on letters' being read. A letter is put into a box behind a lock, and the bell is rung if the box was
//! empty; its thread empties the whole box behind the same lock when the bell has rung. A letter that finds the box not empty is
//! in it before it is emptied for a ring that has not been answered yet. The bell is an eventfd in the readiness loop, which
//! remembers a ring that comes while nobody waits for one. `pool::model` tests the bookkeeping, with letters that take any time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::health::Warmth;
use super::post::{Letter, Post};
use super::{Introduction, Proxy};
use crate::dialect::Dialect;
use crate::pool::Pool;
use crate::slab::Id;

/// More clients than the thread with the fewest has, from which on a thread hands newcomers on: to come and go there is cheaper
/// than to be moved.
const SLACK: usize = 2;

/// What threads use in turn; one thread alone needs no lock for that.
pub(super) enum Shared<T> {
    Alone(Box<T>),
    Locked(Arc<Mutex<T>>),
}

impl<T> Shared<T> {
    /// The same for each of so many threads.
    pub(super) fn among(thing: T, threads: usize) -> Vec<Self> {
        if threads == 1 {
            return vec![Self::Alone(Box::new(thing))];
        }
        let thing = Arc::new(Mutex::new(thing));
        (0..threads).map(|_| Self::Locked(Arc::clone(&thing))).collect()
    }

    /// Does something to it, in one act.
    pub(super) fn with<R>(&mut self, does: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Self::Alone(thing) => does(thing),
            // A thread that panics ends all of them.
            Self::Locked(thing) => does(&mut thing.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Looks at it.
    pub(super) fn look<R>(&self, at: impl FnOnce(&T) -> R) -> R {
        match self {
            Self::Alone(thing) => at(thing),
            Self::Locked(thing) => at(&thing.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

pub(super) type SharedPool<D> = Shared<Pool<<D as Dialect>::Key, Id, Id>>;

/// What is known of the server's side.
#[derive(Default)]
pub(super) struct Outlook {
    pub(super) warmth: Warmth,
    pub(super) introduction: Introduction,
}

/// What every thread knows of all.
pub(super) struct Commons<D: Dialect> {
    pub(super) thread: usize,
    pub(super) outlook: Shared<Outlook>,
    pub(super) posts: Arc<[Post<D>]>,
    tallies: Arc<Tallies>,
}

/// What is counted without a lock.
pub(super) struct Tallies {
    clients: Box<[Tally]>,
    /// A thread has ended that should not have.
    broken: AtomicBool,
}

/// A line of the processor's cache for each, so that threads do not take it from one another.
#[derive(Default)]
#[repr(align(64))]
struct Tally(AtomicUsize);

impl Tallies {
    pub(super) fn new(threads: usize) -> Self {
        let clients = (0..threads).map(|_| Tally::default()).collect();
        Self { clients, broken: AtomicBool::new(false) }
    }

    fn of(&self, thread: usize) -> usize {
        self.clients.get(thread).map_or(0, |tally| tally.0.load(Ordering::SeqCst))
    }
}

impl<D: Dialect> Commons<D> {
    /// For each thread, in order.
    pub(super) fn among(posts: Vec<Post<D>>) -> Vec<Self> {
        let outlooks = Shared::among(Outlook::default(), posts.len());
        let tallies = Arc::new(Tallies::new(posts.len()));
        let posts: Arc<[Post<D>]> = posts.into();
        let mine = |(thread, outlook)| Self {
            thread,
            outlook,
            posts: Arc::clone(&posts),
            tallies: Arc::clone(&tallies),
        };
        outlooks.into_iter().enumerate().map(mine).collect()
    }

    pub(super) fn threads(&self) -> usize {
        self.posts.len()
    }

    /// Clients of all threads, those that are on their way from one to another, too.
    pub(super) fn clients(&self) -> usize {
        (0..self.threads()).map(|thread| self.tallies.of(thread)).sum()
    }

    /// One more client, of this thread or the one that has far fewer.
    pub(super) fn seat(&self) -> usize {
        let own = self.tallies.of(self.thread);
        let mut thread = self.thread;
        if own >= SLACK {
            let fewest = (0..self.threads()).map(|thread| (self.tallies.of(thread), thread)).min();
            thread = fewest.filter(|(few, _)| few + SLACK <= own).map_or(thread, |(_, thread)| thread);
        }
        self.seat_at(thread);
        thread
    }

    pub(super) fn seat_at(&self, thread: usize) {
        if let Some(tally) = self.tallies.clients.get(thread) {
            tally.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// One less.
    pub(super) fn leave(&self, thread: usize) {
        if let Some(tally) = self.tallies.clients.get(thread) {
            tally.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Gives another thread something to do; back if it has ended.
    #[must_use]
    pub(super) fn send(&self, thread: usize, letter: Letter<D>) -> Option<Letter<D>> {
        match self.posts.get(thread) {
            Some(post) => post.send(letter),
            None => Some(letter),
        }
    }

    /// Has all others do it.
    pub(super) fn tell(&self, letter: impl Fn() -> Letter<D>) {
        for thread in (0..self.threads()).filter(|thread| *thread != self.thread) {
            // Who has ended has nothing to do any more.
            let _ = self.send(thread, letter());
        }
    }

    /// Takes no letters any more, if there are none; whether that is so.
    pub(super) fn close_post(&self) -> bool {
        self.posts.get(self.thread).is_none_or(Post::close)
    }

    /// Has every thread look whether it may end.
    pub(super) fn ring(&self) {
        self.posts.iter().for_each(Post::ring);
    }

    /// Ends all threads.
    pub(super) fn break_off(&self) {
        self.tallies.broken.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.tallies.broken.load(Ordering::SeqCst)
    }
}

impl<D: Dialect> Proxy<D> {
    /// Whether this thread does now what one of all is to do from time to time.
    pub(super) fn has_its_turn(&self) -> bool {
        let ticks = self.now.duration_since(self.began).as_millis() / super::TICK.as_millis();
        ticks % self.commons.threads() as u128 == self.commons.thread as u128
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_net::Reactor;

    use super::*;
    use crate::postgres::Postgres;

    /// Of so many threads, whose reactors are to be kept.
    fn commons(threads: usize) -> (Vec<Reactor>, Vec<Commons<Postgres>>) {
        let reactors: Vec<Reactor> = (0..threads).map(|_| Reactor::new().unwrap()).collect();
        let posts = reactors.iter().map(|reactor| Post::of(reactor).unwrap()).collect();
        (reactors, Commons::among(posts))
    }

    #[test]
    fn newcomers_stay_unless_another_thread_has_far_fewer() {
        let (_reactors, commons) = commons(3);
        // All come to the first.
        let seats: Vec<usize> = (0..9).map(|_| commons[0].seat()).collect();
        assert_eq!(seats, [0, 0, 1, 2, 0, 1, 2, 0, 1]);
        assert!(commons.iter().all(|own| own.clients() == 9));
        for seat in seats {
            commons[1].leave(seat);
        }
        assert_eq!((commons[2].clients(), commons[1].seat()), (0, 1));
    }

    #[test]
    fn one_thread_breaks_off_all() {
        let (mut reactors, commons) = commons(2);
        assert!(!commons[1].is_broken());
        commons[0].break_off();
        assert!(commons[1].is_broken());
        for reactor in &mut reactors {
            assert_eq!(reactor.wait(std::time::Duration::ZERO).unwrap().count(), 1);
        }
    }

    #[test]
    fn alone_or_not_it_is_the_same_thing() {
        for threads in [1, 2, 3] {
            let mut shared = Shared::among(Vec::new(), threads);
            assert_eq!(matches!(shared[0], Shared::Alone(_)), threads == 1);
            for (thread, own) in shared.iter_mut().enumerate() {
                own.with(|numbers| numbers.push(thread));
            }
            assert!(shared.iter().all(|own| own.look(Vec::len) == threads));
        }
    }
}
