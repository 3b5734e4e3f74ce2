//! Hosts whose machines accept and acknowledge nothing.

use std::io;
use std::time::Duration;

use ciphertoll_net::Error;

use super::backend::{ServerConnection, ServerStage};
use super::worker::Worker;
use crate::protocol::Protocol;
use crate::slab::Id;

/// How long the kernel waits before it sends data again: `TCP_RTO_MIN`.
const FIRST_WAIT: Duration = Duration::from_millis(200);

impl<P: Protocol> Worker<P> {
    /// Whether the host's machine has not accepted a connect in time. The kernel would give it up when it sends the second
    /// packet, a second after the first one, at the earliest.
    pub(super) fn is_not_accepted(&self, id: Id) -> bool {
        let Some(limit) = self.env.upstream.silence() else { return false };
        let Some((server, link)) = self.servers.get(id).zip(self.link(id)) else { return false };
        let ServerStage::Connecting { connecting: Some(connecting), .. } = &server.stage else {
            return false;
        };
        !connecting.is_accepted() && self.env.now.duration_since(link.dialed) >= limit
    }

    /// Whether the host's machine has acknowledged nothing for too long.
    pub(super) fn has_vanished(&mut self, id: Id) -> bool {
        let (now, Some(limit)) = (self.env.now, self.env.upstream.silence()) else { return false };
        let Some(ServerConnection { link: Some(link), stage: ServerStage::Open(backend), .. }) =
            self.servers.get_mut(id)
        else {
            return false;
        };
        link.unanswered = backend.channel.is_unanswered().then(|| link.unanswered.unwrap_or(now));
        // The second transmission gets half of the time at least.
        let left = limit.saturating_sub(FIRST_WAIT).max(limit / 2);
        link.unanswered.is_some_and(|since| now.duration_since(since) >= left)
    }

    pub(super) fn is_any_unanswered(&self) -> bool {
        self.servers.values().any(|server| server.link.as_ref().is_some_and(|link| link.unanswered.is_some()))
    }

    /// Ends a connection to a host that has vanished. What it has not received must not reach it later.
    pub(super) fn cut_link(&mut self, id: Id) {
        if let Some(backend) = self.servers.open(id) {
            let _ = backend.channel.discard_unsent();
        }
        let source = io::ErrorKind::TimedOut.into();
        self.server_lost(id, Some(&Error::Socket { doing: "cannot send", source }));
    }
}
