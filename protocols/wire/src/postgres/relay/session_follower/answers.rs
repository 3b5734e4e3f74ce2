//! The server's answers: what they confirm, and which the client does not get.

use crate::postgres::{
    codec::{
        command::{encode_flush, encode_sync},
        kind,
        message::{self, HEADER_BYTES, Header, MAX_GATHERED_PAYLOAD_BYTES},
        parameters::Parameters,
        reader::put_nul_terminated,
        report::Report,
        transaction::TransactionStatus,
    },
    error::Error,
    relay::{
        backend_model::{CopyFailure, Sent, SentKind},
        internal_command::UNUSED_NAME,
        session_follower::{
            BatchEnd, ENCODED_NAME, Followed, FollowedModel, NOT_PORTABLE, SessionFollower, Speculation,
            Wait,
            constants::{READ_WITH_UNKNOWN, read_alike},
            notes::{DescribeNote, DescribePurpose, ErrorText, Failure, Note},
            own_messages::{close, put_refusal},
            shape::{Columns, Shape},
            statements::{OnConnection, key},
        },
    },
    sql::effects::{Deallocation, Discard, Effects},
};

/// The payloads of the `CommandComplete`s that are read.
const DISCARD_ALL: &[u8] = b"DISCARD ALL\0";
const DISCARD_PLANS: &[u8] = b"DISCARD PLANS\0";
const DEALLOCATE: &[u8] = b"DEALLOCATE\0";
const DEALLOCATE_ALL: &[u8] = b"DEALLOCATE ALL\0";
/// A longer tag is another one.
const MAX_TAG_BYTES: usize = DEALLOCATE_ALL.len() + 1;
/// There is no such prepared statement (`invalid_sql_statement_name`).
const NO_SUCH_STATEMENT: [u8; 5] = *b"26000";
/// The transaction has failed (`in_failed_sql_transaction`).
const TRANSACTION_FAILED: [u8; 5] = *b"25P02";

/// What to do with a server's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplyAction {
    Forward,
    /// It answers a message that the proxy inserted.
    Discard,
    /// The client gets this message instead.
    Replace(Vec<u8>),
}

/// How many bytes of the payload [`Followed::read_reply`] needs.
pub(crate) fn needed_bytes(header: Header, model: &mut FollowedModel) -> Result<usize, Error> {
    if !matches!(
        header.kind,
        kind::COMMAND_COMPLETE | kind::PARAMETER_DESCRIPTION | kind::ROW_DESCRIPTION | kind::ERROR_RESPONSE
    ) {
        return Ok(0);
    }
    let is_in_copy = model.is_copying_in();
    let is_own_error = header.kind == kind::ERROR_RESPONSE && is_own_batch(model);
    let note = model.current().and_then(|sent| sent.note.as_deref());
    let needed = match (header.kind, note) {
        (kind::COMMAND_COMPLETE, Some(Note::Query(_) | Note::Execute { .. })) => {
            return Ok(header.payload_bytes.min(MAX_TAG_BYTES));
        }
        (kind::PARAMETER_DESCRIPTION | kind::ROW_DESCRIPTION, Some(Note::Describe(_)))
        | (
            kind::ERROR_RESPONSE,
            Some(
                Note::InsertedParse { failure: Failure::OfDescribe, .. }
                | Note::InsertedParse { error_text: ErrorText::Other, .. },
            ),
        ) => true,
        (kind::ERROR_RESPONSE, Some(note)) if is_own_error && note.is_hidden() => true,
        // A part of a long one is enough.
        (kind::ERROR_RESPONSE, note)
            if is_in_copy || matches!(note, Some(Note::Query(note)) if note.error.is_some()) =>
        {
            return Ok(header.payload_bytes.min(MAX_GATHERED_PAYLOAD_BYTES));
        }
        _ => false,
    };
    match (needed, header.payload_bytes) {
        (false, _) => Ok(0),
        (true, length) if length > MAX_GATHERED_PAYLOAD_BYTES => {
            Err(Error::MessageTooLarge { length, limit: MAX_GATHERED_PAYLOAD_BYTES })
        }
        (true, length) => Ok(length),
    }
}

