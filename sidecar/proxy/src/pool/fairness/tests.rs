use std::num::NonZeroUsize;
use std::time::Duration;

use super::super::{Acceptable, PoolAction, Released};
use super::*;
use crate::group_limits::{GroupLimit, GroupLimits};

type Pool = ConnectionPool<&'static str, i32, char>;

const FLOODS: &str = "app@shop";
const QUIET: &str = "web@shop";

fn acquire(pool: &mut Pool, key: &'static str, client: char) -> PoolAction<i32> {
    pool.acquire(&key, client, Acceptable::Reset, Instant::now())
}

/// A pool of so many connections, all of `FLOODS` and in use, with clients that wait for them.
fn flooded(count: i32, limits: GroupLimits) -> Pool {
    let mut pool = Pool::new(count as usize);
    pool.set_limits(count as usize, limits);
    for (server, client) in (1..=count).zip('a'..) {
        assert_eq!(acquire(&mut pool, FLOODS, client), PoolAction::Open);
        pool.opened(&FLOODS);
        assert_eq!(pool.release(&FLOODS, server), Released::Assigned(client));
    }
    for client in 'k'..='t' {
        assert_eq!(acquire(&mut pool, FLOODS, client), PoolAction::Wait);
    }
    pool
}

fn limit(connections: usize, warm: usize) -> GroupLimit {
    GroupLimit { connections: NonZeroUsize::new(connections), warm, clients: None }
}

fn of_user(name: &str, limit: GroupLimit) -> GroupLimits {
    GroupLimits { users: [(name.to_owned(), limit)].into(), ..GroupLimits::default() }
}

fn of_database(name: &str, limit: GroupLimit) -> GroupLimits {
    GroupLimits { databases: [(name.to_owned(), limit)].into(), ..GroupLimits::default() }
}

#[test]
fn the_next_connection_goes_to_the_user_with_the_fewest() {
    let mut pool = flooded(4, GroupLimits::default());
    assert_eq!(pool.release(&FLOODS, 1), Released::Assigned('k'));
    for client in 'u'..='w' {
        assert_eq!(acquire(&mut pool, QUIET, client), PoolAction::Wait);
    }
    // Each user has two then.
    assert_eq!(pool.release(&FLOODS, 1), Released::Replaced(QUIET));
    assert_eq!(pool.release(&FLOODS, 2), Released::Replaced(QUIET));
    assert_eq!(pool.release(&FLOODS, 3), Released::Assigned('l'));
    pool.opened(&QUIET);
    assert_eq!(pool.release(&QUIET, 5), Released::Assigned('u'));
    assert_eq!(pool.release(&QUIET, 5), Released::Assigned('v'));
    assert_eq!((pool.open(), pool.open_count(&FLOODS), pool.open_count(&QUIET)), (4, 2, 2));
}

#[test]
fn a_kept_connection_is_not_taken_again_while_another_user_waits() {
    let mut pool = flooded(2, GroupLimits::default());
    for client in 'k'..='t' {
        pool.leave_queue(&FLOODS, client);
    }
    assert!(pool.keep(&FLOODS, 1) && pool.take_kept(&FLOODS, 1));
    assert_eq!(acquire(&mut pool, QUIET, 'u'), PoolAction::Wait);
    assert!(!pool.keep(&FLOODS, 1) && !pool.take_kept(&FLOODS, 1));
    assert_eq!(pool.assign_unreset(&FLOODS, 1, |_| true), None);
    assert_eq!(pool.release(&FLOODS, 1), Released::Replaced(QUIET));
}

#[test]
fn a_connection_that_its_user_has_just_used_is_not_closed_for_a_user_with_as_many() {
    let mut pool = flooded(2, GroupLimits::default());
    assert_eq!(acquire(&mut pool, QUIET, 'u'), PoolAction::Wait);
    assert_eq!(pool.release(&FLOODS, 1), Released::Replaced(QUIET));
    pool.opened(&QUIET);
    assert_eq!(pool.release(&QUIET, 3), Released::Assigned('u'));
    let began = Instant::now();
    let after = |ms| began + Duration::from_millis(ms);
    assert!(!pool.tick(began));
    assert_eq!(pool.release(&QUIET, 3), Released::Idle);
    assert_eq!(
        (acquire(&mut pool, FLOODS, 'v'), pool.next_action(&FLOODS, 0)),
        (PoolAction::Wait, PoolAction::Wait)
    );
    // It was not used from the record at 250 ms on.
    for ms in [250, 500, 750, 1000, 1249] {
        pool.tick(after(ms));
        assert_eq!(pool.next_action(&FLOODS, 0), PoolAction::Wait, "{ms} ms");
    }
    assert!(pool.tick(after(1250)));
    assert_eq!(pool.unserved_key(), Some(FLOODS));
    assert_eq!(pool.next_action(&FLOODS, 0), PoolAction::Evict(3));
}

#[test]
fn connections_that_other_workers_are_about_to_close_count_as_closed() {
    let mut pool = Pool::new(4);
    for (server, client) in (100..104).zip('A'..) {
        assert_eq!(acquire(&mut pool, FLOODS, client), PoolAction::Open);
        pool.opened(&FLOODS);
        assert_eq!(pool.release(&FLOODS, server), Released::Assigned(client));
    }
    for server in 100..104 {
        assert_eq!(pool.release(&FLOODS, server), Released::Idle);
    }
    // Their worker has not read the messages yet: each user has two connections then.
    let actions: Vec<_> = ('a'..='c').map(|client| acquire(&mut pool, QUIET, client)).collect();
    assert_eq!(actions, [PoolAction::Evict(100), PoolAction::Evict(101), PoolAction::Wait]);
    pool.closed(&FLOODS, Some(100));
    pool.eviction_done(&QUIET);
    assert_eq!(pool.next_action(&QUIET, 0), PoolAction::Open);
    // This one breaks before its worker reads the message.
    pool.closed(&FLOODS, Some(101));
    assert_eq!(pool.next_action(&QUIET, 0), PoolAction::Open);
    pool.eviction_done(&QUIET);
    assert_eq!(pool.next_action(&QUIET, 0), PoolAction::Wait);
    assert_eq!((pool.open_count(&FLOODS), pool.open_count(&QUIET)), (2, 2));
}

