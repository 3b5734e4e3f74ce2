//! Requests to cancel: the right command of the right client, or none.
//!
//! A server connection is not reset, let alone handed on, while a request to cancel is on its way to it: when the server
//! has closed the request's connection it has sent its signal, and a signal that finds no command is forgotten.

use ciphertoll_net::{ConnectProgress, Connected, Error, Readiness, Received};

use super::{Cancel, ClientStage, Duty, Kind, Proxy, Reuse, Server, ServerStage, key_of};
use crate::dialect::{Dialect, Dialing};
use crate::log::Level;
use crate::slab::Id;

/// Requests on their way at a time; further ones are dropped, as anybody may send them.
const MAX_CANCELS: usize = 64;
/// The end of a requester that does not wait.
pub(super) const LEFT: &str = "left before its cancel request was done";

impl<D: Dialect> Proxy<D> {
    /// A client wants the command of the one to end that was told these.
    pub(super) fn cancel_wanted(&mut self, requester: Id, process_id: u32, key: &[u8]) {
        let thread = self.thread_of(process_id);
        if thread != self.commons.thread {
            return self.cancel_elsewhere(requester, thread, process_id, key);
        }
        if let Some(waiting) = self.waiting_of(process_id, key) {
            let (count, how) = if self.cancel_waiting(waiting) {
                (&self.ops.metrics.cancels_waiting, "has cancelled what waited")
            } else {
                (&self.ops.metrics.cancels_dropped, "came too soon")
            };
            count.up();
            return self.client_gone(requester, how);
        }
        let Some((server_id, dialing)) = self.target_of(process_id, key) else {
            // As servers do: nothing is said to who guesses.
            self.ops.metrics.cancels_dropped.up();
            return self.client_gone(requester, "asked to cancel nobody's command");
        };
        let begun = self.upstream.open(dialing).and_then(|mut connecting| {
            let id = self.cancels.insert(Cancel {
                connecting: None,
                channel: None,
                server: server_id,
                requester,
                until: self.now + self.limits.reset,
            });
            match self.reactor.register(connecting.channel(), key_of(Kind::Cancel, id.index)) {
                Ok(()) => Ok((id, connecting)),
                Err(error) => {
                    self.cancels.remove(id);
                    Err(error)
                }
            }
        });
        match begun {
            Ok((id, connecting)) => {
                if let Some(cancel) = self.cancels.get_mut(id) {
                    cancel.connecting = Some(connecting);
                }
                if let Some(server) = self.servers.get_mut(server_id) {
                    server.cancels += 1;
                }
                self.await_cancel(requester);
            }
            Err(error) => {
                self.cancel_failed(&error);
                self.client_gone(requester, "asked to cancel");
            }
        }
    }

    /// The requester is closed when its request is done, or when it leaves before that.
    fn await_cancel(&mut self, requester: Id) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(requester) else { return };
        client.stage = ClientStage::Cancelling;
        client.since = now;
        if client.flow.ended {
            self.client_gone(requester, LEFT);
        }
    }

    /// The connection of the client that was told these, if it has one and they are right, and the request to cancel what
    /// it does.
    fn target_of(&self, process_id: u32, key: &[u8]) -> Option<(Id, Dialing)> {
        if self.cancels.len() >= MAX_CANCELS {
            return None;
        }
        let ClientStage::Attached(id) = self.clients.get(self.client_of(process_id, key)?)?.stage else {
            return None;
        };
        let ServerStage::Up(backend) = &self.servers.get(id)?.stage else { return None };
        Some((id, self.dialect.cancel(&backend.facts)?))
    }

    /// The client that was told these, if its command waits for a connection.
    fn waiting_of(&self, process_id: u32, key: &[u8]) -> Option<Id> {
        let id = self.client_of(process_id, key)?;
        matches!(self.clients.get(id)?.stage, ClientStage::Queued { .. }).then_some(id)
    }

    fn client_of(&self, process_id: u32, key: &[u8]) -> Option<Id> {
        let id = *self.by_process.get(&process_id)?;
        let secret = self.clients.get(id)?.ticket?.secret;
        (key.len() == secret.len() && openssl::memcmp::eq(key, &secret)).then_some(id)
    }

    pub(super) fn cancel_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(cancel) = self.cancels.get_mut(id) else { return };
        if let Some(connecting) = cancel.connecting.take() {
            match connecting.advance(readiness) {
                Ok(ConnectProgress::Pending(pending)) => {
                    cancel.connecting = Some(pending);
                    return;
                }
                Ok(ConnectProgress::Done(Connected { mut channel, .. })) => {
                    if let Err(error) = channel.send() {
                        self.cancel_failed(&error);
                        return self.cancel_done(id);
                    }
                    cancel.channel = Some(channel);
                    self.ops.metrics.cancels_sent.up();
                }
                Err(error) => {
                    self.cancel_failed(&error);
                    return self.cancel_done(id);
                }
            }
        }
        // Until the server closes: it has nothing to say.
        while let Some(channel) = self.cancels.get_mut(id).and_then(|cancel| cancel.channel.as_mut()) {
            match channel.receive_input() {
                Ok(Received::WouldBlock) => return,
                Ok(Received::Drained | Received::MoreLikely) => {
                    let bytes = channel.input().len();
                    channel.consume(bytes);
                }
                Ok(Received::Closed) => return self.cancel_done(id),
                Err(_) => {
                    self.condemn_target_of(id);
                    return self.cancel_done(id);
                }
            }
        }
    }

    /// Nobody knows whether a request will still hit: its connection is not for others any more.
    pub(super) fn condemn_target_of(&mut self, id: Id) {
        if let Some(server) = self.cancels.get(id).map(|cancel| cancel.server)
            && let Some(server) = self.servers.get_mut(server)
        {
            server.reuse = Reuse::Never;
        }
    }

    /// A request has reached its server, or never will.
    pub(super) fn cancel_done(&mut self, id: Id) {
        let Some(cancel) = self.cancels.remove(id) else { return };
        self.client_gone(cancel.requester, "has asked to cancel");
        let Some(server) = self.servers.get_mut(cancel.server) else { return };
        server.cancels = server.cancels.saturating_sub(1);
        if let Server { cancels: 0, stage: ServerStage::Up(backend), .. } = server
            && let Duty::Awaiting { leaving, .. } = backend.duty
        {
            self.make_fresh(cancel.server, leaving);
        }
    }

    fn cancel_failed(&self, error: &Error) {
        self.ops.metrics.cancels_failed.up();
        self.log.event(Level::Warn, "cancel-failed", &[("server", &self.server), ("reason", error)]);
    }
}
