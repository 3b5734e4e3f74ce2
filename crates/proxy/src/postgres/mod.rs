//! The PostgreSQL protocol.

mod client_handshake;
mod protocol;
mod recent_logins;
mod session;
mod startup_request;

pub use client_handshake::{ClientHandshake, CredentialStore};
pub use protocol::Postgres;
pub use session::{BackendState, ClientSession};
pub use startup_request::{StartupParameters, StartupRequest};
