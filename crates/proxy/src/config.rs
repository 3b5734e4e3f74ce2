//! What the operator asks for: a file, flags that go before it, and what both come to.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use ciphertoll_net::tls::{AcceptorSettings, Identity};
use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::DIRECT_TLS_ALPN;
use ciphertoll_wire::scram::MAX_ITERATIONS;
use nix::unistd::geteuid;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::Pooling;
use crate::front::Gate;
use crate::log::{Format, Level, Log};
use crate::password::{
    PasswordError, PasswordSource, find_in_password_file, find_password, looked_in, read_password,
};
use crate::settings::{Iterations, Limits, Listen, Settings, Uids, UnixAuth, User};
use crate::span::Span;
use crate::url::{Protocol, ServerUrl, UrlError};

/// Far more than what there is to do for a server would keep busy.
const MAX_THREADS: usize = 256;
/// A file of settings is a page or two.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Clients of MySQL's name nothing; who names something else by ALPN speaks another protocol.
const MYSQL_ALPN: &[u8] = b"mysql";
/// Names that are less alike are no misspellings of one another.
const CLOSE_ENOUGH: f64 = 0.7;

/// Settings as they are written, in a file or by flags: what is not said is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// Where clients come to, one place or several: `unix:/PATH/.s.PGSQL.6432`, or `tcp:127.0.0.1:6432` where they must
    /// know the password.
    #[serde(with = "places")]
    #[schemars(with = "places::OneOrMore")]
    pub listen: Vec<Listen>,
    /// The server: `postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE`.
    pub server: Option<String>,
    /// The certificate, in a PEM file, by which clients that come by TCP know the proxy: they must use TLS then, and may
    /// come from other machines.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// The authorities of clients' certificates: clients must show one with their user's name, and need no password.
    pub tls_client_ca: Option<PathBuf>,
    /// Where status and metrics are asked for: `unix:/PATH` or `tcp:127.0.0.1:PORT`.
    pub admin: Option<Listen>,
    /// How long a client has a server connection: until it leaves, or until its transaction ends.
    pub mode: Option<Pooling>,
    /// How many threads serve: as many processors can be used.
    pub threads: Option<NonZeroUsize>,
    /// Users, beside our own, whose processes may come by the unix socket.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_uid: Vec<u32>,
    /// How clients that come by unix socket show who they are.
    pub unix_auth: Option<UnixAuth>,
    /// How often a client hashes its password: from 4096 on, or by unix socket from 1 on.
    pub scram_iterations: Option<NonZeroU32>,
    /// Server connections of each user, to his database, that are opened before anybody asks for them, and kept.
    pub warm_up: Option<usize>,
    /// How long a server connection may be idle before the server is asked whether it is there; 0: it never is.
    pub health_time: Option<Span>,
    /// How much and how long.
    pub limits: LimitsSection,
    /// What is logged, on stderr.
    pub log: LogSection,
    /// Who can be logged in as, beside the user of the server's URL, and where passwords are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<UserSection>,
}

/// How much and how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitsSection {
    /// The most server connections, over all users and databases.
    pub pool_size: Option<NonZeroUsize>,
    /// The most clients at a time.
    pub max_clients: Option<NonZeroUsize>,
    /// The most clients that wait for others' connections at a time.
    pub queue_limit: Option<usize>,
    /// How long a client waits for a server connection.
    pub queue_time: Option<Span>,
    /// How long a client may take to say who it is.
    pub login_time: Option<Span>,
    /// How long opening a server connection may take.
    pub connect_time: Option<Span>,
    /// How long a reset may take, the answer to a health check, or a cancel.
    pub reset_time: Option<Span>,
    /// How long a server connection may be idle.
    pub idle_time: Option<Span>,
    /// How old a server connection may be when the next client gets it.
    pub max_age: Option<Span>,
    /// How long clients have to leave when the proxy is stopped.
    pub drain_time: Option<Span>,
    /// The most SCRAM iterations that the server may ask for (PostgreSQL). A server that asks for more is refused.
    pub max_scram_iterations: Option<NonZeroU32>,
}

