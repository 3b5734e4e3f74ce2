//! The tables of the configuration file: limits, log, console, users.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use ciphertoll_wire::Secret;
use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use crate::console_rules::{ConsoleRules, OwnUid};
use crate::duration::HumanDuration;
use crate::log::{Format, Level};
use crate::password::{PasswordSource, find_in_password_file, find_password, read_password};
use crate::settings::Limits;
use crate::url::{ProtocolKind, ServerUrl};

/// Limits of size and time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Maximum number of server connections, over all users and databases.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    #[arg(help = "Maximum number of server connections, over all databases [default: 20]")]
    pub pool_size: Option<NonZeroUsize>,
    /// Maximum number of clients.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    #[arg(help = "Maximum number of clients [default: 10000]")]
    pub max_clients: Option<NonZeroUsize>,
    /// Maximum number of clients that wait for a server connection.
    #[arg(long, value_name = "N")]
    #[arg(
        help = "Maximum number of clients that wait for a server connection [default: the value of max-clients]"
    )]
    pub queue_limit: Option<usize>,
    /// How long a client waits for a server connection.
    #[arg(long, value_name = "TIME")]
    #[arg(help = "How long a client waits for a server connection: 500ms, 30s, 2m, or a number of seconds \
                [default: 30s]")]
    pub queue_time: Option<HumanDuration>,
    /// Time limit for a client's login.
    #[arg(skip)]
    pub login_time: Option<HumanDuration>,
    /// Time limit for opening a server connection.
    #[arg(long, value_name = "TIME", help = "Time limit for opening a server connection [default: 10s]")]
    pub connect_time: Option<HumanDuration>,
    /// Time limit for a reset, a health check or a cancel request.
    #[arg(skip)]
    pub reset_time: Option<HumanDuration>,
    /// A server connection that has been idle for this long is closed.
    #[arg(long, value_name = "TIME")]
    #[arg(help = "Close a server connection that has been idle for this long [default: 10m]")]
    pub idle_time: Option<HumanDuration>,
    /// Maximum age of a server connection when it is handed to another client.
    #[arg(long, value_name = "TIME")]
    #[arg(help = "Maximum age of a server connection when it is handed to another client [default: 1h]")]
    pub max_age: Option<HumanDuration>,
    /// How long clients have to disconnect when the proxy stops.
    #[arg(long, value_name = "TIME", display_order = 24)]
    #[arg(
        help = "How long clients have to disconnect after SIGTERM or SIGINT; a second signal stops at once \
                [default: 30s]"
    )]
    pub drain_time: Option<HumanDuration>,
    /// Maximum number of SCRAM iterations that the server may require (PostgreSQL). A server that requires
    /// more is refused.
    #[arg(skip)]
    pub max_scram_iterations: Option<NonZeroU32>,
    /// Time limit for a command: then the server is asked to cancel it.
    #[arg(long, value_name = "TIME", display_order = 17)]
    #[arg(help = "Cancel a command that takes longer than this [default: no limit]")]
    pub query_time: Option<HumanDuration>,
    /// Time limit for a transaction: then its client is disconnected.
    #[arg(long, value_name = "TIME", display_order = 17)]
    #[arg(help = "Disconnect a client whose transaction takes longer than this [default: no limit]")]
    pub transaction_time: Option<HumanDuration>,
    /// Time limit between two commands of a transaction: then the client is disconnected.
    #[arg(long, value_name = "TIME", display_order = 17)]
    #[arg(help = "Disconnect a client that is idle in a transaction for this long [default: no limit]")]
    pub idle_transaction_time: Option<HumanDuration>,
    /// Time limit between two commands outside of a transaction: then the client is disconnected.
    #[arg(long, value_name = "TIME", display_order = 17)]
    #[arg(
        help = "Disconnect a client that is idle outside of a transaction for this long [default: no limit]"
    )]
    pub client_idle_time: Option<HumanDuration>,
    /// Has no effect: all threads serve clients.
    #[arg(long, value_name = "PERCENT", hide = true)]
    #[schemars(extend("deprecated" = true))]
    pub thread_load: Option<u8>,
}

/// Logging.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LogSection {
    /// Minimum level of events.
    #[arg(id = "log", long = "log", value_name = "LEVEL")]
    #[arg(help = "Minimum level of log events, written to stderr [default: info]")]
    pub level: Option<Level>,
    /// Output format.
    #[arg(
        id = "log_format",
        long = "log-format",
        value_name = "FORMAT",
        help = "Log format [default: text]"
    )]
    pub format: Option<Format>,
}

/// The console, with PgBouncer's commands. It is off without this table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConsoleSection {
    /// Users who may use all commands in the database `pgbouncer` (PostgreSQL). They authenticate like other clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admin_users: Vec<String>,
    /// Users who may use `SHOW` there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stats_users: Vec<String>,
    /// Whether a client of the unix socket with the proxy's own UID may use all commands there as the user
    /// `pgbouncer`, without a password.
    pub own_uid: bool,
}

