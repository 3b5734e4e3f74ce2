//! A client on a server connection: the traffic between the two, and the proxy's own commands.

use ciphertoll_wire::Response;
use ciphertoll_wire::postgres::relay::{
    ClientBytes, ConnectionState, InternalCommand, PassThrough, PostgresRelay, ServerBytes,
    first_command_bytes,
};
use ciphertoll_wire::postgres::server::{Report, write_error, write_parameter_status, write_ready_for_query};
use ciphertoll_wire::postgres::sql::Remains;
use ciphertoll_wire::postgres::{Error, Parameters, Severity, TextEncoding, TransactionStatus};
use ciphertoll_wire::relay::{Departure, RoleDoubt};

use super::backend_state::{BackendState, Greeting, ResetContext};
use super::limit_errors;
use super::opening::{CommandPurpose, Opening};
use super::replication;
use super::startup_request::StartupRequest;
use super::transaction_pooling::{CUSTOM_SETTING, TransactionPooling};
use crate::exceeded::Exceeded;
use crate::metrics::DEDICATED_CLIENT_LEFT;
use crate::protocol::{
    AcquiredState, CancelToken, Detached, FromClient, FromServer, PinState, ProtocolSession, Release,
    SessionPhase, SessionProgress, SessionResult, SettingsResult, StartFailed,
};
use crate::refusal::Refusal;

/// A client's session on a server connection, in transaction pooling of one transaction.
#[derive(Debug)]
pub struct ClientSession {
    relay: PostgresRelay,
    command: Option<(CommandPurpose, InternalCommand)>,
    /// The server has received something that a reset must undo.
    needs_reset: bool,
    /// The client's commands were passed on.
    has_input: bool,
    /// The value of a setting before a new one was pipelined in front of the client's first command.
    before: Option<(String, Vec<u8>)>,
    /// Digest of the reported settings with which the client has begun, in session pooling.
    began_with: Option<u64>,
    /// In session pooling: why the connection must be closed when the client leaves, whatever it sends.
    ends_with_client: Option<&'static str>,
    /// In session pooling: whether the client has logged in with a time limit that may cancel a reset.
    has_short_timeout: bool,
    /// In transaction pooling only.
    pooled: Option<TransactionPooling>,
    opening_state: OpeningState,
    /// Of a connection for one client, whose messages are not read.
    dedicated: Option<PassThrough>,
}

/// What the server has answered to what was sent in front of the client's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpeningState {
    NotRefused,
    /// The client has been told, and the server skips its commands, or has not received any.
    Refused,
}

impl ClientSession {
    fn new(opening: Opening, pooled: Option<TransactionPooling>) -> Box<Self> {
        let Opening { command, needs_reset, before } = opening;
        let mut relay = if pooled.is_some() { PostgresRelay::new() } else { PostgresRelay::unpooled() };
        if let Some((CommandPurpose::ResetFirst, _)) = &command {
            relay.hold_after_sync();
        }
        Box::new(Self {
            relay,
            command,
            needs_reset,
            has_input: false,
            before,
            began_with: None,
            ends_with_client: None,
            has_short_timeout: false,
            pooled,
            opening_state: OpeningState::NotRefused,
            dedicated: None,
        })
    }

    /// Starts a session on a connection that ends with it. The server has its settings.
    pub fn begin_dedicated() -> Box<Self> {
        let mut session = Self::new(Opening::default(), None);
        session.dedicated = Some(PassThrough::default());
        session
    }

