//! Settings of PostgreSQL's clients: replication, and users that are not configured.

use super::{Config, ConfigError};
use crate::settings::{AuthQuery, DatabaseUser, PostgresAccess, ReplicationAccess};
use crate::url::{ProtocolKind, ServerUrl};

impl Config {
    pub(super) fn access(
        &self,
        server: &ServerUrl,
        users: &[DatabaseUser],
    ) -> Result<PostgresAccess, ConfigError> {
        let protocol = server.protocol;
        let replication = ReplicationAccess::of(self.replication.unwrap_or_default());
        if replication == ReplicationAccess::Allowed && protocol == ProtocolKind::MySql {
            return Err(ConfigError::ReplicationInMySql);
        }
        // Neither asks a server for its role before it uses it.
        if replication == ReplicationAccess::Allowed && server.is_watched() {
            return Err(ConfigError::NeedsOneHost("replication"));
        }
        if self.auth_user.is_some() && server.is_watched() {
            return Err(ConfigError::NeedsOneHost("auth-user"));
        }
        Ok(PostgresAccess { replication, auth_query: self.auth_query(protocol, users)? })
    }

    /// The query for users that are not configured.
    fn auth_query(
        &self,
        protocol: ProtocolKind,
        users: &[DatabaseUser],
    ) -> Result<Option<AuthQuery>, ConfigError> {
        let query = self.auth_query.clone().unwrap_or_else(|| AuthQuery::DEFAULT.to_owned());
        match (&self.auth_user, &self.auth_query) {
            (None, None) => Ok(None),
            _ if protocol == ProtocolKind::MySql => Err(ConfigError::AuthQueryInMySql),
            (None, Some(_)) => Err(ConfigError::AuthQueryWithoutUser),
            (Some(user), _) if !users.iter().any(|known| known.name == *user) => {
                Err(ConfigError::UnknownAuthUser(user.clone()))
            }
            (Some(user), _) if users.iter().any(|known| known.name == *user && known.command.is_some()) => {
                Err(ConfigError::AuthUserWithCommand(user.clone()))
            }
            _ if !query.contains("$1") => Err(ConfigError::AuthQueryWithoutName),
            (Some(user), _) => Ok(Some(AuthQuery { user: user.clone(), query })),
        }
    }

    /// With the defaults of these settings.
    pub(super) fn with_access(&self, access: &PostgresAccess, protocol: ProtocolKind) -> Self {
        let replicates = access.replication == ReplicationAccess::Allowed;
        Self {
            replication: (protocol == ProtocolKind::Postgres).then_some(replicates),
            auth_query: access.auth_query.as_ref().map(|auth| auth.query.clone()),
            ..self.clone()
        }
    }
}
