//! Control of the workers by other threads of the program: status, health, and settings that can change while a
//! proxy runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::client_tls::ClientTls;
use super::key_deriver::KeyDeriver;
use super::mailbox::{Mailbox, WorkerMessage};
use super::{AccessRules, Activity, ClientStage, ServerStage, Worker};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::protocol::{PoolKey, Protocol};
use crate::settings::{Limits, Settings, StartError};
use crate::status::{
    CertificateStatus, ClientStates, PoolStatus, Status, StatusCounters, StatusLimits, ThreadStatus,
};
use crate::upstream::{CertificateExpiry, Upstream};

/// A turn of a worker takes less than a millisecond: a status request fails soon if a worker is stuck.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Settings that were handed over take effect however late: a reload must not be reported as failed too soon.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct ControlHandle<P: Protocol> {
    mailboxes: Arc<[Mailbox<P>]>,
    metrics: Arc<Metrics>,
}

/// What a thread that is not a worker asks of one.
pub(super) type ControlRequest<P> = Box<dyn FnOnce(&mut Worker<P>) + Send>;

/// Whether new clients would be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// A server connection is open, or one was opened a moment ago.
    Well,
    /// None is open, and attempts to open one continue.
    NoServer,
    Stopping,
}

/// The proxy has ended or is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy does not answer")]
pub struct NoAnswer;

impl<P: Protocol> ControlHandle<P> {
    /// The status of all workers, collected one after another.
    pub fn status(&self) -> Result<Status, NoAnswer> {
        let parts = request(&self.mailboxes, STATUS_TIMEOUT, || |worker: &mut Worker<P>| worker.status())?;
        parts.into_iter().reduce(Status::merge).ok_or(NoAnswer)
    }

    /// Whether new clients would be served. If that is not known, a connection is opened to find out.
    pub fn health(&self) -> Result<Health, NoAnswer> {
        // All workers know the same about the server.
        let first = self.mailboxes.first().map_or(&[][..], std::slice::from_ref);
        request(first, STATUS_TIMEOUT, || Worker::health)?.pop().ok_or(NoAnswer)
    }

    /// Applies new settings, for new clients and new server connections.
    pub fn apply_settings(&self, prepared: &PreparedSettings<P>) -> Result<(), NoAnswer> {
        let apply = || {
            let prepared = prepared.clone();
            move |worker: &mut Worker<P>| worker.apply_settings(prepared)
        };
        request(&self.mailboxes, RELOAD_TIMEOUT, apply).map(|_| ())
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// The responses of these workers, within one deadline.
fn request<P: Protocol, T: Send + 'static, F: FnOnce(&mut Worker<P>) -> T + Send + 'static>(
    mailboxes: &[Mailbox<P>],
    timeout: Duration,
    ask: impl Fn() -> F,
) -> Result<Vec<T>, NoAnswer> {
    let until = Instant::now() + timeout;
    let send = |mailbox: &Mailbox<P>| {
        let ((reply, response), ask) = (mpsc::channel(), ask());
        // The other side may have given up waiting.
        let run: ControlRequest<P> = Box::new(move |worker| drop(reply.send(ask(worker))));
        mailbox.send(WorkerMessage::Control(run)).is_none().then_some(response).ok_or(NoAnswer)
    };
    let responses = mailboxes.iter().map(send).collect::<Result<Vec<_>, _>>()?;
    let left = || until.saturating_duration_since(Instant::now());
    responses.iter().map(|response| response.recv_timeout(left()).map_err(|_| NoAnswer)).collect()
}

/// Settings that are checked and whose files are read. Each worker gets a clone.
#[derive(Clone)]
pub struct PreparedSettings<P> {
    pub(super) access: AccessRules,
    pub(super) protocol: P,
    pub(super) upstream: Upstream,
    pub(super) limits: Limits,
    pub(super) log: Log,
}

impl<P: Protocol> PreparedSettings<P> {
    /// Reads certificates, hashes passwords and resolves names: this may block, so no worker does it.
    pub fn new(settings: &Settings, log: Log) -> Result<Self, StartError> {
        let protocol = P::from_settings(settings)?;
        let tls = settings.tls.as_ref().map(ClientTls::read).transpose().map_err(StartError::Tls)?;
        let access = AccessRules { uids: settings.allowed_uids.clone(), unix_auth: settings.unix_auth, tls };
        let upstream = Upstream::new(&settings.server).map_err(StartError::Tls)?;
        Ok(Self { access, protocol, upstream, limits: settings.limits.clone(), log })
    }
}

/// What a worker needs for operation, but not for sessions.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) metrics: Arc<Metrics>,
    pub(super) notifier: Notifier,
    pub(super) key_deriver: KeyDeriver,
    pub(super) began: Instant,
    pub(super) started: Timestamp,
}

impl<P: Protocol> Worker<P> {
    pub(super) fn control(&self) -> ControlHandle<P> {
        ControlHandle {
            mailboxes: Arc::clone(&self.shared.mailboxes),
            metrics: Arc::clone(&self.services.metrics),
        }
    }

