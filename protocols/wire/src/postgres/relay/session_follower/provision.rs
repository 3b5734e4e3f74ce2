//! The statements of the client that a connection lacks: prepared again, as the client knows them, before they are used.

use std::sync::Arc;

use crate::postgres::{
    codec::{
        command::{encode_flush, encode_sync},
        parameters::Parameters,
        text_rules::TextEncoding,
        transaction::TransactionStatus,
    },
    error::Error,
    relay::{
        backend_model::{Sent, SentKind},
        session_follower::{
            BatchCommands, BatchExecution, Followed, FollowedModel, MessageAction, Speculation,
            constants::{SettingScope, put_settings, settings_between},
            left_by_parse,
            notes::{DescribePurpose, ErrorText, Failure, Note},
            own_messages::{close, put_describe, put_refusal, put_set},
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
    /// By the portal without a name, in place of an earlier one.
    ByUnnamedPortal,
    ByNamedPortal,
    Nothing,
}

/// How long the preparation of a statement waits for locks on its tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockWait {
    AsClient,
    /// The client may not mean this statement.
    Short,
}

/// Limits the wait for locks up to the end of the transaction.
const SHORT_LOCK_WAIT: &str = "SELECT WHERE pg_catalog.set_config('lock_timeout', '10ms', true) IS NULL";

/// How a statement is prepared again so that it means the same.
struct Preparation {
    /// Commands that set settings.
    before: Vec<String>,
    /// Commands that set them back.
    behind: Vec<String>,
    error_text: ErrorText,
}

/// What must be sent for the statements that a text names.
pub(super) enum Prepared {
    Nothing,
    Insert(Vec<u8>),
    /// That depends on answers that are owed.
    Waits,
}

impl Followed<'_> {
    /// The statements that this name may denote if everything before in the batch succeeds, the newest first. It is one,
    /// unless answers to earlier batches are owed, whose messages may have failed.
    pub(super) fn denoted<'a>(
        &'a self,
        name: &'a [u8],
        model: &'a FollowedModel,
    ) -> impl Iterator<Item = &'a Arc<ClientStatement>> {
        let (mut is_earlier, mut is_decided) = (false, false);
        let newest_first = model.newest_first().map(Some).chain([None]);
        let found = newest_first.map_while(move |sent| {
            if is_decided {
                return None;
            }
            let Some(sent) = sent else { return Some(self.statements.get(name)) };
            is_earlier |= sent.kind.ends_with_ready();
            let (found, is_it) = match sent.note.as_deref() {
                Some(Note::Parse { name: own, statement }) => (Some(statement), key(own) == key(name)),
                Some(Note::Close { name: own }) => (None, key(own) == key(name)),
                _ => (None, false),
            };
            is_decided = is_it && !is_earlier;
            Some(found.filter(|_| is_it))
        });
        found.flatten()
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
        // If its meaning is not known, the server says that there is no such statement.
        let Some(preparation) = self.preparation(&statement, parameters, model) else {
            self.close_stand_in(name, &mut insert, model)?;
            return Ok((!insert.is_empty()).then_some(MessageAction::InsertBefore(insert)));
        };
        // Behind a `SET`, some statements are refused, as in a transaction.
        let is_apart = !preparation.before.is_empty() && self.is_between_batches(model);
        if is_apart && let Some(action) = self.wait_until_answered(model) {
            return Ok(Some(action));
        }
        let failure = match executes {
            _ if is_apart => Failure::Kept,
            Executes::Nothing => Failure::OfDescribe,
            Executes::ByUnnamedPortal | Executes::ByNamedPortal => Failure::Answered,
        };
        self.put_statement(&statement, &preparation, failure, &mut insert, model)?;
        let returns_rows = statement.returns_rows();
        let is_speculative = executes == Executes::ByUnnamedPortal
            && self.follower.batch != BatchExecution::HasExecuted
            && statement.effects.only_reads();
        if returns_rows {
            put_describe(statement, DescribePurpose::Verify, &mut insert, model)?;
        }
        put_settings(&preparation.behind, &mut insert, model)?;
        if is_apart {
            self.end_own_batch(&mut insert, model);
        } else if returns_rows && is_speculative {
            self.follower.speculation = Speculation::Prepared;
        } else if returns_rows {
            self.follower.verifies = true;
            encode_flush(&mut insert);
        }
        Ok(Some(MessageAction::InsertBefore(insert)))
    }

    /// Whether a `Sync` of the proxy ends nothing of the client's.
    pub(super) fn is_between_batches(&self, model: &FollowedModel) -> bool {
        self.follower.batch == BatchExecution::Fresh && model.transaction() == TransactionStatus::Idle
    }

    /// Ends a batch of the proxy: if a message of it fails, nothing of the client's does.
    pub(super) fn end_own_batch(&mut self, insert: &mut Vec<u8>, model: &mut FollowedModel) {
        encode_sync(insert);
        model.send(SentKind::Sync, Some(Box::new(Note::InsertedSync)));
        self.follower.is_preparing = true;
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
        let (name, what, error_text) = (name.to_vec(), OnConnection::StandIn, ErrorText::Client);
        model.send(SentKind::Parse, Some(Box::new(Note::InsertedParse { name, what, failure, error_text })));
        Ok(())
    }

    /// What the server has said of the parameters of a statement.
    pub(super) fn parameter_description(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let shape = self.statements.get(name).and_then(|statement| statement.shape.get());
        shape.map_or(Ok(Vec::new()), Shape::parameter_description)
    }

    /// Prepares the statement again, as the client knows it. The settings that are set back come behind its `Describe`.
    fn put_statement(
        &mut self,
        statement: &ClientStatement,
        preparation: &Preparation,
        failure: Failure,
        insert: &mut Vec<u8>,
        model: &mut FollowedModel,
    ) -> Result<(), Error> {
        let (name, Some(shape)) = (statement.name(), statement.shape.get()) else { return Ok(()) };
        put_settings(&preparation.before, insert, model)?;
        self.close_stand_in(name, insert, model)?;
        insert.extend_from_slice(&shape.typed_parse(&statement.message)?);
        self.follower.leave(left_by_parse(name));
        let error_text = preparation.error_text;
        let (name, what) = (name.to_vec(), OnConnection::Statement);
        model.send(SentKind::Parse, Some(Box::new(Note::InsertedParse { name, what, failure, error_text })));
        Ok(())
    }

    /// How the statement is prepared again, so that the server reads its constants with the settings that it first read
    /// them with. `None` if that is not possible, or not known.
    fn preparation(
        &self,
        statement: &ClientStatement,
        parameters: &Parameters,
        model: &FollowedModel,
    ) -> Option<Preparation> {
        let is_described = statement.shape.get().is_some();
        let is_known = is_described && !statement.is_lost();
        if !is_known || !statement.is_portable() || statement.depends_on(self.follower.unreported) {
            return None;
        }
        let Some(read_with) = &statement.read_with else {
            return Some(Preparation {
                before: Vec::new(),
                behind: Vec::new(),
                error_text: ErrorText::Client,
            });
        };
        if self.follower.unanswered > ReadingChange::None {
            return None;
        }
        let is_idle = model.transaction() == TransactionStatus::Idle;
        let scope = if is_idle { SettingScope::Session } else { SettingScope::Transaction };
        let before = settings_between(parameters, read_with, scope)?;
        let is_within = || {
            self.follower.batch != BatchExecution::HasExecuted
                || self.follower.batch_commands == BatchCommands::DataAccess
        };
        if !before.is_empty() && !is_idle && !is_within() {
            return None;
        }
        let behind = settings_between(read_with, parameters, scope)?;
        let is_same = read_with.get(TextEncoding::SETTING) == parameters.get(TextEncoding::SETTING);
        let error_text = if is_same { ErrorText::Client } else { ErrorText::Other };
        Some(Preparation { before, behind, error_text })
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
            if *name_use != NameUse::Executes {
                continue;
            }
            let name = name.clone();
            for executed in self.denoted(&name, model) {
                let NamedStatements::These(inner) = &executed.effects.named else { return self.all_named() };
                let new: Vec<_> = inner.iter().filter(|named| !names.contains(named)).cloned().collect();
                names.extend(new);
            }
        }
        names
    }

    /// The effects of a text, with those of the statements that it executes.
    pub(super) fn add_executed(&self, effects: &mut Effects, model: &FollowedModel) {
        if effects.named.executes_any() {
            for (name_use, name) in self.named_by(&effects.named, model) {
                for executed in self.denoted(&name, model).filter(|_| name_use == NameUse::Executes) {
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
        lock_wait: LockWait,
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
        // Then the server prepares nothing but stand-ins. What was sent may end the transaction.
        let has_failed = failure == Failure::Kept && model.transaction() == TransactionStatus::Failed;
        if has_failed && model.newest_first().next().is_some() {
            return Ok(Prepared::Waits);
        }
        let (mut insert, mut is_limited) = (Vec::new(), lock_wait == LockWait::AsClient);
        for (name_use, name) in names {
            let is_prepared = self.prepared.get(&name).is_some();
            let is_failed = self.follower.unusable.iter().any(|(own, _)| own == key(&name));
            if is_prepared && name_use == NameUse::Mentions || !is_prepared && is_failed {
                continue;
            }
            let statement = match self.availability(&name, model) {
                Availability::Certain | Availability::IfExecuted | Availability::Open => continue,
                Availability::StandIn(_) if name_use == NameUse::Mentions => continue,
                Availability::Missing(statement) | Availability::StandIn(statement) => statement,
            };
            if is_failed {
                self.close_stand_in(statement.name(), &mut insert, model)?;
            } else if name_use == NameUse::Mentions {
                if let Some(shape) = statement.shape.get() {
                    self.put_stand_in(statement.name(), shape, failure, &mut insert, model)?;
                }
            } else if !has_failed && let Some(preparation) = self.preparation(&statement, parameters, model) {
                if !std::mem::replace(&mut is_limited, true) {
                    put_set(SHORT_LOCK_WAIT, &mut insert, model)?;
                }
                self.put_statement(&statement, &preparation, failure, &mut insert, model)?;
                if statement.returns_rows() && failure == Failure::Kept {
                    put_describe(statement, DescribePurpose::Verify, &mut insert, model)?;
                }
                put_settings(&preparation.behind, &mut insert, model)?;
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

    /// Whether the statement leaves the transaction and its settings as they are.
    pub(super) fn is_data_access(&self) -> bool {
        self.remains == Remains::Nothing && matches!(self.verb, StatementVerb::Query | StatementVerb::Write)
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