    /// Starts a session that has its connection until it ends. Commands that apply the client's settings are appended to
    /// `to_server`, which must be empty.
    pub fn begin_unpooled(
        request: &StartupRequest,
        acquired: AcquiredState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<Self>, Error> {
        let opening = Opening::unpooled(request, acquired, backend, to_server)?;
        let mut session = Self::new(opening, None);
        session.relay.observe_remains();
        let custom = || (request.custom_settings() != 0).then_some(CUSTOM_SETTING);
        session.has_short_timeout = request.has_short_timeout();
        session.ends_with_client = request.ends_with_client().or_else(custom);
        if !session.awaits_settings() {
            session.began_with = Some(backend.parameters.digest());
        }
        Ok(session)
    }

    /// The same for a session of one transaction.
    pub fn begin_pooled(
        request: Box<StartupRequest>,
        acquired: AcquiredState,
        backend: &mut BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<Self>, Box<StartFailed<Box<StartupRequest>>>> {
        let opening = match acquired {
            AcquiredState::Reset => Opening::set(&request, backend, to_server),
            AcquiredState::SameClient if !request.lacks_login_settings => {
                Ok(Opening { needs_reset: true, ..Opening::default() })
            }
            AcquiredState::SameClient | AcquiredState::ResetPending => {
                Opening::take_over(&request, backend, to_server)
            }
        };
        let opening = match opening {
            Ok(opening) => opening,
            Err(error) => return Err(Box::new(StartFailed { request, error: error.into() })),
        };
        let process_id = request.process_id;
        let pooled = TransactionPooling::new(request, acquired, backend);
        let mut session = Self::new(opening, Some(pooled));
        if let Some(process_id) = process_id {
            session.record_process_id(backend, process_id);
        }
        Ok(session)
    }

    /// Records the process ID that the proxy sends to the client, or has sent before.
    fn record_process_id(&mut self, backend: &BackendState, process_id: u32) {
        if let Some((known, _)) = &backend.cancel {
            self.relay.names_process(*known, process_id);
        }
        if let Some(pooled) = &mut self.pooled {
            pooled.request.process_id = Some(process_id);
        }
    }

    /// Records what the session may have left on its connection.
    fn record_remains(&self, backend: &mut BackendState) {
        if let Some(pooled) = &self.pooled {
            let is_pinned = pooled.pin != PinState::None;
            let remains = if is_pinned { Remains::Anything } else { pooled.follower.remains() };
            backend.remains = backend.remains.max(remains);
            backend.may_have_temporary |= is_pinned;
        } else if self.has_input {
            backend.may_have_temporary |= self.relay.remains() == Remains::Anything;
        }
    }

    /// What others may notice until the reset.
    fn remains(&self, backend: &BackendState) -> Remains {
        if self.pooled.is_some() {
            return backend.remains;
        }
        // After a change that the client did not make, the settings after a reset are no longer known.
        let is_known = self.began_with == Some(backend.parameters.digest())
            && backend.parameters.encoding() == TextEncoding::AsciiSafe;
        if is_known { self.relay.remains() } else { Remains::Anything }
    }

    fn read_command_responses(
        &mut self,
        rest: &mut &[u8],
        backend: &mut BackendState,
    ) -> Result<SettingsResult, Error> {
        let Some((purpose, command)) = &mut self.command else { return Ok(SettingsResult::None) };
        let settings_result = match (command.step(rest, &mut backend.parameters), *purpose) {
            (Ok(Response::NeedInput), _) => return Ok(SettingsResult::None),
            (Ok(Response::Done(_)), CommandPurpose::Pipelined) => SettingsResult::None,
            (Ok(Response::Done(_)), CommandPurpose::ResetFirst) if !self.relay.is_held() => {
                SettingsResult::None
            }
            (Ok(Response::Done(_)), purpose @ (CommandPurpose::Settings | CommandPurpose::ResetFirst)) => {
                self.began_with = Some(backend.parameters.digest());
                if let Some(pooled) = &mut self.pooled
                    && purpose == CommandPurpose::Settings
                {
                    pooled.request.confirm_login(&backend.parameters);
                }
                SettingsResult::Applied
            }
            (Ok(Response::Done(_)), CommandPurpose::QueryValues) => {
                let values = command.take_values();
                if let Some(pooled) = &mut self.pooled {
                    pooled.record_values(values, &backend.prepared);
                }
                SettingsResult::Applied
            }
            (Err(error), CommandPurpose::Settings) if awaits_commands(&error) => {
                SettingsResult::Refused(error.into())
            }
            (Err(error), CommandPurpose::QueryValues) if awaits_commands(&error) => {
                if let Some(pooled) = &mut self.pooled {
                    pooled.record_failed_query(&error);
                }
                SettingsResult::Applied
            }
            (Err(error), _) => return Err(error),
        };
        if !matches!(self.command, Some((CommandPurpose::QueryValues, _))) {
            backend.prepared.forget_unnamed();
        }
        self.relay.release_hold();
        self.command = None;
        Ok(settings_result)
    }

    fn phase(&mut self, settings_result: &SettingsResult, backend: &BackendState) -> SessionPhase {
        let Some(pooled) = &mut self.pooled else { return SessionPhase::Active };
        if self.command.is_none() && self.relay.owes_own(&pooled.follower) {
            return SessionPhase::NeedsQuery;
        }
        let is_clean = self.relay.connection_state() == ConnectionState::Clean(TransactionStatus::Idle);
        if !is_clean || self.command.is_some() || !self.has_input || pooled.follower.is_preparing() {
            return SessionPhase::Active;
        }
        if let Some(effects) = pooled.follower.settle() {
            pooled.record_effects(*effects, backend);
        }
        if let Some(reason) = self.relay.ends_with_client().or_else(|| pooled.request.ends_with_client()) {
            pooled.ends_with_client = Some(reason);
            pooled.pin.set(reason);
        }
        if pooled.request.uses_temporary_schema() {
            pooled.pin.set("a temporary table");
        }
        if backend.parameters.encoding() == TextEncoding::Ambiguous {
            pooled.pin.set("a client encoding whose texts cannot be read byte by byte");
        }
        if pooled.changes != backend.parameters.changes() {
            pooled.record_reported(backend);
        }
        let unpinned =
            if pooled.unreported.is_empty() { SessionPhase::CanDetach } else { SessionPhase::NeedsQuery };
        pooled.pin.phase(settings_result).unwrap_or(unpinned)
    }

    /// Settings whose values have changed since the client was told them on another connection. After the
    /// client has sent something they would come within a response, and the server reports new values itself.
    fn unsent_settings<'a>(&self, backend: &'a BackendState) -> Option<&'a Parameters> {
        let is_due =
            |pooled: &&TransactionPooling| pooled.acquired != AcquiredState::SameClient && !self.has_input;
        let pooled = self.pooled.as_ref().filter(is_due)?;
        let sent = pooled.request.sent_digest;
        (sent != backend.parameters.digest()).then_some(&backend.parameters)
    }
}

