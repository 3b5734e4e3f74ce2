//! The sidecar: an application that opens a connection for each request gets it from here in microseconds, by a local
//! socket and in plaintext; behind, connections to the server are encrypted, verified and kept.
//!
//! PostgreSQL, MySQL and MariaDB. A client has its server connection until it leaves, or until its transaction ends. What a
//! client may rely on is in `docs/cure/README.md` and `docs/cure/mysql.md`, what an operator may, in
//! `docs/cure/operations.md`.
//!
//! - [`Front`] is a client's start-up, [`Session`] what it says afterwards, [`Pool`] who gets which connection: state
//!   machines that are stepped with bytes or events and do no I/O.
//! - [`mysql`] has the same for MySQL and MariaDB.
//! - [`Crew`] moves the bytes between them, on one thread or several, each with one readiness loop.
//! - [`Config`] is what the operator asks for, [`Admin`] where operators ask how the proxy is, and [`Reloader`] has it go on
//!   with other settings: each on a thread of its own, and by [`Orders`] to those that serve.

mod admin;
mod config;
mod control;
mod dialect;
mod engine;
mod facts;
mod front;
mod log;
mod mark;
mod metrics;
pub mod mysql;
mod notify;
mod password;
mod pool;
mod postgres;
mod refusal;
mod session;
mod settings;
mod slab;
mod span;
mod status;
mod upstream;
mod url;
mod wanted;

pub use admin::{Admin, AskError, Serving, ask_status};
pub use config::{
    Config, ConfigError, LimitsSection, LogSection, MissingPassword, Resolved, UserSection, json_schema,
};
pub use control::{Fixed, Reloader};
pub use dialect::{Dialect, FrontStep, Pooling};
pub use engine::{Crew, Ended, Health, NoAnswer, Orders, Prepared};
pub use facts::Facts;
pub use front::{Admission, Front, Gate};
pub use log::{Format, Level, Log};
pub use mark::Mark;
pub use metrics::{Counter, Labelled, Metrics, Waits};
pub use mysql::MySql;
pub use notify::Notifier;
pub use password::{PasswordError, PasswordSource, find_in_password_file, find_password, read_password};
pub use pool::{Asked, Kept, Local, Pool};
pub use postgres::Postgres;
pub use refusal::Refusal;
pub use session::Session;
pub use settings::{Iterations, Limits, Listen, ListenError, Settings, StartError, Uids, UnixAuth, User};
pub use span::{Span, SpanError};
pub use status::{CertificateStatus, Clients, Counts, Most, PoolStatus, Status, ThreadStatus};
pub use upstream::{Expiry, Upstream};
pub use url::{Encryption, Place, Protocol, ServerUrl, UrlError};
pub use wanted::Wanted;
