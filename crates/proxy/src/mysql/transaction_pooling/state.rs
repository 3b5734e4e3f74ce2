//! The state of a session in transaction pooling.

use ciphertoll_wire::mysql::Error;
use ciphertoll_wire::mysql::relay::{
    Diagnostics, InitialState, RestoredSession, SessionChanges, SessionFollower, SessionReset, StatusFlags,
    TextEncoding, restorable,
};
use ciphertoll_wire::mysql::sql::DefaultDatabase;

use crate::mysql::session::BackendState;
use crate::mysql::session_state::{SessionState, Unportable};
use crate::mysql::startup_request::StartupRequest;

const NOT_SAID: &str = "a setting whose value the server does not report";
const NOT_PORTABLE: &str = "a setting that cannot be set on another connection";
pub(super) const MIXED: &str = "a character set whose texts cannot be read byte by byte";

#[derive(Debug)]
pub(in crate::mysql) struct TransactionPooling {
    pub(in crate::mysql) request: StartupRequest,
    pub(in crate::mysql) session_state: Box<SessionState>,
    pub(super) follower: SessionFollower,
    pub(super) pin: PinState,
    /// Values to query before the session can be detached.
    pub(super) queries: Vec<PendingQuery>,
    pub(super) status: StatusFlags,
    /// Diagnostics that the client may still ask for.
    pub(in crate::mysql) diagnostics: Diagnostics,
    /// A statement to prepare as soon as all responses are read.
    pub(in crate::mysql) pending: Option<u32>,
    /// A statement that could not be prepared again here.
    pub(super) failed: Option<(u32, Error)>,
    /// The client's first command was cancelled while it waited.
    pub(super) refuses_first: bool,
    /// The session has stayed once to wait for a `KILL`.
    pub(super) awaited_kill: bool,
    pub(in crate::mysql) has_input: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mysql) enum CommandPurpose {
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinState {
    None,
    Found(&'static str),
    Reported,
}

impl TransactionPooling {
    pub(super) fn set_pin(&mut self, reason: &'static str) {
        if self.pin == PinState::None {
            self.pin = PinState::Found(reason);
        }
    }

    pub(super) fn add_query(&mut self, query: PendingQuery) {
        if !self.queries.contains(&query) {
            self.queries.push(query);
        }
    }

    pub(super) fn record_effects(&mut self, done: SessionChanges) {
        if done.reset == SessionReset::Yes {
            self.session_state.clear_settings();
            self.pin = PinState::None;
            self.queries.clear();
            InitialState::changed_by_reset()
                .for_each(|name| self.add_query(PendingQuery::Setting(name.to_owned())));
        }
        if let Some(reason) = done.effects.pin {
            self.set_pin(reason);
        }
        for name in done.effects.settings {
            self.add_query(PendingQuery::Setting(name));
        }
        if done.effects.database == DefaultDatabase::MayDiffer {
            self.add_query(PendingQuery::Database);
        }
        self.session_state.insert_id = done.insert_id.or(self.session_state.insert_id);
        self.session_state.option = done.option.or(self.session_state.option);
        self.session_state.escapes = self.follower.escapes();
        if done.status == StatusFlags::Unknown {
            self.status = StatusFlags::Unknown;
        }
        if let Some(diagnostics) = done.diagnostics {
            self.diagnostics = diagnostics;
        }
    }

    pub(super) fn record_values(&mut self, restored: RestoredSession, backend: &BackendState) {
        let queries = std::mem::take(&mut self.queries);
        if queries.is_empty() {
            return;
        }
        // The query has replaced the diagnostics of the client's statement.
        self.diagnostics = Diagnostics::None;
        let Some(values) = restored.values else { return self.set_pin(NOT_SAID) };
        for (query, value) in queries.into_iter().zip(values) {
            let Some(value) = restorable(value) else {
                self.set_pin(NOT_PORTABLE);
                continue;
            };
            match query {
                PendingQuery::Setting(name) => self.record_setting(&name, value, backend),
                PendingQuery::Database if value.is_none() && backend.database.is_some() => {
                    self.set_pin("no default database");
                }
                PendingQuery::Database => {
                    let chosen = value.filter(|name| backend.database.as_ref() != Some(name));
                    if let Err(Unportable(reason)) = self.session_state.record_database(chosen) {
                        self.set_pin(reason);
                    }
                }
            }
        }
    }

    fn record_setting(&mut self, name: &str, value: Option<String>, backend: &BackendState) {
        if name == "character_set_client"
            && value.as_deref().is_some_and(|set| TextEncoding::of(set) == TextEncoding::Ambiguous)
        {
            self.set_pin(MIXED);
        }
        if let Err(Unportable(reason)) = self.session_state.record_setting(backend.product.name(name), value)
        {
            self.set_pin(reason);
        }
    }
}