#[test]
fn a_single_connection_goes_from_user_to_user() {
    let mut pool = flooded(1, GroupLimits::default());
    let (mut key, mut served) = (FLOODS, Vec::new());
    for (server, client) in (1_i32..).zip('u'..='z') {
        assert_eq!(acquire(&mut pool, QUIET, client), PoolAction::Wait);
        let Released::Replaced(next) = pool.release(&key, server) else { panic!("{key} goes on") };
        pool.opened(&next);
        let Released::Assigned(client) = pool.release(&next, server + 1) else { panic!("it waits") };
        served.push(client);
        key = next;
    }
    assert_eq!(served, ['u', 'k', 'v', 'l', 'w', 'm']);
}

#[test]
fn a_user_with_a_limit_leaves_the_rest_to_others() {
    let mut pool = Pool::new(3);
    pool.set_limits(3, of_user("app", limit(2, 0)));
    for (client, server) in [('a', 1), ('b', 2)] {
        assert_eq!(acquire(&mut pool, FLOODS, client), PoolAction::Open);
        pool.opened(&FLOODS);
        assert_eq!(pool.release(&FLOODS, server), Released::Assigned(client));
    }
    assert_eq!((pool.queue_length(&FLOODS), pool.queue_length(&QUIET)), (Some(0), None));
    assert_eq!(acquire(&mut pool, FLOODS, 'c'), PoolAction::Wait);
    assert!(!pool.open_in_advance(&FLOODS));
    assert_eq!(acquire(&mut pool, QUIET, 'd'), PoolAction::Open);
    // Neither does an idle connection of another user make room.
    pool.opened(&QUIET);
    assert_eq!(pool.release(&QUIET, 3), Released::Assigned('d'));
    assert_eq!(pool.release(&QUIET, 3), Released::Idle);
    assert_eq!(pool.next_action(&FLOODS, 0), PoolAction::Wait);
    // The limit is that of the user, whatever the database.
    assert_eq!(acquire(&mut pool, "app@till", 'e'), PoolAction::Wait);
    assert!(pool.keep_orphaned(&"app@mart", 9) && pool.take_kept(&"app@mart", 9));
    assert_eq!(pool.release(&FLOODS, 1), Released::Assigned('c'));
    pool.set_limits(3, of_user("app", limit(1, 0)));
    assert!(pool.is_over_limit(&FLOODS) && pool.is_over_limit(&"app@till") && !pool.is_over_limit(&QUIET));
}

#[test]
fn the_limit_of_a_database_holds_for_all_users() {
    let mut pool = flooded(2, GroupLimits::default());
    pool.set_limits(4, of_database("shop", limit(2, 0)));
    assert_eq!(acquire(&mut pool, "web@mart", 'u'), PoolAction::Open);
    pool.opened(&"web@mart");
    assert_eq!(pool.release(&"web@mart", 9), Released::Assigned('u'));
    // With the database of the limit, `web` has none.
    assert_eq!(acquire(&mut pool, QUIET, 'v'), PoolAction::Wait);
    assert_eq!(pool.release(&FLOODS, 1), Released::Replaced(QUIET));
    assert_eq!(pool.release(&FLOODS, 2), Released::Assigned('k'));
    // A connection with another database makes no room.
    assert_eq!(pool.release(&"web@mart", 9), Released::Idle);
    assert_eq!(pool.next_action(&FLOODS, 0), PoolAction::Wait);
}

#[test]
fn connections_that_are_kept_warm_are_not_closed_for_others() {
    let mut pool = Pool::new(2);
    pool.set_limits(2, of_user("web", limit(0, 1)));
    for server in [1, 2] {
        assert!(pool.open_in_advance(&QUIET));
        pool.opened(&QUIET);
        assert_eq!(pool.release(&QUIET, server), Released::Idle);
    }
    assert_eq!(acquire(&mut pool, FLOODS, 'a'), PoolAction::Evict(1));
    pool.closed(&QUIET, Some(1));
    pool.eviction_done(&FLOODS);
    assert_eq!(pool.next_action(&FLOODS, 0), PoolAction::Open);
    assert_eq!(acquire(&mut pool, FLOODS, 'b'), PoolAction::Wait);
    assert_eq!((pool.queue_length(&FLOODS), pool.queue_length(&QUIET)), (Some(1), None));
    // For the same user they are.
    assert_eq!(acquire(&mut pool, "web@till", 'c'), PoolAction::Evict(2));
}

#[test]
fn room_goes_to_the_user_with_fewer_connections_first() {
    let mut pool = flooded(3, GroupLimits::default());
    assert_eq!(acquire(&mut pool, QUIET, 'u'), PoolAction::Wait);
    pool.closed(&FLOODS, Some(1));
    assert_eq!(pool.next_action(&FLOODS, 0), PoolAction::Yield);
    assert_eq!(pool.unserved_key(), Some(QUIET));
    assert_eq!(pool.next_action(&QUIET, 0), PoolAction::Open);
    assert_eq!((pool.unserved_key(), pool.next_action(&FLOODS, 0)), (Some(FLOODS), PoolAction::Wait));
}
