//! Carries out what clients' transitions return: handshake, wait queue, disconnect.

use ciphertoll_net::{Readiness, Sent};

use super::agenda::DeferredWork;
use super::client::{Client, ClientStage, ClientStep};
use super::client_counts::GroupIsFull;
use super::environment::Environment;
use super::worker::Worker;
use crate::group_limits::GroupKind;
use crate::log::Level;
use crate::protocol::{PoolKey, Pooling, Protocol, ProtocolRequest};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn client_ready(&mut self, id: Id, readiness: Readiness) {
        self.update_client(id, |client, env| client.ready(id, readiness, env));
    }

    pub(super) fn update_client(
        &mut self,
        id: Id,
        transition: impl FnOnce(&mut Client<P>, &mut Environment<P>) -> ClientStep<P>,
    ) {
        if let Some(client) = self.clients.get_mut(id) {
            let step = transition(client, &mut self.env);
            self.client_step(id, step);
        }
    }

    pub(super) fn client_step(&mut self, id: Id, step: ClientStep<P>) {
        match step {
            ClientStep::Wait => {}
            ClientStep::Relay { server, has_input } => {
                if self.servers.open(server).is_some_and(|backend| backend.flow.unread) {
                    self.relay_to_client(server);
                }
                // It may have been detached from its connection by now.
                if has_input {
                    self.continue_client(id);
                }
            }
            ClientStep::Resume => self.resume(id),
            ClientStep::LookUp(look_up) => self.look_up(id, look_up),
            ClientStep::LogIn(request) => self.log_in(id, request),
            ClientStep::Acquire(key) => self.begin_transaction(id, &key),
            ClientStep::Later => self.agenda.defer(DeferredWork::Client(id)),
            ClientStep::Cancel { process_id, key } => self.handle_cancel(id, process_id, &key),
            ClientStep::Refuse(refusal) => self.refuse(id, &refusal),
            ClientStep::Close(reason) => self.close_client(id, reason),
            ClientStep::CloseAfterFlush => self.close_after_flush(id),
            ClientStep::Remove => self.remove_client(id),
        }
    }

    pub(super) fn continue_client(&mut self, id: Id) {
        match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Active(_)) => self.relay_to_server(id),
            Some(ClientStage::Parked { .. }) => self.resume(id),
            _ => {}
        }
    }

    /// An authenticated client is greeted, or acquires a connection, or waits for one.
    fn log_in(&mut self, id: Id, request: P::Request) {
        if self.enter_console(id, &request) {
            return;
        }
        let granted = self
            .cannot_serve()
            .map_or_else(|| self.env.protocol.pool_key(&request), Err)
            .and_then(|key| self.is_disabled(&key).map_or(Ok(key), Err))
            .and_then(|key| self.queue_is_full(&key).map_or(Ok(key), Err))
            .and_then(|key| self.admit(id, key));
        let Some(client) = self.clients.get_mut(id) else { return };
        client.since = self.env.now;
        let key = match granted {
            Ok(key) => key,
            Err(refusal) => {
                request.refuse(&refusal, client.channel.output());
                return self.refused(id, &refusal);
            }
        };
        if self.env.pooling == Pooling::Transaction
            && let Some(token) = self.tokens.create()
        {
            if client.greet_early(key.clone(), request, token, &mut self.env) {
                self.tokens.insert(token, id);
                return self.greeted(id);
            }
        } else {
            client.stage = ClientStage::Queued { key: key.clone(), request };
        }
        self.acquire(id, &key);
        self.update_client(id, Client::end_handshake);
    }

    /// A parked client has sent something.
    fn resume(&mut self, id: Id) {
        self.update_client(id, Client::begin_transaction);
    }

    /// A client with a command takes its last connection again, or acquires another one, or waits.
    fn begin_transaction(&mut self, id: Id, key: &P::Key) {
        if self.env.is_timed && self.is_being_cancelled(id) {
            // It goes on when that is done.
            return;
        }
        if let Some(last_server) = self.clients.get(id).and_then(|client| client.last_server)
            && self.servers.open(last_server).is_some_and(|backend| backend.is_kept_for(id))
            && !self.is_stale(last_server)
            && self.servers.get(last_server).is_some_and(|server| !server.lost_cancel)
            && self.take_for_client(last_server)
        {
            self.resume_on_last(id, last_server);
            self.relay_to_server(id);
            // It may have been less than a command; then the connection is available to others meanwhile.
            return self.park_early(id, last_server);
        }
        if self.clients.get_mut(id).is_some_and(Client::take_unanswered) {
            return self.agenda.defer(DeferredWork::Client(id));
        }
        let full = self.queue_is_full(key);
        self.update_client(id, |client, env| client.queue(full, env));
        self.acquire(id, key);
    }

    /// Assigns a client its last connection again, which has been taken from the pool's list of kept ones.
    fn resume_on_last(&mut self, id: Id, last_server: Id) {
        if let Some(Err(error)) = self.client_and_server(id, last_server).map(|mut served| served.resume()) {
            self.close_client(id, &error.to_string());
            self.impossible(last_server, "its client could not resume it");
        }
    }

    fn cannot_serve(&self) -> Option<Refusal> {
        if self.env.drain.is_some() {
            return Some(Refusal::stopping());
        }
        let limit = self.env.limits.clients;
        (self.shared.clients() > limit)
            .then(|| Refusal::new(Refusal::FULL, format!("the limit of {limit} clients is reached")))
    }

    /// Why a new client of this database is not served.
    fn is_disabled(&self, key: &P::Key) -> Option<Refusal> {
        let database = key.database();
        self.env
            .operations
            .is_disabled(database)
            .then(|| Refusal::new(Refusal::STOPPING, format!("database \"{database}\" is disabled")))
    }

    /// Counts a client for its user and its database, unless these have too many.
    fn admit(&mut self, id: Id, key: P::Key) -> Result<P::Key, Refusal> {
        let groups = &self.env.limits.groups;
        if groups.is_empty() {
            return Ok(key);
        }
        match self.env.services.client_counts.enter(groups, key.user(), key.database()) {
            Ok(ticket) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.ticket = Some(ticket);
                }
                Ok(key)
            }
            Err(GroupIsFull { kind, limit }) => {
                let name = if kind == GroupKind::User { key.user() } else { key.database() };
                Err(self.env.protocol.too_many_clients(kind, name, limit))
            }
        }
    }

    /// Counts all clients anew, for limits that have changed.
    pub(super) fn recount_clients(&mut self) {
        let (groups, counts) = (&self.env.limits.groups, &self.env.services.client_counts);
        for id in self.clients.ids() {
            let Some(client) = self.clients.get_mut(id) else { continue };
            let key = match &client.stage {
                ClientStage::Queued { key, .. } | ClientStage::Parked { key, .. } => Some(key),
                ClientStage::Active(server) => self.servers.get(*server).map(|server| &server.key),
                _ => None,
            };
            client.ticket = None;
            client.ticket = key.map(|key| counts.enter_anyway(groups, key.user(), key.database()));
        }
    }

    /// Why a client must not join the wait queue.
    fn queue_is_full(&self, key: &P::Key) -> Option<Refusal> {
        let ahead = self.pool.read(|pool| pool.queue_length(key))?;
        (ahead >= self.env.limits.queued).then(|| {
            let message =
                format!("all server connections are in use, and {ahead} clients are waiting already");
            Refusal::new(Refusal::FULL, message)
        })
    }

    pub(super) fn refuse(&mut self, id: Id, refusal: &Refusal) {
        if let Some(mut served) = self.served_client(id) {
            served.refuse(refusal);
        } else if let Some(client) = self.clients.get_mut(id) {
            client.write_refusal(refusal);
        } else {
            return;
        }
        self.refused(id, refusal);
    }

    /// Logs and counts a client that was sent an error message, and closes it.
    pub(super) fn refused(&mut self, id: Id, refusal: &Refusal) {
        let state = String::from_utf8_lossy(&refusal.sqlstate).into_owned();
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &id.index), ("sqlstate", &state), ("reason", &refusal.message)];
        self.env.log.event(Level::Info, "refused", &fields);
        self.env.metrics().refusals.increment(&state);
        self.close_after_flush(id);
    }

    pub(super) fn close_after_flush(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !matches!(client.channel.send(), Ok(Sent::Blocked)) {
            return self.close_client(id, "was closed after an error message");
        }
        client.since = self.env.now;
        client.ticket = None;
        let (stage, last_server) = (client.take_stage(), client.last_server);
        self.forget_token(id);
        self.watch_client(id);
        self.release_client(id, stage, last_server);
    }

    pub(super) fn close_client(&mut self, id: Id, how: &str) {
        let Some(client) = self.clients.get_mut(id) else { return };
        self.env.log.event(Level::Debug, "client-gone", &[("client", &id.index), ("how", &how)]);
        client.channel.give_back(&mut self.env.spare);
        if let Some(token) = client.cancel_token {
            self.tokens.remove(token);
        }
        let (stage, last_server) = (client.take_stage(), client.last_server);
        // First, so that its file descriptor is free for the next client.
        self.remove_client(id);
        self.release_client(id, stage, last_server);
    }

    /// Cancel requests do not find the client any more.
    pub(super) fn forget_token(&mut self, id: Id) {
        if let Some(token) = self.clients.get_mut(id).and_then(|client| client.cancel_token.take()) {
            self.tokens.remove(token);
        }
    }

    fn remove_client(&mut self, id: Id) {
        if self.clients.get(id).is_some() {
            self.clients.discard(id);
            self.client_removed();
        }
    }

    pub(super) fn client_removed(&self) {
        self.shared.uncount_client(self.shared.thread);
        // Workers without clients wait for the last client of all.
        if self.env.is_ending() && self.shared.clients() == 0 {
            self.shared.wake_all();
        }
    }

    fn release_client(&mut self, id: Id, stage: ClientStage<P>, last_server: Option<Id>) {
        match stage {
            ClientStage::Queued { key, .. } => self.pool.with(|pool| pool.leave_queue(&key, id)),
            ClientStage::Active(server) => self.session_ended(server),
            ClientStage::Handshake(_)
            | ClientStage::TlsHandshake(_)
            | ClientStage::Parked { .. }
            | ClientStage::Cancelling
            | ClientStage::Flushing => {}
        }
        // A connection that is kept for it is available to any client now.
        if let Some(server) = last_server
            && let Some(backend) = self.servers.open(server)
            && backend.is_kept_for(id)
            && let Some(context) = backend.kept_context()
        {
            self.orphan_server(server, context);
        }
    }

    pub(super) fn watch_client(&mut self, id: Id) {
        self.update_client(id, |client, env| client.watched(id, env));
    }

    /// Input that no edge will report is processed.
    pub(super) fn schedule_unread(&mut self, id: Id) {
        if self.clients.get(id).is_some_and(|client| client.flow.has_more()) {
            self.agenda.defer(DeferredWork::Client(id));
        }
    }

    /// Cancels the command of a client that waits for a connection. Returns whether it could be cancelled.
    pub(super) fn cancel_queued(&mut self, id: Id) -> bool {
        let now = self.env.now;
        let cancelled = self.clients.get_mut(id).and_then(|client| client.cancel_command(now));
        let Some((key, sent)) = cancelled else {
            return false;
        };
        self.pool.with(|pool| pool.leave_queue(&key, id));
        match sent {
            Sent::All => self.agenda.defer(DeferredWork::Client(id)),
            Sent::Blocked => self.close_client(id, "does not read responses"),
        }
        true
    }
}
