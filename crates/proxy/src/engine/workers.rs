//! The worker threads of a proxy: how they start, and how they end together.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Listener, Reactor, SpareBuffer};
use jiff::Timestamp;

use super::accept::Backoff;
use super::control::Services;
use super::exclusive::ExclusiveDatabases;
use super::key_deriver::KeyDeriver;
use super::mailbox::Mailbox;
use super::reload::PreparedSettings;
use super::shared_state::{SharedPool, SharedState, WorkerShared};
use super::{ControlHandle, SIGNALS, Shutdown, TokenKind, Worker, listeners, token_of};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::pool::ConnectionPool;
use crate::protocol::Protocol;
use crate::settings::{Settings, StartError};
use crate::slab::Slab;

/// A listening proxy with one or more workers.
pub struct Workers<P: Protocol> {
    first: Worker<P>,
    others: Vec<Worker<P>>,
}

/// What a worker starts with.
struct WorkerParts<P: Protocol> {
    reactor: Reactor,
    listeners: Vec<Listener>,
    shared: SharedState<P>,
    pool: SharedPool<P>,
}

fn host(what: &str) -> impl Fn(Error) -> StartError + '_ {
    move |source| StartError::Host { what: what.to_owned(), source }
}

impl<P: Protocol> Workers<P> {
    /// Starts listening. A byte from the other end of `signals` stops the proxy: the first one drains
    /// clients, the second one stops at once.
    pub fn start(
        settings: &Settings,
        log: Log,
        signals: UnixStream,
        notifier: &Notifier,
    ) -> Result<Self, StartError> {
        let prepared = PreparedSettings::<P>::new(settings, log)?;
        let metrics = Arc::new(Metrics::default());
        let (began, started) = (Instant::now(), Timestamp::now());
        let mut workers = Vec::new();
        let (worker_parts, key_deriver) = worker_parts(settings)?;
        for parts in worker_parts {
            let (metrics, notifier) = (Arc::clone(&metrics), notifier.clone());
            let services = Services { metrics, notifier, key_deriver: key_deriver.clone(), started };
            workers.push(Worker::new(parts, prepared.clone(), settings, services, began));
        }
        let mut first = workers.remove(0);
        let mut signals = Channel::from_unix(signals).map_err(host("signals"))?;
        let key = token_of(TokenKind::Fixed, SIGNALS);
        first.reactor.register_reading(&mut signals, key).map_err(host("signals"))?;
        first.signals = Some(signals);
        Ok(Self { first, others: workers })
    }

    /// The TCP addresses that it listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.first.listeners.iter().filter_map(Listener::address).collect()
    }

    pub fn control(&self) -> ControlHandle<P> {
        self.first.control()
    }

    /// Serves on this thread and further ones until the proxy is stopped.
    pub fn run(self) -> Result<Shutdown, Error> {
        let Self { first, others } = self;
        let mut handles = Vec::new();
        for worker in others {
            match spawn_worker(worker) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    first.shared.stop_all();
                    let _ = join(handles);
                    return Err(error);
                }
            }
        }
        let ended = first.serve();
        let others = join(handles);
        Ok(ended?.and(others?))
    }
}

/// What each worker needs. All listen on the same addresses and share the thread that derives keys.
fn worker_parts<P: Protocol>(settings: &Settings) -> Result<(Vec<WorkerParts<P>>, KeyDeriver), StartError> {
    let threads = settings.threads.get();
    let reactors = (0..threads).map(|_| Reactor::new()).collect::<Result<Vec<_>, _>>();
    let reactors = reactors.map_err(host("readiness loop"))?;
    let mailboxes =
        reactors.iter().map(Mailbox::of).collect::<Result<Vec<_>, _>>().map_err(host("threads"))?;
    let first = listeners::open(&settings.listen, &settings.allowed_uids)?;
    let clones = (1..threads).map(|_| listeners::share(&first)).collect::<Result<Vec<_>, _>>();
    let clones = clones.map_err(host("threads"))?;
    let pools = WorkerShared::for_workers(ConnectionPool::new(settings.limits.server_connections), threads);
    let listeners = std::iter::once(first).chain(clones);
    let mut worker_parts = Vec::new();
    let shared = SharedState::for_workers(mailboxes);
    let mailboxes =
        shared.first().map_or_else(|| Arc::new([]) as Arc<[_]>, |first| Arc::clone(&first.mailboxes));
    let no_thread = |source| host("threads")(Error::Socket { doing: "cannot start a thread", source });
    let key_deriver = KeyDeriver::start(mailboxes).map_err(no_thread)?;
    let zipped = reactors.into_iter().zip(listeners).zip(shared).zip(pools);
    for (((reactor, mut listeners), shared), pool) in zipped {
        listeners::watch(&mut listeners, &reactor, threads).map_err(host("listeners"))?;
        worker_parts.push(WorkerParts { reactor, listeners, shared, pool });
    }
    Ok((worker_parts, key_deriver))
}

