//! Settings of what clients may do: replication, and users that are not configured.

use std::sync::Arc;

use super::{Config, ConfigError};
use crate::credentials::AnyUserPasswords;
use crate::group_limits::ANY_USER;
use crate::settings::{AuthQuery, ClientAccess, DatabaseUser, ReplicationAccess, UnknownUsers};
use crate::url::{ProtocolKind, ServerUrl};

impl Config {
    pub(super) fn access(
        &self,
        server: &ServerUrl,
        users: &[DatabaseUser],
    ) -> Result<ClientAccess, ConfigError> {
        let replication = ReplicationAccess::of(self.replication.unwrap_or_default());
        if replication == ReplicationAccess::Allowed && server.protocol == ProtocolKind::MySql {
            return Err(ConfigError::ReplicationInMySql);
        }
        let unknown_users = match server.protocol {
            ProtocolKind::Postgres => self.auth_query(users)?,
            ProtocolKind::MySql => self.pass_through()?,
        };
        let unknown_users = match (self.any_user(server)?, &unknown_users) {
            (None, _) => unknown_users,
            (Some(passwords), UnknownUsers::Refused) => UnknownUsers::Command(passwords),
            (Some(_), UnknownUsers::AuthQuery(_)) => return Err(ConfigError::AnyUserTwice("auth-user")),
            (Some(_), _) => return Err(ConfigError::AnyUserTwice("pass-through-auth")),
        };
        // A server cannot be asked for its role on these connections.
        if replication == ReplicationAccess::Allowed && server.is_watched() {
            return Err(ConfigError::NeedsOneHost("replication"));
        }
        Ok(ClientAccess { replication, unknown_users })
    }

    fn any_user(&self, server: &ServerUrl) -> Result<Option<Arc<AnyUserPasswords>>, ConfigError> {
        let Some(section) = self.user.iter().find(|user| user.name == ANY_USER) else { return Ok(None) };
        let iterations = self.limits()?.scram_iterations;
        section.any_user(server, &self.hidden_variables(), iterations).map(Some)
    }

    fn pass_through(&self) -> Result<UnknownUsers, ConfigError> {
        if self.auth_user.is_some() || self.auth_query.is_some() {
            return Err(ConfigError::AuthQueryInMySql);
        }
        let is_on = self.pass_through_auth.unwrap_or_default();
        Ok(if is_on { UnknownUsers::PassThrough } else { UnknownUsers::Refused })
    }

    fn auth_query(&self, users: &[DatabaseUser]) -> Result<UnknownUsers, ConfigError> {
        if self.pass_through_auth == Some(true) {
            return Err(ConfigError::PassThroughInPostgres);
        }
        let query = self.auth_query.clone().unwrap_or_else(|| AuthQuery::DEFAULT.to_owned());
        match (&self.auth_user, &self.auth_query) {
            (None, None) => Ok(UnknownUsers::Refused),
            (None, Some(_)) => Err(ConfigError::AuthQueryWithoutUser),
            (Some(user), _) if !users.iter().any(|known| known.name == *user) => {
                Err(ConfigError::UnknownAuthUser(user.clone()))
            }
            (Some(user), _) if users.iter().any(|known| known.name == *user && known.command.is_some()) => {
                Err(ConfigError::AuthUserWithCommand(user.clone()))
            }
            _ if !query.contains("$1") => Err(ConfigError::AuthQueryWithoutName),
            (Some(user), _) => Ok(UnknownUsers::AuthQuery(AuthQuery { user: user.clone(), query })),
        }
    }

    /// With the defaults of these settings.
    pub(super) fn with_access(&self, access: &ClientAccess, protocol: ProtocolKind) -> Self {
        let replicates = access.replication == ReplicationAccess::Allowed;
        let query = match &access.unknown_users {
            UnknownUsers::AuthQuery(auth) => Some(auth.query.clone()),
            _ => None,
        };
        let passes_through = access.unknown_users == UnknownUsers::PassThrough;
        Self {
            replication: (protocol == ProtocolKind::Postgres).then_some(replicates),
            auth_query: query,
            pass_through_auth: (protocol == ProtocolKind::MySql).then_some(passes_through),
            ..self.clone()
        }
    }
}
