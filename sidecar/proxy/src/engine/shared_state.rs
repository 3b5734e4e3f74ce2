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
//! A connection that is kept for a client and moves with it is in no list meanwhile. When it arrives, it is kept again,
//! which looks for waiting clients.
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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::mailbox::{Mailbox, WorkerMessage};
use super::upkeep::ConnectHistory;
use super::worker_shared::WorkerShared;
use crate::pool::ConnectionPool;
use crate::protocol::Protocol;
use crate::slab::Id;

/// A client moves only to a worker that has at least so many fewer: moving has a cost.
const MIN_DIFFERENCE: usize = 2;
/// The same while most clients leave at once, so that a client that connects for one query is not moved.
const MIN_DIFFERENCE_OF_BRIEF: usize = 16;
/// A client that stays for a shorter time is brief: moving it would have cost more than it gained.
const BRIEF: Duration = Duration::from_millis(10);

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
    recent: RecentClients,
}

/// Which of the last clients that left this worker were brief.
#[derive(Clone, Copy, Default)]
struct RecentClients {
    /// One bit each.
    brief: u32,
    has_new: bool,
}

impl RecentClients {
    fn add(&mut self, stayed: Duration) {
        self.brief = self.brief << 1 | u32::from(stayed < BRIEF);
        self.has_new = true;
    }

    fn are_brief(self) -> bool {
        self.brief.count_ones() > u32::BITS / 2
    }

    /// If no client has left for a while, new clients may be different from earlier ones.
    fn age(&mut self) {
        if !std::mem::take(&mut self.has_new) {
            self.brief = 0;
        }
    }
}

/// Counters without a lock.
pub(super) struct SharedCounters {
    workers: Box<[WorkerCounters]>,
    /// So many workers accept and serve clients, the first ones.
    accepting: AtomicUsize,
    /// Set when a worker has ended unexpectedly.
    stop: AtomicBool,
}

/// Fills a cache line, so that workers do not contend for it.
#[derive(Default)]
#[repr(align(64))]
struct WorkerCounters {
    clients: AtomicUsize,
    /// Processor time that its thread has used.
    used_ns: AtomicU64,
}

impl SharedCounters {
    fn new(threads: usize, accepting: usize) -> Self {
        let workers = (0..threads).map(|_| WorkerCounters::default()).collect();
        Self { workers, accepting: AtomicUsize::new(accepting), stop: AtomicBool::new(false) }
    }

    fn clients_of(&self, thread: usize) -> usize {
        self.workers.get(thread).map_or(0, |worker| worker.clients.load(Ordering::SeqCst))
    }
}

impl<P: Protocol> SharedState<P> {
    /// The views of all workers. The first `accepting` workers serve clients.
    pub(super) fn for_workers(mailboxes: &Arc<[Mailbox<P>]>, accepting: usize) -> Vec<Self> {
        let server_healths = WorkerShared::for_workers(ServerHealth::default(), mailboxes.len());
        let counters = Arc::new(SharedCounters::new(mailboxes.len(), accepting));
        let of_worker = |(thread, server_health)| Self {
            thread,
            server_health,
            mailboxes: Arc::clone(mailboxes),
            counters: Arc::clone(&counters),
            recent: RecentClients::default(),
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

    /// Clients of all workers, including those on their way from one to another.
    pub(super) fn clients(&self) -> usize {
        (0..self.threads()).map(|thread| self.counters.clients_of(thread)).sum()
    }

    /// Counts a new client for this worker, or for one that has far fewer. Returns the worker.
    pub(super) fn assign_client(&self) -> usize {
        let thread = self.worker_with_fewer().unwrap_or(self.thread);
        self.count_client(thread);
        thread
    }

    /// The worker that a client of this one should move to, if any.
    pub(super) fn worker_with_fewer(&self) -> Option<usize> {
        let own = self.counters.clients_of(self.thread);
        let difference = if self.recent.are_brief() { MIN_DIFFERENCE_OF_BRIEF } else { MIN_DIFFERENCE };
        if self.accepts() && own < difference {
            return None;
        }
        let of_worker = |thread| (self.counters.clients_of(thread), thread);
        let (fewest, thread) = (0..self.accepting()).map(of_worker).min()?;
        (!self.accepts() || fewest + difference <= own).then_some(thread)
    }

    /// How many clients this worker has too many.
    pub(super) fn surplus(&self) -> usize {
        let own = self.counters.clients_of(self.thread);
        if !self.accepts() {
            return own;
        }
        self.worker_with_fewer().map_or(0, |_| own.saturating_sub(self.clients().div_ceil(self.accepting())))
    }

    /// Remembers how long a client of this worker has stayed.
    pub(super) fn client_left(&mut self, stayed: Duration) {
        self.recent.add(stayed);
    }

    /// Forgets what recent clients were like if none has left since the last call.
    pub(super) fn age_recent(&mut self) {
        self.recent.age();
    }

    /// Tells all workers how much processor time this one's thread has used.
    pub(super) fn tell_used(&self, used: Duration) {
        if let Some(worker) = self.counters.workers.get(self.thread) {
            // Enough for 584 years.
            worker.used_ns.store(used.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// What each worker has told.
    pub(super) fn used(&self) -> Vec<Duration> {
        let used = |worker: &WorkerCounters| Duration::from_nanos(worker.used_ns.load(Ordering::Relaxed));
        self.counters.workers.iter().map(used).collect()
    }

    /// How many workers accept clients.
    pub(super) fn accepting(&self) -> usize {
        self.counters.accepting.load(Ordering::Relaxed)
    }

    /// Lets so many workers serve clients, as far as their threads can be started.
    pub(super) fn set_accepting(&self, workers: usize) {
        let before = self.accepting();
        self.counters.accepting.store(workers, Ordering::Relaxed);
        for thread in before..workers {
            if self.mailboxes.get(thread).is_none_or(|mailbox| mailbox.wake().is_err()) {
                return self.counters.accepting.store(thread, Ordering::Relaxed);
            }
        }
    }

    /// Whether this worker serves no clients, and none is on its way.
    pub(super) fn is_idle(&self) -> bool {
        !self.accepts() && self.counters.clients_of(self.thread) == 0
    }

    /// Whether this worker accepts clients.
    pub(super) fn accepts(&self) -> bool {
        self.thread < self.accepting()
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
        for mailbox in self.mailboxes.iter() {
            // A worker without a thread has nothing, so it need not end.
            let _ = mailbox.wake();
        }
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
