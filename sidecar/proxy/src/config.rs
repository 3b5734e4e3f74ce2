//! The configuration: file and flags, and the settings they resolve to.

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ciphertoll_net::tls::{AcceptorSettings, Group, Identity};
use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::DIRECT_TLS_ALPN;
use ciphertoll_wire::scram::MAX_ITERATIONS;
use clap::Args;
use nix::unistd::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::console_rules::ConsoleRules;
use crate::credentials::PasswordCell;
use crate::duration::HumanDuration;
use crate::group_limits::ANY_USER;
use crate::log::Log;
use crate::password::searched;
use crate::postgres::CredentialStore;
use crate::protocol::{Pooling, ResetPolicy};
use crate::settings::{
    AllowedUids, DatabaseUser, Limits, ListenAddress, MAX_THREADS, ScramIterations, Settings, UnixAuth,
    UpstreamTlsLibrary,
};
use crate::upstream::{default_groups, has_group};
use crate::url::{ProtocolKind, ServerUrl, UpstreamEncryption};

pub use error::ConfigError;
pub use schema::json_schema;
use sections::at_least_one;
pub use sections::{ConsoleSection, DatabaseSection, LimitsSection, LogSection, UserSection};
pub use servers::{ConfigFile, ResolvedServer, ResolvedServers, ServerName};

/// MySQL clients offer no ALPN; a client that offers another protocol is refused.
const MYSQL_ALPN: &[u8] = b"mysql";
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// Resolvers are shared with other programs.
const MIN_DNS_TIME: Duration = Duration::from_secs(1);
/// Minimum similarity of a key that is suggested for an unknown one.
const MIN_SIMILARITY: f64 = 0.7;

