//! Control of the workers by other threads of the program: status, health, and settings that can change while a
//! proxy runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use super::control_request::{ControlRequest, HandedOver, Health, PreparedSettings};
use super::mailbox::{Mailbox, WorkerMessage};
use crate::metrics::Metrics;
use crate::protocol::Protocol;
use crate::status::Status;

/// A turn of a worker takes less than a millisecond: a status request fails soon if a worker is stuck.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Settings that were handed over take effect however late: a reload must not be reported as failed too soon.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct ControlHandle<P: Protocol> {
    pub(super) mailboxes: Arc<[Mailbox<P>]>,
    pub(super) metrics: Arc<Metrics>,
}

/// The proxy has ended or is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy does not answer")]
pub struct NoAnswer;

impl<P: Protocol> ControlHandle<P> {
    /// The status of all workers, collected one after another.
    pub fn status(&self) -> Result<Status, NoAnswer> {
        let parts = request(&self.mailboxes, STATUS_TIMEOUT, ControlRequest::Status)?;
        parts.into_iter().reduce(Status::merge).ok_or(NoAnswer)
    }

    /// Whether new clients would be served. If that is not known, a connection is opened to find out.
    pub fn health(&self) -> Result<Health, NoAnswer> {
        // All workers know the same about the server.
        let first = self.mailboxes.first().map_or(&[][..], std::slice::from_ref);
        request(first, STATUS_TIMEOUT, ControlRequest::Health)?.pop().ok_or(NoAnswer)
    }

    /// Applies new settings, for new clients and new server connections.
    pub fn apply_settings(&self, prepared: &PreparedSettings<P>) -> Result<(), NoAnswer> {
        let apply = |reply| ControlRequest::ApplySettings(Box::new(prepared.clone()), reply);
        request(&self.mailboxes, RELOAD_TIMEOUT, apply).map(|_| ())
    }

    /// Other handles of the listening sockets, in the order of the settings. They must not be kept: a socket listens until
    /// its last handle is closed.
    pub fn sockets(&self) -> Result<Vec<OwnedFd>, NoAnswer> {
        let first = self.mailboxes.first().map_or(&[][..], std::slice::from_ref);
        request(first, STATUS_TIMEOUT, ControlRequest::Sockets)?.pop().flatten().ok_or(NoAnswer)
    }

    /// Accepts no more clients, because another process has the listening sockets now. The proxy ends when its last
    /// client has left. If a worker does not answer, others may have given their sockets away.
    pub fn hand_over(&self) -> Result<HandedOver, NoAnswer> {
        let all = request(&self.mailboxes, RELOAD_TIMEOUT, ControlRequest::HandOver)?;
        // The first worker has the files.
        all.into_iter().next().ok_or(NoAnswer)
    }

    /// Tells all workers that the command of a password has ended.
    pub fn password_fetched(&self) {
        for mailbox in &*self.mailboxes {
            // A worker that has ended opens no connections.
            let _ = mailbox.send(WorkerMessage::Control(ControlRequest::PasswordFetched));
        }
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn shared_metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }
}

/// The responses of these workers, within one deadline.
fn request<P: Protocol, T>(
    mailboxes: &[Mailbox<P>],
    timeout: Duration,
    ask: impl Fn(Sender<T>) -> ControlRequest<P>,
) -> Result<Vec<T>, NoAnswer> {
    let until = Instant::now() + timeout;
    let send = |mailbox: &Mailbox<P>| {
        let (reply, response) = mpsc::channel();
        mailbox.send(WorkerMessage::Control(ask(reply))).is_none().then_some(response).ok_or(NoAnswer)
    };
    let responses = mailboxes.iter().map(send).collect::<Result<Vec<_>, _>>()?;
    let left = || until.saturating_duration_since(Instant::now());
    responses.iter().map(|response| response.recv_timeout(left()).map_err(|_| NoAnswer)).collect()
}
