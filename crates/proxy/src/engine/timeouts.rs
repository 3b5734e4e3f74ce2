//! Timeouts, checked a few times per second, which is precise enough for all of them.

use ciphertoll_net::Error;

use super::park::KEEP_TIME;
use super::{Activity, Backend, ClientConnection, ClientStage, ServerStage, Worker};
use crate::protocol::{PendingKill, Pooling, Protocol, ProtocolRequest, ProtocolSession};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn tick(&mut self) {
        for id in self.clients.ids() {
            self.tick_client(id);
        }
        for id in self.servers.ids() {
            self.tick_server(id);
        }
        for id in self.cancels.ids() {
            if self.cancels.get(id).is_some_and(|cancel| self.now >= cancel.until) {
                self.discard_target(id);
                self.cancel_done(id);
            }
        }
        self.maintain();
        if std::mem::take(&mut self.retry_accept) {
            self.accept();
        }
    }

    fn tick_client(&mut self, id: Id) {
        self.apply_pending_kill(id);
        let Some(client) = self.clients.get(id) else { return };
        let waited = self.now.duration_since(client.since);
        match client.stage {
            ClientStage::Handshake(_) | ClientStage::TlsHandshake(_) if waited >= self.limits.login => {
                self.close_client(id, "did not log in in time");
            }
            ClientStage::Queued { .. } if waited >= self.limits.queue => {
                let seconds = self.limits.queue.as_secs_f64();
                let message = format!("no server connection became free within {seconds} s");
                self.refuse(id, &Refusal::new(Refusal::FULL, message));
            }
            ClientStage::Cancelling if waited >= self.limits.reset => {
                self.close_client(id, "its cancel request took too long");
            }
            ClientStage::Flushing if waited >= self.limits.reset => {
                self.close_client(id, "did not read the last message in time");
            }
            _ => {}
        }
    }

    /// Carries out a `KILL` by another client, for a client that has no connection.
    fn apply_pending_kill(&mut self, id: Id) {
        let order = match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Queued { request, .. } | ClientStage::Parked { request, .. }) => {
                request.pending_kill()
            }
            _ => PendingKill::None,
        };
        match order {
            PendingKill::None => {}
            PendingKill::Query => drop(self.cancel_queued(id)),
            PendingKill::Connection => {
                let message = "another client has killed this connection";
                self.refuse(id, &Refusal::new(Refusal::STOPPING, message));
            }
        }
    }

    fn tick_server(&mut self, id: Id) {
        let Some(server) = self.servers.get(id) else { return };
        let backend = match &server.stage {
            ServerStage::Connecting { until, .. } if self.now >= *until => {
                let (key, seconds) = (server.key.clone(), self.limits.connect.as_secs());
                return self.connect_failed(&key, Some(id), &Error::TimedOut { seconds });
            }
            ServerStage::Connecting { .. } => return,
            ServerStage::Open(backend) => backend,
        };
        let reason = match &backend.activity {
            Activity::Idle { .. } if self.drain.is_some() && self.pooling == Pooling::Session => {
                "the proxy is stopping"
            }
            Activity::Idle { since, .. }
                if self.now.duration_since(*since) >= self.limits.idle && !self.is_kept_warm(&server.key) =>
            {
                "it was idle for too long"
            }
            Activity::Kept { since, client, .. }
                if self.now.duration_since(*since) >= KEEP_TIME || self.clients.get(*client).is_none() =>
            {
                // Reset before a client needs it.
                if self.take_kept(id) {
                    self.reset_kept(id);
                }
                return;
            }
            Activity::Resetting { until, .. } if self.now >= *until => server.upkeep.timeout_reason(),
            Activity::AwaitingCancel { until, .. } if self.now >= *until => {
                "a request to cancel is still on its way"
            }
            _ => return,
        };
        self.close_server(id, reason);
    }

    pub(super) fn refuse_new_clients(&mut self) {
        for id in self.clients.ids() {
            let is_new = |client: &ClientConnection<P>| match client.stage {
                ClientStage::Handshake(_) | ClientStage::TlsHandshake(_) => true,
                ClientStage::Queued { .. } => client.cancel_token.is_none(),
                _ => false,
            };
            if self.clients.get(id).is_some_and(is_new) {
                self.refuse(id, &Refusal::stopping());
            }
        }
    }

    /// Disconnects all clients when the time for draining is over.
    pub(super) fn cut_off_clients(&mut self) {
        let Some(drain) = &self.drain else { return };
        if self.now < drain.until {
            return;
        }
        let mut count = 0;
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            match client.stage {
                ClientStage::Active(_) => {
                    count += 1;
                    self.end_session(id);
                }
                // Its command has not run.
                ClientStage::Queued { .. } => {
                    count += 1;
                    self.refuse(id, &Refusal::stopping());
                    self.close_client(id, "was cut off");
                }
                ClientStage::Parked { .. } => {
                    self.refuse(id, &Refusal::stopping());
                    self.close_client(id, "was between transactions");
                }
                _ => self.close_client(id, "was cut off"),
            }
        }
        if let Some(drain) = &mut self.drain {
            drain.cut_off += count;
        }
    }

    /// Within a response, the client would take an error message for a part of it.
    fn end_session(&mut self, id: Id) {
        let Some(client) = self.clients.get(id) else { return };
        let ClientStage::Active(server) = client.stage else { return };
        let session = self.servers.open(server).and_then(Backend::session);
        if session.is_some_and(ProtocolSession::can_send_error) {
            self.refuse(id, &Refusal::stopping());
        }
        // Output that the client has not read by now is lost.
        self.close_client(id, "was cut off");
    }
}
