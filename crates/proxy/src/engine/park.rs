//! Clients between transactions: they have no server connection, but the one that they had last is kept for them as they
//! have left it, as long as nobody else needs it.

use std::time::Duration;

use ciphertoll_net::{Received, Sent};

use super::{Backend, Client, ClientStage, Duty, Proxy, Server, ServerStage, Turn};
use crate::dialect::{
    Beginning, Dialect, Greeted, Leaving, Parted, Place, Pooling, Session, Takeover, Wanted,
};
use crate::log::Level;
use crate::pool::Kept;
use crate::refusal::Refusal;
use crate::slab::Id;

/// How long a connection is kept as a client has left it. Then it is reset, so that the next one need not wait for that.
pub(super) const KEPT: Duration = Duration::from_secs(1);

impl<D: Dialect> Proxy<D> {
    /// Serves a client again that has more to say.
    pub(super) fn go_on(&mut self, id: Id) {
        match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Attached(_)) => self.pump_up(id),
            Some(ClientStage::Parked { .. }) => self.resume(id),
            _ => {}
        }
    }

    /// Tells a client that it may begin, if that takes no connection.
    pub(super) fn greet_early(&mut self, id: Id) -> Greeted {
        if self.pooling == Pooling::Session {
            return Greeted::NotYet;
        }
        let Some(ticket) = self.new_ticket() else { return Greeted::NotYet };
        let Some(client) = self.clients.get_mut(id) else { return Greeted::Done };
        let Client { channel, stage: ClientStage::Queued { key, wanted }, .. } = client else {
            return Greeted::NotYet;
        };
        let before = channel.output().len();
        if self.dialect.greet_early(key, wanted, ticket, channel.output()) == Greeted::NotYet {
            channel.output().truncate(before);
            return Greeted::NotYet;
        }
        if channel.send().is_err() {
            self.client_gone(id, "went away");
            return Greeted::Done;
        }
        client.ticket = Some(ticket);
        if let ClientStage::Queued { key, wanted } =
            std::mem::replace(&mut client.stage, ClientStage::Flushing)
        {
            client.stage = ClientStage::Parked { key, wanted };
        }
        self.by_process.insert(ticket.process_id, id);
        self.ops.metrics.sessions.up();
        self.watch_client(id);
        // What came behind the login is looked at, too.
        self.again.push(Turn::Up(id));
        Greeted::Done
    }

    /// A client between transactions has said something: it gets its last connection, or another one, or waits.
    pub(super) fn resume(&mut self, id: Id) {
        let Some(client) = self.clients.get(id) else { return };
        if let Some(home) = client.home
            && self.is_kept_for(home, id)
            && self.unkeep(home)
        {
            self.rejoin(id, home);
            self.pump_up(id);
            // It may have been less than a command, or nothing: then others can have the connection meanwhile.
            return self.part_early(id, home);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientStage::Parked { wanted, .. } = &client.stage else { return };
        client.channel.borrow(&mut self.spare);
        let received = client.channel.receive_input();
        let beginning = wanted.beginning(client.channel.input());
        client.channel.give_back(&mut self.spare);
        match (beginning, received) {
            (Beginning::Goodbye, _) | (Beginning::NotYet, Ok(Received::Closed) | Err(_)) => {
                return self.client_gone(id, "left");
            }
            (Beginning::NotYet, Ok(_)) => return,
            (Beginning::Command, _) => {}
        }
        if let Some(refusal) = self.cannot_go_on(id) {
            return self.refuse(id, &refusal);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        client.since = self.now;
        let key = match std::mem::replace(&mut client.stage, ClientStage::Flushing) {
            ClientStage::Parked { key, wanted } => {
                client.stage = ClientStage::Queued { key: key.clone(), wanted };
                key
            }
            other => {
                client.stage = other;
                return;
            }
        };
        self.ask(id, &key);
    }

    /// Why a client between transactions cannot have another connection.
    fn cannot_go_on(&self, id: Id) -> Option<Refusal> {
        match &self.clients.get(id)?.stage {
            ClientStage::Parked { wanted, .. } => {
                self.dialect.key(wanted).err().or_else(|| self.queue_is_full())
            }
            _ => None,
        }
    }

    /// Gives a client its last connection, which is as it has left it, and which the pool does not keep any more.
    fn rejoin(&mut self, id: Id, home: Id) {
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get_mut(home) else {
            return;
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        let wanted = match std::mem::replace(&mut client.stage, ClientStage::Flushing) {
            ClientStage::Parked { wanted, .. } => wanted,
            other => {
                client.stage = other;
                return;
            }
        };
        match self.dialect.begin(wanted, Place::Own, &mut backend.facts, backend.channel.output()) {
            Ok(session) => {
                client.stage = ClientStage::Attached(home);
                backend.duty = Duty::Session { client: id, session };
            }
            // Nothing is asked of a connection that is as it was.
            Err((_, error)) => {
                self.client_gone(id, &error.to_string());
                self.close_server(home, "its client could not be given it again");
            }
        }
    }

    /// A session that has not begun need not hold a connection.
    pub(super) fn part_early(&mut self, client_id: Id, server_id: Id) {
        let can_be_parted = self.backend(server_id).is_some_and(
            |backend| matches!(&backend.duty, Duty::Session { session, .. } if session.can_be_parted()),
        );
        if can_be_parted {
            self.part(client_id, server_id);
        }
    }

    /// A client's transaction has ended: the client is parted from its connection.
    pub(super) fn part(&mut self, client_id: Id, server_id: Id) {
        let Some(Server { stage: ServerStage::Up(backend), key, .. }) = self.servers.get_mut(server_id)
        else {
            return;
        };
        let idle = Duty::Idle { since: self.now, errand: self.dialect.nothing() };
        let session = match std::mem::replace(&mut backend.duty, idle) {
            Duty::Session { client, session } if client == client_id => session,
            other => {
                backend.duty = other;
                return;
            }
        };
        let parted = session.part(&mut backend.facts);
        let key = key.clone();
        let Some(client) = self.clients.get_mut(client_id) else { return };
        match parted {
            Ok(Parted { wanted: Some(wanted), leaving }) => {
                client.stage = ClientStage::Parked { key, wanted };
                match leaving {
                    Leaving::Reset(remains) => self.keep(client_id, server_id, remains),
                    leaving => self.make_fresh(server_id, leaving),
                }
                self.catch_up(client_id);
            }
            Ok(Parted { wanted: None, .. }) => {
                self.client_gone(client_id, "cannot be parted from its connection");
            }
            Err(error) => {
                self.client_gone(client_id, &error.to_string());
                self.close_server(server_id, "nobody knows its settings");
            }
        }
    }

    /// Keeps a connection as its client has left it, if nobody waits for one.
    fn keep(&mut self, client: Id, id: Id, remains: D::Remains) {
        self.lay_down(client, id, remains);
        let Some(server) = self.servers.get(id) else { return };
        if self.dialect.is_held(&remains) {
            // Nobody is given it before it has been kept as long as that takes.
            return;
        }
        match self.pool.with(|pool| pool.keep(&server.key, id)) {
            Kept::ForThoseThatWait => self.steal(id),
            // Others may wait for a place that this one has.
            Kept::ForItsClient => self.wanting = true,
        }
    }

    /// Leaves a connection as it is; what the server says meanwhile is read.
    fn lay_down(&mut self, client: Id, id: Id, remains: D::Remains) {
        let (since, errand) = (self.now, self.dialect.nothing());
        let Some(backend) = self.backend(id) else { return };
        backend.duty = Duty::Kept { client, since, remains, errand };
        if backend.flow.unread || backend.flow.ended {
            self.again.push(Turn::Down(id));
        }
    }

    /// Takes a kept connection, which the pool does not keep any more, for a client that waits.
    pub(super) fn steal(&mut self, id: Id) {
        self.ops.metrics.steals.up();
        match self.next_owner(id) {
            Some(client) => self.take_over(client, id),
            None => self.take_away(id),
        }
    }

    /// The client that has waited longest, if it can have this connection without waiting for its reset: it has been let
    /// in, so that nothing of its settings is wrong.
    fn next_owner(&mut self, id: Id) -> Option<Id> {
        let server = self.servers.get(id)?;
        let ServerStage::Up(backend) = &server.stage else { return None };
        let Duty::Kept { remains, .. } = backend.duty else { return None };
        let is_ready = server.cancels == 0 && !backend.flow.ended && self.not_for_others(id).is_none();
        if !is_ready || self.dialect.takeover(remains) == Takeover::WhenReset {
            return None;
        }
        let clients = &self.clients;
        let is_let_in = |client| clients.get(client).is_some_and(|client| client.ticket.is_some());
        let client = self.pool.with(|pool| pool.give_as_it_is(&server.key, id, is_let_in))?;
        self.ops.metrics.resets.up();
        Some(client)
    }

    /// Resets a kept connection, which the pool does not keep any more, for the next client.
    pub(super) fn take_away(&mut self, id: Id) {
        if let Some(reason) = self.outlived(id) {
            return self.close_server(id, reason);
        }
        if let Some(backend) = self.backend(id)
            && let Duty::Kept { remains, .. } = backend.duty
        {
            self.free(id, Leaving::Reset(remains));
        }
    }

    /// A kept connection is reset before anybody needs it.
    pub(super) fn keep_no_more(&mut self, id: Id) {
        if self.unkeep(id) {
            self.take_away(id);
        }
    }

    /// Takes a connection from those that are kept. Not if it is none of them any more: then another thread has said what
    /// is to become of it, and its letter is on its way.
    pub(super) fn unkeep(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        match &server.stage {
            ServerStage::Up(backend) if self.is_held(backend) => true,
            _ => self.pool.with(|pool| pool.unkeep(&server.key, id)),
        }
    }

    /// Whether nobody but its client can be given a connection, so that the pool does not know that it is kept.
    fn is_held(&self, backend: &Backend<D>) -> bool {
        matches!(&backend.duty, Duty::Kept { remains, .. } if self.dialect.is_held(remains))
    }

    /// A client is no more that may have a connection kept.
    pub(super) fn client_comes_no_more(&mut self, id: Id, home: Id) {
        if !self.is_kept_for(home, id) {
            return;
        }
        let Some(backend) = self.backend(home) else { return };
        let Duty::Kept { remains, .. } = backend.duty else { return };
        if self.unkeep(home) {
            self.leave_behind(id, home, remains);
        }
    }

    /// The client of a connection that rests does not come back.
    pub(super) fn leave_behind(&mut self, client: Id, id: Id, remains: D::Remains) {
        if self.dialect.takeover(remains) == Takeover::WhenReset || self.not_for_others(id).is_some() {
            return self.free(id, Leaving::Reset(remains));
        }
        // The next client's first words bring the reset along; if nobody comes, the next tick does it.
        self.lay_down(client, id, remains);
        let Some(server) = self.servers.get(id) else { return };
        match self.pool.with(|pool| pool.leave(&server.key, id)) {
            Kept::ForThoseThatWait => self.steal(id),
            // Others may wait for a place that this one has.
            Kept::ForItsClient => self.wanting = true,
        }
    }

    fn is_kept_for(&self, id: Id, client: Id) -> bool {
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get(id) else { return false };
        matches!(backend.duty, Duty::Kept { client: last, .. } if last == client)
    }

    /// Asks the server for what a client must take along when it is parted.
    pub(super) fn ask_for_settings(&mut self, server_id: Id) {
        let Some(backend) = self.backend(server_id) else { return };
        let Duty::Session { session, .. } = &mut backend.duty else { return };
        let asked = session.ask(&backend.facts, backend.channel.output());
        match (asked, backend.channel.send()) {
            (Ok(()), Ok(_)) => self.watch_server(server_id),
            (Err(error), _) => self.server_lost(server_id, Some(&ciphertoll_net::Error::Protocol(error))),
            (_, Err(error)) => self.server_lost(server_id, Some(&error)),
        }
    }

    /// A client keeps its connection until it leaves.
    pub(super) fn pinned(&mut self, client_id: Id, server_id: Id, reason: &str) {
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &client_id.index), ("server_connection", &server_id.index), ("reason", &reason)];
        self.log.event(Level::Info, "pinned", &fields);
        self.ops.metrics.pinned(reason);
    }

    /// Ends the command of a client that waits for a connection. Whether it could be ended.
    pub(super) fn cancel_waiting(&mut self, id: Id) -> bool {
        let Some(Client { channel, stage: ClientStage::Queued { key, wanted }, .. }) =
            self.clients.get_mut(id)
        else {
            return false;
        };
        if channel.receive_input().is_err() {
            return false;
        }
        let (input, out) = channel.buffers();
        let Some(bytes) = wanted.cancel(input, out) else { return false };
        channel.consume(bytes);
        let sent = channel.send();
        self.pool.with(|pool| pool.forget(key, id));
        let Some(client) = self.clients.get_mut(id) else { return false };
        if let ClientStage::Queued { key, wanted } =
            std::mem::replace(&mut client.stage, ClientStage::Flushing)
        {
            client.stage = ClientStage::Parked { key, wanted };
        }
        if matches!(sent, Ok(Sent::All)) {
            self.again.push(Turn::Up(id));
        } else {
            self.client_gone(id, "does not take answers");
        }
        true
    }
}
