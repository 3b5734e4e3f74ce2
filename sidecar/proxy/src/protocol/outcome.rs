//! The results of processing a session's traffic, and the state in which a session leaves a connection.

use ciphertoll_wire::postgres::relay::Patch;
use ciphertoll_wire::relay::{Goodbye, Vacate};
use ciphertoll_wire::session;

#[derive(Debug)]
pub struct FromClient {
    pub pass_bytes: usize,
    /// Bytes to drop after the passed bytes.
    pub drop_bytes: usize,
    /// To be sent after the bytes passed on. If there is any, the remaining input must be processed again.
    pub insert: Vec<u8>,
    /// Databases whose idle connections must be closed before anything is passed on.
    pub exclusive: Vec<Vacate>,
    /// Whether the client's last message follows.
    pub goodbye: Goodbye,
}

impl FromClient {
    pub fn passes(pass_bytes: usize, goodbye: Goodbye) -> Self {
        Self { pass_bytes, drop_bytes: 0, insert: Vec::new(), exclusive: Vec::new(), goodbye }
    }
}

#[derive(Debug, Default)]
pub struct FromServer {
    /// Bytes at the front to drop: responses to the proxy's own commands.
    pub skip_bytes: usize,
    pub settings_result: SettingsResult,
    /// Bytes to pass to the client after those.
    pub pass_bytes: usize,
    pub patches: Vec<Patch>,
    /// Bytes to drop after those. If there are any, the remaining input must be processed again.
    pub drop_bytes: usize,
    /// What to send to the client in place of the dropped bytes.
    pub insert: Vec<u8>,
    pub phase: SessionPhase,
}

/// What can be done with a session after these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionPhase {
    /// Responses are owed, or a transaction is open.
    #[default]
    Active,
    /// No response is owed and no transaction is open.
    CanDetach,
    /// Like [`Self::CanDetach`], but settings must be queried first.
    NeedsQuery,
    /// Like [`Self::CanDetach`], but the session has state that cannot move, for this reason.
    Pinned(&'static str),
}

/// Whether a session is pinned to its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PinState {
    #[default]
    None,
    Found(&'static str),
    Reported,
}

impl PinState {
    pub(crate) fn set(&mut self, reason: &'static str) {
        if *self == Self::None {
            *self = Self::Found(reason);
        }
    }

    /// The phase of a pinned session between two transactions; `None` if it is not pinned.
    pub(crate) fn phase(&mut self, settings_result: &SettingsResult) -> Option<SessionPhase> {
        match *self {
            Self::None => None,
            // One thing at a time: first the client is told that it may go on.
            Self::Found(_) if matches!(settings_result, SettingsResult::Applied) => {
                Some(SessionPhase::Active)
            }
            Self::Found(reason) => {
                *self = Self::Reported;
                Some(SessionPhase::Pinned(reason))
            }
            Self::Reported => Some(SessionPhase::Active),
        }
    }
}

/// A `KILL` by another client, for a client that has no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingKill {
    None,
    /// Ends the command that waits.
    Query,
    Connection,
}

/// The state in which a client acquires a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquiredState {
    Reset,
    /// As the same client left it.
    SameClient,
    /// As another client left it: the reset must be sent first.
    ResetPending,
}

/// The result of the settings and queries that the proxy sent for a client.
#[derive(Debug, Default)]
pub enum SettingsResult {
    #[default]
    None,
    /// They are done: the client may start or go on.
    Applied,
    /// The server refuses a setting.
    Refused(session::Error),
}

/// What to do with a server connection that a session has released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release<R> {
    /// Nothing: the server has not received anything from the client. Unsent output is dropped.
    Clean,
    /// Like [`Self::Clean`], but the connection was not reset when the session started and must still be
    /// reset.
    Unsent(R),
    Reset(R),
    /// Close it, for this reason: the state of the protocol is not known.
    Close(&'static str),
}

#[derive(Debug)]
pub struct Detached<W, R> {
    /// What moves with the client; `None` in session pooling.
    pub request: Option<W>,
    pub release: Release<R>,
}

/// The state of a connection after one of the proxy's own commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It awaits commands, and no transaction is open.
    Idle,
    /// A reset would not help, for this reason.
    Unusable(&'static str),
}
