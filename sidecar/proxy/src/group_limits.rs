//! Limits of single users and databases.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// The name in the settings of all users that they do not name.
pub(crate) const ANY_USER: &str = "*";

/// The users and databases that have their own limits, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    pub users: BTreeMap<String, GroupLimit>,
    pub databases: BTreeMap<String, GroupLimit>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimit {
    /// Server connections; `None` for no limit but the pool's.
    pub connections: Option<NonZeroUsize>,
    /// Server connections that are opened in advance and kept.
    pub warm: usize,
    /// Clients; `None` for no limit but the proxy's.
    pub clients: Option<NonZeroUsize>,
}

/// Whether a limit is that of a user or that of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    User,
    Database,
}

impl GroupLimits {
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.databases.is_empty()
    }

    pub fn of_user(&self, user: &str) -> Option<&GroupLimit> {
        self.users.get(user).or_else(|| self.users.get(ANY_USER))
    }

    /// The limits of [`ANY_USER`] do not hold for these users.
    pub(crate) fn exempt<'a>(&mut self, users: impl Iterator<Item = &'a str>) {
        if self.users.contains_key(ANY_USER) {
            for user in users {
                self.users.entry(user.to_owned()).or_default();
            }
        }
    }

    /// Connections of this user to this database that are opened in advance.
    pub fn warm(&self, user: &str, database: &str) -> usize {
        let of_user = self.of_user(user).map_or(0, |limit| limit.warm);
        of_user.max(self.databases.get(database).map_or(0, |limit| limit.warm))
    }

    pub fn has_warm(&self) -> bool {
        self.users.values().chain(self.databases.values()).any(|limit| limit.warm > 0)
    }
}
