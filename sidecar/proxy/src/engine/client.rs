//! A client: its handshake, its wait for a connection, its end. A transition does what concerns only this client, and
//! returns what the worker must do.

use std::time::{Duration, Instant};

use ciphertoll_net::{Accepted, Channel, Peer, Readiness, Received, Sent};

use super::client_counts::ClientTicket;
use super::environment::Environment;
use super::flow::{Flow, HeldBack, READS, TokenKind, token_of};
use super::session_timing::SessionTiming;
use crate::log::Level;
use crate::look_up::LookUp;
use crate::pool::Acceptable;
use crate::protocol::{
    CancelToken, FirstInput, HandshakeStep, PendingKill, PoolKey, Pooling, Protocol, ProtocolHandshake,
    ProtocolRequest,
};
use crate::refusal::Refusal;
use crate::settings::Limits;
use crate::slab::Id;

pub(super) const CANNOT_BE_WATCHED: &str = "cannot be watched";
const DOES_NOT_READ: &str = "does not read responses";
/// Reason for closing a requester that does not wait.
const REQUESTER_LEFT: &str = "left before its cancel request was complete";

pub(super) struct Client<P: Protocol> {
    pub(super) channel: Channel,
    pub(super) stage: ClientStage<P>,
    /// When it began to wait for what its stage says.
    pub(super) since: Instant,
    /// Whether another thread looks up what its handshake needs.
    is_looked_up: bool,
    pub(super) flow: Flow,
    /// `None` before the login is complete.
    pub(super) cancel_token: Option<CancelToken>,
    /// The connection that it used last.
    pub(super) last_server: Option<Id>,
    pub(super) presence: Presence,
    pub(super) timing: SessionTiming,
    /// Counts it for its user and its database, if these have limits.
    pub(super) ticket: Option<ClientTicket>,
    /// What has not arrived yet of a message that no server needs.
    ignored_bytes: usize,
    pub(super) origin: ClientOrigin,
}

/// For operators.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientOrigin {
    /// Unique among the clients of the proxy.
    pub(super) number: u32,
    pub(super) peer: Option<Peer>,
    pub(super) connected: Instant,
}

/// Whether a client goes on sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Stays,
    /// It has ended its session, and is sent what the server still answers.
    HasSaidGoodbye,
    /// The same for the stream.
    HasEnded,
    /// The server was told.
    IsAnnounced,
}

pub(super) enum ClientStage<P: Protocol> {
    Handshake(P::Handshake),
    TlsHandshake(P::Handshake),
    Queued {
        key: P::Key,
        request: P::Request,
    },
    Active(Id),
    /// Between transactions, without a connection.
    Parked {
        key: P::Key,
        request: P::Request,
    },
    /// Waits until its cancel request is done or timed out.
    Cancelling,
    /// Closed when its pending output is sent.
    Flushing,
}

/// What the worker must do after a client's transition.
pub(super) enum ClientStep<P: Protocol> {
    Wait,
    /// Pass on what it and its connection have for each other.
    Relay {
        server: Id,
        has_input: bool,
    },
    /// It has sent something between two transactions.
    Resume,
    /// Its handshake waits for this.
    LookUp(LookUp),
    /// It is authenticated and has not been told so.
    LogIn(P::Request),
    Acquire(P::Key),
    /// It has sent a lot: continue after others.
    Later,
    Cancel {
        process_id: u32,
        key: Vec<u8>,
    },
    /// Send it this error message and close it.
    Refuse(Refusal),
    Close(&'static str),
    /// Close it when what it was sent has left.
    CloseAfterFlush,
    /// Its last output is sent.
    Remove,
}

impl<P: Protocol> Client<P> {
    pub(super) fn new(channel: Channel, stage: ClientStage<P>, origin: ClientOrigin) -> Self {
        Self {
            channel,
            stage,
            since: origin.connected,
            is_looked_up: false,
            flow: Flow::default(),
            cancel_token: None,
            last_server: None,
            presence: Presence::Stays,
            timing: SessionTiming::new(origin.connected),
            ticket: None,
            ignored_bytes: 0,
            origin,
        }
    }

