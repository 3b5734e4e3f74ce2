//! The state that moves with a client from one connection to the next.

use ciphertoll_wire::mysql::relay::{
    ClientStatements, ContextSwitch, Diagnostics, InitialState, NAMES, NoDatabase, SessionRestore,
    SettingFlags, SocketLimits, TextContext, setting,
};
use ciphertoll_wire::mysql::sql::CHARACTER_SETS;
use ciphertoll_wire::mysql::{Capabilities, Error};

use super::connection_ids::RegisteredClient;

/// Settings recorded for a session; with more, the session is pinned.
const MAX_SETTINGS: usize = 64;
/// Removes what `SHOW WARNINGS` would return, on MariaDB because it names a table.
const FORGET_WARNINGS: &str = "DO (SELECT 1 FROM (SELECT 1) t)";

/// The state of a session that is replayed on another connection.
#[derive(Debug)]
pub(super) struct SessionState {
    /// The connection ID by which other clients kill it.
    pub(super) registration: RegisteredClient,
    /// Whether the client has been told that its login is complete.
    pub(super) was_greeted: bool,
    pub(super) statements: ClientStatements,
    /// The default database, if it is not the login's.
    pub(super) database: Option<String>,
    /// Names and values; `None` is NULL.
    settings: Vec<(String, Option<String>)>,
    /// The collation of the last `SET NAMES`, which results have, too, until `character_set_results` is set.
    names: Option<String>,
    /// Whether setting them leaves warnings.
    pub(super) settings_warn: bool,
    /// Its last `COM_SET_OPTION`.
    pub(super) option: Option<u16>,
    /// The value of `LAST_INSERT_ID()`.
    pub(super) insert_id: Option<u64>,
    /// The flags of its session.
    pub(super) flags: SettingFlags,
    /// Diagnostics that it has left on its last connection.
    pub(super) diagnostics: Diagnostics,
    /// The limits of the socket of its last connection.
    pub(super) socket_limits: SocketLimits,
}

/// Whether the server can refuse the recorded state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplayRisk {
    Nothing,
    CannotFail,
    MayFail,
}

/// State that cannot be reproduced on another connection, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unportable(pub(super) &'static str);

impl SessionState {
    /// The state of a new session with these status flags.
    pub(super) fn new(registration: RegisteredClient, status: u16) -> Self {
        Self {
            registration,
            was_greeted: false,
            statements: ClientStatements::default(),
            database: None,
            settings: Vec::new(),
            names: None,
            settings_warn: false,
            option: None,
            insert_id: None,
            flags: SettingFlags::of(status),
            diagnostics: Diagnostics::None,
            socket_limits: SocketLimits::AtLogin,
        }
    }

    /// Records a setting, behind the others: what was set later may have changed what was set before.
    pub(super) fn record_setting(&mut self, name: &str, value: Option<String>) -> Result<(), Unportable> {
        TextContext::set(&mut self.statements.context, name, value.clone());
        if name == CHARACTER_SETS[1] {
            self.names = None;
        }
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value));
        if self.settings.len() > MAX_SETTINGS { Err(Unportable("too many settings")) } else { Ok(()) }
    }

    /// The settings recorded last are those of a `SET NAMES`.
    pub(super) fn record_names(&mut self) {
        let collation = self.settings.iter().find(|(name, _)| name == CHARACTER_SETS[2]);
        self.names = collation.and_then(|(_, value)| value.clone());
    }

    pub(super) fn has_settings(&self) -> bool {
        !self.settings.is_empty()
    }

    /// The flags on a connection whose sessions start with this status, after a replay.
    pub(super) fn replayed_flags(&self, status: u16) -> SettingFlags {
        let is_set = |wanted: &str| self.settings.iter().any(|(name, _)| name == wanted);
        SettingFlags::of(status).with_settings_of(self.flags, is_set)
    }

    /// The limits of the socket after a replay.
    pub(super) fn replayed_socket_limits(&self) -> SocketLimits {
        let is_limit = |name: &str| matches!(name, "net_write_timeout" | "net_retry_count");
        if self.settings.iter().any(|(name, _)| is_limit(name)) {
            SocketLimits::Changed
        } else {
            SocketLimits::AtLogin
        }
    }

    pub(super) fn record_database(&mut self, database: Option<String>) {
        TextContext::choose_database(&mut self.statements.context, database.clone());
        self.database = database;
    }

    /// Clears the state after `COM_RESET_CONNECTION`. As on servers, the database and `COM_SET_OPTION` stay.
    pub(super) fn clear_settings(&mut self) {
        TextContext::reset_settings(&mut self.statements.context);
        self.settings.clear();
        (self.names, self.settings_warn) = (None, false);
        self.insert_id = None;
    }

    /// How a statement is prepared again in the context in which it was prepared at first; `None` if it is the current
    /// one. `of_login` is the database of the connection's login.
    pub(super) fn context_switch(
        &self,
        statement: u32,
        initial_state: Option<&InitialState>,
        of_login: Option<&str>,
    ) -> Option<Result<ContextSwitch, NoDatabase>> {
        let context = self.statements.other_context(statement)?;
        Some(self.statements.context.switch_to(context, initial_state, of_login))
    }

    pub(super) fn replay_risk(&self) -> ReplayRisk {
        if self.database.is_some() || !self.settings.is_empty() || self.option.is_some() {
            ReplayRisk::MayFail
        } else if self.insert_id.is_some() {
            ReplayRisk::CannotFail
        } else {
            ReplayRisk::Nothing
        }
    }

    /// Appends the commands that reproduce the state on a connection that was reset.
    pub(super) fn replay(
        &self,
        capabilities: Capabilities,
        to_server: &mut Vec<u8>,
    ) -> Result<SessionRestore, Error> {
        let mut restore = SessionRestore::new(capabilities);
        if let Some(database) = &self.database {
            restore.database(database, to_server)?;
        }
        let insert_id = self.insert_id.map(|id| id.to_string());
        let settings = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        let names = self.names.as_deref().map(|collation| (NAMES, Some(collation)));
        let all = names.into_iter().chain(settings);
        let all = all.chain(insert_id.as_deref().map(|id| ("last_insert_id", Some(id))));
        if let Some(statement) = setting(all) {
            restore.statement(&statement, to_server)?;
        }
        if self.settings_warn {
            restore.statement(FORGET_WARNINGS, to_server)?;
        }
        if let Some(option) = self.option {
            restore.option(option, to_server);
        }
        Ok(restore)
    }
}
