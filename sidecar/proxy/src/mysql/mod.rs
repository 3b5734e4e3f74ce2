//! The protocol of MySQL and MariaDB.

mod client_handshake;
mod connection_ids;
mod credential_store;
mod limit_errors;
mod pass_through_auth;
mod pooled_state;
mod protocol;
mod refusal;
mod session;
mod session_state;
mod startup_request;
mod transaction_pooling;

pub use client_handshake::{ClientHandshake, GreetingContext};
pub use connection_ids::ConnectionIds;
pub use credential_store::CredentialStore;
pub use protocol::MySql;
pub use session::{BackendState, ClientSession};
pub use startup_request::{LoginContext, StartupRequest};
