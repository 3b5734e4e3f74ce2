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
//!   settings. The last two have a thread each and reach the workers through a [`ControlHandle`].

mod admin;
mod client_auth;
mod config;
mod duration;
mod engine;
mod fingerprint;
mod inheritance;
mod log;
mod login_names;
mod metrics;
pub mod mysql;
mod notify;
mod on_demand;
mod password;
mod pool;
pub mod postgres;
mod protocol;
mod random;
mod refusal;
mod reloader;
mod settings;
mod slab;
mod status;
mod upgrade;
mod upstream;
mod url;

pub use admin::{AdminServer, AdminSocket, SocketFile, StatusError, read_status};
pub use client_auth::{ClientAuth, TlsState};
pub use config::{
    Config, ConfigError, LimitsSection, LogSection, MissingPassword, Resolved, UserSection, json_schema,
};
pub use duration::{DurationError, HumanDuration};
pub use engine::{ControlHandle, Health, NoAnswer, PreparedSettings, SignalTask, Workers};
pub use fingerprint::Fingerprint;
pub use inheritance::Inheritance;
pub use log::{Format, Level, Log};
pub use metrics::{Counter, LabelledCounter, Metrics, WaitHistogram};
pub use mysql::MySql;
pub use notify::Notifier;
pub use password::{PasswordError, PasswordSource, find_in_password_file, find_password, read_password};
pub use pool::{Acceptable, ConnectionPool, PoolAction, WorkerBound};
pub use postgres::Postgres;
pub use protocol::{HandshakeStep, Pooling, Protocol};
pub use refusal::Refusal;
pub use reloader::Reloader;
pub use settings::{
    AllowedUids, DatabaseUser, Limits, ListenAddress, ListenError, ScramIterations, Settings, StartError,
    UnixAuth,
};
pub use status::{
    CertificateStatus, ClientStates, PoolStatus, Status, StatusCounters, StatusLimits, ThreadStatus,
};
pub use upgrade::{HandoverLock, Upgrader};
pub use upstream::{CertificateExpiry, Upstream};
pub use url::{ProtocolKind, ServerAddress, ServerUrl, UpstreamEncryption, UrlError};