impl ProtocolSession for ClientSession {
    type Request = Box<StartupRequest>;
    type BackendState = BackendState;
    type ResetContext = ResetContext;

    fn awaits_settings(&self) -> bool {
        match &self.command {
            None | Some((CommandPurpose::Pipelined, _)) => false,
            Some((CommandPurpose::Settings | CommandPurpose::QueryValues, _)) => true,
            Some((CommandPurpose::ResetFirst, _)) => self.relay.is_held(),
        }
    }

    fn greet(
        &mut self,
        backend: &mut BackendState,
        cancel_token: CancelToken,
        out: &mut Vec<u8>,
    ) -> SessionResult<()> {
        self.record_process_id(backend, cancel_token.process_id);
        if backend.greeting.bytes.is_empty() || backend.greeting.digest != backend.parameters.digest() {
            backend.greeting = Greeting::new(&backend.parameters)?;
        }
        Ok(backend.greeting.write(cancel_token, out)?)
    }

    fn report_changed_settings(&self, backend: &BackendState, out: &mut Vec<u8>) -> SessionResult<()> {
        for (name, value) in self.unsent_settings(backend).into_iter().flat_map(Parameters::iter) {
            write_parameter_status(out, name, value)?;
        }
        Ok(())
    }

    fn process_client(&mut self, input: &[u8], backend: &mut BackendState) -> SessionResult<FromClient> {
        if let Some(dedicated) = &mut self.dedicated {
            return replication::from_client(dedicated, input);
        }
        let followed = self.pooled.as_mut().map(|pooled| pooled.followed(&mut backend.prepared));
        let ClientBytes { pass_bytes, insert, exclusive, goodbye } =
            self.relay.process_client(input, &backend.parameters, followed)?;
        let has_input = pass_bytes > 0 || !insert.is_empty();
        self.needs_reset |= has_input;
        self.has_input |= has_input;
        Ok(FromClient { insert, exclusive, ..FromClient::passes(pass_bytes, goodbye) })
    }

