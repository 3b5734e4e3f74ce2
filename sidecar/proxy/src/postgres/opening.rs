//! What a session sends to the server in front of its client's commands: settings, and the reset after another client.

use ciphertoll_wire::postgres::Error;
use ciphertoll_wire::postgres::relay::InternalCommand;
use ciphertoll_wire::postgres::sql::Remains;

use super::backend_state::BackendState;
use super::startup_request::{StartupRequest, cannot_fail, owned, pairs};
use crate::protocol::AcquiredState;

/// What a session sends in front of its client's commands.
#[derive(Default)]
pub(super) struct Opening {
    pub(super) command: Option<(CommandPurpose, InternalCommand)>,
    pub(super) needs_reset: bool,
    /// The value of a setting before a new one was pipelined.
    pub(super) before: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// Settings that cannot fail, pipelined in front of the client's first command.
    Pipelined,
    /// Settings, before the client may send commands.
    Settings,
    /// A query for settings that the client has changed; the client waits.
    QueryValues,
    /// The reset after another client, and settings, pipelined in front of everything up to the client's
    /// first `Sync`. If the reset fails, the server skips that much and no more, so what follows must wait.
    ResetFirst,
}

impl Opening {
    /// Sets the client's settings. `to_server` must be empty. Settings that cannot fail are recorded in `backend` already.
    pub(super) fn set(
        request: &StartupRequest,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let differing = request.differing(&backend.parameters);
        backend.record_set(differing.iter().map(|(name, _)| *name));
        let (purpose, before) = match differing.as_slice() {
            [] => return Ok(Self::default()),
            [(name, value)] if cannot_fail(name, value, &backend.parameters) => {
                let before = backend.parameters.get(name.as_bytes()).unwrap_or_default().to_vec();
                backend.parameters.set(name.as_bytes(), value.as_bytes())?;
                (CommandPurpose::Pipelined, Some(((*name).to_owned(), before)))
            }
            _ => (CommandPurpose::Settings, None),
        };
        let command = InternalCommand::settings(differing, to_server)?;
        Ok(Self { command: Some((purpose, command)), needs_reset: before.is_none(), before })
    }

    /// On a connection that another client has left and that was not reset: it is now, or, if only settings differ, they
    /// are set. The client's login is complete. `backend` already is what it will be when the server has executed what
    /// is appended to `to_server`.
    pub(super) fn take_over(
        request: &StartupRequest,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let restored = if backend.remains < Remains::Anything { request.restoring(backend) } else { None };
        let (settings, command) = match restored {
            Some(settings) if settings.is_empty() && backend.remains == Remains::Nothing => (settings, None),
            Some(settings) if settings.is_empty() => {
                (settings, Some(InternalCommand::close_unnamed(to_server)?))
            }
            Some(settings) => {
                let command = InternalCommand::restore(pairs(&settings), to_server)?;
                (settings, Some(command))
            }
            None => {
                backend.prepared.clear();
                let known = backend.parameters.clone();
                for (name, value) in known.changed_from(&backend.base) {
                    backend.parameters.assume(name, value)?;
                }
                let settings = owned(request.differing(&backend.base));
                let command = InternalCommand::take_over(pairs(&settings), backend.commit, to_server)?;
                (settings, Some(command))
            }
        };
        // The last client's is closed in front of this client's commands.
        backend.prepared.forget_unnamed();
        backend.remains = Remains::Nothing;
        backend.record_set(settings.iter().map(|(name, _)| name.as_str()));
        for (name, value) in &settings {
            if backend.base.get(name.as_bytes()).is_some() {
                backend.parameters.assume(name.as_bytes(), value.as_bytes())?;
            }
        }
        let command = command.map(|command| (CommandPurpose::ResetFirst, command));
        Ok(Self { command, needs_reset: true, before: None })
    }

    /// For a session that has its connection until it ends.
    pub(super) fn unpooled(
        request: &StartupRequest,
        acquired: AcquiredState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        if acquired != AcquiredState::ResetPending {
            return Self::set(request, backend, to_server);
        }
        let differing = request.differing(&backend.base);
        if differing.iter().all(|(name, value)| cannot_fail(name, value, &backend.base)) {
            return Self::take_over(request, backend, to_server);
        }
        // The server reports what differs from its last report, and nothing else.
        let command = InternalCommand::settings_after_reset(differing, to_server)?;
        Ok(Self { command: Some((CommandPurpose::Settings, command)), needs_reset: true, before: None })
    }
}
