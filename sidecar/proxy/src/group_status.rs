//! The status of users and databases that have limits.

use serde::{Deserialize, Serialize};

use crate::group_limits::GroupLimit;

/// Connections and clients of one user, or of one database, and the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    pub name: String,
    pub connections: usize,
    pub clients: usize,
    pub waiting: usize,
    /// `None`: no limit but the general one.
    pub pool_size: Option<usize>,
    pub min_pool_size: usize,
    pub max_clients: Option<usize>,
}

impl GroupStatus {
    pub(crate) fn new(name: &str, limit: &GroupLimit) -> Self {
        Self {
            name: name.to_owned(),
            pool_size: limit.connections.map(Into::into),
            min_pool_size: limit.warm,
            max_clients: limit.clients.map(Into::into),
            ..Self::default()
        }
    }

    /// Adds those of another worker.
    pub(crate) fn merge(own: &mut Vec<Self>, others: Vec<Self>) {
        for other in others {
            match own.iter_mut().find(|group| group.name == other.name) {
                Some(group) => {
                    group.connections += other.connections;
                    group.clients += other.clients;
                    group.waiting += other.waiting;
                }
                None => own.push(other),
            }
        }
    }

    /// One line of text. `kind` is `user` or `database`.
    pub(crate) fn line(&self, kind: &str) -> String {
        // A line end in a name must not start another line.
        let name = self.name.escape_debug();
        let of = |limit: Option<usize>| limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let (pool_size, max_clients) = (of(self.pool_size), of(self.max_clients));
        format!(
            "{kind:<20}{name}: {} connections{pool_size}, {} clients{max_clients}, {} waiting",
            self.connections, self.clients, self.waiting
        )
    }
}
