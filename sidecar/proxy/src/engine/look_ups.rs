//! Handshakes that wait for another thread.

use std::sync::Arc;

use super::client::Client;
use super::mailbox::WorkerMessage;
use super::worker::Worker;
use crate::look_up::LookUp;
use crate::protocol::Protocol;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn look_up(&mut self, client: Id, look_up: LookUp) {
        self.wait_for_look_up(client, true);
        let (mailboxes, thread) = (Arc::clone(&self.shared.mailboxes), self.shared.thread);
        look_up.start(Box::new(move |outcome| {
            // A worker that has ended has no clients.
            if let Some(mailbox) = mailboxes.get(thread) {
                let _ = mailbox.send(WorkerMessage::LookedUp(client, outcome));
            }
        }));
    }

    fn wait_for_look_up(&mut self, client: Id, is_looked_up: bool) {
        let now = self.env.now;
        if let Some(client) = self.clients.get_mut(client) {
            client.looked_up(is_looked_up, now);
        }
    }

    pub(super) fn looked_up(&mut self, client: Id, outcome: &'static str) {
        self.env.metrics().auth_queries.increment(outcome);
        self.wait_for_look_up(client, false);
        self.update_client(client, Client::step_handshake);
    }
}
