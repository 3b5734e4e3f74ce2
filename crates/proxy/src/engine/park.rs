//! Parked clients: between transactions a client has no server connection. The one that it used last is kept
//! without a reset until another client needs it.

use std::time::Duration;

use ciphertoll_net::{Received, Sent};

use super::{
    Activity, Backend, ClientConnection, ClientStage, DeferredWork, ServerConnection, ServerStage, Worker,
};
use crate::log::Level;
use crate::pool::ConnectionPool;
use crate::protocol::{
    AcquiredState, Detached, FirstInput, Pooling, Protocol, ProtocolRequest, ProtocolSession, Release,
};
use crate::slab::Id;

/// How long a connection is kept before it is reset, so that the next client need not wait for the reset.
pub(super) const KEEP_TIME: Duration = Duration::from_secs(1);

impl<P: Protocol> Worker<P> {
    pub(super) fn continue_client(&mut self, id: Id) {
        match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Active(_)) => self.pump_to_server(id),
            Some(ClientStage::Parked { .. }) => self.resume_parked(id),
            _ => {}
        }
    }

    /// Completes a login without a server connection, if possible. Also returns true if the client has left.
    pub(super) fn greet_early(&mut self, id: Id) -> bool {
        if self.pooling == Pooling::Session {
            return false;
        }
        let Some(cancel_token) = self.new_cancel_token() else { return false };
        let Some(client) = self.clients.get_mut(id) else { return true };
        let ClientConnection { channel, stage: ClientStage::Queued { key, request }, .. } = client else {
            return false;
        };
        let before = channel.output().len();
        if !self.protocol.greet_early(key, request, cancel_token, channel.output()) {
            channel.output().truncate(before);
            return false;
        }
        if channel.send().is_err() {
            self.close_client(id, "went away");
            return true;
        }
        client.cancel_token = Some(cancel_token);
        client.stage.park();
        self.by_process.insert(cancel_token.process_id, id);
        self.services.metrics.sessions.increment();
        self.watch_client(id);
        self.deferred.push(DeferredWork::Client(id));
        true
    }

    /// A parked client has sent something: it resumes its last connection, acquires another one, or waits.
    pub(super) fn resume_parked(&mut self, id: Id) {
        let Some(client) = self.clients.get(id) else { return };
        if let Some(last_server) = client.last_server
            && self.is_kept_for(last_server, id)
            && self.take_kept(last_server)
        {
            self.resume_on_last(id, last_server);
            self.pump_to_server(id);
            // It may have been less than a command; then the connection is available to others meanwhile.
            return self.park_early(id, last_server);
        }
        let Some(ClientConnection { channel, stage: ClientStage::Parked { request, .. }, .. }) =
            self.clients.get_mut(id)
        else {
            return;
        };
        channel.borrow(&mut self.spare);
        let received = channel.receive_input();
        let first_input = request.first_input(channel.input());
        let refusal = self.protocol.pool_key(request).err();
        channel.give_back(&mut self.spare);
        match (first_input, received) {
            (FirstInput::Terminate, _) | (FirstInput::Incomplete, Ok(Received::Closed) | Err(_)) => {
                return self.close_client(id, "left");
            }
            (FirstInput::Incomplete, Ok(_)) => return,
            (FirstInput::Command, _) => {}
        }
        if let Some(refusal) = refusal.or_else(|| self.queue_is_full()) {
            return self.refuse(id, &refusal);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        client.since = self.now;
        if let Some(key) = client.stage.queue() {
            self.acquire(id, &key);
        }
    }

    /// Assigns a client its last connection again, which has been taken from the pool's list of kept ones.
    fn resume_on_last(&mut self, id: Id, last_server: Id) {
        let Some(backend) = self.servers.open_mut(last_server) else { return };
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some((_, request)) = client.stage.take_waiting() else { return };
        let (state, to_server) = (&mut backend.state, backend.channel.output());
        match self.protocol.start_session(request, AcquiredState::SameClient, state, to_server) {
            Ok(session) => {
                client.stage = ClientStage::Active(last_server);
                backend.activity = Activity::Session { client: id, session };
            }
            // Fails only if commands must be sent first, and this connection needs none.
            Err(failed) => {
                self.close_client(id, &failed.error.to_string());
                self.close_server(last_server, "its client could not resume it");
            }
        }
    }

    pub(super) fn park_early(&mut self, client_id: Id, server_id: Id) {
        let session = self.servers.open(server_id).and_then(Backend::session);
        if session.is_some_and(ProtocolSession::can_detach) {
            self.park(client_id, server_id);
        }
    }

    /// Detaches a client from its connection at the end of a transaction.
    pub(super) fn park(&mut self, client_id: Id, server_id: Id) {
        let Some(ServerConnection { stage: ServerStage::Open(backend), key, .. }) =
            self.servers.get_mut(server_id)
        else {
            return;
        };
        let idle = Activity::Idle { since: self.now, command: self.protocol.idle_command() };
        let session = match std::mem::replace(&mut backend.activity, idle) {
            Activity::Session { client, session } if client == client_id => session,
            other => {
                backend.activity = other;
                return;
            }
        };
        let detached = session.detach(&mut backend.state);
        let key = key.clone();
        let Some(client) = self.clients.get_mut(client_id) else { return };
        match detached {
            Ok(Detached { request: Some(request), release }) => {
                client.stage = ClientStage::Parked { key, request };
                match release {
                    Release::Reset(context) => self.keep_server(client_id, server_id, context, false),
                    release => self.reset_server(server_id, release),
                }
                self.schedule_unread(client_id);
            }
            Ok(Detached { request: None, .. }) => {
                self.close_client(client_id, "cannot be detached from its connection");
            }
            Err(error) => {
                self.close_client(client_id, &error.to_string());
                self.close_server(server_id, "its settings are not known");
            }
        }
    }

    /// Keeps a connection without a reset, unless another client waits for one: for its client, or for any other
    /// client if its own has left. What the server sends meanwhile is read.
    fn keep_server(&mut self, client: Id, id: Id, context: P::ResetContext, is_orphaned: bool) {
        let (since, command) = (self.now, self.protocol.idle_command());
        let Some(ServerConnection { stage: ServerStage::Open(backend), key, .. }) = self.servers.get_mut(id)
        else {
            return;
        };
        backend.activity = Activity::Kept { client, since, context, command };
        if backend.flow.unread || backend.flow.ended {
            self.deferred.push(DeferredWork::Server(id));
        }
        if !is_orphaned && self.protocol.holds_diagnostics(&context) {
            // Available to its client only, until the time for keeping it is over.
            return;
        }
        let keep = if is_orphaned { ConnectionPool::keep_orphaned } else { ConnectionPool::keep };
        let is_kept = self.pool.with(|pool| keep(pool, key, id));
        if is_kept {
            // It can also be evicted for clients of another key.
            self.check_unserved = true;
        } else {
            self.reassign_kept(id);
        }
    }

    /// Gives a waiting client a kept connection that was taken from the pool's list.
    pub(super) fn reassign_kept(&mut self, id: Id) {
        self.services.metrics.steals.increment();
        match self.next_without_reset(id) {
            Some(client) => self.assign_unreset(client, id),
            None => self.reset_kept(id),
        }
    }

    /// The client that has waited longest, if it can use this connection without waiting for the reset. Its
    /// login must be complete, so that the server is known to accept its settings.
    fn next_without_reset(&mut self, id: Id) -> Option<Id> {
        let (server, backend) = (self.servers.get(id)?, self.servers.open(id)?);
        let Activity::Kept { context, .. } = backend.activity else { return None };
        let is_ready = server.cancels == 0 && !backend.flow.ended && self.discard_reason(id).is_none();
        if !is_ready || !self.protocol.can_pipeline_reset(context) {
            return None;
        }
        let clients = &self.clients;
        let has_logged_in = |client| clients.get(client).is_some_and(|client| client.cancel_token.is_some());
        let client = self.pool.with(|pool| pool.assign_unreset(&server.key, id, has_logged_in))?;
        let metrics = &self.services.metrics;
        let counter =
            if self.protocol.leaves_nothing(context) { &metrics.skipped_resets } else { &metrics.resets };
        counter.increment();
        Some(client)
    }

    /// Resets a kept connection that was taken from the pool's list, for the next client.
    pub(super) fn reset_kept(&mut self, id: Id) {
        if let Some(reason) = self.obsolete_reason(id) {
            return self.close_server(id, reason);
        }
        if let Some(context) = self.kept_context(id) {
            self.release_server(id, Release::Reset(context));
        }
    }

    /// Takes a kept connection. Returns false if another worker has reserved it: the message is on its way.
    pub(super) fn take_kept(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        // A connection that is available to its client only is not in the pool's list.
        let is_for_client_only =
            self.kept_context(id).is_some_and(|context| self.protocol.holds_diagnostics(&context));
        is_for_client_only || self.pool.with(|pool| pool.take_kept(&server.key, id))
    }

    fn kept_context(&self, id: Id) -> Option<P::ResetContext> {
        match self.servers.open(id)?.activity {
            Activity::Kept { context, .. } => Some(context),
            _ => None,
        }
    }

    /// A client has disconnected for which a connection may be kept.
    pub(super) fn release_kept_for(&mut self, id: Id, last_server: Id) {
        if !self.is_kept_for(last_server, id) {
            return;
        }
        if let Some(context) = self.kept_context(last_server)
            && self.take_kept(last_server)
        {
            self.release_between_transactions(id, last_server, context);
        }
    }

    /// Releases an idle connection whose client has disconnected.
    pub(super) fn release_between_transactions(&mut self, client: Id, id: Id, context: P::ResetContext) {
        if !self.protocol.can_pipeline_reset(context) || self.discard_reason(id).is_some() {
            return self.release_server(id, Release::Reset(context));
        }
        // The reset is pipelined with the next client's first command. If no client comes, the next tick
        // resets the connection.
        self.keep_server(client, id, context, true);
    }

    fn is_kept_for(&self, id: Id, client: Id) -> bool {
        let activity = self.servers.open(id).map(|backend| &backend.activity);
        matches!(activity, Some(Activity::Kept { client: last, .. }) if *last == client)
    }

    /// Queries the settings that the client takes along when it is detached.
    pub(super) fn query_settings(&mut self, server_id: Id) {
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let Activity::Session { session, .. } = &mut backend.activity else { return };
        let sent = session.query_settings(&backend.state, backend.channel.output());
        match (sent, backend.channel.send()) {
            (Ok(()), Ok(_)) => self.watch_server(server_id),
            (Err(error), _) => self.server_lost(server_id, Some(&ciphertoll_net::Error::Protocol(error))),
            (_, Err(error)) => self.server_lost(server_id, Some(&error)),
        }
    }

    pub(super) fn log_pin(&mut self, client_id: Id, server_id: Id, reason: &str) {
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &client_id.index), ("server_connection", &server_id.index), ("reason", &reason)];
        self.log.event(Level::Info, "pinned", &fields);
        self.services.metrics.pins.increment(reason);
    }

    /// Cancels the command of a client that waits for a connection. Returns whether it could be cancelled.
    pub(super) fn cancel_queued(&mut self, id: Id) -> bool {
        let Some(ClientConnection { channel, stage: ClientStage::Queued { key, request }, .. }) =
            self.clients.get_mut(id)
        else {
            return false;
        };
        if channel.receive_input().is_err() {
            return false;
        }
        let (input, out) = channel.buffers();
        let Some(bytes) = request.cancel_command(input, out) else { return false };
        channel.consume(bytes);
        let sent = channel.send();
        self.pool.with(|pool| pool.leave_queue(key, id));
        let Some(client) = self.clients.get_mut(id) else { return false };
        client.stage.park();
        if matches!(sent, Ok(Sent::All)) {
            self.deferred.push(DeferredWork::Client(id));
        } else {
            self.close_client(id, "does not read responses");
        }
        true
    }
}