impl Followed<'_> {
    /// The server sends a message that is not a `ReadyForQuery`, with as much of its payload as is needed.
    #[inline]
    pub(crate) fn read_reply(
        &mut self,
        header: Header,
        payload: &[u8],
        model: &mut FollowedModel,
    ) -> Result<ReplyAction, Error> {
        match header.kind {
            kind::NOTICE_RESPONSE if is_about_own_message(model) => Ok(ReplyAction::Discard),
            kind::NOTICE_RESPONSE | kind::NOTIFICATION_RESPONSE | kind::PARAMETER_STATUS => {
                Ok(ReplyAction::Forward)
            }
            kind::DATA_ROW | kind::COPY_DATA | kind::COPY_DONE => Ok(self.unless_dropped()),
            kind::ERROR_RESPONSE => self.read_error(header, payload, model),
            kind::PARSE_COMPLETE | kind::CLOSE_COMPLETE if header.payload_bytes > 0 => {
                Err(Error::protocol("ParseComplete", "it has a payload"))
            }
            kind => self.read_answer(kind, payload, model),
        }
    }

    /// The answers to a batch are dropped if the columns of its statement have changed.
    #[inline]
    fn unless_dropped(&self) -> ReplyAction {
        match self.follower.speculation {
            Speculation::Failed { .. } | Speculation::Due { .. } | Speculation::Failing => {
                ReplyAction::Discard
            }
            _ => ReplyAction::Forward,
        }
    }

    fn read_answer(
        &mut self,
        kind: u8,
        payload: &[u8],
        model: &mut FollowedModel,
    ) -> Result<ReplyAction, Error> {
        let mut action = self.unless_dropped();
        if let Some(note) = model.current().and_then(|sent| sent.note.as_deref_mut()) {
            if note.is_hidden() {
                action = ReplyAction::Discard;
            }
            match (kind, note) {
                (kind::COMMAND_COMPLETE, Note::Query(note)) => {
                    let next = note.effects.deallocations.get(note.deallocated);
                    if payload == DISCARD_ALL && note.effects.discard == Discard::All {
                        self.discard_all();
                        note.effects = Effects::default();
                    } else if payload == DISCARD_PLANS {
                        self.statements.analyse_anew(self.prepared);
                    } else if self.deallocated(payload, next) {
                        note.deallocated += 1;
                    }
                }
                (kind::PARAMETER_DESCRIPTION, Note::Describe(note)) => {
                    note.parameter_types = Some(payload.to_vec());
                }
                _ => {}
            }
        }
        if let Some(Sent { note: Some(note), .. }) = model.receive(kind) {
            self.completed(*note, kind, payload)?;
        }
        Ok(action)
    }

    /// The server has confirmed a command with this tag. Returns whether it was a `DEALLOCATE`.
    fn deallocated(&mut self, tag: &[u8], next: Option<&Deallocation>) -> bool {
        match (tag, next) {
            (DEALLOCATE, Some(Deallocation::Named(name))) => {
                self.statements.remove(name);
                self.prepared.remove(name);
            }
            (DEALLOCATE_ALL, Some(Deallocation::All)) => {
                self.clear_named();
            }
            (DEALLOCATE | DEALLOCATE_ALL, _) => {
                self.follower.pins("a DEALLOCATE whose name is not known");
            }
            _ => return false,
        }
        true
    }

    fn discard_all(&mut self) {
        self.clear_named();
        self.follower.discard_all();
    }

    /// A `DEALLOCATE ALL` or `DISCARD ALL` that is itself executed by the protocol leaves the statement without a name.
    fn clear_named(&mut self) {
        self.statements.clear_named();
        self.prepared.clear_named();
    }

    /// The server has executed a message other than a `Query` or `Sync`.
    fn completed(&mut self, note: Note, kind: u8, payload: &[u8]) -> Result<(), Error> {
        match note {
            Note::Parse { name, statement } => {
                if !name.is_empty() && statement.binds_to_connection() {
                    self.follower.pins(NOT_PORTABLE);
                }
                if !name.is_ascii() {
                    self.follower.pins(ENCODED_NAME);
                }
                self.statements.insert(&name, statement);
                self.prepared.insert(&name, OnConnection::Statement);
            }
            Note::InsertedParse { name, what, .. } => self.prepared.insert(&name, what),
            Note::Close { name } => {
                self.statements.remove(&name);
                self.prepared.remove(&name);
            }
            Note::InsertedClose { name } => self.prepared.remove(&name),
            Note::Describe(note) => {
                let columns = if kind == kind::NO_DATA { None } else { Some(Columns::parse(payload)?) };
                self.described(note, columns)?;
            }
            Note::Bind { portal, statement: Some(statement) } => {
                if !portal.is_empty() {
                    // A `FETCH` of any text or function may execute it.
                    self.follower.apply(&statement.effects);
                }
                self.follower.portals.insert(portal, statement);
            }
            Note::Bind { portal, statement: None } => drop(self.follower.portals.remove(&portal)),
            Note::Execute { portal } => self.executed(&portal, payload),
            Note::Query(_) | Note::Inserted | Note::InsertedSync | Note::Refusal { .. } => {}
        }
        Ok(())
    }

    /// The server has executed a portal, to its end if it sends a `tag`, or until it failed.
    fn executed(&mut self, portal: &[u8], tag: &[u8]) {
        let Some(statement) = self.follower.portals.get(portal).cloned() else { return };
        if tag == DISCARD_ALL && statement.effects.discard == Discard::All {
            return self.discard_all();
        }
        if tag == DISCARD_PLANS {
            self.statements.analyse_anew(self.prepared);
        }
        self.deallocated(tag, statement.effects.deallocations.first());
        self.apply(&statement.effects);
    }

    /// The server has executed a command with these effects.
    fn apply(&mut self, effects: &Effects) {
        // A `DISCARD ALL` that has succeeded is not among them.
        self.statements.forget_dependent(effects.lasting_reading(), self.prepared);
        self.follower.apply(effects);
    }

    fn described(&mut self, note: DescribeNote, columns: Option<Columns>) -> Result<(), Error> {
        let DescribeNote { name, statement, parameter_types, purpose } = note;
        let shape = Shape::new(parameter_types.unwrap_or_else(|| vec![0, 0]), columns);
        if purpose != DescribePurpose::Verify {
            if !statement.is_portable() {
                // It will be used later, without a name, too.
                self.follower.pins(NOT_PORTABLE);
            }
            // If it is known, the server has said the same before.
            let _ = statement.shape.set(shape);
            return Ok(());
        }
        let is_same = statement.shape.get().is_none_or(|known| known.has_columns_of(&shape));
        let speculation = std::mem::take(&mut self.follower.speculation);
        if is_same {
            return Ok(());
        }
        self.prepared.insert(&name, OnConnection::StandIn);
        self.follower.speculation = match speculation {
            Speculation::Prepared | Speculation::Running | Speculation::Ending(BatchEnd::Open) => {
                Speculation::Due { name, batch: BatchEnd::Open }
            }
            Speculation::Ending(BatchEnd::Over) => Speculation::Failed { name },
            other => {
                self.follower.unusable.push((key(&name).to_vec(), changed_type()?));
                other
            }
        };
        Ok(())
    }

    /// The payload of a long error is incomplete.
    fn read_error(
        &mut self,
        header: Header,
        payload: &[u8],
        model: &mut FollowedModel,
    ) -> Result<ReplyAction, Error> {
        let is_hidden =
            |sent: &Sent<Option<Box<Note>>>| sent.note.as_ref().is_some_and(|note| note.is_hidden());
        let has_hidden = model.newest_first().any(is_hidden);
        let mut action = self.replace_error(payload, model)?.unwrap_or(ReplyAction::Forward);
        // What was executed speculatively has failed, or the proxy's own command behind it: the server skips the rest.
        if self.unless_dropped() == ReplyAction::Discard {
            self.follower.speculation = Speculation::None;
            action = ReplyAction::Replace(changed_type()?);
        }
        if !model.has_begun()
            && let Some(Note::Query(note)) = model.current().and_then(|sent| sent.note.as_deref_mut())
        {
            // Its first statement has failed.
            note.effects.sets_nothing();
        }
        let is_read = model.is_copying_in() && payload.len() == header.payload_bytes;
        let failure = if is_read { copy_failure(payload) } else { CopyFailure::AtAnyTime };
        match model.fail(failure).and_then(|failed| failed.note).as_deref() {
            // The server drops it before it reads the new text.
            Some(Note::Parse { name, .. }) if name.is_empty() => {
                self.statements.remove(b"");
                self.prepared.remove(b"");
            }
            // Not everything that it has done is undone.
            Some(Note::Execute { portal }) => {
                if let Some(statement) = self.follower.portals.get(portal) {
                    let mut effects = statement.effects.clone();
                    effects.sets_nothing();
                    self.apply(&effects);
                }
            }
            _ => {}
        }
        self.end_skipped_speculation(model);
        if has_hidden && model.is_in_doubt() {
            return Err(Error::protocol("response", "it is not known which command has failed"));
        }
        Ok(action)
    }

    /// Nothing is speculative any longer if the server has skipped the description of the statement. Earlier batches change
    /// nothing.
    fn end_skipped_speculation(&mut self, model: &FollowedModel) {
        let is_undecided = matches!(
            self.follower.speculation,
            Speculation::Prepared | Speculation::Running | Speculation::Ending(_)
        );
        if is_undecided && !owes_comparison(model) {
            self.follower.speculation = Speculation::None;
        }
    }

    /// What the client gets in place of the error of the current message, if it gets something else.
    fn replace_error(
        &mut self,
        payload: &[u8],
        model: &mut FollowedModel,
    ) -> Result<Option<ReplyAction>, Error> {
        let is_own_batch = is_own_batch(model);
        let next_parse = if is_own_batch { next_inserted_parse(model) } else { None };
        let is_aborted = model.transaction() == TransactionStatus::Failed;
        let unusable = &mut self.follower.unusable;
        Ok(Some(match model.current().and_then(|sent| sent.note.as_deref_mut()) {
            Some(Note::Refusal { error }) => ReplyAction::Replace(std::mem::take(error)),
            Some(Note::Query(note)) => {
                let error = note.error.take_if(|_| is_for_lack_of_statement(payload));
                return Ok(error.map(ReplyAction::Replace));
            }
            Some(Note::InsertedParse { name, failure: Failure::Kept, error_text, .. }) => {
                unusable.push((key(name).to_vec(), error_message(payload, *error_text)?));
                ReplyAction::Discard
            }
            Some(Note::InsertedParse { name, failure: Failure::OfDescribe, error_text, .. })
                if !is_aborted =>
            {
                let mut answer = self.parameter_description(name)?;
                answer.extend(error_message(payload, *error_text)?);
                ReplyAction::Replace(answer)
            }
            Some(Note::InsertedParse { error_text: ErrorText::Other, .. }) => {
                ReplyAction::Replace(error_message(payload, ErrorText::Other)?)
            }
            // The columns were not compared.
            Some(Note::Describe(note)) if is_own_batch => {
                self.prepared.insert(&note.name, OnConnection::StandIn);
                unusable.push((key(&note.name).to_vec(), error_message(payload, ErrorText::Client)?));
                ReplyAction::Discard
            }
            // What a statement needs cannot be set, so it cannot be prepared.
            Some(Note::Inserted) if is_own_batch => {
                if let Some(name) = next_parse {
                    unusable.push((name, error_message(payload, ErrorText::Client)?));
                }
                ReplyAction::Discard
            }
            // It would be closed again and again.
            Some(Note::InsertedClose { .. }) if is_own_batch && !is_interrupted(payload) => {
                return Err(Error::protocol("response", "a prepared statement cannot be closed"));
            }
            Some(note) if is_own_batch && note.is_hidden() => ReplyAction::Discard,
            _ => return Ok(None),
        }))
    }

    /// The server sends a `ReadyForQuery`, in front of which it has reported its settings.
    pub(crate) fn read_ready(
        &mut self,
        transaction: TransactionStatus,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> ReplyAction {
        if self.follower.parsed_with.as_ref().is_some_and(|with| !read_alike(with, parameters)) {
            self.follower.pins(READ_WITH_UNKNOWN);
        }
        let mut action = self.unless_dropped();
        let completed = model.receive_ready(transaction);
        if let Some(Sent { kind: SentKind::Query, note }) = &completed {
            self.statements.remove(b"");
            self.prepared.remove(b"");
            if let Some(Note::Query(note)) = note.as_deref() {
                self.apply(&note.effects);
            }
        }
        if let Some(Note::InsertedSync) = completed.and_then(|sent| sent.note).as_deref() {
            action = ReplyAction::Discard;
        }
        if let Speculation::Failed { name } = &mut self.follower.speculation {
            let name = std::mem::take(name);
            self.follower.speculation = Speculation::Due { name, batch: BatchEnd::Over };
        }
        self.end_skipped_speculation(model);
        if transaction == TransactionStatus::Idle {
            self.follower.portals.clear();
        }
        if model.current().is_none() {
            self.follower.is_answered();
        }
        action
    }

    /// The server's bytes were read: the client's next message need not wait for them any longer.
    pub(crate) fn end_wait(&mut self) {
        self.follower.wait = Wait::No;
    }
}

