//! A client on a server connection: the traffic between the two, and the proxy's own commands.

use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{
    ConnectionState, ConnectionStatements, Diagnostics, InitialState, InitialStateQuery, KillCommand,
    KillReplacement, KillStatement, MySqlRelay, OpenState, ServerProduct, SessionRestore, SettingFlags,
    StateTracking, TextEncoding, begins_with_reset, first_command_bytes,
};
use ciphertoll_wire::mysql::server::write_ok;
use ciphertoll_wire::mysql::sql::Remains;
use ciphertoll_wire::mysql::{Capabilities, Error, MySqlServerInfo, Response};
use ciphertoll_wire::relay::{Departure, RoleDoubt};

use super::connection_ids::{ConnectionIds, FIRST_ID, KillTarget, RegisteredClient};
use super::pooled_state::{CommandPurpose, TransactionPooling};
use super::refusal;
use super::startup_request::{LoginContext, StartupRequest};
use crate::hosts::ServerRole;
use crate::protocol::{
    CancelToken, Detached, FromClient, FromServer, ProtocolSession, Release, ResetPolicy, SessionProgress,
    SessionResult, SettingsResult,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub struct BackendState {
    pub capabilities: Capabilities,
    /// The server's ID of the connection.
    pub connection_id: u32,
    /// Status flags at the start of a session: those of the login, until the server reports others to the proxy.
    pub status: u16,
    pub database: Option<String>,
    /// The initial state of sessions; `None` until the first one has queried it.
    pub initial_state: Option<InitialState>,
    /// Whether settings have MariaDB's or MySQL's names.
    pub product: ServerProduct,
    /// The statements of its client that are prepared here, in transaction pooling.
    pub prepared: ConnectionStatements,
    pub reset: ResetPolicy,
    /// What its sessions have left since the last reset.
    pub remains: Remains,
    /// What the server has told when it was asked last.
    pub(super) role: Option<ServerRole>,
    /// What clients are greeted with, until the protocol has learnt it.
    pub(super) greeting: Option<Box<GreetingTemplate>>,
}

/// What a reset must know of the session before it, and whether its client may ask for diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReleasedState {
    pub open_state: OpenState,
    pub diagnostics: Diagnostics,
    /// What this session and earlier ones have left since the last reset.
    pub remains: Remains,
}

#[derive(Debug)]
pub struct ClientSession {
    pub(super) relay: MySqlRelay,
    pub(super) initial_state_query: Option<InitialStateQuery>,
    /// Commands that the proxy has sent for the client, in transaction pooling.
    pub(super) command: Option<(CommandPurpose, SessionRestore)>,
    /// Sequence number of the packet that ends the client's login.
    pub(super) login_sequence: u8,
    /// The client waits for that packet.
    pub(super) is_logging_in: bool,
    /// The server has received something from the client.
    pub(super) needs_reset: bool,
    /// The server has refused settings that the client has set on another connection.
    pub(super) has_refused_settings: bool,
    pub(super) mode: PoolingMode,
    pub(super) login_context: Option<LoginContext>,
}

/// How long the session keeps its connection.
#[derive(Debug)]
pub(super) enum PoolingMode {
    Session(RegisteredClient),
    Transaction(Box<TransactionPooling>),
}

/// Capabilities without which the server does not report every change of the state.
const REPORTS_CHANGES: Capabilities = Capabilities::SESSION_TRACK.with(Capabilities::DEPRECATE_EOF);

impl BackendState {
    /// The state after a login to this database.
    pub fn of(server: &MySqlServerInfo, database: Option<String>, reset: ResetPolicy) -> Self {
        Self {
            capabilities: server.capabilities,
            connection_id: server.connection_id,
            status: server.greeting.status(),
            database,
            initial_state: None,
            product: ServerProduct::of(&server.version),
            prepared: ConnectionStatements::default(),
            reset,
            remains: Remains::Nothing,
            role: None,
            greeting: None,
        }
    }

