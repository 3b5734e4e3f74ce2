//! One face for all protocols: a login, a connection's commands and the readers of their answers, for those who do not
//! mind which server they talk to.
//!
//! What only one protocol has is used through its own module.

use std::sync::Arc;

use crate::scram::KeyDerivation;
use crate::{Step, mongodb, mysql, postgres};

pub use crate::mysql::{Fault, Response, ResponseKind, Row};

/// As many parameters as are converted without allocating; the workloads have far fewer.
const STACK_PARAMS: usize = 16;

/// Who logs in and how; made once and shared by all connects.
#[derive(Clone)]
pub enum Login {
    /// To MySQL or MariaDB.
    MySql(Arc<mysql::Login>),
    /// To PostgreSQL.
    Postgres(Arc<postgres::Login>),
    /// To MongoDB, or what speaks its protocol.
    MongoDb(Arc<mongodb::Login>),
}

/// One login, from the client's side.
pub enum Connect {
    /// To MySQL or MariaDB.
    MySql(mysql::Connect),
    /// To PostgreSQL.
    Postgres(postgres::Connect),
    /// To MongoDB.
    MongoDb(mongodb::Connect),
}

/// What is known of the server once the login is done; it also knows how to talk to it.
#[derive(Debug, Clone)]
pub enum ServerInfo {
    /// MySQL or MariaDB.
    MySql(mysql::ServerInfo),
    /// PostgreSQL.
    Postgres(postgres::ServerInfo),
    /// MongoDB.
    MongoDb(mongodb::ServerInfo),
}

/// A parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A signed integer; PostgreSQL is sent its decimal digits.
    I64(i64),
    /// Text, or the text of a value of another type.
    Text(&'a [u8]),
}

/// A statement that the server has prepared: what running it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// The server's number for it.
    MySql {
        /// That number.
        statement_id: u32,
    },
    /// The client's number for it, which its name is made of.
    Postgres {
        /// That number.
        number: u32,
    },
}

/// The counts of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Rows received.
    pub rows: u64,
    /// Rows changed.
    pub affected_rows: u64,
    /// Payload bytes of the rows received.
    pub row_bytes: u64,
}

/// Why a machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// On a connection to MySQL or MariaDB.
    #[error(transparent)]
    MySql(#[from] mysql::Error),
    /// On a connection to PostgreSQL.
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    /// On a connection to MongoDB.
    #[error(transparent)]
    MongoDb(#[from] mongodb::Error),
}

impl Error {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::MySql(error) => error.fault(),
            Self::Postgres(error) => error.fault(),
            Self::MongoDb(error) => error.fault(),
        }
    }

    /// Whether the server has no room for one more connection, of anybody's or of this user's. One that says so should
    /// not be asked again at once.
    pub fn is_too_many_connections(&self) -> bool {
        match self {
            Self::MySql(error) => error.is_too_many_connections(),
            Self::Postgres(error) => error.is_too_many_connections(),
            Self::MongoDb(error) => error.is_too_many_connections(),
        }
    }

    /// Whether the server refused the login for its password, or for what it does not tell from that.
    pub fn is_wrong_password(&self) -> bool {
        match self {
            Self::MySql(error) => error.is_wrong_password(),
            Self::Postgres(error) => error.is_wrong_password(),
            Self::MongoDb(error) => error.is_wrong_password(),
        }
    }

    /// Whether the server refused with this code, an SQLSTATE, MySQL's error number, or MongoDB's number or name, and
    /// the connection awaits the next command.
    pub fn is_refusal(&self, refusal: &str) -> bool {
        match self {
            Self::MySql(mysql::Error::Server { code, sql_state, .. }) => {
                sql_state == refusal || refusal.parse() == Ok(*code)
            }
            Self::Postgres(postgres::Error::Server {
                severity: postgres::Severity::Error, sqlstate, ..
            }) => sqlstate == refusal,
            Self::MongoDb(mongodb::Error::Server { code, code_name, .. }) => {
                refusal.parse() == Ok(*code) || (!refusal.is_empty() && code_name == refusal)
            }
            Self::MySql(_) | Self::Postgres(_) | Self::MongoDb(_) => false,
        }
    }
}

