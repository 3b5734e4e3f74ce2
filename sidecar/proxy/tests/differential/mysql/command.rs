//! Commands of clients, which may be illegal.

use std::fmt::{self, Display, Formatter};

use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::server::write_payload;

use super::UTF8MB4;

/// Types of parameters in the protocol.
const LONG: u8 = 3;
const LONGLONG: u8 = 8;
const STRING: u8 = 253;
/// A bulk execute that has the types of its parameters.
const BULK_TYPES: u16 = 128;
/// The statement that was prepared last.
const LAST: u32 = u32::MAX;
/// A number that no statement has.
const UNKNOWN: u32 = 9999;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i32),
    Long(i64),
    Text(&'static str),
}

/// A statement of the protocol, by the place where the client keeps its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Slot(usize),
    /// MariaDB: the last one that was prepared.
    Last,
    Unknown,
}

/// Whether an execute has the types of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Types {
    Sent,
    Absent,
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Query(String),
    /// The first command of its batch: its answer has the number.
    Prepare {
        slot: usize,
        sql: String,
    },
    Execute {
        statement: Statement,
        flags: u8,
        types: Types,
        values: Vec<Value>,
    },
    Bulk {
        statement: Statement,
        rows: Vec<Vec<Value>>,
    },
    Fetch {
        statement: Statement,
        rows: u32,
    },
    Reset(Statement),
    Close(Statement),
    LongData {
        statement: Statement,
        parameter: u16,
        data: &'static str,
    },
    InitDb(&'static str),
    SetOption(u16),
    ResetConnection,
    ChangeUser {
        database: &'static str,
    },
    Ping,
    Statistics,
    FieldList(&'static str),
    /// A command with this number, and nothing else.
    Other(u8),
    Quit,
    /// The client sends nothing more, but reads on.
    HalfClose,
}

/// What commands refer to.
pub(crate) struct Names<'a> {
    pub(crate) user: &'a str,
    pub(crate) slots: &'a [Option<u32>],
}

impl Names<'_> {
    fn number(&self, statement: Statement) -> u32 {
        match statement {
            Statement::Slot(slot) => self.slots.get(slot).copied().flatten().unwrap_or(UNKNOWN),
            Statement::Last => LAST,
            Statement::Unknown => UNKNOWN,
        }
    }
}

impl Command {
    pub(crate) fn encode(&self, names: &Names<'_>, out: &mut Vec<u8>) {
        let numbered = |kind: u8, statement: Statement, rest: &[u8]| {
            [&[kind][..], &names.number(statement).to_le_bytes(), rest].concat()
        };
        let payload = match self {
            Self::Query(sql) => [b"\x03", sql.as_bytes()].concat(),
            Self::Prepare { sql, .. } => [b"\x16", sql.as_bytes()].concat(),
            Self::Execute { statement, flags, types, values } => {
                let rest = [vec![*flags], 1_u32.to_le_bytes().to_vec(), parameters(*types, values)].concat();
                numbered(0x17, *statement, &rest)
            }
            Self::Bulk { statement, rows } => numbered(0xfa, *statement, &bulk(rows)),
            Self::Fetch { statement, rows } => numbered(0x1c, *statement, &rows.to_le_bytes()),
            Self::Reset(statement) => numbered(0x1a, *statement, b""),
            Self::Close(statement) => numbered(0x19, *statement, b""),
            Self::LongData { statement, parameter, data } => {
                numbered(0x18, *statement, &[&parameter.to_le_bytes(), data.as_bytes()].concat())
            }
            Self::InitDb(name) => [b"\x02", name.as_bytes()].concat(),
            Self::SetOption(option) => [&b"\x1b"[..], &option.to_le_bytes()].concat(),
            Self::ResetConnection => b"\x1f".to_vec(),
            Self::ChangeUser { database } => {
                let change = ChangeUser {
                    user: names.user.as_bytes(),
                    auth_response: b"",
                    database: database.as_bytes(),
                    character_set: Some(u16::from(UTF8MB4)),
                    plugin: Some(b"mysql_native_password"),
                };
                return change.encode(out).expect("it is short");
            }
            Self::Ping => b"\x0e".to_vec(),
            Self::Statistics => b"\x09".to_vec(),
            Self::FieldList(table) => [b"\x04", table.as_bytes(), b"\0"].concat(),
            Self::Other(number) => vec![*number],
            Self::Quit => b"\x01".to_vec(),
            Self::HalfClose => return,
        };
        write_payload(out, 0, &payload).expect("it is short");
    }
}

fn parameters(types: Types, values: &[Value]) -> Vec<u8> {
    if values.is_empty() {
        return Vec::new();
    }
    let mut nulls = vec![0; values.len().div_ceil(8)];
    for (at, value) in values.iter().enumerate() {
        if *value == Value::Null {
            nulls[at / 8] |= 1 << (at % 8);
        }
    }
    let mut bytes = nulls;
    bytes.push(u8::from(types == Types::Sent));
    if types == Types::Sent {
        bytes.extend(values.iter().flat_map(type_of));
    }
    for value in values {
        put(&mut bytes, value);
    }
    bytes
}

fn type_of(value: &Value) -> [u8; 2] {
    let kind = match value {
        Value::Int(_) => LONG,
        Value::Long(_) => LONGLONG,
        Value::Text(_) | Value::Null => STRING,
    };
    [kind, 0]
}

fn put(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Int(number) => bytes.extend(number.to_le_bytes()),
        Value::Long(number) => bytes.extend(number.to_le_bytes()),
        Value::Text(text) => {
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        }
    }
}

/// Rows of values, each with an indicator.
fn bulk(rows: &[Vec<Value>]) -> Vec<u8> {
    let mut bytes = BULK_TYPES.to_le_bytes().to_vec();
    bytes.extend(rows.first().into_iter().flatten().flat_map(type_of));
    for value in rows.iter().flatten() {
        bytes.push(u8::from(*value == Value::Null));
        put(&mut bytes, value);
    }
    bytes
}

impl Display for Command {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}
