//! The users and databases of a pool: their connections, their clients that wait, their limits.

use std::num::NonZeroUsize;

use crate::group_limits::{GroupLimit, GroupLimits};

/// Connections and waiting clients of one user, or of one database that has limits.
pub(super) struct Group {
    name: Box<str>,
    /// Keys that belong to it.
    keys: usize,
    pub(super) open: usize,
    /// Evictions that workers have not carried out yet: of its connections, and for its clients.
    leaving: usize,
    coming: usize,
    pub(super) waiting: usize,
    limit: usize,
    /// Connections that are not closed to make room for other users or databases.
    warm: usize,
}

/// Groups by number. A number is reused when no key refers to it.
#[derive(Default)]
pub(super) struct GroupTable(Vec<Option<Group>>);

/// Every key has a user. Only databases with limits are groups.
#[derive(Default)]
pub(super) struct Groups {
    limits: GroupLimits,
    /// Whether any user or database has a limit.
    pub(super) has_limits: bool,
    pub(super) users: GroupTable,
    pub(super) databases: GroupTable,
    /// Users with clients that wait.
    pub(super) waiting_users: usize,
}

/// The groups of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) user: usize,
    pub(super) database: Option<usize>,
}

impl Group {
    fn set_limit(&mut self, limit: Option<&GroupLimit>) {
        self.limit = limit.and_then(|limit| limit.connections).map_or(usize::MAX, NonZeroUsize::get);
        self.warm = limit.map_or(0, |limit| limit.warm);
    }

    pub(super) fn is_full(&self) -> bool {
        self.open >= self.limit
    }

    pub(super) fn is_over_limit(&self) -> bool {
        self.open > self.limit
    }

    /// Whether one of its connections may be closed for another group.
    pub(super) fn may_give(&self) -> bool {
        self.open.saturating_sub(self.leaving) > self.warm
    }
}

impl GroupTable {
    fn join(&mut self, name: &str, limit: Option<&GroupLimit>) -> usize {
        let is_it = |group: &Option<Group>| group.as_ref().is_some_and(|group| *group.name == *name);
        let known = self.0.iter().position(is_it);
        let number = known.or_else(|| self.0.iter().position(Option::is_none)).unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        let group = self.0[number].get_or_insert_with(|| {
            let mut group = Group {
                name: name.into(),
                keys: 0,
                open: 0,
                leaving: 0,
                coming: 0,
                waiting: 0,
                limit: 0,
                warm: 0,
            };
            group.set_limit(limit);
            group
        });
        group.keys += 1;
        number
    }

    fn leave(&mut self, number: usize) {
        if let Some(group) = self.get_mut(number) {
            group.keys -= 1;
            if group.keys == 0 {
                self.0[number] = None;
            }
        }
    }

    pub(super) fn get(&self, number: usize) -> Option<&Group> {
        self.0.get(number)?.as_ref()
    }

    fn get_mut(&mut self, number: usize) -> Option<&mut Group> {
        self.0.get_mut(number)?.as_mut()
    }
}

impl Groups {
    /// Adds a key.
    pub(super) fn join(&mut self, user: &str, database: &str) -> Membership {
        Membership {
            user: self.users.join(user, self.limits.of_user(user)),
            database: self.join_database(database),
        }
    }

    fn join_database(&mut self, name: &str) -> Option<usize> {
        let limit = self.limits.databases.get(name)?;
        Some(self.databases.join(name, Some(limit)))
    }

    /// Removes a key, which has neither connections nor waiting clients.
    pub(super) fn leave(&mut self, of: Membership) {
        self.users.leave(of.user);
        if let Some(database) = of.database {
            self.databases.leave(database);
        }
    }

    pub(super) fn add_open(&mut self, of: Membership) {
        self.each(of, |group| group.open += 1);
    }

    pub(super) fn remove_open(&mut self, of: Membership) {
        self.each(of, |group| group.open = group.open.saturating_sub(1));
    }

    fn each(&mut self, of: Membership, change: impl Fn(&mut Group)) {
        self.users.get_mut(of.user).into_iter().for_each(&change);
        let database = of.database.and_then(|number| self.databases.get_mut(number));
        database.into_iter().for_each(change);
    }

    pub(super) fn add_waiting(&mut self, of: Membership) {
        if let Some(user) = self.users.get_mut(of.user) {
            user.waiting += 1;
            self.waiting_users += usize::from(user.waiting == 1);
        }
    }

    pub(super) fn remove_waiting(&mut self, of: Membership) {
        if let Some(user) = self.users.get_mut(of.user) {
            user.waiting -= 1;
            self.waiting_users -= usize::from(user.waiting == 0);
        }
    }

    pub(super) fn add_eviction(&mut self, from: Membership, to: Membership) {
        self.each(from, |group| group.leaving += 1);
        self.each(to, |group| group.coming += 1);
    }

    pub(super) fn remove_leaving(&mut self, from: Membership) {
        self.each(from, |group| group.leaving = group.leaving.saturating_sub(1));
    }

    pub(super) fn remove_coming(&mut self, to: Membership) {
        self.each(to, |group| group.coming = group.coming.saturating_sub(1));
    }

    /// The user's connections after the evictions that workers have not carried out yet.
    pub(super) fn user_share(&self, of: Membership) -> usize {
        self.users.get(of.user).map_or(0, |user| (user.open + user.coming).saturating_sub(user.leaving))
    }

    pub(super) fn user_is_full(&self, of: Membership) -> bool {
        self.has_limits && self.users.get(of.user).is_some_and(Group::is_full)
    }

    pub(super) fn database(&self, of: Membership) -> Option<&Group> {
        self.databases.get(of.database?)
    }

    pub(super) fn database_is_full(&self, of: Membership) -> bool {
        self.database(of).is_some_and(Group::is_full)
    }

    pub(super) fn is_full(&self, of: Membership) -> bool {
        self.has_limits && (self.user_is_full(of) || self.database_is_full(of))
    }

    pub(super) fn is_over_limit(&self, of: Membership) -> bool {
        let user = self.users.get(of.user).into_iter();
        user.chain(self.database(of)).any(Group::is_over_limit)
    }

    /// Whether a connection of `from` may be closed to make room for one of `to`.
    pub(super) fn may_give(&self, from: Membership, to: Membership) -> bool {
        let user = self.users.get(from.user).filter(|_| from.user != to.user);
        let database = self.database(from).filter(|_| from.database != to.database);
        user.into_iter().chain(database).all(Group::may_give)
    }

    /// Replaces the limits. `keys` are all keys: user, database, connections, and where their groups are recorded.
    pub(super) fn set_limits<'a>(
        &mut self,
        limits: GroupLimits,
        keys: impl Iterator<Item = (&'a str, usize, &'a mut Membership)>,
    ) {
        self.has_limits = !limits.is_empty();
        self.limits = limits;
        for group in self.users.0.iter_mut().flatten() {
            group.set_limit(self.limits.of_user(&group.name));
        }
        self.databases = GroupTable::default();
        for (database, open, membership) in keys {
            membership.database = self.join_database(database);
            if let Some(group) = membership.database.and_then(|number| self.databases.get_mut(number)) {
                group.open += open;
            }
        }
    }
}
