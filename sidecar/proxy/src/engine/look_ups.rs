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
        let (mailboxes, thread) = (Arc::clone(&self.shared.mailboxes), self.shared.thread);
        look_up.start(Box::new(move |outcome| {
            // A worker that has ended has no clients.
            if let Some(mailbox) = mailboxes.get(thread) {
                let _ = mailbox.send(WorkerMessage::LookedUp(client, outcome));
            }
        }));
    }

    pub(super) fn looked_up(&mut self, client: Id, outcome: &'static str) {
        self.env.metrics().auth_queries.increment(outcome);
        self.update_client(client, Client::step_handshake);
    }
}
