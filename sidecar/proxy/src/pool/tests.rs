use std::time::Duration;

use super::key_pool::LOCALITY_WINDOW;
use super::*;

impl<K: PoolKey, S: WorkerBound, C: WorkerBound> ConnectionPool<K, S, C> {
    /// Acquires when the time does not matter.
    fn acquire_now(&mut self, key: &K, client: C) -> PoolAction<S> {
        self.acquire(key, client, Acceptable::Reset, Instant::now())
    }
}

/// The user and the database; without a `@`, all keys are of one user.
impl PoolKey for &'static str {
    fn user(&self) -> &str {
        self.split_once('@').map_or("", |(user, _)| user)
    }

    fn database(&self) -> &str {
        self.split_once('@').map_or(self, |(_, database)| database)
    }
}

impl WorkerBound for char {
    fn thread(self) -> usize {
        usize::from(self.is_uppercase())
    }

    fn slot(self) -> usize {
        self as usize
    }
}

/// From 100 on, the second worker's.
impl WorkerBound for i32 {
    fn thread(self) -> usize {
        usize::from(self >= 100)
    }

    fn slot(self) -> usize {
        self.unsigned_abs() as usize
    }
}

#[test]
fn a_connection_goes_from_one_client_to_the_next() {
    let (mut pool, shop) = (ConnectionPool::new(1), "shop");
    assert_eq!(pool.acquire_now(&shop, 'a'), PoolAction::Open);
    assert_eq!(pool.acquire_now(&shop, 'b'), PoolAction::Wait);
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
    assert_eq!(pool.acquire_now(&shop, 'c'), PoolAction::Wait);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('b'));
    pool.leave_queue(&shop, 'c');
    assert_eq!(pool.release(&shop, 1), Released::Idle);
    assert_eq!(pool.acquire_now(&shop, 'd'), PoolAction::Take(1));
    assert_eq!((pool.open(), pool.has_open(&shop)), (1, true));
}

#[test]
fn a_waiting_client_gets_the_place_of_a_broken_connection() {
    let (mut pool, shop) = (ConnectionPool::new(1), "shop");
    assert_eq!(pool.acquire_now(&shop, 'a'), PoolAction::Open);
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
    assert_eq!(pool.acquire_now(&shop, 'b'), PoolAction::Wait);
    pool.closed(&shop, Some(1));
    assert_eq!(pool.unserved_key(), Some(shop));
    assert_eq!(pool.next_action(&shop, 0), PoolAction::Open);
    assert_eq!((pool.unserved_key(), pool.next_action(&shop, 0)), (None, PoolAction::Wait));
    // The connect fails: its client is told, and the key is removed.
    pool.opened(&shop);
    assert_eq!(pool.pop_waiting(&shop), Some('b'));
    pool.closed(&shop, None);
    assert_eq!((pool.open(), pool.numbers.len()), (0, 0));
}

#[test]
fn a_kept_connection_is_taken_when_the_limit_is_reached() {
    let (mut pool, shop) = (ConnectionPool::new(1), "shop");
    assert_eq!(pool.acquire_now(&shop, 'a'), PoolAction::Open);
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
    assert!(pool.keep(&shop, 1));
    assert_eq!(pool.acquire_now(&shop, 'b'), PoolAction::Release(1));
    // It is reserved: nothing more is done for the clients that wait.
    assert_eq!((pool.acquire_now(&shop, 'c'), pool.unserved_key()), (PoolAction::Wait, Some(shop)));
    assert_eq!(pool.release(&shop, 1), Released::Assigned('b'));
    assert_eq!((pool.keep(&shop, 1), pool.unserved_key()), (false, None));
    assert!(!pool.take_kept(&shop, 1));
    assert_eq!(pool.release(&shop, 1), Released::Assigned('c'));
    // A kept connection is evicted for other keys.
    assert!(pool.keep(&shop, 1));
    assert_eq!(pool.acquire_now(&"till", 'd'), PoolAction::Evict(1));
    // Until it is closed, nothing more is done for the clients that wait, and its last client does not get it
    // again.
    assert_eq!((pool.next_action(&"till", 0), pool.take_kept(&shop, 1)), (PoolAction::Wait, false));
}

#[test]
fn idle_connections_of_other_keys_are_evicted() {
    let mut pool = ConnectionPool::new(2);
    let (shop, till) = ("shop", "till");
    for (client, server) in [('a', 1), ('b', 2)] {
        assert_eq!(pool.acquire_now(&shop, client), PoolAction::Open);
        pool.opened(&shop);
        assert_eq!(pool.release(&shop, server), Released::Assigned(client));
    }
    assert_eq!(pool.release(&shop, 2), Released::Idle);
    assert_eq!(pool.acquire_now(&till, 'c'), PoolAction::Evict(2));
    pool.closed(&shop, Some(2));
    pool.eviction_done(&till);
    assert_eq!(pool.next_action(&till, 0), PoolAction::Open);
    assert_eq!(pool.acquire_now(&till, 'd'), PoolAction::Wait);
    // The most recently used connection is taken first.
    assert_eq!(pool.release(&shop, 1), Released::Idle);
    assert_eq!(pool.acquire_now(&shop, 'e'), PoolAction::Take(1));
}