/// Settings as written in a file or by flags; a setting that is not given is absent.
// `display_order` keeps related flags together in `--help`, across the sections of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// Addresses for clients, one or a list: `unix:/PATH/.s.PGSQL.6432`, or `tcp:127.0.0.1:6432`, where
    /// clients must know the password.
    #[serde(with = "listen_addresses")]
    #[schemars(with = "listen_addresses::OneOrMore")]
    #[arg(long, value_name = "ADDRESS", required_unless_present = "config")]
    #[arg(help = "Address for clients: unix:/PATH/.s.PGSQL.6432 (PostgreSQL: libpq expects this name), \
                unix:/PATH/mysqld.sock (MySQL, MariaDB: any name), or tcp:127.0.0.1:6432, where clients must \
                know the password (may be repeated)")]
    pub listen: Vec<ListenAddress>,
    /// URL of the server: `postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE`.
    // Parsed later: clap would print an invalid value, which may contain a password.
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    #[arg(help = "URL of the server: postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE, or mysql:// or \
                mariadb://…?ssl-ca=FILE. The server's certificate and host name are verified unless sslmode \
                (ssl-mode) says otherwise")]
    pub server: Option<String>,
    /// Key exchange groups that are offered to the server, the preferred one first: `x25519mlkem768`,
    /// `secp256r1mlkem768`, `mlkem768`, `secp384r1mlkem1024`, `mlkem1024`, `x25519`, `p256`, `p384`, `p521`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = group, display_order = 2)]
    #[arg(
        help = "Key exchange groups that are offered to the server, the preferred one first: x25519mlkem768, \
                secp256r1mlkem768, mlkem768, secp384r1mlkem1024, mlkem1024, x25519, p256, p384, p521 [default: \
                x25519mlkem768 if the library has it, then p256, x25519, p384, and OpenSSL's p521]"
    )]
    pub tls_groups: Vec<Group>,
    /// Library that encrypts connections to the server: `rustls`, or `openssl`, the system's. OpenSSL verifies the
    /// server's certificate in any case.
    #[arg(
        long,
        value_name = "LIBRARY",
        display_order = 2,
        help = "Library that encrypts connections to the server [default: rustls, or openssl if only it has one \
                of the --tls-groups]"
    )]
    pub tls_library: Option<UpstreamTlsLibrary>,
    /// Certificate (PEM file) for TCP clients: they must then use TLS, and may connect from other machines.
    #[arg(long, value_name = "FILE")]
    #[arg(
        help = "Certificate (PEM) for TCP clients; they must then use TLS, and may connect from other machines"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Private key of `tls-cert`.
    #[arg(long, value_name = "FILE", help = "Private key of that certificate")]
    pub tls_key: Option<PathBuf>,
    /// CA file for client certificates: each client must present one issued to its user name, and needs no
    /// password.
    #[arg(long, value_name = "FILE")]
    #[arg(
        help = "CA file for client certificates: each client must present one issued to its user name, and \
                needs no password"
    )]
    pub tls_client_ca: Option<PathBuf>,
    /// Address for status and metrics over HTTP: `unix:/PATH` or `tcp:127.0.0.1:PORT`.
    #[arg(long, value_name = "ADDRESS", display_order = 12)]
    #[arg(help = "Address for status and metrics over HTTP: unix:/PATH or tcp:127.0.0.1:PORT")]
    pub admin: Option<ListenAddress>,
    /// How long a client keeps a server connection: until it disconnects, or until its transaction ends.
    #[arg(
        long,
        value_name = "MODE",
        help = "How long a client keeps a server connection [default: session]"
    )]
    pub mode: Option<Pooling>,
    /// When a server connection is reset between two clients. For PostgreSQL, `tracked` needs the mode `transaction`.
    #[arg(
        long,
        value_name = "POLICY",
        help = "When a server connection is reset between two clients; tracked: not after plain data access \
                (PostgreSQL: --mode transaction only) [default: always]"
    )]
    pub reset: Option<ResetPolicy>,
    /// Whether clients may open replication connections (PostgreSQL): `pg_basebackup`, `pg_receivewal`,
    /// logical subscribers. Each has a server connection of its own.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[arg(help = "Let clients open replication connections, each with a server connection of its own \
                (PostgreSQL) [default: false]")]
    pub replication: Option<bool>,
    /// Number of worker threads. Each uses at most one CPU.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    #[arg(help = "Number of worker threads; more than one helps only if one CPU is not enough [default: 1]")]
    pub threads: Option<NonZeroUsize>,
    /// UIDs allowed to connect over the unix socket, in addition to the proxy's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "UID")]
    #[arg(
        help = "UID allowed to connect over the unix socket, in addition to the proxy's own (may be repeated)"
    )]
    pub allow_uid: Vec<u32>,
    /// How clients authenticate on the unix socket.
    #[arg(long, value_name = "METHOD", help = "How clients authenticate on the unix socket [default: peer]")]
    pub unix_auth: Option<UnixAuth>,
    /// SCRAM iterations that clients must compute: at least 4096, or at least 1 if all clients use unix
    /// sockets.
    #[arg(skip)]
    pub scram_iterations: Option<NonZeroU32>,
    /// The configured user whose login asks the server for the secrets of users that are not configured (PostgreSQL). They
    /// then log in with the password that the server has for them. Without it they are refused.
    #[arg(skip)]
    pub auth_user: Option<String>,
    /// The query for a user's name and secret; `$1` is the name.
    #[arg(skip)]
    pub auth_query: Option<String>,
    /// Whether users that are not configured log in with the password that the server has for them (MySQL and MariaDB).
    /// Their clients send it over TLS or a unix socket, and the server is asked whether it is right.
    #[arg(skip)]
    pub pass_through_auth: Option<bool>,
    /// Server connections of each user, to its default database, that are opened in advance and kept open.
    #[arg(long, value_name = "N", display_order = 16)]
    #[arg(help = "Server connections of each user that are opened in advance and kept open [default: 0]")]
    pub warm_up: Option<usize>,
    /// A server connection that has been idle for this long is checked; 0 disables the check.
    #[arg(long, value_name = "TIME", display_order = 23)]
    #[arg(
        help = "Check a server connection that has been idle for this long; 0 disables the check [default: 30s]"
    )]
    pub health_time: Option<HumanDuration>,
    /// How often certificates, keys and authorities are looked at, which take effect if they were replaced; 0: only at a
    /// reload.
    #[arg(long, value_name = "TIME", display_order = 23)]
    #[arg(
        help = "How often to look whether certificates, keys and authorities were replaced on disk; 0 reads them only \
                at a reload [default: 0s]"
    )]
    pub watch_files: Option<HumanDuration>,
    /// How often the names of the server's hosts are resolved again. If it is set, or if the URL names several hosts, also
    /// while no connections are opened, and connections to addresses that a name has lost are closed when they are idle.
    #[arg(long, value_name = "TIME", display_order = 23)]
    #[arg(
        help = "How often the names of the server's hosts are resolved again [default: 5s]; if it is set, also \
                while no connections are opened"
    )]
    pub dns_time: Option<HumanDuration>,
    /// Limits of size and time.
    #[command(flatten)]
    pub limits: LimitsSection,
    /// Logging to stderr.
    #[command(flatten)]
    pub log: LogSection,
    /// The console: absent if it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(skip)]
    pub console: Option<ConsoleSection>,
    /// Users in addition to the one in the server's URL, and the sources of passwords.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(skip)]
    pub user: Vec<UserSection>,
    /// Databases that have limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(skip)]
    pub database: Vec<DatabaseSection>,
    /// Variables that hold passwords of other servers of the process.
    #[serde(skip)]
    #[arg(skip)]
    pub(crate) hidden: Vec<String>,
}

