//! Clients: handshake, wait queue, assignment of server connections, disconnect.

use ciphertoll_net::{Readiness, Received, Sent};

use super::cancel::REQUESTER_LEFT;
use super::{Activity, Backend, ClientConnection, ClientStage, DeferredWork, TokenKind, Worker, token_of};
use crate::log::Level;
use crate::pool::{ConnectionPool, PoolAction};
use crate::protocol::{
    AcquiredState, CancelToken, HandshakeStep, Protocol, ProtocolHandshake, ProtocolRequest, ProtocolSession,
};
use crate::refusal::Refusal;
use crate::slab::Id;

const MAX_PROCESS: u32 = i32::MAX.cast_unsigned();

impl<P: Protocol> Worker<P> {
    pub(super) fn client_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.flow.ended |= readiness == Readiness::ReadableToEnd;
        match &client.stage {
            ClientStage::Handshake(_) => self.step_handshake(id),
            ClientStage::TlsHandshake(_) => self.continue_tls(id),
            ClientStage::Queued { .. } if client.flow.ended => self.close_client(id, "left the queue"),
            ClientStage::Queued { .. } => client.flow.unread = true,
            ClientStage::Active(server) => {
                let server = *server;
                if client.channel.is_blocked() && !self.flush_client(id) {
                    return;
                }
                if self.servers.open(server).is_some_and(|backend| backend.flow.unread) {
                    self.pump_to_client(server);
                }
                // It may have been detached from its connection by now.
                if readiness != Readiness::Writable {
                    self.continue_client(id);
                }
            }
            ClientStage::Parked { .. } => {
                if client.channel.is_blocked() && !self.flush_client(id) {
                    return;
                }
                self.resume_parked(id);
            }
            ClientStage::Cancelling if client.flow.ended => self.close_client(id, REQUESTER_LEFT),
            ClientStage::Cancelling => {}
            ClientStage::Flushing => {
                if client.flow.ended || !matches!(client.channel.send(), Ok(Sent::Blocked)) {
                    self.remove_client(id);
                }
            }
        }
    }

    /// Sends pending output. Returns whether the client is still connected.
    fn flush_client(&mut self, id: Id) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if client.channel.send().is_err() {
            self.close_client(id, "went away");
            return false;
        }
        self.watch_client(id);
        true
    }

    pub(super) fn watch_client(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientConnection { channel, flow, .. } = client;
        if flow.watch(channel, &self.reactor, token_of(TokenKind::Client, id.index)).is_err() {
            self.close_client(id, "cannot be watched");
        }
    }

    /// Sends the greeting, in protocols in which the server sends first.
    pub(super) fn send_greeting(&mut self, id: Id) {
        let Some(ClientConnection { channel, stage: ClientStage::Handshake(handshake), .. }) =
            self.clients.get_mut(id)
        else {
            return;
        };
        match (handshake.step(&mut &b""[..], channel.output()), channel.send()) {
            (HandshakeStep::NeedInput, Ok(Sent::All)) => {}
            (HandshakeStep::Refuse(refusal), _) => self.refuse(id, &refusal),
            _ => self.close_client(id, "does not read the greeting"),
        }
    }

    pub(super) fn step_handshake(&mut self, id: Id) {
        loop {
            let Some(client) = self.clients.get_mut(id) else { return };
            let ClientConnection { channel, stage, .. } = client;
            let ClientStage::Handshake(handshake) = stage else { return };
            channel.borrow(&mut self.spare);
            let received = match channel.receive_input() {
                Ok(Received::Closed) | Err(_) => return self.close_client(id, "left before it logged in"),
                Ok(received) => received,
            };
            let (mut input, out) = channel.buffers();
            let before = input.len();
            let step = handshake.step(&mut input, out);
            let consumed = before - input.len();
            channel.consume(consumed);
            channel.give_back(&mut self.spare);
            let sent = if channel.output().is_empty() { Ok(Sent::All) } else { channel.send() };
            let ended = client.flow.ended;
            match (step, sent) {
                // A well-behaved client does not fill its socket before it has logged in.
                (_, Err(_) | Ok(Sent::Blocked)) => return self.close_client(id, "does not read responses"),
                (HandshakeStep::NeedInput, _) if received == Received::MoreLikely => {}
                (HandshakeStep::NeedInput, _) if received == Received::Drained && ended => {}
                (HandshakeStep::NeedInput, _) => return,
                (HandshakeStep::StartTls, _) => return self.begin_tls(id),
                (HandshakeStep::Login(request), _) => {
                    // No edge reports bytes that arrived together with the end of the handshake.
                    client.flow.unread |= !client.channel.input().is_empty();
                    return self.login(id, request);
                }
                (HandshakeStep::Cancel { process_id, key }, _) => {
                    return self.handle_cancel(id, process_id, &key);
                }
                (HandshakeStep::Refuse(refusal), _) => return self.refuse(id, &refusal),
                (HandshakeStep::HangUp(reason), _) => return self.close_client(id, reason),
            }
        }
    }

    /// An authenticated client acquires a connection, or waits for one.
    fn login(&mut self, id: Id, request: P::Request) {
        let granted = self
            .cannot_serve()
            .map_or_else(|| self.protocol.pool_key(&request), Err)
            .and_then(|key| self.queue_is_full().map_or(Ok(key), Err));
        let Some(client) = self.clients.get_mut(id) else { return };
        client.since = self.now;
        let key = match granted {
            Ok(key) => key,
            Err(refusal) => {
                request.refuse(&refusal, client.channel.output());
                return self.refused(id, &refusal);
            }
        };
        client.stage = ClientStage::Queued { key: key.clone(), request };
        if !self.greet_early(id) {
            self.acquire(id, &key);
        }
    }

    /// A client changes its user: its connection is released, and it repeats its handshake.
    pub(super) fn change_user(&mut self, id: Id) {
        let Some(ClientStage::Active(server)) = self.clients.get(id).map(|client| &client.stage) else {
            return;
        };
        let server = *server;
        let Some(session) = self.servers.open(server).and_then(Backend::session) else { return };
        let Some(handshake) = self.protocol.change_user_handshake(session) else {
            let message = "a change of user is not possible on this connection";
            return self.refuse(id, &Refusal::new(Refusal::UNSUPPORTED, message));
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        client.stage = ClientStage::Handshake(handshake);
        client.since = self.now;
        client.last_server = None;
        if let Some(cancel_token) = client.cancel_token.take() {
            self.by_process.remove(&cancel_token.process_id);
        }
        self.session_ended(server);
        self.step_handshake(id);
    }

    pub(super) fn acquire(&mut self, id: Id, key: &P::Key) {
        let now = self.now;
        match self.pool.with(|pool| pool.acquire(key, id, now)) {
            PoolAction::Take(server) => self.assign(id, server),
            action => self.apply_action(key, action),
        }
    }

    /// Assigns a connection that was reset to a client that waits.
    pub(super) fn assign(&mut self, client: Id, server: Id) {
        if !self.start_session(client, server, AcquiredState::Reset) {
            self.return_to_pool(server);
        }
    }

    /// Assigns a connection that was not reset: the reset is pipelined in front of the client's command.
    pub(super) fn assign_unreset(&mut self, client: Id, server: Id) {
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
        let Some((_, request)) = client.stage.take_waiting() else { return false };
        let to_server = backend.channel.output();
        let session = match self.protocol.start_session(request, acquired, &mut backend.state, to_server) {
            Ok(session) => session,
            Err(failed) => {
                to_server.clear();
                let refusal = Refusal::settings_failed(&failed.error);
                failed.request.refuse(&refusal, client.channel.output());
                self.refused(client_id, &refusal);
                return false;
            }
        };
        let awaits_settings = session.awaits_settings();
        self.services.metrics.waits.add(self.now.duration_since(client.since));
        client.stage = ClientStage::Active(server_id);
        client.last_server = Some(server_id);
        backend.activity = Activity::Session { client: client_id, session };
        if !awaits_settings {
            self.report_start(client_id, server_id);
        } else if let Err(error) = backend.channel.send() {
            self.server_lost(server_id, Some(&error));
        } else {
            self.watch_server(server_id);
        }
        true
    }

    /// Tells a client that its login is complete, or that it may go on.
    pub(super) fn report_start(&mut self, client_id: Id, server_id: Id) {
        let Some(ClientConnection { channel, cancel_token: Some(_), .. }) = self.clients.get_mut(client_id)
        else {
            return self.greet(client_id, server_id);
        };
        if let Some(backend) = self.servers.open(server_id)
            && let Some(session) = backend.session()
            && session.report_changed_settings(&backend.state, channel.output()).is_err()
        {
            return self.close_client(client_id, "cannot be sent its settings");
        }
        self.deferred.push(DeferredWork::Client(client_id));
    }

    fn greet(&mut self, client_id: Id, server_id: Id) {
        let Some(cancel_token) = self.new_cancel_token() else {
            return self.refuse(client_id, &Refusal::new(*b"XX000", "OpenSSL has no random bytes"));
        };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Activity::Session { session, .. } = &mut backend.activity else { return };
        client.cancel_token = Some(cancel_token);
        self.by_process.insert(cancel_token.process_id, client_id);
        let greeted = session.greet(&backend.state, cancel_token, client.channel.output());
        if greeted.is_err() || client.channel.send().is_err() {
            return self.close_client(client_id, "went away");
        }
        self.watch_client(client_id);
        self.services.metrics.sessions.increment();
        self.log.event(
            Level::Debug,
            "session",
            &[("client", &client_id.index), ("server_connection", &server_id.index)],
        );
        self.deferred.push(DeferredWork::Park(client_id, server_id));
        self.schedule_unread(client_id);
    }

    /// A new cancel token, with a process ID that no other client of this worker has.
    pub(super) fn new_cancel_token(&mut self) -> Option<CancelToken> {
        loop {
            let token_bytes: [u8; 8] = self.random.take()?;
            // Some drivers read it as a signed number, and take 0 for none.
            let near = u32::from_be_bytes(*token_bytes.first_chunk()?) >> 1;
            // The remainder names the worker.
            let process_id = near - near % self.shared.threads() as u32 + self.shared.thread as u32;
            if process_id != 0 && process_id <= MAX_PROCESS && !self.by_process.contains_key(&process_id) {
                return Some(CancelToken { process_id, secret: *token_bytes.last_chunk()? });
            }
        }
    }

    /// The worker whose clients have process IDs like this one.
    pub(super) fn worker_of(&self, process_id: u32) -> usize {
        process_id as usize % self.shared.threads()
    }

    fn cannot_serve(&self) -> Option<Refusal> {
        if self.drain.is_some() {
            return Some(Refusal::stopping());
        }
        if self.shared.clients() > self.limits.clients {
            let message = format!("the limit of {} clients is reached", self.limits.clients);
            return Some(Refusal::new(Refusal::FULL, message));
        }
        None
    }

    /// Why a client must not join the wait queue.
    pub(super) fn queue_is_full(&self) -> Option<Refusal> {
        let ahead = self.pool.read(ConnectionPool::queue_length)?;
        (ahead >= self.limits.queued).then(|| {
            let message =
                format!("all server connections are in use, and {ahead} clients are waiting already");
            Refusal::new(Refusal::FULL, message)
        })
    }

    pub(super) fn refuse(&mut self, id: Id, refusal: &Refusal) {
        let Some(ClientConnection { channel, stage, .. }) = self.clients.get_mut(id) else { return };
        match stage {
            ClientStage::Handshake(handshake) => handshake.refuse(refusal, channel.output()),
            ClientStage::Queued { request, .. } | ClientStage::Parked { request, .. } => {
                request.refuse(refusal, channel.output());
            }
            ClientStage::Active(server) => {
                if let Some(session) = self.servers.open(*server).and_then(Backend::session) {
                    session.refuse(refusal, channel.output());
                }
            }
            // In the middle of a TLS handshake the client would not understand it.
            ClientStage::TlsHandshake(_) | ClientStage::Cancelling | ClientStage::Flushing => {}
        }
        self.refused(id, refusal);
    }

    /// Logs and counts a client that was sent an error message, and closes it.
    pub(super) fn refused(&mut self, id: Id, refusal: &Refusal) {
        let state = String::from_utf8_lossy(&refusal.sqlstate).into_owned();
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &id.index), ("sqlstate", &state), ("reason", &refusal.message)];
        self.log.event(Level::Info, "refused", &fields);
        self.services.metrics.refusals.increment(&state);
        self.close_after_flush(id);
    }

    pub(super) fn close_after_flush(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !matches!(client.channel.send(), Ok(Sent::Blocked)) {
            return self.close_client(id, "was closed after an error message");
        }
        client.since = self.now;
        let last_server = client.last_server;
        let stage = std::mem::replace(&mut client.stage, ClientStage::Flushing);
        if let Some(cancel_token) = client.cancel_token.take() {
            self.by_process.remove(&cancel_token.process_id);
        }
        self.watch_client(id);
        self.release_client(id, stage, last_server);
    }

    pub(super) fn close_client(&mut self, id: Id, how: &str) {
        let Some(client) = self.remove_client(id) else { return };
        self.log.event(Level::Debug, "client-gone", &[("client", &id.index), ("how", &how)]);
        if let Some(cancel_token) = client.cancel_token {
            self.by_process.remove(&cancel_token.process_id);
        }
        // First, so that its file descriptor is free for the next client.
        let ClientConnection { channel, stage, last_server, .. } = client;
        drop(channel);
        self.release_client(id, stage, last_server);
    }

    pub(super) fn remove_client(&mut self, id: Id) -> Option<ClientConnection<P>> {
        let client = self.clients.remove(id)?;
        self.client_removed();
        Some(client)
    }

    pub(super) fn client_removed(&self) {
        self.shared.uncount_client(self.shared.thread);
        // Workers without clients wait for the last client of all.
        if self.drain.is_some() && self.shared.clients() == 0 {
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
        if let Some(last_server) = last_server {
            self.release_kept_for(id, last_server);
        }
    }

    pub(super) fn schedule_unread(&mut self, id: Id) {
        if self.clients.get(id).is_some_and(|client| client.flow.unread || client.flow.ended) {
            self.deferred.push(DeferredWork::Client(id));
        }
    }
}
