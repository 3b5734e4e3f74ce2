//! A server connection: its connect, its sessions, its resets. A transition does what concerns only this connection, and
//! returns what the worker must do.

use std::time::{Duration, Instant};

use ciphertoll_net::{
    Channel, ConnectProgress, Connected, Connecting, Error, Readiness, Received, WatchedEvents,
};
use ciphertoll_wire::{Response, postgres, session};

use super::environment::Environment;
use super::flow::{Flow, TokenKind, token_of};
use super::host_link::{HostLink, LinkPhase, LinkPurpose};
use super::password_use::PasswordUse;
use super::upkeep::Upkeep;
use super::usage::Usage;
use crate::log::Level;
use crate::operations::KILLED;
use crate::protocol::{
    AcquiredState, CommandOutcome, Detached, PoolKey, Pooling, Protocol, ProtocolCommand, ProtocolSession,
    Release,
};
use crate::slab::{Id, Slab};

/// How long a connection is kept before it is reset, so that the next client need not wait for the reset. Also how long it
/// is held for a client that leaves diagnostics with each of its transactions.
const KEEP_TIME: Duration = Duration::from_secs(1);

pub(super) struct ServerConnection<P: Protocol> {
    pub(super) key: P::Key,
    pub(super) opened_at: Instant,
    /// Cancel requests that are on their way to it.
    pub(super) cancels: u32,
    /// A cancel request was lost on its way: it may still cancel a command of the next client.
    pub(super) lost_cancel: bool,
    /// An operator has ended its client.
    pub(super) is_killed: bool,
    /// A request to cancel a command that took too long is on its way to it.
    pub(super) awaits_own_cancel: bool,
    pub(super) upkeep: Upkeep,
    /// Unique among the server connections of the proxy.
    pub(super) number: u32,
    /// Used if the password comes from a command.
    pub(super) password: PasswordUse,
    /// `None` unless there are several hosts, a role is needed, or names are watched.
    pub(super) link: Option<Box<HostLink>>,
    pub(super) stage: ServerStage<P>,
}

pub(super) enum ServerStage<P: Protocol> {
    /// `None` during a step, and while it waits for a password.
    Connecting {
        connecting: Option<Box<Connecting>>,
        until: Instant,
    },
    Open(Box<Backend<P>>),
}

pub(super) struct Backend<P: Protocol> {
    pub(super) channel: Channel,
    pub(super) state: P::BackendState,
    pub(super) flow: Flow,
    pub(super) activity: Activity<P>,
    /// Since when it is held for its client, which may ask for diagnostics: from one transaction to the next.
    held_since: Option<Instant>,
    /// Since the connection was opened or moved.
    pub(super) usage: Usage,
    /// When its client got it.
    pub(super) assigned: Instant,
}

pub(super) enum Activity<P: Protocol> {
    Idle {
        since: Instant,
        command: P::Command,
    },
    Session {
        client: Id,
        session: Box<P::Session>,
    },
    /// Kept without a reset for its client's next transaction, or for any client if its own has left.
    Kept {
        client: Id,
        since: Instant,
        context: P::ResetContext,
        command: P::Command,
    },
    /// Its client has left, and a cancel request is on its way: it must not hit the next client's command.
    AwaitingCancel {
        until: Instant,
        release: Release<P::ResetContext>,
    },
    Resetting {
        command: P::Command,
        until: Instant,
    },
}

/// What the worker must do after a transition of an open connection.
pub(super) enum BackendStep {
    Wait,
    /// Pass on what it has for its client, or read it if there is none.
    Relay {
        is_unblocked: bool,
        has_input: bool,
    },
    /// It awaits commands: it is available to clients.
    Available,
    Close(String),
    /// It has ended. `None`: the server has closed it.
    Lost(Option<Error>),
    /// The server takes no more bytes, but it may have sent the reason.
    SendFailed(Error),
}

/// What the worker must do after a step of a connect.
pub(super) enum ConnectStep {
    Wait,
    Opened,
    Failed(Error),
}

/// What the worker must do with a connection because of the time.
pub(super) enum ServerExpiry {
    None,
    ConnectTimedOut,
    /// Reset it before a client needs it.
    ResetKept,
    /// Its client sends nothing: send the reset that is due.
    SendReset,
    /// It was idle for longer than connections may be: close it, unless it is kept warm.
    Unused,
    Close(&'static str),
}

/// How a session has ended.
pub(super) struct EndedSession<P: Protocol> {
    pub(super) client: Id,
    pub(super) release: Result<Release<P::ResetContext>, session::Error>,
    pub(super) has_sent_nothing: bool,
}

impl<P: Protocol> Slab<ServerConnection<P>> {
    pub(super) fn open(&self, id: Id) -> Option<&Backend<P>> {
        match &self.get(id)?.stage {
            ServerStage::Open(backend) => Some(backend),
            ServerStage::Connecting { .. } => None,
        }
    }

