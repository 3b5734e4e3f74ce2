//! Connections and clients that go from one thread to another, and what threads ask of one another.

use std::time::Instant;

use ciphertoll_net::{Channel, Peer};

use super::post::Letter;
use super::{
    Client, ClientStage, Drain, Duty, Flow, Introduction, Kind, Proxy, Server, ServerStage, Turn, key_of,
};
use crate::dialect::{Dialect, FirstWord};
use crate::log::Level;
use crate::pool::{Asked, Local};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<D: Dialect> Proxy<D> {
    /// Does what other threads want.
    pub(super) fn read_letters(&mut self) {
        let Some(post) = self.commons.posts.get(self.commons.thread) else { return };
        for letter in post.open() {
            match letter {
                Letter::Order(order) => self.ordered(order),
                Letter::Newcomer(channel, peer) => self.newcomer_from_elsewhere(channel, peer),
                Letter::GiveBack(server) => self.give_back_again(server),
                Letter::Evict(server, key) => self.evict(server, &key),
                Letter::Take(server, client) => self.take(*server, client),
                Letter::NotOpened(client, refusal) => self.refuse_waiting(client, &refusal),
                Letter::Cancel { requester, process_id, key } => {
                    self.cancel_here(*requester, process_id, &key);
                }
                Letter::Vacate(vacate) => self.vacate_here(vacate),
                Letter::KeysDerived(server) => self.keys_derived(server),
                Letter::Learn(lore) => self.learn(lore),
                Letter::Stop(until) => self.stop(until),
            }
        }
    }

    /// Somebody has come, and is served by the thread that has the fewest clients.
    pub(super) fn newcomer(&mut self, channel: Channel, peer: Peer) {
        // Some more than may log in are let in to be told so; beyond that, those who only come and say nothing would
        // take the files that others need.
        if self.commons.clients() >= self.limits.clients.saturating_mul(2) {
            return;
        }
        let thread = self.commons.seat();
        if thread == self.commons.thread {
            return self.let_in(channel, peer);
        }
        if let Some(Letter::Newcomer(channel, peer)) =
            self.commons.send(thread, Letter::Newcomer(Box::new(channel), peer))
        {
            self.commons.leave(thread);
            self.commons.seat_at(self.commons.thread);
            self.let_in(*channel, peer);
        }
    }

    /// One has come by another thread, which may have learnt already what this one has not.
    fn newcomer_from_elsewhere(&mut self, channel: Box<Channel>, peer: Peer) {
        if self.dialect.unknown().is_none() || self.drain.is_some() {
            return self.let_in(*channel, peer);
        }
        self.early.push((channel, peer));
        // Who has to learn asks soon enough itself, if nobody tells.
        self.accept_again = true;
    }

    /// Lets those in who were here too early.
    pub(super) fn let_in_early(&mut self) {
        for (channel, peer) in std::mem::take(&mut self.early) {
            self.let_in(*channel, peer);
        }
    }

    fn let_in(&mut self, channel: Channel, peer: Peer) {
        let Some(id) = self.admit(channel, peer) else { return };
        if self.drain.is_some() {
            return self.refuse(id, &super::ticks::stopping());
        }
        if D::FIRST_WORD == FirstWord::Proxy {
            self.speak_first(id);
        }
    }

    /// Does what the pool has said for those that wait; [`Asked::Take`] is not for here.
    pub(super) fn open_as(&mut self, key: &D::Key, mut asked: Asked<Id>) {
        let own = self.commons.thread;
        loop {
            match asked {
                Asked::Open => return self.open_server(key),
                Asked::Fetch(server) | Asked::Steal(server) if server.thread() == own => {
                    return self.give_back_again(server);
                }
                Asked::Fetch(server) | Asked::Steal(server) => {
                    // Its thread has closed what it had, if it has ended.
                    let _ = self.commons.send(server.thread(), Letter::GiveBack(server));
                    return;
                }
                Asked::Evict(server) if server.thread() == own => {
                    self.evict(server, key);
                    asked = self.pool.with(|pool| pool.refill(key, own));
                }
                Asked::Evict(server) => {
                    let letter = Letter::Evict(server, key.clone());
                    if self.commons.send(server.thread(), letter).is_some() {
                        self.pool.with(|pool| pool.evicted(key));
                    }
                    return;
                }
                Asked::Take(_) | Asked::Wait => return,
            }
        }
    }

    /// Opens connections as long as clients wait for some and there may be more.
    pub(super) fn relieve(&mut self) {
        let own = self.commons.thread;
        loop {
            let (key, asked) = match self.pool.with(|pool| {
                let key = pool.in_want()?;
                let asked = pool.refill(&key, own);
                Some((key, asked))
            }) {
                None | Some((_, Asked::Take(_) | Asked::Wait)) => return,
                Some(found) => found,
            };
            self.open_as(&key, asked);
        }
    }

    /// A connection is to be given to whoever waits, as the pool has said.
    fn give_back_again(&mut self, id: Id) {
        let Some(server) = self.servers.get(id) else { return };
        // It may have been given back since, or be on its way there.
        if !self.pool.look(|pool| pool.is_coming(&server.key, id)) {
            return;
        }
        let ServerStage::Up(backend) = &server.stage else { return };
        match backend.duty {
            Duty::Idle { .. } => self.hand_over(id),
            Duty::Kept { .. } => self.steal(id),
            Duty::Session { .. } | Duty::Awaiting { .. } | Duty::Resetting { .. } => {}
        }
    }

    /// Closes a connection that nobody needs for clients of another key, unless it is closed already.
    fn evict(&mut self, id: Id, key: &D::Key) {
        if self.servers.get(id).is_some() {
            self.close_server(id, "makes room for another database");
        }
        self.pool.with(|pool| pool.evicted(key));
        self.wanting = true;
    }

    /// A connection that awaits commands goes to the thread of the client that it is for.
    pub(super) fn send_server(&mut self, id: Id, client: Id) {
        let Some(mut server) = self.servers.remove(id) else { return };
        if let ServerStage::Up(backend) = &mut server.stage
            && let Err(error) = self.reactor.deregister(&mut backend.channel)
        {
            return self.cannot_move(&server, id, client, &error);
        }
        if let Some(Letter::Take(server, _)) =
            self.commons.send(client.thread(), Letter::Take(Box::new(server), client))
        {
            // With its last client its thread has ended.
            let id = self.servers.insert(*server);
            self.close_server(id, "the proxy is stopping");
        }
    }

    fn cannot_move(&mut self, server: &Server<D>, id: Id, client: Id, error: &ciphertoll_net::Error) {
        self.log.event(Level::Warn, "server-lost", &[("server_connection", &id.index), ("reason", error)]);
        self.ops.metrics.lost();
        self.pool.with(|pool| {
            pool.wait_first(&server.key, client, self.began);
            pool.closed(&server.key, Some(id));
        });
        self.wanting = true;
    }

    /// A connection comes from another thread, for this client, if that is still there.
    fn take(&mut self, server: Server<D>, client: Id) {
        let id = self.servers.insert(server);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get_mut(id) else { return };
        let registered = self.reactor.register_reading(&mut backend.channel, key_of(Kind::Server, id.index));
        backend.flow.watched = false;
        let unread = backend.flow.unread || backend.flow.ended || !backend.channel.input().is_empty();
        if let Err(error) = registered {
            if let Some(Client { stage: ClientStage::Queued { key, .. }, since, .. }) =
                self.clients.get(client)
            {
                self.pool.with(|pool| pool.wait_first(key, client, *since));
            }
            return self.server_lost(id, Some(&error));
        }
        if unread {
            self.again.push(Turn::Down(id));
        }
        self.log.event(
            Level::Debug,
            "server-moved",
            &[("server_connection", &id.index), ("thread", &self.commons.thread)],
        );
        self.ops.metrics.moves.up();
        self.attach(client, id);
    }

    /// Tells a client why it cannot have what it waited for, which thread ever has it.
    pub(super) fn refuse_anywhere(&mut self, client: Id, refusal: Refusal) {
        if client.thread() == self.commons.thread {
            return self.refuse(client, &refusal);
        }
        // Clients of a thread that has ended have left.
        let _ = self.commons.send(client.thread(), Letter::NotOpened(client, refusal));
    }

    /// No connection could be opened for a client that waited.
    fn refuse_waiting(&mut self, id: Id, refusal: &Refusal) {
        if self.clients.get(id).is_some_and(|client| matches!(client.stage, ClientStage::Queued { .. })) {
            self.refuse(id, refusal);
        }
    }

    /// Who wants the command of another thread's client to end goes there.
    pub(super) fn cancel_elsewhere(&mut self, requester: Id, thread: usize, process_id: u32, key: &[u8]) {
        let Some(Client { mut channel, .. }) = self.clients.remove(requester) else { return };
        if self.reactor.deregister(&mut channel).is_ok() {
            self.commons.seat_at(thread);
            let requester = Box::new(channel);
            let letter = Letter::Cancel { requester, process_id, key: key.to_vec() };
            if self.commons.send(thread, letter).is_some() {
                self.commons.leave(thread);
                self.ops.metrics.cancels_dropped.up();
            }
        }
        self.one_less();
    }

    fn cancel_here(&mut self, channel: Channel, process_id: u32, key: &[u8]) {
        let requester = self.clients.insert(Client {
            channel,
            stage: ClientStage::Cancelling,
            since: self.now,
            flow: Flow::default(),
            ticket: None,
            home: None,
        });
        let Some(client) = self.clients.get_mut(requester) else { return };
        let watched =
            self.reactor.register_reading(&mut client.channel, key_of(Kind::Client, requester.index));
        if watched.is_err() {
            return self.client_gone(requester, "cannot be watched");
        }
        self.cancel_wanted(requester, process_id, key);
    }

    /// All other threads know what a connection has taught this one.
    pub(super) fn teach(&self, key: &D::Key) {
        if self.commons.threads() > 1
            && let Some(lore) = self.dialect.lore(key)
        {
            self.commons.tell(|| Letter::Learn(lore.clone()));
        }
    }

    fn learn(&mut self, lore: D::Lore) {
        self.dialect.learn(lore);
        if self.dialect.unknown().is_some() {
            // What it does not know any more nobody will tell: it has to be found out anew.
            self.commons.outlook.with(|outlook| {
                if outlook.introduction == Introduction::Done {
                    outlook.introduction = Introduction::None;
                }
            });
        }
        // Some may have waited at the door for that.
        self.again.push(Turn::Accept);
    }

    /// Stops taking clients, and lets those go that there are, until it is time to end the others.
    pub(super) fn stop(&mut self, until: Instant) {
        let cut_off = self.drain.as_ref().map_or(0, |drain| drain.cut_off);
        self.drain = Some(Drain { until, cut_off });
        self.listeners.clear();
        self.let_in_early();
        self.refuse_newcomers();
        self.tick();
        self.cut_off();
        // Nobody may have been here, so that nobody's leaving tells others.
        if self.commons.clients() == 0 {
            self.commons.ring();
        }
    }
}
