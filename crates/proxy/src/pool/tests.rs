//! Who gets which connection, on one thread and on two.

use super::*;

impl<K: Clone + Eq + Hash, S: Local, C: Local> Pool<K, S, C> {
    /// Asks at a moment at which all do.
    fn asks(&mut self, key: &K, client: C) -> Asked<S> {
        self.ask(key, client, Instant::now())
    }
}

impl Local for char {
    fn thread(self) -> usize {
        usize::from(self.is_uppercase())
    }
}

/// From 100 on the second thread's.
impl Local for i32 {
    fn thread(self) -> usize {
        usize::from(self >= 100)
    }
}

#[test]
fn a_connection_goes_from_one_client_to_the_next() {
    let (mut pool, shop) = (Pool::new(1), "shop");
    assert_eq!(pool.asks(&shop, 'a'), Asked::Open);
    assert_eq!(pool.asks(&shop, 'b'), Asked::Wait);
    pool.opened(&shop);
    assert_eq!(pool.give_back(&shop, 1), Some('a'));
    assert_eq!(pool.asks(&shop, 'c'), Asked::Wait);
    assert_eq!(pool.give_back(&shop, 1), Some('b'));
    pool.forget(&shop, 'c');
    assert_eq!(pool.give_back(&shop, 1), None);
    assert_eq!(pool.asks(&shop, 'd'), Asked::Take(1));
    assert_eq!((pool.open(), pool.has_open(&shop)), (1, true));
}

#[test]
fn who_waits_gets_the_place_of_one_that_broke() {
    let (mut pool, shop) = (Pool::new(1), "shop");
    assert_eq!(pool.asks(&shop, 'a'), Asked::Open);
    pool.opened(&shop);
    assert_eq!(pool.give_back(&shop, 1), Some('a'));
    assert_eq!(pool.asks(&shop, 'b'), Asked::Wait);
    pool.closed(&shop, Some(1));
    assert_eq!(pool.in_want(), Some(shop));
    assert_eq!(pool.refill(&shop, 0), Asked::Open);
    assert_eq!((pool.in_want(), pool.refill(&shop, 0)), (None, Asked::Wait));
    // It could not be opened: its client is told, and nothing of the database is remembered.
    pool.opened(&shop);
    assert_eq!(pool.first_waiting(&shop), Some('b'));
    pool.closed(&shop, None);
    assert_eq!((pool.open(), pool.shelves.len()), (0, 0));
}

#[test]
fn a_kept_connection_is_taken_when_there_may_be_no_more() {
    let (mut pool, shop) = (Pool::new(1), "shop");
    assert_eq!(pool.asks(&shop, 'a'), Asked::Open);
    pool.opened(&shop);
    assert_eq!(pool.give_back(&shop, 1), Some('a'));
    assert_eq!(pool.keep(&shop, 1), Kept::ForItsClient);
    assert_eq!(pool.asks(&shop, 'b'), Asked::Steal(1));
    // It is on its way: nothing more is done for those that wait.
    assert_eq!((pool.asks(&shop, 'c'), pool.in_want()), (Asked::Wait, Some(shop)));
    assert_eq!(pool.give_back(&shop, 1), Some('b'));
    assert_eq!((pool.keep(&shop, 1), pool.in_want()), (Kept::ForThoseThatWait, None));
    assert!(!pool.unkeep(&shop, 1));
    assert_eq!(pool.give_back(&shop, 1), Some('c'));
    // One that is kept does not stay in the way of other databases.
    assert_eq!(pool.keep(&shop, 1), Kept::ForItsClient);
    assert_eq!(pool.asks(&"till", 'd'), Asked::Evict(1));
    // Until it is closed, nothing more is done for those that wait; who had it last does not get it any more.
    assert_eq!((pool.refill(&"till", 0), pool.unkeep(&shop, 1)), (Asked::Wait, false));
}

