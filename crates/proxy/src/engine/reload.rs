//! Settings that can change while a proxy runs. They are read and checked on another thread, and applied
//! between two turns.

use super::client_tls::ClientTls;
use super::{AccessRules, ClientStage, Worker};
use crate::log::Log;
use crate::pool::ConnectionPool;
use crate::protocol::Protocol;
use crate::refusal::Refusal;
use crate::settings::{Limits, Settings, StartError};
use crate::upstream::Upstream;

/// Settings that are checked and whose files are read. Each worker gets a clone.
#[derive(Clone)]
pub struct PreparedSettings<P> {
    pub(super) access: AccessRules,
    pub(super) protocol: P,
    pub(super) upstream: Upstream,
    pub(super) limits: Limits,
    pub(super) log: Log,
}

impl<P: Protocol> PreparedSettings<P> {
    /// Reads certificates, hashes passwords if clients must prove them, and resolves the server's name. All
    /// of that may block, so it runs on no worker.
    pub fn new(settings: &Settings, log: Log) -> Result<Self, StartError> {
        let protocol = P::from_settings(settings)?;
        let tls = settings.tls.as_ref().map(ClientTls::read).transpose().map_err(StartError::Tls)?;
        let access = AccessRules { uids: settings.allowed_uids.clone(), unix_auth: settings.unix_auth, tls };
        let upstream = Upstream::new(&settings.server).map_err(StartError::Tls)?;
        Ok(Self { access, protocol, upstream, limits: settings.limits.clone(), log })
    }
}

impl<P: Protocol> Worker<P> {
    /// Applies new settings. Sessions are not affected. A connection that was opened with other credentials
    /// is closed at once if it is idle, otherwise when its client releases it or another client would get it.
    pub(super) fn apply_settings(&mut self, prepared: PreparedSettings<P>) {
        let PreparedSettings { access, protocol, upstream, limits, log } = prepared;
        self.protocol.reload(protocol);
        if upstream.fingerprint() != self.upstream.fingerprint() {
            self.protocol.forget_learned();
        }
        self.upstream = upstream;
        self.access = access;
        self.pool.with(|pool| pool.set_limit(limits.server_connections));
        self.limits = limits;
        self.log = log;
        for id in self.servers.ids() {
            if self.idle_since(id).is_some()
                && let Some(reason) = self.obsolete_reason(id)
            {
                self.close_server(id, reason);
            }
        }
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            if let ClientStage::Queued { request, .. } = &client.stage
                && let Err(refusal) = self.protocol.pool_key(request)
            {
                self.refuse(id, &refusal);
            }
        }
        self.check_unserved = true;
    }

    /// Why a client must not join the wait queue.
    pub(super) fn queue_is_full(&self) -> Option<Refusal> {
        let ahead = self.pool.read(ConnectionPool::queue_length)?;
        (ahead >= self.limits.queued).then(|| {
            let message =
                format!("all server connections are in use, and {ahead} clients are waiting already");
            Refusal::new(Refusal::FULL, message)
        })
    }
}
