//! What a session in transaction pooling remembers besides its relay.

use ciphertoll_wire::mysql::relay::{Diagnostics, SessionFollower, StatusFlags};

use super::session_state::SessionState;
use super::startup_request::StartupRequest;
use crate::protocol::PinState;

#[derive(Debug)]
pub(super) struct TransactionPooling {
    pub(super) request: Box<StartupRequest>,
    pub(super) session_state: Box<SessionState>,
    pub(super) follower: SessionFollower,
    pub(super) pin: PinState,
    /// Values to query before the session can be detached.
    pub(super) queries: Vec<PendingQuery>,
    pub(super) status: StatusFlags,
    /// Diagnostics that the client may still ask for.
    pub(super) diagnostics: Diagnostics,
    /// A statement to prepare as soon as all responses are read.
    pub(super) pending: Option<u32>,
    pub(super) context: ContextState,
    /// The client's first command was cancelled while it waited.
    pub(super) refuses_first: bool,
    /// The session has stayed once to wait for a `KILL`.
    pub(super) awaited_kill: bool,
    pub(super) has_input: bool,
}

/// Whether all settings with which the session reads texts are recorded, when no query for them is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextState {
    Known,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// Settings that cannot fail; the client need not wait for the response.
    Pipelined,
    /// Settings, before the client may send commands.
    Settings,
    /// A query for settings that the client has changed; the client waits.
    QueryValues,
    /// Prepares a statement that the client has prepared on another connection.
    Prepare(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PendingQuery {
    Setting(String),
    Database,
    InsertId,
    /// A statement has failed that may have generated a key before.
    InsertIdAfterError,
}