    pub(super) fn open_mut(&mut self, id: Id) -> Option<&mut Backend<P>> {
        match &mut self.get_mut(id)?.stage {
            ServerStage::Open(backend) => Some(backend),
            ServerStage::Connecting { .. } => None,
        }
    }
}

impl<P: Protocol> ServerConnection<P> {
    /// Whether it was opened only to learn the role of a host. The pool does not count it.
    pub(super) fn is_poll(&self) -> bool {
        let is_opening = |link: &&HostLink| link.phase == LinkPhase::Opening;
        self.link.as_deref().filter(is_opening).is_some_and(|link| link.purpose == LinkPurpose::Poll)
    }

    pub(super) fn connecting(key: P::Key, number: u32, env: &Environment<P>) -> Self {
        let fingerprints = (env.upstream.fingerprint, env.protocol.fingerprint(&key));
        let password = PasswordUse::of(env.protocol.password_cell(&key));
        Self {
            key,
            opened_at: env.now,
            cancels: 0,
            lost_cancel: false,
            is_killed: false,
            awaits_own_cancel: false,
            number,
            upkeep: Upkeep::new(fingerprints, env.version, env.now),
            password,
            link: None,
            stage: ServerStage::Connecting { connecting: None, until: env.now + env.limits.connect },
        }
    }

    /// Whether its host has not told its role yet, and no client may get it.
    pub(super) fn is_opening(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.phase == LinkPhase::Opening)
    }

    pub(super) fn wait_for_connect(&mut self, pending: Connecting) {
        if let ServerStage::Connecting { connecting, .. } = &mut self.stage {
            *connecting = Some(Box::new(pending));
        }
    }

    /// A connect that has waited for a host begins now.
    pub(super) fn start_connect(&mut self, pending: Connecting, env: &Environment<P>) {
        let until = env.now + env.limits.connect;
        self.stage = ServerStage::Connecting { connecting: Some(Box::new(pending)), until };
    }

    /// The connect that waits for readiness or for derived keys.
    pub(super) fn continue_connect(
        &mut self,
        id: Id,
        step: impl FnOnce(Connecting) -> Result<ConnectProgress, Error>,
        env: &mut Environment<P>,
    ) -> ConnectStep {
        let ServerStage::Connecting { connecting, .. } = &mut self.stage else { return ConnectStep::Wait };
        let Some(pending) = connecting.take() else { return ConnectStep::Wait };
        match step(*pending) {
            Ok(ConnectProgress::Pending(mut pending)) => {
                env.services.key_deriver.derive(id, &mut pending);
                self.wait_for_connect(pending);
                ConnectStep::Wait
            }
            Ok(ConnectProgress::Done(connected)) => match self.connected(id, connected, env) {
                Ok(()) => ConnectStep::Opened,
                Err(error) => ConnectStep::Failed(error),
            },
            Err(error) => ConnectStep::Failed(error),
        }
    }

    fn connected(&mut self, id: Id, connected: Connected, env: &mut Environment<P>) -> Result<(), Error> {
        let Connected { mut channel, server: info, .. } = connected;
        env.reactor.watch(&mut channel, token_of(TokenKind::Server, id.index), WatchedEvents::Reading)?;
        let negotiated = channel.negotiated();
        let tls = negotiated.as_ref().map_or("none", |negotiated| negotiated.version);
        let group = negotiated.as_ref().and_then(|negotiated| negotiated.group.as_deref()).unwrap_or("none");
        env.metrics().groups.increment(group);
        let login_info = (info.version().to_owned(), info.auth_label());
        let fields: [(&str, &dyn std::fmt::Display); 6] = [
            ("server_connection", &id.index),
            ("database", &self.key.database()),
            ("server_version", &login_info.0),
            ("tls", &tls),
            ("group", &group),
            ("auth", &login_info.1),
        ];
        env.log.event(if self.is_poll() { Level::Debug } else { Level::Info }, "server-connected", &fields);
        let Some(state) = env.protocol.backend_state(&self.key, info) else {
            let reason = "the server speaks another protocol";
            return Err(postgres::Error::Protocol { message: "end of the login", reason }.into());
        };
        // The time that the login took does not count towards the age.
        self.opened_at = env.now;
        self.stage = ServerStage::Open(Box::new(Backend {
            channel,
            state,
            // Process what the server sent together with the end of the login.
            flow: Flow { unread: true, ..Flow::default() },
            activity: Activity::Idle { since: env.now, command: env.protocol.idle_command() },
            held_since: None,
            usage: Usage::default(),
            assigned: env.now,
        }));
        Ok(())
    }

