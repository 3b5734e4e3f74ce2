//! Moves the bytes, with one readiness loop per worker. Decisions are made in the state machines; this module
//! knows which client uses which connection, and what to do with one side when the other one breaks.
//!
//! Clients stay on their worker, and server connections move to the worker of their client. `shared_state`
//! has what workers share, `mailbox` and `transfer` what they send each other.

mod accept;
mod backoff;
mod cancel;
mod client_tls;
mod clients;
mod control;
mod exclusive;
mod health;
mod key_deriver;
mod mailbox;
mod park;
mod pump;
mod servers;
mod shared_state;
mod timeouts;
mod transfer;
mod workers;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ciphertoll_net::{
    Channel, Connecting, Error, Listener, Peer, Reactor, Readiness, Received, SpareBuffer, WatchedEvents,
};

use crate::log::{Level, Log};
use crate::pool::ConnectionPool;
use crate::protocol::{CancelToken, Pooling, Protocol, Release};
use crate::random::RandomBytes;
use crate::refusal::Refusal;
use crate::settings::{AllowedUids, Limits, UnixAuth};
use crate::slab::{Id, Slab};
use crate::upstream::Upstream;
use accept::UnloggedFailures;
use backoff::Backoff;
use client_tls::ClientTls;
use control::Services;
use exclusive::ExclusiveDatabases;
use health::Upkeep;
use mailbox::{MAILBOX, WorkerMessage};
use shared_state::{SharedPool, SharedState};

pub use control::{ControlHandle, Health, NoAnswer, PreparedSettings};
pub use workers::Workers;

const TICK: Duration = Duration::from_millis(250);
const ACCEPTS: usize = 64;
const KIND_BITS: u32 = 2;
const SIGNALS: usize = 0;

/// One worker thread of a proxy, for clients and a server of one protocol.
pub(crate) struct Worker<P: Protocol> {
    shared: SharedState<P>,
    protocol: P,
    pooling: Pooling,
    limits: Limits,
    server: String,
    log: Log,
    reactor: Reactor,
    listeners: Vec<Listener>,
    /// Only on the first worker.
    signals: Option<Channel>,
    access: AccessRules,
    upstream: Upstream,
    pool: SharedPool<P>,
    clients: Slab<ClientConnection<P>>,
    servers: Slab<ServerConnection<P>>,
    cancels: Slab<CancelRequest>,
    /// Clients by the process ID that the proxy sent to them.
    by_process: HashMap<u32, Id>,
    random: RandomBytes,
    spare: SpareBuffer,
    /// Work for the next turn that no edge announces.
    deferred: Vec<DeferredWork>,
    ready: Vec<(usize, Readiness)>,
    /// Clients may be waiting for connections that can be opened now.
    check_unserved: bool,
    /// Clients that are counted, but cannot be greeted before the server is known.
    early_clients: Vec<(Box<Channel>, Peer)>,
    /// The accept queue may be non-empty with no edge pending; retry on the next tick.
    retry_accept: bool,
    /// Of accepting, while the machine lacks resources.
    backoff: Backoff,
    accept_failures: UnloggedFailures,
    now: Instant,
    next_tick: Instant,
    drain: Option<Drain>,
    services: Services,
    exclusive: ExclusiveDatabases,
}

/// Whether the server's greeting is known, which clients are greeted with.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Discovery {
    #[default]
    NotStarted,
    /// A connection is being opened for it.
    Running,
    /// All workers know what was learned from it.
    Done,
}

/// Which clients are accepted, and how they authenticate.
#[derive(Clone)]
struct AccessRules {
    uids: AllowedUids,
    unix_auth: UnixAuth,
    /// `None` if TLS is not offered.
    tls: Option<ClientTls>,
}

struct ClientConnection<P: Protocol> {
    channel: Channel,
    stage: ClientStage<P>,
    since: Instant,
    flow: Flow,
    /// `None` before the login is complete.
    cancel_token: Option<CancelToken>,
    /// The connection that it used last.
    last_server: Option<Id>,
}

enum ClientStage<P: Protocol> {
    Handshake(P::Handshake),
    TlsHandshake(P::Handshake),
    Queued {
        key: P::Key,
        request: P::Request,
    },
    Active(Id),
    /// Between transactions, without a connection.
    Parked {
        key: P::Key,
        request: P::Request,
    },
    /// Waits until its cancel request is done or timed out.
    Cancelling,
    /// Closed when its pending output is sent.
    Flushing,
}

impl<P: Protocol> ClientStage<P> {
    /// Takes the key and the request of a client that waits or is parked.
    fn take_waiting(&mut self) -> Option<(P::Key, P::Request)> {
        match std::mem::replace(self, Self::Flushing) {
            Self::Queued { key, request } | Self::Parked { key, request } => Some((key, request)),
            other => {
                *self = other;
                None
            }
        }
    }

