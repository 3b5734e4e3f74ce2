//! The worker threads of a proxy: how they start, and how they end together.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Listener, Reactor, SpareBuffers, WatchedEvents};
use jiff::Timestamp;

use super::accept::Acceptor;
use super::agenda::Agenda;
use super::cancel_tokens::CancelTokens;
use super::client_counts::ClientCounts;
use super::control::ControlHandle;
use super::control_request::PreparedSettings;
use super::environment::{Environment, Services};
use super::exclusive::ExclusiveDatabases;
use super::flow::TokenKind;
use super::key_deriver::KeyDeriver;
use super::mailbox::{Mailbox, WorkerMessage};
use super::shared_state::{SharedPool, SharedState};
use super::signals::{FIRST_SIGNAL_TASK, SIGNALS, SignalTask, TaskThread};
use super::usage::UsageTotals;
use super::worker::Worker;
use super::worker_shared::WorkerShared;
use crate::console_facts::Facts;
use crate::hosts::SharedHosts;
use crate::inheritance::Inheritance;
use crate::log::Log;
use crate::notify::Notifier;
use crate::on_demand::OnDemandThread;
use crate::pool::{ConnectionPool, WorkerBound};
use crate::protocol::Protocol;
use crate::settings::{ListenAddress, Settings, StartError};
use crate::slab::Slab;

pub struct Workers<P: Protocol> {
    first: Worker<P>,
    others: Vec<Worker<P>>,
}

/// The workers of one server, whatever its protocol.
pub trait ServerWorkers: Send {
    /// This process owns the files of inherited sockets.
    fn own_files(&mut self, addresses: &[ListenAddress]);

    /// The addresses of the TCP sockets.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Acts on a separate thread whenever a byte arrives from the other end of `signals`. Signals that arrive while one
    /// waits count as one.
    fn on_signal(
        &mut self,
        task: SignalTask,
        signals: UnixStream,
        act: Box<dyn FnMut() + Send>,
    ) -> Result<(), StartError>;

    /// Calls `act` a few times per second. It must not block.
    fn on_tick(&mut self, act: Box<dyn FnMut(Instant) + Send>);

    /// Serves on this thread and further ones until the proxy is stopped. Returns how many clients were cut off.
    fn run(self: Box<Self>) -> Result<usize, Error>;
}

fn host(what: &str) -> impl Fn(Error) -> StartError + '_ {
    move |source| StartError::Host { what: what.to_owned(), source }
}

impl<P: Protocol> Workers<P> {
    /// Starts listening. A byte from the other end of `signals` stops the proxy: the first one drains
    /// clients, the second one stops at once. Sockets that were inherited are not opened anew.
    pub fn start(
        settings: &Settings,
        log: Log,
        signals: UnixStream,
        notifier: &Notifier,
        inheritance: &mut Option<Inheritance>,
    ) -> Result<Self, StartError> {
        let prepared = PreparedSettings::<P>::new(settings, log)?;
        let threads = settings.threads.get();
        let reactors = (0..threads).map(|_| Reactor::new()).collect::<Result<Vec<_>, _>>();
        let reactors = reactors.map_err(host("readiness loop"))?;
        let mailboxes = reactors.iter().map(Mailbox::of).collect::<Result<Vec<_>, _>>();
        let mailboxes: Arc<[_]> = mailboxes.map_err(host("threads"))?.into();
        let services = Services {
            metrics: Arc::default(),
            client_counts: ClientCounts::default(),
            notifier: notifier.clone(),
            key_deriver: key_deriver(Arc::clone(&mailboxes)),
            console: Arc::default(),
            began: Instant::now(),
            started: Timestamp::now(),
        };
        services.console.set_facts(Facts::of(settings, log));
        let mut workers = Vec::<Worker<P>>::new();
        let hosts = watched_hosts(settings);
        let mut pool = ConnectionPool::new(settings.limits.server_connections);
        pool.set_limits(settings.limits.server_connections, settings.limits.groups.clone());
        let pools = WorkerShared::for_workers(pool, threads);
        let shared = SharedState::for_workers(&mailboxes);
        let tokens = CancelTokens::for_workers(P::CANCEL_BY, threads);
        for (((reactor, shared), pool), tokens) in reactors.into_iter().zip(shared).zip(pools).zip(tokens) {
            let listeners = match workers.first() {
                None => open_listeners(settings, inheritance)?,
                Some(first) => first.acceptor.share().map_err(host("threads"))?,
            };
            let (prepared, services) = (prepared.clone(), services.clone());
            let parts = (reactor, Acceptor::new(listeners), tokens);
            let mut worker = Worker::new(parts, shared, pool, prepared, settings, services);
            worker.env.hosts.clone_from(&hosts);
            worker.env.connect_look_ups();
            workers.push(worker);
        }
        let mut first = workers.remove(0);
        first.signals = Some(first.watch_signals(SIGNALS, signals)?);
        Ok(Self { first, others: workers })
    }
}

impl<P: Protocol> Workers<P> {
    pub fn control(&self) -> ControlHandle<P> {
        self.first.control()
    }
}

impl<P: Protocol> ServerWorkers for Workers<P> {
    fn own_files(&mut self, addresses: &[ListenAddress]) {
        self.first.acceptor.own_files(addresses);
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.first.acceptor.addresses().collect()
    }

