//! What a client sends after its first message.

use crate::postgres::{
    Error, Format, Param,
    codec::Reader,
    column::parse_types,
    command::{PORTAL, STATEMENT},
    kind,
    message::{self, Message},
};

/// One of a client's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frontend<'a> {
    /// An answer to a request to authenticate; which one, the request says.
    Auth(AuthResponse<'a>),
    /// Statements as text.
    Query(&'a [u8]),
    /// A statement to be prepared.
    Parse {
        /// Its name; empty for none.
        name: &'a [u8],
        /// The statement.
        sql: &'a [u8],
        /// The types of its parameters, as far as the client says; 0 where it does not.
        param_types: Vec<u32>,
    },
    /// A portal to be made.
    Bind(Bind<'a>),
    /// A question what something takes or returns.
    Describe(Target, &'a [u8]),
    /// A portal to be run.
    Execute {
        /// Its name; empty for none.
        portal: &'a [u8],
        /// After how many rows to pause; 0 for never.
        max_rows: u32,
    },
    /// Something to be forgotten.
    Close(Target, &'a [u8]),
    /// The end of what belongs together.
    Sync,
    /// The client waits for what there is.
    Flush,
    /// A portion of a COPY's data.
    CopyData(&'a [u8]),
    /// All of a COPY's data were sent.
    CopyDone,
    /// A COPY's data end early.
    CopyFail {
        /// Why.
        reason: &'a [u8],
    },
    /// Goodbye.
    Terminate,
}

/// What `Describe` and `Close` are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// `Bind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal to be made; empty for the one without a name.
    pub portal: &'a [u8],
    /// The statement that it is made of.
    pub statement: &'a [u8],
    /// The parameters' values, never [`Param::I64`].
    pub params: Vec<Param<'a>>,
    /// The result's formats: none for text, one for all columns, or one for each.
    pub result_formats: Vec<Format>,
}

/// The payload of a message that answers a request to authenticate.
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

    /// The mechanism that the client has chosen, and its first message, if it has one (`SASLInitialResponse`).
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
        Reader::new(self.0, "answer to a request to authenticate")
    }
}

/// Does not show what may be a password.
impl std::fmt::Debug for AuthResponse<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AuthResponse(..)")
    }
}

/// Takes the client's next message, of at most `limit_bytes` of payload; none if it is not all there. Before the client
/// has authenticated the limit should be [`MAX_LOGIN_PAYLOAD_BYTES`](super::super::message::MAX_LOGIN_PAYLOAD_BYTES).
pub fn read_frontend<'a>(input: &mut &'a [u8], limit_bytes: usize) -> Result<Option<Frontend<'a>>, Error> {
    let Some(Message { kind, payload }) = message::take(input, limit_bytes)? else {
        return Ok(None);
    };
    let mut reader = Reader::new(payload, "command");
    let message = match kind {
        kind::PASSWORD => Frontend::Auth(AuthResponse(reader.rest())),
        kind::QUERY => Frontend::Query(reader.nul_terminated()?),
        kind::PARSE => Frontend::Parse {
            name: reader.nul_terminated()?,
            sql: reader.nul_terminated()?,
            param_types: parse_types(&mut reader)?,
        },
        kind::BIND => Frontend::Bind(Bind::parse(&mut reader)?),
        kind::DESCRIBE => Frontend::Describe(target(&mut reader)?, reader.nul_terminated()?),
        kind::EXECUTE => Frontend::Execute { portal: reader.nul_terminated()?, max_rows: reader.u32()? },
        kind::CLOSE => Frontend::Close(target(&mut reader)?, reader.nul_terminated()?),
        kind::SYNC => Frontend::Sync,
        kind::FLUSH => Frontend::Flush,
        kind::COPY_DATA => Frontend::CopyData(reader.rest()),
        kind::COPY_DONE => Frontend::CopyDone,
        kind::COPY_FAIL => Frontend::CopyFail { reason: reader.nul_terminated()? },
        kind::TERMINATE => Frontend::Terminate,
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
            return Err(reader.error("more or fewer formats than parameters"));
        }
        let mut params = Vec::new();
        for index in 0..count {
            // One format stands for all, none for text.
            let format = formats.get(index).or(formats.first()).copied().unwrap_or_default();
            params.push(match (reader.nullable_bytes()?, format) {
                (None, _) => Param::Null,
                (Some(bytes), Format::Text) => Param::Text(bytes),
                (Some(bytes), Format::Binary) => Param::Binary(bytes),
            });
        }
        Ok(Self { portal, statement, params, result_formats: self::formats(reader)? })
    }
}

fn formats(reader: &mut Reader<'_>) -> Result<Vec<Format>, Error> {
    let count = reader.u16()?;
    let format = |_| Format::from_code(reader.u16()?).ok_or_else(|| reader.error("an unknown format"));
    (0..count).map(format).collect()
}

fn target(reader: &mut Reader<'_>) -> Result<Target, Error> {
    match reader.u8()? {
        STATEMENT => Ok(Target::Statement),
        PORTAL => Ok(Target::Portal),
        _ => Err(reader.error("neither statement nor portal")),
    }
}