    pub(super) fn ready(&mut self, id: Id, readiness: Readiness, env: &mut Environment<P>) -> ClientStep<P> {
        self.flow.record(readiness);
        let is_served = matches!(self.stage, ClientStage::Active(_) | ClientStage::Parked { .. });
        if is_served && self.channel.is_blocked() && !self.flush(id, env) {
            return ClientStep::Close("went away");
        }
        if self.has_left_queue() {
            return ClientStep::Close("left the queue");
        }
        match &self.stage {
            ClientStage::Handshake(_) => self.step_handshake(env),
            ClientStage::TlsHandshake(_) => self.continue_tls(env),
            ClientStage::Queued { .. } => {
                self.flow.unread = true;
                ClientStep::Wait
            }
            ClientStage::Active(server) => {
                ClientStep::Relay { server: *server, has_input: readiness != Readiness::Writable }
            }
            ClientStage::Parked { .. } => ClientStep::Resume,
            ClientStage::Cancelling if self.flow.has_ended() => ClientStep::Close(REQUESTER_LEFT),
            ClientStage::Cancelling => ClientStep::Wait,
            ClientStage::Flushing if self.flow.is_gone() => ClientStep::Remove,
            ClientStage::Flushing => match self.channel.send() {
                Ok(Sent::Blocked) => ClientStep::Wait,
                Ok(Sent::All) | Err(_) => ClientStep::Remove,
            },
        }
    }

    /// Whether a client that waits for a connection sends nothing more, and has sent no command.
    fn has_left_queue(&mut self) -> bool {
        let ClientStage::Queued { request, .. } = &self.stage else { return false };
        if !self.flow.has_ended() || self.flow.is_gone() {
            return self.flow.is_gone();
        }
        loop {
            if request.has_command(self.channel.input()) {
                return false;
            }
            match self.channel.receive_input() {
                Ok(Received::Drained | Received::MoreLikely) => self.flow.held_back = HeldBack::Something,
                Ok(Received::WouldBlock | Received::Closed) | Err(_) => return true,
            }
        }
    }

    /// Sends pending output. Returns whether the client is still connected.
    fn flush(&mut self, id: Id, env: &Environment<P>) -> bool {
        self.channel.send().is_ok() && self.watch(id, env)
    }

    /// Watches for room to send while output is pending. Returns false if that fails.
    pub(super) fn watch(&mut self, id: Id, env: &Environment<P>) -> bool {
        let token = token_of(TokenKind::Client, id.index);
        self.flow.watch(&mut self.channel, &env.reactor, token).is_ok()
    }

    /// Sends the greeting, in protocols in which the server sends first.
    pub(super) fn greet_first(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        let ClientStage::Handshake(handshake) = &mut self.stage else { return ClientStep::Wait };
        self.channel.borrow_output(&mut env.spare);
        match (handshake.step(&mut &b""[..], self.channel.output()), self.channel.send()) {
            (HandshakeStep::NeedInput, Ok(Sent::All)) => {
                self.channel.give_back(&mut env.spare);
                ClientStep::Wait
            }
            (HandshakeStep::Refuse(refusal), _) => ClientStep::Refuse(refusal),
            _ => ClientStep::Close("does not read the greeting"),
        }
    }

    pub(super) fn step_handshake(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        loop {
            let ClientStage::Handshake(handshake) = &mut self.stage else { return ClientStep::Wait };
            self.channel.borrow(&mut env.spare);
            let received = match self.channel.receive_input() {
                Ok(Received::Closed) | Err(_) => return ClientStep::Close("left before it logged in"),
                Ok(received) => received,
            };
            let (mut input, out) = self.channel.buffers();
            let before = input.len();
            let step = handshake.step(&mut input, out);
            let consumed = before - input.len();
            self.channel.consume(consumed);
            if let HandshakeStep::Login(request) = step {
                // What the handshake has to say is sent together with the end of the login.
                self.hold_input(received);
                return ClientStep::LogIn(request);
            }
            self.channel.give_back(&mut env.spare);
            // A well-behaved client does not fill its socket before it has logged in.
            if !self.channel.output().is_empty() && !matches!(self.channel.send(), Ok(Sent::All)) {
                return ClientStep::Close(DOES_NOT_READ);
            }
            match step {
                HandshakeStep::NeedInput if received == Received::MoreLikely => {}
                HandshakeStep::NeedInput if received == Received::Drained && self.flow.has_ended() => {}
                HandshakeStep::NeedInput | HandshakeStep::Login(_) => return ClientStep::Wait,
                HandshakeStep::StartTls => return self.start_tls(env),
                HandshakeStep::LookUp(look_up) => return ClientStep::LookUp(look_up),
                HandshakeStep::Cancel { process_id, key } => return ClientStep::Cancel { process_id, key },
                HandshakeStep::Refuse(refusal) => return ClientStep::Refuse(refusal),
                HandshakeStep::HangUp(reason) => return ClientStep::Close(reason),
            }
        }
    }

