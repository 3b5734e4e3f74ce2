//! Sessions in transaction pooling: detached from the connection at the end of each transaction, and
//! continued on any other.

use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::relay::{
    ConnectionState, Diagnostics, InitialState, InitialStateQuery, InsertIdQuery, MultiStatements,
    MySqlRelay, Reply, RestoredSession, ServerProduct, SessionChanges, SessionFollower, SessionReset,
    SessionRestore, StatusFlags, TextEncoding, Transaction, encode_refusal, first_command_bytes, restorable,
};
use ciphertoll_wire::mysql::sql::{CHARACTER_SETS, DefaultDatabase, Remains};
use ciphertoll_wire::mysql::{Error, Response};
use ciphertoll_wire::relay::Goodbye;

use super::connection_ids::{ConnectionIds, FIRST_ID};
use super::pooled_state::{CommandPurpose, ContextState, PendingQuery, TransactionPooling};
use super::session::{BackendState, ClientSession, PoolingMode, query_initial_state};
use super::session_state::{ReplayRisk, SessionState, Unportable};
use super::startup_request::{INTERRUPTED, StartupRequest};
use crate::protocol::{
    AcquiredState, FromClient, FromServer, PendingKill, PinState, ProtocolSession, SessionPhase,
    SettingsResult, StartFailed,
};

/// A command that will be refused is awaited up to this length.
const MAX_REFUSED_BYTES: usize = 1 << 16;
/// `ER_NEED_REPREPARE`.
const CHANGED: ErrPacket<'static> =
    ErrPacket { code: 1615, sql_state: *b"HY000", message: b"Prepared statement needs to be re-prepared" };

const NOT_REPORTED: &str = "a setting whose value the server does not report";
const NOT_PORTABLE: &str = "a setting that cannot be set on another connection";
const MIXED: &str = "a character set whose texts cannot be read byte by byte";

/// A statement cannot be prepared as it was at first.
struct NotInContext;

impl TransactionPooling {
    fn add_query(&mut self, query: PendingQuery) {
        if !self.queries.contains(&query) {
            self.queries.push(query);
        }
    }

    fn record_effects(&mut self, done: SessionChanges) {
        if done.reset == SessionReset::Yes {
            self.session_state.clear_settings();
            self.context = ContextState::Known;
            self.queries.retain(|query| *query == PendingQuery::Database);
            if std::mem::take(&mut self.pin) != PinState::None {
                // A reset leaves the default database, which may have been dropped.
                self.add_query(PendingQuery::Database);
            }
            InitialState::changed_by_reset()
                .for_each(|name| self.add_query(PendingQuery::Setting(name.to_owned())));
        }
        if let Some(reason) = done.effects.pin {
            self.pin.set(reason);
        }
        if done.diagnostics_of_settings == Diagnostics::Some {
            self.session_state.settings_warn = true;
        }
        for name in done.effects.settings {
            self.add_query(PendingQuery::Setting(name));
        }
        if done.effects.database == DefaultDatabase::MayDiffer {
            self.add_query(PendingQuery::Database);
        }
        self.session_state.insert_id = done.insert_id.or(self.session_state.insert_id);
        match done.insert_id_query {
            InsertIdQuery::None => {}
            InsertIdQuery::AfterError => self.add_query(PendingQuery::InsertIdAfterError),
            InsertIdQuery::Needed => self.add_query(PendingQuery::InsertId),
        }
        self.session_state.option = done.option.or(self.session_state.option);
        self.session_state.flags = self.follower.flags();
        if done.status == StatusFlags::Unknown {
            self.status = StatusFlags::Unknown;
        }
        if let Some(diagnostics) = done.diagnostics {
            self.diagnostics = diagnostics;
        }
    }

