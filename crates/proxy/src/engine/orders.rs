//! What other threads of the program want of the one that serves: how it stands, and that it goes on with other settings.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Reactor};
use jiff::Timestamp;

use super::health::Warmth;
use super::reload::Prepared;
use super::{ClientStage, Duty, Kind, Proxy, ServerStage, key_of};
use crate::dialect::{Dialect, Key};
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::status::{CertificateStatus, Clients, Counts, Most, PoolStatus, Status};

/// Behind the signals.
pub(super) const ORDERS: usize = 1;
/// The serving thread answers between two turns, which take less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way to a proxy that runs, for other threads.
pub struct Orders<D> {
    sender: Sender<Order<D>>,
    /// Whatever is written to it wakes the proxy.
    bell: Arc<UnixStream>,
    metrics: Arc<Metrics>,
}

/// What is wanted, and to whom it is said that it was done.
pub(super) enum Order<D> {
    Status(Sender<Status>),
    Health(Sender<Health>),
    Renew(Box<Prepared<D>>, Sender<()>),
}

/// Whether clients that come now would be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// There is a server connection, or was one a moment ago.
    Well,
    /// There is none, and it is being tried to open one.
    NoServer,
    /// The proxy is stopping.
    Stopping,
}

/// The proxy has ended, or is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy does not answer")]
pub struct NoAnswer;

impl<D> Clone for Orders<D> {
    fn clone(&self) -> Self {
        let Self { sender, bell, metrics } = self;
        Self { sender: sender.clone(), bell: Arc::clone(bell), metrics: Arc::clone(metrics) }
    }
}

impl<D> Orders<D> {
    /// How it stands.
    pub fn status(&self) -> Result<Status, NoAnswer> {
        self.ask(Order::Status)
    }

    /// Whether clients that come now would be served. Where nobody knows, it is found out.
    pub fn health(&self) -> Result<Health, NoAnswer> {
        self.ask(Order::Health)
    }

    /// Has it go on with these settings: new clients and new server connections, that is.
    pub fn renew(&self, prepared: Prepared<D>) -> Result<(), NoAnswer> {
        self.ask(|done| Order::Renew(Box::new(prepared), done))
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order<D>) -> Result<T, NoAnswer> {
        let (answer, answered) = mpsc::channel();
        self.sender.send(order(answer)).map_err(|_| NoAnswer)?;
        // A bell that takes no more bytes has rung.
        let _ = (&*self.bell).write(&[0]);
        answered.recv_timeout(PATIENCE).map_err(|_| NoAnswer)
    }
}

/// What a proxy needs for its upkeep, and for no session.
pub(super) struct Ops<D> {
    pub(super) metrics: Arc<Metrics>,
    pub(super) notifier: Notifier,
    pub(super) warmth: Warmth,
    orders: Receiver<Order<D>>,
    bell: Channel,
    way: Orders<D>,
    started: Timestamp,
}

impl<D> Ops<D> {
    pub(super) fn new(notifier: Notifier, reactor: &Reactor) -> Result<Self, Error> {
        let bells = UnixStream::pair().and_then(|(ours, theirs)| {
            theirs.set_nonblocking(true)?;
            Ok((ours, theirs))
        });
        let (ours, theirs) =
            bells.map_err(|source| Error::Socket { doing: "cannot make a pair of sockets", source })?;
        let mut bell = Channel::from_unix(ours)?;
        reactor.register_reading(&mut bell, key_of(Kind::Fixed, ORDERS))?;
        let (sender, orders) = mpsc::channel();
        let metrics = Arc::new(Metrics::default());
        let way = Orders { sender, bell: Arc::new(theirs), metrics: Arc::clone(&metrics) };
        Ok(Self {
            metrics,
            notifier,
            warmth: Warmth::default(),
            orders,
            bell,
            way,
            started: Timestamp::now(),
        })
    }
}