#[test]
fn connections_are_opened_in_advance_up_to_the_limit() {
    let (mut pool, shop) = (ConnectionPool::<&str, i32, char>::new(2), "shop");
    assert!(pool.open_in_advance(&shop) && pool.open_in_advance(&shop) && !pool.open_in_advance(&shop));
    // A client that comes meanwhile gets one of those.
    assert_eq!((pool.acquire_now(&shop, 'a'), pool.open_count(&shop)), (PoolAction::Wait, 2));
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 2), Released::Idle);
    pool.set_limits(1, GroupLimits::default());
    assert!(pool.is_over_limit(&shop));
    pool.closed(&shop, Some(2));
    assert!(!pool.is_over_limit(&shop));
}

#[test]
fn a_connection_that_was_taken_is_unavailable_until_it_is_released() {
    let (mut pool, shop) = (ConnectionPool::new(2), "shop");
    assert!(pool.open_in_advance(&shop));
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 1), Released::<_, char>::Idle);
    assert!(pool.take_idle(&shop, 1) && !pool.take_idle(&shop, 1));
    assert_eq!(pool.acquire_now(&shop, 'a'), PoolAction::Open);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
}

#[test]
fn only_clients_that_depend_on_others_count_as_queued() {
    let (mut pool, shop, till) = (ConnectionPool::new(2), "shop", "till");
    assert_eq!(pool.queue_length(&shop), None);
    for (key, client, server) in [(&shop, 'a', 1), (&till, 'b', 2)] {
        assert_eq!(pool.acquire_now(key, client), PoolAction::Open);
        // Its connect is in progress: it waits for no other client.
        pool.opened(key);
        assert_eq!(pool.release(key, server), Released::Assigned(client));
    }
    assert_eq!(pool.queue_length(&shop), Some(0));
    assert_eq!(pool.acquire_now(&shop, 'c'), PoolAction::Wait);
    assert_eq!(pool.queue_length(&shop), Some(1));
    // An idle or a kept connection of another key could be evicted.
    assert_eq!(pool.release(&till, 2), Released::Idle);
    assert_eq!(pool.queue_length(&shop), None);
    assert!(pool.take_idle(&till, 2));
    assert_eq!(pool.queue_length(&shop), Some(1));
    pool.leave_queue(&shop, 'c');
    assert!(pool.keep(&till, 2));
    assert_eq!(pool.queue_length(&shop), None);
}

/// A pool of so many idle connections, all of the first worker.
fn idle_on_the_first(count: i32) -> ConnectionPool<&'static str, i32, char> {
    let mut pool = ConnectionPool::new(count as usize);
    for server in 1..=count {
        assert!(pool.open_in_advance(&"shop"));
        pool.opened(&"shop");
        assert_eq!(pool.release(&"shop", server), Released::Idle);
    }
    pool
}

#[test]
fn an_idle_connection_moves_to_another_worker() {
    let (mut pool, shop) = (idle_on_the_first(2), "shop");
    assert_eq!(pool.acquire_now(&shop, 'B'), PoolAction::Release(2));
    assert!(pool.is_reserved(&shop, 2) && !pool.take_idle(&shop, 2));
    // It is reserved; the other connection can still be taken at once.
    assert_eq!((pool.unserved_key(), pool.acquire_now(&shop, 'a')), (None, PoolAction::Take(1)));
    assert_eq!(pool.release(&shop, 2), Released::Assigned('B'));
    assert!(!pool.is_reserved(&shop, 2));
    // The connection belongs to the second worker now.
    assert_eq!(pool.release(&shop, 102), Released::Idle);
    assert_eq!(pool.acquire_now(&shop, 'C'), PoolAction::Take(102));
}

#[test]
fn a_client_gets_another_connection_if_a_reserved_one_breaks() {
    let (mut pool, shop) = (idle_on_the_first(2), "shop");
    assert_eq!(pool.acquire_now(&shop, 'B'), PoolAction::Release(2));
    pool.closed(&shop, Some(2));
    assert_eq!(pool.unserved_key(), Some(shop));
    assert_eq!(pool.next_action(&shop, 0), PoolAction::Release(1));
    pool.closed(&shop, Some(1));
    assert_eq!(pool.next_action(&shop, 0), PoolAction::Open);
}

#[test]
fn clients_of_the_same_worker_go_first_if_they_came_at_the_same_time() {
    let (mut pool, shop) = (idle_on_the_first(1), "shop");
    let first = Instant::now();
    assert_eq!(pool.acquire(&shop, 'x', Acceptable::Reset, first), PoolAction::Take(1));
    for (client, after) in [('Z', Duration::ZERO), ('a', LOCALITY_WINDOW), ('b', LOCALITY_WINDOW * 2)] {
        assert_eq!(pool.acquire(&shop, client, Acceptable::Reset, first + after), PoolAction::Wait);
    }
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
    // The client that has waited longest goes first although it is on the other worker.
    assert_eq!(pool.release(&shop, 1), Released::Assigned('Z'));
    assert_eq!(pool.release(&shop, 101), Released::Assigned('b'));
}

