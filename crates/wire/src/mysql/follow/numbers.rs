//! Commands that name a prepared statement: their statement identifier is translated for the server
//! connection.

use super::{Follow, HEADER_BYTES, Header, MAX_OPEN, Next, Owed};
use crate::mysql::{
    Error,
    packet::MAX_PART_BYTES,
    statements::{Kept, LAST, NOBODY, PreparedHere, Statements, Types},
};

const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_STMT_RESET: u8 = 0x1a;
const COM_STMT_FETCH: u8 = 0x1c;
const COM_STMT_BULK_EXECUTE: u8 = 0xfa;
const COM_PING: u8 = 0x0e;
/// The command byte and a statement identifier.
const NAMED_BYTES: usize = 5;
/// Offset of the null bitmap in a `COM_STMT_EXECUTE`, after flags and iteration count.
const EXECUTE_BYTES: usize = 10;
/// The same for a `COM_STMT_BULK_EXECUTE`, after two bytes of flags.
const BULK_BYTES: usize = 7;
/// `STMT_BULK_FLAG_CLIENT_SEND_TYPES`.
const BULK_TYPES: u8 = 0x80;
/// "new params bind flag".
const NEW_TYPES: u8 = 1;
const TYPE_BYTES: usize = 2;
/// Commands that name a statement whose prepare is pending are kept up to this length.
const MAX_EARLY_BYTES: usize = 1 << 13;

/// What a client's statement identifier refers to on this server connection.
enum Meant {
    Here {
        own: u32,
        id: u32,
        types: Types,
    },
    /// The client has prepared it, but this connection has not.
    Elsewhere(u32),
    /// The statement whose prepare is pending.
    Last,
    Nobody,
}

/// Where the parameter types of an execute are.
enum Place {
    /// The offset of the types.
    At(usize),
    /// The command has none. They would be at this offset, and a flag before it would announce them.
    Missing(usize),
    /// Not enough of the command has arrived.
    Waits,
    /// The command ends before its types.
    Broken,
}

impl Follow {
    pub(super) fn of_statement(
        &mut self,
        kind: u8,
        header: Header,
        here: &[u8],
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) -> Result<Next, Error> {
        let Some(&[a, b, c, d]) = here.get(1..).and_then(<[u8]>::first_chunk) else {
            if header.length >= NAMED_BYTES {
                return Ok(Next::Waits);
            }
            // The server reports what is missing.
            self.owes(kind, Owed::Other);
            return Ok(Next::Passes);
        };
        let meant = self.meant(u32::from_le_bytes([a, b, c, d]), statements, prepared);
        match (kind, meant) {
            (COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE, Meant::Here { own, id, types }) => {
                self.execute(kind, header, here, Statement { own, id, types }, statements, prepared)
            }
            (COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE, Meant::Last) => {
                let is_short = header.length <= MAX_EARLY_BYTES;
                if is_short && here.len() < header.length {
                    return Ok(Next::Waits);
                }
                let is_kept = is_short && statements.has_room(self.owed_bytes + here.len());
                let payload = if is_kept { here.to_vec() } else { Vec::new() };
                self.owed_bytes += payload.len();
                self.owed.push_back(Owed::ExecuteLast(kind, payload));
                Ok(Next::Passes)
            }
            (COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE | COM_STMT_SEND_LONG_DATA, Meant::Elsewhere(own)) => {
                Ok(Next::Needs(own))
            }
            (COM_STMT_SEND_LONG_DATA, Meant::Here { own, id, .. }) => {
                if self.ahead.len() < MAX_OPEN {
                    self.ahead.insert(own);
                } else {
                    self.done.effects.pins("many statements with long data");
                }
                Ok(named(kind, header, id))
            }
            (COM_STMT_CLOSE, meant) => Ok(self.close(header, &meant, statements, prepared)),
            (COM_STMT_RESET, Meant::Here { own, id, .. }) => {
                self.cursors.remove(&own);
                self.ahead.remove(&own);
                self.owed.push_back(Owed::Other);
                Ok(named(kind, header, id))
            }
            (COM_STMT_RESET, Meant::Elsewhere(_)) if header.length == NAMED_BYTES => {
                // The statement is in its initial state on this connection. A ping gets the same response.
                self.owed.push_back(Owed::Other);
                let insert = vec![1, 0, 0, 0, COM_PING];
                Ok(Next::Instead { insert, drop_bytes: HEADER_BYTES + NAMED_BYTES, left_bytes: 0 })
            }
            (COM_STMT_FETCH, Meant::Here { own, id, .. }) => {
                self.owed.push_back(Owed::Fetch(own));
                Ok(named(kind, header, id))
            }
            (_, Meant::Last) => {
                self.done.effects.pins("a statement that was used before its prepare completed");
                self.owes(kind, Owed::Other);
                Ok(Next::Passes)
            }
            (_, Meant::Nobody | Meant::Elsewhere(_)) => {
                self.owes(kind, Owed::Other);
                Ok(named(kind, header, NOBODY))
            }
            (_, Meant::Here { id, .. }) => {
                self.owes(kind, Owed::Other);
                Ok(named(kind, header, id))
            }
        }
    }

    fn owes(&mut self, kind: u8, owed: Owed) {
        if !super::is_silent(kind) {
            self.owed.push_back(owed);
        }
    }

    fn meant(&self, number: u32, statements: &Statements, prepared: &PreparedHere) -> Meant {
        let own = if number == LAST {
            if self.owed.iter().any(|owed| matches!(owed, Owed::Prepare { .. })) {
                return Meant::Last;
            }
            statements.last
        } else {
            Some(number)
        };
        let Some(own) = own else { return Meant::Nobody };
        if let Some(here) = prepared.get(own) {
            return Meant::Here { own, id: here.id, types: here.types };
        }
        if statements.text(own).is_some() { Meant::Elsewhere(own) } else { Meant::Nobody }
    }

