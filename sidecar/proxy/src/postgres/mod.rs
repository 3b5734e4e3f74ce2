//! The PostgreSQL protocol.

mod auth_query;
mod backend_state;
mod client_handshake;
mod found_users;
mod limit_errors;
mod opening;
mod pool_key;
mod protocol;
mod recent_logins;
mod replication;
mod session;
mod startup_request;
mod transaction_pooling;

pub use backend_state::BackendState;
pub use client_handshake::{ClientHandshake, CredentialStore};
pub use protocol::Postgres;
pub use session::ClientSession;
pub use startup_request::{StartupParameters, StartupRequest};
