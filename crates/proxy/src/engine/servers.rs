//! Server connections: connecting, sessions, resets, closing.

use ciphertoll_net::{ConnectProgress, Connected, Connecting, Error, Readiness, Received, WatchedEvents};
use ciphertoll_wire::{Response, postgres, session};

use super::{
    Activity, Backend, DeferredWork, Discovery, Flow, ServerConnection, ServerStage, TokenKind, Worker,
    token_of,
};
use crate::log::Level;
use crate::metrics::EXCLUSIVE_ACCESS;
use crate::pool::WorkerBound;
use crate::protocol::{
    CommandOutcome, PoolKey, Pooling, Protocol, ProtocolCommand, ProtocolSession, Release,
};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn open_server(&mut self, key: &P::Key) {
        let plan = self.protocol.connect_plan(key).ok_or_else(|| {
            let reason = "this user is no longer configured".to_owned();
            Error::Unresolved { name: key.user().to_owned(), reason }
        });
        let mut connecting = match plan.and_then(|plan| self.upstream.open(plan)) {
            Ok(connecting) => connecting,
            Err(error) => return self.connect_failed(key, None, &error),
        };
        let upkeep = self.new_upkeep(key);
        let id = self.servers.insert(ServerConnection {
            key: key.clone(),
            opened_at: self.now,
            cancels: 0,
            lost_cancel: false,
            upkeep,
            stage: ServerStage::Connecting { connecting: None, until: self.now + self.limits.connect },
        });
        let token = token_of(TokenKind::Server, id.index);
        if let Err(error) = self.reactor.register(connecting.channel(), token, WatchedEvents::Both) {
            return self.connect_failed(key, Some(id), &error);
        }
        self.wait_for_connect(id, connecting);
    }

    fn wait_for_connect(&mut self, id: Id, pending: Connecting) {
        if let Some(ServerConnection { stage: ServerStage::Connecting { connecting, .. }, .. }) =
            self.servers.get_mut(id)
        {
            *connecting = Some(Box::new(pending));
        }
    }

    pub(super) fn server_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(server) = self.servers.get_mut(id) else { return };
        match &mut server.stage {
            ServerStage::Connecting { .. } => {
                self.continue_connect(id, |connecting| connecting.advance(readiness));
            }
            ServerStage::Open(backend) => {
                backend.flow.ended |= readiness == Readiness::ReadableToEnd;
                if backend.channel.is_blocked() {
                    if let Err(error) = backend.channel.send() {
                        return self.server_lost(id, Some(&error));
                    }
                    self.watch_server(id);
                    self.unblock_client_of(id);
                }
                if readiness != Readiness::Writable {
                    self.pump_to_client(id);
                }
            }
        }
    }

    pub(super) fn continue_connect(
        &mut self,
        id: Id,
        step: impl FnOnce(Connecting) -> Result<ConnectProgress, Error>,
    ) {
        let Some(ServerConnection { stage: ServerStage::Connecting { connecting, .. }, key, .. }) =
            self.servers.get_mut(id)
        else {
            return;
        };
        let Some(pending) = connecting.take() else { return };
        let key = key.clone();
        match step(*pending) {
            Ok(ConnectProgress::Pending(mut pending)) => {
                self.derive_keys(id, &mut pending);
                self.wait_for_connect(id, pending);
            }
            Ok(ConnectProgress::Done(connected)) => self.connect_done(id, connected),
            Err(error) => self.connect_failed(&key, Some(id), &error),
        }
    }

    /// The server takes bytes again: its client may have more.
    fn unblock_client_of(&mut self, id: Id) {
        if let Some(backend) = self.servers.open(id)
            && let Activity::Session { client, .. } = backend.activity
            && !backend.channel.is_blocked()
            && self.clients.get(client).is_some_and(|client| client.flow.unread)
        {
            self.pump_to_server(client);
        }
    }

    fn connect_done(&mut self, id: Id, connected: Connected) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let key = server.key.clone();
        let Connected { mut channel, server: info, .. } = connected;
        let watch =
            self.reactor.watch(&mut channel, token_of(TokenKind::Server, id.index), WatchedEvents::Reading);
        if let Err(error) = watch {
            return self.connect_failed(&key, Some(id), &error);
        }
        let negotiated = channel.negotiated();
        let tls = negotiated.as_ref().map_or("none", |negotiated| negotiated.version);
        let group = negotiated.as_ref().and_then(|negotiated| negotiated.group.as_deref()).unwrap_or("none");
        let login_info = (info.version().to_owned(), info.auth_label());
        let fields: [(&str, &dyn std::fmt::Display); 6] = [
            ("server_connection", &id.index),
            ("database", &key.database()),
            ("server_version", &login_info.0),
            ("tls", &tls),
            ("group", &group),
            ("auth", &login_info.1),
        ];
        self.log.event(Level::Info, "server-connected", &fields);
        let Some(state) = self.protocol.backend_state(&key, info) else {
            let reason = "the server speaks another protocol";
            let error = postgres::Error::Protocol { message: "end of the login", reason };
            return self.connect_failed(&key, Some(id), &error.into());
        };
        // The time that the login took does not count towards the age.
        server.opened_at = self.now;
        server.stage = ServerStage::Open(Box::new(Backend {
            channel,
            state,
            // Process what the server sent together with the end of the login.
            flow: Flow { unread: true, ..Flow::default() },
            activity: Activity::Idle { since: self.now, command: self.protocol.idle_command() },
        }));
        self.services.metrics.opened.increment();
        let now = self.now;
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
            self.deferred.push(DeferredWork::Accept);
        }
    }

    /// A connect has failed: the client that has waited longest is told.
    pub(super) fn connect_failed(&mut self, key: &P::Key, id: Option<Id>, error: &Error) {
        if let Some(id) = id {
            self.servers.remove(id);
        }
        self.upstream.failed();
        self.services.metrics.connect_failed(error);
        let now = self.now;
        self.shared.server_health.with(|server_health| server_health.connects.failed(now));
        let ended_discovery = self.shared.replace_discovery(Discovery::Running, Discovery::NotStarted);
        let has_open = self.pool.with(|pool| {
            pool.opened(key);
            pool.has_open(key)
        });
        let may_wait = error.is_too_many_connections() && has_open;
        let reason = Refusal::reason(error);
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("server", &self.server), ("database", &key.database()), ("reason", &reason)];
        self.log.event(Level::Warn, "connect-failed", &fields);
        // If the server has too many connections, clients wait for the open ones.
        if !may_wait {
            if let Some(client) = self.pool.with(|pool| pool.pop_waiting(key)) {
                self.refuse_anywhere(client, Refusal::connect_failed(error));
            }
            self.check_unserved = true;
        }
        self.pool.with(|pool| pool.closed(key, id));
        let was_known = self.protocol.discovery_key().is_none();
        self.protocol.connect_failed(error);
        if was_known && self.protocol.discovery_key().is_some() {
            self.shared.server_health.with(|server_health| server_health.discovery = Discovery::NotStarted);
            self.share_learned(key);
        }
        if ended_discovery {
            self.refuse_early_clients(&Refusal::connect_failed(error));
        }
    }

    pub(super) fn watch_server(&mut self, id: Id) {
        let Some(Backend { channel, flow, .. }) = self.servers.open_mut(id) else { return };
        if let Err(error) = flow.watch(channel, &self.reactor, token_of(TokenKind::Server, id.index)) {
            self.server_lost(id, Some(&error));
        }
    }

    pub(super) fn session_ended(&mut self, id: Id) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerStage::Open(backend) = &mut server.stage else { return };
        let idle = Activity::Idle { since: self.now, command: self.protocol.idle_command() };
        let Activity::Session { client, session } = std::mem::replace(&mut backend.activity, idle) else {
            return;
        };
        let has_sent_nothing = session.can_detach();
        match session.release(&mut backend.state) {
            Ok(Release::Reset(context)) if has_sent_nothing => {
                self.release_between_transactions(client, id, context);
            }
            Ok(release) => self.release_server(id, release),
            Err(error) => self.close_server(id, &error.to_string()),
        }
    }

    /// Makes a connection available to other clients, once no cancel request is on its way to it.
    pub(super) fn release_server(&mut self, id: Id, release: Release<P::ResetContext>) {
        let until = self.now + self.limits.reset;
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerStage::Open(backend) = &mut server.stage else { return };
        match release {
            Release::Close(reason) => self.close_server(id, reason),
            release if server.cancels > 0 => backend.activity = Activity::AwaitingCancel { until, release },
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
            Release::Reset(context) if self.protocol.is_as_after_reset(context) => {
                self.services.metrics.skipped_resets.increment();
                self.reset_server(id, Release::Clean);
            }
            Release::Reset(context) => {
                self.services.metrics.resets.increment();
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
        let until = self.now + self.limits.reset;
        let Some(backend) = self.servers.open_mut(id) else { return };
        let command = encode(&self.protocol, &mut backend.state, backend.channel.output());
        match (command, backend.channel.send()) {
            (Ok(command), Ok(_)) => {
                backend.activity = Activity::Resetting { command, until };
                if backend.flow.unread {
                    self.deferred.push(DeferredWork::Server(id));
                }
                self.watch_server(id);
            }
            (Err(error), _) => self.close_server(id, &error.to_string()),
            (_, Err(error)) => self.server_lost(id, Some(&error)),
        }
    }

    /// Why a connection must be closed instead of being used by another client.
    pub(super) fn discard_reason(&self, id: Id) -> Option<&'static str> {
        let server = self.servers.get(id)?;
        let is_over = self.drain.is_some() && self.pooling == Pooling::Session;
        self.obsolete_reason(id)
            .or(is_over.then_some("the proxy is stopping"))
            .or(server.lost_cancel.then_some("a request to cancel may still be on its way"))
            .or((self.now.duration_since(server.opened_at) > self.limits.age).then_some("it is old"))
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
        let key = server.key.clone();
        let since = server.upkeep.idle_since(self.now);
        let ServerStage::Open(backend) = &mut server.stage else { return };
        backend.activity = Activity::Idle { since, command: self.protocol.idle_command() };
        if backend.flow.unread || backend.flow.ended {
            self.deferred.push(DeferredWork::Server(id));
        }
        match self.pool.with(|pool| pool.release(&key, id)) {
            Some(client) if client.thread() == self.shared.thread => self.assign(client, id),
            Some(client) => self.send_server(id, client),
            None if self.is_exclusive(&key) => self.close_server(id, EXCLUSIVE_ACCESS),
            // An idle connection can also be evicted for clients of another key.
            None => self.check_unserved = true,
        }
    }

    /// Reads what the server sends on a connection that no client uses.
    pub(super) fn read_unassigned(&mut self, id: Id) {
        loop {
            let Some(server) = self.servers.get_mut(id) else { return };
            let ServerStage::Open(backend) = &mut server.stage else { return };
            let command = match &mut backend.activity {
                Activity::Idle { command, .. }
                | Activity::Kept { command, .. }
                | Activity::Resetting { command, .. } => command,
                Activity::AwaitingCancel { .. } => {
                    backend.flow.unread = true;
                    return;
                }
                Activity::Session { .. } => return,
            };
            backend.flow.unread = false;
            let received = match backend.channel.receive_input() {
                Ok(Received::Closed) => return self.server_lost(id, None),
                Ok(received) => received,
                Err(error) => return self.server_lost(id, Some(&error)),
            };
            let mut input = backend.channel.input();
            let before = input.len();
            let answer = command.step(&mut input, &mut backend.state);
            let consumed = before - input.len();
            backend.channel.consume(consumed);
            match answer {
                Ok(Response::Done(CommandOutcome::Idle)) => return self.return_to_pool(id),
                Ok(Response::Done(CommandOutcome::Unusable(reason))) => return self.close_server(id, reason),
                Ok(Response::NeedInput) => {}
                Err(error) => return self.server_lost(id, Some(&Error::Protocol(error))),
            }
            match received {
                Received::MoreLikely => {}
                Received::Drained if backend.flow.ended => {}
                _ => return,
            }
        }
    }

    /// A connection has ended or is unusable: its client is told.
    pub(super) fn server_lost(&mut self, id: Id, error: Option<&Error>) {
        let Some(server) = self.servers.remove(id) else { return };
        let reason = error.map_or_else(|| "the server closed the connection".to_owned(), ToString::to_string);
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.log.event(Level::Warn, "server-lost", &fields);
        self.services.metrics.closed.increment("lost");
        if let ServerStage::Open(backend) = server.stage
            && let Activity::Session { client, session } = backend.activity
        {
            if session.can_send_error() {
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
        self.check_unserved = true;
    }

    pub(super) fn close_server(&mut self, id: Id, reason: &str) {
        let Some(server) = self.servers.remove(id) else { return };
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.log.event(Level::Info, "server-closed", &fields);
        self.services.metrics.closed(reason);
        if let ServerStage::Open(mut backend) = server.stage {
            self.protocol.terminate(backend.channel.output());
            // The server notices the end in any case.
            let _ = backend.channel.close();
        }
        self.pool.with(|pool| pool.closed(&server.key, Some(id)));
        self.check_unserved = true;
    }
}