    fn start_tls(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        let Some(tls) = &env.access.tls else {
            return ClientStep::Close("requested TLS, which is not offered");
        };
        if let Err(error) = self.channel.accept_tls(&tls.acceptor) {
            env.log.event(Level::Warn, "tls-failed", &[("reason", &error)]);
            return ClientStep::Close("failed its TLS handshake");
        }
        if let ClientStage::Handshake(handshake) = self.take_stage() {
            self.stage = ClientStage::TlsHandshake(handshake);
        }
        self.continue_tls(env)
    }

    /// Continues a TLS handshake; the protocol's handshake follows.
    fn continue_tls(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        match self.channel.shake_hands() {
            Ok(Accepted::NeedInput) if self.channel.is_blocked() => ClientStep::Close(DOES_NOT_READ),
            Ok(Accepted::NeedInput) => ClientStep::Wait,
            Ok(Accepted::Done) => {
                let name = self.channel.peer_common_name();
                if let ClientStage::TlsHandshake(mut handshake) = self.take_stage() {
                    handshake.tls_established(name);
                    self.stage = ClientStage::Handshake(handshake);
                }
                self.step_handshake(env)
            }
            Err(error) => {
                env.log.event(Level::Info, "tls-failed", &[("reason", &error)]);
                ClientStep::Close("failed its TLS handshake")
            }
        }
    }

    /// Input that no edge will report is processed when the client has a connection.
    fn hold_input(&mut self, received: Received) {
        self.flow.unread |= received == Received::MoreLikely;
        if received == Received::Closed {
            self.flow.ends();
        }
        if !self.channel.input().is_empty() {
            self.flow.held_back = HeldBack::Something;
        }
    }

    /// What it was doing. From now on it is closed when its output is sent.
    pub(super) fn take_stage(&mut self) -> ClientStage<P> {
        std::mem::replace(&mut self.stage, ClientStage::Flushing)
    }