    fn record_values(&mut self, restored: RestoredSession, backend: &BackendState) {
        let queries = std::mem::take(&mut self.queries);
        if queries.is_empty() {
            return;
        }
        if backend.product == ServerProduct::MySql {
            // The query has replaced the diagnostics of the client's statement. MariaDB's are left: it uses no table.
            self.diagnostics = Diagnostics::None;
        }
        let has = |set: &str| {
            queries.iter().any(|query| matches!(query, PendingQuery::Setting(name) if name == set))
        };
        let has_set_names = CHARACTER_SETS.into_iter().all(has);
        let Some(values) = restored.values else {
            self.context = ContextState::Unknown;
            return self.pin.set(NOT_REPORTED);
        };
        for (query, value) in queries.into_iter().zip(values) {
            let is_database = query == PendingQuery::Database;
            let value = if is_database { value.map(|digits| unhex(&digits)).transpose() } else { Ok(value) };
            let Some(value) = value.ok().and_then(restorable) else {
                self.context = ContextState::Unknown;
                self.pin.set(NOT_PORTABLE);
                continue;
            };
            match query {
                PendingQuery::Setting(name) => self.record_setting(&name, value, backend),
                PendingQuery::InsertId | PendingQuery::InsertIdAfterError => {
                    let insert_id = value.and_then(|value| value.parse().ok());
                    self.session_state.insert_id = insert_id.filter(|id| *id != 0);
                }
                PendingQuery::Database if value.is_none() && backend.database.is_some() => {
                    self.context = ContextState::Unknown;
                    self.pin.set("no default database");
                }
                PendingQuery::Database => {
                    let chosen = value.filter(|name| backend.database.as_ref() != Some(name));
                    if chosen.is_some()
                        && backend.database.is_none()
                        && self.session_state.statements.have_database_of_login()
                    {
                        self.pin.set("a database chosen behind statements without one");
                    }
                    self.session_state.record_database(chosen);
                }
            }
        }
        if has_set_names {
            self.session_state.record_names();
        }
    }

    fn record_setting(&mut self, name: &str, value: Option<String>, backend: &BackendState) {
        if name == "character_set_client"
            && value.as_deref().is_some_and(|set| TextEncoding::of(set) == TextEncoding::Ambiguous)
        {
            self.pin.set(MIXED);
        }
        // It is about the last row that the server's session has inserted.
        if name == "sql_auto_is_null" && value.as_deref().is_some_and(|set| !matches!(set, "0" | "OFF")) {
            self.pin.set("sql_auto_is_null");
        }
        if let Err(Unportable(reason)) = self.session_state.record_setting(backend.product.name(name), value)
        {
            self.pin.set(reason);
        }
    }
}

impl ClientSession {
    /// Starts a session of one transaction. `to_server`, which must be empty, gets what must be sent first.
    pub fn begin_pooled(
        mut request: Box<StartupRequest>,
        acquired: AcquiredState,
        backend: &BackendState,
        connection_ids: &ConnectionIds,
        to_server: &mut Vec<u8>,
    ) -> Result<Box<Self>, Box<StartFailed<Box<StartupRequest>>>> {
        let mut session_state = request.session_state.take().unwrap_or_else(|| {
            let registration = connection_ids.register(request.connection_id, None);
            Box::new(SessionState::new(registration, backend.status))
        });
        let begun = begin(&mut session_state, acquired, backend, to_server);
        let kill = session_state.registration.pending_kill();
        session_state.registration.clear_query_kill();
        let (initial_state_query, command) = match begun {
            Ok(begun) if kill != PendingKill::Connection => begun,
            ended => {
                let error = ended.err().unwrap_or_else(|| INTERRUPTED.into()).into();
                request.session_state = Some(session_state);
                return Err(Box::new(StartFailed { request, error }));
            }
        };
        session_state.registration.set_backend(Some(backend.connection_id));
        let mut relay = MySqlRelay::new(backend.capabilities)
            .with_own_numbers(FIRST_ID)
            .watched()
            .observing_remains(backend.remains_limit());
        // If earlier sessions have left something, what this one leaves makes no difference.
        if command.is_some() || backend.remains == Remains::Anything {
            relay.raise_remains(Remains::Anything);
        }
        let (diagnostics, socket_limits) = if acquired == AcquiredState::SameClient {
            (session_state.diagnostics, session_state.socket_limits)
        } else {
            (Diagnostics::None, session_state.replayed_socket_limits())
        };
        relay.set_socket_limits(socket_limits);
        if session_state.option.is_some() {
            relay.set_statements(MultiStatements::Changed);
        }
        let has_settings = matches!(command, Some((CommandPurpose::Settings, _)));
        let mut session = Box::new(Self {
            relay,
            is_logging_in: (initial_state_query.is_some() || has_settings) && !session_state.was_greeted,
            initial_state_query,
            needs_reset: acquired == AcquiredState::SameClient || has_settings,
            has_refused_settings: false,
            command,
            login_sequence: request.sequence,
            login_context: request.login_context.clone(),
            mode: PoolingMode::Transaction(Box::new(TransactionPooling {
                request,
                follower: SessionFollower::new(session_state.flags),
                session_state,
                pin: PinState::None,
                queries: Vec::new(),
                status: StatusFlags::Reported,
                diagnostics,
                pending: None,
                context: ContextState::Known,
                refuses_first: kill == PendingKill::Query && acquired == AcquiredState::Reset,
                awaited_kill: false,
                has_input: false,
            })),
        });
        session.check_character_set(backend);
        Ok(session)
    }

