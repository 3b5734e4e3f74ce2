//! Clients of each user and database that has limits, over all workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::HashMap;

use crate::group_limits::{GroupKind, GroupLimit, GroupLimits};

type Count = Arc<AtomicUsize>;

/// Counts by the name of the user or the database, while there are clients of it.
#[derive(Clone, Default)]
pub(super) struct ClientCounts(Arc<Mutex<HashMap<(GroupKind, String), Count>>>);

/// A client that is counted until this is dropped.
#[derive(Default)]
pub(super) struct ClientTicket(Vec<Count>);

/// A user or a database has reached its maximum number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupIsFull {
    pub(super) kind: GroupKind,
    pub(super) limit: usize,
}

impl Drop for ClientTicket {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl ClientCounts {
    /// Counts a client, unless there are too many.
    pub(super) fn enter(
        &self,
        limits: &GroupLimits,
        user: &str,
        database: &str,
    ) -> Result<ClientTicket, GroupIsFull> {
        let mut ticket = ClientTicket::default();
        for (kind, name, limit) in groups_of(limits, user, database) {
            let count = self.count(kind, name);
            let before = count.fetch_add(1, Ordering::SeqCst);
            ticket.0.push(count);
            if let Some(limit) = limit.clients.filter(|limit| before >= limit.get()) {
                return Err(GroupIsFull { kind, limit: limit.get() });
            }
        }
        Ok(ticket)
    }

    /// Counts a client that was accepted before these limits existed.
    pub(super) fn enter_anyway(&self, limits: &GroupLimits, user: &str, database: &str) -> ClientTicket {
        let counts = groups_of(limits, user, database).map(|(kind, name, _)| self.count(kind, name));
        let ticket = ClientTicket(counts.collect());
        for count in &ticket.0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
        ticket
    }

    fn count(&self, kind: GroupKind, name: &str) -> Count {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, name.to_owned());
        if let Some(known) = counts.get(&key) {
            return Arc::clone(known);
        }
        // Clients can name any number of users.
        counts.retain(|_, count| Arc::strong_count(count) > 1);
        Arc::clone(counts.entry(key).or_default())
    }
}

/// The limits on the clients of a user and of a database.
fn groups_of<'a>(
    limits: &'a GroupLimits,
    user: &'a str,
    database: &'a str,
) -> impl Iterator<Item = (GroupKind, &'a str, &'a GroupLimit)> {
    let of_user = limits.of_user(user).map(|limit| (GroupKind::User, user, limit));
    let of_database = limits.databases.get(database).map(|limit| (GroupKind::Database, database, limit));
    of_user.into_iter().chain(of_database).filter(|(_, _, limit)| limit.clients.is_some())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn clients_above_a_limit_are_refused_until_another_one_leaves() {
        let limit = |clients| GroupLimit { clients: NonZeroUsize::new(clients), ..GroupLimit::default() };
        let limits = GroupLimits {
            users: [("app".to_owned(), limit(2))].into(),
            databases: [("shop".to_owned(), limit(3))].into(),
        };
        let counts = ClientCounts::default();
        let enter =
            |user, database| counts.enter(&limits, user, database).map_err(|full| (full.kind, full.limit));
        let first = enter("app", "till").ok();
        let second = enter("app", "shop").ok();
        assert_eq!(enter("app", "shop").err(), Some((GroupKind::User, 2)));
        let (third, fourth) = (enter("web", "shop"), enter("web", "shop"));
        assert!(third.is_ok() && fourth.is_ok());
        // A client that was refused is not counted.
        assert_eq!(enter("web", "shop").err(), Some((GroupKind::Database, 3)));
        drop(second);
        assert!(enter("app", "shop").is_ok() && enter("web", "shop").is_ok() && enter("web", "till").is_ok());
        let late = counts.enter_anyway(&limits, "app", "till");
        assert_eq!(enter("app", "till").err(), Some((GroupKind::User, 2)));
        drop((first, late));
        assert!(enter("app", "till").is_ok());
    }
}
