//! State shared by all workers: one pool of server connections with one wait queue, the number of clients,
//! and the results of recent connects. Sockets are not shared: only the worker that has one uses it.
//!
//! # Why no client waits while a connection is idle on another worker
//!
//! The [`ConnectionPool`] is behind one lock, so operations on it are ordered. Two of them matter. A client that
//! acquires looks for idle and kept connections and for room to open one, and joins the wait queue, in *one*
//! operation. A connection that is released or kept looks for waiting clients, and becomes idle or kept, in
//! *one* operation. Whichever is second finds what the first has entered.
//!
//! - The connection is second: it finds the client. If they are on different workers, the connection is sent
//!   to the client's worker by message. There it is assigned to the client, or released again if the client
//!   has left.
//! - The client is second: it finds the connection. If that is on another worker, it becomes *reserved* in
//!   the same operation, so that no other client can take it, and its worker gets a message. That worker
//!   releases it again, for the client that is first by then, which ends the reservation. If the connection
//!   has broken meanwhile, closing it ended the reservation, and its worker looks for unserved clients before
//!   it sleeps.
//!
//! A client is unserved if it waits and no connection is reserved, being opened or about to be evicted for
//! it. Whatever makes room (a connection that ends, a higher limit, a connection of another key that becomes
//! idle or kept) is followed on the same worker by `Worker::serve_waiting`,
//! which leaves no client unserved while something can be done. Every reservation, connect and eviction ends
//! in a connection that is released or closed.
//!
//! So all depends on messages being read. A message is put into a mailbox behind a lock, and the worker is
//! woken if the mailbox was empty. The worker empties the whole mailbox under the same lock after it was
//! woken, so a message that finds the mailbox not empty is read together with the earlier ones. The wake-up
//! is an eventfd in the readiness loop, which keeps a wake-up that comes while the worker is busy.
//! `pool::model` tests this bookkeeping, with messages that take any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::mailbox::{Mailbox, WorkerMessage};
use super::upkeep::ConnectHistory;
use super::worker_shared::WorkerShared;
use crate::pool::ConnectionPool;
use crate::protocol::Protocol;
use crate::slab::Id;

/// A client is assigned to another worker only if that has at least so many fewer: the message has a cost.
const MIN_DIFFERENCE: usize = 2;

pub(super) type SharedPool<P> = WorkerShared<ConnectionPool<<P as Protocol>::Key, Id, Id>>;

/// Whether the server's greeting is known, which clients are greeted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Discovery {
    #[default]
    NotStarted,
    /// A connection is being opened for it.
    Running,
    /// All workers know what was learned from it.
    Done,
}

#[derive(Default)]
pub(super) struct ServerHealth {
    pub(super) connects: ConnectHistory,
    pub(super) discovery: Discovery,
}

/// A worker's view of what all workers share.
pub(super) struct SharedState<P: Protocol> {
    pub(super) thread: usize,
    pub(super) server_health: WorkerShared<ServerHealth>,
    pub(super) mailboxes: Arc<[Mailbox<P>]>,
    counters: Arc<SharedCounters>,
}

/// Counters without a lock.
pub(super) struct SharedCounters {
    workers: Box<[WorkerCounters]>,
    /// Set when a worker has ended unexpectedly.
    stop: AtomicBool,
}

/// Fills a cache line, so that workers do not contend for it.
#[derive(Default)]
#[repr(align(64))]
struct WorkerCounters {
    clients: AtomicUsize,
}

impl SharedCounters {
    fn new(threads: usize) -> Self {
        let workers = (0..threads).map(|_| WorkerCounters::default()).collect();
        Self { workers, stop: AtomicBool::new(false) }
    }

    fn clients_of(&self, thread: usize) -> usize {
        self.workers.get(thread).map_or(0, |worker| worker.clients.load(Ordering::SeqCst))
    }
}

impl<P: Protocol> SharedState<P> {
    /// The views of all workers.
    pub(super) fn for_workers(mailboxes: &Arc<[Mailbox<P>]>) -> Vec<Self> {
        let server_healths = WorkerShared::for_workers(ServerHealth::default(), mailboxes.len());
        let counters = Arc::new(SharedCounters::new(mailboxes.len()));
        let of_worker = |(thread, server_health)| Self {
            thread,
            server_health,
            mailboxes: Arc::clone(mailboxes),
            counters: Arc::clone(&counters),
        };
        server_healths.into_iter().enumerate().map(of_worker).collect()
    }

    /// Changes whether the server's greeting is known. Returns whether it was `from`.
    pub(super) fn replace_discovery(&mut self, from: Discovery, to: Discovery) -> bool {
        self.server_health.with(|server_health| {
            let matches = server_health.discovery == from;
            if matches {
                server_health.discovery = to;
            }
            matches
        })
    }

    pub(super) fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Clients of all workers, including those on their way to one.
    pub(super) fn clients(&self) -> usize {
        (0..self.threads()).map(|thread| self.counters.clients_of(thread)).sum()
    }

    /// Counts a new client for this worker, or for one that has fewer. Returns the worker.
    pub(super) fn assign_client(&self) -> usize {
        let of_worker = |thread| (self.counters.clients_of(thread), thread);
        let fewest = (0..self.threads()).map(of_worker).min();
        let own = self.counters.clients_of(self.thread);
        let thread = match fewest {
            Some((fewest, thread)) if fewest + MIN_DIFFERENCE <= own => thread,
            _ => self.thread,
        };
        self.count_client(thread);
        thread
    }

    pub(super) fn count_client(&self, thread: usize) {
        if let Some(worker) = self.counters.workers.get(thread) {
            worker.clients.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn uncount_client(&self, thread: usize) {
        if let Some(worker) = self.counters.workers.get(thread) {
            worker.clients.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Sends a message to a worker; returns the message if that worker has ended.
    #[must_use]
    pub(super) fn send(&self, thread: usize, message: WorkerMessage<P>) -> Option<WorkerMessage<P>> {
        match self.mailboxes.get(thread) {
            Some(mailbox) => mailbox.send(message),
            None => Some(message),
        }
    }

    pub(super) fn broadcast(&self, message: impl Fn() -> WorkerMessage<P>) {
        for thread in (0..self.threads()).filter(|thread| *thread != self.thread) {
            // A worker that has ended needs no messages.
            let _ = self.send(thread, message());
        }
    }

    pub(super) fn close_mailbox(&self) -> bool {
        self.mailboxes.get(self.thread).is_none_or(Mailbox::close)
    }

    /// Wakes all workers, which then check whether they may end.
    pub(super) fn wake_all(&self) {
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    pub(super) fn stop_all(&self) {
        self.counters.stop.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn must_stop(&self) -> bool {
        self.counters.stop.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests;
