//! The server's side of a [`SessionFollower`]: the session changes when the server has confirmed a command.

use std::sync::Arc;

use foldhash::HashSet;

use crate::mysql::{
    codec::{ok::OkPacket, packet::HEADER_BYTES, prepare_ok::PrepareOk},
    error::Error,
    relay::{
        observer::{CompletedResponse, CursorState, ResponseEnd, Statuses},
        prepared_statements::{self, ClientStatement, ClientStatements, ConnectionStatements},
        session_follower::{
            Diagnostics, InsertIdQuery, MAX_OPEN, PendingCommand, ResetData, ServerBytes, SessionChanges,
            SessionFollower, SessionReset, SettingFlags, StatusFlags, transaction_state::TransactionState,
        },
        text_context::TextContext,
        traffic::MySqlRelay,
    },
    server::write_payload,
    sql::effects::{
        Assignments, DefaultDatabase, Effects, Escapes, InsertId, NextTransaction, ReadsDiagnostics,
        Savepoints, StatementCount,
    },
};

/// What has changed status flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagsOrigin {
    /// A command that shows it.
    Text,
    Unknown,
}

/// `ER_UNKNOWN_ERROR` and `ER_WRONG_ARGUMENTS`: data were sent ahead that are too long, or for a parameter that does not
/// exist. Only on this connection, the statement then fails until the client resets it.
const IN_ERROR_STATE: [u16; 2] = [1105, 1210];
/// `ER_UNKNOWN_STMT_HANDLER` and `ER_STMT_HAS_NO_OPEN_CURSOR`: an execute that failed has closed the cursor.
const NO_CURSOR: [u16; 2] = [1243, 1421];
/// `ER_PARSE_ERROR` and `ER_UNKNOWN_SYSTEM_VARIABLE`: servers find them before the first assignment of a `SET`.
const BEFORE_ASSIGNMENTS: [u16; 2] = [1064, 1193];

