//! Limits: in all, of users, of databases.

use std::num::NonZeroUsize;

use super::*;
use crate::group_limits::GroupLimit;

impl Model {
    pub(super) fn set_limit(&mut self, at: usize) {
        self.limit = 1 + at % 4;
        self.apply_limits();
    }

    /// Each bit of the number is a limit.
    pub(super) fn set_groups(&mut self, at: usize) {
        let bit = |number: usize| at >> number & 1;
        let limit = |first: usize| GroupLimit {
            connections: NonZeroUsize::new(bit(first) * (1 + bit(first + 1))),
            warm: bit(first + 1) & !bit(first),
            clients: None,
        };
        let of = |names: [Name; 2], first: usize| {
            let limits = names.into_iter().enumerate();
            limits.map(|(place, name)| (name.to_owned(), limit(first + place))).collect()
        };
        self.groups = GroupLimits { users: of(USERS, 0), databases: of(DATABASES, 3) };
        self.apply_limits();
    }

    pub(super) fn apply_limits(&mut self) {
        self.pool.set_limits(self.limit, self.groups.clone());
        self.check_unserved = [true; THREADS];
    }

    /// Connections of keys for which `holds` is true, including those that are being opened or moved.
    pub(super) fn open_where(&self, holds: impl Fn(Name) -> bool) -> usize {
        let moving = self.mailboxes.iter().flatten().filter_map(|message| match message {
            WorkerMessage::TakeServer(key, _) => Some(*key),
            _ => None,
        });
        let open = self.connections.values().map(|(key, _)| *key);
        open.chain(self.opening.iter().map(|(_, key)| *key)).chain(moving).filter(|key| holds(key)).count()
    }

    pub(super) fn open_of_user(&self, user: &str) -> usize {
        self.open_where(|key| key.user() == user)
    }

    pub(super) fn open_of_database(&self, database: &str) -> usize {
        self.open_where(|key| key.database() == database)
    }

    pub(super) fn user_limit(&self, key: Name) -> (usize, usize) {
        limit_of(self.groups.users.get(key.user()))
    }

    pub(super) fn database_limit(&self, key: Name) -> (usize, usize) {
        limit_of(self.groups.databases.get(key.database()))
    }

    pub(super) fn has_room(&self, key: Name) -> bool {
        self.pool.open() < self.limit
            && self.open_of_user(key.user()) < self.user_limit(key).0
            && self.open_of_database(key.database()) < self.database_limit(key).0
    }

    /// Whether an unused connection could be closed for this key, or used if it belongs to this key.
    pub(super) fn can_make_room(&self, key: Name) -> bool {
        let is_unused = |state: &ServerState| matches!(state, ServerState::Idle | ServerState::Kept(_));
        let may_give = |other: Name| {
            let user = self.open_of_user(other.user()) > self.user_limit(other).1;
            let database = self.open_of_database(other.database()) > self.database_limit(other).1;
            (other.user() == key.user() || user) && (other.database() == key.database() || database)
        };
        // Only their workers close connections of paused keys.
        let available = self.connections.values().filter(|(key, _)| !self.pauses_of_pool.1.contains(key));
        let unused: Vec<Name> =
            available.filter(|(_, state)| is_unused(state)).map(|(key, _)| *key).collect();
        let of_user = |other: &Name| other.user() == key.user();
        let of_database = |other: &Name| other.database() == key.database();
        let any = |holds: &dyn Fn(&Name) -> bool| unused.iter().any(|other| may_give(other) && holds(other));
        let user_is_full = self.open_of_user(key.user()) >= self.user_limit(key).0;
        match (user_is_full, self.open_of_database(key.database()) >= self.database_limit(key).0) {
            (false, false) => any(&|_| true),
            (true, false) => any(&of_user),
            (false, true) => any(&of_database),
            (true, true) => any(&of_user) && any(&of_database),
        }
    }

    /// Whether a client waits that could use the room of a connection of `from`, and whose user has no
    /// connection.
    pub(super) fn is_passed_over(&self, from: Name) -> bool {
        let is_coming = |user: &str| {
            let evicts = |message: &WorkerMessage| matches!(message, WorkerMessage::Evict(_, key) if key.user() == user);
            self.mailboxes.iter().flatten().any(evicts)
        };
        let is_limited = |key: Name| self.open_of_database(key.database()) >= self.database_limit(key).0;
        let waits = |(key, state): &(Name, ClientState)| {
            *state == ClientState::Queued
                && !self.pauses_of_pool.1.contains(key)
                && key.user() != from.user()
                && self.open_of_user(key.user()) == 0
                && !is_coming(key.user())
                && !is_limited(key)
                && self.open_of_user(from.user()) > self.user_limit(from).1
                && self.open_of_database(from.database()) > self.database_limit(from).1
                && !self.has_room(key)
                && !self.can_make_room(key)
        };
        self.pool.open() <= self.limit && self.clients.values().any(waits)
    }

    /// Connections above the limits: in all, of users, of databases.
    pub(super) fn surplus(&self) -> Vec<usize> {
        let mut surplus = vec![self.pool.open().saturating_sub(self.limit)];
        for key in KEYS {
            surplus.push(self.open_of_user(key.user()).saturating_sub(self.user_limit(key).0));
            surplus.push(self.open_of_database(key.database()).saturating_sub(self.database_limit(key).0));
        }
        surplus
    }
}

/// The maximum of connections, and those that are not closed for others.
fn limit_of(limit: Option<&GroupLimit>) -> (usize, usize) {
    let connections = limit.and_then(|limit| limit.connections);
    (connections.map_or(usize::MAX, NonZeroUsize::get), limit.map_or(0, |limit| limit.warm))
}