/// A configuration after defaults and checks.
pub struct Resolved {
    pub settings: Settings,
    pub admin: Option<ListenAddress>,
    pub log: Log,
    /// The configuration with all defaults filled in.
    pub effective: Config,
    /// Users without a password although the server may ask for one. An empty password that is
    /// configured counts as found.
    pub without_password: Vec<MissingPassword>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no password found for \"{user}\"; {searched}; if the server needs no password, set an empty one")]
pub struct MissingPassword {
    pub user: String,
    searched: &'static str,
}

impl Config {
    /// Relative paths of password files start at this directory.
    fn start_paths_at(&mut self, directory: &Path) {
        for file in self.user.iter_mut().filter_map(|user| user.password_file.as_mut()) {
            *file = directory.join(&*file);
        }
    }

    /// Parses TOML. An error is one line.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let reason = suggest_key(error.message()).unwrap_or_else(|| error.message().replace('\n', " "));
            match error.span() {
                Some(span) => {
                    let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                    format!("line {line}: {reason}")
                }
                None => reason,
            }
        })
    }

    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Applies defaults and checks the settings against each other. Reads passwords, and no other files.
    pub fn resolve(&self) -> Result<Resolved, ConfigError> {
        let listen = self.listen.clone();
        if listen.is_empty() {
            return Err(ConfigError::Missing("listen"));
        }
        let text = self.server.as_ref().ok_or(ConfigError::Missing("server"))?;
        let server: ServerUrl = text.parse()?;
        self.check_scram(server.protocol)?;
        let console = self.console_rules(server.protocol)?;
        let (users, without_password) = self.users(&server)?;
        let access = self.access(&server, &users)?;
        let limits = self.limits_of(&users)?;
        if limits.warm.saturating_mul(users.len()) > limits.server_connections {
            let (warm, users, limit) = (limits.warm, users.len(), limits.server_connections);
            return Err(ConfigError::WarmUp { warm, users, limit });
        }
        self.check_groups(&limits, &users, server.protocol)?;
        let (pooling, reset) = self.pooling(server.protocol)?;
        let unix_auth = self.unix_auth.unwrap_or_default();
        let iterations = self.iterations(&listen)?;
        let tls = self.tls(&listen, server.protocol)?;
        let threads = self.threads.unwrap_or(NonZeroUsize::MIN);
        if threads.get() > MAX_THREADS {
            return Err(ConfigError::Threads(threads.get()));
        }
        if let Some(admin) = self.admin.clone().filter(|admin| !admin.is_local()) {
            return Err(ConfigError::AdminNotLoopback(admin));
        }
        let tls_library = self.upstream_tls_library(&server)?;
        let groups = self.groups(&server, tls_library)?;
        let allowed_uids = self.uids(unix_auth);
        let (level, format) = (self.log.level.unwrap_or_default(), self.log.format.unwrap_or_default());
        let effective = Self {
            tls_groups: groups.clone(),
            tls_library: Some(tls_library).filter(|_| !groups.is_empty()),
            mode: Some(pooling),
            reset: Some(reset),
            threads: Some(threads),
            unix_auth: Some(unix_auth),
            warm_up: Some(limits.warm),
            health_time: Some(limits.health.into()),
            watch_files: Some(self.watch_files.unwrap_or_else(|| Duration::ZERO.into())),
            dns_time: limits.dns.map(Into::into),
            limits: LimitsSection {
                thread_load: self.limits.thread_load,
                ..LimitsSection::of(&limits, server.protocol)
            },
            log: LogSection { level: Some(level), format: Some(format) },
            ..self.with_access(&access, server.protocol)
        };
        let settings = Settings {
            listen,
            server,
            groups,
            tls_library,
            users,
            allowed_uids,
            unix_auth,
            tls,
            iterations,
            pooling,
            reset,
            access,
            threads,
            limits,
            console,
            watch_files: self.watched_interval()?,
        };
        password_command::check_clients(&settings)?;
        let (admin, log) = (self.admin.clone(), Log::new(level, format));
        Ok(Resolved { settings, admin, log, effective, without_password })
    }

    /// The limits, with those of any user for users that are not configured only.
    fn limits_of(&self, users: &[DatabaseUser]) -> Result<Limits, ConfigError> {
        let mut limits = self.limits()?;
        limits.groups.exempt(users.iter().map(|user| user.name.as_str()));
        limits.times.exempt(users.iter().map(|user| user.name.as_str()));
        Ok(limits)
    }

    fn pooling(&self, protocol: ProtocolKind) -> Result<(Pooling, ResetPolicy), ConfigError> {
        let (pooling, reset) = (self.mode.unwrap_or_default(), self.reset.unwrap_or_default());
        match (reset, pooling, protocol) {
            (ResetPolicy::Tracked, Pooling::Session, ProtocolKind::Postgres) => {
                Err(ConfigError::TrackedReset)
            }
            _ => Ok((pooling, reset)),
        }
    }

    /// A library that is not named has all groups that are.
    fn upstream_tls_library(&self, server: &ServerUrl) -> Result<UpstreamTlsLibrary, ConfigError> {
        let lacks = |library| self.tls_groups.iter().any(|group| !has_group(library, *group));
        match (self.tls_library, &server.encryption) {
            (Some(_), UpstreamEncryption::None) => Err(ConfigError::LibraryWithoutTls),
            (Some(library), UpstreamEncryption::Tls { .. }) => Ok(library),
            (None, _) if lacks(UpstreamTlsLibrary::Rustls) => Ok(UpstreamTlsLibrary::OpenSsl),
            (None, _) => Ok(UpstreamTlsLibrary::Rustls),
        }
    }

    /// The groups that are offered to the server; none without TLS.
    fn groups(&self, server: &ServerUrl, library: UpstreamTlsLibrary) -> Result<Vec<Group>, ConfigError> {
        match (&server.encryption, self.tls_groups.as_slice()) {
            (UpstreamEncryption::None, []) => Ok(Vec::new()),
            (UpstreamEncryption::None, _) => Err(ConfigError::GroupsWithoutTls),
            (UpstreamEncryption::Tls { .. }, []) => Ok(default_groups(library)),
            (UpstreamEncryption::Tls { .. }, groups) => Ok(groups.to_vec()),
        }
    }

    /// The proxy's own UID and those configured. If clients must know a password and no UID is configured:
    /// any UID.
    fn uids(&self, unix_auth: UnixAuth) -> AllowedUids {
        if unix_auth != UnixAuth::Peer && self.allow_uid.is_empty() {
            return AllowedUids::All;
        }
        let ours = std::iter::once(geteuid().as_raw());
        AllowedUids::Only(self.allow_uid.iter().copied().chain(ours).collect())
    }

    /// A listen address that is not loopback requires TLS.
    fn tls(
        &self,
        listen: &[ListenAddress],
        protocol: ProtocolKind,
    ) -> Result<Option<AcceptorSettings>, ConfigError> {
        let (certificate, key) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (None, None) if self.tls_client_ca.is_none() => {
                let exposed = listen.iter().find(|address| !address.is_local());
                return exposed.map_or(Ok(None), |address| Err(ConfigError::NotLoopback(address.clone())));
            }
            _ => return Err(ConfigError::IncompleteTls),
        };
        if !listen.iter().any(|address| matches!(address, ListenAddress::Tcp(_))) {
            return Err(ConfigError::TlsWithoutTcp);
        }
        let identity = Identity { certificate_file: certificate, key_file: key };
        let protocol = match protocol {
            ProtocolKind::Postgres => DIRECT_TLS_ALPN,
            ProtocolKind::MySql => MYSQL_ALPN,
        };
        Ok(Some(AcceptorSettings { identity, clients: self.tls_client_ca.clone(), protocol }))
    }

    /// SCRAM settings apply to PostgreSQL only.
    fn check_scram(&self, protocol: ProtocolKind) -> Result<(), ConfigError> {
        let most = self.limits.max_scram_iterations.map(NonZeroU32::get);
        match (protocol, self.scram_iterations, most) {
            (ProtocolKind::MySql, Some(_), _) => Err(ConfigError::NotScram("scram-iterations")),
            (ProtocolKind::MySql, None, Some(_)) => Err(ConfigError::NotScram("limits.max-scram-iterations")),
            (ProtocolKind::Postgres, _, Some(value)) if value > MAX_ITERATIONS => {
                Err(ConfigError::MaxIterations(value))
            }
            _ => Ok(()),
        }
    }

    /// Other users cannot read a unix socket's traffic, so one iteration is enough there. On TCP, drivers
    /// expect the usual number.
    fn iterations(&self, listen: &[ListenAddress]) -> Result<ScramIterations, ConfigError> {
        let by_tcp = listen.iter().any(|address| matches!(address, ListenAddress::Tcp(_)));
        let min = if by_tcp { CredentialStore::DEFAULT_ITERATIONS } else { 1 };
        match self.scram_iterations.map(NonZeroU32::get) {
            None => Ok(ScramIterations { by_unix: 1, by_tcp: CredentialStore::DEFAULT_ITERATIONS }),
            Some(value) if (min..=MAX_ITERATIONS).contains(&value) => {
                Ok(ScramIterations { by_unix: value, by_tcp: value })
            }
            Some(value) => Err(ConfigError::Iterations { value, min }),
        }
    }

    /// The users, and those without a password although the server may ask for one.
    fn users(&self, server: &ServerUrl) -> Result<(Vec<DatabaseUser>, Vec<MissingPassword>), ConfigError> {
        let mut names = HashSet::new();
        if let Some(duplicate) = self.user.iter().find(|user| !names.insert(&user.name)) {
            return Err(ConfigError::TwoUsers(duplicate.name.clone()));
        }
        if server.user == ANY_USER {
            return Err(ConfigError::AnyUserInUrl);
        }
        let own = self.user.iter().find(|user| user.name == server.user).cloned();
        let own = own.unwrap_or_else(|| UserSection { name: server.user.clone(), ..UserSection::default() });
        let others = self.user.iter().filter(|user| user.name != server.user && user.name != ANY_USER);
        let (mut users, mut missing) = (Vec::new(), Vec::new());
        for user in std::iter::once(&own).chain(others) {
            let command = user.command(server, &self.hidden_variables(), self.limits()?.scram_iterations)?;
            let none = || Secret::new(Vec::new());
            let command = command.map(|of_all| Arc::new(PasswordCell::new(of_all.for_user(&user.name))));
            let password = if command.is_some() { Some(none()) } else { user.password(server)? };
            if password.is_none() && server.may_ask_for_password() {
                let searched = searched(server.protocol, user.name == server.user);
                missing.push(MissingPassword { user: user.name.clone(), searched });
            }
            let password = password.unwrap_or_else(none);
            users.push(DatabaseUser {
                name: user.name.clone(),
                database: user.database_at(server),
                password,
                command,
            });
        }
        Ok((users, missing))
    }

    fn console_rules(&self, protocol: ProtocolKind) -> Result<Option<ConsoleRules>, ConfigError> {
        let Some(section) = &self.console else { return Ok(None) };
        let rules = section.rules();
        let by_listener = rules != ConsoleRules::default();
        match protocol {
            ProtocolKind::MySql if by_listener => Err(ConfigError::ConsoleUsersInMySql),
            _ if !by_listener && self.admin.is_none() => Err(ConfigError::ConsoleUnreachable),
            _ => Ok(Some(rules)),
        }
    }

    /// Variables that hold passwords, which no command inherits: also those of the process's other servers.
    fn hidden_variables(&self) -> Vec<String> {
        let own = self.user.iter().filter_map(|user| user.password_env.clone());
        own.chain(self.hidden.iter().cloned()).collect()
    }

    fn watched_interval(&self) -> Result<Duration, ConfigError> {
        match self.watch_files {
            None => Ok(Duration::ZERO),
            Some(time) if time.duration().is_zero() || time.duration() >= SHORTEST_WATCH => {
                Ok(time.duration())
            }
            Some(time) => Err(ConfigError::WatchFiles(time)),
        }
    }

    fn limits(&self) -> Result<Limits, ConfigError> {
        let (value, default) = (&self.limits, Limits::default());
        let number = |value: Option<NonZeroUsize>, default: usize| value.map_or(default, NonZeroUsize::get);
        let time = |value: Option<HumanDuration>, default| value.map_or(default, HumanDuration::duration);
        let clients = number(value.max_clients, default.clients);
        let dns = self.dns_time.map(HumanDuration::duration);
        if let Some(dns) = dns.filter(|dns| *dns < MIN_DNS_TIME) {
            return Err(ConfigError::DnsTime(dns.into()));
        }
        Ok(Limits {
            server_connections: number(value.pool_size, default.server_connections),
            clients,
            queued: value.queue_limit.unwrap_or(clients),
            warm: self.warm_up.unwrap_or(default.warm),
            queue: time(value.queue_time, default.queue),
            login: time(value.login_time, default.login),
            connect: time(value.connect_time, default.connect),
            reset: time(value.reset_time, default.reset),
            idle: time(value.idle_time, default.idle),
            age: time(value.max_age, default.age),
            health: time(self.health_time, default.health),
            dns,
            drain: time(value.drain_time, default.drain),
            scram_iterations: value.max_scram_iterations.map_or(default.scram_iterations, NonZeroU32::get),
            groups: self.group_limits(),
            times: self.session_times(),
        })
    }
}

fn group(text: &str) -> Result<Group, String> {
    Group::from_label(text).ok_or_else(|| {
        let known: Vec<&str> = Group::ALL.into_iter().map(Group::label).collect();
        format!("unknown group; it is one of: {}", known.join(", "))
    })
}

/// Replaces serde's message about an unknown key by a suggestion. In that message, the key and then all known
/// keys are between backticks.
fn suggest_key(message: &str) -> Option<String> {
    let mut names = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    let known: Vec<&str> = names.collect();
    let similarity = known.iter().map(|name| (strsim::jaro_winkler(unknown, name), *name));
    let nearest =
        similarity.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY).max_by(|a, b| a.0.total_cmp(&b.0));
    Some(match nearest {
        Some((_, nearest)) => format!("unknown key \"{unknown}\": did you mean \"{nearest}\"?"),
        None => format!("unknown key \"{unknown}\": known keys are {}", known.join(", ")),
    })
}

mod access;
mod error;
mod groups;
mod listen_addresses;
mod password_command;
mod schema;
mod sections;
mod servers;

#[cfg(test)]
mod tests;