    /// The server reports the status of a session that has its initial state.
    pub(super) fn record_status(&mut self, status: u16) {
        self.status = SettingFlags::of(status).in_status(self.status);
    }

    /// Whether the server is asked to report changes of the state.
    fn wanted_tracking(&self) -> StateTracking {
        let is_wanted = self.reset == ResetPolicy::Tracked && self.capabilities.contains(REPORTS_CHANGES);
        if is_wanted { StateTracking::On } else { StateTracking::Off }
    }

    /// The most that sessions may leave without a reset after them.
    pub(super) fn remains_limit(&self) -> Remains {
        match self.wanted_tracking() {
            StateTracking::On => Remains::StateOfRoutines,
            StateTracking::Off => Remains::Nothing,
        }
    }

    /// Adds what a session has left, and returns what all of them have.
    fn add_remains(&mut self, remains: Remains) -> Remains {
        let initial_state = self.initial_state.as_ref();
        let is_readable = initial_state.is_some_and(|state| state.text_encoding() == TextEncoding::AsciiSafe);
        let is_tracked = initial_state.is_some_and(|state| state.tracking() == StateTracking::On);
        self.remains = match self.remains.max(remains) {
            _ if !is_readable || !self.prepared.is_empty() => Remains::Anything,
            Remains::StateOfRoutines if !is_tracked => Remains::Anything,
            remains => remains,
        };
        self.remains
    }
}

pub(super) fn query_initial_state(
    backend: &BackendState,
    to_server: &mut Vec<u8>,
) -> Result<Option<InitialStateQuery>, Error> {
    if backend.initial_state.is_some() {
        return Ok(None);
    }
    let (database, tracking) = (backend.database.clone(), backend.wanted_tracking());
    InitialStateQuery::begin(backend.capabilities, database, tracking, to_server).map(Some)
}

