//! Timeouts, checked a few times per second, which is precise enough for all of them.

use ciphertoll_net::Error;

use super::backend::ServerExpiry;
use super::client::{Client, ClientStage};
use super::credentials::awaited_password;
use super::worker::Worker;
use crate::protocol::{PendingKill, PoolKey, Protocol, ProtocolSession};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    pub(super) fn tick(&mut self) {
        for id in self.clients.ids() {
            self.apply_pending_kill(id);
            self.update_client(id, |client, env| client.tick(env));
            if self.env.is_timed {
                self.check_session_times(id);
            }
        }
        for id in self.servers.ids() {
            self.tick_server(id);
        }
        self.tick_hosts();
        self.env.is_timed &= self.env.limits.times.is_on() || self.cancels.len() > 0;
        for id in self.cancels.ids() {
            if self.cancels.get(id).is_some_and(|cancel| self.env.now >= cancel.until) {
                self.cancel_lost(id);
            }
        }
        self.agenda.check_unserved |= self.pool.with(|pool| pool.tick(self.env.now));
        self.maintain();
        self.measure_usage();
        self.resume_accepting();
        if let Some(ticker) = &mut self.ticker {
            ticker(self.env.now);
        }
    }

    /// Carries out a `KILL` by another client, for a client that has no connection.
    fn apply_pending_kill(&mut self, id: Id) {
        match self.clients.get(id).map_or(PendingKill::None, Client::pending_kill) {
            PendingKill::None => {}
            PendingKill::Query => drop(self.cancel_queued(id)),
            PendingKill::Connection => {
                let message = "another client has killed this connection";
                self.refuse(id, &Refusal::new(Refusal::STOPPING, message));
            }
        }
    }

    fn tick_server(&mut self, id: Id) {
        let Some(server) = self.servers.get(id).filter(|_| !self.is_searching(id)) else { return };
        let is_gone = |client| self.clients.get(client).is_none();
        match server.tick(&self.env, is_gone) {
            ServerExpiry::None => {}
            ServerExpiry::ConnectTimedOut => {
                let (key, seconds) = (server.key.clone(), self.env.limits.connect.as_secs());
                let error = if server.password.is_waiting {
                    awaited_password(key.user())
                } else {
                    Error::TimedOut { seconds }
                };
                self.connect_failed(&key, Some(id), &error);
            }
            ServerExpiry::ResetKept => {
                if self.take_kept(id) {
                    self.reset_kept(id);
                }
            }
            ServerExpiry::SendReset => self.update_backend(id, |backend, env| backend.send_reset(id, env)),
            ServerExpiry::Unused if self.is_kept_warm(&server.key) => {}
            ServerExpiry::Unused => self.close_server(id, "it was idle for too long"),
            ServerExpiry::Close(reason) => {
                let reason = self.fell_silent(id).unwrap_or(reason);
                self.close_server(id, reason);
            }
        }
    }

    pub(super) fn refuse_new_clients(&mut self) {
        for id in self.clients.ids() {
            let is_new = |client: &Client<P>| match client.stage {
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
        let Some(drain) = &self.env.drain else { return };
        if self.env.now < drain.until {
            return;
        }
        let mut count = 0;
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            match client.stage {
                ClientStage::Active(_) => {
                    count += 1;
                    self.end_session(id, &Refusal::stopping());
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
        if let Some(drain) = &mut self.env.drain {
            drain.cut_off += count;
        }
    }

    /// Within a response, the client would take an error message for a part of it.
    pub(super) fn end_session(&mut self, id: Id, refusal: &Refusal) {
        let is_unserved =
            !matches!(self.clients.get(id).map(|client| &client.stage), Some(ClientStage::Active(_)));
        let can_send_error = self
            .served_client(id)
            .is_some_and(|served| served.session().is_some_and(ProtocolSession::can_send_error));
        if is_unserved || can_send_error {
            self.refuse(id, refusal);
        }
        // Output that the client has not read by now is lost.
        self.close_client(id, "was cut off");
    }
}
