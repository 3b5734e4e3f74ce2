//! The statements of the client that a connection lacks: prepared again, as the client knows them, before they are used.

use std::sync::Arc;

use crate::postgres::{
    codec::{
        command::{encode_flush, put_of_statement},
        kind,
        parameters::Parameters,
        transaction::TransactionStatus,
    },
    error::Error,
    relay::{
        backend_model::{Sent, SentKind},
        session_follower::{
            BatchExecution, Followed, FollowedModel, MessageAction, Speculation,
            constants::{SettingScope, put_settings, settings_between},
            left_by_parse,
            notes::{DescribePurpose, Failure, Note},
            own_messages::{close, describe, put_refusal},
            shape::Shape,
            statements::{ClientStatement, OnConnection, key},
        },
    },
    sql::effects::{
        Constants, Deallocation, Discard, Effects, NameUse, NamedStatements, ReadingChange, Remains,
        StatementVerb,
    },
};

/// Whether the server will know a statement of the client when it executes the next message.
enum Availability {
    Certain,
    /// It knows it if the messages in front of the next one succeed; otherwise it skips that one.
    IfExecuted,
    Missing(Arc<ClientStatement>),
    /// It has, or will have, another one of this name.
    StandIn(Arc<ClientStatement>),
    /// That depends on answers that are owed.
    Open,
}

/// Whether the message executes the statement that it names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Executes {
    Next,
    Nothing,
}

/// What must be sent for the statements that a text names.
pub(super) enum Prepared {
    Nothing,
    Insert(Vec<u8>),
    /// That depends on answers that are owed.
    Waits,
}

