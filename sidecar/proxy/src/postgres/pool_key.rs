//! Connections with the same key serve the same clients.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::replication::Replication;
use super::startup_request::StartupParameters;
use crate::login_names::LoginNames;
use crate::protocol::PoolKey;

#[derive(Clone, Debug)]
pub struct PostgresKey {
    names: LoginNames,
    /// The startup message of the one client that such a connection serves; `None` for connections that are pooled.
    client: Option<Arc<StartupParameters>>,
}

impl PostgresKey {
    pub(super) fn new(user: &str, database: &str) -> Self {
        Self { names: LoginNames::new(user, Some(database)), client: None }
    }

    /// The key of a connection that serves only the client that has sent this message.
    pub(super) fn dedicated(self, client: &Arc<StartupParameters>) -> Self {
        Self { client: Some(Arc::clone(client)), ..self }
    }

    pub(super) fn client(&self) -> Option<&StartupParameters> {
        self.client.as_deref()
    }
}

impl PartialEq for PostgresKey {
    fn eq(&self, other: &Self) -> bool {
        let is_same_client = match (&self.client, &other.client) {
            (None, None) => true,
            // Two clients may have sent equal messages.
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        is_same_client && self.names == other.names
    }
}

impl Eq for PostgresKey {}

impl Hash for PostgresKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names.hash(state);
        if let Some(client) = &self.client {
            state.write_usize(Arc::as_ptr(client).addr());
        }
    }
}

impl PoolKey for PostgresKey {
    fn user(&self) -> &str {
        self.names.user()
    }

    fn database(&self) -> &str {
        self.names.database().unwrap_or_default()
    }

    fn is_dedicated(&self) -> bool {
        self.client.is_some()
    }

    fn replication(&self) -> Option<&'static str> {
        self.client.as_ref()?.replication.map(Replication::label)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use ciphertoll_wire::postgres::server::{Startup, read_startup};
    use ciphertoll_wire::postgres::startup::encode_startup;

    use super::*;
    use crate::settings::ReplicationAccess;

    #[test]
    fn a_dedicated_connection_is_for_one_client_even_if_another_sends_the_same_message() {
        let parameters = || {
            let mut bytes = Vec::new();
            encode_startup(&mut bytes, &[("user", "app"), ("replication", "1")]).unwrap();
            let Some(Startup::Login(message)) = read_startup(&mut bytes.as_slice()).unwrap() else {
                panic!()
            };
            Arc::new(StartupParameters::read_as(&message, ReplicationAccess::Allowed).unwrap())
        };
        let (one, other, hasher) = (parameters(), parameters(), RandomState::new());
        assert_eq!(one, other);
        let pooled = PostgresKey::new("app", "shop");
        let dedicated = pooled.clone().dedicated(&one);
        assert_eq!(dedicated, pooled.clone().dedicated(&one));
        assert_eq!(hasher.hash_one(&dedicated), hasher.hash_one(dedicated.clone()));
        assert_ne!(dedicated, pooled.clone().dedicated(&other));
        assert_ne!(dedicated, pooled);
        assert!(dedicated.is_dedicated() && !pooled.is_dedicated());
        assert_eq!((dedicated.replication(), pooled.replication()), (Some("physical"), None));
    }
}
