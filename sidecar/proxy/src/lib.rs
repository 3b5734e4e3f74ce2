//! The sidecar keeps TLS connections to a database server open and gives them to the applications of this
//! machine, which connect to it over a local socket in plaintext. An application that opens a connection per
//! request gets one in microseconds.
//!
//! PostgreSQL, MySQL and MariaDB are supported. A client keeps its server connection until it disconnects, or
//! until its transaction ends. `docs/sidecar/README.md` and `docs/sidecar/mysql.md` describe what clients can rely
//! on, `docs/sidecar/operations.md` how to run the proxy.
//!
//! - [`postgres`] and [`mysql`] implement the [`Protocol`]: client handshake, startup request, session.
//!   [`ConnectionPool`] decides which client acquires which connection. All of these are state machines
//!   without I/O.
//! - [`Workers`] move the bytes, each with one readiness loop.
//! - [`Config`] reads the settings, [`AdminServer`] serves status and metrics, [`Reloader`] applies new
//!   settings. The last two have a thread each and reach the workers of each [`RunningServer`] through its
//!   [`ControlHandle`].
//!
//! # Where to change what
//!
//! - a protocol of the sidecar: `proxy::protocol` has the traits; `proxy::postgres`, `proxy::mysql` implement them
//! - what only a session's end undoes: the names: `sql::unresettable` of both protocols; the search:
//!   `wire::text_search`; the observer: `relay::session_end`; the decision: `released` in `proxy::postgres::session`,
//!   `leave` in `proxy::mysql::session`; the list: `docs/sidecar/what-a-reset-leaves.md`
//! - a client that sends nothing more: `wire::relay::Departure`, `end_leaving` in `proxy::engine::session_actions`
//! - what follows a client to another connection: prepared statements: `session_follower` in `wire::postgres::relay`
//!   and `wire::mysql::relay`; settings: `proxy::postgres::session` records them, `proxy::postgres::opening` sets
//!   them; `proxy::mysql::session_state`
//! - which client gets which connection: `proxy::pool`; between workers, `proxy::engine::shared_state`,
//!   `proxy::engine::messages`
//! - whose turn it is, and limits of users and databases: `proxy::pool::fairness`, `proxy::pool::groups`; clients:
//!   `proxy::engine::client_counts`
//! - time limits of sessions: `wire::relay::SessionProgress`; `proxy::engine::session_timing`, `proxy::engine::session_timeouts`
//! - several hosts and their roles: `proxy::hosts` decides, `proxy::engine::host_actions` carries it out; what a server
//!   says of itself: `ask_role` in `wire::postgres::relay::internal_command` and `wire::mysql::relay`;
//!   `docs/sidecar/failover.md`
//! - which worker a client is assigned to: `proxy::engine::shared_state`
//! - how a connection is reset and set up: `wire::postgres::relay::internal_command`,
//!   `wire::mysql::relay::internal_command`, `wire::mysql::relay::session_restore`
//! - when a PostgreSQL connection needs no reset (`reset = "tracked"`): `wire::postgres::sql::data_access` has the
//!   words, `Protocol::reset_need` the decision
//! - when a PostgreSQL reset waits for the next client: `wire::postgres::relay::session_remains` reads the texts of a
//!   short session; the decision: `Protocol::reset_need`; who carries it out: `release_unreset` in
//!   `proxy::engine::server_actions`
//! - when a MySQL connection needs no reset: `wire::mysql::sql::plain_words` has the words,
//!   `wire::mysql::sql::remains` reads texts, `wire::mysql::relay::session_remains` adds the server's reports; the
//!   decision: `Protocol::reset_need`
//! - commands that need a database without connections: `wire::postgres::relay::database_commands`,
//!   `proxy::engine::exclusive`
//! - replication connections: `proxy::postgres::replication`, `wire::postgres::relay::pass_through`; their keys, which no
//!   other client has: `proxy::postgres::pool_key`
//! - users that the settings do not name: `proxy::postgres::auth_query` asks for their secrets,
//!   `proxy::postgres::found_users` keeps the keys that clients have proven; `proxy::mysql::pass_through_auth` asks the server
//!   about a password; a handshake that waits: `proxy::look_up`
//! - the upgrade of a running sidecar: `proxy::upgrade` (the running process), `proxy::inheritance` (the new one)
//! - commands of operators (`PAUSE`, `SHOW POOLS`): the console is `proxy::console`, what the commands do to workers is
//!   `proxy::engine::operate`, to the pool `proxy::pool::pause`; the state that they change: `proxy::operations`
//! - the import of PgBouncer's settings: `proxy::import`; how each of them is handled: `proxy::import::known`
//! - passwords from commands: `proxy::credentials` runs them; connects that wait for one:
//!   `proxy::engine::credentials`
//! - certificates that are replaced on disk: `proxy::watch` notices, `proxy::reloader` applies
//! - settings, status, metrics of the sidecar: `proxy::config`, `proxy::status`, `proxy::metrics`; then
//!   `docs/sidecar/operations.md`