/// What is logged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LogSection {
    /// From which level on.
    pub level: Option<Level>,
    /// How it is written.
    pub format: Option<Format>,
}

/// Somebody whom the server knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct UserSection {
    /// The role.
    pub name: String,
    /// The database of clients that name none; that of the server's URL if absent.
    #[serde(default)]
    pub database: Option<String>,
    /// The file whose whole content is the password, from here or from the root on.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The variable of the environment that has the password.
    #[serde(default)]
    pub password_env: Option<String>,
}

/// What settings come to.
pub struct Resolved {
    /// What the proxy is told.
    pub settings: Settings,
    /// Where status and metrics are asked for.
    pub admin: Option<Listen>,
    /// Where events go.
    pub log: Log,
    /// The same as a file would say it, with everything that was not said.
    pub effective: Config,
    /// Users whom the server would have to ask for nothing: no password was found anywhere. One that is given and is empty
    /// counts as found.
    pub without_password: Vec<MissingPassword>,
}

/// A user without a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no password found for \"{user}\"; {looked_in}; for a server that asks for none, set it to the empty text"
)]
pub struct MissingPassword {
    /// The user.
    pub user: String,
    looked_in: &'static str,
}

/// Settings that cannot be used. The operator's.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not say what can be understood.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// One line: where, what, and what was perhaps meant.
        reason: String,
    },
    /// Nothing works without it.
    #[error("nothing says \"{0}\": give it in the file, or as --{0}")]
    Missing(&'static str),
    /// The server's URL.
    #[error("the URL of --server cannot be used: {0}")]
    Url(#[from] UrlError),
    /// Two passwords for one user.
    #[error("user \"{0}\" has a password-file and a password-env: one of them")]
    TwoPasswords(String),
    /// One user twice.
    #[error("user \"{0}\" is there twice")]
    TwoUsers(String),
    /// More connections are to be kept than there may be.
    #[error("a warm-up of {warm} connections for each of {users} users is more than the pool-size, {limit}")]
    WarmUp {
        /// For each user.
        warm: usize,
        /// How many users.
        users: usize,
        /// All that there may be.
        limit: usize,
    },
    /// Anybody could come, and read along.
    #[error(
        "listen cannot be {0}: that is not loopback, and it is offered to no network without tls-cert and tls-key"
    )]
    NotLoopback(Listen),
    /// Anybody could ask.
    #[error("admin cannot be {0}: that is not loopback, and status and metrics are for this machine alone")]
    AdminNotLoopback(Listen),
    /// A certificate without its key, a key without certificate, or authorities without either.
    #[error("TLS in front needs both, tls-cert and tls-key")]
    HalfOfTls,
    /// A unix socket has no TLS.
    #[error("clients that come by unix socket have no TLS: tls-cert is for TCP")]
    TlsByUnixSocket,
    /// No machine has so many processors.
    #[error("threads cannot be {0}: from 1 to {MAX_THREADS}")]
    Threads(usize),
    /// Too little work, or too much.
    #[error("scram-iterations cannot be {said} here: from {least} to {MAX_ITERATIONS}")]
    Iterations {
        /// What was said.
        said: u32,
        /// The fewest, where clients come.
        least: u32,
    },
    /// More work than any server's login takes.
    #[error("limits.max-scram-iterations cannot be {0}: from 1 to {MAX_ITERATIONS}")]
    MaxIterations(u32),
    /// A setting of PostgreSQL's protocol, in front of another server.
    #[error("{0} does not apply to MySQL and MariaDB, whose logins do not use SCRAM: remove it")]
    NotScram(&'static str),
    /// A password.
    #[error(transparent)]
    Password(#[from] PasswordError),
}

impl Config {
    /// Reads a file. Paths of passwords in it are taken from where it lies.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let wrong = |reason| ConfigError::File { path: path.to_owned(), reason };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(wrong(format!("it is longer than {MAX_FILE_BYTES} bytes")));
        }
        let mut config = Self::from_toml(&text).map_err(wrong)?;
        let place = path.parent().unwrap_or(Path::new(""));
        for file in config.user.iter_mut().filter_map(|user| user.password_file.as_mut()) {
            *file = place.join(&*file);
        }
        Ok(config)
    }

    /// Understands a file's text; why not, in one line.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let reason = meant(error.message()).unwrap_or_else(|| error.message().replace('\n', " "));
            match error.span() {
                Some(span) => {
                    let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                    format!("line {line}: {reason}")
                }
                None => reason,
            }
        })
    }

    /// The TOML that asks for the same.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// These settings, and where they say nothing, those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            listen: if self.listen.is_empty() { other.listen } else { self.listen },
            server: self.server.or(other.server),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            admin: self.admin.or(other.admin),
            mode: self.mode.or(other.mode),
            threads: self.threads.or(other.threads),
            allow_uid: if self.allow_uid.is_empty() { other.allow_uid } else { self.allow_uid },
            unix_auth: self.unix_auth.or(other.unix_auth),
            scram_iterations: self.scram_iterations.or(other.scram_iterations),
            warm_up: self.warm_up.or(other.warm_up),
            health_time: self.health_time.or(other.health_time),
            limits: self.limits.or(&other.limits),
            log: LogSection {
                level: self.log.level.or(other.log.level),
                format: self.log.format.or(other.log.format),
            },
            user: if self.user.is_empty() { other.user } else { self.user },
        }
    }

    /// What it all comes to. Reads passwords, and nothing else.
    pub fn resolve(&self) -> Result<Resolved, ConfigError> {
        let listen = self.listen.clone();
        if listen.is_empty() {
            return Err(ConfigError::Missing("listen"));
        }
        let text = self.server.as_ref().ok_or(ConfigError::Missing("server"))?;
        let server: ServerUrl = text.parse()?;
        self.check_scram(server.protocol)?;
        let (users, without_password) = self.users(&server)?;
        let limits = self.limits();
        if limits.warm.saturating_mul(users.len()) > limits.server_connections {
            let (warm, users, limit) = (limits.warm, users.len(), limits.server_connections);
            return Err(ConfigError::WarmUp { warm, users, limit });
        }
        let (pooling, unix_auth) = (self.mode.unwrap_or_default(), self.unix_auth.unwrap_or_default());
        let iterations = self.iterations(&listen)?;
        let tls = self.tls(&listen, server.protocol)?;
        let threads = self.threads.unwrap_or(NonZeroUsize::MIN);
        if threads.get() > MAX_THREADS {
            return Err(ConfigError::Threads(threads.get()));
        }
        if let Some(admin) = self.admin.clone().filter(|admin| !admin.is_local()) {
            return Err(ConfigError::AdminNotLoopback(admin));
        }
        let allowed_uids = self.uids(unix_auth);
        let (level, format) = (self.log.level.unwrap_or_default(), self.log.format.unwrap_or_default());
        let effective = Self {
            mode: Some(pooling),
            threads: Some(threads),
            unix_auth: Some(unix_auth),
            warm_up: Some(limits.warm),
            health_time: Some(limits.health.into()),
            limits: LimitsSection::of(&limits, server.protocol),
            log: LogSection { level: Some(level), format: Some(format) },
            ..self.clone()
        };
        let settings = Settings {
            listen,
            server,
            users,
            allowed_uids,
            unix_auth,
            tls,
            iterations,
            pooling,
            threads,
            limits,
        };
        let (admin, log) = (self.admin.clone(), Log::written(level, format));
        Ok(Resolved { settings, admin, log, effective, without_password })
    }

    /// Our own and those that are named; with passwords, whoever knows one, unless some are named.
    fn uids(&self, unix_auth: UnixAuth) -> Uids {
        if unix_auth != UnixAuth::Peer && self.allow_uid.is_empty() {
            return Uids::All;
        }
        let ours = std::iter::once(geteuid().as_raw());
        Uids::Only(self.allow_uid.iter().copied().chain(ours).collect())
    }

    /// What is not loopback is somebody else's network.
    fn tls(&self, listen: &[Listen], protocol: Protocol) -> Result<Option<AcceptorSettings>, ConfigError> {
        let (certificate, key) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (None, None) if self.tls_client_ca.is_none() => {
                let wide = listen.iter().find(|place| !place.is_local());
                return wide.map_or(Ok(None), |place| Err(ConfigError::NotLoopback(place.clone())));
            }
            _ => return Err(ConfigError::HalfOfTls),
        };
        if !listen.iter().any(|place| matches!(place, Listen::Tcp(_))) {
            return Err(ConfigError::TlsByUnixSocket);
        }
        let identity = Identity { certificate_file: certificate, key_file: key };
        let protocol = match protocol {
            Protocol::Postgres => DIRECT_TLS_ALPN,
            Protocol::MySql => MYSQL_ALPN,
        };
        Ok(Some(AcceptorSettings { identity, clients: self.tls_client_ca.clone(), protocol }))
    }

    /// Settings of SCRAM are PostgreSQL's.
    fn check_scram(&self, protocol: Protocol) -> Result<(), ConfigError> {
        let most = self.limits.max_scram_iterations.map(NonZeroU32::get);
        match (protocol, self.scram_iterations, most) {
            (Protocol::MySql, Some(_), _) => Err(ConfigError::NotScram("scram-iterations")),
            (Protocol::MySql, None, Some(_)) => Err(ConfigError::NotScram("limits.max-scram-iterations")),
            (Protocol::Postgres, _, Some(said)) if said > MAX_ITERATIONS => {
                Err(ConfigError::MaxIterations(said))
            }
            _ => Ok(()),
        }
    }

    /// Nobody can listen at a unix socket, so that once is enough there; all else is as drivers expect it of a network.
    fn iterations(&self, listen: &[Listen]) -> Result<Iterations, ConfigError> {
        let by_tcp = listen.iter().any(|place| matches!(place, Listen::Tcp(_)));
        let least = if by_tcp { Gate::USUAL_ITERATIONS } else { 1 };
        match self.scram_iterations.map(NonZeroU32::get) {
            None => Ok(Iterations { by_unix: 1, by_tcp: Gate::USUAL_ITERATIONS }),
            Some(said) if (least..=MAX_ITERATIONS).contains(&said) => {
                Ok(Iterations { by_unix: said, by_tcp: said })
            }
            Some(said) => Err(ConfigError::Iterations { said, least }),
        }
    }

    /// The users, and those of them for whom no password was found although the server may ask for one.
    fn users(&self, server: &ServerUrl) -> Result<(Vec<User>, Vec<MissingPassword>), ConfigError> {
        let mut names = HashSet::new();
        if let Some(twice) = self.user.iter().find(|user| !names.insert(&user.name)) {
            return Err(ConfigError::TwoUsers(twice.name.clone()));
        }
        let own = self.user.iter().find(|user| user.name == server.user).cloned();
        let own = own.unwrap_or_else(|| UserSection { name: server.user.clone(), ..UserSection::default() });
        let others = self.user.iter().filter(|user| user.name != server.user);
        let (mut users, mut missing) = (Vec::new(), Vec::new());
        for user in std::iter::once(&own).chain(others) {
            let password = user.password(server)?;
            if password.is_none() && server.may_ask_for_password() {
                let looked_in = looked_in(server.protocol, user.name == server.user);
                missing.push(MissingPassword { user: user.name.clone(), looked_in });
            }
            let password = password.unwrap_or_else(|| Secret::new(Vec::new()));
            users.push(User { name: user.name.clone(), database: user.database_at(server), password });
        }
        Ok((users, missing))
    }

    fn limits(&self) -> Limits {
        let (said, usual) = (&self.limits, Limits::default());
        let number = |said: Option<NonZeroUsize>, usual: usize| said.map_or(usual, NonZeroUsize::get);
        let time = |said: Option<Span>, usual| said.map_or(usual, Span::duration);
        let clients = number(said.max_clients, usual.clients);
        Limits {
            server_connections: number(said.pool_size, usual.server_connections),
            clients,
            queued: said.queue_limit.unwrap_or(clients),
            warm: self.warm_up.unwrap_or(usual.warm),
            queue: time(said.queue_time, usual.queue),
            login: time(said.login_time, usual.login),
            connect: time(said.connect_time, usual.connect),
            reset: time(said.reset_time, usual.reset),
            idle: time(said.idle_time, usual.idle),
            age: time(said.max_age, usual.age),
            health: time(self.health_time, usual.health),
            drain: time(said.drain_time, usual.drain),
            scram_iterations: said.max_scram_iterations.map_or(usual.scram_iterations, NonZeroU32::get),
        }
    }
}

