//! The prepared statements of a client, and of a server connection.

use std::sync::{Arc, OnceLock};

use foldhash::HashMap;

use crate::postgres::{
    codec::{message::HEADER_BYTES, parameters::Parameters},
    relay::{database_commands::PreparedDatabaseCommands, session_follower::shape::Shape},
    sql::effects::{Constants, Effects, MAX_NAME_BYTES, ReadingChange, StatementVerb},
};

/// The statements that a client has prepared and may use on any connection. The server has confirmed each of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientStatements {
    by_name: HashMap<Vec<u8>, Arc<ClientStatement>>,
    bytes: usize,
    /// Prepared commands about databases. Some may be unconfirmed: to close idle connections needlessly does no harm.
    pub(crate) about_databases: PreparedDatabaseCommands,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientStatement {
    /// The complete `Parse`.
    pub(super) message: Vec<u8>,
    pub(super) effects: Effects,
    /// The reported settings with which the server has read its constants, if it has some.
    pub(super) read_with: Option<Parameters>,
    /// Empty until the server has described the statement.
    pub(super) shape: OnceLock<Shape>,
    /// Whether it can no longer be prepared as the client knows it. Its name is still in use.
    is_lost: bool,
}

/// The statements prepared on a server connection, by name.
#[derive(Debug, Default)]
pub struct ConnectionStatements {
    by_name: HashMap<Vec<u8>, OnConnection>,
    /// How many of them are the client's, and have a name.
    named: usize,
}

/// What a connection has under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnConnection {
    /// The client's statement.
    Statement,
    /// Something else, so that the server knows the name.
    StandIn,
}

/// The part of a name that servers compare.
pub(crate) fn key(name: &[u8]) -> &[u8] {
    &name[..name.len().min(MAX_NAME_BYTES)]
}

fn mentions_xml(message: &[u8]) -> bool {
    let is_it = |at: usize| message.get(at + 1..at + 3).is_some_and(|rest| rest.eq_ignore_ascii_case(b"ml"));
    memchr::memchr2_iter(b'x', b'X', message).any(is_it)
}

impl ClientStatement {
    pub(super) fn new(message: Vec<u8>, mut effects: Effects, parameters: &Parameters) -> Self {
        if !message.is_ascii() || message.contains(&b'\\') || mentions_xml(&message) {
            // The text means something else in another encoding, or if a backslash is an ordinary character; and any string
            // may be a document.
            effects.constants = effects.constants.max(Constants::OfSettings);
        }
        let shape = OnceLock::new();
        if effects.verb == StatementVerb::Fetch {
            // It has no parameters, and columns as long as the cursor exists. Servers crash if they are asked to describe
            // it afterwards.
            let _ = shape.set(Shape::new(vec![0, 0], None));
        }
        let read_with = (effects.constants > Constants::None).then(|| parameters.clone());
        Self { message, effects, read_with, shape, is_lost: false }
    }