fn spawn_worker<P: Protocol>(worker: Worker<P>) -> Result<JoinHandle<Result<Shutdown, Error>>, Error> {
    let name = format!("serve-{}", worker.shared.thread);
    let spawned = thread::Builder::new().name(name).spawn(move || worker.serve());
    spawned.map_err(|source| Error::Socket { doing: "cannot start a thread", source })
}

/// Joins the workers and combines their results.
fn join(handles: Vec<JoinHandle<Result<Shutdown, Error>>>) -> Result<Shutdown, Error> {
    let ended: Vec<_> = handles.into_iter().map(JoinHandle::join).collect();
    let mut all = Shutdown::Drained;
    for ended in ended {
        all = all.and(ended.unwrap_or_else(|panic| resume_unwind(panic))?);
    }
    Ok(all)
}

impl Shutdown {
    fn of(cut_off: usize) -> Self {
        if cut_off == 0 { Self::Drained } else { Self::CutOff(cut_off) }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Drained, ended) | (ended, Self::Drained) => ended,
            (Self::CutOff(some), Self::CutOff(others)) => Self::CutOff(some + others),
        }
    }
}

/// If a worker ends without having been stopped, its connections are lost, and all others end too.
struct StopAllOnPanic<P: Protocol>(Worker<P>);

impl<P: Protocol> Drop for StopAllOnPanic<P> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.shared.stop_all();
        }
    }
}

impl<P: Protocol> Worker<P> {
    fn new(
        parts: WorkerParts<P>,
        prepared: PreparedSettings<P>,
        settings: &Settings,
        services: Services,
        began: Instant,
    ) -> Self {
        let WorkerParts { reactor, listeners, shared, pool } = parts;
        let PreparedSettings { access, protocol, upstream, limits, log } = prepared;
        let (thread, threads) = (shared.thread, shared.threads());
        Self {
            protocol,
            pooling: settings.pooling,
            pool,
            limits,
            server: settings.server.address.to_string(),
            log,
            reactor,
            listeners,
            signals: None,
            access,
            upstream,
            clients: Slab::of_thread(thread, threads),
            servers: Slab::of_thread(thread, threads),
            cancels: Slab::default(),
            by_process: HashMap::new(),
            random: Vec::new(),
            spare: SpareBuffer::default(),
            deferred: Vec::new(),
            ready: Vec::new(),
            check_unserved: false,
            early_clients: Vec::new(),
            retry_accept: false,
            backoff: Backoff::default(),
            began,
            now: began,
            next_tick: began,
            drain: None,
            services,
            exclusive: ExclusiveDatabases::default(),
            shared,
        }
    }

    /// Serves until all workers are stopped.
    fn serve(self) -> Result<Shutdown, Error> {
        let mut guard = StopAllOnPanic(self);
        let worker = &mut guard.0;
        let ended = worker.turns();
        if ended.is_err() {
            worker.shared.stop_all();
        }
        ended
    }

    fn turns(&mut self) -> Result<Shutdown, Error> {
        self.is_server_known();
        loop {
            if self.shared.must_stop() {
                return Ok(Shutdown::of(self.clients.len()));
            }
            if let Some(cut_off) = self.drain.as_ref().map(|drain| drain.cut_off)
                && self.shared.clients() == 0
                && self.shared.close_mailbox()
            {
                for server in self.servers.ids() {
                    self.close_server(server, "the proxy is stopping");
                }
                return Ok(Shutdown::of(cut_off));
            }
            self.turn()?;
        }
    }
}
