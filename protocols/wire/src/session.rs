//! The client interface that all protocols share: a login, the commands of a connection and the readers of
//! their responses.
//!
//! Features of a single protocol are used through that protocol's module.

use std::sync::Arc;

use crate::{mongodb, mysql, postgres, scram::KeyDerivation, step::Step};

pub use crate::{
    fault::Fault,
    response::{Response, ResponseKind, ResponseSummary, Row},
    value::Value,
};

/// Up to this many parameters are converted without allocating. The workloads have far fewer.
const STACK_PARAMS: usize = 16;

/// Credentials and connection options. Made once and shared by all connects.
#[derive(Clone)]
pub enum Login {
    MySql(Arc<mysql::MySqlLogin>),
    Postgres(Arc<postgres::PostgresLogin>),
    MongoDb(Arc<mongodb::MongoDbLogin>),
}

pub enum Connect {
    MySql(mysql::MySqlConnect),
    Postgres(postgres::PostgresConnect),
    MongoDb(mongodb::MongoDbConnect),
}

/// What is known of the server after the login, and how to encode commands for it.
#[derive(Debug, Clone)]
pub enum ServerInfo {
    MySql(mysql::MySqlServerInfo),
    Postgres(postgres::PostgresServerInfo),
    MongoDb(mongodb::MongoDbServerInfo),
}

/// A statement that the server has prepared: what is needed to execute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparedStatement {
    /// The server chooses the identifier.
    MySql { statement_id: u32 },
    /// The client chooses the number; the statement's name is made from it.
    Postgres { number: u32 },
}

/// Why a protocol machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    MySql(#[from] mysql::Error),
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(transparent)]
    MongoDb(#[from] mongodb::Error),
}

impl Error {
    pub fn fault(&self) -> Fault {
        match self {
            Self::MySql(error) => error.fault(),
            Self::Postgres(error) => error.fault(),
            Self::MongoDb(error) => error.fault(),
        }
    }

    /// Whether the server has reached its limit of connections, in total or for this user. Do not retry at
    /// once.
    pub fn is_too_many_connections(&self) -> bool {
        match self {
            Self::MySql(error) => error.is_too_many_connections(),
            Self::Postgres(error) => error.is_too_many_connections(),
            Self::MongoDb(error) => error.is_too_many_connections(),
        }
    }

    /// Whether the server refused the login because of its password, or for a reason that it reports in the
    /// same way.
    pub fn is_wrong_password(&self) -> bool {
        match self {
            Self::MySql(error) => error.is_wrong_password(),
            Self::Postgres(error) => error.is_wrong_password(),
            Self::MongoDb(error) => error.is_wrong_password(),
        }
    }

    /// Whether the server refused with this code and the connection awaits the next command. The code is an
    /// SQLSTATE, a MySQL error number, or the number or name of a MongoDB error.
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
    /// Whether the login will ask for [`Step::StartTls`].
    pub fn uses_tls(&self) -> bool {
        match self {
            Self::MySql(login) => login.encryption != mysql::MySqlTlsMode::Plain,
            Self::Postgres(login) => login.encryption != postgres::PostgresTlsMode::Plain,
            Self::MongoDb(login) => login.tls != mongodb::MongoDbTlsMode::Plain,
        }
    }

    /// The ALPN protocol that TLS must offer, if the server requires one.
    pub fn alpn(&self) -> Option<&'static [u8]> {
        match self {
            Self::Postgres(login) if login.encryption == postgres::PostgresTlsMode::DirectTls => {
                Some(postgres::DIRECT_TLS_ALPN)
            }
            Self::MySql(_) | Self::Postgres(_) | Self::MongoDb(_) => None,
        }
    }

    /// Whether [`Connect::bind_channel`] must or may be called after the TLS handshake.
    pub fn channel_binding(&self) -> postgres::ChannelBinding {
        match self {
            Self::MySql(_) | Self::MongoDb(_) => postgres::ChannelBinding::Disabled,
            Self::Postgres(login) => login.channel_binding,
        }
    }
}

impl Connect {
    /// Work to run on any thread before the login can continue: see
    /// [`postgres::PostgresConnect::take_key_derivation`].
    pub fn take_key_derivation(&mut self) -> Option<KeyDerivation> {
        match self {
            Self::Postgres(connect) => connect.take_key_derivation(),
            Self::MySql(_) | Self::MongoDb(_) => None,
        }
    }

    /// Whether the login waits for derived keys. It takes no input meanwhile.
    pub fn awaits_keys(&self) -> bool {
        match self {
            Self::Postgres(connect) => connect.awaits_keys(),
            Self::MySql(_) | Self::MongoDb(_) => false,
        }
    }

    pub fn new(login: &Login) -> Self {
        match login {
            Login::MySql(login) => Self::MySql(mysql::MySqlConnect::new(Arc::clone(login))),
            Login::Postgres(login) => Self::Postgres(postgres::PostgresConnect::new(Arc::clone(login))),
            Login::MongoDb(login) => Self::MongoDb(mongodb::MongoDbConnect::new(Arc::clone(login))),
        }
    }