impl SessionFollower {
    /// Appends a command that fails, in place of the client's, because the columns of its statement have changed.
    pub(crate) fn write_failure(
        &mut self,
        out: &mut Vec<u8>,
        model: &mut FollowedModel,
    ) -> Result<(), Error> {
        let Speculation::Due { name, batch } = std::mem::take(&mut self.speculation) else {
            return Ok(());
        };
        self.speculation = Speculation::Failing;
        close(&name, out, model)?;
        let refusal = Some(Box::new(Note::Refusal { error: changed_type()? }));
        put_refusal(out)?;
        model.send(SentKind::Parse, refusal);
        match batch {
            BatchEnd::Open => encode_flush(out),
            BatchEnd::Over => {
                encode_sync(out);
                model.send(SentKind::Sync, None);
            }
        }
        Ok(())
    }
}

/// Appends commands whose answer shows that no other `ReadyForQuery` comes before it.
pub(crate) fn write_probe(out: &mut Vec<u8>, model: &mut FollowedModel) -> Result<(), Error> {
    // Closing a missing statement is not an error.
    close(UNUSED_NAME.as_bytes(), out, model)?;
    encode_sync(out);
    model.send(SentKind::Sync, Some(Box::new(Note::InsertedSync)));
    Ok(())
}

/// Whether the columns of a statement will be compared with those that it had.
pub(super) fn owes_comparison(model: &FollowedModel) -> bool {
    let compares =
        |note: &Note| matches!(note, Note::Describe(note) if note.purpose == DescribePurpose::Verify);
    model.newest_first().filter_map(|sent| sent.note.as_deref()).any(compares)
}

