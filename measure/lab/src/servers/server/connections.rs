//! Connection counters and the encryption of connections, as the server reports them.

use ciphertoll_model::{Leg, LegCount, ServerKey};
use ciphertoll_net::blocking::Client;

use super::Server;
use crate::error::Error;
use crate::servers::counters::ConnectionCounts;
use crate::servers::encryption::ConnectionEncryption;
use crate::servers::engine::ServerEngine;

/// Lists the encryption of an account's connections, over a connection that stays open until drop.
pub struct ConnectionMonitor {
    engine: &'static dyn ServerEngine,
    client: Client,
    account: String,
    /// The key of the server certificate at the start of the monitor.
    key: ServerKey,
}

impl Server {
    /// Reads the connection counters. On PostgreSQL, from version 15, it waits for closed connections, because they publish
    /// their counters when they end.
    pub fn connection_counts(&self) -> Result<ConnectionCounts, Error> {
        let counts = self.plan.engine.connection_counts(&self.control)?;
        Ok(ConnectionCounts { own: self.control.connects(), ..counts })
    }

    /// `None` if the server does not list other connections.
    pub fn connection_monitor(&self, account: &str) -> Result<Option<ConnectionMonitor>, Error> {
        if !self.plan.engine.properties().lists_connections {
            return Ok(None);
        }
        let (client, account) = (self.control.connect()?, account.to_owned());
        Ok(Some(ConnectionMonitor { engine: self.plan.engine, client, account, key: self.certificate.key }))
    }

    /// The leg of a connection that ends at this server.
    pub(crate) fn leg_of(&self, encryption: ConnectionEncryption) -> Leg {
        encryption.leg(self.certificate.key)
    }
}

impl ConnectionMonitor {
    pub fn list(&mut self) -> Result<Vec<LegCount>, Error> {
        let open = self.engine.open_connections(&mut self.client, &self.account)?;
        let leg = |(encryption, connections): (ConnectionEncryption, u64)| LegCount {
            leg: encryption.leg(self.key),
            connections,
            handshake: None,
        };
        Ok(open.into_iter().map(leg).collect())
    }
}
