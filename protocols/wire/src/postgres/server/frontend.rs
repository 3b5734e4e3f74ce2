//! What a client sends after its first message.

use crate::postgres::{
    codec::{
        column::{ValueFormat, parse_types},
        command::{PORTAL, Param, STATEMENT},
        kind,
        message::{self, Message},
        reader::Reader,
    },
    error::Error,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrontendMessage<'a> {
    /// A reply to an authentication request, which determines its format.
    Auth(AuthResponse<'a>),
    /// One or more statements as text.
    Query(&'a [u8]),
    Parse {
        /// Empty for the unnamed statement.
        name: &'a [u8],
        sql: &'a [u8],
        /// The OIDs of the parameter types that the client specifies; 0 if it does not.
        param_types: Vec<u32>,
    },
    Bind(Bind<'a>),
    Describe(DescribeTarget, &'a [u8]),
    Execute {
        /// Empty for the unnamed portal.
        portal: &'a [u8],
        /// 0 for no limit.
        max_rows: u32,
    },
    Close(DescribeTarget, &'a [u8]),
    Sync,
    Flush,
    /// A portion of a COPY's data.
    CopyData(&'a [u8]),
    /// All data of a COPY were sent.
    CopyDone,
    /// The client aborts a COPY.
    CopyFail {
        reason: &'a [u8],
    },
    Terminate,
}

/// The object of a `Describe` or `Close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DescribeTarget {
    Statement,
    Portal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal to create; empty for the unnamed one.
    pub portal: &'a [u8],
    /// The prepared statement.
    pub statement: &'a [u8],
    /// The parameter values, never [`Param::I64`].
    pub params: Vec<Param<'a>>,
    /// The result's formats: none means text, one applies to all columns, otherwise one per column.
    pub result_formats: Vec<ValueFormat>,
}

/// The payload of a reply to an authentication request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthResponse<'a>(&'a [u8]);

impl<'a> AuthResponse<'a> {
    /// The password or its hash (`PasswordMessage`).
    pub fn password(self) -> Result<&'a [u8], Error> {
        let mut reader = self.reader();
        let password = reader.nul_terminated()?;
        reader.end()?;
        Ok(password)
    }

    /// The client's mechanism, and its initial response, if any (`SASLInitialResponse`).
    pub fn sasl_initial(self) -> Result<(&'a [u8], Option<&'a [u8]>), Error> {
        let mut reader = self.reader();
        let initial = (reader.nul_terminated()?, reader.nullable_bytes()?);
        reader.end()?;
        Ok(initial)
    }

    /// The mechanism's next message (`SASLResponse`).
    pub fn sasl(self) -> &'a [u8] {
        self.0
    }

    fn reader(self) -> Reader<'a> {
        Reader::new(self.0, "authentication reply")
    }
}

/// Hides what may be a password.
impl std::fmt::Debug for AuthResponse<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AuthResponse(..)")
    }
}

/// Takes the client's next message, with a payload of at most `limit_bytes`; `None` if it is incomplete.
/// Before authentication use
/// [`MAX_LOGIN_PAYLOAD_BYTES`](crate::postgres::codec::message::MAX_LOGIN_PAYLOAD_BYTES).
pub fn read_frontend<'a>(
    input: &mut &'a [u8],
    limit_bytes: usize,
) -> Result<Option<FrontendMessage<'a>>, Error> {
    let Some(Message { kind, payload }) = message::take(input, limit_bytes)? else {
        return Ok(None);
    };
    let mut reader = Reader::new(payload, "command");
    let message = match kind {
        kind::PASSWORD => FrontendMessage::Auth(AuthResponse(reader.rest())),
        kind::QUERY => FrontendMessage::Query(reader.nul_terminated()?),
        kind::PARSE => FrontendMessage::Parse {
            name: reader.nul_terminated()?,
            sql: reader.nul_terminated()?,
            param_types: parse_types(&mut reader)?,
        },
        kind::BIND => FrontendMessage::Bind(Bind::parse(&mut reader)?),
        kind::DESCRIBE => FrontendMessage::Describe(target(&mut reader)?, reader.nul_terminated()?),
        kind::EXECUTE => {
            FrontendMessage::Execute { portal: reader.nul_terminated()?, max_rows: reader.u32()? }
        }
        kind::CLOSE => FrontendMessage::Close(target(&mut reader)?, reader.nul_terminated()?),
        kind::SYNC => FrontendMessage::Sync,
        kind::FLUSH => FrontendMessage::Flush,
        kind::COPY_DATA => FrontendMessage::CopyData(reader.rest()),
        kind::COPY_DONE => FrontendMessage::CopyDone,
        kind::COPY_FAIL => FrontendMessage::CopyFail { reason: reader.nul_terminated()? },
        kind::TERMINATE => FrontendMessage::Terminate,
        _ => return Err(reader.error("an unknown kind of message")),
    };
    reader.end()?;
    Ok(Some(message))
}

impl<'a> Bind<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let (portal, statement) = (reader.nul_terminated()?, reader.nul_terminated()?);
        let formats = formats(reader)?;
        let count = usize::from(reader.u16()?);
        if formats.len() > 1 && formats.len() != count {
            return Err(reader.error("the number of formats differs from that of the parameters"));
        }
        let mut params = Vec::new();
        for index in 0..count {
            // One format applies to all parameters, none means text.
            let format = formats.get(index).or(formats.first()).copied().unwrap_or_default();
            params.push(match (reader.nullable_bytes()?, format) {
                (None, _) => Param::Null,
                (Some(bytes), ValueFormat::Text) => Param::Text(bytes),
                (Some(bytes), ValueFormat::Binary) => Param::Binary(bytes),
            });
        }
        Ok(Self { portal, statement, params, result_formats: self::formats(reader)? })
    }
}

fn formats(reader: &mut Reader<'_>) -> Result<Vec<ValueFormat>, Error> {
    let count = reader.u16()?;
    let format = |_| ValueFormat::from_code(reader.u16()?).ok_or_else(|| reader.error("an unknown format"));
    (0..count).map(format).collect()
}

fn target(reader: &mut Reader<'_>) -> Result<DescribeTarget, Error> {
    match reader.u8()? {
        STATEMENT => Ok(DescribeTarget::Statement),
        PORTAL => Ok(DescribeTarget::Portal),
        _ => Err(reader.error("neither statement nor portal")),
    }
}