    fn process_server(&mut self, input: &[u8], backend: &mut BackendState) -> SessionResult<FromServer> {
        if let Some(dedicated) = &mut self.dedicated {
            return replication::from_server(dedicated, input);
        }
        let mut rest = input;
        let settings_result = match self.read_command_responses(&mut rest, backend) {
            Ok(settings_result) => settings_result,
            Err(error) => {
                return Ok(self.refused(&error).map(|insert| refuse(input, insert)).ok_or(error)?);
            }
        };
        let skip_bytes = input.len() - rest.len();
        let mut processed = FromServer { skip_bytes, settings_result, ..FromServer::default() };
        if self.command.is_some() || matches!(processed.settings_result, SettingsResult::Refused(_)) {
            return Ok(processed);
        }
        let followed = self.pooled.as_mut().map(|pooled| pooled.followed(&mut backend.prepared));
        let ServerBytes { pass_bytes, skip_bytes, insert } =
            self.relay.process_server(rest, &mut backend.parameters, followed)?;
        (processed.pass_bytes, processed.drop_bytes, processed.insert) = (pass_bytes, skip_bytes, insert);
        processed.patches = self.relay.patches();
        if processed.drop_bytes == 0 {
            processed.phase = self.phase(&processed.settings_result, backend);
        }
        Ok(processed)
    }

    fn take_role_doubt(&mut self) -> RoleDoubt {
        self.relay.take_role_doubt()
    }

    fn is_full(&self) -> bool {
        self.relay.is_full() || self.pooled.as_ref().is_some_and(|pooled| pooled.follower.is_waiting())
    }

    fn awaits_nothing(&self) -> bool {
        let is_idle = || self.relay.connection_state() == ConnectionState::Clean(TransactionStatus::Idle);
        self.pooled.is_some() && self.has_input && is_idle()
    }

    fn departure(&self) -> Departure {
        if self.opening_state == OpeningState::Refused || self.dedicated.is_some() {
            return Departure::Now;
        }
        let owes_failure = self.pooled.as_ref().is_some_and(|pooled| pooled.follower.owes_failure());
        if owes_failure { Departure::WhenAnswered } else { self.relay.departure() }
    }

    fn progress(&self) -> SessionProgress {
        self.relay.progress()
    }

    fn announce(&self, exceeded: Exceeded, out: &mut Vec<u8>) {
        if self.relay.between_answers() {
            limit_errors::write_reason(exceeded, out);
        }
    }

    fn can_send_error(&self) -> bool {
        match &self.dedicated {
            Some(dedicated) => dedicated.can_send_error(),
            None => self.relay.between_answers() && !self.relay.error_was_last(),
        }
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn refuse_command(&mut self, refusal: &Refusal, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        self.pooled.as_ref()?;
        let bytes = first_command_bytes(input)?;
        write_answers(refusal, 1, out).ok()?;
        self.opening_state = OpeningState::Refused;
        Some(bytes)
    }

    fn query_settings(&mut self, _: &BackendState, to_server: &mut Vec<u8>) -> SessionResult<()> {
        let Some(pooled) = &mut self.pooled else { return Ok(()) };
        if self.relay.owes_own(&pooled.follower) {
            return Ok(self.relay.write_own(&mut pooled.follower, to_server)?);
        }
        let command = InternalCommand::values(pooled.unreported.iter().map(Vec::as_slice), to_server)?;
        self.command = Some((CommandPurpose::QueryValues, command));
        Ok(())
    }

    fn owes_reset(&self) -> bool {
        let waits = matches!(self.command, Some((CommandPurpose::ResetFirst, _)));
        // In transaction pooling a client without a command loses its connection anyway.
        waits && !self.has_input && self.pooled.is_none()
    }

    fn send_reset(&mut self, to_server: &mut Vec<u8>) {
        if let Some((purpose @ CommandPurpose::ResetFirst, command)) = &mut self.command {
            command.end_with_sync(to_server);
            *purpose = CommandPurpose::Settings;
            self.relay.release_hold();
        }
    }

    fn can_detach(&self) -> bool {
        self.pooled.is_some() && !self.has_input && !self.awaits_settings()
    }

    fn detach(
        self: Box<Self>,
        backend: &mut BackendState,
    ) -> SessionResult<Detached<Box<StartupRequest>, ResetContext>> {
        let digest = backend.parameters.digest();
        let release = self.released(backend)?;
        let Some(TransactionPooling { mut request, acquired, was_reported, lacks_login_settings, .. }) =
            self.pooled
        else {
            return Ok(Detached { request: None, release });
        };
        if !matches!(release, Release::Unsent(_)) {
            request.lacks_login_settings = lacks_login_settings;
        }
        let is_told = self.opening_state == OpeningState::NotRefused
            && (acquired != AcquiredState::SameClient || was_reported);
        if is_told {
            request.sent_digest = digest;
        }
        Ok(Detached { request: Some(request), release })
    }

    fn release(&self, backend: &mut BackendState) -> SessionResult<Release<ResetContext>> {
        Ok(self.released(backend)?)
    }
}

impl ClientSession {
    /// The server has refused the reset or a setting in front of the client's commands: the client gets the error as
    /// that of its commands, and another connection next. `None` if the commands are incomplete.
    fn refused(&mut self, error: &Error) -> Option<Vec<u8>> {
        let Some((CommandPurpose::ResetFirst, _)) = self.command else { return None };
        let is_preparing = |pooled: &TransactionPooling| pooled.follower.is_preparing();
        if !awaits_commands(error) || self.pooled.as_ref().is_none_or(is_preparing) {
            return None;
        }
        let refusal = Refusal::from_server(&error.clone().into())?;
        let mut out = Vec::new();
        write_answers(&refusal, self.relay.unanswered_batches()?, &mut out).ok()?;
        self.opening_state = OpeningState::Refused;
        Some(out)
    }