impl ClientSession {
    /// A connection's first session appends a query for the initial state to `to_server`, which must be empty.
    pub fn begin(
        request: &StartupRequest,
        backend: &BackendState,
        connection_ids: &ConnectionIds,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<Self>, Error> {
        let initial_state_query = query_initial_state(backend, to_server)?;
        let registration = connection_ids.register(request.connection_id, Some(backend.connection_id));
        Ok(Box::new(Self {
            relay: MySqlRelay::new(backend.capabilities)
                .with_own_numbers(FIRST_ID)
                .observing_remains(backend.remains_limit()),
            is_logging_in: initial_state_query.is_some(),
            initial_state_query,
            command: None,
            login_sequence: request.sequence,
            needs_reset: false,
            has_refused_settings: false,
            mode: PoolingMode::Session(registration),
            login_context: request.login_context.clone(),
        }))
    }

    /// What a change of the user needs; `None` within a response, when no client changes its user.
    pub(super) fn login_context(&self) -> Option<&LoginContext> {
        self.login_context
            .as_ref()
            .filter(|_| matches!(self.relay.connection_state(), ConnectionState::Clean(_)))
    }

    /// Translates the proxy's connection IDs in a `KILL` that comes next. Returns the command and its length.
    pub(super) fn translate_kill(
        &mut self,
        rest: &[u8],
        backend: &BackendState,
        insert: &mut Vec<u8>,
    ) -> Result<Option<(KillCommand, usize)>, Error> {
        let Some((kill, bytes)) = self.relay.kill(rest) else { return Ok(None) };
        self.relay.replace_kill(rest)?;
        self.needs_reset = true;
        let registration = self.registration();
        let instead = |named: &KillStatement| match registration.resolve_kill(named.number, named.target) {
            KillTarget::Backend(number) => KillReplacement::Number(number),
            // The server reports an unknown ID itself.
            KillTarget::Unknown => KillReplacement::Number(named.number),
            KillTarget::Notified => KillReplacement::Nothing,
        };
        kill.encode(backend.capabilities, instead, insert)?;
        Ok(Some((kill, bytes)))
    }

    pub(super) fn registration(&mut self) -> &mut RegisteredClient {
        match &mut self.mode {
            PoolingMode::Session(registration) => registration,
            PoolingMode::Transaction(pooled) => &mut pooled.session_state.registration,
        }
    }

    fn read_initial_state(
        &mut self,
        rest: &mut &[u8],
        backend: &mut BackendState,
    ) -> Result<SettingsResult, Error> {
        let Some(initial_state_query) = &mut self.initial_state_query else {
            return Ok(SettingsResult::None);
        };
        let settings_result = match initial_state_query.step(rest) {
            Ok(Response::NeedInput) => return Ok(SettingsResult::None),
            Ok(Response::Done(initial_state)) => {
                backend.record_status(initial_state_query.status());
                backend.initial_state = Some(initial_state);
                self.is_logging_in = false;
                SettingsResult::Applied
            }
            Err(error @ Error::Server { .. }) => SettingsResult::Refused(error.into()),
            Err(error) => return Err(error),
        };
        self.initial_state_query = None;
        Ok(settings_result)
    }

    /// What to do with the connection after this session.
    fn release_action(&self) -> Release<ReleasedState> {
        if self.initial_state_query.is_some() {
            return Release::Close("the client left before its session started");
        }
        let (registration, diagnostics) = match &self.mode {
            PoolingMode::Session(registration) => (registration, Diagnostics::None),
            PoolingMode::Transaction(pooled) => (&pooled.session_state.registration, pooled.diagnostics),
        };
        match self.relay.connection_state() {
            ConnectionState::Unknown(reason) => Release::Close(reason),
            ConnectionState::Clean(_) if registration.has_kill_in_flight() => {
                Release::Close("a KILL for its last client is still on its way")
            }
            ConnectionState::Clean(_) if !self.needs_reset => Release::Clean,
            ConnectionState::Clean(_) if self.command.is_some() => {
                Release::Close("the client left before the proxy's commands for it were answered")
            }
            ConnectionState::Clean(open_state) => {
                Release::Reset(ReleasedState { open_state, diagnostics, remains: self.relay.remains() })
            }
        }
    }

    fn has_no_database(&self) -> bool {
        matches!(&self.mode, PoolingMode::Transaction(pooled) if pooled.follower.has_no_database())
    }

    /// The same, and records on the connection what the session has left.
    fn leave(&self, backend: &mut BackendState) -> Release<ReleasedState> {
        match self.release_action() {
            Release::Reset(_) if let Some(reason) = self.relay.ends_with_client() => Release::Close(reason),
            // Its client would take it again, without its settings.
            Release::Reset(_) if self.has_refused_settings => {
                Release::Close("the server has refused settings of its client")
            }
            // For its client it is in another state than the one to be restored.
            Release::Reset(_) if self.has_no_database() => {
                Release::Close("the server has refused the default database of its client")
            }
            Release::Reset(released) => {
                let remains = backend.add_remains(released.remains);
                Release::Reset(ReleasedState { remains, ..released })
            }
            release => release,
        }
    }
}

impl ProtocolSession for ClientSession {
    type Request = Box<StartupRequest>;
    type BackendState = BackendState;
    type ResetContext = ReleasedState;

    fn awaits_settings(&self) -> bool {
        self.initial_state_query.is_some()
            || matches!(&self.command, Some((purpose, _)) if *purpose != CommandPurpose::Pipelined)
            || matches!(&self.mode, PoolingMode::Transaction(pooled) if pooled.pending.is_some())
    }

    fn greet(&mut self, backend: &mut BackendState, _: CancelToken, out: &mut Vec<u8>) -> SessionResult<()> {
        let ok = OkPacket { status: backend.status, ..OkPacket::default() };
        Ok(write_ok(out, self.login_sequence, &ok)?)
    }

