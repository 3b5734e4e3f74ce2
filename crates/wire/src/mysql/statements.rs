//! What a client has prepared, by numbers of the proxy's own: it keeps them wherever the client goes, and each connection
//! has others.

use std::collections::HashMap;

use super::effects::Effects;

/// A client's prepared statements, all texts and types taken together; one with more keeps its connection.
pub(super) const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// What keeping one takes beside its text.
const OVERHEAD_BYTES: usize = 256;
/// A number that no server gives, so that it says that it knows no such statement.
pub const NOBODY: u32 = 0;
/// "The last prepared statement" of MariaDB's.
pub(super) const LAST: u32 = u32::MAX;

/// What a client has prepared, and may use on any connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statements {
    by_id: HashMap<u32, Statement>,
    /// The number that was given last.
    newest: u32,
    /// What the client has prepared last, if that has gone well.
    pub(super) last: Option<u32>,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    /// None where there was too much of it: its client stays where it is.
    pub(super) text: Option<Vec<u8>>,
    pub(super) effects: Effects,
    pub(super) params: u16,
    /// The types of its parameters, as the client has said them last.
    pub(super) types: Option<Vec<u8>>,
}

/// The statements that a server connection has, by their owner's numbers.
#[derive(Debug, Default)]
pub struct PreparedHere(HashMap<u32, Here>);

/// A statement on a server connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Here {
    /// The server's number.
    pub(super) id: u32,
    pub(super) types: Types,
}

/// Whether the server knows the types of a statement's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Types {
    Unknown,
    Known,
}

impl PreparedHere {
    /// The connection was reset.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn get(&self, own: u32) -> Option<Here> {
        self.0.get(&own).copied()
    }

    /// The statement with this number of its client's has this one of the server's here.
    pub fn insert(&mut self, own: u32, id: u32) {
        self.0.insert(own, Here { id, types: Types::Unknown });
    }

    pub(super) fn remove(&mut self, own: u32) -> Option<Here> {
        self.0.remove(&own)
    }

    pub(super) fn knows_types(&mut self, own: u32) {
        if let Some(here) = self.0.get_mut(&own) {
            here.types = Types::Known;
        }
    }
}

impl Statements {
    /// What all of them take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The text of one, as it was prepared.
    pub fn text(&self, own: u32) -> Option<&[u8]> {
        self.by_id.get(&own)?.text.as_deref()
    }

    /// How many parameters it takes.
    pub fn params(&self, own: u32) -> Option<u16> {
        Some(self.by_id.get(&own)?.params)
    }

    pub(super) fn get(&self, own: u32) -> Option<&Statement> {
        self.by_id.get(&own)
    }

    /// Whether so many bytes more may be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes + OVERHEAD_BYTES) <= MAX_STATEMENT_BYTES
    }

    /// One more; the number that its client is told.
    pub(super) fn add(&mut self, statement: Statement) -> u32 {
        loop {
            self.newest = self.newest.wrapping_add(1);
            if !matches!(self.newest, NOBODY | LAST) && !self.by_id.contains_key(&self.newest) {
                break;
            }
        }
        self.bytes += OVERHEAD_BYTES + statement.text.as_ref().map_or(0, Vec::len);
        self.by_id.insert(self.newest, statement);
        self.last = Some(self.newest);
        self.newest
    }

    pub(super) fn remove(&mut self, own: u32) {
        if let Some(Statement { text, types, .. }) = self.by_id.remove(&own) {
            self.bytes -= OVERHEAD_BYTES + text.map_or(0, |text| text.len());
            self.bytes -= types.map_or(0, |types| types.len());
        }
        if self.last == Some(own) {
            self.last = None;
        }
    }

    /// Keeps the types of its parameters; whether there was room for them.
    pub(super) fn keep_types(&mut self, own: u32, types: &[u8]) -> Kept {
        let Some(statement) = self.by_id.get_mut(&own) else { return Kept::Yes };
        if statement.types.as_deref() == Some(types) {
            return Kept::Yes;
        }
        self.bytes -= statement.types.take().map_or(0, |types| types.len());
        if self.bytes.saturating_add(types.len()) > MAX_STATEMENT_BYTES {
            return Kept::No;
        }
        self.bytes += types.len();
        statement.types = Some(types.to_vec());
        Kept::Yes
    }

    pub(super) fn clear(&mut self) {
        // Numbers that were given once may still be named.
        *self = Self { newest: self.newest, ..Self::default() };
    }
}

/// Whether something was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}
