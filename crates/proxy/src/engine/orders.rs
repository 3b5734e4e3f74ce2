//! What other threads of the program want of those that serve: how it stands, and that it goes on with other settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::derive::Deriver;
use super::post::{Letter, Post};
use super::reload::Prepared;
use super::{ClientStage, Duty, Proxy, ServerStage};
use crate::dialect::{Dialect, Key};
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::status::{CertificateStatus, Clients, Counts, Most, PoolStatus, Status, ThreadStatus};

/// A serving thread answers between two turns, which take less than a millisecond. Who asks how it stands wants to be
/// told soon if it is stuck.
const PATIENCE: Duration = Duration::from_secs(2);
/// Settings that were handed over are taken over however late that is: nobody should hear sooner that they were not.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(15);

/// The way to a proxy that runs, for other threads.
pub struct Orders<D: Dialect> {
    posts: Arc<[Post<D>]>,
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

impl<D: Dialect> Clone for Orders<D> {
    fn clone(&self) -> Self {
        Self { posts: Arc::clone(&self.posts), metrics: Arc::clone(&self.metrics) }
    }
}

impl<D: Dialect> Orders<D> {
    /// How it stands. Each thread says it of itself, one a moment after another.
    pub fn status(&self) -> Result<Status, NoAnswer> {
        let parts = self.ask_all(PATIENCE, Order::Status)?;
        parts.into_iter().reduce(Status::and).ok_or(NoAnswer)
    }

    /// Whether clients that come now would be served. Where nobody knows, it is found out.
    pub fn health(&self) -> Result<Health, NoAnswer> {
        // What the first thread knows of connections all know.
        let first = self.posts.first().ok_or(NoAnswer)?;
        answer(&ask(first, Order::Health)?, Instant::now() + PATIENCE)
    }

    /// Has it go on with these settings: new clients and new server connections, that is.
    pub fn renew(&self, prepared: &Prepared<D>) -> Result<(), NoAnswer> {
        let renew = |done| Order::Renew(Box::new(prepared.clone()), done);
        self.ask_all(RENEWAL_PATIENCE, renew).map(|_| ())
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What each thread answers; they have so long for it together.
    fn ask_all<T>(
        &self,
        patience: Duration,
        order: impl Fn(Sender<T>) -> Order<D>,
    ) -> Result<Vec<T>, NoAnswer> {
        let until = Instant::now() + patience;
        let asked: Result<Vec<_>, _> = self.posts.iter().map(|post| ask(post, &order)).collect();
        asked?.iter().map(|answered| answer(answered, until)).collect()
    }
}

fn ask<D: Dialect, T>(
    post: &Post<D>,
    order: impl FnOnce(Sender<T>) -> Order<D>,
) -> Result<Receiver<T>, NoAnswer> {
    let (answer, answered) = mpsc::channel();
    match post.send(Letter::Order(order(answer))) {
        None => Ok(answered),
        Some(_) => Err(NoAnswer),
    }
}

fn answer<T>(answered: &Receiver<T>, until: Instant) -> Result<T, NoAnswer> {
    let left = until.saturating_duration_since(Instant::now());
    answered.recv_timeout(left).map_err(|_| NoAnswer)
}

/// What a proxy needs for its upkeep, and for no session.
pub(super) struct Ops {
    pub(super) metrics: Arc<Metrics>,
    pub(super) notifier: Notifier,
    pub(super) deriver: Deriver,
    pub(super) started: Timestamp,
}

impl<D: Dialect> Proxy<D> {
    /// The way to all threads, for other ones.
    pub(super) fn orders(&self) -> Orders<D> {
        Orders { posts: Arc::clone(&self.commons.posts), metrics: Arc::clone(&self.ops.metrics) }
    }

    /// Does what a thread wants that serves nobody.
    pub(super) fn ordered(&mut self, order: Order<D>) {
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

    /// How this thread stands, and what the same of all.
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
            threads: vec![ThreadStatus {
                clients: self.clients.len(),
                server_connections: self.servers.len(),
            }],
            counts: Counts {
                sessions: metrics.sessions.get(),
                refused: metrics.refusals.total(),
                opened: metrics.opened.get(),
                failed: metrics.failed.total(),
                closed: metrics.closed.total(),
                pins: metrics.pins.total(),
                steals: metrics.steals.get(),
                moves: metrics.moves.get(),
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
        for client in self.clients.ids().into_iter().filter_map(|id| self.clients.get(id)) {
            if let ClientStage::Queued { key, .. } = &client.stage {
                pools.entry((key.user(), key.database())).or_insert_with(|| empty(key)).waiting += 1;
            }
        }
        pools.into_values().collect()
    }
}
