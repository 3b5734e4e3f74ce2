//! The limits of single users and databases, and the time limits of sessions.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::error::ConfigError;
use super::sections::DatabaseSection;
use super::{Config, UserSection};
use crate::duration::HumanDuration;
use crate::group_limits::{GroupLimit, GroupLimits};
use crate::session_times::{SessionTimes, TimeLimits};
use crate::settings::{DatabaseUser, Limits};
use crate::url::ProtocolKind;

impl UserSection {
    fn limit(&self) -> GroupLimit {
        let warm = self.min_pool_size.unwrap_or_default();
        GroupLimit { connections: self.pool_size, warm, clients: self.max_clients }
    }

    /// The group's own limits, and the general ones where it has none.
    fn times(&self, global: &TimeLimits) -> TimeLimits {
        TimeLimits {
            query: own_or(self.query_time, global.query),
            transaction: own_or(self.transaction_time, global.transaction),
            idle_transaction: own_or(self.idle_transaction_time, global.idle_transaction),
            idle: own_or(self.client_idle_time, global.idle),
        }
    }
}

impl DatabaseSection {
    fn limit(&self) -> GroupLimit {
        let warm = self.min_pool_size.unwrap_or_default();
        GroupLimit { connections: self.pool_size, warm, clients: self.max_clients }
    }
}

fn own_or(own: Option<HumanDuration>, global: Option<Duration>) -> Option<Duration> {
    // Zero: no limit.
    own.map_or(global, |own| Some(own.duration()).filter(|own| !own.is_zero()))
}

impl Config {
    pub(super) fn group_limits(&self) -> GroupLimits {
        let users = self.user.iter().map(|user| (user.name.clone(), user.limit()));
        let databases = self.database.iter().map(|database| (database.name.clone(), database.limit()));
        GroupLimits {
            users: users.filter(|(_, limit)| *limit != GroupLimit::default()).collect(),
            databases: databases.collect(),
        }
    }

    pub(super) fn session_times(&self) -> SessionTimes {
        let limits = &self.limits;
        let global = TimeLimits {
            query: own_or(limits.query_time, None),
            transaction: own_or(limits.transaction_time, None),
            idle_transaction: own_or(limits.idle_transaction_time, None),
            idle: own_or(limits.client_idle_time, None),
        };
        let users = self.user.iter().map(|user| (user.name.clone(), user.times(&global)));
        SessionTimes { global, users: users.filter(|(_, times)| *times != global).collect() }
    }

    /// Limits that cannot be kept together.
    pub(super) fn check_groups(
        &self,
        limits: &Limits,
        users: &[DatabaseUser],
        protocol: ProtocolKind,
    ) -> Result<(), ConfigError> {
        let mut names = HashSet::new();
        if let Some(duplicate) = self.database.iter().find(|database| !names.insert(&database.name)) {
            return Err(ConfigError::TwoDatabases(duplicate.name.clone()));
        }
        let groups = &limits.groups;
        let of_users = groups.users.iter().map(|(name, limit)| ("user", name, limit));
        let of_databases = groups.databases.iter().map(|(name, limit)| ("database", name, limit));
        for (kind, name, limit) in of_users.chain(of_databases) {
            if let Some(reason) = contradiction(limit, limits.server_connections) {
                return Err(ConfigError::Group { kind, name: name.clone(), reason });
            }
        }
        let is_default = |name: &str| users.iter().any(|user| user.default_database(protocol) == name);
        if let Some((name, _)) = groups.databases.iter().find(|(name, of)| of.warm > 0 && !is_default(name)) {
            let reason = "min-pool-size needs a user whose database it is".to_owned();
            return Err(ConfigError::Group { kind: "database", name: name.clone(), reason });
        }
        let kept = users.iter().map(|user| {
            let warm = groups.warm(&user.name, user.default_database(protocol));
            warm.max(limits.warm)
        });
        let (kept, limit) = (kept.sum(), limits.server_connections);
        if kept > limit { Err(ConfigError::MinPoolSizes { kept, limit }) } else { Ok(()) }
    }
}

/// Why a limit cannot be kept, if so.
fn contradiction(of: &GroupLimit, pool_size: usize) -> Option<String> {
    let own = of.connections.map_or(pool_size, NonZeroUsize::get);
    if own > pool_size {
        Some(format!("its pool-size, {own}, exceeds limits.pool-size, {pool_size}"))
    } else if of.warm > own {
        Some(format!("its min-pool-size, {}, exceeds the pool-size, {own}", of.warm))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