impl Login {
    /// Whether there will be a [`Step::StartTls`].
    pub fn uses_tls(&self) -> bool {
        match self {
            Self::MySql(login) => login.encryption != mysql::Encryption::Plain,
            Self::Postgres(login) => login.encryption != postgres::Encryption::Plain,
            Self::MongoDb(login) => login.tls != mongodb::Encryption::Plain,
        }
    }

    /// The protocol that TLS must name in ALPN, where servers insist on it.
    pub fn alpn(&self) -> Option<&'static [u8]> {
        match self {
            Self::Postgres(login) if login.encryption == postgres::Encryption::DirectTls => {
                Some(postgres::DIRECT_TLS_ALPN)
            }
            Self::MySql(_) | Self::Postgres(_) | Self::MongoDb(_) => None,
        }
    }

    /// Whether [`Connect::bind_channel`] must be called after the TLS handshake, or is to be where that can be done.
    pub fn channel_binding(&self) -> postgres::ChannelBinding {
        match self {
            Self::MySql(_) | Self::MongoDb(_) => postgres::ChannelBinding::Disabled,
            Self::Postgres(login) => login.channel_binding,
        }
    }
}

impl Connect {
    /// What has to be run, on any thread, before the login can go on: see [`postgres::Connect::take_key_derivation`].
    pub fn take_key_derivation(&mut self) -> Option<KeyDerivation> {
        match self {
            Self::Postgres(connect) => connect.take_key_derivation(),
            Self::MySql(_) | Self::MongoDb(_) => None,
        }
    }

    /// Whether the login waits for keys, and takes no input.
    pub fn awaits_keys(&self) -> bool {
        match self {
            Self::Postgres(connect) => connect.awaits_keys(),
            Self::MySql(_) | Self::MongoDb(_) => false,
        }
    }

    /// A login that has seen no byte yet.
    pub fn new(login: &Login) -> Self {
        match login {
            Login::MySql(login) => Self::MySql(mysql::Connect::new(Arc::clone(login))),
            Login::Postgres(login) => Self::Postgres(postgres::Connect::new(Arc::clone(login))),
            Login::MongoDb(login) => Self::MongoDb(mongodb::Connect::new(Arc::clone(login))),
        }
    }

    /// Takes from the front of `input` and appends to `out`. The first step must not wait for input: in PostgreSQL and
    /// MongoDB the client speaks first. An error is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        match self {
            Self::MySql(connect) => Ok(connect.step(input, out)?),
            Self::Postgres(connect) => Ok(connect.step(input, out)?),
            Self::MongoDb(connect) => Ok(connect.step(input, out)?),
        }
    }

    /// The server, once the login is done.
    pub fn server(&self) -> Option<ServerInfo> {
        match self {
            Self::MySql(connect) => connect.server().cloned().map(ServerInfo::MySql),
            Self::Postgres(connect) => connect.server().cloned().map(ServerInfo::Postgres),
            Self::MongoDb(connect) => connect.server().cloned().map(ServerInfo::MongoDb),
        }
    }

    /// See [`postgres::Connect::bind_channel`]; MySQL and MongoDB bind nothing.
    pub fn bind_channel(&mut self, certificate_hash: &[u8]) {
        match self {
            Self::MySql(_) | Self::MongoDb(_) => {}
            Self::Postgres(connect) => connect.bind_channel(certificate_hash),
        }
    }
}

impl ServerInfo {
    /// The server's version.
    pub fn version(&self) -> &str {
        match self {
            Self::MySql(server) => &server.version,
            Self::Postgres(server) => &server.version,
            Self::MongoDb(server) => &server.version,
        }
    }

    /// A short, stable name of how the client has authenticated.
    pub fn auth_label(&self) -> String {
        match self {
            Self::MySql(server) => server.auth.label().to_owned(),
            Self::Postgres(server) => server.auth.label(),
            Self::MongoDb(server) => server.auth.label(),
        }
    }

