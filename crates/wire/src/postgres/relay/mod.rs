//! What a proxy between client and server needs.
//!
//! - [`PostgresRelay`] tracks the traffic that is forwarded. Its framers split the bytes into messages.
//! - [`SessionFollower`] tracks prepared statements and session changes for transaction pooling, and
//!   [`DatabaseCommandScanner`] finds commands that need a database without other connections. Both use the same framer.
//! - [`InternalCommand`] resets a session and applies a client's settings.

pub(crate) mod database_commands;
pub(crate) mod framer;
pub(crate) mod internal_command;
pub(crate) mod session_follower;
pub(crate) mod traffic;

pub use database_commands::DatabaseCommandScanner;
pub use internal_command::InternalCommand;
pub use session_follower::{
    ClientBytes, ClientStatements, ConnectionStatements, ServerBytes, SessionFollower, first_command_bytes,
};
pub use traffic::{ConnectionState, Patch, PostgresRelay};
