//! What a proxy between client and server needs.
//!
//! - `BackendModel` knows what the server does with each message: which it executes, which it skips, what it answers.
//! - [`PostgresRelay`] tracks the traffic that is forwarded. It splits the bytes into messages and shows them to its
//!   observers: [`SessionFollower`] tracks prepared statements and session changes for transaction pooling;
//!   `RemainsObserver` tracks what a short session leaves, for session pooling; `DatabaseCommandScanner` finds commands
//!   that need a database without other connections.
//! - [`PassThrough`] forwards a session that is not pooled, unread.
//! - [`InternalCommand`] resets a session and applies a client's settings.

pub(crate) mod backend_model;
pub(crate) mod database_commands;
pub(crate) mod framer;
pub(crate) mod internal_command;
pub(crate) mod pass_through;
pub(crate) mod session_end;
pub(crate) mod session_follower;
pub(crate) mod session_remains;
pub(crate) mod traffic;

pub use internal_command::{
    InternalCommand, NewTransactions, PipelinedCommit, Recovery, ReportedRole, TimeLimit,
};
pub use pass_through::PassThrough;
pub use session_follower::{
    ClientStatements, ConnectionStatements, FirstMessage, Followed, SessionFollower, first_command_bytes,
    first_message, has_answered_message,
};
pub use traffic::{ClientBytes, ConnectionState, Patch, PostgresRelay, ServerBytes};