    /// A statement as text, whose answer is for a reader of [`ResponseKind::Text`] or of rows. To MongoDB it is a
    /// command in JSON, as [`mongodb::Template`] reads it, for the login's database.
    pub fn encode_query(&self, out: &mut Vec<u8>, sql: &str) -> Result<(), Error> {
        match self {
            Self::MySql(_) => Ok(mysql::command::encode_query(out, sql)?),
            Self::Postgres(_) => Ok(postgres::command::encode_query(out, sql)?),
            Self::MongoDb(server) => {
                let template = mongodb::Template::parse(sql).map_err(mongodb::Error::from)?;
                Ok(server.encode(out, &template, &[])?)
            }
        }
    }

    /// A statement to be prepared. Its number must be new on this connection and is the one that
    /// [`Self::prepare_reader`] is made with. MongoDB prepares nothing, which is an error: its commands are
    /// [`mongodb::Template`]s.
    pub fn encode_prepare(&self, out: &mut Vec<u8>, number: u32, sql: &str) -> Result<(), Error> {
        match self {
            Self::MySql(_) => Ok(mysql::command::encode_prepare(out, sql)?),
            Self::Postgres(_) => {
                postgres::command::encode_parse_numbered(out, number, sql)?;
                postgres::command::encode_sync(out);
                Ok(())
            }
            Self::MongoDb(_) => Err(mongodb::Error::NoPreparedStatements.into()),
        }
    }

    /// Runs a prepared statement with as many parameters as it has. Its answer is for a reader of
    /// [`ResponseKind::Binary`]. Allocates nothing but `out`, unless there are many parameters.
    #[inline]
    pub fn encode_execute(
        &self,
        out: &mut Vec<u8>,
        prepared: &Prepared,
        params: &[Value<'_>],
    ) -> Result<(), Error> {
        match (self, *prepared) {
            (Self::MongoDb(_), _) => Err(mongodb::Error::NoPreparedStatements.into()),
            (_, Prepared::MySql { statement_id }) => Ok(with_mysql_params(params, |params| {
                mysql::command::encode_execute(out, statement_id, params)
            })?),
            (_, Prepared::Postgres { number }) => {
                let params = params.iter().map(|value| postgres::Param::from(*value));
                Ok(postgres::command::encode_run_numbered(out, number, params)?)
            }
        }
    }

    /// Goodbye; the server closes the connection. MongoDB has no word for it: the client closes.
    pub fn encode_goodbye(&self, out: &mut Vec<u8>) {
        match self {
            Self::MySql(_) => mysql::command::encode_quit(out),
            Self::Postgres(_) => postgres::command::encode_terminate(out),
            Self::MongoDb(_) => {}
        }
    }

    /// A reader that counts.
    pub fn response_reader(&self, kind: ResponseKind) -> ResponseReader {
        match self {
            Self::MySql(server) => {
                ResponseReader::MySql(mysql::ResponseReader::new(kind, server.capabilities))
            }
            Self::Postgres(_) => ResponseReader::Postgres(postgres::ResponseReader::new()),
            Self::MongoDb(server) => {
                let reader = mongodb::ResponseReader::new(mongodb::COMMAND_REQUEST_ID);
                ResponseReader::MongoDb(reader.compressed_by(server.compressor))
            }
        }
    }

    /// A reader that collects rows, of at most so many bytes.
    pub fn rows_reader(&self, limit_bytes: usize) -> RowsReader {
        match self {
            Self::MySql(server) => {
                RowsReader::MySql(mysql::RowsReader::new(server.capabilities, limit_bytes))
            }
            Self::Postgres(_) => RowsReader::Postgres(postgres::RowsReader::new(limit_bytes)),
            Self::MongoDb(server) => {
                let reader = mongodb::DocumentsReader::new(mongodb::COMMAND_REQUEST_ID, limit_bytes);
                RowsReader::MongoDb(reader.compressed_by(server.compressor))
            }
        }
    }

    /// A reader of the answer to [`Self::encode_prepare`] with this number.
    pub fn prepare_reader(&self, number: u32) -> PrepareReader {
        match self {
            Self::MySql(server) => PrepareReader::MySql(mysql::PrepareReader::new(server.capabilities)),
            Self::Postgres(_) => PrepareReader::Postgres { reader: postgres::PrepareReader::new(), number },
            Self::MongoDb(_) => PrepareReader::MongoDb,
        }
    }
}

impl<'a> From<Value<'a>> for postgres::Param<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::I64(number) => Self::I64(number),
            Value::Text(text) => Self::Text(text),
        }
    }
}

