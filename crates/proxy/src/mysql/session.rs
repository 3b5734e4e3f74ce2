//! A client on a server connection: the traffic between the two, and the proxy's own commands.

use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{
    ConnectionState, ConnectionStatements, Diagnostics, InitialState, InitialStateQuery, KillCommand,
    KillReplacement, KillStatement, MySqlRelay, OpenState, ServerProduct, SessionRestore,
};
use ciphertoll_wire::mysql::server::write_ok;
use ciphertoll_wire::mysql::{Capabilities, Error, MySqlServerInfo, Response, Terms};

use super::connection_ids::{ConnectionIds, FIRST_ID, KillTarget, RegisteredClient};
use super::refusal;
use super::startup_request::{HandshakeContext, StartupRequest};
use super::transaction_pooling::{CommandPurpose, TransactionPooling};
use crate::protocol::{FromClient, FromServer, Release, SettingsResult, StartMode};
use crate::refusal::Refusal;

/// What is known of a server connection.
#[derive(Debug)]
pub struct BackendState {
    pub capabilities: Capabilities,
    /// The server's ID of the connection.
    pub connection_id: u32,
    /// Status flags at the start of a session.
    pub status: u16,
    /// The database of the login.
    pub database: Option<String>,
    /// The initial state of sessions; `None` until the first one has queried it.
    pub initial_state: Option<InitialState>,
    /// Whether settings have MariaDB's or MySQL's names.
    pub product: ServerProduct,
    /// The statements of its client that are prepared here, in transaction pooling.
    pub prepared: ConnectionStatements,
}

/// What a reset must know of the session before it, and whether its client may ask for diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReleasedState {
    pub open_state: OpenState,
    /// Diagnostics that the client may still ask for.
    pub diagnostics: Diagnostics,
}

/// A client's session on a server connection.
#[derive(Debug)]
pub struct ClientSession {
    pub(super) relay: MySqlRelay,
    /// A running query for the initial state.
    pub(super) initial_state_query: Option<InitialStateQuery>,
    /// Commands that the proxy has sent for the client, in transaction pooling.
    pub(super) command: Option<(CommandPurpose, SessionRestore)>,
    pub(super) login_state: LoginState,
    /// The server has received something from the client.
    pub(super) needs_reset: bool,
    pub(super) mode: PoolingMode,
    pub(super) login_context: LoginContext,
}

/// How long the session keeps its connection.
#[derive(Debug)]
pub(super) enum PoolingMode {
    /// Session pooling.
    Session(RegisteredClient),
    /// Transaction pooling.
    Transaction(Box<TransactionPooling>),
}

/// What a change of the user needs.
#[derive(Clone, Debug)]
pub(super) struct LoginContext {
    pub(super) handshake: Option<HandshakeContext>,
    pub(super) terms: Terms,
    pub(super) connection_id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginState {
    /// The client waits for this packet, which ends its login.
    LoggingIn { sequence: u8 },
    /// The login is complete: this packet ended it.
    LoggedIn { sequence: u8 },
}

impl BackendState {
    /// The state after a login to this database.
    pub fn of(server: &MySqlServerInfo, database: Option<String>) -> Self {
        Self {
            capabilities: server.capabilities,
            connection_id: server.connection_id,
            status: server.greeting.status(),
            database,
            initial_state: None,
            product: ServerProduct::of(&server.version),
            prepared: ConnectionStatements::default(),
        }
    }
}

impl LoginContext {
    pub(super) fn of(request: &StartupRequest) -> Self {
        let StartupRequest { handshake, terms, connection_id, .. } = request;
        Self { handshake: handshake.clone(), terms: *terms, connection_id: *connection_id }
    }
}

impl ClientSession {
    /// Starts a session. The first session of a connection appends a query for the initial state to
    /// `to_server`, which must be empty.
    pub fn begin(
        request: &StartupRequest,
        backend: &BackendState,
        connection_ids: &ConnectionIds,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let initial_state_query = match backend.initial_state {
            Some(_) => None,
            None => {
                Some(InitialStateQuery::begin(backend.capabilities, backend.database.clone(), to_server)?)
            }
        };
        let sequence = request.sequence;
        let login_state = match initial_state_query {
            Some(_) => LoginState::LoggingIn { sequence },
            None => LoginState::LoggedIn { sequence },
        };
        Ok(Self {
            relay: MySqlRelay::new(backend.capabilities).with_own_numbers(FIRST_ID),
            initial_state_query,
            command: None,
            login_state,
            needs_reset: false,
            mode: PoolingMode::Session(
                connection_ids.register(request.connection_id, Some(backend.connection_id)),
            ),
            login_context: LoginContext::of(request),
        })
    }