    fn check_character_set(&mut self, backend: &BackendState) {
        if let PoolingMode::Transaction(pooled) = &mut self.mode
            && backend
                .initial_state
                .as_ref()
                .is_some_and(|initial_state| initial_state.text_encoding() == TextEncoding::Ambiguous)
        {
            pooled.pin.set(MIXED);
        }
    }

    /// The initial state of the connection has been read, before the client's first command.
    fn begin_with_flags(&mut self, backend: &BackendState) {
        if let PoolingMode::Transaction(pooled) = &mut self.mode {
            pooled.session_state.flags = pooled.session_state.replayed_flags(backend.status);
            pooled.follower.begin_with(pooled.session_state.flags);
        }
    }

    pub(super) fn pooled_from_client(
        &mut self,
        input: &[u8],
        backend: &mut BackendState,
    ) -> Result<FromClient, Error> {
        let mut processed = FromClient::passes(0, Goodbye::None);
        if self.awaits_settings() {
            return Ok(processed);
        }
        if self.refuse_cancelled_command(input, backend, &mut processed)? {
            return Ok(processed);
        }
        let Self { relay, mode: PoolingMode::Transaction(pooled), .. } = self else { return Ok(processed) };
        let statements = &mut pooled.session_state.statements;
        let followed = pooled.follower.process_client(relay, input, statements, &mut backend.prepared)?;
        processed.pass_bytes = followed.pass_bytes;
        processed.drop_bytes = followed.drop_bytes;
        processed.insert = followed.insert;
        processed.goodbye = followed.goodbye.unwrap_or(Goodbye::None);
        if processed.pass_bytes + processed.drop_bytes > 0 {
            pooled.has_input = true;
            pooled.awaited_kill = false;
            self.needs_reset = true;
        }
        let rest = &input[processed.pass_bytes + processed.drop_bytes..];
        if let Some(own) = followed.needs {
            self.prepare_missing(own, backend, &mut processed)?;
        } else if processed.drop_bytes == 0
            && processed.goodbye == Goodbye::None
            && !pooled.follower.awaits_reset()
        {
            if let Some((kill, bytes)) = self.translate_kill(rest, backend, &mut processed.insert)?
                && let PoolingMode::Transaction(pooled) = &mut self.mode
            {
                pooled.follower.replaced(&kill, &pooled.session_state.statements);
                pooled.has_input = true;
                processed.drop_bytes = bytes;
            }
        } else if followed.reply == Reply::None && rest.is_empty() && self.is_clean() {
            // The response shows that the session can be detached again.
            let mut restore = SessionRestore::new(backend.capabilities);
            restore.status(&mut processed.insert);
            self.command = Some((CommandPurpose::Pipelined, restore));
        }
        Ok(processed)
    }

    fn is_clean(&self) -> bool {
        self.command.is_none() && matches!(self.relay.connection_state(), ConnectionState::Clean(_))
    }