/// Whether the server executes a message that the client does not know.
fn is_about_own_message(model: &mut FollowedModel) -> bool {
    let note = model.current().and_then(|sent| sent.note.as_deref());
    note.is_some_and(|note| note.is_hidden() || matches!(note, Note::Refusal { .. }))
}

/// The server says where in its source it has failed, and in which line of the data.
fn copy_failure(payload: &[u8]) -> CopyFailure {
    let has = |field: &[u8]| payload.split(|byte| *byte == 0).any(|part| part.starts_with(field));
    if has(b"C57014") && has(b"RCopyGetData") {
        return CopyFailure::ByClient;
    }
    // An interrupt may come before the data.
    let is_in_data = has(b"WCOPY ") && has(b"R") && !has(b"RProcessInterrupts");
    if is_in_data { CopyFailure::InData } else { CopyFailure::AtAnyTime }
}

/// Whether the server executes a batch that the proxy has sent, up to its own `Sync`.
fn is_own_batch(model: &FollowedModel) -> bool {
    let next_ready = model.newest_first().filter(|sent| sent.kind.ends_with_ready()).last();
    matches!(next_ready.and_then(|sent| sent.note.as_deref()), Some(Note::InsertedSync))
}

/// The name of the statement that the proxy prepares next.
fn next_inserted_parse(model: &FollowedModel) -> Option<Vec<u8>> {
    let name = |sent: &Sent<Option<Box<Note>>>| match sent.note.as_deref() {
        Some(Note::InsertedParse { name, .. }) => Some(key(name).to_vec()),
        _ => None,
    };
    model.newest_first().filter_map(name).last()
}