    /// Why a connection must be closed instead of being used by another client, apart from its session's state.
    pub(super) fn obsolete_reason(&self, is_over_limit: bool, env: &Environment<P>) -> Option<&'static str> {
        if is_over_limit {
            return Some("the limit of server connections was lowered");
        }
        let is_old = !self.has_settings(env);
        is_old.then_some("it was opened with old settings").or_else(|| self.operators_reason(env))
    }

    /// Why it must be closed at an operator's request; `None` if it need not.
    pub(super) fn operators_reason(&self, env: &Environment<P>) -> Option<&'static str> {
        env.operations.close_reason(self.key.database(), self.opened_at)
    }

    /// Whether it is closed when its client releases it, because settings have changed or an operator wants it.
    pub(super) fn must_close(&self, env: &Environment<P>) -> bool {
        !self.has_settings(env) || env.operations.is_outdated(self.key.database(), self.opened_at)
    }

    fn has_settings(&self, env: &Environment<P>) -> bool {
        let fingerprints = || (env.upstream.fingerprint, env.protocol.fingerprint(&self.key));
        self.upkeep.is_of(env.version, fingerprints)
    }

    /// The settings have changed.
    pub(super) fn check_settings(&mut self, env: &Environment<P>) {
        if self.has_settings(env) {
            self.upkeep.remember(env.version);
        }
        if let Some(at) = self.link.as_mut().and_then(|link| link.at.as_mut()) {
            at.forget_names();
        }
    }

    /// Why a connection must be closed instead of being used by another client.
    pub(super) fn discard_reason(&self, is_over_limit: bool, env: &Environment<P>) -> Option<&'static str> {
        let is_over = env.drain.is_some() && env.pooling == Pooling::Session;
        self.obsolete_reason(is_over_limit, env)
            .or(is_over.then_some("the proxy is stopping"))
            .or(self.lost_cancel.then_some("a request to cancel may still be on its way"))
            .or(self.is_killed.then_some(KILLED))
            .or((env.now.duration_since(self.opened_at) > env.limits.age).then_some("it is old"))
    }

    /// A connection without a client is idle from now on.
    pub(super) fn becomes_idle(&mut self, env: &Environment<P>) -> Option<&mut Backend<P>> {
        let since = self.upkeep.idle_since(env.now);
        let ServerStage::Open(backend) = &mut self.stage else { return None };
        backend.activity = Activity::Idle { since, command: env.protocol.idle_command() };
        backend.held_since = None;
        Some(backend)
    }

    /// What the time requires. `is_client_gone` says whether a client has left.
    pub(super) fn tick(&self, env: &Environment<P>, is_client_gone: impl Fn(Id) -> bool) -> ServerExpiry {
        let now = env.now;
        let backend = match &self.stage {
            ServerStage::Connecting { until, .. } if now >= *until => return ServerExpiry::ConnectTimedOut,
            ServerStage::Connecting { .. } => return ServerExpiry::None,
            ServerStage::Open(backend) => backend,
        };
        match &backend.activity {
            Activity::Idle { .. } if env.drain.is_some() && env.pooling == Pooling::Session => {
                ServerExpiry::Close("the proxy is stopping")
            }
            Activity::Idle { since, .. } if now.duration_since(*since) >= env.limits.idle => {
                ServerExpiry::Unused
            }
            Activity::Kept { since, client, .. }
                if now.duration_since(*since) >= KEEP_TIME || is_client_gone(*client) =>
            {
                ServerExpiry::ResetKept
            }
            Activity::Resetting { until, .. } if now >= *until => {
                ServerExpiry::Close(self.upkeep.timeout_reason())
            }
            Activity::Session { session, .. } if session.owes_reset() => ServerExpiry::SendReset,
            Activity::AwaitingCancel { until, .. } if now >= *until => {
                ServerExpiry::Close("a request to cancel is still on its way")
            }
            _ => ServerExpiry::None,
        }
    }
}