    fn close(
        &mut self,
        header: Header,
        meant: &Meant,
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) -> Next {
        let (own, id) = match *meant {
            Meant::Here { own, id, .. } => (Some(own), id),
            Meant::Elsewhere(own) => (Some(own), NOBODY),
            Meant::Last | Meant::Nobody => (None, NOBODY),
        };
        if let Some(own) = own {
            statements.remove(own);
            prepared.remove(own);
            self.cursors.remove(&own);
            self.ahead.remove(&own);
        }
        named(COM_STMT_CLOSE, header, id)
    }

    /// The statement was executed with this payload while its prepare was pending.
    pub(super) fn learns_types(
        &mut self,
        own: u32,
        kind: u8,
        payload: &[u8],
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) {
        let params = usize::from(statements.params(own).unwrap_or_default());
        if params == 0 {
            return;
        }
        let header = Header { length: payload.len(), sequence: 0 };
        match types_of(kind, header, payload, params) {
            Place::At(start)
                if statements.keep_types(own, &payload[start..start + params * TYPE_BYTES]) == Kept::Yes =>
            {
                prepared.knows_types(own);
            }
            _ => self.done.effects.pins("a statement that was executed before its prepare completed"),
        }
    }

    fn execute(
        &mut self,
        kind: u8,
        header: Header,
        here: &[u8],
        statement: Statement,
        statements: &mut Statements,
        prepared: &mut PreparedHere,
    ) -> Result<Next, Error> {
        let Statement { own, id, types } = statement;
        let params = usize::from(statements.params(own).unwrap_or_default());
        let place = if params == 0 { Place::Broken } else { types_of(kind, header, here, params) };
        let next = match place {
            Place::Waits => return Ok(Next::Waits),
            Place::Broken => named(kind, header, id),
            Place::At(start) => {
                let types = &here[start..start + params * TYPE_BYTES];
                if statements.keep_types(own, types) == Kept::No {
                    self.done.effects.pins("parameter types that are too long");
                }
                prepared.knows_types(own);
                named(kind, header, id)
            }
            Place::Missing(at) => {
                let known = statements.get(own).and_then(|known| known.types.as_deref());
                match known.filter(|_| types == Types::Unknown) {
                    None => named(kind, header, id),
                    Some(known) => {
                        let next = with_types(kind, header, here, id, at, known)?;
                        prepared.knows_types(own);
                        next
                    }
                }
            }
        };
        self.ahead.remove(&own);
        self.cursors.remove(&own);
        self.owed.push_back(Owed::Execute(own));
        Ok(next)
    }
}

#[derive(Clone, Copy)]
struct Statement {
    own: u32,
    id: u32,
    types: Types,
}

/// The same command with another statement identifier.
fn named(kind: u8, header: Header, id: u32) -> Next {
    let mut insert = Vec::with_capacity(HEADER_BYTES + NAMED_BYTES);
    put_header(&mut insert, header.length, header.sequence);
    insert.push(kind);
    insert.extend_from_slice(&id.to_le_bytes());
    Next::Instead { insert, drop_bytes: HEADER_BYTES + NAMED_BYTES, left_bytes: header.length - NAMED_BYTES }
}

fn types_of(kind: u8, header: Header, here: &[u8], params: usize) -> Place {
    let types_bytes = params * TYPE_BYTES;
    let (flag_at, mask, types_at) = if kind == COM_STMT_EXECUTE {
        let flag_at = EXECUTE_BYTES + params.div_ceil(8);
        (flag_at, NEW_TYPES, flag_at + 1)
    } else {
        (NAMED_BYTES, BULK_TYPES, BULK_BYTES)
    };
    match here.get(flag_at) {
        None if header.length > flag_at => Place::Waits,
        None => Place::Broken,
        Some(flag) if flag & mask == 0 => Place::Missing(types_at),
        Some(_) if header.length < types_at + types_bytes => Place::Broken,
        Some(_) if here.len() < types_at + types_bytes => Place::Waits,
        Some(_) => Place::At(types_at),
    }
}

/// The same command with the server's statement identifier, and with the types that the server does not know
/// yet.
fn with_types(
    kind: u8,
    header: Header,
    here: &[u8],
    id: u32,
    at: usize,
    types: &[u8],
) -> Result<Next, Error> {
    let length = header.length + types.len();
    if length >= MAX_PART_BYTES {
        let reason = "it is too long to add the parameter types on another connection";
        return Err(Error::Protocol { message: "command", reason });
    }
    let Some(front) = here.get(NAMED_BYTES..at) else { return Ok(Next::Waits) };
    let mut insert = Vec::with_capacity(HEADER_BYTES + at + types.len());
    put_header(&mut insert, length, header.sequence);
    insert.push(kind);
    insert.extend_from_slice(&id.to_le_bytes());
    insert.extend_from_slice(front);
    // The flag is the last byte before the types of an execute; in a bulk execute it follows the identifier.
    let (flag_at, mask) = if kind == COM_STMT_EXECUTE {
        (insert.len() - 1, NEW_TYPES)
    } else {
        (HEADER_BYTES + NAMED_BYTES, BULK_TYPES)
    };
    insert[flag_at] |= mask;
    insert.extend_from_slice(types);
    Ok(Next::Instead { insert, drop_bytes: HEADER_BYTES + at, left_bytes: header.length - at })
}

fn put_header(out: &mut Vec<u8>, length: usize, sequence: u8) {
    let [low, middle, high, ..] = length.to_le_bytes();
    out.extend_from_slice(&[low, middle, high, sequence]);
}