impl<'a> From<Value<'a>> for mysql::Param<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::I64(number) => Self::I64(number),
            Value::Text(text) => Self::Bytes(text),
        }
    }
}

/// Converts parameters, few of them without allocating.
#[inline]
fn with_mysql_params<T>(params: &[Value<'_>], run: impl FnOnce(&[mysql::Param<'_>]) -> T) -> T {
    if params.len() > STACK_PARAMS {
        return run(&params.iter().map(|value| mysql::Param::from(*value)).collect::<Vec<_>>());
    }
    let mut converted = [mysql::Param::Null; STACK_PARAMS];
    for (converted, value) in converted.iter_mut().zip(params) {
        *converted = mysql::Param::from(*value);
    }
    run(&converted[..params.len()])
}

/// Reads one answer and counts. What holds for the protocol's own reader after its end holds here too: after an error
/// of the server's the connection awaits the next command, unless the session has ended.
#[derive(Debug, Clone)]
pub enum ResponseReader {
    /// From MySQL or MariaDB.
    MySql(mysql::ResponseReader),
    /// From PostgreSQL.
    Postgres(postgres::ResponseReader),
    /// From MongoDB.
    MongoDb(mongodb::ResponseReader),
}

impl ResponseReader {
    /// Makes it ready for the next command's answer.
    #[inline]
    pub fn reset(&mut self) {
        match self {
            Self::MySql(reader) => reader.reset(),
            Self::Postgres(reader) => reader.reset(),
            Self::MongoDb(reader) => reader.reset(),
        }
    }

    /// Takes what it can from the front of `input`.
    #[inline]
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Summary>, Error> {
        match self {
            Self::MySql(reader) => Ok(map(reader.step(input)?, Summary::from)),
            Self::Postgres(reader) => Ok(map(reader.step(input)?, Summary::from)),
            Self::MongoDb(reader) => Ok(map(reader.step(input)?, Summary::from)),
        }
    }
}

/// Collects the rows of one answer. What holds for [`ResponseReader`] after its end holds here too.
#[derive(Debug, Clone)]
pub enum RowsReader {
    /// From MySQL or MariaDB.
    MySql(mysql::RowsReader),
    /// From PostgreSQL.
    Postgres(postgres::RowsReader),
    /// From MongoDB: of each document a row with one column, its JSON.
    MongoDb(mongodb::DocumentsReader),
}

impl RowsReader {
    /// Makes it ready for the next command's answer.
    pub fn reset(&mut self) {
        match self {
            Self::MySql(reader) => reader.reset(),
            Self::Postgres(reader) => reader.reset(),
            Self::MongoDb(reader) => reader.reset(),
        }
    }

    /// Takes what it can from the front of `input`; the rows are handed over once.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Vec<Row>>, Error> {
        match self {
            Self::MySql(reader) => Ok(reader.step(input)?),
            Self::Postgres(reader) => Ok(reader.step(input)?),
            Self::MongoDb(reader) => match reader.step(input)? {
                Response::NeedInput => Ok(Response::NeedInput),
                // Whoever reads rows means to have them all.
                Response::Done(mongodb::Documents { cursor: Some(_), .. }) => {
                    Err(mongodb::Error::ResultContinues.into())
                }
                Response::Done(documents) => Ok(Response::Done(documents.to_rows()?)),
            },
        }
    }
}

/// Reads the answer to one [`ServerInfo::encode_prepare`]. What holds for [`ResponseReader`] after its end holds here
/// too.
#[derive(Debug, Clone)]
pub enum PrepareReader {
    /// From MySQL or MariaDB.
    MySql(mysql::PrepareReader),
    /// From PostgreSQL.
    Postgres {
        /// The protocol's own reader.
        reader: postgres::PrepareReader,
        /// The statement's number.
        number: u32,
    },
    /// From MongoDB, which prepares nothing.
    MongoDb,
}