impl<P: Protocol> Backend<P> {
    pub(super) fn ready(&mut self, id: Id, readiness: Readiness, env: &Environment<P>) -> BackendStep {
        self.flow.record(readiness);
        let was_blocked = self.channel.is_blocked();
        if was_blocked && let Err(error) = self.channel.send().and_then(|_| self.watch(id, env)) {
            return BackendStep::SendFailed(error);
        }
        BackendStep::Relay {
            is_unblocked: was_blocked && !self.channel.is_blocked(),
            has_input: readiness != Readiness::Writable,
        }
    }

    /// Watches for room to send while output is pending.
    pub(super) fn watch(&mut self, id: Id, env: &Environment<P>) -> Result<(), Error> {
        self.flow.watch(&mut self.channel, &env.reactor, token_of(TokenKind::Server, id.index))
    }

    pub(super) fn session(&self) -> Option<&P::Session> {
        match &self.activity {
            Activity::Session { session, .. } => Some(session),
            _ => None,
        }
    }

    /// The client that uses it.
    pub(super) fn client(&self) -> Option<Id> {
        match self.activity {
            Activity::Session { client, .. } => Some(client),
            _ => None,
        }
    }

    pub(super) fn kept_context(&self) -> Option<P::ResetContext> {
        match self.activity {
            Activity::Kept { context, .. } => Some(context),
            _ => None,
        }
    }

    pub(super) fn is_kept_for(&self, client: Id) -> bool {
        matches!(self.activity, Activity::Kept { client: last, .. } if last == client)
    }