impl<D: Dialect> Proxy<D> {
    /// The way to it, for other threads.
    pub fn orders(&self) -> Orders<D> {
        self.ops.way.clone()
    }

    /// Does what other threads want.
    pub(super) fn ordered(&mut self) {
        // What is wrong with it is nothing that matters: an order is an order.
        let _ = self.ops.bell.receive_input();
        let rung = self.ops.bell.input().len();
        self.ops.bell.consume(rung);
        while let Ok(order) = self.ops.orders.try_recv() {
            // Who has given up waiting wants no answer.
            let _ = match order {
                Order::Status(answer) => answer.send(self.status()).is_ok(),
                Order::Health(answer) => answer.send(self.health()).is_ok(),
                Order::Renew(prepared, done) => {
                    self.renew(*prepared);
                    done.send(()).is_ok()
                }
            };
        }
    }

    fn status(&self) -> Status {
        let metrics = &self.ops.metrics;
        let certificate = |expiry: &crate::upstream::Expiry| CertificateStatus {
            file: expiry.file.display().to_string(),
            expires_unix_s: expiry.at_unix_s,
        };
        let in_front = self.door.tls.iter().flat_map(|tls| &tls.expiries);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server: self.server.clone(),
            started_unix_s: self.ops.started.as_second(),
            draining: self.drain.is_some(),
            clients: self.clients_by_stage(),
            limits: Most {
                clients: self.limits.clients,
                queued: self.limits.queued,
                server_connections: self.limits.server_connections,
            },
            pools: self.pools(),
            counts: Counts {
                sessions: metrics.sessions.get(),
                refused: metrics.refusals.total(),
                opened: metrics.opened.get(),
                failed: metrics.failed.total(),
                closed: metrics.closed.total(),
                pins: metrics.pins.total(),
                steals: metrics.steals.get(),
                reloads: metrics.reloads.get(),
                reloads_failed: metrics.reloads_failed.get(),
            },
            certificates: in_front.chain(self.upstream.expiries()).map(certificate).collect(),
        }
    }

    fn clients_by_stage(&self) -> Clients {
        let mut clients = Clients::default();
        for client in self.clients.ids().into_iter().filter_map(|id| self.clients.get(id)) {
            *match client.stage {
                ClientStage::Front(_) | ClientStage::Encrypting(_) => &mut clients.logging_in,
                ClientStage::Queued { .. } => &mut clients.queued,
                ClientStage::Attached(_) => &mut clients.in_session,
                ClientStage::Parked { .. } => &mut clients.parked,
                ClientStage::Cancelling | ClientStage::Flushing => &mut clients.leaving,
            } += 1;
        }
        clients
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let mut pools: BTreeMap<(&str, &str), PoolStatus> = BTreeMap::new();
        let empty = |key: &D::Key| PoolStatus {
            user: key.user().to_owned(),
            database: key.database().to_owned(),
            ..PoolStatus::default()
        };
        for (key, waiting) in self.pool.waiting() {
            pools.entry((key.user(), key.database())).or_insert_with(|| empty(key)).waiting = waiting;
        }
        let now = Instant::now();
        for server in self.servers.ids().into_iter().filter_map(|id| self.servers.get(id)) {
            let key = &server.key;
            let pool = pools.entry((key.user(), key.database())).or_insert_with(|| empty(key));
            pool.oldest_s = pool.oldest_s.max(now.duration_since(server.born).as_secs_f64());
            *match &server.stage {
                ServerStage::Connecting { .. } => &mut pool.opening,
                ServerStage::Up(backend) => match backend.duty {
                    Duty::Idle { .. } => &mut pool.idle,
                    Duty::Session { .. } => &mut pool.busy,
                    Duty::Kept { .. } => &mut pool.kept,
                    Duty::Awaiting { .. } | Duty::Resetting { .. } => &mut pool.resetting,
                },
            } += 1;
        }
        pools.into_values().collect()
    }
}
