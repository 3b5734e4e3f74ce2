//! A client's prepared statements. The proxy chooses their identifiers, which stay the same when the client
//! moves to another server connection; the server's identifiers differ per connection.

use std::sync::Arc;

use foldhash::HashMap;

use crate::mysql::{
    relay::{observer::CursorState, text_context::TextContext},
    sql::effects::Effects,
};

/// Limit for the texts and parameter types of all statements of a client. A client that exceeds it is pinned
/// to its connection.
pub(crate) const MAX_STATEMENT_BYTES: usize = 8 << 20;
/// Memory per statement besides its text.
const OVERHEAD_BYTES: usize = 256;
/// An identifier that no server assigns: the server answers that the statement is unknown.
pub const UNKNOWN_STATEMENT: u32 = 0;
/// MariaDB's identifier of the last prepared statement.
pub(crate) const LAST_STATEMENT: u32 = u32::MAX;
/// A `COM_STMT_CLOSE` up to its statement identifier.
const CLOSE: [u8; 5] = [5, 0, 0, 0, 0x19];

/// The statements that a client has prepared and may use on any connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientStatements {
    by_id: HashMap<u32, ClientStatement>,
    /// The identifier assigned last.
    newest: u32,
    /// The statement prepared last, if that succeeded.
    pub(crate) last: Option<u32>,
    bytes: usize,
    /// The context of statements that are prepared now.
    pub context: Arc<TextContext>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientStatement {
    /// `None` if it exceeds the limit; its client is then pinned.
    pub(crate) text: Option<Vec<u8>>,
    pub(crate) effects: Arc<Effects>,
    pub(crate) context: Arc<TextContext>,
    pub(crate) params: u16,
    /// The parameter types, as the client sent them last.
    pub(crate) types: Option<Vec<u8>>,
    /// Whether its first execution opened a cursor.
    pub(crate) first: Option<CursorState>,
}

/// The statements prepared on a server connection, by their client's identifiers.
#[derive(Debug, Default)]
pub struct ConnectionStatements(HashMap<u32, ConnectionStatement>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionStatement {
    /// The server's identifier.
    pub(crate) id: u32,
    pub(crate) types: ParameterTypes,
    /// Whether its first execution on this connection opened a cursor.
    first: Option<CursorState>,
}

/// Whether the server knows the parameter types of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterTypes {
    Unknown,
    Known,
}

impl ConnectionStatements {
    /// Call it when the connection was reset.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, own: u32) -> Option<ConnectionStatement> {
        self.0.get(&own).copied()
    }

    /// The server assigned `id` to the client's statement `own`.
    pub fn insert(&mut self, own: u32, id: u32) {
        self.0.insert(own, ConnectionStatement { id, types: ParameterTypes::Unknown, first: None });
    }

    pub(crate) fn remove(&mut self, own: u32) -> Option<ConnectionStatement> {
        self.0.remove(&own)
    }

    pub(crate) fn set_types(&mut self, own: u32, types: ParameterTypes) {
        if let Some(statement) = self.0.get_mut(&own) {
            statement.types = types;
        }
    }
}

/// The server has executed a statement.
pub(crate) fn executed(
    own: u32,
    cursor: CursorState,
    statements: &mut ClientStatements,
    prepared: &mut ConnectionStatements,
) {
    if let Some(statement) = statements.by_id.get_mut(&own) {
        statement.first.get_or_insert(cursor);
    }
    if let Some(statement) = prepared.0.get_mut(&own) {
        statement.first.get_or_insert(cursor);
    }
}

/// Whether a statement cannot be executed without a cursor on this connection, as its client has done it elsewhere: MySQL 8.0
/// and 9.7 answer with a malformed result if the first execution had a cursor.
pub(crate) fn needs_cursor(own: u32, statements: &ClientStatements, prepared: &ConnectionStatements) -> bool {
    let first_here = prepared.get(own).and_then(|statement| statement.first);
    let first = statements.get(own).and_then(|statement| statement.first);
    (first, first_here) == (Some(CursorState::None), Some(CursorState::Open))
}

