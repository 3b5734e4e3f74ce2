//! Messages of clients, which may be illegal, and messages of servers, as they are compared.

use std::fmt::{self, Display, Formatter};

const TUPLE: &[u8] = b" tuple (";

/// A message of a client.
#[derive(Clone, Debug)]
pub(crate) enum Frontend {
    Query(String),
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    DescribeStatement(String),
    DescribePortal(String),
    Execute {
        portal: String,
        rows: u32,
    },
    CloseStatement(String),
    ClosePortal(String),
    Sync,
    Flush,
    FunctionCall {
        function: u32,
        arguments: Vec<Option<Vec<u8>>>,
    },
    CopyData(Vec<u8>),
    CopyDone,
    CopyFail(String),
    Terminate,
    /// The client sends nothing more, but reads on.
    HalfClose,
}

#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    pub(crate) formats: Vec<i16>,
    pub(crate) values: Vec<Option<Vec<u8>>>,
    pub(crate) result_formats: Vec<i16>,
}

impl Frontend {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, body) = match self {
            Self::Query(sql) => (b'Q', text(sql)),
            Self::Parse { name, sql, types } => {
                let types: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
                (b'P', [text(name), text(sql), count(types.len() / 4), types].concat())
            }
            Self::Bind(bind) => (b'B', bind.body()),
            Self::DescribeStatement(name) => (b'D', [b"S".to_vec(), text(name)].concat()),
            Self::DescribePortal(name) => (b'D', [b"P".to_vec(), text(name)].concat()),
            Self::Execute { portal, rows } => (b'E', [text(portal), rows.to_be_bytes().to_vec()].concat()),
            Self::CloseStatement(name) => (b'C', [b"S".to_vec(), text(name)].concat()),
            Self::ClosePortal(name) => (b'C', [b"P".to_vec(), text(name)].concat()),
            Self::Sync => (b'S', Vec::new()),
            Self::Flush => (b'H', Vec::new()),
            Self::FunctionCall { function, arguments } => {
                let one_text_format = [count(1), count(0)].concat();
                let parts = [
                    function.to_be_bytes().to_vec(),
                    one_text_format,
                    count(arguments.len()),
                    values(arguments),
                    count(0),
                ];
                (b'F', parts.concat())
            }
            Self::CopyData(data) => (b'd', data.clone()),
            Self::CopyDone => (b'c', Vec::new()),
            Self::CopyFail(reason) => (b'f', text(reason)),
            Self::Terminate => (b'X', Vec::new()),
            Self::HalfClose => return,
        };
        out.push(kind);
        out.extend((body.len() as u32 + 4).to_be_bytes());
        out.extend(body);
    }

    /// Whether a server answers it with `ReadyForQuery`, unless it skips it.
    pub(crate) fn ends_in_ready(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Sync | Self::FunctionCall { .. })
    }
}

impl Bind {
    fn body(&self) -> Vec<u8> {
        let formats = |formats: &[i16]| {
            let bytes: Vec<u8> = formats.iter().flat_map(|format| format.to_be_bytes()).collect();
            [count(formats.len()), bytes].concat()
        };
        let parts = [
            text(&self.portal),
            text(&self.statement),
            formats(&self.formats),
            count(self.values.len()),
            values(&self.values),
            formats(&self.result_formats),
        ];
        parts.concat()
    }
}

fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), b"\0"].concat()
}

fn count(number: usize) -> Vec<u8> {
    (number as u16).to_be_bytes().to_vec()
}

fn values(values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match value {
            None => bytes.extend((-1_i32).to_be_bytes()),
            Some(value) => {
                bytes.extend((value.len() as u32).to_be_bytes());
                bytes.extend(value);
            }
        }
    }
    bytes
}

impl Display for Frontend {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let shown = |values: &[Option<Vec<u8>>]| {
            let texts = values.iter().map(|value| {
                value.as_ref().map_or_else(|| "NULL".to_owned(), |value| value.escape_ascii().to_string())
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Bind(bind) => write!(
                formatter,
                "Bind portal {:?} statement {:?} formats {:?} values [{}] results {:?}",
                bind.portal,
                bind.statement,
                bind.formats,
                shown(&bind.values),
                bind.result_formats
            ),
            Self::CopyData(data) => write!(formatter, "CopyData \"{}\"", data.escape_ascii()),
            other => write!(formatter, "{other:?}"),
        }
    }
}

/// A message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Takes a whole message from the front of these bytes.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let &[kind, a, b, c, d] = bytes.first_chunk::<5>()?;
        let end = u32::from_be_bytes([a, b, c, d]) as usize + 1;
        if bytes.len() < end {
            return None;
        }
        let body = bytes[5..end].to_vec();
        bytes.drain(..end);
        Some(Self { kind, body })
    }

    pub(crate) fn is_of_lock_timeout(&self) -> bool {
        self.kind == b'E' && self.body.split(|&byte| byte == 0).any(|field| field == b"C55P03")
    }

    /// What two routes have in common. `None` for what comes at other times, or to one route only.
    pub(crate) fn comparable(&self, process_id: u32) -> Option<Self> {
        let body = match self.kind {
            // Their values are compared at the end of an answer.
            b'S' => return None,
            // Only what the client itself sent comes at a definite time.
            b'A' if self.body.get(..4) != Some(&process_id.to_be_bytes()) => return None,
            b'A' => self.body[4..].to_vec(),
            b'T' => without_numbers_of_tables(&self.body),
            b'E' | b'N' => {
                let fields = self.body.split(|&byte| byte == 0);
                fields.filter(|field| is_compared(field)).fold(Vec::new(), |mut body, field| {
                    body.extend(field);
                    body.push(0);
                    body
                })
            }
            _ => self.body.clone(),
        };
        Some(Self { kind: self.kind, body })
    }

    /// The field of an error or notice.
    pub(crate) fn field(&self, code: u8) -> Option<String> {
        let mut fields = self.body.split(|&byte| byte == 0);
        let field = fields.find(|field| field.first() == Some(&code))?;
        Some(String::from_utf8_lossy(&field[1..]).into_owned())
    }

    /// Its kind, and for errors the SQL state.
    pub(crate) fn short(&self) -> String {
        match self.kind {
            b'E' | b'N' => format!(
                "{} {} {}",
                char::from(self.kind),
                self.field(b'C').unwrap_or_default(),
                self.field(b'M').unwrap_or_default()
            ),
            b'Z' | b'C' => format!("{} {}", char::from(self.kind), self.body.escape_ascii()),
            kind => char::from(kind).to_string(),
        }
    }
}

/// Not file, line and function of the server's source, nor where a row lies.
fn is_compared(field: &[u8]) -> bool {
    match field.first() {
        None | Some(b'F' | b'L' | b'R') => false,
        Some(b'W') => !field.windows(TUPLE.len()).any(|part| part == TUPLE),
        Some(_) => true,
    }
}

/// Each database has tables of its own.
fn without_numbers_of_tables(body: &[u8]) -> Vec<u8> {
    const FIRST_OF_USERS: u32 = 16_384;
    let mut body = body.to_vec();
    let mut at = 2;
    while let Some(end) = body.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == 0)) {
        at += end + 1;
        for number in [at, at + 6] {
            if let Some(bytes) = body.get_mut(number..number + 4)
                && u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) >= FIRST_OF_USERS
            {
                bytes.copy_from_slice(&[0xff; 4]);
            }
        }
        at += 18;
    }
    body
}

impl Display for Message {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.body).replace('\0', "·");
        write!(formatter, "{} {}", char::from(self.kind), text.escape_debug())
    }
}