    /// As the client has written it. The part that servers compare may end within a character, which they refuse.
    pub(super) fn name(&self) -> &[u8] {
        let payload = self.message.get(HEADER_BYTES..).unwrap_or_default();
        payload.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn copy(&self) -> Self {
        let Self { message, effects, read_with, shape, is_lost } = self;
        let (message, effects, read_with) = (message.clone(), effects.clone(), read_with.clone());
        Self { message, effects, read_with, shape: shape.clone(), is_lost: *is_lost }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether it means the same if it is prepared again.
    pub(super) fn is_portable(&self) -> bool {
        self.effects.constants < Constants::OfTheTime && !self.effects.named.executes_any()
    }

    /// Whether it would mean something else if it were prepared again after this change.
    pub(super) fn depends_on(&self, change: ReadingChange) -> bool {
        match change {
            // It is prepared again with the values that it was read with.
            ReadingChange::None | ReadingChange::Reported => false,
            ReadingChange::Constants => self.read_with.is_some(),
            ReadingChange::Texts => true,
        }
    }

    /// Whether the client may use it later, under its name, and it may not mean the same on another connection. What a
    /// `FETCH` returns depends on the cursor that there was when it was prepared.
    pub(super) fn binds_to_connection(&self) -> bool {
        !self.is_portable() || self.effects.verb == StatementVerb::Fetch
    }

    pub(super) fn returns_rows(&self) -> bool {
        self.shape.get().is_some_and(Shape::has_columns)
    }

    /// Whether servers describe it without a look at tables and cursors.
    pub(super) fn is_known_empty(&self) -> bool {
        !self.returns_rows() && self.effects.verb != StatementVerb::Fetch
    }

    fn bytes(&self) -> usize {
        self.message.len()
    }
}

impl ConnectionStatements {
    /// Call it when the connection was reset.
    pub fn clear(&mut self) {
        self.by_name.clear();
        self.named = 0;
    }

    /// The statement without a name stays.
    pub(super) fn clear_named(&mut self) {
        self.by_name.retain(|name, _| name.is_empty());
        self.named = 0;
    }

    /// The proxy has replaced the unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.remove(b"");
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<OnConnection> {
        // Usually there is none, and the name need not be hashed.
        if self.by_name.is_empty() { None } else { self.by_name.get(key(name)).copied() }
    }

    pub(super) fn insert(&mut self, name: &[u8], what: OnConnection) {
        self.remove(name);
        self.named += usize::from(what == OnConnection::Statement && !name.is_empty());
        self.by_name.insert(key(name).to_vec(), what);
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if !self.by_name.is_empty() && self.by_name.remove(key(name)) == Some(OnConnection::Statement) {
            self.named -= usize::from(!name.is_empty());
        }
    }

    /// Whether a named statement of the client is missing.
    pub(super) fn lacks_any(&self, statements: &ClientStatements) -> bool {
        let unnamed = usize::from(statements.by_name.contains_key(&b""[..]));
        !statements.by_name.is_empty() && statements.by_name.len() - unnamed > self.named
    }
}

impl ClientStatements {
    /// The memory that all of them take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a statement would mean something else if it were prepared again after this change.
    pub fn depend_on(&self, change: ReadingChange) -> bool {
        change.is_unreported() && self.by_name.values().any(|statement| statement.depends_on(change))
    }

    /// Of the statements that a connection lacks and that would mean something else there after this change, only the names
    /// remain: the client cannot use them, nor prepare others of these names before it has closed them.
    pub fn forget_dependent(&mut self, change: ReadingChange, prepared: &ConnectionStatements) {
        for (name, statement) in &mut self.by_name {
            if statement.depends_on(change)
                && !statement.is_lost
                && prepared.get(name) != Some(OnConnection::Statement)
            {
                *statement = Arc::new(ClientStatement { is_lost: true, ..statement.copy() });
            }
        }
    }

    /// The server will analyse its statements anew when they are used next: the client's others, too, are read with the
    /// settings of that moment.
    pub(super) fn analyse_anew(&mut self, prepared: &ConnectionStatements) {
        for (name, statement) in &mut self.by_name {
            if statement.read_with.is_some() && prepared.get(name) != Some(OnConnection::Statement) {
                *statement = Arc::new(ClientStatement { read_with: None, ..statement.copy() });
            }
        }
    }

    /// The names of those that depend on this change.
    pub(super) fn dependent(&self, change: ReadingChange) -> impl Iterator<Item = &[u8]> {
        let all = self.by_name.iter().filter(move |(_, statement)| statement.depends_on(change));
        all.map(|(name, _)| name.as_slice())
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<ClientStatement>> {
        if self.by_name.is_empty() { None } else { self.by_name.get(key(name)) }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.by_name.keys().map(Vec::as_slice)
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if !self.by_name.is_empty()
            && let Some(statement) = self.by_name.remove(key(name))
        {
            self.bytes -= statement.bytes();
        }
    }

    pub(super) fn insert(&mut self, name: &[u8], statement: Arc<ClientStatement>) {
        self.bytes += statement.bytes();
        if let Some(old) = self.by_name.insert(key(name).to_vec(), statement) {
            self.bytes -= old.bytes();
        }
    }

    /// The statement without a name stays.
    pub(super) fn clear_named(&mut self) {
        self.by_name.retain(|name, _| name.is_empty());
        self.bytes = self.by_name.values().map(|statement| statement.bytes()).sum();
    }
}