    /// A client that waits for a connection no longer does, because it was greeted or its command was cancelled.
    fn park(&mut self) {
        if let Some((key, request)) = self.take_waiting() {
            *self = Self::Parked { key, request };
        }
    }

    /// A parked client waits for a connection of this key.
    fn queue(&mut self) -> Option<P::Key> {
        let (key, request) = self.take_waiting()?;
        *self = Self::Queued { key: key.clone(), request };
        Some(key)
    }
}

impl<P: Protocol> Backend<P> {
    fn session(&self) -> Option<&P::Session> {
        match &self.activity {
            Activity::Session { session, .. } => Some(session),
            _ => None,
        }
    }
}

struct ServerConnection<P: Protocol> {
    key: P::Key,
    opened_at: Instant,
    /// Cancel requests that are on their way to it.
    cancels: u32,
    /// A cancel request was lost on its way: it may still cancel a command of the next client.
    lost_cancel: bool,
    upkeep: Upkeep,
    stage: ServerStage<P>,
}

impl<P: Protocol> Slab<ServerConnection<P>> {
    fn open(&self, id: Id) -> Option<&Backend<P>> {
        match &self.get(id)?.stage {
            ServerStage::Open(backend) => Some(backend),
            ServerStage::Connecting { .. } => None,
        }
    }

    fn open_mut(&mut self, id: Id) -> Option<&mut Backend<P>> {
        match &mut self.get_mut(id)?.stage {
            ServerStage::Open(backend) => Some(backend),
            ServerStage::Connecting { .. } => None,
        }
    }
}

enum ServerStage<P: Protocol> {
    /// `None` only during a step.
    Connecting {
        connecting: Option<Box<Connecting>>,
        until: Instant,
    },
    Open(Box<Backend<P>>),
}

struct Backend<P: Protocol> {
    channel: Channel,
    state: P::BackendState,
    flow: Flow,
    activity: Activity<P>,
}

enum Activity<P: Protocol> {
    Idle {
        since: Instant,
        command: P::Command,
    },
    Session {
        client: Id,
        session: P::Session,
    },
    /// Kept without a reset for its client's next transaction.
    Kept {
        client: Id,
        since: Instant,
        context: P::ResetContext,
        command: P::Command,
    },
    /// Its client has left, and a cancel request is on its way: it must not hit the next client's command.
    AwaitingCancel {
        until: Instant,
        release: Release<P::ResetContext>,
    },
    Resetting {
        command: P::Command,
        until: Instant,
    },
}

struct CancelRequest {
    connecting: Option<Connecting>,
    /// The request is sent; the server has not closed the connection yet.
    channel: Option<Channel>,
    server: Id,
    requester: Id,
    until: Instant,
}

#[derive(Clone, Copy, Default)]
struct Flow {
    /// An edge reported bytes that were not read, because there was no room for them.
    unread: bool,
    held_back: HeldBack,
    /// The peer has closed its side; no edge will report that again.
    ended: bool,
    /// Watched for room to send.
    watched: bool,
}

impl Flow {
    /// Waits for room to send only while output is pending.
    fn watch(&mut self, channel: &mut Channel, reactor: &Reactor, token: usize) -> Result<(), Error> {
        let blocked = channel.is_blocked();
        if blocked == self.watched {
            return Ok(());
        }
        self.watched = blocked;
        let watch = if blocked { WatchedEvents::Both } else { WatchedEvents::Reading };
        reactor.watch(channel, token, watch)
    }
}

/// Whether received bytes were not processed because too many responses were owed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum HeldBack {
    #[default]
    Nothing,
    Something,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeferredWork {
    Accept,
    Client(Id),
    Server(Id),
    /// A client has not sent anything to this connection yet.
    Park(Id, Id),
}

struct Drain {
    until: Instant,
    cut_off: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Client,
    Server,
    Cancel,
    Fixed,
}

fn token_of(kind: TokenKind, index: usize) -> usize {
    index << KIND_BITS | kind as usize
}

fn token_kind(key: usize) -> TokenKind {
    let kinds = [TokenKind::Client, TokenKind::Server, TokenKind::Cancel, TokenKind::Fixed];
    kinds[key & (kinds.len() - 1)]
}

