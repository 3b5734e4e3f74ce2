//! What a proxy between client and server needs.
//!
//! - [`MySqlRelay`] tracks the traffic that is forwarded. Its framers split the bytes into packets, and its observers
//!   use the result: [`KillCommand`] finds commands with connection identifiers, and [`SessionFollower`] tracks prepared
//!   statements and session changes for transaction pooling.
//! - [`InternalCommand`] resets a session, to its [`InitialState`], and [`SessionRestore`] restores a client's session on
//!   another server connection.

pub(crate) mod commands;
pub(crate) mod framer;
pub(crate) mod initial_state;
pub(crate) mod internal_command;
pub(crate) mod kill;
pub(crate) mod observer;
pub(crate) mod prepared_statements;
pub(crate) mod role;
pub(crate) mod session_end;
pub(crate) mod session_follower;
pub(crate) mod session_remains;
pub(crate) mod session_restore;
pub(crate) mod settings;
pub(crate) mod text_context;
pub(crate) mod traffic;

pub use super::codec::capabilities::RELAYED;
pub use initial_state::{InitialState, InitialStateQuery, StateTracking, TextEncoding};
pub use internal_command::{InternalCommand, ResetOutcome};
pub use kill::{KillCommand, KillReplacement, KillStatement, KillTarget};
pub use prepared_statements::{ClientStatements, ConnectionStatements, UNKNOWN_STATEMENT};
pub use role::ReportedRole;
pub use session_end::SocketLimits;
pub use session_follower::{
    ClientBytes, Diagnostics, InsertIdQuery, Reply, ServerBytes, SessionChanges, SessionFollower,
    SessionReset, SettingFlags, StatusFlags, begins_with_quit, begins_with_reset, first_command_bytes,
    has_answered_command,
};
pub use session_restore::{RestoredSession, ServerProduct, SessionRestore, encode_refusal};
pub use settings::{NAMES, quotable, restorable, setting};
pub use text_context::{ContextSwitch, NoDatabase, TextContext};
pub use traffic::{ConnectionState, MultiStatements, MySqlRelay, OpenState, Transaction};
