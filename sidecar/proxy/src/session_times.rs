//! How long clients may take, in all and by user.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::group_limits::ANY_USER;

/// Time limits of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionTimes {
    pub global: TimeLimits,
    /// The limits of users that have their own.
    pub users: BTreeMap<String, TimeLimits>,
}

/// `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// For a command, from its first byte until no answer is owed.
    pub query: Option<Duration>,
    /// For a transaction, from its first command on.
    pub transaction: Option<Duration>,
    /// Between two commands of a transaction.
    pub idle_transaction: Option<Duration>,
    /// Between two commands outside of a transaction.
    pub idle: Option<Duration>,
}

impl SessionTimes {
    pub fn of(&self, user: &str) -> &TimeLimits {
        self.users.get(user).or_else(|| self.users.get(ANY_USER)).unwrap_or(&self.global)
    }

    /// The limits of [`ANY_USER`] do not hold for these users.
    pub(crate) fn exempt<'a>(&mut self, users: impl Iterator<Item = &'a str>) {
        if self.users.contains_key(ANY_USER) {
            for user in users {
                self.users.entry(user.to_owned()).or_insert(self.global);
            }
        }
    }

    /// Whether there is any limit.
    pub fn is_on(&self) -> bool {
        self.users.values().chain([&self.global]).any(|limits| *limits != TimeLimits::default())
    }
}
