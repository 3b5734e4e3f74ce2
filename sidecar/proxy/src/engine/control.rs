//! Control of the workers by other threads of the program: status, health, and settings that can change while a
//! proxy runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use super::control_request::{ControlRequest, HandedOver, Health, PreparedSettings};
use super::mailbox::{Mailbox, WorkerMessage};
use crate::console_link::ConsoleLink;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::protocol::Protocol;
use crate::settings::{Settings, StartError};
use crate::status::Status;

/// A turn of a worker takes less than a millisecond: a status request fails soon if a worker is stuck.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Settings that were handed over take effect however late: a reload must not be reported as failed too soon.
pub(super) const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct ControlHandle<P: Protocol> {
    pub(super) mailboxes: Arc<[Mailbox<P>]>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) console: Arc<ConsoleLink>,
}

/// The running workers of one server, whatever its protocol.
pub(crate) trait ServerControl: Send + Sync {
    /// The status of all workers, collected one after another.
    fn status(&self) -> Result<Status, NoAnswer>;

    /// Whether new clients would be served. If that is not known, a connection is opened to find out.
    fn health(&self) -> Result<Health, NoAnswer>;

    /// Checks settings and reads their files. What is returned applies them, for new clients and new server connections.
    fn prepare(&self, settings: &Settings, log: Log) -> Result<ApplySettings<'_>, StartError>;

    /// Other handles of the listening sockets, in the order of the settings. They must not be kept: a socket listens
    /// until its last handle is closed.
    fn sockets(&self) -> Result<Vec<OwnedFd>, NoAnswer>;

    /// Accepts no more clients, because another process has the listening sockets now. The workers end when their last
    /// client has left. If one worker does not answer, other workers may already have given their sockets
    /// away.
    fn hand_over(&self) -> Result<HandedOver, NoAnswer>;

    /// Tells all workers that the command of a password has ended.
    fn password_fetched(&self);

    fn metrics(&self) -> &Metrics;

    fn shared_metrics(&self) -> Arc<Metrics>;
}

pub(crate) type ApplySettings<'a> = Box<dyn FnOnce() -> Result<(), NoAnswer> + 'a>;

/// The proxy has ended or is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy does not answer")]
pub struct NoAnswer;

impl<P: Protocol> ServerControl for ControlHandle<P> {
    fn status(&self) -> Result<Status, NoAnswer> {
        let parts = request(&self.mailboxes, STATUS_TIMEOUT, ControlRequest::Status)?;
        parts.into_iter().reduce(Status::merge).ok_or(NoAnswer)
    }

    fn health(&self) -> Result<Health, NoAnswer> {
        // All workers know the same about the server.
        let first = self.mailboxes.first().map_or(&[][..], std::slice::from_ref);
        request(first, STATUS_TIMEOUT, ControlRequest::Health)?.pop().ok_or(NoAnswer)
    }

    fn prepare(&self, settings: &Settings, log: Log) -> Result<ApplySettings<'_>, StartError> {
        let prepared = PreparedSettings::<P>::new(settings, log)?;
        Ok(Box::new(move || {
            let apply = |reply| ControlRequest::ApplySettings(Box::new(prepared.clone()), reply);
            request(&self.mailboxes, RELOAD_TIMEOUT, apply).map(|_| ())
        }))
    }

    fn sockets(&self) -> Result<Vec<OwnedFd>, NoAnswer> {
        let first = self.mailboxes.first().map_or(&[][..], std::slice::from_ref);
        request(first, STATUS_TIMEOUT, ControlRequest::Sockets)?.pop().flatten().ok_or(NoAnswer)
    }

    fn hand_over(&self) -> Result<HandedOver, NoAnswer> {
        let all = request(&self.mailboxes, RELOAD_TIMEOUT, ControlRequest::HandOver)?;
        // The first worker has the files.
        all.into_iter().next().ok_or(NoAnswer)
    }

    fn password_fetched(&self) {
        for mailbox in &*self.mailboxes {
            // A worker that has ended opens no connections.
            let _ = mailbox.send(WorkerMessage::Control(ControlRequest::PasswordFetched));
        }
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn shared_metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }
}

/// The responses of these workers, within one deadline.
pub(super) fn request<P: Protocol, T>(
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
