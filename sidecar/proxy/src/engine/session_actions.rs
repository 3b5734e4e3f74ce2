//! Carries out what concerns a client together with its connection: assigning one, passing bytes, parking.

use ciphertoll_net::Error;
use ciphertoll_wire::relay::{Departure, Goodbye};

use super::agenda::DeferredWork;
use super::backend::{Activity, Backend, ServerConnection, ServerStage};
use super::client::{Client, ClientStage, Presence};
use super::mailbox::WorkerMessage;
use super::relay::{ToClient, ToServer, forward, is_full, pass_to_client, pass_to_server};
use super::worker::Worker;
use crate::log::Level;
use crate::pool::PoolAction;
use crate::protocol::{
    AcquiredState, Detached, FromClient, Pooling, Protocol, ProtocolRequest, ProtocolSession, Release,
};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn acquire(&mut self, id: Id, key: &P::Key) {
        let Some(client) = self.clients.get(id) else { return };
        let (acceptable, now) = (client.acceptable(self.env.pooling), self.env.now);
        match self.pool.with(|pool| pool.acquire(key, id, acceptable, now)) {
            PoolAction::Take(server) => self.assign(id, server),
            PoolAction::TakeUnreset(server) if !self.is_accepted(id, server) => {
                self.replace_server(id, server);
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
                if let Some(Client { channel, stage: ClientStage::Queued { .. }, .. }) =
                    self.clients.get_mut(id)
                {
                    channel.shrink_input(&mut self.env.spare);
                }
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
    fn replace_server(&mut self, client: Id, server: Id) {
        let Some(key) = self.servers.get(server).map(|server| server.key.clone()) else { return };
        let now = self.env.now;
        self.pool.with(|pool| pool.wait_for(&key, server, client, now));
        self.close_server(server, "a reset does not undo what its sessions have done");
    }

    /// Assigns a connection that was reset to a client that waits.
    pub(super) fn assign(&mut self, client: Id, server: Id) {
        if !self.is_accepted(client, server) {
            self.replace_server(client, server);
        } else if !self.start_session(client, server, AcquiredState::Reset) {
            self.return_to_pool(server);
        }
    }

    /// Assigns a connection that was not reset: the reset is pipelined in front of the client's command.
    pub(super) fn assign_unreset(&mut self, client: Id, server: Id) {
        let context = self.servers.open(server).and_then(Backend::kept_context);
        let metrics = self.env.metrics();
        match context {
            Some(context) if self.env.protocol.leaves_nothing(context) => metrics.skipped_resets.increment(),
            _ => metrics.resets.increment(),
        }
        if !self.start_session(client, server, AcquiredState::ResetPending) {
            self.reset_kept(server);
        }
    }

    /// Returns false if the client has left or could not use the connection, which is unchanged and has no client.
    fn start_session(&mut self, client_id: Id, server_id: Id, acquired: AcquiredState) -> bool {
        let Some(backend) = self.servers.open_mut(server_id) else { return true };
        let Some(client) = self.clients.get_mut(client_id) else { return false };
        if !matches!(client.stage, ClientStage::Queued { .. }) {
            return false;
        }
        let Some((_, request)) = client.take_waiting() else { return false };
        if let Err((request, error)) = backend.start_session(client_id, request, acquired, &mut self.env) {
            let refusal = Refusal::settings_failed(&error);
            request.refuse(&refusal, client.channel.output());
            self.refused(client_id, &refusal);
            return false;
        }
        self.env.metrics().waits.add(self.env.now.duration_since(client.since));
        client.stage = ClientStage::Active(server_id);
        client.last_server = Some(server_id);
        if backend.session().is_some_and(ProtocolSession::awaits_settings) {
            let step = backend.flush(server_id, &self.env);
            self.backend_step(server_id, step);
        } else {
            self.report_start(client_id, server_id);
        }
        true
    }

    /// Tells a client that its login is complete, or that it may go on.
    fn report_start(&mut self, client_id: Id, server_id: Id) {
        let Some(Client { channel, cancel_token: Some(_), .. }) = self.clients.get_mut(client_id) else {
            return self.greet(client_id, server_id);
        };
        if let Some(backend) = self.servers.open(server_id)
            && let Some(session) = backend.session()
            && session.report_changed_settings(&backend.state, channel.output()).is_err()
        {
            return self.close_client(client_id, "cannot be sent its settings");
        }
        self.agenda.defer(DeferredWork::Client(client_id));
    }

    fn greet(&mut self, client_id: Id, server_id: Id) {
        let Some(token) = self.tokens.create() else {
            return self.refuse(client_id, &Refusal::new(*b"XX000", "OpenSSL has no random bytes"));
        };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Activity::Session { session, .. } = &mut backend.activity else { return };
        client.cancel_token = Some(token);
        self.tokens.insert(token, client_id);
        client.channel.borrow(&mut self.env.spare);
        if session.greet(&mut backend.state, token, client.channel.output()).is_err() {
            return self.close_client(client_id, "cannot be greeted");
        }
        self.env.log.event(
            Level::Debug,
            "session",
            &[("client", &client_id.index), ("server_connection", &server_id.index)],
        );
        if self.env.pooling == Pooling::Transaction {
            self.agenda.defer(DeferredWork::Park(client_id, server_id));
        }
        self.greeted(client_id);
    }

    /// The end of the login is written, with whatever else the handshake has to say.
    pub(super) fn greeted(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.channel.send().is_err() {
            return self.close_client(id, "went away");
        }
        client.channel.give_back(&mut self.env.spare);
        self.env.metrics().sessions.increment();
        self.watch_client(id);
        self.schedule_unread(id);
    }

    pub(super) fn relay_to_server(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientStage::Active(server_id) = client.stage else { return };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        if client.presence != Presence::Stays {
            if client.flow.is_gone() {
                self.close_client(id, "left");
            } else {
                self.end_leaving(id, server_id);
            }
            return;
        }
        client.channel.borrow(&mut self.env.spare);
        let outcome = pass_to_server(client, backend, &self.env.services.metrics.bytes_to_server);
        if let ToServer::Left | ToServer::Leaves(_) = outcome {
            // Its last message and whatever follows it.
            let bytes = client.channel.input().len();
            client.channel.consume(bytes);
        }
        client.channel.give_back(&mut self.env.spare);
        if let Err(error) = backend.watch(server_id, &self.env) {
            return self.server_lost(server_id, Some(&error));
        }
        match outcome {
            ToServer::Waits => {}
            ToServer::More => self.agenda.defer(DeferredWork::Client(id)),
            ToServer::Exclusive(processed) => self.pass_exclusive(id, server_id, &processed),
            ToServer::Left => self.close_client(id, "left"),
            ToServer::Leaves(goodbye) => self.await_answers(id, server_id, goodbye),
            ToServer::ChangeUser => self.change_user(id, server_id),
            ToServer::Violated(error) => self.refuse(id, &Refusal::from_client(&error)),
            ToServer::ServerLost(error) => self.send_failed(server_id, &error),
        }
    }

    /// A client that sends nothing more is sent what the server still answers.
    fn await_answers(&mut self, client_id: Id, server_id: Id, goodbye: Goodbye) {
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        client.presence =
            if goodbye == Goodbye::Said { Presence::HasSaidGoodbye } else { Presence::HasEnded };
        // What was inserted may not have been sent.
        let step = backend.flush(server_id, &self.env);
        self.backend_step(server_id, step);
        self.relay_to_client(server_id);
    }

    /// Closes a client that sends nothing more once everything is answered, or tells the server.
    fn end_leaving(&mut self, client_id: Id, server_id: Id) {
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let departure = backend.session().map(ProtocolSession::departure);
        let announced = match (client.presence, departure) {
            (Presence::Stays, _) | (_, Some(Departure::WhenAnswered) | None) => return,
            (_, Some(Departure::Now)) => return self.close_after_flush(client_id),
            (Presence::IsAnnounced, _) => return,
            (Presence::HasSaidGoodbye, _) => {
                self.env.protocol.terminate(backend.channel.output());
                backend.channel.send()
            }
            (Presence::HasEnded, _) => backend.channel.end_output(),
        };
        client.presence = Presence::IsAnnounced;
        if let Err(error) = announced.and_then(|_| backend.watch(server_id, &self.env)) {
            self.send_failed(server_id, &error);
        }
    }

    /// Passes on a command that needs exclusive access to a database, after closing its idle connections.
    fn pass_exclusive(&mut self, client_id: Id, server_id: Id, processed: &FromClient) {
        for target in &processed.exclusive {
            self.shared.broadcast(|| WorkerMessage::CloseUnused(target.clone()));
            self.close_unused(target.clone());
        }
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let sent = forward(&mut client.channel, &mut backend.channel, processed)
            .and_then(|()| backend.channel.send())
            .and_then(|_| backend.watch(server_id, &self.env));
        match sent {
            Ok(()) => self.agenda.defer(DeferredWork::Client(client_id)),
            Err(error) => self.send_failed(server_id, &error),
        }
    }

    /// The server takes no more bytes, but it may have sent the reason.
    pub(super) fn send_failed(&mut self, id: Id, error: &Error) {
        self.relay_to_client(id);
        if self.servers.open(id).is_some() {
            self.server_lost(id, Some(error));
        }
    }

    /// Passes a server's bytes to the client, or reads them if there is none.
    pub(super) fn relay_to_client(&mut self, id: Id) {
        let Some(backend) = self.servers.open_mut(id) else { return };
        let Some(client_id) = backend.client() else {
            let step = backend.read_unassigned(&mut self.env);
            return self.backend_step(id, step);
        };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let was_full = is_full(backend);
        backend.channel.borrow(&mut self.env.spare);
        let outcome = pass_to_client(client, backend, &self.env.services.metrics.bytes_to_client);
        backend.channel.give_back(&mut self.env.spare);
        let departure = backend.session().map(ProtocolSession::departure);
        if was_full && !is_full(backend)
            || client.flow.awaits_answers && departure != Some(Departure::WhenAnswered)
        {
            client.flow.awaits_answers = false;
            self.agenda.defer(DeferredWork::Client(client_id));
        }
        let is_leaving = client.presence != Presence::Stays && departure != Some(Departure::WhenAnswered);
        self.watch_client(client_id);
        match outcome {
            ToClient::Waits | ToClient::CanDetach | ToClient::NeedsQuery | ToClient::Pinned(_)
                if is_leaving =>
            {
                self.end_leaving(client_id, id);
            }
            ToClient::Waits => {}
            ToClient::More => self.agenda.defer(DeferredWork::Server(id)),
            ToClient::ClientLost => self.close_client(client_id, "went away"),
            ToClient::ServerLost(error) => self.server_lost(id, error.as_ref()),
            ToClient::Broken(error) => self.server_lost(id, Some(&Error::Protocol(error))),
            ToClient::SettingsApplied => {
                self.report_start(client_id, id);
                self.agenda.defer(DeferredWork::Server(id));
            }
            ToClient::CanDetach => self.park(client_id, id),
            ToClient::NeedsQuery => self.update_backend(id, |backend, env| backend.query_settings(id, env)),
            ToClient::Pinned(reason) => {
                self.log_pin(client_id, id, reason);
                self.agenda.defer(DeferredWork::Server(id));
            }
            ToClient::Refused(error) => self.refuse(client_id, &Refusal::settings_failed(&error)),
        }
    }

    fn log_pin(&mut self, client_id: Id, server_id: Id, reason: &str) {
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &client_id.index), ("server_connection", &server_id.index), ("reason", &reason)];
        self.env.log.event(Level::Info, "pinned", &fields);
        self.env.metrics().pins.increment(reason);
    }

    pub(super) fn park_early(&mut self, client_id: Id, server_id: Id) {
        let session = self.servers.open(server_id).and_then(Backend::session);
        if session.is_some_and(ProtocolSession::can_detach) {
            self.park(client_id, server_id);
        }
    }

    /// Detaches a client from its connection at the end of a transaction.
    fn park(&mut self, client_id: Id, server_id: Id) {
        let Some(ServerConnection { stage: ServerStage::Open(backend), key, .. }) =
            self.servers.get_mut(server_id)
        else {
            return;
        };
        let Some(detached) = backend.detach(client_id, &self.env) else { return };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        match detached {
            Ok(Detached { request: Some(request), release }) => {
                client.stage = ClientStage::Parked { key: key.clone(), request };
                match release {
                    Release::Reset(context) => self.keep_server(client_id, server_id, context),
                    release => self.reset_server(server_id, release),
                }
                self.schedule_unread(client_id);
            }
            Ok(Detached { request: None, .. }) => {
                self.close_client(client_id, "cannot be detached from its connection");
                self.impossible(server_id, "a session that cannot be detached was");
            }
            Err(error) => {
                self.close_client(client_id, &error.to_string());
                self.close_server(server_id, "its settings are not known");
            }
        }
    }
}
