//! Clients and server connections that move between workers, and the messages that move them.

use std::time::Instant;

use ciphertoll_net::{Channel, Peer, WatchedEvents};

use super::mailbox::WorkerMessage;
use super::{
    Activity, ClientConnection, ClientStage, DeferredWork, Discovery, Drain, ServerConnection, ServerStage,
    TokenKind, Worker, token_of,
};
use crate::log::Level;
use crate::pool::{PoolAction, WorkerBound};
use crate::protocol::Protocol;
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn read_messages(&mut self) {
        let Some(mailbox) = self.shared.mailboxes.get(self.shared.thread) else { return };
        for message in mailbox.take_all() {
            match message {
                WorkerMessage::Control(request) => request(self),
                WorkerMessage::NewClient(channel, peer) => self.accept_handed_over(channel, peer),
                WorkerMessage::ReleaseReserved(server) => self.release_reserved(server),
                WorkerMessage::Evict(server, key) => self.evict(server, &key),
                WorkerMessage::TakeServer(server, client) => self.take_server(*server, client),
                WorkerMessage::ConnectFailed(client, refusal) => self.refuse_waiting(client, &refusal),
                WorkerMessage::Cancel { requester, process_id, key } => {
                    self.accept_cancel(*requester, process_id, &key);
                }
                WorkerMessage::CloseUnused(vacate) => self.close_unused(vacate),
                WorkerMessage::KeysDerived(server) => self.keys_derived(server),
                WorkerMessage::Learn(learned) => self.learn(learned),
                WorkerMessage::Stop(until) => self.stop(until),
            }
        }
    }

    /// Assigns a new client to the worker with the fewest clients.
    pub(super) fn accept_client(&mut self, channel: Channel, peer: Peer) {
        // Clients above the limit are accepted in order to send them an error message. Above twice the limit
        // they are not: connections that never log in must not use up the file descriptors.
        if self.shared.clients() >= self.limits.clients.saturating_mul(2) {
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
        if self.protocol.discovery_key().is_none() || self.drain.is_some() {
            return self.start_client(*channel, peer);
        }
        self.early_clients.push((channel, peer));
        // If no other worker tells the greeting, this one asks for it.
        self.retry_accept = true;
    }

    pub(super) fn start_early_clients(&mut self) {
        for (channel, peer) in std::mem::take(&mut self.early_clients) {
            self.start_client(*channel, peer);
        }
    }

    fn start_client(&mut self, channel: Channel, peer: Peer) {
        let Some(id) = self.add_client(channel, peer) else { return };
        if self.drain.is_some() {
            return self.refuse(id, &Refusal::stopping());
        }
        if P::SENDS_FIRST {
            self.send_greeting(id);
        }
    }

    /// Carries out an action of the pool for clients that wait. [`PoolAction::Take`] is not expected here.
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
                PoolAction::Take(_) | PoolAction::Wait => return,
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
                None | Some((_, PoolAction::Take(_) | PoolAction::Wait)) => return,
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
            Some(Activity::Kept { .. }) => self.reassign_kept(id),
            _ => {}
        }
    }

    /// Closes a connection to make room for one of another key, unless it is closed already.
    fn evict(&mut self, id: Id, key: &P::Key) {
        if self.servers.get(id).is_some() {
            self.close_server(id, "makes room for another database");
        }
        self.pool.with(|pool| pool.eviction_done(key));
        self.check_unserved = true;
    }

    /// Sends an idle connection to the worker of the client that it is for.
    pub(super) fn send_server(&mut self, id: Id, client: Id) {
        let Some(mut server) = self.servers.remove(id) else { return };
        if let ServerStage::Open(backend) = &mut server.stage
            && let Err(error) = self.reactor.deregister(&mut backend.channel)
        {
            self.log.event(
                Level::Warn,
                "server-lost",
                &[("server_connection", &id.index), ("reason", &error)],
            );
            self.services.metrics.closed.increment("lost");
            self.pool.with(|pool| {
                pool.requeue_first(&server.key, client, self.services.began);
                pool.closed(&server.key, Some(id));
            });
            self.check_unserved = true;
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

    /// Takes a connection from another worker, for this client if it still waits.
    fn take_server(&mut self, server: ServerConnection<P>, client: Id) {
        let id = self.servers.insert(server);
        let Some(backend) = self.servers.open_mut(id) else { return };
        let token = token_of(TokenKind::Server, id.index);
        let registered = self.reactor.register(&mut backend.channel, token, WatchedEvents::Reading);
        backend.flow.watched = false;
        let unread = backend.flow.unread || backend.flow.ended || !backend.channel.input().is_empty();
        if let Err(error) = registered {
            if let Some(ClientConnection { stage: ClientStage::Queued { key, .. }, since, .. }) =
                self.clients.get(client)
            {
                self.pool.with(|pool| pool.requeue_first(key, client, *since));
            }
            return self.server_lost(id, Some(&error));
        }
        if unread {
            self.deferred.push(DeferredWork::Server(id));
        }
        self.log.event(
            Level::Debug,
            "server-moved",
            &[("server_connection", &id.index), ("thread", &self.shared.thread)],
        );
        self.services.metrics.moves.increment();
        self.assign(client, id);
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
        if self.clients.get(id).is_some_and(|client| matches!(client.stage, ClientStage::Queued { .. })) {
            self.refuse(id, refusal);
        }
    }

    /// Hands a cancel request on to the worker of the client that it names.
    pub(super) fn forward_cancel(&mut self, requester: Id, thread: usize, process_id: u32, key: &[u8]) {
        let Some(ClientConnection { mut channel, .. }) = self.clients.remove(requester) else { return };
        if self.reactor.deregister(&mut channel).is_ok() {
            self.shared.count_client(thread);
            let requester = Box::new(channel);
            let message = WorkerMessage::Cancel { requester, process_id, key: key.to_vec() };
            if self.shared.send(thread, message).is_some() {
                self.shared.uncount_client(thread);
                self.services.metrics.cancels_dropped.increment();
            }
        }
        self.client_removed();
    }

    fn accept_cancel(&mut self, channel: Channel, process_id: u32, key: &[u8]) {
        if let Some(requester) = self.insert_client(channel, ClientStage::Cancelling) {
            self.handle_cancel(requester, process_id, key);
        }
    }

    pub(super) fn share_learned(&self, key: &P::Key) {
        if self.shared.threads() > 1
            && let Some(learned) = self.protocol.learned(key)
        {
            self.shared.broadcast(|| WorkerMessage::Learn(learned.clone()));
        }
    }

    fn learn(&mut self, learned: P::Learned) {
        self.protocol.learn(learned);
        if self.protocol.discovery_key().is_some() {
            // This worker has forgotten the greeting and will not be told it again: it must be learned anew.
            self.shared.replace_discovery(Discovery::Done, Discovery::NotStarted);
        }
        // Clients may be waiting for the greeting.
        self.deferred.push(DeferredWork::Accept);
    }

    /// Stops accepting clients, and drains connected ones until `until`.
    pub(super) fn stop(&mut self, until: Instant) {
        let cut_off = self.drain.as_ref().map_or(0, |drain| drain.cut_off);
        self.drain = Some(Drain { until, cut_off });
        self.listeners.clear();
        self.start_early_clients();
        self.refuse_new_clients();
        self.tick();
        self.cut_off_clients();
        // If there are no clients, no disconnect will wake the other workers.
        if self.shared.clients() == 0 {
            self.shared.wake_all();
        }
    }
}
