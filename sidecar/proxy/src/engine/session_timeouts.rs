//! Carries out time limits of sessions: a command is cancelled, a client is disconnected.
//!
//! A cancel request must not hit the next command. While one is on its way, the client's next command waits, and no other
//! client gets the connection.

use ciphertoll_net::Error;

use super::backend::Backend;
use super::cancel::Requester;
use super::client::{Client, ClientStage};
use super::session_timing::SessionTiming;
use super::worker::Worker;
use crate::exceeded::{Exceeded, Timeout};
use crate::log::Level;
use crate::protocol::{PoolKey, Protocol, ProtocolSession, SessionProgress};
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    /// New settings have other time limits. What was not recorded begins now.
    pub(super) fn restart_timing(&mut self, was_timed: bool) {
        let is_timed = self.env.limits.times.is_on();
        // Requests that are on their way still hold commands.
        self.env.is_timed = is_timed || was_timed && self.cancels.len() > 0;
        if is_timed && !was_timed {
            for id in self.clients.ids() {
                if let Some(client) = self.clients.get_mut(id) {
                    client.timing = SessionTiming::new(self.env.now);
                }
            }
        }
    }

    pub(super) fn check_session_times(&mut self, id: Id) {
        let Some(exceeded) = self.exceeded(id) else { return };
        let server = match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Active(server)) => Some(*server),
            _ => None,
        };
        let is_busy = self.clients.get(id).is_some_and(|client| client.timing.is_busy());
        self.log_timeout(id, exceeded);
        match (exceeded.timeout, server) {
            (Timeout::Query, Some(server)) => self.cancel_for_time(id, server, exceeded),
            (Timeout::Transaction, Some(server)) if is_busy => {
                // The server would go on with the command.
                self.request_cancel(id, server);
                self.disconnect(id, exceeded);
            }
            _ => self.disconnect(id, exceeded),
        }
    }

    fn exceeded(&mut self, id: Id) -> Option<Exceeded> {
        let client = self.clients.get_mut(id).filter(|client| client.cancel_token.is_some())?;
        let key = match &client.stage {
            ClientStage::Parked { key, .. } => {
                client.timing.record(SessionProgress::Idle, self.env.now);
                key
            }
            ClientStage::Active(server) => {
                let session = self.servers.open(*server)?.session()?;
                let progress = session.progress();
                let waits = session.awaits_settings() || client.flow.has_more();
                if waits && progress == SessionProgress::Idle {
                    // It waits for the proxy.
                    return None;
                }
                client.timing.record(progress, self.env.now);
                &self.servers.get(*server)?.key
            }
            _ => return None,
        };
        if key.is_dedicated() {
            // Such as replication: it is one command that lasts.
            return None;
        }
        client.timing.exceeded(self.env.limits.times.of(key.user()), self.env.now)
    }

    fn log_timeout(&self, id: Id, exceeded: Exceeded) {
        let (kind, setting) = (exceeded.timeout.label(), exceeded.setting());
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("client", &id.index), ("kind", &kind), ("reason", &setting)];
        self.env.log.event(Level::Info, "timeout", &fields);
        self.env.metrics().timeouts.increment(kind);
    }

    fn cancel_for_time(&mut self, id: Id, server: Id, exceeded: Exceeded) {
        let until = self.env.now + self.env.limits.reset;
        if let Some(client) = self.clients.get_mut(id) {
            client.timing.cancelled(until);
        }
        self.request_cancel(id, server);
        if let Some(step) = self.served_client(id).map(|mut served| served.announce(exceeded)) {
            self.client_step(id, step);
        }
    }

    /// If the request fails, the command goes on, and the connection is closed when the time for cancelling is over.
    fn request_cancel(&mut self, client: Id, server: Id) {
        let plan = self.servers.get(server).and_then(|connection| {
            let backend = self.servers.open(server)?;
            self.env.protocol.cancel_plan(&connection.key, &backend.state)
        });
        let Some(plan) = plan else {
            let user = self.servers.get(server).map(|server| server.key.user().to_owned());
            let reason =
                "there is none for a request to cancel, or the server has told no key for it".to_owned();
            return self.cancel_failed(&Error::NoPassword { user: user.unwrap_or_default(), reason });
        };
        match self.start_cancel(Requester::TimeLimit(client), server, plan) {
            Ok(()) => {
                if let Some(server) = self.servers.get_mut(server) {
                    server.awaits_own_cancel = true;
                }
            }
            Err(error) => self.cancel_failed(&error),
        }
    }

    /// A request by [`Self::request_cancel`] has taken effect, or never will: its client may go on.
    pub(super) fn own_cancel_done(&mut self, client: Id, server: Id) {
        if let Some(server) = self.servers.get_mut(server) {
            server.awaits_own_cancel = false;
        }
        self.schedule_unread(client);
    }

    /// It is not known whether a request by [`Self::request_cancel`] will still take effect: its client must not send another
    /// command on this connection.
    pub(super) fn own_cancel_lost(&mut self, client: Id, server: Id) {
        if self.servers.open(server).and_then(Backend::client) == Some(client)
            && let Some(key) = self.servers.get(server).map(|server| &server.key)
        {
            let limit = self.env.limits.times.of(key.user()).query.unwrap_or_default();
            let exceeded = Exceeded { timeout: Timeout::NotCancelled, limit };
            self.log_timeout(client, exceeded);
            self.disconnect(client, exceeded);
        }
    }

    fn has_own_cancel(&self, server: Id) -> bool {
        self.servers.get(server).is_some_and(|server| server.awaits_own_cancel)
    }

    /// Whether the client's next command must wait for a request that was to cancel the last one.
    pub(super) fn must_hold(&self, client: Id) -> bool {
        let Some(Client { stage: ClientStage::Active(server), timing, .. }) = self.clients.get(client) else {
            return false;
        };
        !timing.is_busy() && self.has_own_cancel(*server)
    }

    /// The same for a client that is parked, and for which the connection is kept.
    pub(super) fn is_being_cancelled(&self, client: Id) -> bool {
        let last_server = self.clients.get(client).and_then(|client| client.last_server);
        let kept = last_server
            .filter(|server| self.servers.open(*server).is_some_and(|backend| backend.is_kept_for(client)));
        kept.is_some_and(|server| self.has_own_cancel(server))
    }

    /// Sends a client the reason, if it can be sent now, and closes it. Its connection is reset if no answer is owed, and
    /// closed otherwise.
    fn disconnect(&mut self, id: Id, exceeded: Exceeded) {
        let is_busy = self.clients.get(id).is_some_and(|client| client.timing.is_busy());
        let can_send = !is_busy
            || self
                .served_client(id)
                .is_some_and(|served| served.session().is_some_and(ProtocolSession::can_send_error));
        match self.env.protocol.timed_out(exceeded).filter(|_| can_send) {
            Some(refusal) => self.refuse(id, &refusal),
            None => self.close_client(id, "has exceeded a time limit"),
        }
    }
}