impl SessionFollower {
    /// Reads the server's next bytes: those that were neither forwarded nor discarded, and newer ones.
    pub fn process_server(
        &mut self,
        relay: &mut MySqlRelay,
        input: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<ServerBytes, Error> {
        let bytes = relay.process_server(input)?;
        for complete in relay.take_completed() {
            self.complete(complete, statements, prepared);
        }
        let rest = &input[bytes..];
        let mut server_bytes = ServerBytes { bytes, ..ServerBytes::default() };
        if let Some((bytes, sequence)) = relay.take_refused(rest)? {
            if let Some(PendingCommand::Refused(err)) = self.pending.front() {
                write_payload(&mut server_bytes.insert, sequence, err)?;
            }
            server_bytes.drop_bytes = bytes;
            for complete in relay.take_completed() {
                self.complete(complete, statements, prepared);
            }
        } else if let Some(prepared_now) = relay.take_prepared(rest)? {
            let own = self.complete_prepare(prepared_now.prepare_ok, statements);
            prepared.insert(own, prepared_now.prepare_ok.statement_id);
            server_bytes.drop_bytes = prepared_now.bytes;
            server_bytes.insert = rest[..prepared_now.bytes].to_vec();
            server_bytes.insert[HEADER_BYTES + 1..HEADER_BYTES + 5].copy_from_slice(&own.to_le_bytes());
            for complete in relay.take_completed() {
                self.complete(complete, statements, prepared);
            }
        }
        Ok(server_bytes)
    }

    /// The pending prepare has succeeded; returns the client's identifier of the statement.
    fn complete_prepare(&mut self, prepare_ok: PrepareOk, statements: &mut ClientStatements) -> u32 {
        let PrepareOk { params, warnings, .. } = prepare_ok;
        self.changes.diagnostics = Some(Diagnostics::of(warnings));
        let (text, effects) = match self.pending.front_mut() {
            Some(PendingCommand::Prepare { effects, text }) => {
                (text.take(), effects.take().unwrap_or_default())
            }
            _ => (None, Effects::default()),
        };
        match &text {
            Some(text) => self.pending_bytes -= text.len(),
            None => self.changes.effects.pins("prepared statements that are too long"),
        }
        let effect = &self.changes.effects;
        let is_unsettled = effect.database == DefaultDatabase::MayDiffer
            || effect.settings.iter().any(|name| TextContext::has(name));
        if is_unsettled || self.changes.reset == SessionReset::Yes {
            self.changes.effects.pins("a statement prepared behind a change of how texts are read");
        }
        let context = Arc::clone(&statements.context);
        statements.add(ClientStatement {
            text,
            effects: Arc::new(effects),
            context,
            params,
            types: None,
            first: None,
        })
    }

    fn complete(
        &mut self,
        complete: CompletedResponse,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        let CompletedResponse { end, insert_id, cursor, statuses } = complete;
        if insert_id != 0 {
            self.changes.insert_id = Some(insert_id);
        }
        let (status, diagnostics) = match end {
            // The number of its warnings came first.
            ResponseEnd::NoStatus if matches!(self.pending.front(), Some(PendingCommand::Prepare { .. })) => {
                (self.changes.status, self.changes.diagnostics)
            }
            // `COM_STATISTICS` leaves those of an earlier command.
            ResponseEnd::NoStatus => (self.changes.status, Some(Diagnostics::Some)),
            ResponseEnd::Err(_) => (StatusFlags::Unknown, Some(Diagnostics::Some)),
            ResponseEnd::Ok(ok) if ok.warnings > 0 => (StatusFlags::Reported, Some(Diagnostics::Some)),
            ResponseEnd::Ok(_) if self.leaves_diagnostics() => {
                (StatusFlags::Reported, self.changes.diagnostics)
            }
            ResponseEnd::Ok(_) => (StatusFlags::Reported, Some(Diagnostics::None)),
        };
        (self.changes.status, self.changes.diagnostics) = (status, diagnostics);
        self.check_next_transaction(end);
        self.record_flags(end, statuses);
        match (self.pending.pop_front(), end) {
            (Some(PendingCommand::Query(Some(effects))), _) => return self.apply_effects(&effects, complete),
            (Some(PendingCommand::Query(None)), _) => {
                self.changes.effects.pins("a command that was answered before its end");
            }
            (Some(PendingCommand::Prepare { text, .. }), ResponseEnd::Err(_)) => {
                self.pending_bytes -= text.map_or(0, |text| text.len());
                statements.last = None;
            }
            (Some(PendingCommand::Execute(own, effects, types)), _) => {
                if let Some(types) = types {
                    self.bulk_ended(own, &types, end, statements, prepared);
                }
                self.executed(own, end, cursor, statements, prepared);
                return self.apply_effects(&effects, complete);
            }
            (Some(PendingCommand::ExecuteLast(kind, payload)), _) => {
                self.pending_bytes -= payload.len();
                if let Some(own) = statements.last {
                    let effects = statements.get(own).map(|statement| Arc::clone(&statement.effects));
                    self.learn_types(own, kind, &payload, end, statements, prepared);
                    self.executed(own, end, cursor, statements, prepared);
                    return self.apply_effects(&effects.unwrap_or_default(), complete);
                }
            }
            (Some(PendingCommand::Fetch(own)), _) if closes_cursor(end) => drop(self.cursors.remove(&own)),
            (Some(PendingCommand::ResetStatement { own, data }), ResponseEnd::Ok(_)) => {
                self.cursors.remove(&own);
                if data == ResetData::Earlier {
                    self.long_data.remove(&own);
                }
            }
            (Some(PendingCommand::Option(option)), ResponseEnd::Ok(_)) => self.changes.option = Some(option),
            (Some(PendingCommand::Reset), ResponseEnd::Ok(_)) => {
                self.session_was_reset(diagnostics.unwrap_or_default(), statements, prepared);
            }
            _ => {}
        }
        self.transaction.record(end, Savepoints::Unchanged);
    }

    /// Whether the command that was answered without a warning leaves the diagnostics of the one before it.
    #[inline]
    fn leaves_diagnostics(&self) -> bool {
        let reads = |effects: &Effects| {
            effects.reads_diagnostics == ReadsDiagnostics::Yes && effects.count == StatementCount::One
        };
        match self.pending.front() {
            Some(PendingCommand::Query(Some(effects))) => reads(effects),
            Some(PendingCommand::Execute(_, effects, _)) => reads(effects),
            // `COM_PING`.
            Some(PendingCommand::Other) => true,
            _ => false,
        }
    }

    /// Settings that the status flags report may have been changed out of sight, by a stored routine.
    #[inline]
    fn record_flags(&mut self, end: ResponseEnd, statuses: Statuses) {
        let differences = self.flags.differences(statuses);
        if !differences.is_none() {
            let sets_mode = |effects: &Effects| effects.settings.iter().any(|name| name == "sql_mode");
            let origin = match self.pending.front() {
                Some(PendingCommand::Query(Some(effects))) if sets_mode(effects) => FlagsOrigin::Text,
                Some(PendingCommand::Execute(_, effects, _)) if sets_mode(effects) => FlagsOrigin::Text,
                Some(PendingCommand::Reset) => FlagsOrigin::Text,
                _ => FlagsOrigin::Unknown,
            };
            self.flags_changed(differences, origin);
        }
        let ResponseEnd::Ok(ok) = end else { return };
        self.flags = SettingFlags::of(ok.status);
        if ok.database_was_dropped() {
            self.changes.effects.database = DefaultDatabase::MayDiffer;
        }
    }

    /// The server has reported the session's status to the proxy.
    pub fn report_status(&mut self, ok: OkPacket) {
        let before = std::mem::replace(&mut self.flags, SettingFlags::of(ok.status));
        let differences = before.differences_of(self.flags);
        if !differences.is_none() {
            // By a command that was answered with an ERR.
            self.flags_changed(differences, FlagsOrigin::Unknown);
        }
        self.changes.status = StatusFlags::Reported;
        self.transaction.report(ok);
    }

    #[cold]
    fn flags_changed(&mut self, differences: SettingFlags, origin: FlagsOrigin) {
        if differences.commits_automatically() {
            self.changes.effects.sets("autocommit");
        }
        if differences.escapes() == Escapes::None && origin == FlagsOrigin::Unknown {
            // MariaDB restores the `sql_mode` after a routine that has set it, but not the flag: how texts are read
            // is not known any more.
            self.changes.effects.pins("a sql_mode that was set out of sight");
        }
    }

    fn session_was_reset(
        &mut self,
        diagnostics: Diagnostics,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        statements.clear();
        prepared.clear();
        (self.cursors, self.long_data) = (HashSet::default(), HashSet::default());
        self.failed.clear();
        self.next_transaction = NextTransaction::Unchanged;
        self.transaction = TransactionState::default();
        // A reset does not change the default database.
        let effects = Effects { database: self.changes.effects.database, ..Effects::default() };
        self.changes = SessionChanges {
            effects,
            reset: SessionReset::Yes,
            option: self.changes.option,
            diagnostics: Some(diagnostics),
            ..SessionChanges::default()
        };
    }

    /// A `SET TRANSACTION` applies to the next command that starts a transaction.
    fn check_next_transaction(&mut self, end: ResponseEnd) {
        if self.next_transaction == NextTransaction::Configured {
            self.next_transaction = NextTransaction::Unchanged;
            if !matches!(end, ResponseEnd::Ok(ok) if ok.is_in_transaction()) {
                self.changes.effects.pins("SET TRANSACTION");
            }
        }
    }

    fn executed(
        &mut self,
        own: u32,
        end: ResponseEnd,
        cursor: CursorState,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        if matches!(end, ResponseEnd::Ok(_)) {
            prepared_statements::executed(own, cursor, statements, prepared);
        }
        match (cursor, end) {
            // Whether it has closed the earlier cursor is not known.
            (_, ResponseEnd::Err(code)) => {
                if IN_ERROR_STATE.contains(&code) {
                    self.changes.effects.pins("a statement that may be in an error state");
                }
            }
            // The client has closed the statement meanwhile.
            (CursorState::Open, _) if prepared.get(own).is_none() => {}
            (CursorState::Open, _) if self.cursors.len() < MAX_OPEN => drop(self.cursors.insert(own)),
            (CursorState::Open, _) => self.changes.effects.pins("many cursors"),
            (CursorState::None, _) => drop(self.cursors.remove(&own)),
        }
    }

    /// A command with these effects has completed.
    fn apply_effects(&mut self, effects: &Effects, complete: CompletedResponse) {
        let end = complete.end;
        self.transaction.record(end, effects.savepoints);
        let refusal = if let ResponseEnd::Err(code) = end { Some(code) } else { None };
        let is_refused = refusal.is_some();
        if effects.is_none() && !(is_refused && effects.insert_id == InsertId::Reported) {
            return;
        }
        self.changes.insert_id_query = self.changes.insert_id_query.max(insert_id_query(effects, complete));
        if is_refused && effects.count == StatementCount::One {
            if effects.assignments == Assignments::Several
                && !effects.settings.is_empty()
                && refusal.is_some_and(|code| !BEFORE_ASSIGNMENTS.contains(&code))
            {
                // Not asked for: the server might refuse to set those that were not assigned.
                self.changes.effects.pins("a SET of several settings that failed");
            }
            // Connection-bound state may exist although the command failed.
            return self.changes.effects.merge(&Effects { pin: effects.pin, ..Effects::default() });
        }
        self.changes.effects.merge(effects);
        if !effects.settings.is_empty() && self.changes.diagnostics == Some(Diagnostics::Some) {
            self.changes.diagnostics_of_settings = Diagnostics::Some;
        }
        if effects.database == DefaultDatabase::MayDiffer {
            self.no_database = None;
        }
        if effects.next_transaction == NextTransaction::Configured
            && !matches!(end, ResponseEnd::Ok(ok) if ok.is_in_transaction())
        {
            self.next_transaction = NextTransaction::Configured;
        }
    }
}

/// Whether no cursor is left behind a fetch.
fn closes_cursor(end: ResponseEnd) -> bool {
    match end {
        ResponseEnd::Ok(ok) => ok.last_row_was_sent(),
        ResponseEnd::Err(code) => NO_CURSOR.contains(&code),
        ResponseEnd::NoStatus => false,
    }
}

/// Whether the response does not show `LAST_INSERT_ID()`.
fn insert_id_query(effects: &Effects, complete: CompletedResponse) -> InsertIdQuery {
    let is_reported = match effects.insert_id {
        InsertId::Unchanged => true,
        _ if matches!(complete.end, ResponseEnd::Err(_)) => return InsertIdQuery::AfterError,
        InsertId::Reported => true,
        // The key may be of another statement.
        _ if effects.count == StatementCount::Several => false,
        InsertId::ReportedUnlessZero => complete.insert_id != 0,
        InsertId::ReportedIfZero => complete.insert_id == 0,
        InsertId::NotReported => false,
    };
    if is_reported { InsertIdQuery::None } else { InsertIdQuery::Needed }
}