impl PrepareReader {
    /// Takes whole messages from the front of `input`.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Prepared>, Error> {
        match self {
            Self::MySql(reader) => {
                let prepared =
                    |prepared: mysql::Prepared| Prepared::MySql { statement_id: prepared.statement_id };
                Ok(map(reader.step(input)?, prepared))
            }
            Self::Postgres { reader, number } => {
                Ok(map(reader.step(input)?, |_| Prepared::Postgres { number: *number }))
            }
            Self::MongoDb => Err(mongodb::Error::NoPreparedStatements.into()),
        }
    }
}

impl From<mysql::Summary> for Summary {
    #[inline]
    fn from(summary: mysql::Summary) -> Self {
        let mysql::Summary { rows, affected_rows, row_bytes } = summary;
        Self { rows, affected_rows, row_bytes }
    }
}

impl From<postgres::Summary> for Summary {
    #[inline]
    fn from(summary: postgres::Summary) -> Self {
        let postgres::Summary { rows, affected_rows, row_bytes, .. } = summary;
        Self { rows, affected_rows, row_bytes }
    }
}

impl From<mongodb::Summary> for Summary {
    #[inline]
    fn from(summary: mongodb::Summary) -> Self {
        let mongodb::Summary { rows, affected_rows, row_bytes } = summary;
        Self { rows, affected_rows, row_bytes }
    }
}

#[inline]
fn map<T, U>(response: Response<T>, convert: impl FnOnce(T) -> U) -> Response<U> {
    match response {
        Response::NeedInput => Response::NeedInput,
        Response::Done(done) => Response::Done(convert(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_by_their_codes() {
        let deadlock: Error = mysql::Error::Server {
            code: 1213,
            sql_state: "40001".to_owned(),
            message: "Deadlock found".to_owned(),
        }
        .into();
        assert!(deadlock.is_refusal("1213") && deadlock.is_refusal("40001"));
        assert!(!deadlock.is_refusal("1205") && !deadlock.is_refusal(""));
        let conflict = |severity| -> Error {
            let (sqlstate, message) = ("40001".to_owned(), "could not serialize access".to_owned());
            postgres::Error::Server { severity, sqlstate, message }.into()
        };
        assert!(conflict(postgres::Severity::Error).is_refusal("40001"));
        assert!(!conflict(postgres::Severity::Error).is_refusal("40P01"));
        // The session has ended: nothing can be tried again on it.
        assert!(!conflict(postgres::Severity::Fatal).is_refusal("40001"));
    }

    #[test]
    fn servers_without_room_are_known() {
        let mysql = |code, message: &str| -> Error {
            let (sql_state, message) = ("42000".to_owned(), message.to_owned());
            mysql::Error::Server { code, sql_state, message }.into()
        };
        let of_resource = |name| format!("User 'toll' has exceeded the '{name}' resource (current value: 3)");
        for (code, message) in [
            (1040, "Too many connections"),
            (1203, "User toll already has more than 'max_user_connections' active connections"),
            (1226, &of_resource("max_user_connections")),
            (1226, &of_resource("max_connections_per_hour")),
        ] {
            assert!(mysql(code, message).is_too_many_connections(), "{message}");
        }
        let statements = mysql(1226, &of_resource("max_queries_per_hour"));
        assert!(!statements.is_too_many_connections());
        assert!(!mysql(1045, "Access denied").is_too_many_connections());
        assert!(!Error::from(mysql::Error::TlsNotOffered).is_too_many_connections());
        let postgres = |sqlstate: &str| -> Error {
            let (severity, message) =
                (postgres::Severity::Fatal, "sorry, too many clients already".to_owned());
            postgres::Error::Server { severity, sqlstate: sqlstate.to_owned(), message }.into()
        };
        assert!(postgres("53300").is_too_many_connections());
        assert!(!postgres("53200").is_too_many_connections());
    }
}
