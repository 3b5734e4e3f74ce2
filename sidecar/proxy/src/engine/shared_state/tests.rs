use std::time::Duration;

use ciphertoll_net::Reactor;

use super::*;
use crate::postgres::Postgres;

/// The reactors must outlive the test's messages.
fn shared(threads: usize) -> (Vec<Reactor>, Vec<SharedState<Postgres>>) {
    let reactors: Vec<Reactor> = (0..threads).map(|_| Reactor::new().unwrap()).collect();
    let mailboxes = reactors.iter().map(|reactor| Mailbox::of(reactor).unwrap()).collect();
    (reactors, SharedState::for_workers(&mailboxes))
}

#[test]
fn new_clients_stay_unless_another_worker_has_far_fewer() {
    let (_reactors, shared) = shared(3);
    let assigned: Vec<usize> = (0..9).map(|_| shared[0].assign_client()).collect();
    assert_eq!(assigned, [0, 0, 1, 2, 0, 1, 2, 0, 1]);
    assert!(shared.iter().all(|own| own.clients() == 9));
    for worker in assigned {
        shared[1].uncount_client(worker);
    }
    assert_eq!((shared[2].clients(), shared[1].assign_client()), (0, 1));
}

#[test]
fn one_worker_stops_all() {
    let (mut reactors, shared) = shared(2);
    assert!(!shared[1].must_stop());
    shared[0].stop_all();
    assert!(shared[1].must_stop());
    for reactor in &mut reactors {
        assert_eq!(reactor.wait(Duration::ZERO).unwrap().count(), 1);
    }
}

#[test]
fn a_value_is_shared_with_and_without_a_lock() {
    for threads in [1, 2, 3] {
        let mut shared = WorkerShared::for_workers(Vec::new(), threads);
        assert_eq!(matches!(shared[0], WorkerShared::Alone(_)), threads == 1);
        for (thread, own) in shared.iter_mut().enumerate() {
            own.with(|numbers| numbers.push(thread));
        }
        assert!(shared.iter().all(|own| own.read(Vec::len) == threads));
    }
}