    /// Whether the client's first command here is refused, or will be when it is complete.
    fn refuse_cancelled_command(
        &mut self,
        input: &[u8],
        backend: &BackendState,
        processed: &mut FromClient,
    ) -> Result<bool, Error> {
        let Self { relay, mode: PoolingMode::Transaction(pooled), .. } = self else { return Ok(false) };
        if !pooled.refuses_first {
            return Ok(false);
        }
        let is_complete = first_command_bytes(input).is_some();
        if !is_complete && input.len() < MAX_REFUSED_BYTES && input.get(3..5).is_none_or(|begun| begun[1] > 1)
        {
            let length = input.first_chunk::<3>().map(|&[a, b, c]| u32::from_le_bytes([a, b, c, 0]) as usize);
            if length.is_none_or(|length| length < MAX_REFUSED_BYTES && input.len() < length + 4) {
                return Ok(true);
            }
        }
        pooled.refuses_first = false;
        let Some(bytes) = pooled.follower.replace(relay, input)? else { return Ok(false) };
        processed.drop_bytes = bytes;
        encode_refusal(backend.capabilities, &INTERRUPTED, &mut processed.insert)?;
        pooled.has_input = true;
        self.needs_reset = true;
        Ok(true)
    }

    /// The client's next command uses a statement that is not prepared here.
    fn prepare_missing(
        &mut self,
        own: u32,
        backend: &BackendState,
        processed: &mut FromClient,
    ) -> Result<(), Error> {
        // Pipelined settings may not have been sent yet, and nothing else would send them.
        let is_early = matches!(self.command, None | Some((CommandPurpose::Pipelined, _)));
        let is_clean = is_early && matches!(self.relay.connection_state(), ConnectionState::Clean(_));
        let PoolingMode::Transaction(pooled) = &mut self.mode else { return Ok(()) };
        pooled.has_input = true;
        self.needs_reset = true;
        pooled.pending = Some(own);
        if is_clean { self.query_pooled(backend, &mut processed.insert) } else { Ok(()) }
    }

    /// Prepares a statement again, with the meaning that it had at first.
    fn prepare(&mut self, own: u32, backend: &BackendState, to_server: &mut Vec<u8>) -> Result<(), Error> {
        let PoolingMode::Transaction(pooled) = &mut self.mode else { return Ok(()) };
        self.relay.raise_remains(Remains::Anything);
        let (initial_state, of_login) = (backend.initial_state.as_ref(), backend.database.as_deref());
        let switch = match pooled.session_state.context_switch(own, initial_state, of_login) {
            _ if pooled.follower.has_no_database() => Err(NotInContext),
            None => Ok(None),
            Some(Ok(switch)) if pooled.context == ContextState::Known => Ok(Some(switch)),
            Some(_) => Err(NotInContext),
        };
        let early = self.command.take().map(|(_, restore)| restore);
        let mut restore = early.unwrap_or_else(|| SessionRestore::new(backend.capabilities));
        let text = pooled.session_state.statements.text(own).unwrap_or_default();
        match switch {
            Ok(None) => restore.prepare(text, to_server)?,
            Ok(Some(switch)) => restore.prepare_in_context(&switch, text, to_server)?,
            // Nothing is prepared.
            Err(NotInContext) => restore.status(to_server),
        }
        self.command = Some((CommandPurpose::Prepare(own), restore));
        Ok(())
    }

