//! The worker threads of a proxy: how they start, and how they end together.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Listener, Reactor, SpareBuffers, WatchedEvents};
use jiff::Timestamp;

use super::accept::Acceptor;
use super::agenda::Agenda;
use super::cancel_tokens::CancelTokens;
use super::control::{ControlHandle, PreparedSettings};
use super::environment::{Environment, Services};
use super::exclusive::ExclusiveDatabases;
use super::flow::TokenKind;
use super::key_deriver::KeyDeriver;
use super::mailbox::{Mailbox, WorkerMessage};
use super::shared_state::{SharedPool, SharedState};
use super::spread::Spread;
use super::worker::{SIGNALS, Worker};
use super::worker_shared::WorkerShared;
use crate::inheritance::Inheritance;
use crate::log::Log;
use crate::notify::Notifier;
use crate::pool::{ConnectionPool, WorkerBound};
use crate::protocol::Protocol;
use crate::settings::{ListenAddress, Settings, StartError};
use crate::slab::Slab;

pub struct Workers<P: Protocol> {
    first: Worker<P>,
    others: Vec<Worker<P>>,
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
        let no_thread = |source| host("threads")(Error::Socket { doing: "cannot start a thread", source });
        let services = Services {
            metrics: Arc::default(),
            notifier: notifier.clone(),
            key_deriver: start_key_deriver(Arc::clone(&mailboxes)).map_err(no_thread)?,
            began: Instant::now(),
            started: Timestamp::now(),
        };
        let mut workers = Vec::<Worker<P>>::new();
        let pool = ConnectionPool::new(settings.limits.server_connections);
        let pools = WorkerShared::for_workers(pool, threads);
        let accepting = if settings.limits.thread_load_percent == 0 { threads } else { 1 };
        let shared = SharedState::for_workers(&mailboxes, accepting);
        let tokens = CancelTokens::for_workers(threads);
        for (((reactor, shared), pool), tokens) in reactors.into_iter().zip(shared).zip(pools).zip(tokens) {
            let listeners = match workers.first() {
                None => open_listeners(settings, inheritance)?,
                Some(first) => first.acceptor.share().map_err(host("threads"))?,
            };
            let (prepared, services) = (prepared.clone(), services.clone());
            let parts = (reactor, Acceptor::new(listeners), tokens);
            workers.push(Worker::new(parts, shared, pool, prepared, settings, services));
        }
        let mut first = workers.remove(0);
        let mut signals = Channel::from_unix(signals).map_err(host("signals"))?;
        let watched = first.env.register(&mut signals, TokenKind::Fixed, SIGNALS, WatchedEvents::Reading);
        watched.map_err(host("signals"))?;
        first.signals = Some(signals);
        Ok(Self { first, others: workers })
    }

    /// The files of inherited sockets are this process's.
    pub fn own_files(&mut self, addresses: &[ListenAddress]) {
        self.first.acceptor.own_files(addresses);
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.first.acceptor.addresses().collect()
    }

    pub fn control(&self) -> ControlHandle<P> {
        self.first.control()
    }

    /// Serves on this thread and further ones until the proxy is stopped. Returns how many clients were cut off.
    pub fn run(self) -> Result<usize, Error> {
        let Self { first, others } = self;
        let mut handles = Vec::new();
        for worker in others {
            let name = format!("serve-{}", worker.shared.thread);
            match thread::Builder::new().name(name).spawn(move || worker.serve()) {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    first.shared.stop_all();
                    let _ = join(handles);
                    return Err(Error::Socket { doing: "cannot start a thread", source });
                }
            }
        }
        let ended = first.serve();
        let others = join(handles);
        Ok(ended? + others?)
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

/// Creates the directory of a socket if it is missing, for the users who may use the socket.
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

fn start_key_deriver<P: Protocol>(mailboxes: Arc<[Mailbox<P>]>) -> io::Result<KeyDeriver> {
    KeyDeriver::start(move |server| {
        if let Some(mailbox) = mailboxes.get(server.thread()) {
            // A worker that has ended opens no connections.
            let _ = mailbox.send(WorkerMessage::KeysDerived(server));
        }
    })
}

fn join(handles: Vec<JoinHandle<Result<usize, Error>>>) -> Result<usize, Error> {
    let ended: Vec<_> = handles.into_iter().map(JoinHandle::join).collect();
    ended.into_iter().map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic))).sum()
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
                limits,
                server: settings.server.address.to_string(),
                log,
                access,
                upstream,
                services,
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
            spread: (thread == 0).then(|| Spread::new(threads, now)),
            signals: None,
        }
    }

    fn serve(self) -> Result<usize, Error> {
        let mut guard = StopAllOnPanic(self);
        let worker = &mut guard.0;
        let ended = worker.turns();
        if ended.is_err() {
            worker.shared.stop_all();
        }
        ended
    }
}