    /// The request of a client that waits or is parked.
    pub(super) fn waiting_request(&self) -> Option<&P::Request> {
        match &self.stage {
            ClientStage::Queued { request, .. } | ClientStage::Parked { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Takes the key and the request of a client that waits or is parked.
    pub(super) fn take_waiting(&mut self) -> Option<(P::Key, P::Request)> {
        match self.take_stage() {
            ClientStage::Queued { key, request } | ClientStage::Parked { key, request } => {
                Some((key, request))
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.stage, ClientStage::Queued { .. })
    }

    /// A client that waits needs little memory.
    pub(super) fn shrink_if_queued(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        if self.is_queued() {
            self.channel.shrink_input(&mut env.spare);
        }
        ClientStep::Wait
    }

    /// Takes the request of a client that waits for a connection.
    pub(super) fn take_queued(&mut self) -> Option<P::Request> {
        if self.is_queued() { self.take_waiting().map(|(_, request)| request) } else { None }
    }

    /// Which connections this client can take. In transaction pooling, its login must be complete for one that was not
    /// reset, so that the server is known to accept its settings.
    pub(super) fn acceptable(&self, pooling: Pooling) -> Acceptable {
        let has_logged_in = self.cancel_token.is_some();
        if has_logged_in || pooling == Pooling::Session { Acceptable::Any } else { Acceptable::Reset }
    }

    /// Completes a login without a server connection, if possible: the client is parked.
    pub(super) fn greet_early(
        &mut self,
        key: P::Key,
        mut request: P::Request,
        cancel_token: CancelToken,
        env: &mut Environment<P>,
    ) -> bool {
        let out = self.channel.output();
        let before = out.len();
        let is_greeted = env.pooling == Pooling::Transaction
            && env.protocol.greet_early(&key, &mut request, cancel_token, out);
        if is_greeted {
            self.cancel_token = Some(cancel_token);
            self.stage = ClientStage::Parked { key, request };
        } else {
            out.truncate(before);
            self.stage = ClientStage::Queued { key, request };
        }
        is_greeted
    }

    /// A parked client has sent something: it acquires a connection if that is a command.
    pub(super) fn begin_transaction(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        for _ in 0..READS {
            let ClientStage::Parked { key, request } = &self.stage else { return ClientStep::Wait };
            (self.flow.unread, self.flow.held_back) = (false, HeldBack::Nothing);
            self.channel.borrow(&mut env.spare);
            // After an error, what was received before decides.
            let received = self.channel.receive_input().unwrap_or(Received::Closed);
            let first_input = loop {
                let bytes = self.ignored_bytes.min(self.channel.input().len());
                self.channel.consume(bytes);
                self.ignored_bytes -= bytes;
                match request.first_input(self.channel.input()) {
                    FirstInput::Ignored(bytes) => self.ignored_bytes = bytes,
                    first_input => break first_input,
                }
            };
            match (first_input, received) {
                (FirstInput::Terminate, _) => {
                    let bytes = self.channel.input().len();
                    self.channel.consume(bytes);
                    return ClientStep::Close("left");
                }
                (FirstInput::Command, _) => {
                    let key = key.clone();
                    self.hold_input(received);
                    self.since = env.now;
                    return ClientStep::Acquire(key);
                }
                (_, Received::Closed) => return ClientStep::Close("left"),
                (_, Received::MoreLikely) => {}
                // No edge will report the end again.
                (_, Received::Drained) if self.flow.has_ended() => {}
                (_, Received::Drained | Received::WouldBlock) => {
                    self.channel.shrink_input(&mut env.spare);
                    return ClientStep::Wait;
                }
            }
        }
        self.channel.shrink_input(&mut env.spare);
        ClientStep::Later
    }

    /// Carries out commands of a parked client that need no connection. Returns whether there were any.
    pub(super) fn take_unanswered(&mut self) -> bool {
        let ClientStage::Parked { request, .. } = &mut self.stage else { return false };
        let bytes = request.take_unanswered(self.channel.input());
        self.channel.consume(bytes);
        bytes > 0
    }

    /// A parked client waits for a connection, unless `full` says why it must not, or its user may not log in any more.
    pub(super) fn queue(&mut self, full: Option<Refusal>, env: &mut Environment<P>) -> ClientStep<P> {
        let ClientStage::Parked { request, .. } = &self.stage else { return ClientStep::Wait };
        if let Some(refusal) = env.protocol.pool_key(request).err().or(full) {
            return ClientStep::Refuse(refusal);
        }
        if let Some((key, request)) = self.take_waiting() {
            self.stage = ClientStage::Queued { key, request };
        }
        ClientStep::Wait
    }

    /// Sends what the handshake has to say to a client that cannot be greeted yet.
    pub(super) fn end_handshake(&mut self, env: &mut Environment<P>) -> ClientStep<P> {
        if self.cancel_token.is_some() {
            return ClientStep::Wait;
        }
        if !self.channel.output().is_empty() && !matches!(self.channel.send(), Ok(Sent::All)) {
            return ClientStep::Close(DOES_NOT_READ);
        }
        self.channel.shrink_input(&mut env.spare);
        ClientStep::Wait
    }

    /// Sends the end of the login, with whatever else the handshake has to say.
    pub(super) fn greeted(&mut self, id: Id, env: &mut Environment<P>) -> ClientStep<P> {
        if self.channel.send().is_err() {
            return ClientStep::Close("went away");
        }
        self.channel.give_back(&mut env.spare);
        env.metrics().sessions.increment();
        self.timing.restart(env.now);
        self.watched(id, env)
    }

    /// Watches for room to send while output is pending.
    pub(super) fn watched(&mut self, id: Id, env: &Environment<P>) -> ClientStep<P> {
        if self.watch(id, env) { ClientStep::Wait } else { ClientStep::Close(CANNOT_BE_WATCHED) }
    }

    /// Cancels the command that waits for a connection. `None` if there is none, or if it is not complete.
    pub(super) fn cancel_command(&mut self, now: Instant) -> Option<(P::Key, Sent)> {
        let ClientStage::Queued { request, .. } = &self.stage else { return None };
        self.channel.receive_input().ok()?;
        let (input, out) = self.channel.buffers();
        let bytes = request.cancel_command(input, out)?;
        self.channel.consume(bytes);
        let sent = self.channel.send().unwrap_or(Sent::Blocked);
        let (key, request) = self.take_waiting()?;
        self.stage = ClientStage::Parked { key: key.clone(), request };
        self.timing.restart(now);
        Some((key, sent))
    }

    /// Closes the requester of a cancel request when the request is done, or at once if it has left.
    pub(super) fn await_cancel(&mut self, now: Instant) -> ClientStep<P> {
        self.stage = ClientStage::Cancelling;
        self.since = now;
        if self.flow.has_ended() { ClientStep::Close(REQUESTER_LEFT) } else { ClientStep::Wait }
    }

    /// Appends an error message, which a client without a session understands now.
    pub(super) fn write_refusal(&mut self, refusal: &Refusal) {
        match &self.stage {
            ClientStage::Handshake(handshake) => handshake.refuse(refusal, self.channel.output()),
            ClientStage::Queued { request, .. } | ClientStage::Parked { request, .. } => {
                request.refuse(refusal, self.channel.output());
            }
            // In the middle of a TLS handshake the client would not understand it.
            ClientStage::TlsHandshake(_)
            | ClientStage::Active(_)
            | ClientStage::Cancelling
            | ClientStage::Flushing => {}
        }
    }

    /// A `KILL` by another client, for a client that has no connection.
    pub(super) fn pending_kill(&self) -> PendingKill {
        match &self.stage {
            ClientStage::Queued { request, .. } | ClientStage::Parked { request, .. } => {
                request.pending_kill()
            }
            _ => PendingKill::None,
        }
    }

    /// The time during which its database was paused does not count.
    fn has_waited_too_long(&self, key: &P::Key, env: &Environment<P>) -> bool {
        env.operations.counted_wait(key.database(), self.since, env.now) >= env.limits.queue
    }

    /// A look-up may wait for a host.
    fn login_time(&self, limits: &Limits) -> Duration {
        if self.is_looked_up { limits.login.saturating_add(limits.queue) } else { limits.login }
    }

    /// Another thread looks up what its handshake needs, or has done so. Its own time begins again.
    pub(super) fn looked_up(&mut self, is_looked_up: bool, now: Instant) {
        (self.is_looked_up, self.since) = (is_looked_up, now);
    }

    /// What a client does that has waited for too long.
    pub(super) fn tick(&self, env: &Environment<P>) -> ClientStep<P> {
        let (waited, limits) = (env.now.duration_since(self.since), &env.limits);
        match &self.stage {
            ClientStage::Handshake(_) | ClientStage::TlsHandshake(_) if waited >= self.login_time(limits) => {
                ClientStep::Close("did not log in in time")
            }
            ClientStage::Queued { key, .. }
                if waited >= limits.queue && self.has_waited_too_long(key, env) =>
            {
                let seconds = limits.queue.as_secs_f64();
                if let Some(hosts) = env.hosts.as_ref().filter(|hosts| hosts.is_searching()) {
                    let message = format!("no server was found within {seconds} s: {}", hosts.describe());
                    return ClientStep::Refuse(Refusal::new(Refusal::NO_SERVER, message));
                }
                let message = format!("no server connection became free within {seconds} s");
                ClientStep::Refuse(Refusal::new(Refusal::FULL, message))
            }
            ClientStage::Cancelling if waited >= limits.reset => {
                ClientStep::Close("its cancel request took too long")
            }
            ClientStage::Flushing if waited >= limits.reset => {
                ClientStep::Close("did not read the last message in time")
            }
            _ => ClientStep::Wait,
        }
    }
}