#[test]
fn idle_connections_of_others_make_room() {
    let mut pool = Pool::new(2);
    let (shop, till) = ("shop", "till");
    for (client, server) in [('a', 1), ('b', 2)] {
        assert_eq!(pool.asks(&shop, client), Asked::Open);
        pool.opened(&shop);
        assert_eq!(pool.give_back(&shop, server), Some(client));
    }
    assert_eq!(pool.give_back(&shop, 2), None);
    assert_eq!(pool.asks(&till, 'c'), Asked::Evict(2));
    pool.closed(&shop, Some(2));
    pool.evicted(&till);
    assert_eq!(pool.refill(&till, 0), Asked::Open);
    assert_eq!(pool.asks(&till, 'd'), Asked::Wait);
    // The last one used is the first one taken.
    assert_eq!(pool.give_back(&shop, 1), None);
    assert_eq!(pool.asks(&shop, 'e'), Asked::Take(1));
}

#[test]
fn connections_are_opened_ahead_as_long_as_there_is_room() {
    let (mut pool, shop) = (Pool::<&str, i32, char>::new(2), "shop");
    assert!(pool.open_ahead(&shop) && pool.open_ahead(&shop) && !pool.open_ahead(&shop));
    // Who comes meanwhile gets one of those.
    assert_eq!((pool.asks(&shop, 'a'), pool.open_of(&shop)), (Asked::Wait, 2));
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
    assert_eq!(pool.asks(&shop, 'a'), Asked::Open);
    assert_eq!(pool.give_back(&shop, 1), Some('a'));
}

#[test]
fn only_who_depends_on_others_is_queued() {
    let (mut pool, shop, till) = (Pool::new(2), "shop", "till");
    assert_eq!(pool.queue_ahead(), None);
    for (key, client, server) in [(&shop, 'a', 1), (&till, 'b', 2)] {
        assert_eq!(pool.asks(key, client), Asked::Open);
        // Its connection is on its way: it waits for nobody.
        pool.opened(key);
        assert_eq!(pool.give_back(key, server), Some(client));
    }
    assert_eq!(pool.queue_ahead(), Some(0));
    assert_eq!(pool.asks(&shop, 'c'), Asked::Wait);
    assert_eq!(pool.queue_ahead(), Some(1));
    // One of others' that is idle would make room, and so would one that is kept.
    assert_eq!(pool.give_back(&till, 2), None);
    assert_eq!(pool.queue_ahead(), None);
    assert!(pool.take_idle(&till, 2));
    assert_eq!(pool.queue_ahead(), Some(1));
    pool.forget(&shop, 'c');
    assert_eq!(pool.keep(&till, 2), Kept::ForItsClient);
    assert_eq!(pool.queue_ahead(), None);
}

/// A pool of so many connections, all of which the first thread has and nobody needs.
fn idle_on_the_first(count: i32) -> Pool<&'static str, i32, char> {
    let mut pool = Pool::new(count as usize);
    for server in 1..=count {
        assert!(pool.open_ahead(&"shop"));
        pool.opened(&"shop");
        assert_eq!(pool.give_back(&"shop", server), None);
    }
    pool
}

#[test]
fn an_idle_connection_comes_from_another_thread() {
    let (mut pool, shop) = (idle_on_the_first(2), "shop");
    assert_eq!(pool.asks(&shop, 'B'), Asked::Fetch(2));
    assert!(pool.is_coming(&shop, 2) && !pool.take_idle(&shop, 2));
    // It is for those that wait, and the other one is still to be had at once.
    assert_eq!((pool.in_want(), pool.asks(&shop, 'a')), (None, Asked::Take(1)));
    assert_eq!(pool.give_back(&shop, 2), Some('B'));
    assert!(!pool.is_coming(&shop, 2));
    // It is the second thread's now.
    assert_eq!(pool.give_back(&shop, 102), None);
    assert_eq!(pool.asks(&shop, 'C'), Asked::Take(102));
}

#[test]
fn who_waits_for_one_that_broke_on_its_way_gets_another() {
    let (mut pool, shop) = (idle_on_the_first(2), "shop");
    assert_eq!(pool.asks(&shop, 'B'), Asked::Fetch(2));
    pool.closed(&shop, Some(2));
    assert_eq!(pool.in_want(), Some(shop));
    assert_eq!(pool.refill(&shop, 0), Asked::Fetch(1));
    pool.closed(&shop, Some(1));
    assert_eq!(pool.refill(&shop, 0), Asked::Open);
}

