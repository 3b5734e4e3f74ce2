//! What operators have told the proxy to do with databases: which are paused or disabled, and which connections must be
//! closed. Each worker has the latest state; the pool has the part of it that clients of all workers depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Names that operators can give: more are refused.
const MAX_NAMES: usize = 1024;

/// Why a connection is closed, in the log; see `metrics`.
pub(crate) const PAUSED: &str = "the database is paused";
pub(crate) const RECONNECT: &str = "an operator asked for new connections";
pub(crate) const KILLED: &str = "an operator has killed it";

/// One database, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Database(String),
}

impl Scope {
    pub(crate) fn covers(&self, database: &str) -> bool {
        match self {
            Self::All => true,
            Self::Database(name) => name == database,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    /// Grows with each change; 0 if there never was one.
    version: u64,
    paused: PausedNames,
    disabled: BTreeSet<String>,
    /// When new connections were asked for: older ones must be closed.
    reconnected: BTreeMap<String, Instant>,
    all_reconnected: Option<Instant>,
    /// When a database was last resumed.
    resumed: Option<Instant>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PausedNames {
    all: bool,
    some: BTreeSet<String>,
}

/// Why a change was refused, in the words of PgBouncer where it has any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperationError {
    #[error("already suspended/paused")]
    AlreadyPaused,
    #[error("pooler is not paused/suspended")]
    NotPaused,
    #[error("database {0} is not paused")]
    DatabaseNotPaused(String),
    #[error("database {0} is already paused")]
    DatabaseAlreadyPaused(String),
    #[error("too many databases were named")]
    TooManyNames,
}

impl Operations {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn is_paused(&self, database: &str) -> bool {
        self.paused.all || self.paused.some.contains(database)
    }

    pub(crate) fn is_all_paused(&self) -> bool {
        self.paused.all
    }

    /// Whether anything is paused.
    pub(crate) fn has_paused(&self) -> bool {
        self.paused.all || !self.paused.some.is_empty()
    }

    /// Whether clients are kept waiting or refused.
    pub(crate) fn has_restrictions(&self) -> bool {
        self.has_paused() || !self.disabled.is_empty()
    }

    /// Databases that were paused by name.
    pub(crate) fn paused_databases(&self) -> &BTreeSet<String> {
        &self.paused.some
    }

    pub(crate) fn disabled_databases(&self) -> &BTreeSet<String> {
        &self.disabled
    }

    pub(crate) fn is_disabled(&self, database: &str) -> bool {
        !self.disabled.is_empty() && self.disabled.contains(database)
    }

    /// Why a connection of this database must be closed when no client uses it; `None` if it need not.
    pub(crate) fn close_reason(&self, database: &str, opened_at: Instant) -> Option<&'static str> {
        if self.version == 0 {
            return None;
        }
        if self.is_paused(database) {
            return Some(PAUSED);
        }
        self.is_outdated(database, opened_at).then_some(RECONNECT)
    }

    /// Whether new connections were asked for after this one was opened.
    pub(crate) fn is_outdated(&self, database: &str, opened_at: Instant) -> bool {
        let named = self.reconnected.get(database).copied();
        self.all_reconnected.max(named).is_some_and(|since| opened_at <= since)
    }

    /// How long a client has waited for a connection, without the time for which its database was paused.
    pub(crate) fn counted_wait(&self, database: &str, since: Instant, now: Instant) -> Duration {
        if self.is_paused(database) {
            return Duration::ZERO;
        }
        now.duration_since(self.resumed.map_or(since, |resumed| resumed.max(since)))
    }

    pub(crate) fn pause(&mut self, scope: &Scope) -> Result<(), OperationError> {
        match scope {
            _ if self.paused.all => return Err(OperationError::AlreadyPaused),
            Scope::All => self.paused.all = true,
            Scope::Database(name) => {
                if self.paused.some.len() >= MAX_NAMES {
                    return Err(OperationError::TooManyNames);
                }
                if !self.paused.some.insert(name.clone()) {
                    return Err(OperationError::DatabaseAlreadyPaused(name.clone()));
                }
            }
        }
        self.version += 1;
        Ok(())
    }

    pub(crate) fn resume(&mut self, scope: &Scope, now: Instant) -> Result<(), OperationError> {
        match scope {
            Scope::All if !std::mem::take(&mut self.paused.all) => return Err(OperationError::NotPaused),
            Scope::Database(name) if !self.paused.some.remove(name) => {
                return Err(OperationError::DatabaseNotPaused(name.clone()));
            }
            Scope::All | Scope::Database(_) => {}
        }
        self.resumed = Some(now);
        self.version += 1;
        Ok(())
    }

    pub(crate) fn reconnect(&mut self, scope: &Scope, now: Instant) -> Result<(), OperationError> {
        match scope {
            Scope::All => {
                self.all_reconnected = Some(now);
                // It covers all that came before.
                self.reconnected.clear();
            }
            Scope::Database(_) if self.reconnected.len() >= MAX_NAMES => {
                return Err(OperationError::TooManyNames);
            }
            Scope::Database(name) => {
                self.reconnected.insert(name.clone(), now);
            }
        }
        self.version += 1;
        Ok(())
    }

    /// Refuses new clients of this database, or no longer.
    pub(crate) fn set_disabled(&mut self, name: &str, is_disabled: bool) -> Result<(), OperationError> {
        if is_disabled {
            if self.disabled.len() >= MAX_NAMES {
                return Err(OperationError::TooManyNames);
            }
            self.disabled.insert(name.to_owned());
        } else {
            self.disabled.remove(name);
        }
        self.version += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Scope {
        Scope::Database("shop".to_owned())
    }

    #[test]
    fn pauses_of_all_and_of_one_database_are_separate_and_are_not_repeated() {
        let (mut operations, now) = (Operations::default(), Instant::now());
        assert_eq!(operations.resume(&Scope::All, now), Err(OperationError::NotPaused));
        assert_eq!(operations.pause(&shop()), Ok(()));
        assert!(operations.is_paused("shop") && !operations.is_paused("till"));
        assert_eq!(operations.pause(&shop()), Err(OperationError::DatabaseAlreadyPaused("shop".to_owned())));
        assert_eq!(operations.pause(&Scope::All), Ok(()));
        for scope in [Scope::All, shop()] {
            assert_eq!(operations.pause(&scope), Err(OperationError::AlreadyPaused));
        }
        assert_eq!(operations.resume(&Scope::All, now), Ok(()));
        assert!(operations.is_paused("shop") && !operations.is_paused("till") && operations.has_paused());
        assert_eq!(operations.resume(&shop(), now), Ok(()));
        assert_eq!(
            operations.resume(&shop(), now),
            Err(OperationError::DatabaseNotPaused("shop".to_owned()))
        );
        assert!(!operations.has_paused());
    }

    #[test]
    fn connections_from_before_a_reconnect_must_be_closed_and_later_ones_need_not() {
        let (mut operations, before) = (Operations::default(), Instant::now());
        let now = before + Duration::from_secs(1);
        let later = now + Duration::from_secs(1);
        operations.reconnect(&shop(), now).unwrap();
        assert_eq!(operations.close_reason("shop", before), Some(RECONNECT));
        assert_eq!(operations.close_reason("shop", later), None);
        assert_eq!(operations.close_reason("till", before), None);
        operations.reconnect(&Scope::All, later).unwrap();
        for database in ["shop", "till"] {
            assert_eq!(operations.close_reason(database, later), Some(RECONNECT));
            assert_eq!(operations.close_reason(database, later + Duration::from_nanos(1)), None);
        }
        operations.pause(&shop()).unwrap();
        assert_eq!(operations.close_reason("shop", later + Duration::from_secs(1)), Some(PAUSED));
    }

    #[test]
    fn the_time_of_a_pause_does_not_count_as_waiting() {
        let (mut operations, since) = (Operations::default(), Instant::now());
        let at = |seconds| since + Duration::from_secs(seconds);
        assert_eq!(operations.counted_wait("shop", since, at(9)), Duration::from_secs(9));
        operations.pause(&Scope::All).unwrap();
        assert_eq!(operations.counted_wait("shop", since, at(60)), Duration::ZERO);
        operations.resume(&Scope::All, at(60)).unwrap();
        assert_eq!(operations.counted_wait("shop", since, at(61)), Duration::from_secs(1));
        assert_eq!(operations.counted_wait("shop", at(61), at(63)), Duration::from_secs(2));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let (mut operations, now) = (Operations::default(), Instant::now());
        for number in 0..MAX_NAMES {
            let scope = Scope::Database(number.to_string());
            operations.pause(&scope).unwrap();
            operations.reconnect(&scope, now).unwrap();
            operations.set_disabled(&number.to_string(), true).unwrap();
        }
        assert_eq!(operations.pause(&shop()), Err(OperationError::TooManyNames));
        assert_eq!(operations.reconnect(&shop(), now), Err(OperationError::TooManyNames));
        assert_eq!(operations.set_disabled("shop", true), Err(OperationError::TooManyNames));
        assert_eq!(operations.reconnect(&Scope::All, now), Ok(()));
    }
}