impl ConsoleSection {
    pub(super) fn rules(&self) -> ConsoleRules {
        ConsoleRules {
            admin_users: self.admin_users.clone(),
            stats_users: self.stats_users.clone(),
            own_uid: if self.own_uid { OwnUid::IsAdmin } else { OwnUid::NotSpecial },
        }
    }
}

/// A database user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct UserSection {
    /// Name of the role; `*` for every user that the settings do not name, whose password its command prints.
    pub name: String,
    /// Database of clients that name none; the one in the server's URL if absent.
    #[serde(default)]
    pub database: Option<String>,
    /// File whose whole content is the password; a relative path starts at the directory of the configuration
    /// file.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Environment variable that holds the password.
    #[serde(default)]
    pub password_env: Option<String>,
    /// Program and arguments that print the password, or a JSON object with it and its expiry; no shell. `%u`, `%h`, `%p`
    /// and `%d` are the user, host, port and database, `%%` is a percent sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub password_command: Vec<String>,
    /// How long a password of the command is valid.
    #[serde(default)]
    pub password_lifetime: Option<HumanDuration>,
    /// Time limit for the command; 10s if absent.
    #[serde(default)]
    pub password_command_time: Option<HumanDuration>,
    /// Maximum number of server connections of this user.
    #[serde(default)]
    pub pool_size: Option<NonZeroUsize>,
    /// Server connections to its default database that are opened in advance, and not closed for other users.
    #[serde(default)]
    pub min_pool_size: Option<usize>,
    /// Maximum number of clients of this user.
    #[serde(default)]
    pub max_clients: Option<NonZeroUsize>,
    /// `limits.query-time` of this user.
    #[serde(default)]
    pub query_time: Option<HumanDuration>,
    /// `limits.transaction-time` of this user.
    #[serde(default)]
    pub transaction_time: Option<HumanDuration>,
    /// `limits.idle-transaction-time` of this user.
    #[serde(default)]
    pub idle_transaction_time: Option<HumanDuration>,
    /// `limits.client-idle-time` of this user.
    #[serde(default)]
    pub client_idle_time: Option<HumanDuration>,
}

/// A database that has limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DatabaseSection {
    /// Name of the database.
    pub name: String,
    /// Maximum number of server connections to it.
    #[serde(default)]
    pub pool_size: Option<NonZeroUsize>,
    /// Server connections of each user with this default database that are opened in advance, and not closed for other
    /// databases.
    #[serde(default)]
    pub min_pool_size: Option<usize>,
    /// Maximum number of its clients.
    #[serde(default)]
    pub max_clients: Option<NonZeroUsize>,
}

impl LimitsSection {
    pub(super) fn of(limits: &Limits, protocol: ProtocolKind) -> Self {
        let iterations = match protocol {
            ProtocolKind::Postgres => NonZeroU32::new(limits.scram_iterations),
            ProtocolKind::MySql => None,
        };
        // Zero: no limit.
        let time = |limit: Option<Duration>| Some(limit.unwrap_or_default().into());
        Self {
            pool_size: NonZeroUsize::new(limits.server_connections),
            max_clients: NonZeroUsize::new(limits.clients),
            queue_limit: Some(limits.queued),
            queue_time: Some(limits.queue.into()),
            login_time: Some(limits.login.into()),
            connect_time: Some(limits.connect.into()),
            reset_time: Some(limits.reset.into()),
            idle_time: Some(limits.idle.into()),
            max_age: Some(limits.age.into()),
            drain_time: Some(limits.drain.into()),
            max_scram_iterations: iterations,
            query_time: time(limits.times.global.query),
            transaction_time: time(limits.times.global.transaction),
            idle_transaction_time: time(limits.times.global.idle_transaction),
            client_idle_time: time(limits.times.global.idle),
            thread_load: None,
        }
    }
}

impl UserSection {
    /// `None` if no password was found.
    pub(super) fn password(&self, server: &ServerUrl) -> Result<Option<Secret>, ConfigError> {
        let source = match (&self.password_file, &self.password_env) {
            (Some(_), Some(_)) => return Err(ConfigError::SeveralPasswords(self.name.clone())),
            (Some(file), None) => Some(PasswordSource::File(file.clone())),
            (None, Some(variable)) => Some(PasswordSource::Variable(variable.clone())),
            (None, None) => None,
        };
        Ok(match source {
            Some(source) => Some(read_password(&source)?),
            None if self.name == server.user => find_password(server)?,
            None => {
                let (user, database) = (self.name.clone(), self.database_at(server));
                find_in_password_file(&ServerUrl { user, database, ..server.clone() })?
            }
        })
    }

    pub(super) fn database_at(&self, server: &ServerUrl) -> Option<String> {
        self.database.clone().or_else(|| server.database.clone())
    }
}

pub(super) fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number of at least 1".to_owned())
}