impl ClientStatements {
    /// The memory that all of them take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn text(&self, own: u32) -> Option<&[u8]> {
        self.by_id.get(&own)?.text.as_deref()
    }

    /// The context in which a statement was prepared at first, if it is another one now.
    pub fn other_context(&self, own: u32) -> Option<&TextContext> {
        let context = &self.by_id.get(&own)?.context;
        let is_same = Arc::ptr_eq(context, &self.context) || *context == self.context;
        (!is_same).then_some(&**context)
    }

    /// Whether a statement was prepared with the database of the login, which may be none.
    pub fn have_database_of_login(&self) -> bool {
        self.by_id.values().any(|statement| statement.context.is_in_database_of_login())
    }

    pub fn params(&self, own: u32) -> Option<u16> {
        Some(self.by_id.get(&own)?.params)
    }

    pub(crate) fn get(&self, own: u32) -> Option<&ClientStatement> {
        self.by_id.get(&own)
    }

    /// Whether `bytes` more may be stored.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes + OVERHEAD_BYTES + self.context.bytes()) <= MAX_STATEMENT_BYTES
    }

    /// Adds a statement and returns the client's identifier.
    pub(crate) fn add(&mut self, statement: ClientStatement) -> u32 {
        loop {
            self.newest = self.newest.wrapping_add(1);
            if !matches!(self.newest, UNKNOWN_STATEMENT | LAST_STATEMENT)
                && !self.by_id.contains_key(&self.newest)
            {
                break;
            }
        }
        self.bytes +=
            OVERHEAD_BYTES + statement.context.bytes() + statement.text.as_ref().map_or(0, Vec::len);
        self.by_id.insert(self.newest, statement);
        self.last = Some(self.newest);
        self.newest
    }

    pub(crate) fn remove(&mut self, own: u32) {
        if let Some(ClientStatement { text, types, context, .. }) = self.by_id.remove(&own) {
            self.bytes -= OVERHEAD_BYTES + context.bytes() + text.map_or(0, |text| text.len());
            self.bytes -= types.map_or(0, |types| types.len());
        }
        if self.last == Some(own) {
            self.last = None;
        }
    }

    /// Closes the statements that the commands at the front of `input` close, for a client without a connection. Returns
    /// the length of these commands.
    pub fn close_all(&mut self, input: &[u8]) -> usize {
        let mut rest = input;
        while let Some((number, behind)) = rest.strip_prefix(&CLOSE).and_then(<[u8]>::split_first_chunk) {
            let own = match u32::from_le_bytes(*number) {
                LAST_STATEMENT => self.last,
                own => Some(own),
            };
            if let Some(own) = own {
                self.remove(own);
            }
            rest = behind;
        }
        input.len() - rest.len()
    }

    /// Stores the parameter types. Returns whether the limit allowed it.
    #[must_use]
    pub(crate) fn store_types(&mut self, own: u32, types: &[u8]) -> bool {
        let Some(statement) = self.by_id.get_mut(&own) else { return true };
        if statement.types.as_deref() == Some(types) {
            return true;
        }
        self.bytes -= statement.types.take().map_or(0, |types| types.len());
        if self.bytes.saturating_add(types.len()) > MAX_STATEMENT_BYTES {
            return false;
        }
        self.bytes += types.len();
        statement.types = Some(types.to_vec());
        true
    }

    pub(crate) fn clear(&mut self) {
        // Closed identifiers may still be in use by pipelined commands.
        *self = Self { newest: self.newest, context: Arc::clone(&self.context), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::codec::command::{encode_ping, encode_statement_close};

    #[test]
    fn closes_need_no_connection() {
        let mut statements = ClientStatements::default();
        let statement = || ClientStatement {
            text: Some(b"SELECT 1".to_vec()),
            effects: Arc::default(),
            context: Arc::default(),
            params: 0,
            types: None,
            first: None,
        };
        let [first, second, third] = [(); 3].map(|()| statements.add(statement()));
        let mut input = Vec::new();
        for number in [first, 77, LAST_STATEMENT] {
            encode_statement_close(&mut input, number);
        }
        let closes = input.len();
        encode_ping(&mut input);
        encode_statement_close(&mut input, second);
        assert_eq!(statements.close_all(&input), closes);
        let is_open = |own| statements.text(own).is_some();
        assert_eq!([first, second, third].map(is_open), [false, true, false]);
        // The rest of a command has not arrived.
        assert_eq!(statements.close_all(&input[closes + 5..input.len() - 1]), 0);
        assert_eq!(statements.close_all(&input[closes + 5..]), 9);
        assert_eq!(statements.bytes(), 0);
    }
}
