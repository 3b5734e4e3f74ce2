//! Internal commands: a proxy sends them on its own behalf and does not forward the responses. They apply a
//! client's settings, reset a session after its client has left, and check whether the server responds.

use std::sync::LazyLock;

use crate::{
    postgres::{
        codec::{
            column::ValueFormat,
            command::{
                Param, encode_bind, encode_close_statement, encode_execute, encode_parse, encode_query,
                encode_sync,
            },
            kind,
            message::{self, MAX_GATHERED_PAYLOAD_BYTES, Message},
            parameters::{Parameters, parse_parameter_status},
            report::Report,
            transaction::TransactionStatus,
        },
        error::Error,
    },
    response::Response,
};

const SET: &str = "SELECT pg_catalog.set_config($1, $2, false)";
const CURRENT: &str = "SELECT pg_catalog.current_setting($1, true)";
/// With the client's `default_transaction_isolation`, `…_read_only` and `…_deferrable`, the query of its settings could wait
/// for the transactions of others. Without a query, this statement takes no snapshot.
const READ_COMMITTED: &str = "SET transaction_isolation = 'read committed'";
const TEXT_OID: u32 = 25;
/// Whether the server is in recovery, and whether new transactions are read-only: `f off`.
const ROLE: &str = "SELECT pg_catalog.concat(pg_catalog.pg_is_in_recovery(), ' ', \
                    pg_catalog.current_setting('transaction_read_only'))";
/// The timeline that a server writes, in hexadecimal digits at the start of the name of its WAL file. Some services
/// refuse it.
const TIMELINE: &str = "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL \
                        ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END";
/// Digits of the timeline in that name.
const TIMELINE_DIGITS: usize = 8;

/// The name of a statement, and of a portal, that no client uses.
pub(crate) const UNUSED_NAME: &str = "ciphertoll: none";

/// Reads the responses to internal commands.
#[derive(Debug)]
pub struct InternalCommand {
    kind: Kind,
    /// The number of pending `ReadyForQuery`s.
    left: u32,
    refusal: Option<Error>,
    /// The values of the queried settings, as they arrive.
    values: Vec<Option<Vec<u8>>>,
    /// How many there will be.
    queried: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Reset,
    Settings,
    Values,
    Ping,
    TakeOver,
    CommitProbe,
    Role,
}

/// What a server says of itself, see [`InternalCommand::ask_role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedRole {
    pub recovery: Recovery,
    pub transactions: NewTransactions,
    /// `None` in recovery, or if the server does not tell.
    pub timeline: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    InRecovery,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTransactions {
    ReadWrite,
    ReadOnly,
}

/// When a server commits what a `DISCARD ALL` without a `Sync` has done. Until then, an error in the next client's
/// command would undo it. [`InternalCommand::probe_commit`] finds out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PipelinedCommit {
    /// PostgreSQL since August 2022 (10.22, 11.17, 12.12, 13.8, 14.5, 15.0).
    AtOnce,
    /// With the end of an explicit transaction behind it. All servers do so.
    #[default]
    WithTransaction,
}

/// A value of `application_name` that `DISCARD ALL` must remove.
const MARK: &str = "ciphertoll";

/// How long the commands of a session may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLimit {
    /// Longer than a reset takes.
    Long,
    MayBeShort,
}

impl InternalCommand {
    fn new(kind: Kind, left: u32) -> Self {
        Self { kind, left, refusal: None, values: Vec::new(), queried: 0 }
    }

    /// Appends the commands that reset a session. All responses of its client must have been read. A short time limit of
    /// the session that ends within the reset may cancel the next command instead: that is the last of these.
    pub fn reset(
        transaction: TransactionStatus,
        time_limit: TimeLimit,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let mut left = 1;
        if transaction != TransactionStatus::Idle {
            encode_query(out, "ROLLBACK")?;
            left += 1;
        }
        encode_query(out, "DISCARD ALL")?;
        if time_limit == TimeLimit::MayBeShort {
            encode_query(out, "")?;
            left += 1;
        }
        Ok(Self::new(Kind::Reset, left))
    }

