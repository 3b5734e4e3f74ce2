//! The sidecar: an application that opens a connection for each request gets it from here in microseconds, by a local
//! socket and in plaintext; behind, connections to the server are encrypted, verified and kept.
//!
//! PostgreSQL, MySQL and MariaDB. What a client may rely on is in `docs/cure/README.md` and `docs/cure/mysql.md`.
//!
//! - [`Front`] is a client's start-up, [`Session`] what it says afterwards, [`Pool`] who gets which connection: state
//!   machines that are stepped with bytes or events and do no I/O.
//! - [`mysql`] has the same for MySQL and MariaDB.
//! - [`Proxy`] moves the bytes between them, on one thread with one readiness loop.

mod dialect;
mod engine;
mod facts;
mod front;
mod log;
pub mod mysql;
mod password;
mod pool;
mod postgres;
mod refusal;
mod session;
mod settings;
mod slab;
mod upstream;
mod url;
mod wanted;

pub use dialect::{Dialect, FrontStep, Pooling};
pub use engine::{Ended, Proxy};
pub use facts::Facts;
pub use front::{Admission, Front, Gate};
pub use log::{Level, Log};
pub use mysql::MySql;
pub use password::{PasswordError, find_password};
pub use pool::{Asked, Pool};
pub use postgres::Postgres;
pub use refusal::Refusal;
pub use session::Session;
pub use settings::{Limits, Listen, ListenError, Settings, StartError};
pub use upstream::Upstream;
pub use url::{Encryption, Place, Protocol, ServerUrl, UrlError};
pub use wanted::Wanted;