impl Followed<'_> {
    /// The statement that this name will denote if everything before succeeds.
    pub(super) fn denoted(&self, name: &[u8], model: &FollowedModel) -> Option<Arc<ClientStatement>> {
        for sent in model.newest_first() {
            match sent.note.as_deref() {
                Some(Note::Parse { name: own, statement }) if key(own) == key(name) => {
                    return Some(Arc::clone(statement));
                }
                Some(Note::Close { name: own }) if key(own) == key(name) => return None,
                _ if sent.kind == SentKind::Query && name.is_empty() => return None,
                _ => {}
            }
        }
        self.statements.get(name).cloned()
    }

    /// The statement of a portal, if it has effects. `earlier` are the messages in front, the newest first.
    fn bound<'a>(
        &'a self,
        portal: &[u8],
        mut earlier: impl Iterator<Item = &'a Sent<Option<Box<Note>>>>,
    ) -> Option<&'a ClientStatement> {
        let bind = earlier.find_map(|sent| match sent.note.as_deref() {
            Some(Note::Bind { portal: own, statement }) if own == portal => Some(statement.as_deref()),
            _ => None,
        });
        bind.unwrap_or_else(|| self.follower.portals.get(portal).map(AsRef::as_ref))
    }

    fn availability(&self, name: &[u8], model: &FollowedModel) -> Availability {
        if self.prepared.get(name) == Some(OnConnection::Statement) {
            return Availability::Certain;
        }
        let Some(statement) = self.statements.get(name) else { return Availability::Certain };
        let mut is_earlier = false;
        for (at, sent) in model.newest_first().enumerate() {
            is_earlier |= sent.kind.ends_with_ready();
            let changes = match sent.note.as_deref() {
                Some(
                    Note::Parse { name: own, .. }
                    | Note::InsertedParse { name: own, .. }
                    | Note::Close { name: own }
                    | Note::InsertedClose { name: own },
                ) => key(own) == key(name),
                Some(Note::Execute { portal }) => {
                    let statement = self.bound(portal, model.newest_first().skip(at));
                    statement.is_some_and(|statement| statement.effects.removes(name))
                }
                // It may also be a COPY, whose data would be next.
                _ => sent.kind == SentKind::Query,
            };
            if changes {
                return match is_earlier {
                    false if is_stand_in(sent, name) => Availability::StandIn(Arc::clone(statement)),
                    // The server awaits data, and ends the session at anything else.
                    true if model.awaits_data() => Availability::Certain,
                    true => Availability::Open,
                    false => Availability::IfExecuted,
                };
            }
        }
        match self.prepared.get(name) {
            Some(OnConnection::StandIn) => Availability::StandIn(Arc::clone(statement)),
            _ => Availability::Missing(Arc::clone(statement)),
        }
    }

    /// What must be sent, or awaited, before a message that uses this statement.
    pub(super) fn provide(
        &mut self,
        name: &[u8],
        executes: Executes,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<Option<MessageAction>, Error> {
        let statement = match self.availability(name, model) {
            Availability::Certain | Availability::IfExecuted => return Ok(None),
            Availability::Open => return Ok(Some(self.wait())),
            Availability::StandIn(statement)
                if executes == Executes::Nothing && statement.is_known_empty() =>
            {
                return Ok(None);
            }
            Availability::Missing(statement) | Availability::StandIn(statement) => statement,
        };
        if model.is_in_doubt() {
            return Ok(None);
        }
        let mut insert = Vec::new();
        if executes == Executes::Nothing && statement.is_known_empty() {
            let Some(shape) = statement.shape.get() else { return Ok(None) };
            self.put_stand_in(name, shape, Failure::Answered, &mut insert, model)?;
            return Ok(Some(MessageAction::InsertBefore(insert)));
        }
        if let Some(at) = self.follower.unusable.iter().position(|(own, _)| own == key(name)) {
            let (_, mut error) = self.follower.unusable.swap_remove(at);
            if executes == Executes::Nothing {
                error = [self.parameter_description(name)?, error].concat();
            }
            self.close_stand_in(name, &mut insert, model)?;
            put_refusal(&mut insert)?;
            model.send(SentKind::Parse, Some(Box::new(Note::Refusal { error })));
            return Ok(Some(MessageAction::InsertBefore(insert)));
        }
        let failure = match executes {
            Executes::Next => Failure::Answered,
            Executes::Nothing => Failure::OfDescribe,
        };
        // If its meaning is not known, the server says that there is no such statement.
        let Some(behind) = self.put_statement(name, &statement, failure, &mut insert, parameters, model)?
        else {
            return Ok(None);
        };
        if statement.returns_rows() {
            put_of_statement(&mut insert, kind::DESCRIBE, name)?;
            let is_speculative = executes == Executes::Next
                && self.follower.batch == BatchExecution::Fresh
                && statement.effects.only_reads();
            describe(name.to_vec(), statement, DescribePurpose::Verify, model);
            put_settings(&behind, &mut insert, model)?;
            if is_speculative {
                self.follower.speculation = Speculation::Prepared;
            } else {
                self.follower.verifies = true;
                encode_flush(&mut insert);
            }
        } else {
            put_settings(&behind, &mut insert, model)?;
        }
        Ok(Some(MessageAction::InsertBefore(insert)))
    }

    /// Prepares nothing under the name of a statement. It is described as one that returns no rows.
    fn put_stand_in(
        &mut self,
        name: &[u8],
        shape: &Shape,
        failure: Failure,
        insert: &mut Vec<u8>,
        model: &mut FollowedModel,
    ) -> Result<(), Error> {
        insert.extend_from_slice(&shape.empty_parse(name)?);
        self.follower.leave(left_by_parse(name));
        let (name, what) = (name.to_vec(), OnConnection::StandIn);
        model.send(SentKind::Parse, Some(Box::new(Note::InsertedParse { name, what, failure })));
        Ok(())
    }

    /// What the server has said of the parameters of a statement.
    pub(super) fn parameter_description(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let shape = self.statements.get(name).and_then(|statement| statement.shape.get());
        shape.map_or(Ok(Vec::new()), Shape::parameter_description)
    }

    /// Prepares the statement again, as the client knows it. Returns the settings to be put behind it and its `Describe`;
    /// `None` if it is not possible.
    fn put_statement(
        &mut self,
        name: &[u8],
        statement: &ClientStatement,
        failure: Failure,
        insert: &mut Vec<u8>,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<Option<Vec<String>>, Error> {
        let is_portable = statement.is_portable() && !statement.depends_on(self.follower.unreported);
        let Some(shape) = statement.shape.get().filter(|_| is_portable) else { return Ok(None) };
        let Some((before, behind)) = self.settings_around(statement, parameters, model) else {
            return Ok(None);
        };
        put_settings(&before, insert, model)?;
        self.close_stand_in(name, insert, model)?;
        insert.extend_from_slice(&shape.typed_parse(&statement.message)?);
        self.follower.leave(left_by_parse(name));
        let (name, what) = (name.to_vec(), OnConnection::Statement);
        model.send(SentKind::Parse, Some(Box::new(Note::InsertedParse { name, what, failure })));
        Ok(Some(behind))
    }

    /// The commands around a `Parse`, so that the server reads the statement's constants with the settings that it first
    /// read them with. `None` if the present settings are not known.
    fn settings_around(
        &self,
        statement: &ClientStatement,
        parameters: &Parameters,
        model: &FollowedModel,
    ) -> Option<(Vec<String>, Vec<String>)> {
        let Some(read_with) = &statement.read_with else { return Some(Default::default()) };
        if self.follower.unanswered > ReadingChange::None {
            return None;
        }
        let is_idle = model.transaction() == TransactionStatus::Idle;
        let scope = if is_idle { SettingScope::Session } else { SettingScope::Transaction };
        let before = settings_between(parameters, read_with, scope)?;
        // A command of this batch may end the transaction, and with it what was set for it.
        if !before.is_empty() && !is_idle && self.follower.batch != BatchExecution::Fresh {
            return None;
        }
        Some((before, settings_between(read_with, parameters, scope)?))
    }

    /// Removes what this connection has under a name in place of the client's statement.
    fn close_stand_in(
        &mut self,
        name: &[u8],
        insert: &mut Vec<u8>,
        model: &mut FollowedModel,
    ) -> Result<(), Error> {
        if self.prepared.get(name) == Some(OnConnection::StandIn)
            || model.newest_first().any(|sent| is_stand_in(sent, name))
        {
            close(name, insert, model)?;
        }
        Ok(())
    }

    /// The statements that a text names, and those that they name themselves.
    fn named_by(&self, wanted: &NamedStatements, model: &FollowedModel) -> Vec<(NameUse, Vec<u8>)> {
        let NamedStatements::These(names) = wanted else { return self.all_named() };
        let (mut names, mut at) = (names.clone(), 0);
        while let Some((name_use, name)) = names.get(at) {
            at += 1;
            let executed = self.denoted(name, model).filter(|_| *name_use == NameUse::Executes);
            match executed.as_ref().map(|statement| &statement.effects.named) {
                Some(NamedStatements::Any) => return self.all_named(),
                Some(NamedStatements::These(inner)) => {
                    let new: Vec<_> = inner.iter().filter(|named| !names.contains(named)).cloned().collect();
                    names.extend(new);
                }
                None => {}
            }
        }
        names
    }

    /// The effects of a text, with those of the statements that it executes.
    pub(super) fn add_executed(&self, effects: &mut Effects, model: &FollowedModel) {
        if effects.named.executes_any() {
            for (name_use, name) in self.named_by(&effects.named, model) {
                if name_use == NameUse::Executes
                    && let Some(executed) = self.denoted(&name, model)
                {
                    effects.execute(&executed.effects);
                }
            }
        }
    }

    fn all_named(&self) -> Vec<(NameUse, Vec<u8>)> {
        let names = self.statements.names().filter(|name| !name.is_empty());
        names.map(|name| (NameUse::Executes, name.to_vec())).collect()
    }

    /// Prepares the statements that a text names.
    pub(super) fn prepare_named(
        &mut self,
        wanted: &NamedStatements,
        failure: Failure,
        parameters: &Parameters,
        model: &mut FollowedModel,
    ) -> Result<Prepared, Error> {
        if wanted.is_empty() || model.is_in_doubt() || !self.prepared.lacks_any(self.statements) {
            return Ok(Prepared::Nothing);
        }
        // One that the client may not mean would take locks and a snapshot, and its failure would be the client's.
        let is_alone = failure == Failure::Kept && model.transaction() == TransactionStatus::Idle;
        if *wanted == NamedStatements::Any && !is_alone {
            return Ok(Prepared::Nothing);
        }
        let names = self.named_by(wanted, model);
        // All or nothing: the model has what is inserted.
        if names.iter().any(|(_, name)| matches!(self.availability(name, model), Availability::Open)) {
            return Ok(Prepared::Waits);
        }
        let mut insert = Vec::new();
        for (name_use, name) in names {
            let is_prepared = self.prepared.get(&name).is_some();
            let is_failed = self.follower.unusable.iter().any(|(own, _)| *own == name);
            if is_prepared && name_use == NameUse::Mentions || !is_prepared && is_failed {
                continue;
            }
            let statement = match self.availability(&name, model) {
                Availability::Certain | Availability::IfExecuted | Availability::Open => continue,
                Availability::StandIn(_) if name_use == NameUse::Mentions => continue,
                Availability::Missing(statement) | Availability::StandIn(statement) => statement,
            };
            if is_failed {
                self.close_stand_in(&name, &mut insert, model)?;
            } else if name_use == NameUse::Mentions {
                if let Some(shape) = statement.shape.get() {
                    self.put_stand_in(&name, shape, failure, &mut insert, model)?;
                }
            } else if let Some(behind) =
                self.put_statement(&name, &statement, failure, &mut insert, parameters, model)?
            {
                if statement.returns_rows() && failure == Failure::Kept {
                    put_of_statement(&mut insert, kind::DESCRIBE, &name)?;
                    describe(name, statement, DescribePurpose::Verify, model);
                }
                put_settings(&behind, &mut insert, model)?;
            }
        }
        Ok(if insert.is_empty() { Prepared::Nothing } else { Prepared::Insert(insert) })
    }
}

/// Whether a message of the proxy prepares something else under this name.
fn is_stand_in(sent: &Sent<Option<Box<Note>>>, name: &[u8]) -> bool {
    matches!(
        sent.note.as_deref(),
        Some(Note::InsertedParse { name: own, what: OnConnection::StandIn, .. }) if key(own) == key(name)
    )
}

impl Effects {
    /// Whether executing the text twice, or for nothing, makes no difference.
    fn only_reads(&self) -> bool {
        self.remains == Remains::Nothing
            && self.verb == StatementVerb::Query
            && self.constants < Constants::OfTheTime
    }

    /// Whether the text may deallocate this statement.
    fn removes(&self, name: &[u8]) -> bool {
        let is_removed = |deallocation: &Deallocation| match deallocation {
            Deallocation::Named(own) => key(own) == key(name),
            Deallocation::All => true,
        };
        !name.is_empty() && (self.discard == Discard::All || self.deallocations.iter().any(is_removed))
    }
}