mod admin;
mod client_auth;
mod config;
mod console;
mod console_facts;
mod console_link;
mod console_rules;
mod credentials;
mod duration;
mod engine;
mod exceeded;
mod fingerprint;
mod group_limits;
mod group_status;
mod hosts;
mod http;
mod import;
mod inheritance;
mod log;
mod login_hosts;
mod login_names;
mod look_up;
mod metrics;
pub mod mysql;
mod notify;
mod on_demand;
mod operations;
mod password;
mod pool;
pub mod postgres;
mod protocol;
mod random;
mod refusal;
mod reloader;
mod resolver;
mod running;
mod session_times;
mod settings;
mod slab;
mod status;
mod upgrade;
mod upstream;
mod url;
mod watch;

pub use admin::{AdminServer, AdminSocket, SocketFile, StatusError, read_status, run_command};
pub use client_auth::{ClientAuth, TlsState};
pub use config::{
    Config, ConfigError, ConfigFile, ConsoleSection, DatabaseSection, LimitsSection, LogSection,
    MissingPassword, Resolved, ResolvedServer, ResolvedServers, ServerName, UserSection, json_schema,
};
pub use console_rules::{ConsoleRules, OwnUid};
pub use credentials::{
    AnyUserPasswords, CommandTemplate, Credentials, FetchError, PasswordCell, PasswordCommand,
    PasswordSources, RunningCommands, WordPart,
};
pub use duration::{DurationError, HumanDuration};
pub use engine::{ControlHandle, Health, NoAnswer, PreparedSettings, ServerWorkers, SignalTask, Workers};
pub use exceeded::{Exceeded, Timeout};
pub use fingerprint::Fingerprint;
pub use group_limits::{GroupKind, GroupLimit, GroupLimits};
pub use group_status::GroupStatus;
pub use hosts::{HostSummary, LoadBalance, TargetSession};
pub use import::{ImportError, ImportNote, Imported, NoteKind};
pub use inheritance::Inheritance;
pub use log::{Format, Level, Log};
pub use metrics::{Counter, LabelledCounter, Metrics, WaitHistogram};
pub use mysql::MySql;
pub use notify::Notifier;
pub use password::{PasswordError, PasswordSource, find_in_password_file, find_password, read_password};
pub use pool::{Acceptable, ConnectionPool, PoolAction, Released, WorkerBound};
pub use postgres::Postgres;
pub use protocol::{HandshakeStep, PoolKey, Protocol, SessionProgress};
pub use refusal::Refusal;
pub use reloader::{ReloadedServer, Reloader};
pub use running::RunningServer;
pub use session_times::{SessionTimes, TimeLimits};
pub use settings::{
    AllowedUids, DatabaseUser, Limits, ListenAddress, ListenError, Pooling, ScramIterations, Settings,
    StartError, UnixAuth,
};
pub use status::{
    CertificateStatus, ClientStates, PasswordStatus, PoolStatus, ProxyStatus, Status, StatusCounters,
    StatusLimits, ThreadStatus,
};
pub use upgrade::{HandoverLock, Upgrader};
pub use upstream::{CertificateExpiry, Upstream};
pub use url::{ProtocolKind, ServerAddress, ServerUrl, UpstreamEncryption, UrlError};
pub use watch::FileWatch;
