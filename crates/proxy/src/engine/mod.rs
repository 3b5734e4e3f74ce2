//! Moves the bytes: on each thread one readiness loop. What is decided is decided in the state machines; here is who is
//! connected to whom, and what becomes of the others when one of them breaks.
//!
//! A client stays on the thread that it has come to, and a server connection goes to where its client is. What threads have
//! in common is in `commons`, what they ask of one another in `post` and `moves`.

mod accept;
mod attach;
mod cancel;
mod clients;
mod commons;
mod crew;
mod derive;
mod encrypt;
mod health;
mod listeners;
mod moves;
mod orders;
mod park;
mod post;
mod pump;
mod reload;
mod servers;
mod ticks;
mod vacate;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Connecting, Listener, Peer, Reactor, Readiness, Received, SpareBuffer};

use crate::dialect::{Dialect, Leaving, Pooling, Ticket};
use crate::log::{Level, Log};
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::settings::{Limits, Uids, UnixAuth};
use crate::slab::{Id, Slab};
use crate::upstream::Upstream;
use accept::Backoff;
use commons::{Commons, SharedPool};
use encrypt::FrontTls;
use health::Upkeep;
use orders::Ops;
use post::{Letter, POST};
use vacate::Vacated;

pub use crew::Crew;
pub use orders::{Health, NoAnswer, Orders};
pub use reload::Prepared;
pub(crate) use vacate::VACATED;

/// How often limits of time are looked at.
const TICK: Duration = Duration::from_millis(250);
/// Clients that are let in before others are served.
const ACCEPTS: usize = 64;
/// Of a key, the bits that say what its number is one of.
const KIND_BITS: u32 = 2;
const SIGNALS: usize = 0;

/// One thread of a proxy that listens, for clients and a server of one protocol.
pub(crate) struct Proxy<D: Dialect> {
    commons: Commons<D>,
    dialect: D,
    pooling: Pooling,
    limits: Limits,
    server: String,
    log: Log,
    reactor: Reactor,
    listeners: Vec<Listener>,
    /// None but with the first thread.
    signals: Option<Channel>,
    door: Door,
    upstream: Upstream,
    pool: SharedPool<D>,
    clients: Slab<Client<D>>,
    servers: Slab<Server<D>>,
    cancels: Slab<Cancel>,
    /// Clients by what they were told as their process.
    by_process: HashMap<u32, Id>,
    /// Random bytes that nobody has been given.
    random: Vec<u8>,
    spare: SpareBuffer,
    /// Those that have more to say than one turn takes.
    again: Vec<Turn>,
    ready: Vec<(usize, Readiness)>,
    /// Clients wait for connections that could be opened now.
    wanting: bool,
    /// Clients that are counted, and cannot be told yet who the server is.
    early: Vec<(Box<Channel>, Peer)>,
    /// Clients may be waiting outside of whom no edge will tell.
    accept_again: bool,
    backoff: Backoff,
    /// When the proxy was started.
    began: Instant,
    now: Instant,
    next_tick: Instant,
    drain: Option<Drain>,
    ops: Ops,
    vacated: Vacated,
}

/// Whether the server has become known by a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Introduction {
    #[default]
    None,
    /// That is being opened.
    Awaited,
    /// What there is to learn of it has been sent to all threads.
    Done,
}

/// Who is let in.
#[derive(Clone)]
struct Door {
    uids: Uids,
    unix_auth: UnixAuth,
    /// How clients are encrypted; none where they are not.
    tls: Option<FrontTls>,
}

struct Client<D: Dialect> {
    channel: Channel,
    stage: ClientStage<D>,
    since: Instant,
    flow: Flow,
    /// None before it was greeted.
    ticket: Option<Ticket>,
    /// The connection that it had last.
    home: Option<Id>,
}

