//! Commands that name a prepared statement: their statement identifier is translated for the server
//! connection.

use std::sync::Arc;

use crate::mysql::{
    codec::{
        err::ErrPacket,
        packet::{HEADER_BYTES, Header, MAX_PART_BYTES},
    },
    error::Error,
    relay::{
        commands::{COM_STMT_BULK_EXECUTE, COM_STMT_EXECUTE, CommandStart, CursorRequest},
        observer::ResponseEnd,
        prepared_statements::{
            ClientStatements, ConnectionStatements, LAST_STATEMENT, ParameterTypes, UNKNOWN_STATEMENT,
            needs_cursor,
        },
        session_follower::{BulkTypes, CommandAction, MAX_OPEN, PendingCommand, ResetData, SessionFollower},
    },
};

const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_STMT_RESET: u8 = 0x1a;
const COM_STMT_FETCH: u8 = 0x1c;
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
enum StatementRef {
    Prepared {
        own: u32,
        id: u32,
        types: ParameterTypes,
    },
    /// The client has prepared it, but this connection has not.
    Unprepared(u32),
    /// The statement whose prepare is pending.
    Pending,
    Unknown,
}

/// Where the parameter types of an execute are.
enum TypesLocation {
    /// The offset of the types.
    At(usize),
    /// The command has none. They would be at this offset, and a flag before it would announce them.
    Absent(usize),
    /// Not enough of the command has arrived.
    NeedInput,
    /// The command ends before its types.
    Truncated,
}