    /// Processes the server's next bytes, after the first `skip_bytes`, which are done.
    pub(super) fn pooled_from_server(
        &mut self,
        input: &[u8],
        skip_bytes: usize,
        settings_result: SettingsResult,
        backend: &mut BackendState,
    ) -> Result<FromServer, Error> {
        let mut processed = FromServer { skip_bytes, settings_result, ..FromServer::default() };
        if self.initial_state_query.is_some()
            || matches!(processed.settings_result, SettingsResult::Refused(_))
        {
            return Ok(processed);
        }
        if matches!(processed.settings_result, SettingsResult::Applied) {
            self.check_character_set(backend);
            self.begin_with_flags(backend);
        }
        let mut rest = &input[skip_bytes..];
        if self.command.is_some() {
            processed.settings_result = SettingsResult::None;
            let before = self.read_command_responses(&mut rest, backend, &mut processed.settings_result)?;
            processed.skip_bytes = input.len() - rest.len();
            // The client's input need not wait any longer.
            let is_prepared = matches!(before, Some(CommandPurpose::Prepare(_)));
            if self.command.is_some()
                || is_prepared
                || matches!(processed.settings_result, SettingsResult::Refused(_))
            {
                return Ok(processed);
            }
        }
        let Self { relay, mode: PoolingMode::Transaction(pooled), .. } = self else { return Ok(processed) };
        let statements = &mut pooled.session_state.statements;
        let answers = pooled.follower.process_server(relay, rest, statements, &mut backend.prepared)?;
        processed.pass_bytes = answers.bytes;
        processed.drop_bytes = answers.drop_bytes;
        processed.insert = answers.insert;
        if processed.drop_bytes == 0 {
            processed.phase = self.phase(&processed.settings_result);
        }
        Ok(processed)
    }

    /// Reads the responses to the proxy's commands for the client. Returns their purpose when all are read.
    fn read_command_responses(
        &mut self,
        rest: &mut &[u8],
        backend: &mut BackendState,
        settings_result: &mut SettingsResult,
    ) -> Result<Option<CommandPurpose>, Error> {
        let Some((purpose, restore)) = &mut self.command else { return Ok(None) };
        let purpose = *purpose;
        let restored = match restore.step(rest) {
            Ok(Response::NeedInput) => return Ok(None),
            Ok(Response::Done(mut restored)) => {
                let no_database = restored.no_database.take();
                if let (Some(err), PoolingMode::Transaction(pooled)) = (no_database, &mut self.mode) {
                    pooled.follower.database_refused(err);
                }
                restored
            }
            Err(error @ Error::Server { .. }) if purpose == CommandPurpose::Settings => {
                self.command = None;
                self.has_refused_settings = true;
                *settings_result = SettingsResult::Refused(error.into());
                return Ok(Some(purpose));
            }
            Err(error) => return Err(error),
        };
        self.command = None;
        if let Some(status) = restored.status {
            let is_open = status.is_in_transaction();
            self.relay.set_transaction(if is_open { Transaction::Open } else { Transaction::None });
        }
        if purpose != CommandPurpose::Pipelined {
            *settings_result = SettingsResult::Applied;
            self.is_logging_in = false;
        }
        let PoolingMode::Transaction(pooled) = &mut self.mode else { return Ok(Some(purpose)) };
        if let Some(status) = restored.status {
            pooled.follower.report_status(status);
            pooled.session_state.flags = pooled.follower.flags();
        }
        match purpose {
            CommandPurpose::Pipelined | CommandPurpose::Settings => {}
            CommandPurpose::QueryValues => {
                pooled.status = StatusFlags::Reported;
                pooled.record_values(restored, backend);
            }
            CommandPurpose::Prepare(own) => {
                let params = pooled.session_state.statements.params(own);
                match restored.prepared {
                    Some(Ok(here)) if Some(here.params) == params => {
                        backend.prepared.insert(own, here.statement_id);
                    }
                    Some(Err(err)) => pooled.follower.preparation_failed(own, err),
                    _ => pooled.follower.preparation_failed(own, written(&CHANGED)),
                }
            }
        }
        Ok(Some(purpose))
    }

