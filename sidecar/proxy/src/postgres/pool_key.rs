//! Connections with the same key serve the same clients.

use crate::login_names::LoginNames;
use crate::protocol::PoolKey;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PostgresKey(LoginNames);

impl PostgresKey {
    pub(super) fn new(user: &str, database: &str) -> Self {
        Self(LoginNames::new(user, Some(database)))
    }
}

impl PoolKey for PostgresKey {
    fn user(&self) -> &str {
        self.0.user()
    }

    fn database(&self) -> &str {
        self.0.database().unwrap_or_default()
    }
}