impl LimitsSection {
    fn or(self, other: &Self) -> Self {
        Self {
            pool_size: self.pool_size.or(other.pool_size),
            max_clients: self.max_clients.or(other.max_clients),
            queue_limit: self.queue_limit.or(other.queue_limit),
            queue_time: self.queue_time.or(other.queue_time),
            login_time: self.login_time.or(other.login_time),
            connect_time: self.connect_time.or(other.connect_time),
            reset_time: self.reset_time.or(other.reset_time),
            idle_time: self.idle_time.or(other.idle_time),
            max_age: self.max_age.or(other.max_age),
            drain_time: self.drain_time.or(other.drain_time),
            max_scram_iterations: self.max_scram_iterations.or(other.max_scram_iterations),
        }
    }

    fn of(limits: &Limits, protocol: Protocol) -> Self {
        let iterations = match protocol {
            Protocol::Postgres => NonZeroU32::new(limits.scram_iterations),
            Protocol::MySql => None,
        };
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
        }
    }
}

impl UserSection {
    /// `None`: none was found.
    fn password(&self, server: &ServerUrl) -> Result<Option<Secret>, ConfigError> {
        let source = match (&self.password_file, &self.password_env) {
            (Some(_), Some(_)) => return Err(ConfigError::TwoPasswords(self.name.clone())),
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

    fn database_at(&self, server: &ServerUrl) -> Option<String> {
        self.database.clone().or_else(|| server.database.clone())
    }
}

/// For an unknown key, what was perhaps meant. The words between backticks are serde's: the key, then all that it knows.
fn meant(message: &str) -> Option<String> {
    let mut names = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    let known: Vec<&str> = names.collect();
    let alike = known.iter().map(|name| (strsim::jaro_winkler(unknown, name), *name));
    let nearest = alike.filter(|(alike, _)| *alike >= CLOSE_ENOUGH).max_by(|a, b| a.0.total_cmp(&b.0));
    Some(match nearest {
        Some((_, nearest)) => format!("unknown key \"{unknown}\": did you mean \"{nearest}\"?"),
        None => format!("unknown key \"{unknown}\": there are {}", known.join(", ")),
    })
}

/// The JSON Schema (2020-12) of the file.
pub fn json_schema() -> String {
    let generator = SchemaSettings::default().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    forbid_null(&mut schema);
    format!("{schema:#}\n")
}

/// What may be absent is never null, which TOML does not have; schemars cannot know that of an `Option`.
fn forbid_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(forbid_null),
        Value::Object(rules) => {
            // Nor is it the default of anything.
            rules.retain(|_, rule| !rule.is_null());
            rules.values_mut().for_each(forbid_null);
            if let Some(Value::Array(types)) = rules.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    rules.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = rules.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    rules.remove("anyOf");
                    rules.extend(only);
                }
            }
        }
        _ => {}
    }
}

mod places;

#[cfg(test)]
mod tests;
