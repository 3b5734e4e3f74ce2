//! What every transition of a worker's state machines may use: the time, the settings, the readiness loop.

use std::sync::Arc;
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Peer, Reactor, SpareBuffers, WatchedEvents};
use jiff::Timestamp;

use super::client_counts::ClientCounts;
use super::client_tls::ClientTls;
use super::flow::{TokenKind, token_of};
use super::key_deriver::KeyDeriver;
use super::upkeep::SettingsVersion;
use crate::client_auth::ClientAuth;
use crate::console_link::ConsoleLink;
use crate::console_rules::ConsoleRules;
use crate::hosts::SharedHosts;
use crate::log::Log;
use crate::login_hosts::LoginHosts;
use crate::metrics::Metrics;
use crate::notify::Notifier;
use crate::operations::Operations;
use crate::protocol::{Pooling, Protocol};
use crate::settings::{AllowedUids, Limits, UnixAuth};
use crate::upstream::Upstream;

pub(super) struct Environment<P: Protocol> {
    pub(super) protocol: P,
    pub(super) pooling: Pooling,
    /// Of the settings.
    pub(super) version: SettingsVersion,
    pub(super) limits: Limits,
    /// Whether there are time limits of sessions.
    pub(super) is_timed: bool,
    /// The server's address, for the log.
    pub(super) server: String,
    pub(super) log: Log,
    pub(super) access: AccessRules,
    pub(super) upstream: Upstream,
    /// `None` unless there are several hosts, a role is needed, or names are watched.
    pub(super) hosts: Option<Arc<SharedHosts>>,
    pub(super) services: Services,
    /// What operators have asked for.
    pub(super) operations: Arc<Operations>,
    pub(super) reactor: Reactor,
    pub(super) spare: SpareBuffers,
    /// The time of the current turn.
    pub(super) now: Instant,
    pub(super) drain: Option<Drain>,
    /// Another process accepts the clients; this one serves those that it has, as before.
    pub(super) is_handed_over: bool,
}

/// Which clients are accepted, and how they authenticate.
#[derive(Clone)]
pub(super) struct AccessRules {
    pub(super) uids: AllowedUids,
    pub(super) unix_auth: UnixAuth,
    /// `None` if TLS is not offered.
    pub(super) tls: Option<ClientTls>,
    /// `None` if the console is off.
    pub(super) console: Option<Arc<ConsoleRules>>,
}

/// What a worker needs for operation, but not for sessions.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) metrics: Arc<Metrics>,
    pub(super) client_counts: ClientCounts,
    pub(super) notifier: Notifier,
    pub(super) key_deriver: KeyDeriver,
    pub(super) console: Arc<ConsoleLink>,
    pub(super) began: Instant,
    pub(super) started: Timestamp,
}

/// The proxy is stopping.
pub(super) struct Drain {
    pub(super) until: Instant,
    pub(super) cut_off: usize,
}

impl<P: Protocol> Environment<P> {
    pub(super) fn metrics(&self) -> &Metrics {
        &self.services.metrics
    }

    /// Look-ups of users on other threads connect as the pool does.
    pub(super) fn connect_look_ups(&mut self) {
        let Self { protocol, upstream, hosts, limits, server, log, .. } = self;
        let hosts = || LoginHosts::new(server.clone(), upstream.login_hosts(), hosts.as_ref(), limits);
        protocol.connect_by(hosts, *log);
    }

    /// Whether the proxy ends when its last client has left.
    pub(super) fn is_ending(&self) -> bool {
        self.drain.is_some() || self.is_handed_over
    }

    /// Watches a socket for input, or also for room to send.
    pub(super) fn register(
        &self,
        channel: &mut Channel,
        kind: TokenKind,
        index: usize,
        events: WatchedEvents,
    ) -> Result<(), Error> {
        self.reactor.register(channel, token_of(kind, index), events)
    }
}

impl AccessRules {
    pub(super) fn auth_for(&self, peer: Peer) -> ClientAuth {
        match (peer, &self.tls) {
            (Peer::Process { uid, .. }, _) if !self.uids.allow(uid) => ClientAuth::Denied { uid },
            (Peer::Process { .. }, _) => match self.unix_auth {
                UnixAuth::Peer => ClientAuth::Granted,
                UnixAuth::Scram | UnixAuth::Password => ClientAuth::PasswordByUnix,
            },
            (Peer::Address(_), Some(tls)) => tls.auth(),
            // Without a peer UID and without a certificate, the client must know a password.
            (Peer::Address(_), None) => ClientAuth::PasswordByTcp,
        }
    }
}
