//! What workers send each other, and server connections that move between them.

use std::time::Instant;

use ciphertoll_net::{Channel, Connecting, Error, Peer, WatchedEvents};
use ciphertoll_wire::relay::Vacate;

use super::agenda::DeferredWork;
use super::backend::{Activity, ServerConnection, ServerStage};
use super::client::{Client, ClientOrigin, ClientStage};
use super::control_request::HandedOver;
use super::environment::Drain;
use super::exclusive::matches_database;
use super::flow::TokenKind;
use super::mailbox::WorkerMessage;
use super::shared_state::Discovery;
use super::worker::Worker;
use crate::log::Level;
use crate::pool::{PoolAction, WorkerBound};
use crate::protocol::{PoolKey, Protocol, ProtocolHandshake};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn read_messages(&mut self) {
        let Some(mailbox) = self.shared.mailboxes.get(self.shared.thread) else { return };
        for message in mailbox.take_all() {
            match message {
                WorkerMessage::Control(request) => self.answer(request),
                WorkerMessage::NewClient(channel, peer) => self.accept_handed_over(channel, peer),
                WorkerMessage::ReleaseReserved(server) => self.release_reserved(server),
                WorkerMessage::Evict(server, key) => self.evict(server, &key),
                WorkerMessage::TakeServer(server, client) => self.take_server(*server, client),
                WorkerMessage::ConnectFailed(client, refusal) => self.refuse_waiting(client, &refusal),
                WorkerMessage::Cancel { requester, process_id, key } => {
                    self.accept_cancel(*requester, process_id, &key);
                }
                WorkerMessage::CloseUnused(vacate) => self.close_unused(vacate),
                WorkerMessage::HostsChanged => self.hosts_changed(),
                WorkerMessage::KeysDerived(server) => self.continue_connect(server, Connecting::resume),
                WorkerMessage::LookedUp(client, outcome) => self.looked_up(client, outcome),
                WorkerMessage::Learn(learned) => self.learn(learned),
                WorkerMessage::Stop(until) => self.stop(until),
            }
        }
    }

    /// Assigns a new client to the worker with the fewest clients.
    pub(super) fn accept_client(&mut self, channel: Channel, peer: Peer) {
        // Clients above the limit are accepted in order to send them an error message. Above twice the limit
        // they are not: connections that never log in must not use up the file descriptors.
        if self.shared.clients() >= self.env.limits.clients.saturating_mul(2) {
            return;
        }
        let thread = self.shared.assign_client();
        if thread == self.shared.thread {
            return self.start_client(channel, peer);
        }
        if let Some(WorkerMessage::NewClient(channel, peer)) =
            self.shared.send(thread, WorkerMessage::NewClient(Box::new(channel), peer))
        {
            self.shared.uncount_client(thread);
            self.shared.count_client(self.shared.thread);
            self.start_client(*channel, peer);
        }
    }

    /// Another worker has accepted this client, and may know the server's greeting, which this one does not.
    fn accept_handed_over(&mut self, channel: Box<Channel>, peer: Peer) {
        if self.env.protocol.discovery_key().is_none() || self.env.drain.is_some() {
            return self.start_client(*channel, peer);
        }
        // If no other worker tells the greeting, this one asks for it at the next tick.
        self.acceptor.add_early(channel, peer);
    }

    /// Starts the handshake of a client, which is counted already.
    pub(super) fn start_client(&mut self, channel: Channel, peer: Peer) {
        let id = self.add_client(channel, peer);
        if self.env.drain.is_some() {
            self.refuse(id, &Refusal::stopping());
        } else if P::SENDS_FIRST {
            self.update_client(id, Client::greet_first);
        } else {
            // Most clients have sent their first message before they are accepted.
            self.update_client(id, Client::step_handshake);
        }
        self.register_client(id);
    }

    fn add_client(&mut self, channel: Channel, peer: Peer) -> Id {
        let auth = self.env.access.auth_for(peer);
        let mut handshake = self.env.protocol.handshake(auth);
        if let Some(rules) = &self.env.access.console
            && rules.trusts(peer)
        {
            handshake.trust_console();
        }
        let stage = ClientStage::Handshake(handshake);
        self.env.metrics().clients.increment();
        let origin = self.origin(Some(peer));
        self.clients.insert(Client::new(channel, stage, origin))
    }

    pub(super) fn origin(&mut self, peer: Option<Peer>) -> ClientOrigin {
        ClientOrigin { number: self.next_number(), peer, connected: self.env.now }
    }

    /// Watches a client for input, if it is still there. What has arrived already is reported, too.
    pub(super) fn register_client(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let registered =
            self.env.register(&mut client.channel, TokenKind::Client, id.index, WatchedEvents::Reading);
        if let Err(error) = registered {
            self.accept_failed(&error);
            self.close_client(id, "cannot be watched");
        }
    }

    /// Whether clients can be greeted. If not, a connection is opened to learn the server's greeting.
    pub(super) fn is_server_known(&mut self) -> bool {
        let Some(key) = self.env.protocol.discovery_key() else { return true };
        if self.env.operations.is_paused(key.database()) {
            return false;
        }
        if self.shared.replace_discovery(Discovery::NotStarted, Discovery::Running) {
            self.pool.with(|pool| pool.open_unconditionally(&key));
            self.open_server(&key);
        }
        false
    }

    /// Sends an error message to the clients that wait for the server's greeting.
    pub(super) fn refuse_early_clients(&mut self, refusal: &Refusal) {
        let mut clients = self.acceptor.accept_waiting();
        for _ in &clients {
            self.shared.count_client(self.shared.thread);
        }
        clients.append(&mut self.acceptor.take_early());
        for (channel, peer) in clients {
            let id = self.add_client(*channel, peer);
            self.refuse(id, refusal);
            self.register_client(id);
        }
    }

    /// Carries out an action of the pool for clients that wait.
    pub(super) fn apply_action(&mut self, key: &P::Key, mut action: PoolAction<Id>) {
        let own = self.shared.thread;
        loop {
            match action {
                PoolAction::Open => return self.open_server(key),
                PoolAction::Release(server) if server.thread() == own => {
                    return self.release_reserved(server);
                }
                PoolAction::Release(server) => {
                    // If its worker has ended, it has closed the connection.
                    let _ = self.shared.send(server.thread(), WorkerMessage::ReleaseReserved(server));
                    return;
                }
                PoolAction::Evict(server) if server.thread() == own => {
                    self.evict(server, key);
                    action = self.pool.with(|pool| pool.next_action(key, own));
                }
                PoolAction::Evict(server) => {
                    let message = WorkerMessage::Evict(server, key.clone());
                    if self.shared.send(server.thread(), message).is_some() {
                        self.pool.with(|pool| pool.eviction_done(key));
                    }
                    return;
                }
                PoolAction::Yield => {
                    self.agenda.check_unserved = true;
                    return;
                }
                // Only a client that has just come takes a connection at once.
                PoolAction::Take(_) | PoolAction::TakeUnreset(_) | PoolAction::Wait => return,
            }
        }
    }

    /// Opens or frees connections while clients are unserved and the limit allows it.
    pub(super) fn serve_waiting(&mut self) {
        let own = self.shared.thread;
        loop {
            let (key, action) = match self.pool.with(|pool| {
                let key = pool.unserved_key()?;
                let action = pool.next_action(&key, own);
                Some((key, action))
            }) {
                None | Some((_, PoolAction::Wait | PoolAction::Yield)) => return,
                Some(found) => found,
            };
            self.apply_action(&key, action);
        }
    }

    fn release_reserved(&mut self, id: Id) {
        let Some(server) = self.servers.get(id) else { return };
        // It may have been released since, or be resetting for that.
        if !self.pool.read(|pool| pool.is_reserved(&server.key, id)) {
            return;
        }
        match self.servers.open(id).map(|backend| &backend.activity) {
            Some(Activity::Idle { .. }) => self.return_to_pool(id),
            Some(Activity::Kept { .. }) => {
                self.env.metrics().steals.increment();
                self.reassign_kept(id);
            }
            _ => {}
        }
    }

    /// Closes a connection to make room for one of another key, unless it is closed already.
    fn evict(&mut self, id: Id, key: &P::Key) {
        if self.servers.get(id).is_some() {
            self.close_server(id, "makes room for another database");
        }
        self.pool.with(|pool| pool.eviction_done(key));
        self.agenda.check_unserved = true;
    }

    /// Sends an idle connection to this client's worker.
    pub(super) fn send_server(&mut self, id: Id, client: Id) {
        let Some(mut server) = self.servers.remove(id) else { return };
        self.move_usage(&mut server);
        if let ServerStage::Open(backend) = &mut server.stage
            && let Err(error) = self.env.reactor.deregister(&mut backend.channel)
        {
            self.env.log.event(
                Level::Warn,
                "server-lost",
                &[("server_connection", &id.index), ("reason", &error)],
            );
            self.env.metrics().closed.increment("lost");
            self.pool.with(|pool| {
                pool.requeue_first(&server.key, client, self.env.services.began);
                pool.closed(&server.key, Some(id));
            });
            self.agenda.check_unserved = true;
            return;
        }
        if let Some(WorkerMessage::TakeServer(server, _)) =
            self.shared.send(client.thread(), WorkerMessage::TakeServer(Box::new(server), client))
        {
            // That worker has ended together with its last client.
            let id = self.servers.insert(*server);
            self.close_server(id, "the proxy is stopping");
        }
    }

    /// Takes a connection from another worker: for this client if it still waits, otherwise for any client.
    fn take_server(&mut self, server: ServerConnection<P>, client: Id) {
        let id = self.servers.insert(server);
        if let Err(error) = self.watch_moved_server(id) {
            if let Some(Client { stage: ClientStage::Queued { key, .. }, since, .. }) =
                self.clients.get(client)
            {
                self.pool.with(|pool| pool.requeue_first(key, client, *since));
            }
            return self.server_lost(id, Some(&error));
        }
        self.env.log.event(
            Level::Debug,
            "server-moved",
            &[("server_connection", &id.index), ("thread", &self.shared.thread)],
        );
        self.env.metrics().moves.increment();
        self.assign(client, id);
    }

    /// Watches a connection of another worker. What it has received already is processed.
    fn watch_moved_server(&mut self, id: Id) -> Result<(), Error> {
        let Some(backend) = self.servers.open_mut(id) else { return Ok(()) };
        let events = WatchedEvents::Reading;
        self.env.register(&mut backend.channel, TokenKind::Server, id.index, events)?;
        backend.flow.watched = false;
        backend.watch(id, &self.env)?;
        if backend.flow.has_more() || !backend.channel.input().is_empty() {
            self.agenda.defer(DeferredWork::Server(id));
        }
        Ok(())
    }

    pub(super) fn refuse_anywhere(&mut self, client: Id, refusal: Refusal) {
        if client.thread() == self.shared.thread {
            return self.refuse(client, &refusal);
        }
        // A worker that has ended has no clients.
        let _ = self.shared.send(client.thread(), WorkerMessage::ConnectFailed(client, refusal));
    }

    /// No connection could be opened for a client that waited.
    fn refuse_waiting(&mut self, id: Id, refusal: &Refusal) {
        if self.clients.get(id).is_some_and(Client::is_queued) {
            self.refuse(id, refusal);
        }
    }

    /// Closes the connections that no client uses, for a command that needs exclusive access to a database.
    pub(super) fn close_unused(&mut self, target: Vacate) {
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id) else { continue };
            if matches_database(&target, server.key.database()) && self.take_unused(id) {
                self.close_for_exclusive(id);
            }
        }
        self.exclusive.add(target, self.env.now);
    }

    fn take_unused(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        match self.servers.open(id).map(|backend| &backend.activity) {
            Some(Activity::Idle { .. }) => self.pool.with(|pool| pool.take_idle(&server.key, id)),
            Some(Activity::Kept { .. }) => self.take_kept(id),
            _ => false,
        }
    }

    pub(super) fn share_learned(&self, key: &P::Key) {
        if self.shared.threads() > 1
            && let Some(learned) = self.env.protocol.learned(key)
        {
            self.shared.broadcast(|| WorkerMessage::Learn(learned.clone()));
        }
    }

    fn learn(&mut self, learned: P::Learned) {
        self.env.protocol.learn(learned);
        if self.env.protocol.discovery_key().is_some() {
            // This worker has forgotten the greeting and will not be told it again: it must be learned anew.
            self.shared.replace_discovery(Discovery::Done, Discovery::NotStarted);
        }
        // Clients may be waiting for the greeting.
        self.resume_accepting();
    }

    /// Stops accepting clients, because another process does. Everything else goes on.
    pub(super) fn hand_over(&mut self) -> HandedOver {
        if self.env.is_ending() {
            return HandedOver::IsStopping;
        }
        self.env.is_handed_over = true;
        self.acceptor.hand_over(&self.env.reactor);
        for (channel, peer) in self.acceptor.take_early() {
            self.start_client(*channel, peer);
        }
        // If there are no clients, no disconnect will wake the other workers.
        if self.shared.clients() == 0 {
            self.shared.wake_all();
        }
        HandedOver::Done
    }

    /// Stops accepting clients, and drains connected ones until `until`.
    pub(super) fn stop(&mut self, until: Instant) {
        let cut_off = self.env.drain.as_ref().map_or(0, |drain| drain.cut_off);
        self.env.drain = Some(Drain { until, cut_off });
        self.acceptor.stop(&self.env.reactor);
        for (channel, peer) in self.acceptor.take_early() {
            self.start_client(*channel, peer);
        }
        self.refuse_new_clients();
        self.tick();
        self.cut_off_clients();
        // If there are no clients, no disconnect will wake the other workers.
        if self.shared.clients() == 0 {
            self.shared.wake_all();
        }
    }
}