#[test]
fn near_clients_come_first_if_they_came_at_the_same_time() {
    let (mut pool, shop) = (idle_on_the_first(1), "shop");
    let first = Instant::now();
    assert_eq!(pool.ask(&shop, 'x', first), Asked::Take(1));
    for (client, after) in [('Z', Duration::ZERO), ('a', AT_ONCE), ('b', AT_ONCE * 2)] {
        assert_eq!(pool.ask(&shop, client, first + after), Asked::Wait);
    }
    assert_eq!(pool.give_back(&shop, 1), Some('a'));
    // The one that has waited longest, though it is far, and the next is near.
    assert_eq!(pool.give_back(&shop, 1), Some('Z'));
    assert_eq!(pool.give_back(&shop, 101), Some('b'));
}

#[test]
fn one_is_evicted_for_each_that_waits_however_long_that_takes() {
    let (mut pool, till) = (idle_on_the_first(2), "till");
    assert_eq!(pool.asks(&till, 'B'), Asked::Evict(1));
    assert_eq!((pool.in_want(), pool.refill(&till, 0)), (None, Asked::Wait));
    pool.forget(&till, 'B');
    // The promise is not forgotten with the one it was made to.
    assert_eq!(pool.asks(&till, 'C'), Asked::Wait);
    pool.closed(&"shop", Some(1));
    pool.evicted(&till);
    assert_eq!(pool.refill(&till, 0), Asked::Open);
}

#[test]
fn one_whose_client_has_left_comes_before_a_new_one() {
    let (mut pool, shop) = (Pool::new(9), "shop");
    assert_eq!(pool.asks(&shop, 'a'), Asked::Open);
    pool.opened(&shop);
    assert_eq!(pool.give_back(&shop, 1), Some('a'));
    assert_eq!(pool.leave(&shop, 1), Kept::ForItsClient);
    assert_eq!(pool.asks(&shop, 'b'), Asked::Steal(1));
    // Only who may have it as it is.
    assert_eq!(pool.give_as_it_is(&shop, 1, |_| false), None);
    assert!(pool.is_coming(&shop, 1));
    assert_eq!(pool.give_as_it_is(&shop, 1, |_| true), Some('b'));
    assert!(!pool.is_coming(&shop, 1) && pool.in_want().is_none());
    // Another thread's client gets it by letter, and when it is reset.
    assert_eq!(pool.asks(&shop, 'C'), Asked::Open);
    assert_eq!(pool.leave(&shop, 1), Kept::ForThoseThatWait);
    assert_eq!(pool.give_as_it_is(&shop, 1, |_| true), None);
    assert_eq!(pool.give_back(&shop, 1), Some('C'));
    assert_eq!(pool.leave(&shop, 1), Kept::ForItsClient);
    assert!(pool.unkeep(&shop, 1) && !pool.unkeep(&shop, 1));
}

/// Counts how often it is compared.
#[derive(Clone, Copy, Debug)]
struct Counted(usize);

thread_local! {
    static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Local for Counted {
    fn thread(self) -> usize {
        0
    }
}

#[test]
fn the_end_of_a_transaction_costs_the_same_with_any_number_of_connections() {
    const CONNECTIONS: usize = 10_000;
    const TRANSACTIONS: usize = 100;
    let (mut pool, shop) = (Pool::<_, Counted, Counted>::new(CONNECTIONS), "shop");
    for number in 0..CONNECTIONS {
        pool.open_unasked(&shop);
        pool.opened(&shop);
        assert_eq!(pool.keep(&shop, Counted(number)), Kept::ForItsClient);
    }
    COMPARISONS.set(0);
    for number in (0..CONNECTIONS).step_by(CONNECTIONS / TRANSACTIONS) {
        assert!(pool.unkeep(&shop, Counted(number)));
        assert_eq!(pool.keep(&shop, Counted(number)), Kept::ForItsClient);
        assert!(pool.unkeep(&shop, Counted(number)));
        assert_eq!(pool.give_back(&shop, Counted(number)), None);
        assert!(pool.take_idle(&shop, Counted(number)));
    }
    // Each of the five acts compares a few keys that have the same place in a hash table.
    let comparisons = COMPARISONS.get();
    assert!(comparisons < TRANSACTIONS * 100, "{comparisons} comparisons");
}