/// Whether a text has failed because it lacks a statement. If that could not be prepared within the client's transaction, the
/// transaction has failed with it.
fn is_for_lack_of_statement(payload: &[u8]) -> bool {
    let is_one = |report: Report<'_>| matches!(report.sqlstate, NO_SUCH_STATEMENT | TRANSACTION_FAILED);
    Report::parse(payload).is_ok_and(is_one)
}

/// Whether an operator, a cancel request or a time limit has intervened.
fn is_interrupted(payload: &[u8]) -> bool {
    Report::parse(payload).is_ok_and(|report| report.sqlstate.starts_with(b"57"))
}

/// The server's error again.
fn error_message(payload: &[u8], text: ErrorText) -> Result<Vec<u8>, Error> {
    let mut error = Vec::with_capacity(HEADER_BYTES + payload.len());
    message::write(&mut error, kind::ERROR_RESPONSE, |out| {
        out.extend_from_slice(payload);
        Ok(())
    })?;
    if text == ErrorText::Other {
        for byte in error[HEADER_BYTES..].iter_mut().filter(|byte| !byte.is_ascii()) {
            *byte = b'?';
        }
    }
    Ok(error)
}

/// The server's error for a statement whose columns have changed. Drivers recognise it by the function, too.
fn changed_type() -> Result<Vec<u8>, Error> {
    const FIELDS: [&str; 6] = [
        "SERROR",
        "VERROR",
        "C0A000",
        "Mcached plan must not change result type",
        "Fplancache.c",
        "RRevalidateCachedQuery",
    ];
    let mut out = Vec::new();
    message::write(&mut out, kind::ERROR_RESPONSE, |out| {
        for field in FIELDS {
            put_nul_terminated(out, field.as_bytes());
        }
        out.push(0);
        Ok(())
    })?;
    Ok(out)
}