    /// Appends commands that set these settings for the rest of the session, all or none. Names and values
    /// are parameters, so nothing needs quoting in any encoding. `client_encoding` should come last.
    pub fn settings<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        encode_parse(out, "", SET, &[TEXT_OID, TEXT_OID])?;
        for (name, value) in settings {
            let params = [Param::Text(name.as_bytes()), Param::Text(value.as_bytes())];
            encode_bind(out, "", "", &params, ValueFormat::Text)?;
            encode_execute(out, "", 0)?;
        }
        // Leaves no trace for the session's next client.
        encode_close_statement(out, "")?;
        encode_sync(out);
        Ok(Self::new(Kind::Settings, 1))
    }

    /// The same behind a reset of a session without open state. If the reset fails, the server skips the settings; a
    /// refused setting may undo the reset.
    pub fn settings_after_reset<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        encode_command("DISCARD ALL", out)?;
        Self::settings(settings, out)
    }

    /// Appends a reset of a session without open state, and these settings, to be sent before the first
    /// commands of the next client. Without a `Sync`, the server skips those commands if the reset fails
    /// ("Extended Query"), and an error in them does not undo the reset.
    pub fn take_over<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
        commit: PipelinedCommit,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let mut settings = settings.into_iter().peekable();
        if settings.peek().is_none() && commit == PipelinedCommit::AtOnce {
            out.extend_from_slice(&RESET_FIRST);
            return Ok(Self::in_front());
        }
        encode_command("DISCARD ALL", out)?;
        Self::restore(settings, out)
    }

    /// The same without a reset, for a connection on which only settings and the unnamed statement differ.
    pub fn restore<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        encode_command("BEGIN", out)?;
        let mut settings = settings.into_iter().peekable();
        if settings.peek().is_some() {
            encode_parse(out, "", SET, &[TEXT_OID, TEXT_OID])?;
        }
        for (name, value) in settings {
            let params = [Param::Text(name.as_bytes()), Param::Text(value.as_bytes())];
            encode_bind(out, "", "", &params, ValueFormat::Text)?;
            encode_execute(out, "", 0)?;
        }
        encode_command("COMMIT", out)?;
        Self::close_unnamed(out)
    }

    /// Appends a message that closes the unnamed statement, to be sent before the first commands of the next client.
    pub fn close_unnamed(out: &mut Vec<u8>) -> Result<Self, Error> {
        encode_close_statement(out, "")?;
        Ok(Self::in_front())
    }

    /// Appends the `Sync` that commands without one need if the next client's do not follow soon.
    pub fn end_with_sync(&mut self, out: &mut Vec<u8>) {
        encode_sync(out);
        *self = Self::new(Kind::Settings, 1);
    }

    /// Commands without a `Sync`, in front of those of the next client.
    fn in_front() -> Self {
        Self::new(Kind::TakeOver, 0)
    }

    /// Appends a query for the values of settings. The client's unnamed statement stays.
    pub fn values<'a>(names: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> Result<Self, Error> {
        // A query that was cancelled may have left it.
        encode_close_statement(out, UNUSED_NAME)?;
        encode_parse(out, UNUSED_NAME, READ_COMMITTED, &[])?;
        encode_bind(out, "", UNUSED_NAME, &[], ValueFormat::Text)?;
        encode_execute(out, "", 0)?;
        encode_close_statement(out, UNUSED_NAME)?;
        encode_parse(out, UNUSED_NAME, CURRENT, &[TEXT_OID])?;
        let mut queried = 0;
        for name in names {
            queried += 1;
            encode_bind(out, "", UNUSED_NAME, &[Param::Text(name)], ValueFormat::Text)?;
            encode_execute(out, "", 0)?;
        }
        encode_close_statement(out, UNUSED_NAME)?;
        encode_sync(out);
        Ok(Self { queried, ..Self::new(Kind::Values, 1) })
    }

    /// The values queried by [`Self::values`], in that order; `None` for an unknown setting.
    pub fn take_values(&mut self) -> Vec<Option<Vec<u8>>> {
        std::mem::take(&mut self.values)
    }

    /// Appends an empty query, whose response shows that the server is alive.
    pub fn ping(out: &mut Vec<u8>) -> Result<Self, Error> {
        encode_query(out, "")?;
        Ok(Self::new(Kind::Ping, 1))
    }

    /// Appends commands that show, without an error or a warning, when the server commits a pipelined `DISCARD ALL`:
    /// the transaction that is rolled back behind it undoes it unless it was committed at once. The session ends as
    /// it was. [`Self::commit`] has the result.
    pub fn probe_commit(out: &mut Vec<u8>) -> Result<Self, Error> {
        encode_query(out, &format!("SET application_name = '{MARK}'; SHOW application_name"))?;
        for sql in ["DISCARD ALL", "BEGIN", "ROLLBACK"] {
            encode_command(sql, out)?;
        }
        encode_sync(out);
        encode_query(out, "SHOW application_name; RESET application_name")?;
        Ok(Self { queried: 2, ..Self::new(Kind::CommitProbe, 3) })
    }

    /// What [`Self::probe_commit`] has shown. A server that refused a part of it has shown nothing.
    pub fn commit(&self) -> PipelinedCommit {
        match self.values.as_slice() {
            [Some(set), Some(left)] if set == MARK.as_bytes() && left != MARK.as_bytes() => {
                PipelinedCommit::AtOnce
            }
            _ => PipelinedCommit::WithTransaction,
        }
    }

    /// Appends queries for the role of the server. A session that was reset stays as it was. [`Self::role`] has the
    /// result.
    pub fn ask_role(out: &mut Vec<u8>) -> Result<Self, Error> {
        encode_query(out, ROLE)?;
        encode_query(out, TIMELINE)?;
        Ok(Self { queried: 2, ..Self::new(Kind::Role, 2) })
    }

    /// What [`Self::ask_role`] has shown; `None` for any other command, or if the server did not tell its role.
    pub fn role(&self) -> Option<ReportedRole> {
        if self.kind != Kind::Role {
            return None;
        }
        let (recovery, transactions) = match self.values.first()?.as_deref()? {
            b"f off" => (Recovery::Ended, NewTransactions::ReadWrite),
            b"f on" => (Recovery::Ended, NewTransactions::ReadOnly),
            b"t on" => (Recovery::InRecovery, NewTransactions::ReadOnly),
            _ => return None,
        };
        let name = self.values.get(1).and_then(Option::as_deref);
        let digits = name.and_then(|name| std::str::from_utf8(name.get(..TIMELINE_DIGITS)?).ok());
        let timeline = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        Some(ReportedRole { recovery, transactions, timeline })
    }

    /// Sends nothing and accepts unsolicited messages.
    pub fn nothing() -> Self {
        Self::new(Kind::Nothing, 0)
    }

    /// Takes whole messages from the front of `input` and returns the transaction status once all responses
    /// have been read. A refusal by the server is returned only then, so that the connection awaits the next
    /// command. After any other error the connection is unusable. [`Self::nothing`] never completes.
    pub fn step(
        &mut self,
        input: &mut &[u8],
        parameters: &mut Parameters,
    ) -> Result<Response<TransactionStatus>, Error> {
        while let Some(Message { kind, payload }) = message::take(input, MAX_GATHERED_PAYLOAD_BYTES)? {
            match kind {
                kind::PARAMETER_STATUS => {
                    let (name, value) = parse_parameter_status(payload)?;
                    parameters.set(name, value)?;
                }
                // Messages to a session without a client.
                kind::NOTICE_RESPONSE | kind::NOTIFICATION_RESPONSE => {}
                kind::ERROR_RESPONSE => {
                    let report = Report::parse(payload)?;
                    if report.severity.ends_session() || matches!(self.kind, Kind::Nothing | Kind::TakeOver) {
                        return Err(report.into());
                    }
                    // The timeline may be refused.
                    let is_optional = self.kind == Kind::Role && self.left == 1;
                    if self.kind != Kind::CommitProbe && !is_optional {
                        self.refusal.get_or_insert(report.into());
                    }
                }
                kind::READY_FOR_QUERY if self.left > 0 => {
                    self.left -= 1;
                    let transaction = TransactionStatus::parse(payload)?;
                    parameters.settle()?;
                    if self.left == 0 {
                        return self.refusal.take().map_or(Ok(Response::Done(transaction)), Err);
                    }
                }
                kind::CLOSE_COMPLETE if self.kind == Kind::TakeOver => {
                    return Ok(Response::Done(TransactionStatus::Idle));
                }
                kind::DATA_ROW if self.values.len() < self.queried => {
                    self.values.push(only_value(payload)?);
                }
                kind if self.expects(kind) => {}
                _ => {
                    return Err(Error::protocol("response to the proxy", "an unexpected message"));
                }
            }
        }
        Ok(Response::NeedInput)
    }

    fn expects(&self, kind: u8) -> bool {
        match (self.kind, kind) {
            (Kind::Reset | Kind::Role, kind::COMMAND_COMPLETE)
            | (Kind::Reset | Kind::Ping, kind::EMPTY_QUERY_RESPONSE)
            | (Kind::CommitProbe | Kind::Role, kind::ROW_DESCRIPTION)
            | (Kind::Settings, kind::DATA_ROW) => true,
            (Kind::TakeOver, kind) => matches!(
                kind,
                kind::PARSE_COMPLETE | kind::BIND_COMPLETE | kind::DATA_ROW | kind::COMMAND_COMPLETE
            ),
            (Kind::Settings | Kind::Values | Kind::CommitProbe, kind) => matches!(
                kind,
                kind::PARSE_COMPLETE | kind::BIND_COMPLETE | kind::COMMAND_COMPLETE | kind::CLOSE_COMPLETE
            ),
            _ => false,
        }
    }
}

