//! Moves clients to workers that have fewer, and away from workers that no longer serve clients. A client takes its
//! connection along, within a transaction or not, so it notices nothing.

use ciphertoll_net::Error;

use super::backend::{Activity, Backend, ServerConnection, ServerStage};
use super::client::{Client, ClientStage};
use super::mailbox::{MovedClient, WorkerMessage};
use super::worker::Worker;
use crate::log::Level;
use crate::protocol::Protocol;
use crate::slab::Id;

/// At most so many clients of a worker move at once, so that the others need not wait long.
const MOVES: usize = 256;

impl<P: Protocol> Worker<P> {
    /// Sends clients to workers that have fewer.
    pub(super) fn balance_clients(&mut self) {
        let surplus = self.shared.surplus().min(MOVES);
        if surplus == 0 || self.env.is_ending() {
            return;
        }
        let ids: Vec<Id> = self.clients.ids().into_iter().filter(|id| self.can_move(*id)).collect();
        // Clients that came together are often alike: each of the workers gets some of them.
        let step = (ids.len() / surplus).max(1);
        for id in ids.into_iter().step_by(step).take(surplus) {
            let Some(thread) = self.shared.worker_with_fewer() else { return };
            self.move_client(id, thread);
        }
    }

    /// A client moves if it is logged in, does not wait for a connection, and no cancel request is on its way for it.
    fn can_move(&self, id: Id) -> bool {
        let Some(Client { stage, cancel_token: Some(_), .. }) = self.clients.get(id) else { return false };
        let is_served = matches!(stage, ClientStage::Active(_) | ClientStage::Parked { .. });
        let server = self.server_of(id).and_then(|server| self.servers.get(server));
        is_served && server.is_none_or(|server| server.cancels == 0)
    }

    /// The connection that a client uses, or that is kept for it.
    fn server_of(&self, id: Id) -> Option<Id> {
        let client = self.clients.get(id)?;
        match client.stage {
            ClientStage::Active(server) => Some(server),
            ClientStage::Parked { .. } => {
                let is_kept =
                    |server: &Id| self.servers.open(*server).is_some_and(|server| server.is_kept_for(id));
                client.last_server.filter(is_kept)
            }
            _ => None,
        }
    }

    fn move_client(&mut self, id: Id, thread: usize) {
        let Some(Client { stage, cancel_token: Some(token), .. }) = self.clients.get(id) else { return };
        let (token, is_parked) = (*token, matches!(stage, ClientStage::Parked { .. }));
        // A kept connection that another worker has reserved goes there without its client.
        let server = self.server_of(id).filter(|server| !is_parked || self.take_kept(*server));
        if let Err(error) = self.unwatch(id, server) {
            if let Some(server) = server {
                self.server_lost(server, Some(&error));
            }
            return self.close_client(id, "cannot be moved to another thread");
        }
        let Some(client) = self.clients.remove(id) else { return };
        let server = server.and_then(|server| self.servers.remove(server));
        let message = WorkerMessage::TakeClient(Box::new(MovedClient { client, was: id.index, server }));
        self.shared.count_client(thread);
        self.shared.uncount_client(self.shared.thread);
        let shared = &self.shared;
        if let Some(WorkerMessage::TakeClient(moved)) =
            self.tokens.hand_over(token, thread, || shared.send(thread, message))
        {
            // That worker has ended: all will.
            self.shared.count_client(self.shared.thread);
            self.shared.uncount_client(thread);
            self.take_client(*moved);
        }
    }

    fn unwatch(&mut self, client: Id, server: Option<Id>) -> Result<(), Error> {
        if let Some(client) = self.clients.get_mut(client) {
            self.env.reactor.deregister(&mut client.channel)?;
        }
        match server.and_then(|server| self.servers.open_mut(server)) {
            Some(backend) => self.env.reactor.deregister(&mut backend.channel),
            None => Ok(()),
        }
    }

    /// Serves a client that was on another worker.
    pub(super) fn take_client(&mut self, moved: MovedClient<P>) {
        let MovedClient { mut client, was, server } = moved;
        client.flow.watched = false;
        let token = client.cancel_token;
        let id = self.clients.insert(client);
        if let Some(token) = token {
            self.tokens.insert(token, id);
        }
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &id.index), ("was", &was), ("thread", &self.shared.thread)];
        self.env.log.event(Level::Debug, "client-moved", &fields);
        self.env.metrics().client_moves.increment();
        if let Some(server) = server {
            self.take_server_of(id, server);
        }
        self.register_client(id);
        self.watch_client(id);
        self.schedule_unread(id);
    }

    fn take_server_of(&mut self, client_id: Id, server: ServerConnection<P>) {
        let id = self.servers.insert(server);
        if let Some(client) = self.clients.get_mut(client_id) {
            client.last_server = Some(id);
            if let ClientStage::Active(active) = &mut client.stage {
                *active = id;
            }
        }
        if let Some(backend) = self.servers.open_mut(id)
            && let Activity::Session { client, .. } | Activity::Kept { client, .. } = &mut backend.activity
        {
            *client = client_id;
        }
        if let Err(error) = self.watch_moved_server(id) {
            return self.server_lost(id, Some(&error));
        }
        if let Some(ServerConnection { key, stage: ServerStage::Open(backend), .. }) = self.servers.get(id)
            && let Some(context) = Backend::kept_context(backend)
        {
            let key = key.clone();
            self.offer_kept(id, &key, context);
        }
    }
}
