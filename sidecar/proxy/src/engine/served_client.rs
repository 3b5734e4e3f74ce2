//! A client together with the connection that serves it: the start of its session, what is passed between them, and its
//! end. A transition does what concerns only these two, and returns what the worker must do.

use ciphertoll_net::Error;
use ciphertoll_wire::relay::{Departure, Goodbye, RoleDoubt};
use ciphertoll_wire::session;

use super::agenda::{Agenda, DeferredWork};
use super::backend::{Activity, Backend, BackendStep, ServerConnection, ServerStage};
use super::client::{CANNOT_BE_WATCHED, Client, ClientStage, ClientStep, Presence};
use super::environment::Environment;
use super::host_link::HostLink;
use super::relay::{ToClient, ToServer, forward, is_full, pass_to_client, pass_to_server};
use super::worker::Worker;
use crate::exceeded::Exceeded;
use crate::protocol::{
    AcquiredState, CancelToken, Detached, FromClient, Protocol, ProtocolRequest, ProtocolSession, Release,
};
use crate::refusal::Refusal;
use crate::slab::Id;

/// A client, and the connection that serves it or is about to; both are there.
pub(super) struct ServedClient<'a, P: Protocol> {
    pub(super) client_id: Id,
    pub(super) server_id: Id,
    client: &'a mut Client<P>,
    key: &'a P::Key,
    link: Option<&'a HostLink>,
    backend: &'a mut Backend<P>,
    env: &'a mut Environment<P>,
    agenda: &'a mut Agenda,
}

/// What the worker must do after a transition of a client and its connection.
pub(super) enum ServedStep<P: Protocol> {
    Client(ClientStep<P>),
    Server(BackendStep),
    /// Tell the client that its login is complete.
    Greet,
    Greeted(CancelToken),
    /// Close other connections before these bytes are passed on.
    Exclusive(FromClient),
    /// The client repeats its handshake: release its connection.
    ChangedUser,
    Pinned(&'static str),
    /// Detach the client from its connection.
    Park,
}

/// What has come of assigning a connection.
pub(super) enum Started<P: Protocol> {
    Done(ServedStep<P>),
    /// The client does not wait any more.
    ClientLeft,
    /// The client cannot use this connection, and was sent the reason.
    Refused(Refusal),
}

/// What has come of the end of a transaction.
pub(super) enum Parked<P: Protocol> {
    Done(Release<P::ResetContext>),
    /// The client is not detached from the connection that it uses.
    NotDetachable,
    Failed(session::Error),
}

impl<P: Protocol> Worker<P> {
    /// This client and this connection, if both are there.
    pub(super) fn client_and_server(&mut self, client_id: Id, server_id: Id) -> Option<ServedClient<'_, P>> {
        let client = self.clients.get_mut(client_id)?;
        let ServerConnection { key, link, stage: ServerStage::Open(backend), .. } =
            self.servers.get_mut(server_id)?
        else {
            return None;
        };
        let (env, agenda, link) = (&mut self.env, &mut self.agenda, link.as_deref());
        Some(ServedClient { client_id, server_id, client, key, link, backend, env, agenda })
    }

    /// This client, if a connection serves it.
    pub(super) fn served_client(&mut self, client_id: Id) -> Option<ServedClient<'_, P>> {
        let ClientStage::Active(server_id) = self.clients.get(client_id)?.stage else { return None };
        self.client_and_server(client_id, server_id)
    }

    /// This connection, if it serves a client.
    pub(super) fn client_served_by(&mut self, server_id: Id) -> Option<ServedClient<'_, P>> {
        let client_id = self.servers.open(server_id)?.client()?;
        self.client_and_server(client_id, server_id)
    }
}

