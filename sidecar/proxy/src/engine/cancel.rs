//! Cancel requests: each must reach the right command of the right client, or none.
//!
//! A server connection is neither reset nor handed to another client while a cancel request is on its way to
//! it. When the server closes the request's connection, it has sent the signal; a signal that finds no
//! command has no effect.

use ciphertoll_net::{Channel, Error, Readiness, WatchedEvents};

use super::backend::{Activity, ServerConnection, ServerStage};
pub(super) use super::cancel_request::Requester;
use super::cancel_request::{CancelRequest, CancelStep, MAX_CANCELS};
use super::client::{Client, ClientStage};
use super::flow::TokenKind;
use super::mailbox::WorkerMessage;
use super::worker::Worker;
use crate::log::Level;
use crate::protocol::{CancelPlan, Protocol};
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    /// A client asks to cancel the command of the client that has this process ID and key.
    pub(super) fn handle_cancel(&mut self, requester: Id, process_id: u32, key: &[u8]) {
        let thread = self.tokens.worker_of(process_id);
        if thread != self.shared.thread {
            return self.forward_cancel(requester, thread, process_id, key);
        }
        if let Some(waiting) = self.queued_client(process_id, key) {
            let was_cancelled = self.cancel_queued(waiting);
            let metrics = self.env.metrics();
            let (count, how) = if was_cancelled {
                (&metrics.cancels_waiting, "cancelled a waiting command")
            } else {
                (&metrics.cancels_dropped, "sent a cancel request too early")
            };
            count.increment();
            return self.close_client(requester, how);
        }
        if self.env.access.console.is_some() && self.env.services.console.cancel(process_id, key) {
            return self.close_client(requester, "cancelled a command of the console");
        }
        let Some((server_id, plan)) = self.cancel_target(process_id, key) else {
            // Like servers: no response, so that keys cannot be guessed.
            self.env.metrics().cancels_dropped.increment();
            return self.close_client(requester, "sent a cancel request without a matching command");
        };
        match self.start_cancel(Requester::Client(requester), server_id, plan) {
            Ok(()) => self.update_client(requester, |client, env| client.await_cancel(env.now)),
            Err(error) => {
                self.cancel_failed(&error);
                self.close_client(requester, "sent a cancel request that failed");
            }
        }
    }

    pub(super) fn start_cancel(
        &mut self,
        requester: Requester,
        server: Id,
        plan: CancelPlan,
    ) -> Result<(), Error> {
        let Some(ServerConnection { link, stage: ServerStage::Open(backend), .. }) = self.servers.get(server)
        else {
            return Err(Error::Closed);
        };
        let host = link.as_deref().and_then(|link| link.host).unwrap_or(0);
        let connecting = self.env.upstream.open_beside(host, &backend.channel, plan.connect)?;
        let until = self.env.now + self.env.limits.reset;
        let id = self.cancels.insert(CancelRequest::new(connecting, plan.commands, server, requester, until));
        if let Some(channel) = self.cancels.get_mut(id).and_then(CancelRequest::channel)
            && let Err(error) = self.env.register(channel, TokenKind::Cancel, id.index, WatchedEvents::Both)
        {
            self.cancels.remove(id);
            return Err(error);
        }
        if let Some(server) = self.servers.get_mut(server) {
            server.cancels += 1;
        }
        Ok(())
    }

    /// The connection of the client that has this process ID and key, and the cancel request to send.
    fn cancel_target(&self, process_id: u32, key: &[u8]) -> Option<(Id, CancelPlan)> {
        if self.cancels.len() >= MAX_CANCELS {
            return None;
        }
        let ClientStage::Active(id) = self.clients.get(self.client_by_token(process_id, key)?)?.stage else {
            return None;
        };
        let (server, backend) = (self.servers.get(id)?, self.servers.open(id)?);
        Some((id, self.env.protocol.cancel_plan(&server.key, &backend.state)?))
    }

    /// The client that has this process ID and key, if its command waits for a connection.
    fn queued_client(&self, process_id: u32, key: &[u8]) -> Option<Id> {
        let id = self.client_by_token(process_id, key)?;
        self.clients.get(id)?.is_queued().then_some(id)
    }

    fn client_by_token(&self, process_id: u32, key: &[u8]) -> Option<Id> {
        let id = self.tokens.client(process_id)?;
        let secret = self.clients.get(id)?.cancel_token?.secret;
        (key.len() == secret.len() && openssl::memcmp::eq(key, &secret)).then_some(id)
    }

    pub(super) fn cancel_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(cancel) = self.cancels.get_mut(id) else { return };
        let sent = &self.env.services.metrics.cancels_sent;
        match cancel.ready(readiness, || sent.increment()) {
            CancelStep::Wait => {}
            CancelStep::Done => self.cancel_done(id),
            CancelStep::Failed(error) => {
                self.cancel_failed(&error);
                self.cancel_done(id);
            }
            CancelStep::Lost => self.cancel_lost(id),
        }
    }

    /// It is not known whether the request will still take effect, so the connection must not be used again.
    pub(super) fn cancel_lost(&mut self, id: Id) {
        let Some((server_id, requester)) =
            self.cancels.get(id).map(|cancel| (cancel.server, cancel.requester))
        else {
            return;
        };
        if let Some(server) = self.servers.get_mut(server_id) {
            server.lost_cancel = true;
        }
        if let Requester::TimeLimit(client) = requester {
            self.own_cancel_lost(client, server_id);
        }
        self.cancel_done(id);
    }

    /// A request has reached the server, or never will.
    fn cancel_done(&mut self, id: Id) {
        let Some(cancel) = self.cancels.remove(id) else { return };
        match cancel.requester {
            Requester::Client(requester) => self.close_client(requester, "sent a cancel request"),
            Requester::TimeLimit(client) => self.own_cancel_done(client, cancel.server),
        }
        let Some(server) = self.servers.get_mut(cancel.server) else { return };
        server.cancels = server.cancels.saturating_sub(1);
        if let ServerConnection { cancels: 0, stage: ServerStage::Open(backend), .. } = server
            && let Activity::AwaitingCancel { release, .. } = backend.activity
        {
            self.reset_server(cancel.server, release);
        }
    }

    pub(super) fn cancel_failed(&self, error: &Error) {
        self.env.metrics().cancels_failed.increment();
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("server", &self.env.server), ("reason", error)];
        self.env.log.event(Level::Warn, "cancel-failed", &fields);
    }

    /// Hands a cancel request on to the worker of the client that it names.
    fn forward_cancel(&mut self, requester: Id, thread: usize, process_id: u32, key: &[u8]) {
        let Some(Client { mut channel, .. }) = self.clients.remove(requester) else { return };
        if self.env.reactor.deregister(&mut channel).is_ok() {
            self.shared.count_client(thread);
            let requester = Box::new(channel);
            let message = WorkerMessage::Cancel { requester, process_id, key: key.to_vec() };
            if self.shared.send(thread, message).is_some() {
                self.shared.uncount_client(thread);
                self.env.metrics().cancels_dropped.increment();
            }
        }
        self.client_removed();
    }

    pub(super) fn accept_cancel(&mut self, channel: Channel, process_id: u32, key: &[u8]) {
        let origin = self.origin(None);
        let requester = self.clients.insert(Client::new(channel, ClientStage::Cancelling, origin));
        self.register_client(requester);
        self.handle_cancel(requester, process_id, key);
    }
}
