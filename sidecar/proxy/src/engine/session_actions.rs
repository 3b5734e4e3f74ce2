//! Carries out what concerns a client together with its connection: assigning one, passing bytes, parking.

use ciphertoll_net::Error;

use super::agenda::DeferredWork;
use super::backend::Backend;
use super::client::Client;
use super::mailbox::WorkerMessage;
use super::served_client::{Parked, ServedClient, ServedStep, Started};
use super::worker::Worker;
use crate::log::Level;
use crate::pool::PoolAction;
use crate::protocol::{AcquiredState, Pooling, Protocol, ProtocolSession, Release, ResetNeed};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn acquire(&mut self, id: Id, key: &P::Key) {
        let Some(client) = self.clients.get(id).filter(|client| client.is_queued()) else { return };
        let (acceptable, now) = (client.acceptable(self.env.pooling), self.env.now);
        match self.pool.with(|pool| pool.acquire(key, id, acceptable, now)) {
            PoolAction::Take(server) => self.assign(id, server),
            PoolAction::TakeUnreset(server) if !self.is_accepted(id, server) => {
                self.await_another(id, server);
            }
            PoolAction::TakeUnreset(server) if self.can_pipeline_reset(server) => {
                self.assign_unreset(id, server);
            }
            PoolAction::TakeUnreset(server) => {
                self.pool.with(|pool| pool.wait_for(key, server, id, now));
                self.reset_kept(server);
            }
            action => {
                self.apply_action(key, action);
                self.update_client(id, Client::shrink_if_queued);
            }
        }
    }

    /// Whether a client finds its own state on a connection after a reset.
    fn is_accepted(&self, client: Id, server: Id) -> bool {
        let request = self.clients.get(client).and_then(Client::waiting_request);
        let pair = self.servers.open(server).zip(request);
        pair.is_none_or(|(backend, request)| self.env.protocol.accepts(&backend.state, request))
    }

    /// A client needs a connection without the state that this one has: it waits for another one.
    fn await_another(&mut self, client: Id, server: Id) {
        let Some(key) = self.servers.get(server).map(|server| server.key.clone()) else { return };
        let now = self.env.now;
        self.pool.with(|pool| pool.wait_for(&key, server, client, now));
        self.close_server(server, "a reset does not undo what its sessions have done");
    }

    /// Assigns a connection that was reset to a client that waits.
    pub(super) fn assign(&mut self, client: Id, server: Id) {
        if self.is_stale(server) {
            self.refresh_for(client, server);
        } else if !self.is_accepted(client, server) {
            self.await_another(client, server);
        } else if !self.start_session(client, server, AcquiredState::Reset) {
            self.return_to_pool(server);
        }
    }

    /// Assigns a connection that was not reset: the reset is pipelined in front of the client's command.
    pub(super) fn assign_unreset(&mut self, client: Id, server: Id) {
        let context = self.servers.open(server).and_then(Backend::kept_context);
        let need = context.map(|context| self.env.protocol.reset_need(context));
        let metrics = self.env.metrics();
        match need {
            Some(ResetNeed::SettingsOnly | ResetNeed::None) => metrics.skipped_resets.increment(),
            _ => metrics.resets.increment(),
        }
        if !self.start_session(client, server, AcquiredState::ResetPending) {
            self.reset_kept(server);
        }
    }

    /// Returns false if the client has left or could not use the connection, which is unchanged and has no client.
    fn start_session(&mut self, client_id: Id, server_id: Id, acquired: AcquiredState) -> bool {
        match self.client_and_server(client_id, server_id).map(|mut served| served.start(acquired)) {
            Some(Started::Done(step)) => self.served_step(client_id, server_id, step),
            Some(Started::Refused(refusal)) => {
                self.refused(client_id, &refusal);
                return false;
            }
            Some(Started::ClientLeft) => return false,
            None => return self.servers.open(server_id).is_none(),
        }
        true
    }

    pub(super) fn relay_to_server(&mut self, client_id: Id) {
        if self.env.is_timed && self.must_hold(client_id) {
            if let Some(client) = self.clients.get_mut(client_id) {
                client.flow.unread = true;
            }
            return;
        }
        if let Some(mut served) = self.served_client(client_id) {
            let (server_id, step) = (served.server_id, served.relay_to_server());
            served.record_progress();
            self.served_step(client_id, server_id, step);
        }
    }

    /// Passes a server's bytes to the client, or reads them if there is none.
    pub(super) fn relay_to_client(&mut self, server_id: Id) {
        if let Some(mut served) = self.client_served_by(server_id) {
            let (client_id, step) = (served.client_id, served.relay_to_client());
            served.record_progress();
            self.served_step(client_id, server_id, step);
        } else {
            self.update_backend(server_id, Backend::read_unassigned);
        }
    }

    fn update_served(
        &mut self,
        client_id: Id,
        server_id: Id,
        transition: impl FnOnce(&mut ServedClient<'_, P>) -> ServedStep<P>,
    ) {
        if let Some(mut served) = self.client_and_server(client_id, server_id) {
            let step = transition(&mut served);
            self.served_step(client_id, server_id, step);
        }
    }

    fn served_step(&mut self, client_id: Id, server_id: Id, step: ServedStep<P>) {
        match step {
            ServedStep::Client(step) => self.client_step(client_id, step),
            ServedStep::Server(step) => self.backend_step(server_id, step),
            ServedStep::Greet => self.greet(client_id, server_id),
            ServedStep::Greeted(token) => {
                self.tokens.insert(token, client_id);
                let fields: [(&str, &dyn std::fmt::Display); 2] =
                    [("client", &client_id.index), ("server_connection", &server_id.index)];
                self.env.log.event(Level::Debug, "session", &fields);
                if self.env.pooling == Pooling::Transaction {
                    self.agenda.defer(DeferredWork::Park(client_id, server_id));
                }
                self.greeted(client_id);
            }
            ServedStep::Exclusive(processed) => {
                for target in &processed.exclusive {
                    self.shared.broadcast(|| WorkerMessage::CloseUnused(target.clone()));
                    self.close_unused(target.clone());
                }
                self.update_served(client_id, server_id, |served| served.pass_exclusive(&processed));
            }
            ServedStep::ChangedUser => {
                self.forget_token(client_id);
                self.session_ended(server_id);
                self.update_client(client_id, Client::step_handshake);
            }
            ServedStep::Pinned(reason) => self.log_pin(client_id, server_id, reason),
            ServedStep::Park => self.park(client_id, server_id),
        }
    }

    fn greet(&mut self, client_id: Id, server_id: Id) {
        let Some(token) = self.tokens.create() else {
            return self.refuse(client_id, &Refusal::new(*b"XX000", "OpenSSL has no random bytes"));
        };
        self.update_served(client_id, server_id, |served| served.greet(token));
    }

    pub(super) fn greeted(&mut self, id: Id) {
        self.update_client(id, |client, env| client.greeted(id, env));
        self.schedule_unread(id);
    }

    /// The server takes no more bytes, but it may have sent the reason.
    pub(super) fn send_failed(&mut self, id: Id, error: &Error) {
        self.relay_to_client(id);
        if self.servers.open(id).is_some() {
            self.server_lost(id, Some(error));
        }
    }

    fn log_pin(&mut self, client_id: Id, server_id: Id, reason: &str) {
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &client_id.index), ("server_connection", &server_id.index), ("reason", &reason)];
        self.env.log.event(Level::Info, "pinned", &fields);
        self.env.metrics().pins.increment(reason);
    }

    /// Detaches a client that has not sent anything to its connection yet.
    pub(super) fn park_early(&mut self, client_id: Id, server_id: Id) {
        let session_can_detach =
            |served: ServedClient<'_, P>| served.session().is_some_and(ProtocolSession::can_detach);
        if self.client_and_server(client_id, server_id).is_some_and(session_can_detach) {
            self.park(client_id, server_id);
        }
    }

    /// Detaches a client from its connection at the end of a transaction.
    fn park(&mut self, client_id: Id, server_id: Id) {
        match self.client_and_server(client_id, server_id).and_then(|mut served| served.park()) {
            Some(Parked::Done(release)) => {
                match release {
                    Release::Reset(context) => self.keep_server(client_id, server_id, context),
                    release => self.reset_server(server_id, release),
                }
                self.schedule_unread(client_id);
            }
            Some(Parked::NotDetachable) => {
                self.close_client(client_id, "cannot be detached from its connection");
                self.impossible(server_id, "a session that cannot be detached was");
            }
            Some(Parked::Failed(error)) => {
                self.close_client(client_id, &error.to_string());
                self.close_server(server_id, "its settings are not known");
            }
            None => {}
        }
    }
}