impl<P: Protocol> Worker<P> {
    fn turn(&mut self) -> Result<(), Error> {
        let timeout = if self.deferred.is_empty() {
            let next = self.backoff.until().map_or(self.next_tick, |until| until.min(self.next_tick));
            next.saturating_duration_since(Instant::now())
        } else {
            Duration::ZERO
        };
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.reactor.wait(timeout)?.map(|ready| (ready.key, ready.readiness)));
        self.now = Instant::now();
        // First, so that what another worker's client leaves behind is not handed to a client that has run
        // out of time.
        self.cut_off_clients();
        // Servers first: a connection that has just ended must not be assigned to a client that has just
        // connected.
        for servers in [true, false] {
            for (key, readiness) in &ready {
                if (token_kind(*key) == TokenKind::Server) == servers {
                    self.ready(*key, *readiness);
                }
            }
        }
        ready.clear();
        self.ready = ready;
        for turn in std::mem::take(&mut self.deferred) {
            match turn {
                DeferredWork::Accept => self.accept(),
                DeferredWork::Client(client) => self.continue_client(client),
                DeferredWork::Server(server) => self.pump_to_client(server),
                DeferredWork::Park(client, server) => self.park_early(client, server),
            }
        }
        if self.backoff.until().is_some_and(|until| self.now >= until) {
            self.accept();
        }
        if self.now >= self.next_tick {
            self.tick();
            self.next_tick = self.now + TICK;
        }
        // Last, so that the worker does not sleep after making room for a waiting client.
        while std::mem::take(&mut self.check_unserved) {
            self.serve_waiting();
        }
        self.clients.settle();
        self.servers.settle();
        self.cancels.settle();
        Ok(())
    }

    fn ready(&mut self, key: usize, readiness: Readiness) {
        let (kind, index) = (token_kind(key), key >> KIND_BITS);
        if kind == TokenKind::Fixed {
            return match index {
                SIGNALS => self.handle_signals(),
                MAILBOX => self.read_messages(),
                _ => self.accept(),
            };
        }
        if kind == TokenKind::Client
            && let Some(id) = self.clients.at(index)
        {
            self.client_ready(id, readiness);
        } else if kind == TokenKind::Server
            && let Some(id) = self.servers.at(index)
        {
            self.server_ready(id, readiness);
        } else if kind == TokenKind::Cancel
            && let Some(id) = self.cancels.at(index)
        {
            self.cancel_ready(id, readiness);
        }
    }

    /// Whether clients can be greeted. If not, a connection is opened to learn the server's greeting.
    fn is_server_known(&mut self) -> bool {
        let Some(key) = self.protocol.discovery_key() else { return true };
        if self.shared.replace_discovery(Discovery::NotStarted, Discovery::Running) {
            self.pool.with(|pool| pool.open_unconditionally(&key));
            self.open_server(&key);
        }
        false
    }

    /// Sends an error message to the clients that wait for the server's greeting.
    fn refuse_early_clients(&mut self, refusal: &Refusal) {
        for listener in &mut self.listeners {
            for _ in 0..ACCEPTS {
                let Ok(Some((channel, peer))) = listener.accept() else { break };
                self.shared.count_client(self.shared.thread);
                self.early_clients.push((Box::new(channel), peer));
            }
        }
        for (channel, peer) in std::mem::take(&mut self.early_clients) {
            if let Some(id) = self.add_client(*channel, peer) {
                self.refuse(id, refusal);
            }
        }
        self.retry_accept = true;
    }

    /// Adds a client, which is counted already.
    fn add_client(&mut self, channel: Channel, peer: Peer) -> Option<Id> {
        let auth = self.access.auth_for(peer);
        let stage = ClientStage::Handshake(self.protocol.handshake(auth));
        self.services.metrics.clients.increment();
        self.insert_client(channel, stage)
    }

    fn insert_client(&mut self, channel: Channel, stage: ClientStage<P>) -> Option<Id> {
        let id = self.clients.insert(ClientConnection {
            channel,
            stage,
            since: self.now,
            flow: Flow::default(),
            cancel_token: None,
            last_server: None,
        });
        let client = self.clients.get_mut(id)?;
        let token = token_of(TokenKind::Client, id.index);
        let registered = self.reactor.register(&mut client.channel, token, WatchedEvents::Reading);
        if let Err(error) = registered {
            self.accept_failed(&error);
            self.remove_client(id);
            return None;
        }
        Some(id)
    }

    fn handle_signals(&mut self) {
        let Some(channel) = &mut self.signals else { return };
        let received = channel.receive_input();
        let signals = channel.input().len();
        channel.consume(signals);
        if signals == 0 && !matches!(received, Ok(Received::Closed)) {
            return;
        }
        let wait = match self.drain {
            None if signals <= 1 => self.limits.drain,
            _ => Duration::ZERO,
        };
        let clients = self.shared.clients();
        let open = self.pool.read(ConnectionPool::open);
        let seconds = wait.as_secs_f64();
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("clients", &clients), ("server_connections", &open), ("wait_s", &seconds)];
        self.log.event(Level::Info, "stopping", &fields);
        self.services.notifier.stopping();
        let until = self.now + wait;
        self.shared.broadcast(|| WorkerMessage::Stop(until));
        self.stop(until);
    }
}