    /// Takes input from the front of `input` and appends output to `out`. The first step must not wait for
    /// input: in PostgreSQL and MongoDB the client speaks first. An error is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        match self {
            Self::MySql(connect) => Ok(connect.step(input, out)?),
            Self::Postgres(connect) => Ok(connect.step(input, out)?),
            Self::MongoDb(connect) => Ok(connect.step(input, out)?),
        }
    }

    /// What is known of the server, once the login is done.
    pub fn server(&self) -> Option<ServerInfo> {
        match self {
            Self::MySql(connect) => connect.server().cloned().map(ServerInfo::MySql),
            Self::Postgres(connect) => connect.server().cloned().map(ServerInfo::Postgres),
            Self::MongoDb(connect) => connect.server().cloned().map(ServerInfo::MongoDb),
        }
    }

    /// See [`postgres::PostgresConnect::bind_channel`]; MySQL and MongoDB do not support channel binding.
    pub fn bind_channel(&mut self, certificate_hash: &[u8]) {
        match self {
            Self::MySql(_) | Self::MongoDb(_) => {}
            Self::Postgres(connect) => connect.bind_channel(certificate_hash),
        }
    }
}

impl ServerInfo {
    pub fn version(&self) -> &str {
        match self {
            Self::MySql(server) => &server.version,
            Self::Postgres(server) => &server.version,
            Self::MongoDb(server) => &server.version,
        }
    }

    /// A short, stable name of the authentication method.
    pub fn auth_label(&self) -> String {
        match self {
            Self::MySql(server) => server.auth.label().to_owned(),
            Self::Postgres(server) => server.auth.label(),
            Self::MongoDb(server) => server.auth.label(),
        }
    }

    /// Encodes a statement as text. Read the response with [`ResponseKind::Text`] or a rows reader. For
    /// MongoDB the text is a JSON command, see [`mongodb::CommandTemplate`], for the login's database.
    pub fn encode_query(&self, out: &mut Vec<u8>, sql: &str) -> Result<(), Error> {
        match self {
            Self::MySql(_) => Ok(mysql::command::encode_query(out, sql)?),
            Self::Postgres(_) => Ok(postgres::command::encode_query(out, sql)?),
            Self::MongoDb(server) => {
                let template = mongodb::CommandTemplate::parse(sql).map_err(mongodb::Error::from)?;
                Ok(server.encode(out, &template, &[])?)
            }
        }
    }

    /// Encodes a request to prepare a statement. `number` must be new on this connection; pass the same
    /// number to [`Self::prepare_reader`]. MongoDB has no prepared statements and returns an error; use
    /// [`mongodb::CommandTemplate`].
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