    fn on_signal(
        &mut self,
        task: SignalTask,
        signals: UnixStream,
        mut act: Box<dyn FnMut() + Send>,
    ) -> Result<(), StartError> {
        let token = FIRST_SIGNAL_TASK + task as usize;
        let signals = self.first.watch_signals(token, signals)?;
        let thread = OnDemandThread::new(task.name(), move |()| act());
        self.first.signal_tasks[task as usize] = Some(TaskThread { signals, thread });
        Ok(())
    }

    fn on_tick(&mut self, act: Box<dyn FnMut(Instant) + Send>) {
        self.first.ticker = Some(act);
    }

    fn run(self: Box<Self>) -> Result<usize, Error> {
        let Self { mut first, others } = *self;
        let start = |worker: Worker<P>| {
            let name = format!("serve-{}", worker.shared.thread);
            let mut worker = worker;
            thread::Builder::new().name(name).spawn(move || worker.serve_or_stop_all())
        };
        let started: Vec<_> = others.into_iter().map(start).collect();
        if started.iter().any(Result::is_err) {
            first.shared.stop_all();
        }
        let mut cut_off = vec![first.serve_or_stop_all()];
        for thread in started {
            let thread = thread.map_err(|source| Error::Socket { doing: "cannot start a thread", source })?;
            cut_off.push(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        cut_off.into_iter().sum()
    }
}

/// Listens on all addresses, or none.
fn open_listeners(
    settings: &Settings,
    inheritance: &mut Option<Inheritance>,
) -> Result<Vec<Listener>, StartError> {
    let mode = settings.allowed_uids.mode();
    let mut open = |address: &ListenAddress| {
        let inherited = inheritance.as_mut().and_then(|inheritance| inheritance.take(address));
        match (address, inherited) {
            (ListenAddress::Unix(path), Some(socket)) => Listener::inherited_unix(socket, path),
            (ListenAddress::Unix(path), None) => {
                make_directory(path, mode)?;
                Listener::unix(path, mode)
            }
            (ListenAddress::Tcp(address), Some(socket)) => Listener::inherited_tcp(socket, *address),
            (ListenAddress::Tcp(address), None) => Listener::tcp(*address),
        }
        .map_err(host(&address.to_string()))
    };
    settings.listen.iter().map(&mut open).collect()
}

/// Creates the directory of a socket if it is missing, with access for the users of the socket.
fn make_directory(socket: &Path, mode_of_socket: u32) -> Result<(), StartError> {
    let Some(directory) = socket.parent() else { return Ok(()) };
    let mode = if mode_of_socket == 0o600 { 0o700 } else { 0o711 };
    match DirBuilder::new().mode(mode).create(directory) {
        Err(source) if fs::metadata(directory).is_err() => {
            Err(StartError::Directory { path: directory.to_owned(), source })
        }
        // Created, or it existed.
        _ => Ok(()),
    }
}

/// The hosts, if there are several, if a role is needed, or if a name is watched.
fn watched_hosts(settings: &Settings) -> Option<Arc<SharedHosts>> {
    let server = &settings.server;
    let labels = server.hosts().map(ToString::to_string).collect();
    let is_watched = server.is_watched() || settings.limits.dns.is_some();
    is_watched.then(|| Arc::new(SharedHosts::new(labels, server.target, server.balance)))
}

fn key_deriver<P: Protocol>(mailboxes: Arc<[Mailbox<P>]>) -> KeyDeriver {
    KeyDeriver::new(move |server| {
        if let Some(mailbox) = mailboxes.get(server.thread()) {
            // A worker that has ended opens no connections.
            let _ = mailbox.send(WorkerMessage::KeysDerived(server));
        }
    })
}

impl<P: Protocol> Worker<P> {
    fn new(
        (reactor, acceptor, tokens): (Reactor, Acceptor, CancelTokens),
        shared: SharedState<P>,
        pool: SharedPool<P>,
        prepared: PreparedSettings<P>,
        settings: &Settings,
        services: Services,
    ) -> Self {
        let PreparedSettings { access, protocol, upstream, limits, log, version } = prepared;
        let (thread, threads) = (shared.thread, shared.threads());
        let now = services.began;
        Self {
            env: Environment {
                protocol,
                pooling: settings.pooling,
                version,
                is_timed: limits.times.is_on(),
                limits,
                server: settings.server.label(),
                log,
                access,
                upstream,
                hosts: None,
                services,
                operations: Arc::default(),
                reactor,
                spare: SpareBuffers::default(),
                now,
                drain: None,
                is_handed_over: false,
            },
            shared,
            pool,
            acceptor,
            clients: Slab::of_thread(thread, threads),
            servers: Slab::of_thread(thread, threads),
            cancels: Slab::default(),
            tokens,
            exclusive: ExclusiveDatabases::default(),
            agenda: Agenda::new(now),
            usage: UsageTotals::new(now),
            numbers: 0,
            signals: None,
            signal_tasks: [const { None }; SignalTask::ALL.len()],
            ticker: None,
        }
    }

    fn watch_signals(&self, token: usize, signals: UnixStream) -> Result<Channel, StartError> {
        let mut channel = Channel::from_unix(signals).map_err(host("signals"))?;
        let watched = self.env.register(&mut channel, TokenKind::Fixed, token, WatchedEvents::Reading);
        watched.map_err(host("signals"))?;
        Ok(channel)
    }

    /// See [`Worker::serve`]. If a worker ends without having been stopped, its connections are lost, and all others end too.
    fn serve_or_stop_all(&mut self) -> Result<usize, Error> {
        let ended = catch_unwind(AssertUnwindSafe(|| self.serve()));
        if !matches!(ended, Ok(Ok(_))) {
            self.shared.stop_all();
        }
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
