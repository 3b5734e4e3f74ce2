//! What a server connection knows about its host, if hosts are tracked.

use std::time::{Duration, Instant};

use super::environment::Environment;
use crate::hosts::SharedHosts;
use crate::log::Level;
use crate::protocol::Protocol;
use crate::upstream::OpenedAt;

pub(super) struct HostLink {
    /// `None` while no host can be tried.
    pub(super) host: Option<usize>,
    /// The host's epoch when its role was confirmed on this connection.
    pub(super) epoch: u64,
    /// The host's epoch when the unanswered role query was sent.
    pub(super) asked: Option<u64>,
    pub(super) at: Option<OpenedAt>,
    pub(super) phase: LinkPhase,
    pub(super) purpose: LinkPurpose,
    /// When the search for a host began.
    pub(super) since: Instant,
    /// When the last connect began.
    pub(super) dialed: Instant,
    /// Since when the host's machine has not acknowledged what was sent, as far as the ticks show.
    pub(super) unanswered: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkPhase {
    /// No client may get it: its role is not confirmed.
    Opening,
    InUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkPurpose {
    Clients,
    /// To learn the role of the host.
    Poll,
}

impl HostLink {
    pub(super) fn searching(purpose: LinkPurpose, since: Instant) -> Self {
        let phase = LinkPhase::Opening;
        Self {
            host: None,
            epoch: 0,
            asked: None,
            at: None,
            phase,
            purpose,
            since,
            dialed: since,
            unanswered: None,
        }
    }

    /// Whether the host must confirm its role on this connection before a client gets it.
    pub(super) fn is_stale(&self, hosts: &SharedHosts) -> bool {
        self.host.is_some_and(|host| hosts.epoch(host) != self.epoch)
    }

    /// The server may have lost its role: each of its connections must confirm the role before it is used
    /// again.
    pub(super) fn doubt<P: Protocol>(&self, reason: &str, env: &Environment<P>) {
        let Some((hosts, host)) = env.hosts.as_ref().zip(self.host) else { return };
        if hosts.with(|hosts| hosts.doubt(host, self.epoch)) {
            let label = hosts.label(host);
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("host", &label), ("reason", &reason)];
            env.log.event(Level::Warn, "host-doubted", &fields);
        }
    }
}

/// How long a host may take to tell its role.
pub(super) fn answer_limit<P: Protocol>(env: &Environment<P>) -> Duration {
    let limits = &env.limits;
    if limits.health.is_zero() { limits.reset } else { limits.reset.min(limits.health) }
}