impl<P: Protocol> ServedClient<'_, P> {
    pub(super) fn session(&self) -> Option<&P::Session> {
        self.backend.session()
    }

    /// Starts the session of a client that waits. If it cannot use the connection, that is unchanged and has no client.
    pub(super) fn start(&mut self, acquired: AcquiredState) -> Started<P> {
        let Some(request) = self.client.take_queued() else { return Started::ClientLeft };
        if let Err((request, error)) = self.start_session(request, acquired) {
            let refusal = Refusal::settings_failed(&error);
            request.refuse(&refusal, self.client.channel.output());
            return Started::Refused(refusal);
        }
        let waited = self.env.now.duration_since(self.client.since);
        self.client.timing.restart(self.env.now);
        self.env.metrics().waits.add(waited);
        self.backend.usage.wait_us += waited.as_micros() as u64;
        // Its login was completed without a connection.
        let is_first = self.client.last_server.is_none() && self.client.cancel_token.is_some();
        self.backend.usage.logins += u64::from(is_first);
        self.client.last_server = Some(self.server_id);
        let awaits_settings = self.session().is_some_and(ProtocolSession::awaits_settings);
        Started::Done(if awaits_settings {
            ServedStep::Server(self.backend.flush(self.server_id, self.env))
        } else {
            self.report_start()
        })
    }

    /// A parked client takes its last connection again, which has been taken from the pool's list of kept ones. Fails only
    /// if its settings must be sent first and cannot be encoded.
    pub(super) fn resume(&mut self) -> Result<(), session::Error> {
        let Some((_, request)) = self.client.take_waiting() else { return Ok(()) };
        self.start_session(request, AcquiredState::SameClient).map_err(|(_, error)| error)
    }

    fn start_session(
        &mut self,
        request: P::Request,
        acquired: AcquiredState,
    ) -> Result<(), (P::Request, session::Error)> {
        self.backend.start_session(self.client_id, request, acquired, self.env)?;
        self.client.stage = ClientStage::Active(self.server_id);
        self.backend.usage.assignments += 1;
        self.backend.assigned = self.env.now;
        Ok(())
    }

    /// Tells a client that its login is complete, or that it may go on.
    fn report_start(&mut self) -> ServedStep<P> {
        if self.client.cancel_token.is_none() {
            return ServedStep::Greet;
        }
        if let Activity::Session { session, .. } = &self.backend.activity
            && session.report_changed_settings(&self.backend.state, self.client.channel.output()).is_err()
        {
            return ServedStep::Client(ClientStep::Close("cannot be sent its settings"));
        }
        self.agenda.defer(DeferredWork::Client(self.client_id));
        ServedStep::wait()
    }

    /// The end of the login.
    pub(super) fn greet(&mut self, token: CancelToken) -> ServedStep<P> {
        let Activity::Session { session, .. } = &mut self.backend.activity else { return ServedStep::wait() };
        self.client.cancel_token = Some(token);
        self.backend.usage.logins += 1;
        self.client.channel.borrow(&mut self.env.spare);
        if session.greet(&mut self.backend.state, token, self.client.channel.output()).is_err() {
            return ServedStep::Client(ClientStep::Close("cannot be greeted"));
        }
        ServedStep::Greeted(token)
    }

    /// Records what the session is doing, if that matters to a time limit.
    pub(super) fn record_progress(&mut self) {
        if self.env.is_timed
            && let Activity::Session { session, .. } = &self.backend.activity
        {
            self.client.timing.record(session.progress(), self.env.now);
        }
    }

    /// Tells the client why its command will be cancelled.
    pub(super) fn announce(&mut self, exceeded: Exceeded) -> ClientStep<P> {
        let Activity::Session { session, .. } = &self.backend.activity else { return ClientStep::Wait };
        session.announce(exceeded, self.client.channel.output());
        match self.client.channel.send() {
            Ok(_) => self.client.watched(self.client_id, self.env),
            Err(_) => ClientStep::Close("went away"),
        }
    }

    pub(super) fn relay_to_server(&mut self) -> ServedStep<P> {
        if self.client.presence != Presence::Stays {
            return if self.client.flow.is_gone() { ServedStep::left() } else { self.end_leaving() };
        }
        let (client, backend) = (&mut *self.client, &mut *self.backend);
        client.channel.borrow(&mut self.env.spare);
        let outcome = pass_to_server(client, backend, &self.env.services.metrics.bytes_to_server);
        if let ToServer::Left | ToServer::Leaves(_) = outcome {
            // Its last message and whatever follows it.
            let bytes = client.channel.input().len();
            client.channel.consume(bytes);
        }
        client.channel.give_back(&mut self.env.spare);
        if let Err(error) = backend.watch(self.server_id, self.env) {
            return ServedStep::Server(BackendStep::Lost(Some(error)));
        }
        match outcome {
            ToServer::Waits if self.session().is_some_and(ProtocolSession::awaits_nothing) => {
                self.later(DeferredWork::Server(self.server_id))
            }
            ToServer::Waits => ServedStep::wait(),
            ToServer::More => self.later(DeferredWork::Client(self.client_id)),
            ToServer::Exclusive(processed) => ServedStep::Exclusive(processed),
            ToServer::Left => ServedStep::left(),
            ToServer::Leaves(goodbye) => self.await_answers(goodbye),
            ToServer::ChangeUser => self.change_user(),
            ToServer::Violated(error) => ServedStep::refuse(Refusal::from_client(&error)),
            ToServer::ServerLost(error) => ServedStep::Server(BackendStep::SendFailed(error)),
        }
    }

    /// Passes on a command for which other connections were closed.
    pub(super) fn pass_exclusive(&mut self, processed: &FromClient) -> ServedStep<P> {
        let sent = forward(&mut self.client.channel, &mut self.backend.channel, processed)
            .and_then(|()| self.backend.channel.send())
            .and_then(|_| self.backend.watch(self.server_id, self.env));
        match sent {
            Ok(()) => self.later(DeferredWork::Client(self.client_id)),
            Err(error) => ServedStep::Server(BackendStep::SendFailed(error)),
        }
    }

    /// A client that sends nothing more is sent what the server still answers.
    fn await_answers(&mut self, goodbye: Goodbye) -> ServedStep<P> {
        self.client.presence =
            if goodbye == Goodbye::Said { Presence::HasSaidGoodbye } else { Presence::HasEnded };
        // What was inserted may not have been sent.
        match self.backend.flush(self.server_id, self.env) {
            BackendStep::Wait => self.relay_to_client(),
            failed => ServedStep::Server(failed),
        }
    }

    /// Closes a client that sends nothing more once everything is answered, or tells the server.
    fn end_leaving(&mut self) -> ServedStep<P> {
        let announced = match (self.client.presence, self.departure()) {
            (Presence::Stays, _) | (_, Some(Departure::WhenAnswered) | None) => return ServedStep::wait(),
            (_, Some(Departure::Now)) => return ServedStep::Client(ClientStep::CloseAfterFlush),
            (Presence::IsAnnounced, _) => return ServedStep::wait(),
            (Presence::HasSaidGoodbye, _) => {
                self.env.protocol.terminate(self.backend.channel.output());
                self.backend.channel.send()
            }
            (Presence::HasEnded, _) => self.backend.channel.end_output(),
        };
        self.client.presence = Presence::IsAnnounced;
        match announced.and_then(|_| self.backend.watch(self.server_id, self.env)) {
            Ok(()) => ServedStep::wait(),
            Err(error) => ServedStep::Server(BackendStep::SendFailed(error)),
        }
    }

    /// A client changes its user: it repeats its handshake.
    fn change_user(&mut self) -> ServedStep<P> {
        let handshake =
            self.backend.session().and_then(|session| self.env.protocol.change_user_handshake(session));
        let Some(handshake) = handshake else {
            let message = "a change of user is not possible on this connection";
            return ServedStep::refuse(Refusal::new(Refusal::UNSUPPORTED, message));
        };
        self.client.stage = ClientStage::Handshake(handshake);
        self.client.since = self.env.now;
        self.client.last_server = None;
        self.client.ticket = None;
        ServedStep::ChangedUser
    }

    pub(super) fn relay_to_client(&mut self) -> ServedStep<P> {
        let (client, backend) = (&mut *self.client, &mut *self.backend);
        let was_full = is_full(backend);
        backend.channel.borrow(&mut self.env.spare);
        let outcome = pass_to_client(client, backend, &self.env.services.metrics.bytes_to_client);
        backend.channel.give_back(&mut self.env.spare);
        if let Some(link) = self.link
            && let Activity::Session { session, .. } = &mut backend.activity
            && session.take_role_doubt() == RoleDoubt::Raised
        {
            link.doubt("it has refused a command", self.env);
        }
        let departure = self.departure();
        let is_answered = departure != Some(Departure::WhenAnswered);
        if was_full && !is_full(self.backend) || self.client.flow.awaits_answers && is_answered {
            self.client.flow.awaits_answers = false;
            self.agenda.defer(DeferredWork::Client(self.client_id));
        }
        let is_watched = self.client.watch(self.client_id, self.env);
        let is_leaving = self.client.presence != Presence::Stays && is_answered;
        match outcome {
            ToClient::ServerLost(error) => ServedStep::Server(BackendStep::Lost(error)),
            ToClient::Broken(error) => ServedStep::Server(BackendStep::Lost(Some(Error::Protocol(error)))),
            _ if !is_watched => ServedStep::Client(ClientStep::Close(CANNOT_BE_WATCHED)),
            ToClient::ClientLost => ServedStep::Client(ClientStep::Close("went away")),
            ToClient::Waits | ToClient::CanDetach | ToClient::NeedsQuery | ToClient::Pinned(_)
                if is_leaving =>
            {
                self.end_leaving()
            }
            ToClient::Waits => ServedStep::wait(),
            ToClient::More => self.later(DeferredWork::Server(self.server_id)),
            ToClient::SettingsApplied => {
                let step = self.report_start();
                self.agenda.defer(DeferredWork::Server(self.server_id));
                step
            }
            ToClient::CanDetach => ServedStep::Park,
            ToClient::NeedsQuery => ServedStep::Server(self.backend.query_settings(self.server_id, self.env)),
            ToClient::Pinned(reason) => {
                self.agenda.defer(DeferredWork::Server(self.server_id));
                ServedStep::Pinned(reason)
            }
            ToClient::Refused(error) => self.refuse_settings(&error),
        }
    }

    /// The server has refused the client's settings. A client that has logged in gets the error as that of its command.
    fn refuse_settings(&mut self, error: &session::Error) -> ServedStep<P> {
        let refusal = Refusal::settings_failed(error);
        if self.client.cancel_token.is_some()
            && let Activity::Session { session, .. } = &mut self.backend.activity
        {
            let (input, out) = self.client.channel.buffers();
            if let Some(bytes) = session.refuse_command(&refusal, input, out) {
                self.client.channel.consume(bytes);
                self.agenda.defer(DeferredWork::Client(self.client_id));
                return match self.client.channel.send() {
                    Ok(_) => ServedStep::Park,
                    Err(_) => ServedStep::Client(ClientStep::Close("went away")),
                };
            }
        }
        ServedStep::refuse(refusal)
    }

    /// Detaches a client from its connection at the end of a transaction; `None` if it does not use it.
    pub(super) fn park(&mut self) -> Option<Parked<P>> {
        Some(match self.backend.detach(self.client_id, self.env)? {
            Ok(Detached { request: Some(request), release }) => {
                self.client.stage = ClientStage::Parked { key: self.key.clone(), request };
                let took = self.env.now.duration_since(self.backend.assigned);
                self.backend.usage.transactions += 1;
                self.backend.usage.transaction_us += took.as_micros() as u64;
                Parked::Done(release)
            }
            Ok(Detached { request: None, .. }) => Parked::NotDetachable,
            Err(error) => Parked::Failed(error),
        })
    }

    /// Appends an error message to what the client is sent.
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        if let Activity::Session { session, .. } = &self.backend.activity {
            session.refuse(refusal, self.client.channel.output());
        }
    }

    fn departure(&self) -> Option<Departure> {
        self.session().map(ProtocolSession::departure)
    }

    fn later(&mut self, work: DeferredWork) -> ServedStep<P> {
        self.agenda.defer(work);
        ServedStep::wait()
    }
}

impl<P: Protocol> ServedStep<P> {
    fn wait() -> Self {
        Self::Client(ClientStep::Wait)
    }

    fn left() -> Self {
        Self::Client(ClientStep::Close("left"))
    }

    fn refuse(refusal: Refusal) -> Self {
        Self::Client(ClientStep::Refuse(refusal))
    }
}
