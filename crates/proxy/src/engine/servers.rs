//! Server connections: from their opening over sessions and resets to their end.

use ciphertoll_net::{ConnectProgress, Connected, Connecting, Error, Readiness, Received, WatchedEvents};
use ciphertoll_wire::{Response, postgres};

use super::{
    Backend, Duty, Flow, Introduction, Kind, Proxy, Reuse, Server, ServerStage, Turn, VACATED, key_of,
};
use crate::dialect::{Dialect, Errand, Key, Leaving, Pooling, Session, Settled};
use crate::log::Level;
use crate::pool::Local;
use crate::refusal::Refusal;
use crate::slab::Id;

impl<D: Dialect> Proxy<D> {
    pub(super) fn open_server(&mut self, key: &D::Key) {
        let dialing = self.dialect.login(key).ok_or_else(|| {
            let reason = "it is no user that this proxy logs in as any more".to_owned();
            Error::Unresolved { name: key.user().to_owned(), reason }
        });
        let mut connecting = match dialing.and_then(|dialing| self.upstream.open(dialing)) {
            Ok(connecting) => connecting,
            Err(error) => return self.open_failed(key, None, &error),
        };
        let upkeep = self.upkeep_of(key);
        let id = self.servers.insert(Server {
            key: key.clone(),
            born: self.now,
            cancels: 0,
            reuse: Reuse::Allowed,
            upkeep,
            stage: ServerStage::Connecting { connecting: None, until: self.now + self.limits.connect },
        });
        if let Err(error) = self.reactor.register(connecting.channel(), key_of(Kind::Server, id.index)) {
            return self.open_failed(key, Some(id), &error);
        }
        if let Some(Server { stage: ServerStage::Connecting { connecting: place, .. }, .. }) =
            self.servers.get_mut(id)
        {
            *place = Some(Box::new(connecting));
        }
    }

