//! What a proxy between client and server needs.
//!
//! - [`PostgresRelay`] tracks the traffic that is forwarded. Its framers split the bytes into messages.
//! - [`SessionFollower`] tracks prepared statements and session changes for transaction pooling.
//! - [`InternalCommand`] resets a session and applies a client's settings.

pub(crate) mod framer;
pub(crate) mod internal_command;
pub(crate) mod session_follower;
pub(crate) mod traffic;

pub use internal_command::InternalCommand;
pub use session_follower::{
    ClientBytes, ClientStatements, ConnectionStatements, ServerBytes, SessionFollower, first_command_bytes,
};
pub use traffic::{Patch, PostgresRelay, SessionState};