    /// Whether it is kept, and no other client can take it.
    pub(super) fn is_held(&self) -> bool {
        self.held_since.is_some() && matches!(self.activity, Activity::Kept { .. })
    }

    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.activity {
            Activity::Idle { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Starts the session of a client. On failure, the request is returned, and the connection is as before.
    pub(super) fn start_session(
        &mut self,
        client: Id,
        request: P::Request,
        acquired: AcquiredState,
        env: &mut Environment<P>,
    ) -> Result<(), (P::Request, session::Error)> {
        self.channel.borrow_output(&mut env.spare);
        let to_server = self.channel.output();
        match env.protocol.start_session(request, acquired, &mut self.state, to_server) {
            Ok(session) => {
                self.activity = Activity::Session { client, session };
                Ok(())
            }
            Err(failed) => {
                to_server.clear();
                Err((failed.request, failed.error))
            }
        }
    }

    /// Ends the session of a client that has left; `None` if there is none.
    pub(super) fn end_session(&mut self, env: &Environment<P>) -> Option<EndedSession<P>> {
        let (client, session) = self.take_session(env)?;
        let has_sent_nothing = session.can_detach();
        let release = session.release(&mut self.state).map(|release| self.drop_unsent(release));
        Some(EndedSession { client, release, has_sent_nothing })
    }

    /// Ends the session of a client at the end of its transaction; `None` if it has none.
    #[expect(clippy::type_complexity, reason = "the protocol's own result")]
    pub(super) fn detach(
        &mut self,
        client: Id,
        env: &Environment<P>,
    ) -> Option<Result<Detached<P::Request, P::ResetContext>, session::Error>> {
        if self.client() != Some(client) {
            return None;
        }
        let (_, session) = self.take_session(env)?;
        let detached = session.detach(&mut self.state);
        Some(detached.map(|detached| Detached { release: self.drop_unsent(detached.release), ..detached }))
    }

    fn drop_unsent(&mut self, release: Release<P::ResetContext>) -> Release<P::ResetContext> {
        let Release::Unsent(context) = release else { return release };
        self.channel.output().clear();
        Release::Reset(context)
    }

    fn take_session(&mut self, env: &Environment<P>) -> Option<(Id, Box<P::Session>)> {
        let idle = Activity::Idle { since: env.now, command: env.protocol.idle_command() };
        match std::mem::replace(&mut self.activity, idle) {
            Activity::Session { client, session } => Some((client, session)),
            other => {
                self.activity = other;
                None
            }
        }
    }

    /// Keeps the connection without a reset. What the server sends meanwhile is read.
    pub(super) fn keep(&mut self, client: Id, context: P::ResetContext, env: &Environment<P>) {
        self.held_since = held_since(self.held_since, env.protocol.holds_diagnostics(&context), env.now);
        self.activity =
            Activity::Kept { client, since: env.now, context, command: env.protocol.idle_command() };
    }

    /// Sends a command of the proxy's own. The connection is available again when the server has answered.
    pub(super) fn send_command(
        &mut self,
        id: Id,
        encode: impl FnOnce(&P, &mut P::BackendState, &mut Vec<u8>) -> Result<P::Command, session::Error>,
        env: &Environment<P>,
    ) -> BackendStep {
        let command = match encode(&env.protocol, &mut self.state, self.channel.output()) {
            Ok(command) => command,
            Err(error) => return BackendStep::Close(error.to_string()),
        };
        self.activity = Activity::Resetting { command, until: env.now + env.limits.reset };
        match self.channel.send().and_then(|_| self.watch(id, env)) {
            Ok(()) => BackendStep::Wait,
            Err(error) => BackendStep::SendFailed(error),
        }
    }

    /// Queries the settings that the client takes along when it is detached.
    pub(super) fn query_settings(&mut self, id: Id, env: &Environment<P>) -> BackendStep {
        let Activity::Session { session, .. } = &mut self.activity else { return BackendStep::Wait };
        if let Err(error) = session.query_settings(&self.state, self.channel.output()) {
            return BackendStep::Lost(Some(Error::Protocol(error)));
        }
        self.flush(id, env)
    }

    /// Sends the reset that waited for the client's first command.
    pub(super) fn send_reset(&mut self, id: Id, env: &Environment<P>) -> BackendStep {
        let Activity::Session { session, .. } = &mut self.activity else { return BackendStep::Wait };
        session.send_reset(self.channel.output());
        self.flush(id, env)
    }

    pub(super) fn flush(&mut self, id: Id, env: &Environment<P>) -> BackendStep {
        match self.channel.send().and_then(|_| self.watch(id, env)) {
            Ok(()) => BackendStep::Wait,
            Err(error) => BackendStep::SendFailed(error),
        }
    }

    /// Reads what the server sends on a connection that no client uses.
    pub(super) fn read_unassigned(&mut self, env: &mut Environment<P>) -> BackendStep {
        self.channel.borrow(&mut env.spare);
        let step = self.read_responses();
        self.channel.give_back(&mut env.spare);
        step
    }

    fn read_responses(&mut self) -> BackendStep {
        loop {
            let command = match &mut self.activity {
                Activity::Idle { command, .. }
                | Activity::Kept { command, .. }
                | Activity::Resetting { command, .. } => command,
                Activity::AwaitingCancel { .. } => {
                    self.flow.unread = true;
                    return BackendStep::Wait;
                }
                Activity::Session { .. } => return BackendStep::Wait,
            };
            self.flow.unread = false;
            let received = match self.channel.receive_input() {
                Ok(Received::Closed) => return BackendStep::Lost(None),
                Ok(received) => received,
                Err(error) => return BackendStep::Lost(Some(error)),
            };
            let mut input = self.channel.input();
            let before = input.len();
            let answer = command.step(&mut input, &mut self.state);
            let consumed = before - input.len();
            self.channel.consume(consumed);
            match answer {
                Ok(Response::Done(CommandOutcome::Idle)) => {
                    self.flow.unread |= received == Received::MoreLikely;
                    return BackendStep::Available;
                }
                Ok(Response::Done(CommandOutcome::Unusable(reason))) => {
                    return BackendStep::Close(reason.to_owned());
                }
                Ok(Response::NeedInput) => {}
                Err(error) => return BackendStep::Lost(Some(Error::Protocol(error))),
            }
            match received {
                Received::MoreLikely => {}
                Received::Drained if self.flow.has_ended() => {}
                _ => return BackendStep::Wait,
            }
        }
    }
}

/// Since when a connection is held whose client is parked now; `None` if other clients can take it.
fn held_since(before: Option<Instant>, has_diagnostics: bool, now: Instant) -> Option<Instant> {
    let since = before.unwrap_or(now);
    (has_diagnostics && now.duration_since(since) < KEEP_TIME).then_some(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_always_leaves_diagnostics_does_not_hold_its_connection_for_ever() {
        let start = Instant::now();
        let mut since = None;
        for (at, has_diagnostics, is_held) in [
            (0, true, true),
            (600, true, true),
            (1100, true, false),
            (1200, true, true),
            (1300, false, false),
            (2250, true, true),
        ] {
            since = held_since(since, has_diagnostics, start + Duration::from_millis(at));
            assert_eq!(since.is_some(), is_held, "{at}");
        }
    }
}
