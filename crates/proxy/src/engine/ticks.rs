//! Limits of time, looked at a few times a second: none of them is so short that this would show.

use ciphertoll_net::Error;

use super::park::KEPT;
use super::{ClientStage, Duty, Proxy, ServerStage};
use crate::dialect::{Dialect, Order, Pooling, Session, Wanted};
use crate::refusal::Refusal;
use crate::slab::Id;

/// What a server connection has come to.
enum Due {
    No,
    Close(&'static str),
    KeepNoMore,
    NotOpened,
}

impl<D: Dialect> Proxy<D> {
    pub(super) fn tick(&mut self) {
        for id in self.clients.ids() {
            self.tick_client(id);
        }
        for id in self.servers.ids() {
            match self.due(id) {
                Due::No => {}
                Due::Close(reason) => self.close_server(id, reason),
                Due::KeepNoMore => self.keep_no_more(id),
                Due::NotOpened => {
                    let seconds = self.limits.connect.as_secs();
                    if let Some(server) = self.servers.get(id) {
                        let key = server.key.clone();
                        self.open_failed(&key, Some(id), &Error::TimedOut { seconds });
                    }
                }
            }
        }
        for id in self.cancels.ids() {
            if self.cancels.get(id).is_some_and(|cancel| self.now >= cancel.until) {
                self.condemn_target_of(id);
                self.cancel_done(id);
            }
        }
        self.look_after();
        if std::mem::take(&mut self.accept_again) {
            self.accept();
        }
    }

    fn tick_client(&mut self, id: Id) {
        self.obey(id);
        let Some(client) = self.clients.get(id) else { return };
        let waited = self.now.duration_since(client.since);
        match client.stage {
            ClientStage::Front(_) | ClientStage::Encrypting(_) if waited >= self.limits.login => {
                self.client_gone(id, "did not log in in time");
            }
            ClientStage::Queued { .. } if waited >= self.limits.queue => {
                let seconds = self.limits.queue.as_secs_f64();
                let message = format!("no server connection became free within {seconds} s");
                self.refuse(id, &Refusal::new(Refusal::FULL, message));
            }
            ClientStage::Cancelling if waited >= self.limits.reset => {
                self.client_gone(id, "its cancel request took too long");
            }
            ClientStage::Flushing if waited >= self.limits.reset => self.client_gone(id, "did not listen"),
            _ => {}
        }
    }

    /// Does what others want to become of a client that has no connection.
    fn obey(&mut self, id: Id) {
        let order = match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Queued { wanted, .. } | ClientStage::Parked { wanted, .. }) => wanted.order(),
            _ => Order::None,
        };
        match order {
            Order::None => {}
            Order::Cancel => drop(self.cancel_waiting(id)),
            Order::End => {
                let message = "another client has ended this connection";
                self.refuse(id, &Refusal::new(Refusal::STOPPING, message));
            }
        }
    }

    fn due(&self, id: Id) -> Due {
        let Some(server) = self.servers.get(id) else { return Due::No };
        match &server.stage {
            ServerStage::Connecting { until, .. } if self.now >= *until => Due::NotOpened,
            ServerStage::Connecting { .. } => Due::No,
            ServerStage::Up(backend) => match &backend.duty {
                Duty::Idle { .. } if self.drain.is_some() && self.pooling == Pooling::Session => {
                    Due::Close("the proxy is stopping")
                }
                Duty::Kept { since, client, .. }
                    if self.now.duration_since(*since) >= KEPT || self.clients.get(*client).is_none() =>
                {
                    Due::KeepNoMore
                }
                Duty::Idle { since, .. }
                    if self.now.duration_since(*since) >= self.limits.idle
                        && !self.is_kept_warm(&server.key) =>
                {
                    Due::Close("nobody needs it")
                }
                Duty::Resetting { until, .. } if self.now >= *until => Due::Close(server.upkeep.overdue()),
                Duty::Awaiting { until, .. } if self.now >= *until => {
                    Due::Close("a request to cancel is still on its way")
                }
                _ => Due::No,
            },
        }
    }

    /// Those that have not said who they are, or wait and have not been let in yet, are told that it ends.
    pub(super) fn refuse_newcomers(&mut self) {
        for id in self.clients.ids() {
            let is_new = |client: &super::Client<D>| match client.stage {
                ClientStage::Front(_) | ClientStage::Encrypting(_) => true,
                ClientStage::Queued { .. } => client.ticket.is_none(),
                _ => false,
            };
            if self.clients.get(id).is_some_and(is_new) {
                self.refuse(id, &stopping());
            }
        }
    }

    /// Ends sessions that have had their time.
    pub(super) fn cut_off(&mut self) {
        let Some(drain) = &self.drain else { return };
        if self.now < drain.until {
            return;
        }
        let mut count = 0;
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            match client.stage {
                ClientStage::Attached(_) => {
                    count += 1;
                    self.end_session(id);
                }
                // It has asked for something that is not done any more.
                ClientStage::Queued { .. } => {
                    count += 1;
                    self.refuse(id, &stopping());
                    self.client_gone(id, "was cut off");
                }
                ClientStage::Parked { .. } => {
                    self.refuse(id, &stopping());
                    self.client_gone(id, "was between transactions");
                }
                _ => self.client_gone(id, "was cut off"),
            }
        }
        if let Some(drain) = &mut self.drain {
            drain.cut_off += count;
        }
    }

    /// Between two answers a client can be told; in the middle of one it would take it for a part of that.
    fn end_session(&mut self, id: Id) {
        let Some(client) = self.clients.get(id) else { return };
        let ClientStage::Attached(server) = client.stage else { return };
        let may_speak = self.backend(server).is_some_and(
            |backend| matches!(&backend.duty, Duty::Session { session, .. } if session.wants_a_reason()),
        );
        if may_speak {
            self.refuse(id, &stopping());
        }
        // Whoever has not taken it by now never will.
        self.client_gone(id, "was cut off");
    }
}

pub(super) fn stopping() -> Refusal {
    Refusal::new(Refusal::STOPPING, "the proxy is shutting down")
}
