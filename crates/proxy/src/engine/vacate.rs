//! Commands that a server refuses while a database has other connections: those that no client has are closed first.

use std::time::{Duration, Instant};

use ciphertoll_wire::relay::Vacate;

use super::post::Letter;
use super::{Duty, Proxy, ServerStage};
use crate::dialect::{Dialect, Key};
use crate::slab::Id;

/// Why such a connection is closed.
pub(crate) const VACATED: &str = "a command needs its database without other connections";
/// So long a server waits for other connections to end, and so long none is kept idle.
const PATIENCE: Duration = Duration::from_secs(5);
/// Databases that are remembered; clients make their names up.
const MAX_VACATED: usize = 64;

/// Databases of which no connection is kept idle now, and until when.
#[derive(Default)]
pub(super) struct Vacated(Vec<(Vacate, Instant)>);

impl Vacated {
    fn add(&mut self, vacate: Vacate, now: Instant) {
        self.0.retain(|(known, until)| now < *until && *known != vacate);
        if self.0.len() >= MAX_VACATED {
            self.0.remove(0);
        }
        self.0.push((vacate, now + PATIENCE));
    }

    fn has(&self, database: &str, now: Instant) -> bool {
        self.0.iter().any(|(vacate, until)| now < *until && is_of(vacate, database))
    }
}

fn is_of(vacate: &Vacate, database: &str) -> bool {
    match vacate {
        Vacate::Database(name) => name == database.as_bytes(),
        Vacate::Any => true,
    }
}

impl<D: Dialect> Proxy<D> {
    /// Closes connections to these databases that no client has, those of other threads, too.
    pub(super) fn vacate(&mut self, vacates: &[Vacate]) {
        for vacate in vacates {
            self.commons.tell(|| Letter::Vacate(vacate.clone()));
            self.vacate_here(vacate.clone());
        }
    }

    /// The same for those of this thread.
    pub(super) fn vacate_here(&mut self, vacate: Vacate) {
        for id in self.servers.ids() {
            let is_meant = |key: &D::Key| is_of(&vacate, key.database());
            if self.servers.get(id).is_some_and(|server| is_meant(&server.key)) && self.take_unused(id) {
                self.close_server(id, VACATED);
            }
        }
        self.vacated.add(vacate, self.now);
    }

    /// Takes a connection from those that clients can have, if it is one of them.
    fn take_unused(&mut self, id: Id) -> bool {
        let Some(server) = self.servers.get(id) else { return false };
        let ServerStage::Up(backend) = &server.stage else { return false };
        match backend.duty {
            Duty::Idle { .. } => self.pool.with(|pool| pool.take_idle(&server.key, id)),
            Duty::Kept { .. } => self.unkeep(id),
            Duty::Session { .. } | Duty::Awaiting { .. } | Duty::Resetting { .. } => false,
        }
    }

    /// Whether connections of this key are closed when no client has them.
    pub(super) fn is_vacated(&self, key: &D::Key) -> bool {
        self.vacated.has(key.database(), self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_vacated_as_long_as_a_server_waits_for_that() {
        let (mut vacated, now) = (Vacated::default(), Instant::now());
        vacated.add(Vacate::Database(b"shop".to_vec()), now);
        assert!(vacated.has("shop", now) && !vacated.has("store", now));
        assert!(!vacated.has("shop", now + PATIENCE));
        vacated.add(Vacate::Any, now);
        assert!(vacated.has("store", now));
        for number in 0..2 * MAX_VACATED {
            vacated.add(Vacate::Database(number.to_string().into_bytes()), now);
        }
        assert_eq!(vacated.0.len(), MAX_VACATED);
    }
}