#[test]
fn one_connection_is_evicted_per_waiting_client() {
    let (mut pool, till) = (idle_on_the_first(2), "till");
    assert_eq!(pool.acquire_now(&till, 'B'), PoolAction::Evict(1));
    assert_eq!((pool.unserved_key(), pool.next_action(&till, 0)), (None, PoolAction::Wait));
    pool.leave_queue(&till, 'B');
    // The pending eviction counts for the next client that waits.
    assert_eq!(pool.acquire_now(&till, 'C'), PoolAction::Wait);
    pool.closed(&"shop", Some(1));
    pool.eviction_done(&till);
    assert_eq!(pool.next_action(&till, 0), PoolAction::Open);
}

#[test]
fn a_connection_whose_client_has_left_is_used_before_a_new_one_is_opened() {
    let (mut pool, shop) = (ConnectionPool::new(9), "shop");
    assert_eq!(pool.acquire_now(&shop, 'a'), PoolAction::Open);
    pool.opened(&shop);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('a'));
    assert!(pool.keep_orphaned(&shop, 1));
    assert_eq!(pool.acquire_now(&shop, 'b'), PoolAction::Release(1));
    // Only for a client that may use it without a reset.
    assert_eq!(pool.assign_unreset(&shop, 1, |_| false), None);
    assert!(pool.is_reserved(&shop, 1));
    assert_eq!(pool.assign_unreset(&shop, 1, |_| true), Some('b'));
    assert!(!pool.is_reserved(&shop, 1) && pool.unserved_key().is_none());
    // A client of another worker gets it by message, after the reset.
    assert_eq!(pool.acquire_now(&shop, 'C'), PoolAction::Open);
    assert!(!pool.keep_orphaned(&shop, 1));
    assert_eq!(pool.assign_unreset(&shop, 1, |_| true), None);
    assert_eq!(pool.release(&shop, 1), Released::Assigned('C'));
    assert!(pool.keep_orphaned(&shop, 1));
    assert!(pool.take_kept(&shop, 1) && !pool.take_kept(&shop, 1));
    assert_eq!(pool.orphan(&shop, 1), None);
    assert!(pool.keep(&shop, 1));
    assert_eq!(pool.orphan(&shop, 1), Some(true));
    assert_eq!(pool.orphan(&shop, 1), None);
}

#[test]
fn the_newest_connection_is_taken_whether_it_is_reset_or_not() {
    let (mut pool, shop, now) = (idle_on_the_first(2), "shop", Instant::now());
    assert_eq!(pool.acquire(&shop, 'a', Acceptable::Any, now), PoolAction::Take(2));
    assert!(pool.keep_orphaned(&shop, 2));
    assert_eq!(pool.acquire(&shop, 'b', Acceptable::Reset, now), PoolAction::Take(1));
    assert_eq!(pool.release(&shop, 1), Released::Idle);
    assert_eq!(pool.acquire(&shop, 'c', Acceptable::Any, now), PoolAction::Take(1));
    assert_eq!(pool.acquire(&shop, 'd', Acceptable::Any, now), PoolAction::TakeUnreset(2));
    // It cannot be used before it is reset: the client waits for it.
    pool.wait_for(&shop, 2, 'd', now);
    assert!(pool.is_reserved(&shop, 2) && pool.unserved_key().is_none());
    assert_eq!(pool.release(&shop, 2), Released::Assigned('d'));
}

/// Counts comparisons.
#[derive(Clone, Copy, Debug)]
struct Counted(usize);

thread_local! {
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl WorkerBound for Counted {
    fn thread(self) -> usize {
        0
    }

    fn slot(self) -> usize {
        self.0
    }
}

#[test]
fn the_end_of_a_transaction_takes_constant_time() {
    const CONNECTIONS: usize = 10_000;
    const TRANSACTIONS: usize = 100;
    let (mut pool, shop) = (ConnectionPool::<_, Counted, Counted>::new(CONNECTIONS), "shop");
    for number in 0..CONNECTIONS {
        pool.open_unconditionally(&shop);
        pool.opened(&shop);
        assert!(pool.keep(&shop, Counted(number)));
    }
    COMPARISONS.set(0);
    for number in (0..CONNECTIONS).step_by(CONNECTIONS / TRANSACTIONS) {
        assert!(pool.take_kept(&shop, Counted(number)));
        assert!(pool.keep(&shop, Counted(number)));
        assert!(pool.take_kept(&shop, Counted(number)));
        assert_eq!(pool.release(&shop, Counted(number)), Released::Idle);
        assert!(pool.take_idle(&shop, Counted(number)));
    }
    // Each of the five operations compares a connection with the one in its slot.
    let comparisons = COMPARISONS.get();
    assert!(comparisons < TRANSACTIONS * 100, "{comparisons} comparisons");
}