/// The messages of [`InternalCommand::take_over`] that nearly every client needs.
static RESET_FIRST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut out = Vec::new();
    let encoded = encode_command("DISCARD ALL", &mut out).and_then(|()| encode_close_statement(&mut out, ""));
    // Fails only for texts of more than a gigabyte.
    debug_assert!(encoded.is_ok());
    out
});

fn encode_command(sql: &str, out: &mut Vec<u8>) -> Result<(), Error> {
    encode_parse(out, "", sql, &[])?;
    encode_bind(out, "", "", &[], ValueFormat::Text)?;
    encode_execute(out, "", 0)
}

/// The value of a row with one column.
fn only_value(payload: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let unexpected = Error::protocol("response to the proxy", "an unexpected row");
    let Some((&[0, 1], rest)) = payload.split_first_chunk() else { return Err(unexpected) };
    let Some((length, value)) = rest.split_first_chunk() else { return Err(unexpected) };
    match i32::from_be_bytes(*length) {
        -1 if value.is_empty() => Ok(None),
        length if usize::try_from(length) == Ok(value.len()) => Ok(Some(value.to_vec())),
        _ => Err(unexpected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::server::{write_message, write_ready_for_query};

    /// The role after these values; `None` in place of one is an error of the server.
    fn role(values: [Option<&str>; 2]) -> Result<Option<ReportedRole>, Error> {
        let mut command = InternalCommand::ask_role(&mut Vec::new()).unwrap();
        let mut answer = Vec::new();
        for value in values {
            if let Some(value) = value {
                let length = i32::try_from(value.len()).unwrap().to_be_bytes();
                let row = [&[0, 1], &length[..], value.as_bytes()].concat();
                write_message(&mut answer, kind::ROW_DESCRIPTION, &[0, 0]).unwrap();
                write_message(&mut answer, kind::DATA_ROW, &row).unwrap();
                write_message(&mut answer, kind::COMMAND_COMPLETE, b"SELECT 1\0").unwrap();
            } else {
                let error = b"SERROR\0VERROR\0C0A000\0Mnot supported\0\0";
                write_message(&mut answer, kind::ERROR_RESPONSE, error).unwrap();
            }
            write_ready_for_query(&mut answer, TransactionStatus::Idle);
        }
        let done = command.step(&mut answer.as_slice(), &mut Parameters::default())?;
        assert_eq!(done, Response::Done(TransactionStatus::Idle));
        Ok(command.role())
    }

    #[test]
    fn a_server_tells_its_role_and_its_timeline() {
        let (recovery, transactions) = (Recovery::Ended, NewTransactions::ReadWrite);
        let primary = ReportedRole { recovery, transactions, timeline: Some(0x1a) };
        assert_eq!(role([Some("f off"), Some("0000001A000000010000000F")]), Ok(Some(primary)));
        let read_only = ReportedRole { transactions: NewTransactions::ReadOnly, ..primary };
        assert_eq!(role([Some("f on"), Some("0000001A000000010000000F")]), Ok(Some(read_only)));
        // Services that do not tell it.
        assert_eq!(role([Some("f off"), None]), Ok(Some(ReportedRole { timeline: None, ..primary })));
        let transactions = NewTransactions::ReadOnly;
        let standby = ReportedRole { recovery: Recovery::InRecovery, transactions, timeline: None };
        assert_eq!(role([Some("t on"), Some("")]), Ok(Some(standby)));
        assert_eq!(role([Some("t off"), Some("")]), Ok(None), "no server says so");
        assert!(role([None, Some("")]).is_err());
        assert_eq!(InternalCommand::ping(&mut Vec::new()).unwrap().role(), None);
    }
}