    /// Applies new settings between two turns. Sessions are not affected. A connection that was opened with other
    /// credentials is closed at once if it is idle, otherwise when its client releases it or another client would
    /// get it.
    fn apply_settings(&mut self, prepared: PreparedSettings<P>) {
        let PreparedSettings { access, protocol, upstream, limits, log } = prepared;
        self.protocol.reload(protocol);
        if upstream.fingerprint != self.upstream.fingerprint {
            self.protocol.forget_learned();
        }
        self.upstream = upstream;
        self.access = access;
        self.pool.with(|pool| pool.set_limit(limits.server_connections));
        self.limits = limits;
        self.log = log;
        for id in self.servers.ids() {
            if self.idle_since(id).is_some()
                && let Some(reason) = self.obsolete_reason(id)
            {
                self.close_server(id, reason);
            }
        }
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            if let ClientStage::Queued { request, .. } = &client.stage
                && let Err(refusal) = self.protocol.pool_key(request)
            {
                self.refuse(id, &refusal);
            }
        }
        self.check_unserved = true;
    }

    /// This worker's part, and what is the same for all.
    fn status(&self) -> Status {
        let metrics = &self.services.metrics;
        let certificate = |expiry: &CertificateExpiry| CertificateStatus {
            file: expiry.file.display().to_string(),
            expires_unix_s: expiry.at_unix_s,
        };
        let client_certificates = self.access.tls.iter().flat_map(|tls| &tls.expiries);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server: self.server.clone(),
            started_unix_s: self.services.started.as_second(),
            draining: self.drain.is_some(),
            clients: self.clients_by_stage(),
            limits: StatusLimits {
                clients: self.limits.clients,
                queued: self.limits.queued,
                server_connections: self.limits.server_connections,
            },
            pools: self.pools(),
            threads: vec![ThreadStatus {
                clients: self.clients.len(),
                server_connections: self.servers.len(),
            }],
            counts: StatusCounters {
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
            certificates: client_certificates.chain(&self.upstream.expiries).map(certificate).collect(),
        }
    }

    fn clients_by_stage(&self) -> ClientStates {
        let mut clients = ClientStates::default();
        for client in self.clients.values() {
            *match client.stage {
                ClientStage::Handshake(_) | ClientStage::TlsHandshake(_) => &mut clients.logging_in,
                ClientStage::Queued { .. } => &mut clients.queued,
                ClientStage::Active(_) => &mut clients.in_session,
                ClientStage::Parked { .. } => &mut clients.parked,
                ClientStage::Cancelling | ClientStage::Flushing => &mut clients.leaving,
            } += 1;
        }
        clients
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let mut pools: BTreeMap<(&str, &str), PoolStatus> = BTreeMap::new();
        let empty = |key: &P::Key| PoolStatus {
            user: key.user().to_owned(),
            database: key.database().to_owned(),
            ..PoolStatus::default()
        };
        let now = Instant::now();
        for server in self.servers.values() {
            let key = &server.key;
            let pool = pools.entry((key.user(), key.database())).or_insert_with(|| empty(key));
            pool.oldest_s = pool.oldest_s.max(now.duration_since(server.opened_at).as_secs_f64());
            *match &server.stage {
                ServerStage::Connecting { .. } => &mut pool.opening,
                ServerStage::Open(backend) => match backend.activity {
                    Activity::Idle { .. } => &mut pool.idle,
                    Activity::Session { .. } => &mut pool.busy,
                    Activity::Kept { .. } => &mut pool.kept,
                    Activity::AwaitingCancel { .. } | Activity::Resetting { .. } => &mut pool.resetting,
                },
            } += 1;
        }
        for client in self.clients.values() {
            if let ClientStage::Queued { key, .. } = &client.stage {
                pools.entry((key.user(), key.database())).or_insert_with(|| empty(key)).waiting += 1;
            }
        }
        pools.into_values().collect()
    }
}
