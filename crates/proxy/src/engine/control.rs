//! Control of the workers by other threads of the program: status, health, new settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::key_deriver::KeyDeriver;
use super::mailbox::{Mailbox, WorkerMessage};
use super::reload::PreparedSettings;
use super::{Activity, ClientStage, ServerStage, Worker};
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::protocol::{PoolKey, Protocol};
use crate::status::{
    CertificateStatus, ClientStates, PoolStatus, Status, StatusCounters, StatusLimits, ThreadStatus,
};

/// A worker answers between two turns, which take less than a millisecond. A status request should fail soon
/// if a worker is stuck.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Settings that were handed over take effect however late: a reload must not be reported as failed too soon.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Controls a running proxy from other threads.
pub struct ControlHandle<P: Protocol> {
    mailboxes: Arc<[Mailbox<P>]>,
    metrics: Arc<Metrics>,
}

/// A request, and where to send the response.
pub(super) enum ControlRequest<P> {
    Status(Sender<Status>),
    Health(Sender<Health>),
    ApplySettings(Box<PreparedSettings<P>>, Sender<()>),
}

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

impl<P: Protocol> Clone for ControlHandle<P> {
    fn clone(&self) -> Self {
        Self { mailboxes: Arc::clone(&self.mailboxes), metrics: Arc::clone(&self.metrics) }
    }
}

impl<P: Protocol> ControlHandle<P> {
    /// The status of all workers, collected one after another.
    pub fn status(&self) -> Result<Status, NoAnswer> {
        let parts = self.request_all(STATUS_TIMEOUT, ControlRequest::Status)?;
        parts.into_iter().reduce(Status::merge).ok_or(NoAnswer)
    }

    /// Whether new clients would be served. If that is not known, a connection is opened to find out.
    pub fn health(&self) -> Result<Health, NoAnswer> {
        // All workers know the same about the server.
        let first = self.mailboxes.first().ok_or(NoAnswer)?;
        await_response(&send_request(first, ControlRequest::Health)?, Instant::now() + STATUS_TIMEOUT)
    }

    /// Applies new settings, for new clients and new server connections.
    pub fn apply_settings(&self, prepared: &PreparedSettings<P>) -> Result<(), NoAnswer> {
        let apply = |done| ControlRequest::ApplySettings(Box::new(prepared.clone()), done);
        self.request_all(RELOAD_TIMEOUT, apply).map(|_| ())
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The responses of all workers, within one deadline.
    fn request_all<T>(
        &self,
        timeout: Duration,
        request: impl Fn(Sender<T>) -> ControlRequest<P>,
    ) -> Result<Vec<T>, NoAnswer> {
        let until = Instant::now() + timeout;
        let pending: Result<Vec<_>, _> =
            self.mailboxes.iter().map(|mailbox| send_request(mailbox, &request)).collect();
        pending?.iter().map(|response| await_response(response, until)).collect()
    }
}

fn send_request<P: Protocol, T>(
    mailbox: &Mailbox<P>,
    request: impl FnOnce(Sender<T>) -> ControlRequest<P>,
) -> Result<Receiver<T>, NoAnswer> {
    let (reply, response) = mpsc::channel();
    match mailbox.send(WorkerMessage::Control(request(reply))) {
        None => Ok(response),
        Some(_) => Err(NoAnswer),
    }
}

fn await_response<T>(response: &Receiver<T>, until: Instant) -> Result<T, NoAnswer> {
    let left = until.saturating_duration_since(Instant::now());
    response.recv_timeout(left).map_err(|_| NoAnswer)
}

/// What a worker needs for operation, but not for sessions.
pub(super) struct Services {
    pub(super) metrics: Arc<Metrics>,
    pub(super) notifier: Notifier,
    pub(super) key_deriver: KeyDeriver,
    pub(super) started: Timestamp,
}

impl<P: Protocol> Worker<P> {
    pub(super) fn control(&self) -> ControlHandle<P> {
        ControlHandle {
            mailboxes: Arc::clone(&self.shared.mailboxes),
            metrics: Arc::clone(&self.services.metrics),
        }
    }

    /// Handles a request of a thread that is not a worker.
    pub(super) fn handle_control(&mut self, request: ControlRequest<P>) {
        // The other side may have given up waiting.
        let _ = match request {
            ControlRequest::Status(reply) => reply.send(self.status()).is_ok(),
            ControlRequest::Health(reply) => reply.send(self.health()).is_ok(),
            ControlRequest::ApplySettings(prepared, done) => {
                self.apply_settings(*prepared);
                done.send(()).is_ok()
            }
        };
    }

    /// This worker's part, and what is the same for all.
    fn status(&self) -> Status {
        let metrics = &self.services.metrics;
        let certificate = |expiry: &crate::upstream::CertificateExpiry| CertificateStatus {
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
            certificates: client_certificates.chain(self.upstream.expiries()).map(certificate).collect(),
        }
    }

    fn clients_by_stage(&self) -> ClientStates {
        let mut clients = ClientStates::default();
        for client in self.clients.ids().into_iter().filter_map(|id| self.clients.get(id)) {
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
        for server in self.servers.ids().into_iter().filter_map(|id| self.servers.get(id)) {
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
        for client in self.clients.ids().into_iter().filter_map(|id| self.clients.get(id)) {
            if let ClientStage::Queued { key, .. } = &client.stage {
                pools.entry((key.user(), key.database())).or_insert_with(|| empty(key)).waiting += 1;
            }
        }
        pools.into_values().collect()
    }
}
