//! The client's messages: what they will change, and what must be sent before them on this connection.

use std::sync::Arc;

use crate::postgres::{
    codec::{
        command::encode_flush,
        kind,
        message::{HEADER_BYTES, Header},
        parameters::Parameters,
        text_rules::StringSyntax,
        transaction::TransactionStatus,
    },
    error::Error,
    relay::{
        backend_model::SentKind,
        session_follower::{
            BatchCommands, BatchEnd, BatchExecution, Followed, FollowedModel, LONG_STATEMENTS,
            MAX_HELD_BYTES, MAX_STATEMENT_BYTES, MessageAction, NOT_PORTABLE, PayloadReader, Speculation,
            Wait,
            answers::owes_comparison,
            constants::READ_WITH_UNKNOWN,
            is_quiet_close, left_by_parse,
            names::{BindNames, Read, ReferencedName, name_at, referenced_name},
            notes::{DescribeNote, DescribePurpose, Failure, Note, QueryNote},
            own_messages::put_describe,
            provision::{Executes, LockWait, Prepared},
            statements::{ClientStatement, key},
        },
    },
    sql::effects::{ArrivingText, Effects, NameUse, NamedStatements, ReadingChange, Remains},
};

const FORWARD: MessageAction = MessageAction::Forward(None);

impl Followed<'_> {
    /// The client starts a message. `input` starts with it.
    pub(crate) fn begin(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<MessageAction, Error> {
        if model.is_skipping() && header.kind != kind::SYNC || model.awaits_data() {
            if !matches!(
                header.kind,
                kind::COPY_DATA | kind::COPY_DONE | kind::COPY_FAIL | kind::SYNC | kind::FLUSH
            ) {
                // The server skips it, or ends the session; if not, it was not scanned.
                self.follower.leave(Remains::Anything);
            }
            return Ok(FORWARD);
        }
        if let Some(action) = self.before(header, input, model)? {
            return Ok(action);
        }
        match header.kind {
            kind::QUERY => return self.begin_query(header, input, parameters, model),
            kind::FUNCTION_CALL => self.follower.leave(Remains::Anything),
            kind::SYNC => {
                self.follower.batch = BatchExecution::Fresh;
                self.follower.batch_commands = BatchCommands::DataAccess;
                if self.follower.speculation == Speculation::Running {
                    self.follower.speculation = Speculation::Ending(BatchEnd::Over);
                }
            }
            kind::PARSE => return self.begin_parse(header, input, parameters, model),
            kind::BIND => return self.begin_bind(header, input, parameters, model),
            kind::DESCRIBE => return self.begin_describe(header, input, parameters, model),
            kind::EXECUTE => return Ok(self.begin_execute(header, input)),
            // Until something follows, the client needs no connection for it. A command before it may yet begin a COPY.
            kind::CLOSE
                if input.len() == HEADER_BYTES + header.payload_bytes
                    && is_quiet_close(header, input)
                    && model.is_between_batches() =>
            {
                let may_copy = |kind: SentKind| matches!(kind, SentKind::Query | SentKind::Execute);
                let is_behind_copy = model.newest_first().any(|sent| may_copy(sent.kind));
                return Ok(if is_behind_copy { self.wait() } else { MessageAction::NeedInput });
            }
            kind::CLOSE => return Ok(begin_close(header, input)),
            _ => {}
        }
        Ok(FORWARD)
    }

    /// What must happen before any message of the client.
    #[inline]
    fn before(
        &mut self,
        header: Header,
        input: &[u8],
        model: &mut FollowedModel,
    ) -> Result<Option<MessageAction>, Error> {
        if model.is_full() {
            return Ok(Some(MessageAction::NeedInput));
        }
        if let Some(undescribed) = self.follower.undescribed.take() {
            return self.describe_last(undescribed, header, input, model);
        }
        if self.follower.verifies {
            self.follower.verifies = owes_comparison(model);
            if self.follower.verifies {
                return Ok(Some(self.wait()));
            }
        }
        match &self.follower.speculation {
            Speculation::None => Ok(None),
            Speculation::Prepared => {
                self.follower.speculation = Speculation::Running;
                Ok(None)
            }
            Speculation::Running => {
                match may_follow(header, input) {
                    Some(true) => return Ok(None),
                    Some(false) => {}
                    None => return Ok(Some(MessageAction::NeedInput)),
                }
                self.follower.speculation = Speculation::Ending(BatchEnd::Open);
                let mut insert = Vec::new();
                encode_flush(&mut insert);
                self.follower.wait = Wait::ForAnswers;
                Ok(Some(MessageAction::InsertBefore(insert)))
            }
            _ => Ok(Some(self.wait())),
        }
    }

    /// The client's message waits for the server's next answers.
    pub(super) fn wait(&mut self) -> MessageAction {
        self.follower.wait = Wait::ForAnswers;
        MessageAction::NeedInput
    }

    /// The server is asked to describe the statement of the last `Parse`, unless the client asks itself, or the statement
    /// is not used later.
    fn describe_last(
        &mut self,
        last: Arc<ClientStatement>,
        header: Header,
        input: &[u8],
        model: &mut FollowedModel,
    ) -> Result<Option<MessageAction>, Error> {
        let is_needed = match header.kind {
            kind::DESCRIBE => {
                let is_other = |named: ReferencedName<'_>| match named {
                    ReferencedName::Statement(name) => key(name) != key(last.name()),
                    ReferencedName::Portal => true,
                };
                referenced_name(header, &input[HEADER_BYTES..]).unreadable_or(is_other)
            }
            // It is used at once; the next transaction will most likely prepare its own.
            kind::BIND if last.name().is_empty() => {
                let names = BindNames::parse(header, &input[HEADER_BYTES..]);
                names.unreadable_or(|names| !names.statement.is_empty())
            }
            kind::PARSE if last.name().is_empty() => {
                name_at(&input[HEADER_BYTES..], header).unreadable_or(|name| !name.is_empty())
            }
            kind::QUERY => Some(!last.name().is_empty()),
            _ => Some(true),
        };
        match is_needed {
            None => {
                self.follower.undescribed = Some(last);
                Ok(Some(MessageAction::NeedInput))
            }
            Some(false) => Ok(None),
            Some(true) if last.effects.named.executes_any() => {
                // What it executes may not be describable. It cannot be prepared again in any case.
                self.follower.pins(NOT_PORTABLE);
                Ok(None)
            }
            Some(true) => {
                let mut insert = Vec::new();
                put_describe(last, DescribePurpose::Learn, &mut insert, model)?;
                Ok(Some(MessageAction::InsertBefore(insert)))
            }
        }
    }

    fn begin_query(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<MessageAction, Error> {
        let string_syntax = self.follower.string_syntax(parameters);
        let mut error = None;
        if self.prepared.lacks_any(self.statements) && header.payload_bytes <= MAX_HELD_BYTES {
            let Some(text) = payload_of(header, input) else { return Ok(MessageAction::NeedInput) };
            let mut effects = Effects::of(text.strip_suffix(b"\0").unwrap_or(text), string_syntax);
            self.add_executed(&mut effects, model);
            let (named, is_any) = (&effects.named, effects.named == NamedStatements::Any);
            let lock_wait = if is_any { LockWait::Short } else { LockWait::AsClient };
            if !named.is_empty()
                && self.follower.batch != BatchExecution::HasExecuted
                && let Some(action) = self.prepare_first(named, lock_wait, parameters, model)?
            {
                return Ok(action);
            }
            // At its end, the text closes the portals of its batch, too.
            let is_last = self.follower.batch != BatchExecution::HasExecuted;
            if let Some(action) = self.keep_constants(&effects, is_last, parameters, model)? {
                return Ok(action);
            }
            let failed = self.follower.unusable.drain(..).find(|(name, _)| named.may_have(name));
            error = failed.map(|(_, error)| error);
        }
        self.follower.is_preparing = false;
        self.follower.payload_reader = PayloadReader::Text(ArrivingText::Begins(string_syntax));
        let note = error.map(|error| {
            let effects = Effects::default();
            Box::new(Note::Query(QueryNote { effects, deallocated: 0, error: Some(error) }))
        });
        Ok(MessageAction::Forward(note))
    }

    /// Prepares statements before the client's next message, with a `Sync`: if one fails, nothing else does. Everything
    /// before must have succeeded, for the server would not skip what is behind that `Sync`.
    fn prepare_first(
        &mut self,
        wanted: &NamedStatements,
        lock_wait: LockWait,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<Option<MessageAction>, Error> {
        if self.prepared.lacks_any(self.statements)
            && let Some(action) = self.wait_until_answered(model)
        {
            return Ok(Some(action));
        }
        Ok(match self.prepare_named(wanted, Failure::Kept, lock_wait, parameters, model)? {
            Prepared::Nothing => None,
            Prepared::Waits => Some(self.wait()),
            Prepared::Insert(mut insert) => {
                self.end_own_batch(&mut insert, model);
                Some(MessageAction::InsertBefore(insert))
            }
        })
    }

    /// The client's message waits for the answers to the earlier ones of its batch, which the server is asked for once.
    pub(super) fn wait_until_answered(&mut self, model: &FollowedModel) -> Option<MessageAction> {
        let is_open = model.newest_first().next().is_some_and(|sent| !sent.kind.ends_with_ready());
        if !is_open {
            return None;
        }
        if self.follower.wait == Wait::ForAnswers {
            return Some(MessageAction::NeedInput);
        }
        self.follower.wait = Wait::ForAnswers;
        let mut insert = Vec::new();
        encode_flush(&mut insert);
        Some(MessageAction::InsertBefore(insert))
    }

    /// In front of a text after which texts may be read in a way that the server does not report, the statements that
    /// would then mean something else are prepared, without a long wait for locks. The client cannot use those that are
    /// not. In an open transaction nothing is prepared that the client has not asked for: it takes locks and a snapshot,
    /// and may fail. A `DISCARD ALL` fails, or removes the statements. `may_sync`: a `Sync` ends nothing that the client still
    /// needs.
    fn keep_constants(
        &mut self,
        effects: &Effects,
        may_sync: bool,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<Option<MessageAction>, Error> {
        let reading = effects.reading;
        let is_idle = model.transaction() == TransactionStatus::Idle;
        if may_sync && is_idle && self.statements.depend_on(reading) {
            let names = self.statements.dependent(reading).filter(|name| !name.is_empty());
            let wanted = names.map(|name| (NameUse::Executes, name.to_vec())).collect();
            let wanted = NamedStatements::These(wanted);
            if let Some(action) = self.prepare_first(&wanted, LockWait::Short, parameters, model)? {
                return Ok(Some(action));
            }
        }
        self.follower.reads_after(effects);
        Ok(None)
    }

    /// The text of a `Query` is complete.
    pub(super) fn end_query(&mut self, mut effects: Effects, model: &mut FollowedModel) {
        self.follower.leave(effects.remains);
        self.add_executed(&mut effects, model);
        self.follower.reads_after(&effects);
        if effects.is_none() {
            return;
        }
        let Some(last) = model.last_mut().filter(|last| last.kind == SentKind::Query) else { return };
        if let Some(Note::Query(note)) = last.note.as_deref_mut() {
            note.effects = effects;
        } else {
            let note = QueryNote { effects, deallocated: 0, error: None };
            last.note = Some(Box::new(Note::Query(note)));
        }
    }

    fn begin_parse(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<MessageAction, Error> {
        let name = match name_at(&input[HEADER_BYTES..], header) {
            Read::Done(name) => name,
            Read::Incomplete => return Ok(MessageAction::NeedInput),
            Read::Unreadable => return Ok(FORWARD),
        };
        let string_syntax = self.follower.string_syntax(parameters);
        if self.prepared.lacks_any(self.statements) && header.payload_bytes <= MAX_HELD_BYTES {
            let Some(payload) = payload_of(header, input) else { return Ok(MessageAction::NeedInput) };
            let text = payload.split(|byte| *byte == 0).nth(1).unwrap_or_default();
            let mut named = Effects::of(text, string_syntax).named;
            if let NamedStatements::These(names) = &mut named
                && !name.is_empty()
            {
                // The server refuses a name that is in use.
                names.push((NameUse::Mentions, name.to_vec()));
            }
            match self.prepare_named(&named, Failure::Answered, LockWait::AsClient, parameters, model)? {
                Prepared::Nothing => {}
                Prepared::Waits => return Ok(self.wait()),
                Prepared::Insert(insert) => return Ok(MessageAction::InsertBefore(insert)),
            }
        }
        self.follower.payload_reader = PayloadReader::Parse {
            message: input[..HEADER_BYTES].to_vec(),
            string_syntax,
            parameters: parameters.clone(),
        };
        Ok(FORWARD)
    }

    /// A complete `Parse` was forwarded.
    pub(super) fn end_parse(
        &mut self,
        message: Vec<u8>,
        string_syntax: StringSyntax,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) {
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let mut parts = payload.splitn(3, |byte| *byte == 0);
        let (Some(name), Some(text)) = (parts.next(), parts.next()) else {
            return self.follower.leave(Remains::Anything);
        };
        let (name, effects) = (name.to_vec(), Effects::of(text, string_syntax));
        self.follower.leave(effects.remains.max(left_by_parse(&name)));
        let pending = |note: &Note| match note {
            Note::Parse { statement, .. } => statement.message.len(),
            _ => 0,
        };
        let pending: usize = model.newest_first().filter_map(|sent| sent.note.as_deref()).map(pending).sum();
        if self.statements.bytes() + pending + message.len() > MAX_STATEMENT_BYTES {
            // The client is pinned, so the statement need not be kept.
            self.follower.pins(LONG_STATEMENTS);
            return;
        }
        if let Some(last) = model.last_mut().filter(|last| last.kind == SentKind::Parse) {
            let statement = Arc::new(ClientStatement::new(message, effects, parameters));
            if statement.read_with.is_some() {
                self.follower.parsed_with.get_or_insert_with(|| parameters.clone());
                if self.follower.unanswered > ReadingChange::None {
                    self.follower.pins(READ_WITH_UNKNOWN);
                }
            }
            if statement.depends_on(self.follower.unreported) {
                self.follower.pins(READ_WITH_UNKNOWN);
            }
            if statement.shape.get().is_none() {
                self.follower.undescribed = Some(Arc::clone(&statement));
            }
            last.note = Some(Box::new(Note::Parse { name, statement }));
        }
    }

    fn begin_bind(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<MessageAction, Error> {
        let BindNames { portal, statement: name } = match BindNames::parse(header, &input[HEADER_BYTES..]) {
            Read::Done(names) => names,
            Read::Incomplete => return Ok(MessageAction::NeedInput),
            Read::Unreadable => {
                // The server accepts a portal whose name is too long to be read.
                self.follower.leave(Remains::Anything);
                self.follower.pins("a portal whose statement is not known");
                return Ok(FORWARD);
            }
        };
        let (statement, is_open) = self.denoted_by_bind(name, model);
        if is_open {
            return Ok(self.wait());
        }
        let executes = if portal.is_empty() { Executes::ByUnnamedPortal } else { Executes::ByNamedPortal };
        if let Some(action) = self.provide(name, executes, parameters, model)? {
            return Ok(action);
        }
        if !statement.as_ref().is_some_and(|statement| statement.effects.is_data_access()) {
            self.follower.batch_commands = BatchCommands::Any;
        }
        let statement = statement.map(|statement| self.with_executed(statement, model));
        let statement = statement.filter(|statement| !statement.effects.is_none());
        if let Some(statement) = &statement {
            let (named, failure) = (&statement.effects.named, Failure::Answered);
            match self.prepare_named(named, failure, LockWait::AsClient, parameters, model)? {
                Prepared::Nothing => {}
                Prepared::Waits => return Ok(self.wait()),
                Prepared::Insert(insert) => return Ok(MessageAction::InsertBefore(insert)),
            }
            let is_first = self.follower.batch == BatchExecution::Fresh;
            if let Some(action) = self.keep_constants(&statement.effects, is_first, parameters, model)? {
                return Ok(action);
            }
            self.follower.notes_portals = true;
        }
        self.follower.is_preparing = false;
        if self.follower.batch == BatchExecution::Fresh {
            self.follower.batch = BatchExecution::HasPortal;
        }
        let note = self
            .follower
            .notes_portals
            .then(|| Box::new(Note::Bind { portal: key(portal).to_vec(), statement }));
        Ok(MessageAction::Forward(note))
    }

    /// The newest statement of this name, and whether its effects depend on answers that are still owed.
    fn denoted_by_bind(&self, name: &[u8], model: &FollowedModel) -> (Option<Arc<ClientStatement>>, bool) {
        let mut denoted = self.denoted(name, model);
        let Some(newest) = denoted.next() else { return (None, false) };
        (Some(Arc::clone(newest)), denoted.any(|other| other.effects != newest.effects))
    }

    /// A statement that executes others, with their effects.
    fn with_executed(&self, statement: Arc<ClientStatement>, model: &FollowedModel) -> Arc<ClientStatement> {
        if !statement.effects.named.executes_any() {
            return statement;
        }
        let mut effects = statement.effects.clone();
        self.add_executed(&mut effects, model);
        Arc::new(ClientStatement::new(Vec::new(), effects, &Parameters::default()))
    }

    fn begin_execute(&mut self, header: Header, input: &[u8]) -> MessageAction {
        let portal = match name_at(&input[HEADER_BYTES..], header) {
            Read::Done(portal) => portal,
            Read::Incomplete => return MessageAction::NeedInput,
            Read::Unreadable => return FORWARD,
        };
        let before = std::mem::replace(&mut self.follower.batch, BatchExecution::HasExecuted);
        if before == BatchExecution::Fresh || !portal.is_empty() {
            // It may be a portal of an earlier batch.
            self.follower.batch_commands = BatchCommands::Any;
        }
        if !self.follower.notes_portals {
            return FORWARD;
        }
        MessageAction::Forward(Some(Box::new(Note::Execute { portal: key(portal).to_vec() })))
    }

    fn begin_describe(
        &mut self,
        header: Header,
        input: &[u8],
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<MessageAction, Error> {
        let name = match referenced_name(header, &input[HEADER_BYTES..]) {
            Read::Done(ReferencedName::Statement(name)) => name,
            Read::Done(ReferencedName::Portal) | Read::Unreadable => return Ok(FORWARD),
            Read::Incomplete => return Ok(MessageAction::NeedInput),
        };
        if let Some(action) = self.provide(name, Executes::Nothing, parameters, model)? {
            return Ok(action);
        }
        self.follower.is_preparing = false;
        let statement = self.denoted(name, model).next().filter(|statement| statement.shape.get().is_none());
        let note = statement.cloned().map(|statement| {
            let purpose = DescribePurpose::Client;
            Box::new(Note::Describe(DescribeNote {
                name: name.to_vec(),
                statement,
                parameter_types: None,
                purpose,
            }))
        });
        Ok(MessageAction::Forward(note))
    }
}

fn begin_close(header: Header, input: &[u8]) -> MessageAction {
    match referenced_name(header, &input[HEADER_BYTES..]) {
        Read::Done(ReferencedName::Statement(name)) => {
            MessageAction::Forward(Some(Box::new(Note::Close { name: name.to_vec() })))
        }
        Read::Done(ReferencedName::Portal) | Read::Unreadable => FORWARD,
        Read::Incomplete => MessageAction::NeedInput,
    }
}

/// The payload, if all of it has arrived.
fn payload_of(header: Header, input: &[u8]) -> Option<&[u8]> {
    input.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes)
}

/// Whether a message may be sent while a speculative portal, which has no name, runs: it changes nothing. `None` if it is
/// incomplete.
fn may_follow(header: Header, input: &[u8]) -> Option<bool> {
    let start: &[u8] = match header.kind {
        kind::SYNC | kind::FLUSH => b"",
        kind::EXECUTE => b"\0",
        kind::DESCRIBE => b"P",
        kind::CLOSE => b"P\0",
        _ => return Some(false),
    };
    if header.payload_bytes < start.len() {
        return Some(false);
    }
    input.get(HEADER_BYTES..HEADER_BYTES + start.len()).map(|found| found == start)
}