enum ClientStage<D: Dialect> {
    Front(D::Front),
    /// In the middle of a handshake.
    Encrypting(D::Front),
    Queued {
        key: D::Key,
        wanted: D::Wanted,
    },
    Attached(Id),
    /// Between transactions, without a connection.
    Parked {
        key: D::Key,
        wanted: D::Wanted,
    },
    /// Waits until its cancel request is done, it leaves, or the time for that is over.
    Cancelling,
    /// Is to be closed when it has taken what it was told last.
    Flushing,
}

struct Server<D: Dialect> {
    key: D::Key,
    born: Instant,
    /// Requests to cancel that are on their way to it.
    cancels: u32,
    reuse: Reuse,
    upkeep: Upkeep,
    stage: ServerStage<D>,
}

/// Whether another client may have a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Allowed,
    /// A request to cancel was lost on its way to it: nobody knows whom it would hit.
    Never,
}

enum ServerStage<D: Dialect> {
    /// None while it is moved through a call.
    Connecting {
        connecting: Option<Box<Connecting>>,
        until: Instant,
    },
    Up(Box<Backend<D>>),
}

struct Backend<D: Dialect> {
    channel: Channel,
    facts: D::Facts,
    flow: Flow,
    duty: Duty<D>,
}

/// What a server connection does.
enum Duty<D: Dialect> {
    Idle {
        since: Instant,
        errand: D::Errand,
    },
    Session {
        client: Id,
        session: D::Session,
    },
    /// It is as a client has left it, between transactions; the next one of that client finds it so.
    Kept {
        client: Id,
        since: Instant,
        remains: D::Remains,
        errand: D::Errand,
    },
    /// Its client has left, and a request to cancel is on its way: it must not hit the next one.
    Awaiting {
        until: Instant,
        leaving: Leaving<D::Remains>,
    },
    Resetting {
        errand: D::Errand,
        until: Instant,
    },
}

struct Cancel {
    connecting: Option<Connecting>,
    /// The request is sent, and the server's close is waited for.
    channel: Option<Channel>,
    server: Id,
    requester: Id,
    until: Instant,
}

/// What is known of a channel beyond its bytes.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// An edge told of bytes that were not read, as there was nowhere to put them.
    unread: bool,
    kept_back: KeptBack,
    /// The end will come, and no edge will tell of it again.
    ended: bool,
    /// It is watched for room to send.
    watched: bool,
}

/// What was received, and could not be looked at as too many answers were owed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum KeptBack {
    #[default]
    Nothing,
    Something,
}

/// Who is to be served again without an edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Accept,
    Up(Id),
    Down(Id),
    /// A client has nothing to say yet to this connection.
    Part(Id, Id),
}

struct Drain {
    until: Instant,
    cut_off: usize,
}

/// How a proxy has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every client had left.
    Drained,
    /// So many clients were cut off.
    CutOff(usize),
}

#[derive(Clone, Copy)]
enum Kind {
    Client,
    Server,
    Cancel,
    Fixed,
}

fn key_of(kind: Kind, index: usize) -> usize {
    index << KIND_BITS | kind as usize
}

fn kind_of(key: usize) -> usize {
    key & ((1 << KIND_BITS) - 1)
}

