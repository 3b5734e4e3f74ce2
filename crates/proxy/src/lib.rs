//! The sidecar: an application that opens a connection for each request gets it from here in microseconds, by a local
//! socket and in plaintext; behind, connections to the server are encrypted, verified and kept.
//!
//! PostgreSQL only, so far, and a connection for each session: a client has its server connection until it leaves. What
//! a client may rely on is in `docs/cure/README.md`.
//!
//! - [`Front`] is a client's start-up, [`Session`] what it says afterwards, [`Pool`] who gets which connection: state
//!   machines that are stepped with bytes or events and do no I/O.
//! - [`Proxy`] moves the bytes between them, on one thread with one readiness loop.

mod dialect;
mod engine;
mod facts;
mod front;
mod log;
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

pub use dialect::{Dialect, Pooling};
pub use engine::{Ended, Proxy};
pub use facts::Facts;
pub use front::{Admission, Front, Gate};
pub use log::{Level, Log};
pub use password::{PasswordError, find_password};
pub use pool::{Asked, Pool};
pub use postgres::Postgres;
pub use refusal::Refusal;
pub use session::Session;
pub use settings::{Limits, Listen, ListenError, Settings, StartError};
pub use upstream::Upstream;
pub use url::{Encryption, Place, ServerUrl, UrlError};
pub use wanted::Wanted;
