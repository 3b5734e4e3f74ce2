//! Cancel requests: each must reach the right command of the right client, or none.
//!
//! A server connection is neither reset nor handed to another client while a cancel request is on its way to
//! it. When the server closes the request's connection, it has sent the signal; a signal that finds no
//! command has no effect.

use ciphertoll_net::{ConnectProgress, Connected, Error, Readiness, Received, WatchedEvents};

use super::{
    Activity, CancelRequest, ClientStage, ServerConnection, ServerStage, TokenKind, Worker, token_of,
};
use crate::log::Level;
use crate::protocol::{ConnectPlan, Protocol};
use crate::slab::Id;

/// Requests in progress at a time. Further ones are dropped: they need no login.
const MAX_CANCELS: usize = 64;
/// Reason for closing a requester that does not wait.
pub(super) const REQUESTER_LEFT: &str = "left before its cancel request was complete";

impl<P: Protocol> Worker<P> {
    /// A client asks to cancel the command of the client that has this process ID and key.
    pub(super) fn handle_cancel(&mut self, requester: Id, process_id: u32, key: &[u8]) {
        let thread = self.worker_of(process_id);
        if thread != self.shared.thread {
            return self.forward_cancel(requester, thread, process_id, key);
        }
        if let Some(waiting) = self.queued_client(process_id, key) {
            let (count, how) = if self.cancel_queued(waiting) {
                (&self.services.metrics.cancels_waiting, "cancelled a waiting command")
            } else {
                (&self.services.metrics.cancels_dropped, "sent a cancel request too early")
            };
            count.increment();
            return self.close_client(requester, how);
        }
        let Some((server_id, plan)) = self.cancel_target(process_id, key) else {
            // Like servers: no response, so that keys cannot be guessed.
            self.services.metrics.cancels_dropped.increment();
            return self.close_client(requester, "sent a cancel request without a matching command");
        };
        match self.start_cancel(requester, server_id, plan) {
            Ok(()) => self.await_cancel(requester),
            Err(error) => {
                self.cancel_failed(&error);
                self.close_client(requester, "sent a cancel request that failed");
            }
        }
    }

    fn start_cancel(&mut self, requester: Id, server: Id, plan: ConnectPlan) -> Result<(), Error> {
        let mut connecting = self.upstream.open(plan)?;
        let until = self.now + self.limits.reset;
        let request = CancelRequest { connecting: None, channel: None, server, requester, until };
        let id = self.cancels.insert(request);
        if let Err(error) = self.reactor.register(
            connecting.channel(),
            token_of(TokenKind::Cancel, id.index),
            WatchedEvents::Both,
        ) {
            self.cancels.remove(id);
            return Err(error);
        }
        if let Some(request) = self.cancels.get_mut(id) {
            request.connecting = Some(connecting);
        }
        if let Some(server) = self.servers.get_mut(server) {
            server.cancels += 1;
        }
        Ok(())
    }

    /// Closes the requester when its request is done, or at once if it has left.
    fn await_cancel(&mut self, requester: Id) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(requester) else { return };
        client.stage = ClientStage::Cancelling;
        client.since = now;
        if client.flow.ended {
            self.close_client(requester, REQUESTER_LEFT);
        }
    }

    /// The connection of the client that has this process ID and key, and the cancel request to send.
    fn cancel_target(&self, process_id: u32, key: &[u8]) -> Option<(Id, ConnectPlan)> {
        if self.cancels.len() >= MAX_CANCELS {
            return None;
        }
        let ClientStage::Active(id) = self.clients.get(self.client_by_token(process_id, key)?)?.stage else {
            return None;
        };
        Some((id, self.protocol.cancel_plan(&self.servers.open(id)?.state)?))
    }

    /// The client that has this process ID and key, if its command waits for a connection.
    fn queued_client(&self, process_id: u32, key: &[u8]) -> Option<Id> {
        let id = self.client_by_token(process_id, key)?;
        matches!(self.clients.get(id)?.stage, ClientStage::Queued { .. }).then_some(id)
    }

    fn client_by_token(&self, process_id: u32, key: &[u8]) -> Option<Id> {
        let id = *self.by_process.get(&process_id)?;
        let secret = self.clients.get(id)?.cancel_token?.secret;
        (key.len() == secret.len() && openssl::memcmp::eq(key, &secret)).then_some(id)
    }

    pub(super) fn cancel_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(cancel) = self.cancels.get_mut(id) else { return };
        if let Some(connecting) = cancel.connecting.take() {
            let sent = connecting.advance(readiness).and_then(|mut progress| {
                if let ConnectProgress::Done(Connected { channel, .. }) = &mut progress {
                    channel.send()?;
                }
                Ok(progress)
            });
            match sent {
                Ok(ConnectProgress::Pending(pending)) => {
                    cancel.connecting = Some(pending);
                    return;
                }
                Ok(ConnectProgress::Done(connected)) => cancel.channel = Some(connected.channel),
                Err(error) => {
                    self.cancel_failed(&error);
                    return self.cancel_done(id);
                }
            }
            self.services.metrics.cancels_sent.increment();
        }
        // The server sends nothing; it closes the connection when it has sent the signal.
        while let Some(channel) = self.cancels.get_mut(id).and_then(|cancel| cancel.channel.as_mut()) {
            match channel.receive_input() {
                Ok(Received::WouldBlock) => return,
                Ok(Received::Drained | Received::MoreLikely) => {
                    let bytes = channel.input().len();
                    channel.consume(bytes);
                }
                Ok(Received::Closed) => return self.cancel_done(id),
                Err(_) => {
                    self.discard_target(id);
                    return self.cancel_done(id);
                }
            }
        }
    }

    /// It is not known whether the request will still take effect, so the connection must not be reused.
    pub(super) fn discard_target(&mut self, id: Id) {
        if let Some(server) = self.cancels.get(id).map(|cancel| cancel.server)
            && let Some(server) = self.servers.get_mut(server)
        {
            server.lost_cancel = true;
        }
    }

    /// A request has reached the server, or never will.
    pub(super) fn cancel_done(&mut self, id: Id) {
        let Some(cancel) = self.cancels.remove(id) else { return };
        self.close_client(cancel.requester, "sent a cancel request");
        let Some(server) = self.servers.get_mut(cancel.server) else { return };
        server.cancels = server.cancels.saturating_sub(1);
        if let ServerConnection { cancels: 0, stage: ServerStage::Open(backend), .. } = server
            && let Activity::AwaitingCancel { release, .. } = backend.activity
        {
            self.reset_server(cancel.server, release);
        }
    }

    fn cancel_failed(&self, error: &Error) {
        self.services.metrics.cancels_failed.increment();
        self.log.event(Level::Warn, "cancel-failed", &[("server", &self.server), ("reason", error)]);
    }
}
