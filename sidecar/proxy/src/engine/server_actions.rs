//! Carries out what server connections' transitions return: connects, resets, the pool, the end.

use ciphertoll_net::{ConnectProgress, Connecting, Error, Readiness, WatchedEvents};
use ciphertoll_wire::relay::Departure;
use ciphertoll_wire::session;

use super::agenda::DeferredWork;
use super::backend::{
    Activity, Backend, BackendStep, ConnectStep, EndedSession, ServerConnection, ServerStage,
};
use super::client::{Client, Presence};
use super::environment::Environment;
use super::flow::TokenKind;
use super::shared_state::Discovery;
use super::worker::Worker;
use crate::log::Level;
use crate::metrics::{DEDICATED_CLIENT_LEFT, EXCLUSIVE_ACCESS};
use crate::pool::{Acceptable, Released, WorkerBound};
use crate::protocol::{PoolKey, Pooling, Protocol, ProtocolSession, Release, ResetNeed};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn open_server(&mut self, key: &P::Key) {
        if self.lacks_password(key) {
            return;
        }
        if self.env.hosts.is_some() {
            return self.search(key, self.env.now);
        }
        // It records the number of its password before the password is read: a newer one may come in between, and a refusal of
        // the earlier one must not count against it.
        let server = ServerConnection::connecting(key.clone(), self.next_number(), &self.env);
        let plan = self.env.protocol.connect_plan(key).ok_or_else(|| {
            let reason = "this user is no longer configured".to_owned();
            Error::Unresolved { name: key.user().to_owned(), reason }
        });
        let mut connecting = match plan.and_then(|plan| self.env.upstream.open(plan)) {
            Ok(connecting) => connecting,
            Err(error) => return self.connect_failed(key, None, &error),
        };
        let id = self.servers.insert(server);
        let registered =
            self.env.register(connecting.channel(), TokenKind::Server, id.index, WatchedEvents::Both);
        if let Err(error) = registered {
            return self.connect_failed(key, Some(id), &error);
        }
        if let Some(server) = self.servers.get_mut(id) {
            server.wait_for_connect(connecting);
        }
    }

    pub(super) fn server_ready(&mut self, id: Id, readiness: Readiness) {
        if self.servers.open(id).is_some() {
            self.update_backend(id, |backend, env| backend.ready(id, readiness, env));
        } else {
            self.continue_connect(id, |connecting| connecting.advance(readiness));
        }
    }

    pub(super) fn update_backend(
        &mut self,
        id: Id,
        transition: impl FnOnce(&mut Backend<P>, &mut Environment<P>) -> BackendStep,
    ) {
        if let Some(backend) = self.servers.open_mut(id) {
            let step = transition(backend, &mut self.env);
            self.backend_step(id, step);
        }
    }

    pub(super) fn backend_step(&mut self, id: Id, step: BackendStep) {
        match step {
            BackendStep::Wait => {}
            BackendStep::Relay { is_unblocked, has_input } => {
                // The server takes bytes again: its client may have more.
                if is_unblocked
                    && let Some(client) = self.servers.open(id).and_then(Backend::client)
                    && self.clients.get(client).is_some_and(|client| client.flow.has_more())
                {
                    self.relay_to_server(client);
                }
                if has_input {
                    self.relay_to_client(id);
                }
            }
            BackendStep::Available => self.command_done(id),
            BackendStep::Close(reason) => self.close_server(id, &reason),
            BackendStep::Lost(error) => self.server_lost(id, error.as_ref()),
            BackendStep::SendFailed(error) => self.send_failed(id, &error),
        }
    }

    pub(super) fn continue_connect(
        &mut self,
        id: Id,
        step: impl FnOnce(Connecting) -> Result<ConnectProgress, Error>,
    ) {
        let Some(server) = self.servers.get_mut(id) else { return };
        match server.continue_connect(id, step, &mut self.env) {
            ConnectStep::Wait => {}
            ConnectStep::Opened => self.connect_done(id),
            ConnectStep::Failed(error) => {
                let key = server.key.clone();
                self.connect_failed(&key, Some(id), &error);
            }
        }
    }

    pub(super) fn connect_done(&mut self, id: Id) {
        if self.confirm_first(id) {
            return;
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        let key = server.key.clone();
        if let ServerStage::Open(backend) = &mut server.stage {
            self.env.protocol.learn_from(&key, &mut backend.state);
        }
        self.env.metrics().opened.increment();
        self.password_accepted(id);
        let now = self.env.now;
        // Before other workers see that the server is known: they then wait for this message instead of
        // opening a connection.
        self.share_learned(&key);
        let discovery = self.shared.server_health.with(|server_health| {
            server_health.connects.opened(now);
            std::mem::replace(&mut server_health.discovery, Discovery::Done)
        });
        self.pool.with(|pool| pool.opened(&key));
        self.return_to_pool(id);
        if discovery == Discovery::Running {
            self.resume_accepting();
        }
    }

    /// A connect has failed: the client that has waited longest is told.
    pub(super) fn connect_failed(&mut self, key: &P::Key, id: Option<Id>, error: &Error) {
        if id.is_some_and(|id| self.has_newer_password(id, key, error)) || self.search_on(key, id, error) {
            return;
        }
        if let Some(id) = id {
            self.servers.remove(id);
        }
        self.env.upstream.failed();
        self.env.metrics().connect_failed(error);
        let now = self.env.now;
        self.shared.server_health.with(|server_health| server_health.connects.failed(now));
        let ended_discovery = self.shared.replace_discovery(Discovery::Running, Discovery::NotStarted);
        let has_open = self.pool.with(|pool| {
            pool.opened(key);
            pool.has_open(key)
        });
        let may_wait = error.is_too_many_connections() && has_open;
        let reason = Refusal::reason(error);
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("server", &self.env.server), ("database", &key.database()), ("reason", &reason)];
        self.env.log.event(Level::Warn, "connect-failed", &fields);
        // If the server has too many connections, clients wait for the open ones.
        if !may_wait {
            if let Some(client) = self.pool.with(|pool| pool.pop_waiting(key)) {
                self.refuse_anywhere(client, Refusal::connect_failed(error));
            }
            self.agenda.check_unserved = true;
        }
        self.pool.with(|pool| pool.closed(key, id));
        self.tell_console();
        self.forget_without_connection(key);
        let was_known = self.env.protocol.discovery_key().is_none();
        self.env.protocol.connect_failed(error);
        if was_known && self.env.protocol.discovery_key().is_some() {
            self.shared.server_health.with(|server_health| server_health.discovery = Discovery::NotStarted);
            self.share_learned(key);
        }
        if ended_discovery {
            self.refuse_early_clients(&Refusal::connect_failed(error));
        }
    }

    pub(super) fn session_ended(&mut self, id: Id) {
        let Some(backend) = self.servers.open_mut(id) else { return };
        let Some(EndedSession { client, release, has_sent_nothing }) = backend.end_session(&self.env) else {
            return;
        };
        match release {
            Ok(Release::Reset(context)) if has_sent_nothing || self.env.pooling == Pooling::Session => {
                self.release_unreset(client, id, context);
            }
            Ok(release) => self.release_server(id, release),
            Err(error) => self.close_server(id, &error.to_string()),
        }
    }

    /// Makes a connection available to other clients, once no cancel request is on its way to it.
    fn release_server(&mut self, id: Id, release: Release<P::ResetContext>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerStage::Open(backend) = &mut server.stage else { return };
        match release {
            Release::Close(reason) => self.close_server(id, reason),
            release if server.cancels > 0 => {
                let until = self.env.now + self.env.limits.reset;
                backend.activity = Activity::AwaitingCancel { until, release };
            }
            release => self.reset_server(id, release),
        }
    }

    pub(super) fn reset_server(&mut self, id: Id, release: Release<P::ResetContext>) {
        match release {
            Release::Clean => {
                if let Some(backend) = self.servers.open_mut(id) {
                    backend.channel.output().clear();
                    self.return_to_pool(id);
                }
            }
            Release::Reset(context) if self.env.protocol.reset_need(context) == ResetNeed::None => {
                self.env.metrics().skipped_resets.increment();
                self.reset_server(id, Release::Clean);
            }
            Release::Reset(context) | Release::Unsent(context) => {
                self.env.metrics().resets.increment();
                self.send_command(id, |protocol, state, out| protocol.reset(context, state, out));
            }
            Release::Close(reason) => self.close_server(id, reason),
        }
    }

    /// Sends a command of the proxy's own. The connection is available again when the server has answered.
    pub(super) fn send_command(
        &mut self,
        id: Id,
        encode: impl FnOnce(&P, &mut P::BackendState, &mut Vec<u8>) -> Result<P::Command, session::Error>,
    ) {
        self.update_backend(id, |backend, env| backend.send_command(id, encode, env));
        if self.servers.open(id).is_some_and(|backend| backend.flow.unread) {
            self.agenda.defer(DeferredWork::Server(id));
        }
    }

    /// A command of the proxy is done: the connection is available.
    fn command_done(&mut self, id: Id) {
        if !self.role_confirmed(id) {
            return;
        }
        if let Some(ServerConnection { key, stage: ServerStage::Open(backend), .. }) =
            self.servers.get_mut(id)
            && self.env.protocol.learn_again(key, &mut backend.state)
        {
            let key = key.clone();
            self.share_learned(&key);
        }
        self.return_to_pool(id);
    }

    /// What was learned from connections of this key may be out of date, if none is open any more.
    pub(super) fn forget_without_connection(&mut self, key: &P::Key) {
        if !self.pool.read(|pool| pool.has_open(key)) && self.env.protocol.forget(key) {
            self.share_learned(key);
        }
    }

    /// Closes a connection for a command that needs exclusive access to its database, which may not exist afterwards.
    pub(super) fn close_for_exclusive(&mut self, id: Id) {
        let Some(key) = self.servers.get(id).map(|server| server.key.clone()) else { return };
        self.close_server(id, EXCLUSIVE_ACCESS);
        self.forget_without_connection(&key);
    }

    /// Assigns an idle connection to the next client that waits, or adds it to the idle ones.
    pub(super) fn return_to_pool(&mut self, id: Id) {
        if let Some(reason) = self.discard_reason(id) {
            return self.close_server(id, reason);
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.cancels > 0 {
            return self.release_server(id, Release::Clean);
        }
        if self.check_host(id) {
            return;
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(backend) = server.becomes_idle(&self.env) else { return };
        if backend.flow.has_more() {
            self.agenda.defer(DeferredWork::Server(id));
        }
        match self.pool.with(|pool| pool.release(&server.key, id)) {
            Released::Assigned(client) if client.thread() == self.shared.thread => self.assign(client, id),
            Released::Assigned(client) => self.send_server(id, client),
            Released::Replaced(next) => self.replace_server(id, &next),
            Released::Idle if server.key.is_dedicated() => self.close_server(id, DEDICATED_CLIENT_LEFT),
            Released::Idle if self.exclusive.has(server.key.database(), self.env.now) => {
                self.close_for_exclusive(id);
            }
            // An idle connection can also be evicted for clients of another key.
            Released::Idle => self.agenda.check_unserved = true,
        }
    }

    /// Closes a connection and opens one of another user, which the pool has counted.
    fn replace_server(&mut self, id: Id, next: &P::Key) {
        self.end_server(id, "makes room for another user");
        self.tell_console();
        self.open_server(next);
        self.agenda.check_unserved = true;
    }

    fn discard_reason(&self, id: Id) -> Option<&'static str> {
        let server = self.servers.get(id)?;
        let is_over_limit = self.pool.read(|pool| pool.is_over_limit(&server.key));
        server.discard_reason(is_over_limit, &self.env)
    }

    pub(super) fn obsolete_reason(&self, id: Id) -> Option<&'static str> {
        let server = self.servers.get(id)?;
        let is_over_limit = self.pool.read(|pool| pool.is_over_limit(&server.key));
        server.obsolete_reason(is_over_limit, &self.env)
    }

    /// Keeps a connection without a reset for its client, unless another client waits for one.
    pub(super) fn keep_server(&mut self, client: Id, id: Id, context: P::ResetContext) {
        if let Some(reason) = self.servers.get(id).and_then(|server| server.operators_reason(&self.env)) {
            return self.close_server(id, reason);
        }
        let Some(key) = self.start_keeping(client, id, context) else { return };
        // With diagnostics it is available to its client only, until the time for keeping it is over.
        if self.servers.open(id).is_some_and(Backend::is_held) {
            return;
        }
        let is_kept = self.pool.with(|pool| pool.keep(&key, id));
        if !is_kept && !self.env.operations.has_paused() {
            self.env.metrics().steals.increment();
        }
        self.kept(id, is_kept);
    }

    /// Releases a connection whose client has left in no transaction.
    pub(super) fn release_unreset(&mut self, client: Id, id: Id, context: P::ResetContext) {
        if !self.env.protocol.reset_need(context).is_pipelined() || self.discard_reason(id).is_some() {
            return self.release_server(id, Release::Reset(context));
        }
        // The reset is pipelined with the next client's first command. If no client comes, the next tick
        // resets the connection.
        let Some(key) = self.start_keeping(client, id, context) else { return };
        let is_kept = self.pool.with(|pool| pool.keep_orphaned(&key, id));
        self.kept(id, is_kept);
    }

    /// The client of a kept connection has left.
    pub(super) fn orphan_server(&mut self, id: Id, context: P::ResetContext) {
        if !self.env.protocol.reset_need(context).is_pipelined() {
            if self.take_kept(id) {
                self.release_server(id, Release::Reset(context));
            }
        } else if let Some(server) = self.servers.get(id)
            && let Some(is_kept) = self.pool.with(|pool| pool.orphan(&server.key, id))
        {
            self.kept(id, is_kept);
        }
    }

    /// Returns the key of the connection.
    fn start_keeping(&mut self, client: Id, id: Id, context: P::ResetContext) -> Option<P::Key> {
        let server = self.servers.get_mut(id)?;
        let ServerStage::Open(backend) = &mut server.stage else { return None };
        backend.keep(client, context, &self.env);
        if backend.flow.has_more() {
            self.agenda.defer(DeferredWork::Server(id));
        }
        Some(server.key.clone())
    }

    fn kept(&mut self, id: Id, is_kept: bool) {
        if is_kept {
            // It can also be evicted for clients of another key.
            self.agenda.check_unserved = true;
        } else {
            self.reassign_kept(id);
        }
    }

    /// Gives a waiting client a kept connection that was taken from the pool's list.
    pub(super) fn reassign_kept(&mut self, id: Id) {
        match self.next_without_reset(id) {
            Some(client) => self.assign_unreset(client, id),
            None => self.reset_kept(id),
        }
    }

    /// The client that has waited longest, if it can use this connection without waiting for the reset.
    fn next_without_reset(&mut self, id: Id) -> Option<Id> {
        if !self.can_pipeline_reset(id) {
            return None;
        }
        let (server, clients) = (self.servers.get(id)?, &self.clients);
        let (pooling, protocol) = (self.env.pooling, &self.env.protocol);
        let state = &self.servers.open(id)?.state;
        let accepts = |client: &Client<P>| {
            client.acceptable(pooling) == Acceptable::Any
                && client.waiting_request().is_some_and(|request| protocol.accepts(state, request))
        };
        let can_use = |client| clients.get(client).is_some_and(accepts);
        self.pool.with(|pool| pool.assign_unreset(&server.key, id, can_use))
    }

    /// Whether a kept connection can be used by a client whose command follows the reset.
    pub(super) fn can_pipeline_reset(&self, id: Id) -> bool {
        let Some((server, backend)) = self.servers.get(id).zip(self.servers.open(id)) else { return false };
        let is_ready = server.cancels == 0
            && !backend.flow.has_ended()
            && !self.is_stale(id)
            && self.discard_reason(id).is_none();
        let context = backend.kept_context();
        is_ready && context.is_some_and(|context| self.env.protocol.reset_need(context).is_pipelined())
    }

    /// Resets a kept connection that was taken from the pool's list, for the next client.
    pub(super) fn reset_kept(&mut self, id: Id) {
        if let Some(reason) = self.obsolete_reason(id) {
            return self.close_server(id, reason);
        }
        if let Some(context) = self.servers.open(id).and_then(Backend::kept_context) {
            self.release_server(id, Release::Reset(context));
        }
    }

    /// Takes a kept connection. Returns false if another worker has reserved it: the message is on its way.
    pub(super) fn take_kept(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        // A connection that is available to its client only is not in the pool's list.
        let is_held = self.servers.open(id).is_some_and(Backend::is_held);
        is_held || self.pool.with(|pool| pool.take_kept(&server.key, id))
    }

    /// Takes the connection that is kept for a client that resumes its session. Returns false if another worker has reserved it,
    /// or if the database is paused.
    pub(super) fn take_for_client(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        if self.servers.open(id).is_some_and(Backend::is_held) {
            return !self.env.operations.is_paused(server.key.database());
        }
        self.pool.with(|pool| pool.resume_kept(&server.key, id))
    }

    /// A connection has ended or is unusable: its client is told.
    pub(super) fn server_lost(&mut self, id: Id, error: Option<&Error>) {
        if self.opening_lost(id, error) {
            return;
        }
        let Some(mut server) = self.servers.remove(id) else { return };
        self.move_usage(&mut server);
        let reason = error.map_or_else(|| "the server closed the connection".to_owned(), ToString::to_string);
        if let Some(link) = &server.link {
            link.doubt(&reason, &self.env);
        }
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.env.log.event(Level::Warn, "server-lost", &fields);
        self.env.metrics().closed.increment("lost");
        if let ServerStage::Open(backend) = server.stage
            && let Activity::Session { client, session } = backend.activity
        {
            // Without the message, an answer that is lost would look like the end that the client has asked for.
            let awaits_error = match self.clients.get(client).map(|client| client.presence) {
                Some(Presence::HasSaidGoodbye | Presence::HasEnded) => {
                    session.departure() == Departure::WhenAnswered
                }
                Some(Presence::IsAnnounced) => false,
                Some(Presence::Stays) | None => true,
            };
            if session.can_send_error() && awaits_error {
                let message = format!("the connection to the server was lost: {reason}");
                let refusal = Refusal::new(Refusal::LOST, message);
                if let Some(client) = self.clients.get_mut(client) {
                    session.refuse(&refusal, client.channel.output());
                }
                self.refused(client, &refusal);
            } else {
                self.close_after_flush(client);
            }
        }
        self.pool.with(|pool| pool.closed(&server.key, Some(id)));
        self.tell_console();
        self.forget_without_connection(&server.key);
        self.agenda.check_unserved = true;
    }

    /// A state that no sequence of events should lead to: it is logged, and the connection is closed.
    pub(super) fn impossible(&mut self, id: Id, what: &str) {
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &what)];
        self.env.log.event(Level::Warn, "impossible-state", &fields);
        self.close_server(id, what);
    }

    pub(super) fn close_server(&mut self, id: Id, reason: &str) {
        if self.opening_lost(id, None) {
            return;
        }
        let Some(key) = self.end_server(id, reason) else { return };
        self.pool.with(|pool| pool.closed(&key, Some(id)));
        self.tell_console();
        self.agenda.check_unserved = true;
    }

    /// Closes a connection that the pool does not count any more, or counts until it is told. Returns its key.
    fn end_server(&mut self, id: Id, reason: &str) -> Option<P::Key> {
        let mut server = self.servers.remove(id)?;
        self.move_usage(&mut server);
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.env.log.event(Level::Info, "server-closed", &fields);
        self.env.metrics().closed(reason);
        if let ServerStage::Open(mut backend) = server.stage {
            self.env.protocol.terminate(backend.channel.output());
            // The server notices the end in any case.
            let _ = backend.channel.close();
        }
        Some(server.key)
    }
}