    fn phase(&mut self, settings_result: &SettingsResult) -> SessionPhase {
        let ConnectionState::Clean(open_state) = self.relay.connection_state() else {
            return SessionPhase::Active;
        };
        self.registration().kills_answered();
        let PoolingMode::Transaction(pooled) = &mut self.mode else { return SessionPhase::Active };
        if self.command.is_some() {
            return SessionPhase::Active;
        }
        if pooled.pending.is_some() {
            return SessionPhase::NeedsQuery;
        }
        if !pooled.has_input {
            return SessionPhase::Active;
        }
        if open_state.transaction == Transaction::Open {
            // An error may have ended the transaction: a deadlock, or a failure behind an implicit commit.
            return if pooled.pin == PinState::None && pooled.follower.status() == StatusFlags::Unknown {
                SessionPhase::NeedsQuery
            } else {
                SessionPhase::Active
            };
        }
        let done = pooled.follower.settle();
        pooled.record_effects(done);
        if let Some(reason) = self.relay.ends_with_client() {
            pooled.pin.set(reason);
        }
        if let Some(phase) = pooled.pin.phase(settings_result) {
            return phase;
        }
        if pooled.follower.is_open() {
            return SessionPhase::Active;
        }
        if !pooled.queries.is_empty() || pooled.status == StatusFlags::Unknown {
            return SessionPhase::NeedsQuery;
        }
        if pooled.follower.may_have_savepoint() {
            return SessionPhase::Active;
        }
        if pooled.session_state.registration.has_kill_in_flight() {
            // The kill has most likely arrived when the server answers another command.
            let has_waited = std::mem::replace(&mut pooled.awaited_kill, true);
            return if has_waited || matches!(settings_result, SettingsResult::Applied) {
                SessionPhase::Active
            } else {
                SessionPhase::NeedsQuery
            };
        }
        SessionPhase::CanDetach
    }

    /// Queries what must be known before the session can be detached, or prepares what the client needs.
    pub(super) fn query_pooled(
        &mut self,
        backend: &BackendState,
        to_server: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let PoolingMode::Transaction(pooled) = &mut self.mode else { return Ok(()) };
        if let Some(own) = pooled.pending.take() {
            let done = pooled.follower.settle();
            pooled.record_effects(done);
            // The current settings are restored after the statement is prepared, so they must be known.
            if pooled.queries.is_empty() {
                return self.prepare(own, backend, to_server);
            }
        }
        if backend.product == ServerProduct::MySql && pooled.diagnostics == Diagnostics::Some {
            // The query would replace the error for which the client may ask.
            pooled.queries.retain(|query| *query != PendingQuery::InsertIdAfterError);
        }
        let early = self.command.take().map(|(_, restore)| restore);
        let mut restore = early.unwrap_or_else(|| SessionRestore::new(backend.capabilities));
        if !pooled.queries.is_empty() {
            let expression = |query: &PendingQuery| match query {
                PendingQuery::Setting(name) => format!("@@{}", backend.product.name(name)),
                // Results may have a character set that lacks characters of the name.
                PendingQuery::Database => "HEX(DATABASE())".to_owned(),
                PendingQuery::InsertId | PendingQuery::InsertIdAfterError => "LAST_INSERT_ID()".to_owned(),
            };
            restore.values(&pooled.queries.iter().map(expression).collect::<Vec<_>>(), to_server)?;
        }
        restore.status(to_server);
        self.command = Some((CommandPurpose::QueryValues, restore));
        Ok(())
    }
}

/// The value shows no hexadecimal digits.
struct NoDigits;

fn unhex(digits: &[u8]) -> Result<Vec<u8>, NoDigits> {
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect::<Option<_>>().ok_or(NoDigits)
}

fn written(err: &ErrPacket<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    err.encode(&mut payload);
    payload
}

type FirstCommands = (Option<InitialStateQuery>, Option<(CommandPurpose, SessionRestore)>);

fn begin(
    session_state: &mut SessionState,
    acquired: AcquiredState,
    backend: &BackendState,
    to_server: &mut Vec<u8>,
) -> Result<FirstCommands, Error> {
    if acquired == AcquiredState::SameClient {
        return Ok((None, None));
    }
    session_state.flags = session_state.replayed_flags(backend.status);
    let initial_state_query = query_initial_state(backend, to_server)?;
    let purpose = match session_state.replay_risk() {
        ReplayRisk::Nothing => return Ok((initial_state_query, None)),
        ReplayRisk::CannotFail if initial_state_query.is_none() => CommandPurpose::Pipelined,
        ReplayRisk::CannotFail | ReplayRisk::MayFail => CommandPurpose::Settings,
    };
    Ok((initial_state_query, Some((purpose, session_state.replay(backend.capabilities, to_server)?))))
}

#[cfg(test)]
mod tests;
