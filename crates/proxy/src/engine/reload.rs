//! What can change while a proxy runs: read and checked on another thread, and taken over between two turns.

use super::encrypt::FrontTls;
use super::{ClientStage, Door, Proxy};
use crate::dialect::Dialect;
use crate::log::Log;
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::settings::{Limits, Settings, StartError};
use crate::upstream::Upstream;

/// Settings whose files were read, and of which nothing can be wrong any more. Each thread gets a clone.
#[derive(Clone)]
pub struct Prepared<D> {
    pub(super) door: Door,
    pub(super) dialect: D,
    pub(super) upstream: Upstream,
    pub(super) limits: Limits,
    pub(super) log: Log,
}

impl<D: Dialect> Prepared<D> {
    /// Reads authorities and certificates, hashes passwords where clients must prove that they know them, and looks the
    /// server's name up: nothing that the thread which serves should do.
    pub fn new(settings: &Settings, log: Log) -> Result<Self, StartError> {
        let dialect = D::of(settings)?;
        let tls = settings.tls.as_ref().map(FrontTls::read).transpose().map_err(StartError::Tls)?;
        let door = Door { uids: settings.allowed_uids.clone(), unix_auth: settings.unix_auth, tls };
        let upstream = Upstream::new(&settings.server).map_err(StartError::Tls)?;
        Ok(Self { door, dialect, upstream, limits: settings.limits.clone(), log })
    }
}

impl<D: Dialect> Proxy<D> {
    /// Goes on with other settings. Sessions stay as they are; a connection that was opened with other credentials is
    /// closed when its client leaves it, or has left it between transactions and somebody else would get it, and one that
    /// nobody has, at once.
    pub(super) fn renew(&mut self, prepared: Prepared<D>) {
        let Prepared { door, dialect, upstream, limits, log } = prepared;
        self.dialect.renew(dialect);
        if upstream.mark() != self.upstream.mark() {
            self.dialect.forget();
        }
        self.upstream = upstream;
        self.door = door;
        self.pool.with(|pool| pool.set_limit(limits.server_connections));
        self.limits = limits;
        self.log = log;
        for id in self.servers.ids() {
            if self.idle_since(id).is_some()
                && let Some(reason) = self.outlived(id)
            {
                self.close_server(id, reason);
            }
        }
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            if let ClientStage::Queued { wanted, .. } = &client.stage
                && let Err(refusal) = self.dialect.key(wanted)
            {
                self.refuse(id, &refusal);
            }
        }
        self.wanting = true;
    }

    /// Why a client that would have to wait for others may not.
    pub(super) fn queue_is_full(&self) -> Option<Refusal> {
        let ahead = self.pool.look(Pool::queue_ahead)?;
        (ahead >= self.limits.queued).then(|| {
            let message = format!("every server connection is taken, and {ahead} clients wait already");
            Refusal::new(Refusal::FULL, message)
        })
    }
}
