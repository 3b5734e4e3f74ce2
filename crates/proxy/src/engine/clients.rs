//! Clients: their start-up, their place in the queue, and their end.

use ciphertoll_net::{Readiness, Received, Sent, WatchedEvents};

use super::cancel::LEFT;
use super::{Client, ClientStage, Duty, Kind, Proxy, Server, ServerStage, Turn, key_of};
use crate::dialect::{Dialect, Front, FrontStep, Greeted, Session, Wanted};
use crate::log::Level;
use crate::pool::Asked;
use crate::refusal::Refusal;
use crate::slab::Id;

impl<D: Dialect> Proxy<D> {
    pub(super) fn client_ready(&mut self, id: Id, readiness: Readiness) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.flow.ended |= readiness == Readiness::ReadableToEnd;
        match &client.stage {
            ClientStage::Front(_) => self.step_front(id),
            ClientStage::Encrypting(_) => self.shake_hands(id),
            ClientStage::Queued { .. } if client.flow.ended => self.client_gone(id, "left the queue"),
            ClientStage::Queued { .. } => client.flow.unread = true,
            ClientStage::Attached(server) => {
                let server = *server;
                if client.channel.is_blocked() && !self.flush_client(id) {
                    return;
                }
                if self.is_unread(server) {
                    self.pump_down(server);
                }
                // It may have been parted from its connection by now.
                if readiness != Readiness::Writable {
                    self.go_on(id);
                }
            }
            ClientStage::Parked { .. } => {
                if client.channel.is_blocked() && !self.flush_client(id) {
                    return;
                }
                self.resume(id);
            }
            ClientStage::Cancelling if client.flow.ended => self.client_gone(id, LEFT),
            ClientStage::Cancelling => {}
            ClientStage::Flushing => {
                if client.flow.ended || !matches!(client.channel.send(), Ok(Sent::Blocked)) {
                    self.remove_client(id);
                }
            }
        }
    }

    /// Sends what waits for a client; whether the client is still there.
    fn flush_client(&mut self, id: Id) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if client.channel.send().is_err() {
            self.client_gone(id, "went away");
            return false;
        }
        self.watch_client(id);
        true
    }

    /// Has a client watched for room to send where that is waited for, and only there.
    pub(super) fn watch_client(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let blocked = client.channel.is_blocked();
        if blocked == client.flow.watched {
            return;
        }
        client.flow.watched = blocked;
        let watch = if blocked { WatchedEvents::Both } else { WatchedEvents::Reading };
        if self.reactor.watch(&mut client.channel, key_of(Kind::Client, id.index), watch).is_err() {
            self.client_gone(id, "cannot be watched");
        }
    }

    /// Says the first word to a client.
    pub(super) fn speak_first(&mut self, id: Id) {
        let Some(Client { channel, stage: ClientStage::Front(front), .. }) = self.clients.get_mut(id) else {
            return;
        };
        match (front.step(&mut &b""[..], channel.output()), channel.send()) {
            (FrontStep::NeedInput, Ok(Sent::All)) => {}
            (FrontStep::Refuse(refusal), _) => self.refuse(id, &refusal),
            _ => self.client_gone(id, "does not take a greeting"),
        }
    }

    pub(super) fn step_front(&mut self, id: Id) {
        loop {
            let Some(client) = self.clients.get_mut(id) else { return };
            let Client { channel, stage, .. } = client;
            let ClientStage::Front(front) = stage else { return };
            channel.borrow(&mut self.spare);
            let received = match channel.receive_input() {
                Ok(Received::Closed) | Err(_) => return self.client_gone(id, "left before it logged in"),
                Ok(received) => received,
            };
            let (mut input, out) = channel.buffers();
            let before = input.len();
            let step = front.step(&mut input, out);
            let consumed = before - input.len();
            channel.consume(consumed);
            channel.give_back(&mut self.spare);
            let sent = if channel.output().is_empty() { Ok(Sent::All) } else { channel.send() };
            let ended = client.flow.ended;
            match (step, sent) {
                // Nobody who means well fills a socket with requests for encryption.
                (_, Err(_) | Ok(Sent::Blocked)) => return self.client_gone(id, "does not take answers"),
                (FrontStep::NeedInput, _) if received == Received::MoreLikely => {}
                (FrontStep::NeedInput, _) if received == Received::Drained && ended => {}
                (FrontStep::NeedInput, _) => return,
                (FrontStep::StartTls, _) => return self.begin_tls(id),
                (FrontStep::Login(wanted), _) => {
                    // No edge will tell of what came with the last of its start-up.
                    client.flow.unread |= !client.channel.input().is_empty();
                    return self.login(id, wanted);
                }
                (FrontStep::Cancel { process_id, key }, _) => {
                    return self.cancel_wanted(id, process_id, &key);
                }
                (FrontStep::Refuse(refusal), _) => return self.refuse(id, &refusal),
                (FrontStep::HangUp(reason), _) => return self.client_gone(id, reason),
            }
        }
    }

    /// A client is known: it gets a connection, or waits for one.
    fn login(&mut self, id: Id, wanted: D::Wanted) {
        let granted = self
            .cannot_serve()
            .map_or_else(|| self.dialect.key(&wanted), Err)
            .and_then(|key| self.queue_is_full().map_or(Ok(key), Err));
        let Some(client) = self.clients.get_mut(id) else { return };
        client.since = self.now;
        let key = match granted {
            Ok(key) => key,
            Err(refusal) => {
                wanted.refuse(&refusal, client.channel.output());
                return self.refused(id, &refusal);
            }
        };
        client.stage = ClientStage::Queued { key: key.clone(), wanted };
        if self.greet_early(id) == Greeted::NotYet {
            self.ask(id, &key);
        }
    }

    /// A client that has a session begins with another login: its connection is given back, and it is as one that has just
    /// come.
    pub(super) fn log_in_anew(&mut self, id: Id) {
        let Some(ClientStage::Attached(server)) = self.clients.get(id).map(|client| &client.stage) else {
            return;
        };
        let server = *server;
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get(server) else { return };
        let Duty::Session { session, .. } = &backend.duty else { return };
        let Some(front) = self.dialect.front_anew(session) else {
            let message = "another login on the same connection is not possible here";
            return self.refuse(id, &Refusal::new(Refusal::UNSUPPORTED, message));
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        client.stage = ClientStage::Front(front);
        client.since = self.now;
        client.home = None;
        if let Some(ticket) = client.ticket.take() {
            self.by_process.remove(&ticket.process_id);
        }
        self.client_has_left(server);
        self.step_front(id);
    }

    /// A client that waits gets a connection, if there is one.
    pub(super) fn ask(&mut self, id: Id, key: &D::Key) {
        let now = self.now;
        match self.pool.with(|pool| pool.ask(key, id, now)) {
            Asked::Take(server) => self.attach(id, server),
            asked => self.open_as(key, asked),
        }
    }

    fn cannot_serve(&self) -> Option<Refusal> {
        if self.drain.is_some() {
            return Some(Refusal::new(Refusal::STOPPING, "the proxy is shutting down"));
        }
        if self.commons.clients() > self.limits.clients {
            let message = format!("the proxy has {} clients already", self.limits.clients);
            return Some(Refusal::new(Refusal::FULL, message));
        }
        None
    }

    /// Tells a client why it cannot go on, and lets it go.
    pub(super) fn refuse(&mut self, id: Id, refusal: &Refusal) {
        let Some(Client { channel, stage, .. }) = self.clients.get_mut(id) else { return };
        match stage {
            ClientStage::Front(front) => front.refuse(refusal, channel.output()),
            ClientStage::Queued { wanted, .. } | ClientStage::Parked { wanted, .. } => {
                wanted.refuse(refusal, channel.output());
            }
            ClientStage::Attached(server) => {
                if let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get_mut(*server)
                    && let Duty::Session { session, .. } = &backend.duty
                {
                    session.refuse(refusal, channel.output());
                }
            }
            // In the middle of a handshake it would not understand.
            ClientStage::Encrypting(_) | ClientStage::Cancelling | ClientStage::Flushing => {}
        }
        self.refused(id, refusal);
    }

    /// Lets a client go that has been told why.
    pub(super) fn refused(&mut self, id: Id, refusal: &Refusal) {
        let state = String::from_utf8_lossy(&refusal.sqlstate).into_owned();
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &id.index), ("sqlstate", &state), ("reason", &refusal.message)];
        self.log.event(Level::Info, "refused", &fields);
        self.ops.metrics.refused(&state);
        self.let_go(id);
    }

    /// Ends a client when it has taken what there is for it.
    pub(super) fn let_go(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !matches!(client.channel.send(), Ok(Sent::Blocked)) {
            return self.client_gone(id, "was let go");
        }
        client.since = self.now;
        let home = client.home;
        let stage = std::mem::replace(&mut client.stage, ClientStage::Flushing);
        if let Some(ticket) = client.ticket.take() {
            self.by_process.remove(&ticket.process_id);
        }
        self.watch_client(id);
        self.unlink(id, stage, home);
    }

    /// A client is no more.
    pub(super) fn client_gone(&mut self, id: Id, how: &str) {
        let Some(client) = self.remove_client(id) else { return };
        self.log.event(Level::Debug, "client-gone", &[("client", &id.index), ("how", &how)]);
        if let Some(ticket) = client.ticket {
            self.by_process.remove(&ticket.process_id);
        }
        // Dropped first, so that its descriptor is free for the next.
        let Client { channel, stage, home, .. } = client;
        drop(channel);
        self.unlink(id, stage, home);
    }

    pub(super) fn remove_client(&mut self, id: Id) -> Option<Client<D>> {
        let client = self.clients.remove(id)?;
        self.one_less();
        Some(client)
    }

    /// One client less is here.
    pub(super) fn one_less(&self) {
        self.commons.leave(self.commons.thread);
        // Threads whose own have left already wait for the last of all.
        if self.drain.is_some() && self.commons.clients() == 0 {
            self.commons.ring();
        }
    }

    /// Whoever had to do with a client has not any more.
    fn unlink(&mut self, id: Id, stage: ClientStage<D>, home: Option<Id>) {
        match stage {
            ClientStage::Queued { key, .. } => self.pool.with(|pool| pool.forget(&key, id)),
            ClientStage::Attached(server) => self.client_has_left(server),
            ClientStage::Front(_)
            | ClientStage::Encrypting(_)
            | ClientStage::Parked { .. }
            | ClientStage::Cancelling
            | ClientStage::Flushing => {}
        }
        if let Some(home) = home {
            self.client_comes_no_more(id, home);
        }
    }

    /// Has a client served again if it has said something before its time.
    pub(super) fn catch_up(&mut self, id: Id) {
        if self.clients.get(id).is_some_and(|client| client.flow.unread || client.flow.ended) {
            self.again.push(Turn::Up(id));
        }
    }
}