    /// What a change of the user needs; `None` within a response, when no client changes its user.
    pub(super) fn login_context(&self) -> Option<&LoginContext> {
        matches!(self.relay.connection_state(), ConnectionState::Clean(_)).then_some(&self.login_context)
    }

    pub fn start_mode(&self) -> StartMode {
        let awaits_prepare = match &self.mode {
            PoolingMode::Session(_) => false,
            PoolingMode::Transaction(pooled) => {
                pooled.awaits_prepare()
                    || matches!(&self.command, Some((purpose, _)) if *purpose != CommandPurpose::Pipelined)
            }
        };
        if self.initial_state_query.is_some() || awaits_prepare {
            StartMode::AfterSettings
        } else {
            StartMode::Immediate
        }
    }

    /// Appends the end of the login.
    pub fn greet(&self, backend: &BackendState, out: &mut Vec<u8>) -> Result<(), Error> {
        let (LoginState::LoggingIn { sequence } | LoginState::LoggedIn { sequence }) = self.login_state;
        write_ok(out, sequence, &OkPacket { status: backend.status, ..OkPacket::default() })
    }

    /// Processes the client's next bytes: those that were not passed on before, and newer ones. An error is
    /// the client's fault.
    pub fn process_client(&mut self, input: &[u8], backend: &mut BackendState) -> Result<FromClient, Error> {
        if let PoolingMode::Transaction(_) = self.mode {
            return self.pooled_from_client(input, backend);
        }
        let ciphertoll_wire::relay::FromClient { pass_bytes, goodbye } = self.relay.process_client(input)?;
        self.needs_reset |= pass_bytes > 0;
        let mut processed = FromClient::passes(pass_bytes, goodbye);
        if let Some((_, bytes)) = self.translate_kill(&input[pass_bytes..], backend, &mut processed.insert)? {
            processed.drop_bytes = bytes;
        }
        Ok(processed)
    }

    /// Translates the proxy's connection IDs in a `KILL` that comes next to the server's. Returns the command
    /// and its length.
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

    /// Processes the server's next bytes: those that were neither skipped nor passed on before, and newer
    /// ones. After an error the connection must be closed.
    pub fn process_server(&mut self, input: &[u8], backend: &mut BackendState) -> Result<FromServer, Error> {
        let mut rest = input;
        let settings_result = self.read_initial_state(&mut rest, backend)?;
        let skip_bytes = input.len() - rest.len();
        if let PoolingMode::Transaction(_) = self.mode {
            return self.pooled_from_server(input, skip_bytes, settings_result, backend);
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

    /// Reads the initial state of sessions while it is being queried.
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
                backend.initial_state = Some(initial_state);
                self.complete_login();
                SettingsResult::Applied
            }
            Err(error @ Error::Server { .. }) => SettingsResult::Refused(error.into()),
            Err(error) => return Err(error),
        };
        self.initial_state_query = None;
        Ok(settings_result)
    }

    /// Completes the client's login, if it is not complete.
    pub(super) fn complete_login(&mut self) {
        let (LoginState::LoggingIn { sequence } | LoginState::LoggedIn { sequence }) = self.login_state;
        self.login_state = LoginState::LoggedIn { sequence };
    }

    /// Whether an error packet can be sent to the client now.
    pub fn can_send_error(&self) -> bool {
        self.relay.between_answers() && !self.relay.error_was_last()
    }

    pub fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let sequence = match self.login_state {
            LoginState::LoggingIn { sequence } => sequence,
            LoginState::LoggedIn { .. } => self.relay.next_sequence(),
        };
        refusal::write(refusal, sequence, out);
    }

    /// What to do with the connection after this session.
    pub fn release(&self) -> Release<ReleasedState> {
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
            ConnectionState::Clean(open_state) => Release::Reset(ReleasedState { open_state, diagnostics }),
        }
    }
}

#[cfg(test)]
mod tests;