impl<D: Dialect> Proxy<D> {
    fn turn(&mut self) -> Result<(), ciphertoll_net::Error> {
        let timeout = if self.again.is_empty() {
            let next = self.backoff.until().map_or(self.next_tick, |until| until.min(self.next_tick));
            next.saturating_duration_since(Instant::now())
        } else {
            Duration::ZERO
        };
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.reactor.wait(timeout)?.map(|ready| (ready.key, ready.readiness)));
        self.now = Instant::now();
        // Before anything else: what another thread's clients leave behind is not for ours whose time is over.
        self.cut_off();
        // Servers first: a connection that has ended must not be given to a client that came in the same moment.
        for servers in [true, false] {
            for (key, readiness) in &ready {
                if (kind_of(*key) == Kind::Server as usize) == servers {
                    self.ready(*key, *readiness);
                }
            }
        }
        ready.clear();
        self.ready = ready;
        for turn in std::mem::take(&mut self.again) {
            match turn {
                Turn::Accept => self.accept(),
                Turn::Up(client) => self.go_on(client),
                Turn::Down(server) => self.pump_down(server),
                Turn::Part(client, server) => self.part_early(client, server),
            }
        }
        if self.backoff.is_due(self.now) {
            self.accept();
        }
        if self.now >= self.next_tick {
            self.tick();
            self.next_tick = self.now + TICK;
        }
        // Last, so that it does not sleep on what it has made room for.
        while std::mem::take(&mut self.wanting) {
            self.relieve();
        }
        self.clients.settle();
        self.servers.settle();
        self.cancels.settle();
        Ok(())
    }

    fn ready(&mut self, key: usize, readiness: Readiness) {
        let index = key >> KIND_BITS;
        match kind_of(key) {
            kind if kind == Kind::Client as usize => {
                if let Some(id) = self.clients.at(index) {
                    self.client_ready(id, readiness);
                }
            }
            kind if kind == Kind::Server as usize => {
                if let Some(id) = self.servers.at(index) {
                    self.server_ready(id, readiness);
                }
            }
            kind if kind == Kind::Cancel as usize => {
                if let Some(id) = self.cancels.at(index) {
                    self.cancel_ready(id, readiness);
                }
            }
            _ if index == SIGNALS => self.signalled(),
            _ if index == POST => self.read_letters(),
            _ => self.accept(),
        }
    }

    /// Whether clients can be told who the server is. If not, they wait at the door while that is found out.
    fn is_introduced(&mut self) -> bool {
        let Some(key) = self.dialect.unknown() else { return true };
        let begins = self.commons.outlook.with(|outlook| {
            let begins = outlook.introduction == Introduction::None;
            if begins {
                outlook.introduction = Introduction::Awaited;
            }
            begins
        });
        if begins {
            self.pool.with(|pool| pool.open_unasked(&key));
            self.open_server(&key);
        }
        false
    }

    /// Tells those who wait at the door why they cannot come in.
    fn turn_away(&mut self, refusal: &Refusal) {
        for (channel, peer) in std::mem::take(&mut self.early) {
            if let Some(id) = self.admit(*channel, peer) {
                self.refuse(id, refusal);
            }
        }
        for at in 0..self.listeners.len() {
            for _ in 0..ACCEPTS {
                let Some(listener) = self.listeners.get_mut(at) else { return };
                let Ok(Some((channel, peer))) = listener.accept() else { break };
                self.commons.seat_at(self.commons.thread);
                if let Some(id) = self.admit(channel, peer) {
                    self.refuse(id, refusal);
                }
            }
        }
        self.accept_again = true;
    }

    /// Begins with a client, which is counted already.
    fn admit(&mut self, channel: Channel, peer: Peer) -> Option<Id> {
        let admission = self.door.admission(peer);
        let id = self.clients.insert(Client {
            channel,
            stage: ClientStage::Front(self.dialect.front(admission)),
            since: self.now,
            flow: Flow::default(),
            ticket: None,
            home: None,
        });
        self.ops.metrics.clients.up();
        let client = self.clients.get_mut(id)?;
        let registered = self.reactor.register_reading(&mut client.channel, key_of(Kind::Client, id.index));
        if let Err(error) = registered {
            self.accept_failed(&error);
            self.remove_client(id);
            return None;
        }
        Some(id)
    }

    /// Somebody wants it to end.
    fn signalled(&mut self) {
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
        let clients = self.commons.clients();
        let open = self.pool.look(Pool::open);
        let seconds = wait.as_secs_f64();
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("clients", &clients), ("server_connections", &open), ("wait_s", &seconds)];
        self.log.event(Level::Info, "stopping", &fields);
        self.ops.notifier.stopping();
        let until = self.now + wait;
        self.commons.tell(|| Letter::Stop(until));
        self.stop(until);
    }
}