impl SessionFollower {
    pub(super) fn statement_command(
        &mut self,
        kind: u8,
        header: Header,
        arrived: &[u8],
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<CommandAction, Error> {
        let Some(&[a, b, c, d]) = arrived.get(1..).and_then(<[u8]>::first_chunk) else {
            if header.length >= NAMED_BYTES {
                return Ok(CommandAction::NeedInput);
            }
            // The server reports what is missing.
            self.push_pending(kind, PendingCommand::Other);
            return Ok(CommandAction::Forward);
        };
        let target = self.resolve(u32::from_le_bytes([a, b, c, d]), statements, prepared);
        match (kind, target) {
            (COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE, StatementRef::Prepared { own, id, types }) => self
                .execute(kind, header, arrived, ExecutedStatement { own, id, types }, statements, prepared),
            (COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE, StatementRef::Pending) => {
                Ok(self.execute_pending(kind, header, arrived, statements))
            }
            (COM_STMT_EXECUTE | COM_STMT_BULK_EXECUTE, StatementRef::Unprepared(own)) => {
                Ok(self.execute_unprepared(kind, header, arrived, own, statements))
            }
            (COM_STMT_FETCH | COM_STMT_SEND_LONG_DATA, StatementRef::Unprepared(own))
                if self.no_database.is_none() && !self.failed.contains_key(&own) =>
            {
                Ok(CommandAction::Prepare(own))
            }
            // The server reports that there is no statement.
            (COM_STMT_FETCH, StatementRef::Unprepared(own)) => Ok(self.fetch_failed(header, own)),
            (COM_STMT_SEND_LONG_DATA, StatementRef::Unprepared(own)) => Ok(self.lose_long_data(own)),
            (COM_STMT_SEND_LONG_DATA, StatementRef::Prepared { own, id, .. }) => {
                self.has_long_data(own);
                Ok(with_statement_id(kind, header, id))
            }
            (COM_STMT_CLOSE, StatementRef::Prepared { own, id, .. }) => {
                Ok(self.close(header, own, id, statements, prepared))
            }
            (COM_STMT_CLOSE, StatementRef::Unprepared(own)) => {
                Ok(self.close(header, own, UNKNOWN_STATEMENT, statements, prepared))
            }
            (COM_STMT_RESET, StatementRef::Prepared { own, id, .. }) => {
                self.pending.push_back(PendingCommand::ResetStatement { own, data: ResetData::Earlier });
                Ok(with_statement_id(kind, header, id))
            }
            (COM_STMT_RESET, StatementRef::Unprepared(own)) if header.length == NAMED_BYTES => {
                // The statement is in its initial state on this connection. A ping gets the same response.
                self.failed.remove(&own);
                self.long_data.remove(&own);
                self.pending.push_back(PendingCommand::Other);
                let insert = vec![1, 0, 0, 0, COM_PING];
                Ok(CommandAction::Replace { insert, drop_bytes: HEADER_BYTES + NAMED_BYTES, left_bytes: 0 })
            }
            (COM_STMT_FETCH, StatementRef::Prepared { own, id, .. }) => {
                self.pending.push_back(PendingCommand::Fetch(own));
                Ok(with_statement_id(kind, header, id))
            }
            (_, StatementRef::Pending) => {
                self.changes.effects.pins("a statement that was used before it was known");
                self.push_pending(kind, PendingCommand::Other);
                Ok(CommandAction::Forward)
            }
            (_, StatementRef::Unknown | StatementRef::Unprepared(_)) => {
                self.push_pending(kind, PendingCommand::Other);
                Ok(with_statement_id(kind, header, UNKNOWN_STATEMENT))
            }
            (_, StatementRef::Prepared { id, .. }) => {
                self.push_pending(kind, PendingCommand::Other);
                Ok(with_statement_id(kind, header, id))
            }
        }
    }

    /// The data of a statement that cannot be prepared. The client stays here until it executes the statement, which fails:
    /// elsewhere the data would be missing.
    fn lose_long_data(&mut self, own: u32) -> CommandAction {
        // Prepared again without its default database, the statement would be about the tables of another one.
        if let Some(err) = &self.no_database {
            self.failed.entry(own).or_insert_with(|| err.clone());
        }
        self.has_long_data(own);
        CommandAction::Discard(None)
    }

    /// Executes a statement that is not prepared here, or could not be.
    fn execute_unprepared(
        &mut self,
        kind: u8,
        header: Header,
        arrived: &[u8],
        own: u32,
        statements: &mut ClientStatements,
    ) -> CommandAction {
        let Some(err) = self.failed.get(&own) else { return CommandAction::Prepare(own) };
        let had_types = statements.get(own).is_none_or(|known| known.params == 0 || known.types.is_some());
        let params = usize::from(statements.params(own).unwrap_or_default());
        // Where the statement is prepared, the server reads the parameters first, and then finds what is wrong with it.
        let location =
            if params == 0 { TypesLocation::Truncated } else { types_of(kind, header, arrived, params) };
        let err = match location {
            TypesLocation::NeedInput => return CommandAction::NeedInput,
            _ if had_types => err.clone(),
            TypesLocation::Absent(_) if kind == COM_STMT_EXECUTE => {
                let mut payload = Vec::new();
                NO_TYPES.encode(&mut payload);
                payload
            }
            _ => err.clone(),
        };
        if let TypesLocation::At(start) = location
            && kind == COM_STMT_EXECUTE
            && !statements.store_types(own, &arrived[start..start + params * TYPE_BYTES])
        {
            self.changes.effects.pins(TOO_LONG);
        }
        if kind == COM_STMT_EXECUTE {
            self.long_data.remove(&own);
        }
        self.forget_failure(own);
        CommandAction::Discard(Some(err))
    }

    /// Fetches from a statement that could not be prepared.
    fn fetch_failed(&mut self, header: Header, own: u32) -> CommandAction {
        self.forget_failure(own);
        self.pending.push_back(PendingCommand::Other);
        with_statement_id(COM_STMT_FETCH, header, UNKNOWN_STATEMENT)
    }

    /// The client was told that the statement could not be prepared: the next command prepares it. But while data that
    /// was sent ahead is missing, nothing may execute it.
    fn forget_failure(&mut self, own: u32) {
        if !self.long_data.contains(&own) {
            self.failed.remove(&own);
        }
    }

    /// Executes the statement whose prepare is pending.
    fn execute_pending(
        &mut self,
        kind: u8,
        header: Header,
        arrived: &[u8],
        statements: &ClientStatements,
    ) -> CommandAction {
        let is_short = header.length <= MAX_EARLY_BYTES;
        if is_short && arrived.len() < header.length {
            return CommandAction::NeedInput;
        }
        let is_kept = is_short && statements.has_room(self.pending_bytes + arrived.len());
        let payload = if is_kept { arrived.to_vec() } else { Vec::new() };
        self.pending_bytes += payload.len();
        self.pending.push_back(PendingCommand::ExecuteLast(kind, payload));
        CommandAction::Forward
    }

    fn push_pending(&mut self, kind: u8, pending: PendingCommand) {
        if !super::is_silent(kind) {
            self.pending.push_back(pending);
        }
    }

    fn resolve(
        &self,
        number: u32,
        statements: &ClientStatements,
        prepared: &ConnectionStatements,
    ) -> StatementRef {
        let own = if number == LAST_STATEMENT {
            if self.pending.iter().any(|pending| matches!(pending, PendingCommand::Prepare { .. })) {
                return StatementRef::Pending;
            }
            statements.last
        } else {
            Some(number)
        };
        let Some(own) = own else { return StatementRef::Unknown };
        if let Some(statement) = prepared.get(own) {
            return StatementRef::Prepared { own, id: statement.id, types: statement.types };
        }
        if statements.text(own).is_some() { StatementRef::Unprepared(own) } else { StatementRef::Unknown }
    }

    fn close(
        &mut self,
        header: Header,
        own: u32,
        id: u32,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> CommandAction {
        // It has no response, and no server refuses it.
        statements.remove(own);
        prepared.remove(own);
        self.cursors.remove(&own);
        self.long_data.remove(&own);
        self.failed.remove(&own);
        with_statement_id(COM_STMT_CLOSE, header, id)
    }

    fn has_long_data(&mut self, own: u32) {
        for pending in &mut self.pending {
            if let PendingCommand::ResetStatement { own: reset, data } = pending
                && *reset == own
            {
                *data = ResetData::Later;
            }
        }
        if self.long_data.len() < MAX_OPEN {
            self.long_data.insert(own);
        } else {
            self.changes.effects.pins("many statements with data sent ahead");
        }
    }

    /// The statement was executed with this payload while its prepare was pending.
    pub(crate) fn learn_types(
        &mut self,
        own: u32,
        kind: u8,
        payload: &[u8],
        end: ResponseEnd,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        let params = usize::from(statements.params(own).unwrap_or_default());
        if params == 0 || kind == COM_STMT_BULK_EXECUTE && has_read_no_types(end) {
            return;
        }
        let header = Header { length: payload.len(), sequence: 0 };
        match types_of(kind, header, payload, params) {
            TypesLocation::At(start)
                if statements.store_types(own, &payload[start..start + params * TYPE_BYTES]) =>
            {
                prepared.set_types(own, ParameterTypes::Known);
            }
            _ => self.changes.effects.pins("a statement that was executed before it was known"),
        }
    }

    /// The server has answered a bulk execute that had types.
    pub(super) fn bulk_ended(
        &mut self,
        own: u32,
        types: &BulkTypes,
        end: ResponseEnd,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) {
        self.pending_bytes -= types.types.len();
        if has_read_no_types(end) {
            prepared.set_types(own, types.before);
        } else if !statements.store_types(own, &types.types) {
            self.changes.effects.pins(TOO_LONG);
        }
    }

    fn execute(
        &mut self,
        kind: u8,
        header: Header,
        arrived: &[u8],
        statement: ExecutedStatement,
        statements: &mut ClientStatements,
        prepared: &mut ConnectionStatements,
    ) -> Result<CommandAction, Error> {
        let ExecutedStatement { own, id, types } = statement;
        let Some(start) = CommandStart::read(header, arrived) else { return Ok(CommandAction::NeedInput) };
        if start.cursor == CursorRequest::None
            && needs_cursor(own, statements, prepared)
            && !self.long_data.contains(&own)
        {
            return Ok(CommandAction::Prepare(own));
        }
        let params = usize::from(statements.params(own).unwrap_or_default());
        let location =
            if params == 0 { TypesLocation::Truncated } else { types_of(kind, header, arrived, params) };
        let mut bulk = None;
        let next = match location {
            TypesLocation::NeedInput => return Ok(CommandAction::NeedInput),
            TypesLocation::Truncated => with_statement_id(kind, header, id),
            TypesLocation::At(start) => {
                let types = &arrived[start..start + params * TYPE_BYTES];
                bulk = self.types_were_sent(kind, statement, types, statements);
                prepared.set_types(own, ParameterTypes::Known);
                with_statement_id(kind, header, id)
            }
            TypesLocation::Absent(at) => {
                let known = statements.get(own).and_then(|known| known.types.as_ref());
                let doubt = known.map_or(Doubt::None, |known| self.doubt(own, known));
                if doubt == Doubt::OfTypes && !self.long_data.contains(&own) {
                    // Prepared again, the statement has those that count once everything is answered.
                    return Ok(CommandAction::Prepare(own));
                }
                let is_unknown = types == ParameterTypes::Unknown || doubt != Doubt::None;
                match known.filter(|_| is_unknown).cloned() {
                    None => with_statement_id(kind, header, id),
                    Some(known) => {
                        let next = with_types(kind, header, arrived, id, at, &known)?;
                        bulk = self.types_were_sent(kind, statement, &known, statements);
                        prepared.set_types(own, ParameterTypes::Known);
                        next
                    }
                }
            }
        };
        let effects = statements.get(own).map(|known| Arc::clone(&known.effects)).unwrap_or_default();
        self.pending.push_back(PendingCommand::Execute(own, effects, bulk));
        // Servers forget the data whether they execute the statement or refuse it. A bulk execute leaves it.
        if kind == COM_STMT_EXECUTE {
            self.long_data.remove(&own);
        }
        Ok(next)
    }

    /// What is not known of the statement's types on this connection, if they were `known` before.
    fn doubt(&self, own: u32, known: &[u8]) -> Doubt {
        // No types are kept: the usual case, also with many commands that are not answered.
        if self.pending_bytes == 0 {
            return Doubt::None;
        }
        let mut bulks = self.pending.iter().filter_map(|pending| match pending {
            PendingCommand::Execute(executed, _, Some(bulk)) if *executed == own => Some(bulk),
            _ => None,
        });
        match bulks.next() {
            Some(first) if first.before == ParameterTypes::Unknown => {
                let is_same = first.types == known && bulks.all(|bulk| bulk.types == known);
                if is_same { Doubt::WhetherRead } else { Doubt::OfTypes }
            }
            _ => Doubt::None,
        }
    }

    /// The types of an execute count once it was sent, and those of a bulk execute once it was answered: a client that may
    /// not use it is refused before they are read.
    fn types_were_sent(
        &mut self,
        kind: u8,
        statement: ExecutedStatement,
        types: &[u8],
        statements: &mut ClientStatements,
    ) -> Option<Box<BulkTypes>> {
        let ExecutedStatement { own, types: before, .. } = statement;
        let is_bulk = kind == COM_STMT_BULK_EXECUTE;
        if is_bulk && statements.has_room(self.pending_bytes + types.len()) {
            self.pending_bytes += types.len();
            return Some(Box::new(BulkTypes { types: types.to_vec(), before }));
        }
        self.forget_pending_types(own);
        if is_bulk || !statements.store_types(own, types) {
            self.changes.effects.pins(TOO_LONG);
        }
        None
    }

    /// A later execute has types: those of bulk executes that are not answered yet count no more.
    fn forget_pending_types(&mut self, own: u32) {
        for pending in &mut self.pending {
            if let PendingCommand::Execute(executed, _, types) = pending
                && *executed == own
                && let Some(types) = types.take()
            {
                self.pending_bytes -= types.types.len();
            }
        }
    }
}

/// The answer to an execute without types of a statement for which none were ever sent.
const NO_TYPES: ErrPacket<'static> =
    ErrPacket { code: 1210, sql_state: *b"HY000", message: b"Incorrect arguments to mysqld_stmt_execute" };

const TOO_LONG: &str = "types of parameters that are too long";

/// Whether the server has refused a bulk execute before it read the types.
fn has_read_no_types(end: ResponseEnd) -> bool {
    /// `ER_UNKNOWN_STMT_HANDLER`, `ER_UNSUPPORTED_PS`, `ER_MALFORMED_PACKET`.
    const BEFORE_TYPES: [u16; 3] = [1243, 1295, 1835];
    matches!(end, ResponseEnd::Err(code) if BEFORE_TYPES.contains(&code))
}

/// What bulk executes that are not answered yet leave open: the server may refuse them before it reads their types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// Whether the connection has the types, which are those of the statement in either case.
    WhetherRead,
    /// Which types the statement has.
    OfTypes,
}

#[derive(Clone, Copy)]
struct ExecutedStatement {
    own: u32,
    id: u32,
    types: ParameterTypes,
}

/// The same command with another statement identifier.
fn with_statement_id(kind: u8, header: Header, id: u32) -> CommandAction {
    let mut insert = Vec::with_capacity(HEADER_BYTES + NAMED_BYTES);
    put_header(&mut insert, header.length, header.sequence);
    insert.push(kind);
    insert.extend_from_slice(&id.to_le_bytes());
    CommandAction::Replace {
        insert,
        drop_bytes: HEADER_BYTES + NAMED_BYTES,
        left_bytes: header.length - NAMED_BYTES,
    }
}

fn types_of(kind: u8, header: Header, arrived: &[u8], params: usize) -> TypesLocation {
    let types_bytes = params * TYPE_BYTES;
    let (flag_at, mask, types_at) = if kind == COM_STMT_EXECUTE {
        let flag_at = EXECUTE_BYTES + params.div_ceil(8);
        (flag_at, NEW_TYPES, flag_at + 1)
    } else {
        (NAMED_BYTES, BULK_TYPES, BULK_BYTES)
    };
    match arrived.get(flag_at) {
        None if header.length > flag_at => TypesLocation::NeedInput,
        None => TypesLocation::Truncated,
        Some(flag) if flag & mask == 0 => TypesLocation::Absent(types_at),
        Some(_) if header.length < types_at + types_bytes => TypesLocation::Truncated,
        Some(_) if arrived.len() < types_at + types_bytes => TypesLocation::NeedInput,
        Some(_) => TypesLocation::At(types_at),
    }
}

/// The same command with the server's statement identifier, and with the types that the server does not know
/// yet.
fn with_types(
    kind: u8,
    header: Header,
    arrived: &[u8],
    id: u32,
    at: usize,
    types: &[u8],
) -> Result<CommandAction, Error> {
    let length = header.length + types.len();
    if length >= MAX_PART_BYTES {
        return Err(Error::protocol(
            "command",
            "it is too long to add the parameter types on another connection",
        ));
    }
    let Some(front) = arrived.get(NAMED_BYTES..at) else { return Ok(CommandAction::NeedInput) };
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
    Ok(CommandAction::Replace { insert, drop_bytes: HEADER_BYTES + at, left_bytes: header.length - at })
}

fn put_header(out: &mut Vec<u8>, length: usize, sequence: u8) {
    let [low, middle, high, ..] = length.to_le_bytes();
    out.extend_from_slice(&[low, middle, high, sequence]);
}