    fn process_client(&mut self, input: &[u8], backend: &mut BackendState) -> SessionResult<FromClient> {
        if let PoolingMode::Transaction(_) = self.mode {
            return Ok(self.pooled_from_client(input, backend)?);
        }
        let ciphertoll_wire::relay::ClientInput { pass_bytes, goodbye } = self.relay.process_client(input)?;
        self.needs_reset |= pass_bytes > 0;
        let mut processed = FromClient::passes(pass_bytes, goodbye);
        if let Some((_, bytes)) = self.translate_kill(&input[pass_bytes..], backend, &mut processed.insert)? {
            processed.drop_bytes = bytes;
        }
        Ok(processed)
    }

    fn process_server(&mut self, input: &[u8], backend: &mut BackendState) -> SessionResult<FromServer> {
        let mut rest = input;
        let settings_result = self.read_initial_state(&mut rest, backend)?;
        let skip_bytes = input.len() - rest.len();
        if let PoolingMode::Transaction(_) = self.mode {
            return Ok(self.pooled_from_server(input, skip_bytes, settings_result, backend)?);
        }
        if self.initial_state_query.is_some() {
            return Ok(FromServer { skip_bytes, ..FromServer::default() });
        }
        let pass_bytes = self.relay.process_server(rest)?;
        if let ConnectionState::Clean(_) = self.relay.connection_state() {
            self.registration().kills_answered();
        }
        Ok(FromServer { skip_bytes, settings_result, pass_bytes, ..FromServer::default() })
    }

    fn take_role_doubt(&mut self) -> RoleDoubt {
        self.relay.take_role_doubt()
    }

    fn is_full(&self) -> bool {
        let awaits_reset = match &self.mode {
            PoolingMode::Session(_) => false,
            PoolingMode::Transaction(pooled) => pooled.follower.awaits_reset(),
        };
        awaits_reset || self.relay.is_full()
    }

    fn departure(&self) -> Departure {
        self.relay.departure()
    }

    fn progress(&self) -> SessionProgress {
        self.relay.progress()
    }

    fn can_send_error(&self) -> bool {
        // An error that was the answer to an earlier command does not tell that a later one has none.
        let is_told = self.relay.error_was_last() && self.relay.departure() == Departure::Now;
        self.relay.between_answers() && !is_told
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let sequence = if self.is_logging_in { self.login_sequence } else { self.relay.next_sequence() };
        refusal::write(refusal, sequence, out);
    }

    fn refuse_command(&mut self, refusal: &Refusal, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let PoolingMode::Transaction(pooled) = &mut self.mode else { return None };
        let bytes = first_command_bytes(input)?;
        if begins_with_reset(input) && pooled.session_state.has_settings() {
            pooled.session_state.clear_settings();
            return Some(0);
        }
        self.refuse(refusal, out);
        Some(bytes)
    }

    fn query_settings(&mut self, backend: &BackendState, to_server: &mut Vec<u8>) -> SessionResult<()> {
        Ok(self.query_pooled(backend, to_server)?)
    }

    fn can_detach(&self) -> bool {
        matches!(&self.mode, PoolingMode::Transaction(pooled) if !pooled.has_input) && !self.awaits_settings()
    }

    fn detach(
        self: Box<Self>,
        backend: &mut BackendState,
    ) -> SessionResult<Detached<Box<StartupRequest>, ReleasedState>> {
        let release = self.leave(backend);
        let request = match self.mode {
            PoolingMode::Session(_) => None,
            PoolingMode::Transaction(pooled) => {
                let TransactionPooling { mut request, mut session_state, diagnostics, .. } = *pooled;
                session_state.registration.set_backend(None);
                session_state.was_greeted = true;
                session_state.diagnostics = diagnostics;
                if let ConnectionState::Clean(open_state) = self.relay.connection_state() {
                    session_state.socket_limits = open_state.socket_limits;
                }
                request.session_state = Some(session_state);
                Some(request)
            }
        };
        Ok(Detached { request, release })
    }

    fn release(&self, backend: &mut BackendState) -> SessionResult<Release<ReleasedState>> {
        Ok(self.leave(backend))
    }
}

#[cfg(test)]
mod tests;
