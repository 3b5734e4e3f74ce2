//! Commands that a server refuses while a database has other connections, such as `DROP DATABASE`: the
//! connections that no client uses are closed first.

use std::time::{Duration, Instant};

use ciphertoll_wire::relay::Vacate;

/// Servers wait this long for other connections to end; no connection to the database is kept idle meanwhile.
const EXCLUSIVE_TIME: Duration = Duration::from_secs(5);
/// Databases that are remembered. Clients can name any number of them.
const MAX_DATABASES: usize = 64;

/// Databases to which no connections are kept idle now, and until when.
#[derive(Default)]
pub(super) struct ExclusiveDatabases(Vec<(Vacate, Instant)>);

impl ExclusiveDatabases {
    pub(super) fn add(&mut self, target: Vacate, now: Instant) {
        self.0.retain(|(known, until)| now < *until && *known != target);
        if self.0.len() >= MAX_DATABASES {
            self.0.remove(0);
        }
        self.0.push((target, now + EXCLUSIVE_TIME));
    }

    pub(super) fn has(&self, database: &str, now: Instant) -> bool {
        self.0.iter().any(|(target, until)| now < *until && matches_database(target, database))
    }
}

pub(super) fn matches_database(target: &Vacate, database: &str) -> bool {
    match target {
        Vacate::Database(name) => name == database.as_bytes(),
        Vacate::Any => true,
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
