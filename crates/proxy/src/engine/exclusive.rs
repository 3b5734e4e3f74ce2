//! Commands that a server refuses while a database has other connections, such as `DROP DATABASE`: the
//! connections that no client uses are closed first.

use std::time::{Duration, Instant};

use ciphertoll_wire::relay::Vacate;

use super::{Activity, Worker};
use crate::metrics::EXCLUSIVE_ACCESS;
use crate::protocol::{PoolKey, Protocol};
use crate::slab::Id;

/// Servers wait this long for other connections to end; no connection to the database is kept idle meanwhile.
const EXCLUSIVE_TIME: Duration = Duration::from_secs(5);
/// Databases that are remembered. Clients can name any number of them.
const MAX_DATABASES: usize = 64;

/// Databases to which no connections are kept idle now, and until when.
#[derive(Default)]
pub(super) struct ExclusiveDatabases(Vec<(Vacate, Instant)>);

impl ExclusiveDatabases {
    fn add(&mut self, target: Vacate, now: Instant) {
        self.0.retain(|(known, until)| now < *until && *known != target);
        if self.0.len() >= MAX_DATABASES {
            self.0.remove(0);
        }
        self.0.push((target, now + EXCLUSIVE_TIME));
    }

    fn has(&self, database: &str, now: Instant) -> bool {
        self.0.iter().any(|(target, until)| now < *until && matches_database(target, database))
    }
}

fn matches_database(target: &Vacate, database: &str) -> bool {
    match target {
        Vacate::Database(name) => name == database.as_bytes(),
        Vacate::Any => true,
    }
}

impl<P: Protocol> Worker<P> {
    pub(super) fn close_unused(&mut self, target: Vacate) {
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id) else { continue };
            if matches_database(&target, server.key.database()) && self.take_unused(id) {
                self.close_server(id, EXCLUSIVE_ACCESS);
            }
        }
        self.exclusive.add(target, self.now);
    }

    fn take_unused(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        match self.servers.open(id).map(|backend| &backend.activity) {
            Some(Activity::Idle { .. }) => self.pool.with(|pool| pool.take_idle(&server.key, id)),
            Some(Activity::Kept { .. }) => self.take_kept(id),
            _ => false,
        }
    }

    /// Whether connections of this key are closed when a client releases them.
    pub(super) fn is_exclusive(&self, key: &P::Key) -> bool {
        self.exclusive.has(key.database(), self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_exclusive_for_as_long_as_servers_wait() {
        let (mut exclusive, now) = (ExclusiveDatabases::default(), Instant::now());
        exclusive.add(Vacate::Database(b"shop".to_vec()), now);
        assert!(exclusive.has("shop", now) && !exclusive.has("store", now));
        assert!(!exclusive.has("shop", now + EXCLUSIVE_TIME));
        exclusive.add(Vacate::Any, now);
        assert!(exclusive.has("store", now));
        for number in 0..2 * MAX_DATABASES {
            exclusive.add(Vacate::Database(number.to_string().into_bytes()), now);
        }
        assert_eq!(exclusive.0.len(), MAX_DATABASES);
    }
}