    /// Undoes the changes of `backend` that the server has not received.
    fn released(&self, backend: &mut BackendState) -> Result<Release<ResetContext>, Error> {
        if self.dedicated.is_some() {
            return Ok(Release::Close(DEDICATED_CLIENT_LEFT));
        }
        self.record_remains(backend);
        if self.opening_state == OpeningState::Refused {
            return Ok(Release::Close("the server has refused a reset, or settings of its client"));
        }
        if !self.needs_reset {
            if let Some((name, value)) = &self.before {
                backend.parameters.set(name.as_bytes(), value)?;
            }
            // Nothing was sent, but the server may be in the middle of a message of its own.
            return Ok(match self.relay.connection_state() {
                ConnectionState::Unknown(reason) if !self.relay.between_answers() => Release::Close(reason),
                _ => Release::Clean,
            });
        }
        let pooled = self.pooled.as_ref();
        backend.custom_settings = pooled.map_or(0, |pooled| pooled.request.custom_settings());
        match self.command {
            // Neither was the reset in front of them.
            Some((CommandPurpose::ResetFirst, _)) if !self.has_input => {
                backend.remains = Remains::Anything;
                let (transaction, remains) = (TransactionStatus::Idle, self.remains(backend));
                // The server still has what the last client had set, and reports changes of that only.
                backend.parameters.settle()?;
                return Ok(Release::Unsent(ResetContext { transaction, remains, has_short_timeout: false }));
            }
            Some(_) => return Ok(Release::Close("the client left before its settings were applied")),
            None => {}
        }
        let of_client = self.ends_with_client.or_else(|| pooled.and_then(|pooled| pooled.ends_with_client));
        let is_custom = |name: &Vec<u8>| name.contains(&b'.');
        let is_unknown = pooled.is_some_and(|pooled| {
            pooled.unreported.iter().any(is_custom) || pooled.follower.may_have_defined_custom()
        });
        let custom = || is_unknown.then_some(CUSTOM_SETTING);
        if let Some(reason) = self.relay.ends_with_client().or(of_client).or_else(custom) {
            return Ok(Release::Close(reason));
        }
        Ok(match self.relay.connection_state() {
            ConnectionState::Clean(transaction) => {
                let of_pooled = pooled.is_some_and(TransactionPooling::may_have_short_timeout);
                let has_short_timeout = self.has_short_timeout || of_pooled;
                Release::Reset(ResetContext {
                    transaction,
                    remains: self.remains(backend),
                    has_short_timeout,
                })
            }
            ConnectionState::Unknown(reason) => Release::Close(reason),
        })
    }
}

/// Answers so many commands or batches with this error.
fn write_answers(refusal: &Refusal, count: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let (sqlstate, message) = (refusal.sqlstate, refusal.message.as_bytes());
    for _ in 0..count {
        write_error(out, &Report { severity: Severity::Error, sqlstate, message })?;
        write_ready_for_query(out, TransactionStatus::Idle);
    }
    Ok(())
}

/// Drops the server's answers; the client gets these bytes.
fn refuse(input: &[u8], insert: Vec<u8>) -> FromServer {
    FromServer { skip_bytes: input.len(), insert, phase: SessionPhase::CanDetach, ..FromServer::default() }
}

/// Whether the server has refused a command and awaits the next one.
fn awaits_commands(error: &Error) -> bool {
    matches!(error, Error::Server { severity: Severity::Error, .. })
}

#[cfg(test)]
mod tests;