    /// Encodes the execution of a prepared statement. `params` must have as many values as the statement has
    /// parameters. Read the response with [`ResponseKind::Binary`]. Allocates only for `out`, unless there
    /// are many parameters.
    #[inline]
    pub fn encode_execute(
        &self,
        out: &mut Vec<u8>,
        prepared: &PreparedStatement,
        params: &[Value<'_>],
    ) -> Result<(), Error> {
        match (self, *prepared) {
            (Self::MongoDb(_), _) => Err(mongodb::Error::NoPreparedStatements.into()),
            (_, PreparedStatement::MySql { statement_id }) => Ok(with_mysql_params(params, |params| {
                mysql::command::encode_execute(out, statement_id, params)
            })?),
            (_, PreparedStatement::Postgres { number }) => {
                let params = params.iter().map(|value| postgres::Param::from(*value));
                Ok(postgres::command::encode_run_numbered(out, number, params)?)
            }
        }
    }

    /// Encodes the end of the session; the server then closes the connection. MongoDB has no such message:
    /// the client closes.
    pub fn encode_goodbye(&self, out: &mut Vec<u8>) {
        match self {
            Self::MySql(_) => mysql::command::encode_quit(out),
            Self::Postgres(_) => postgres::command::encode_terminate(out),
            Self::MongoDb(_) => {}
        }
    }

    /// A reader that counts rows and discards them.
    pub fn response_reader(&self, kind: ResponseKind) -> ResponseReader {
        match self {
            Self::MySql(server) => {
                ResponseReader::MySql(mysql::MySqlResponseReader::new(kind, server.capabilities))
            }
            Self::Postgres(_) => ResponseReader::Postgres(postgres::PostgresResponseReader::new()),
            Self::MongoDb(server) => {
                let reader = mongodb::MongoDbResponseReader::new(mongodb::COMMAND_REQUEST_ID);
                ResponseReader::MongoDb(reader.compressed_by(server.compressor))
            }
        }
    }

    /// A reader that collects rows up to a total of `limit_bytes`.
    pub fn rows_reader(&self, limit_bytes: usize) -> RowsReader {
        match self {
            Self::MySql(server) => {
                RowsReader::MySql(mysql::MySqlRowsReader::new(server.capabilities, limit_bytes))
            }
            Self::Postgres(_) => RowsReader::Postgres(postgres::PostgresRowsReader::new(limit_bytes)),
            Self::MongoDb(server) => {
                let reader = mongodb::DocumentsReader::new(mongodb::COMMAND_REQUEST_ID, limit_bytes);
                RowsReader::MongoDb(reader.compressed_by(server.compressor))
            }
        }
    }

    /// A reader for the response to [`Self::encode_prepare`] with this number.
    pub fn prepare_reader(&self, number: u32) -> PrepareReader {
        match self {
            Self::MySql(server) => PrepareReader::MySql(mysql::MySqlPrepareReader::new(server.capabilities)),
            Self::Postgres(_) => {
                PrepareReader::Postgres { reader: postgres::PostgresPrepareReader::new(), number }
            }
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

/// Converts parameters without allocating, unless there are many.
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

/// Reads one response and counts. After a server error the connection awaits the next command, unless the
/// session has ended; see the reader of the protocol.
#[derive(Debug, Clone)]
pub enum ResponseReader {
    MySql(mysql::MySqlResponseReader),
    Postgres(postgres::PostgresResponseReader),
    MongoDb(mongodb::MongoDbResponseReader),
}

impl ResponseReader {
    /// Prepares for the next response.
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
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<ResponseSummary>, Error> {
        match self {
            Self::MySql(reader) => Ok(reader.step(input)?),
            Self::Postgres(reader) => Ok(map(reader.step(input)?, ResponseSummary::from)),
            Self::MongoDb(reader) => Ok(reader.step(input)?),
        }
    }
}

/// Collects the rows of one response. After an error the same holds as for [`ResponseReader`].
#[derive(Debug, Clone)]
pub enum RowsReader {
    MySql(mysql::MySqlRowsReader),
    Postgres(postgres::PostgresRowsReader),
    /// Each document becomes a row with one column, its JSON text.
    MongoDb(mongodb::DocumentsReader),
}

impl RowsReader {
    /// Prepares for the next response.
    pub fn reset(&mut self) {
        match self {
            Self::MySql(reader) => reader.reset(),
            Self::Postgres(reader) => reader.reset(),
            Self::MongoDb(reader) => reader.reset(),
        }
    }

    /// Takes what it can from the front of `input`. The rows are returned once.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Vec<Row>>, Error> {
        match self {
            Self::MySql(reader) => Ok(reader.step(input)?),
            Self::Postgres(reader) => Ok(reader.step(input)?),
            Self::MongoDb(reader) => match reader.step(input)? {
                Response::NeedInput => Ok(Response::NeedInput),
                // A caller that collects rows wants all of them.
                Response::Done(mongodb::Documents { cursor: Some(_), .. }) => {
                    Err(mongodb::Error::ResultContinues.into())
                }
                Response::Done(documents) => Ok(Response::Done(documents.to_rows()?)),
            },
        }
    }
}

/// Reads the response to one [`ServerInfo::encode_prepare`]. After an error the same holds as for
/// [`ResponseReader`].
#[derive(Debug, Clone)]
pub enum PrepareReader {
    MySql(mysql::MySqlPrepareReader),
    Postgres {
        reader: postgres::PostgresPrepareReader,
        number: u32,
    },
    /// MongoDB has no prepared statements.
    MongoDb,
}

impl PrepareReader {
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<PreparedStatement>, Error> {
        match self {
            Self::MySql(reader) => {
                let prepared = |prepared: mysql::PrepareOk| PreparedStatement::MySql {
                    statement_id: prepared.statement_id,
                };
                Ok(map(reader.step(input)?, prepared))
            }
            Self::Postgres { reader, number } => {
                Ok(map(reader.step(input)?, |_| PreparedStatement::Postgres { number: *number }))
            }
            Self::MongoDb => Err(mongodb::Error::NoPreparedStatements.into()),
        }
    }
}

impl From<postgres::ExchangeSummary> for ResponseSummary {
    #[inline]
    fn from(summary: postgres::ExchangeSummary) -> Self {
        let postgres::ExchangeSummary { rows, affected_rows, row_bytes, .. } = summary;
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
    fn a_refusal_is_identified_by_its_code() {
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
        // The session has ended; a retry on it is impossible.
        assert!(!conflict(postgres::Severity::Fatal).is_refusal("40001"));
    }

    #[test]
    fn connection_limits_are_recognized() {
        let mysql = |code, message: &str| -> Error {
            let (sql_state, message) = ("42000".to_owned(), message.to_owned());
            mysql::Error::Server { code, sql_state, message }.into()
        };
        let resource_limit =
            |name| format!("User 'toll' has exceeded the '{name}' resource (current value: 3)");
        for (code, message) in [
            (1040, "Too many connections"),
            (1203, "User toll already has more than 'max_user_connections' active connections"),
            (1226, &resource_limit("max_user_connections")),
            (1226, &resource_limit("max_connections_per_hour")),
        ] {
            assert!(mysql(code, message).is_too_many_connections(), "{message}");
        }
        let statements = mysql(1226, &resource_limit("max_queries_per_hour"));
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