    pub(super) fn server_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(server) = self.servers.get_mut(id) else { return };
        match &mut server.stage {
            ServerStage::Connecting { .. } => {
                self.go_on_connecting(id, |connecting| connecting.advance(readiness));
            }
            ServerStage::Up(backend) => {
                backend.flow.ended |= readiness == Readiness::ReadableToEnd;
                if backend.channel.is_blocked() {
                    if let Err(error) = backend.channel.send() {
                        return self.server_lost(id, Some(&error));
                    }
                    self.watch_server(id);
                    self.unblock_client_of(id);
                }
                if readiness != Readiness::Writable {
                    self.pump_down(id);
                }
            }
        }
    }

    /// Takes a connection that is being opened one step further.
    pub(super) fn go_on_connecting(
        &mut self,
        id: Id,
        step: impl FnOnce(Connecting) -> Result<ConnectProgress, Error>,
    ) {
        let Some(Server { stage: ServerStage::Connecting { connecting, .. }, key, .. }) =
            self.servers.get_mut(id)
        else {
            return;
        };
        let Some(begun) = connecting.take() else { return };
        let key = key.clone();
        match step(*begun) {
            Ok(ConnectProgress::Pending(mut pending)) => {
                self.derive_keys(id, &mut pending);
                if let Some(Server { stage: ServerStage::Connecting { connecting, .. }, .. }) =
                    self.servers.get_mut(id)
                {
                    *connecting = Some(Box::new(pending));
                }
            }
            Ok(ConnectProgress::Done(connected)) => self.opened(id, connected),
            Err(error) => self.open_failed(&key, Some(id), &error),
        }
    }

    /// The server takes bytes again: its client may have more.
    fn unblock_client_of(&mut self, id: Id) {
        if let Some(backend) = self.backend(id)
            && let Duty::Session { client, .. } = backend.duty
            && !backend.channel.is_blocked()
            && self.clients.get(client).is_some_and(|client| client.flow.unread)
        {
            self.pump_up(client);
        }
    }

    fn opened(&mut self, id: Id, connected: Connected) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let key = server.key.clone();
        let Connected { mut channel, server: info, .. } = connected;
        let watch = self.reactor.watch(&mut channel, key_of(Kind::Server, id.index), WatchedEvents::Reading);
        if let Err(error) = watch {
            return self.open_failed(&key, Some(id), &error);
        }
        let negotiated = channel.negotiated();
        let tls = negotiated.as_ref().map_or("none", |negotiated| negotiated.version);
        let group = negotiated.as_ref().and_then(|negotiated| negotiated.group.as_deref()).unwrap_or("none");
        let introduced = (info.version().to_owned(), info.auth_label());
        let fields: [(&str, &dyn std::fmt::Display); 6] = [
            ("server_connection", &id.index),
            ("database", &key.database()),
            ("server_version", &introduced.0),
            ("tls", &tls),
            ("group", &group),
            ("auth", &introduced.1),
        ];
        self.log.event(Level::Info, "server-connected", &fields);
        let Some(facts) = self.dialect.facts(&key, info) else {
            let reason = "the server speaks another protocol";
            let error = postgres::Error::Protocol { message: "end of the login", reason };
            return self.open_failed(&key, Some(id), &error.into());
        };
        // It is not old before anybody has had it, however long the login took.
        server.born = self.now;
        server.stage = ServerStage::Up(Box::new(Backend {
            channel,
            facts,
            // What came behind the login is looked at, too.
            flow: Flow { unread: true, ..Flow::default() },
            duty: Duty::Idle { since: self.now, errand: self.dialect.nothing() },
        }));
        self.ops.metrics.opened.up();
        let now = self.now;
        // Told before others can see that it is: they wait for it then, and open nothing to find out.
        self.teach(&key);
        let introduction = self.commons.outlook.with(|outlook| {
            outlook.warmth.opened(now);
            std::mem::replace(&mut outlook.introduction, Introduction::Done)
        });
        self.pool.with(|pool| pool.opened(&key));
        self.hand_over(id);
        if introduction == Introduction::Awaited {
            self.again.push(Turn::Accept);
        }
    }

    /// A connection could not be opened: the client that has waited longest is told.
    pub(super) fn open_failed(&mut self, key: &D::Key, id: Option<Id>, error: &Error) {
        if let Some(id) = id {
            self.servers.remove(id);
        }
        self.upstream.failed();
        self.ops.metrics.not_opened(error);
        let now = self.now;
        let introduction = self.commons.outlook.with(|outlook| {
            outlook.warmth.failed(now);
            let introduction = outlook.introduction;
            if introduction == Introduction::Awaited {
                outlook.introduction = Introduction::None;
            }
            introduction
        });
        let has_open = self.pool.with(|pool| {
            pool.opened(key);
            pool.has_open(key)
        });
        let may_wait = error.is_too_many_connections() && has_open;
        let reason = Refusal::reason(error);
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("server", &self.server), ("database", &key.database()), ("reason", &reason)];
        self.log.event(Level::Warn, "connect-failed", &fields);
        // Those that there are will be given back.
        if !may_wait {
            if let Some(client) = self.pool.with(|pool| pool.first_waiting(key)) {
                self.refuse_anywhere(client, Refusal::not_opened(error));
            }
            self.wanting = true;
        }
        self.pool.with(|pool| pool.closed(key, id));
        let was_known = self.dialect.unknown().is_none();
        self.dialect.doubt(error);
        if was_known && self.dialect.unknown().is_some() {
            self.commons.outlook.with(|outlook| outlook.introduction = Introduction::None);
            self.teach(key);
        }
        if introduction == Introduction::Awaited {
            self.turn_away(&Refusal::not_opened(error));
        }
    }

    pub(super) fn backend(&mut self, id: Id) -> Option<&mut Backend<D>> {
        match &mut self.servers.get_mut(id)?.stage {
            ServerStage::Up(backend) => Some(backend),
            ServerStage::Connecting { .. } => None,
        }
    }

    pub(super) fn is_unread(&mut self, id: Id) -> bool {
        self.backend(id).is_some_and(|backend| backend.flow.unread)
    }

    /// Has a connection watched for room to send where that is waited for, and only there.
    pub(super) fn watch_server(&mut self, id: Id) {
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get_mut(id) else { return };
        let blocked = backend.channel.is_blocked();
        if blocked == backend.flow.watched {
            return;
        }
        backend.flow.watched = blocked;
        let watch = if blocked { WatchedEvents::Both } else { WatchedEvents::Reading };
        let watched = self.reactor.watch(&mut backend.channel, key_of(Kind::Server, id.index), watch);
        if let Err(error) = watched {
            self.server_lost(id, Some(&error));
        }
    }

    /// The client of a connection has left.
    pub(super) fn client_has_left(&mut self, id: Id) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerStage::Up(backend) = &mut server.stage else { return };
        let idle = Duty::Idle { since: self.now, errand: self.dialect.nothing() };
        let Duty::Session { client, session } = std::mem::replace(&mut backend.duty, idle) else { return };
        let has_only_come_back = session.can_be_parted();
        match session.leave(&mut backend.facts) {
            Ok(Leaving::Reset(remains)) if has_only_come_back => self.leave_behind(client, id, remains),
            Ok(leaving) => self.free(id, leaving),
            Err(error) => self.close_server(id, &error.to_string()),
        }
    }

    /// Makes a connection ready for others, as soon as nothing is on its way to it that is not for them.
    pub(super) fn free(&mut self, id: Id, leaving: Leaving<D::Remains>) {
        let until = self.now + self.limits.reset;
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerStage::Up(backend) = &mut server.stage else { return };
        match leaving {
            Leaving::Close(reason) => self.close_server(id, reason),
            leaving if server.cancels > 0 => backend.duty = Duty::Awaiting { until, leaving },
            leaving => self.make_fresh(id, leaving),
        }
    }

    /// Brings a connection back to where the next client may have it.
    pub(super) fn make_fresh(&mut self, id: Id, leaving: Leaving<D::Remains>) {
        let until = self.now + self.limits.reset;
        if let Leaving::Reset(_) = leaving {
            self.ops.metrics.resets.up();
        }
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get_mut(id) else { return };
        let reset = match leaving {
            Leaving::Untouched => {
                backend.channel.output().clear();
                return self.hand_over(id);
            }
            Leaving::Reset(transaction) => {
                self.dialect.reset(transaction, &mut backend.facts, backend.channel.output())
            }
            Leaving::Close(reason) => return self.close_server(id, reason),
        };
        match (reset, backend.channel.send()) {
            (Ok(errand), Ok(_)) => {
                backend.duty = Duty::Resetting { errand, until };
                if backend.flow.unread {
                    self.again.push(Turn::Down(id));
                }
                self.watch_server(id);
            }
            (Err(error), _) => self.close_server(id, &error.to_string()),
            (_, Err(error)) => self.server_lost(id, Some(&error)),
        }
    }

    /// Why no other client may have a connection, however it is.
    pub(super) fn not_for_others(&self, id: Id) -> Option<&'static str> {
        let server = self.servers.get(id)?;
        let is_over = self.drain.is_some() && self.pooling == Pooling::Session;
        self.outlived(id)
            .or(is_over.then_some("the proxy is stopping"))
            .or((server.reuse == Reuse::Never).then_some("a request to cancel may still be on its way"))
            .or((self.now.duration_since(server.born) > self.limits.age).then_some("it is old"))
    }

    /// A connection awaits commands: the next client has it, or it waits for one.
    pub(super) fn hand_over(&mut self, id: Id) {
        if let Some(reason) = self.not_for_others(id) {
            return self.close_server(id, reason);
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.cancels > 0 {
            return self.free(id, Leaving::Untouched);
        }
        let key = server.key.clone();
        let since = server.upkeep.idle_since(self.now);
        let ServerStage::Up(backend) = &mut server.stage else { return };
        backend.duty = Duty::Idle { since, errand: self.dialect.nothing() };
        if backend.flow.unread || backend.flow.ended {
            self.again.push(Turn::Down(id));
        }
        match self.pool.with(|pool| pool.give_back(&key, id)) {
            Some(client) if client.thread() == self.commons.thread => self.attach(client, id),
            Some(client) => self.send_server(id, client),
            None if self.is_vacated(&key) => self.close_server(id, VACATED),
            // Others may wait for a place that this one has.
            None => self.wanting = true,
        }
    }

    /// Reads what a connection says that no client has.
    pub(super) fn read_own(&mut self, id: Id) {
        loop {
            let Some(server) = self.servers.get_mut(id) else { return };
            let ServerStage::Up(backend) = &mut server.stage else { return };
            let errand = match &mut backend.duty {
                Duty::Idle { errand, .. } | Duty::Kept { errand, .. } | Duty::Resetting { errand, .. } => {
                    errand
                }
                Duty::Awaiting { .. } => {
                    backend.flow.unread = true;
                    return;
                }
                Duty::Session { .. } => return,
            };
            backend.flow.unread = false;
            let received = match backend.channel.receive_input() {
                Ok(Received::Closed) => return self.server_lost(id, None),
                Ok(received) => received,
                Err(error) => return self.server_lost(id, Some(&error)),
            };
            let mut input = backend.channel.input();
            let before = input.len();
            let answer = errand.step(&mut input, &mut backend.facts);
            let consumed = before - input.len();
            backend.channel.consume(consumed);
            match answer {
                Ok(Response::Done(Settled::Idle)) => return self.hand_over(id),
                Ok(Response::Done(Settled::Spoilt(reason))) => return self.close_server(id, reason),
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

    /// A connection has ended, or is of no more use: its client is told.
    pub(super) fn server_lost(&mut self, id: Id, error: Option<&Error>) {
        let Some(server) = self.servers.remove(id) else { return };
        let reason = error.map_or_else(|| "the server closed the connection".to_owned(), ToString::to_string);
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.log.event(Level::Warn, "server-lost", &fields);
        self.ops.metrics.lost();
        if let ServerStage::Up(backend) = server.stage
            && let Duty::Session { client, session } = backend.duty
        {
            if session.wants_a_reason() {
                let message = format!("the connection to the server was lost: {reason}");
                let refusal = Refusal::new(Refusal::LOST, message);
                if let Some(client) = self.clients.get_mut(client) {
                    session.refuse(&refusal, client.channel.output());
                }
                self.refused(client, &refusal);
            } else {
                self.let_go(client);
            }
        }
        self.pool.with(|pool| pool.closed(&server.key, Some(id)));
        self.wanting = true;
    }

    /// Closes a connection that no client has.
    pub(super) fn close_server(&mut self, id: Id, reason: &str) {
        let Some(server) = self.servers.remove(id) else { return };
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.log.event(Level::Info, "server-closed", &fields);
        self.ops.metrics.closed(reason);
        if let ServerStage::Up(mut backend) = server.stage {
            self.dialect.goodbye(backend.channel.output());
            // The server will notice in any case.
            let _ = backend.channel.close();
        }
        self.pool.with(|pool| pool.closed(&server.key, Some(id)));
        self.wanting = true;
    }
}
