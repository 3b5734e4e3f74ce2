//! Commands that a proxy sends to restore a client's session on another server connection: settings, default
//! database and prepared statements.

use std::collections::VecDeque;

use crate::{
    mysql::{
        client::{prepare::MySqlPrepareReader, rows::MySqlRowsReader},
        codec::{
            capabilities::Capabilities,
            command::{
                StatementsPerQuery, encode_init_db, encode_multi_statements, encode_ping, encode_query_on,
            },
            err::{ErrPacket, refuse_err},
            ok::OkPacket,
            packet::{self, PacketReader},
            prepare_ok::PrepareOk,
        },
        error::Error,
        relay::text_context::ContextSwitch,
    },
    response::{Response, Row},
};

const COM_STMT_PREPARE: u8 = 0x16;
/// Far more than the settings take.
const MAX_VALUES_BYTES: usize = 1 << 16;

/// The server product, which decides the names of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerProduct {
    MySql,
    /// MariaDB names the transaction settings differently.
    MariaDb,
}

impl ServerProduct {
    /// The product that reports this version.
    pub fn of(version: &str) -> Self {
        if version.contains("MariaDB") { Self::MariaDb } else { Self::MySql }
    }

    /// The name of a setting in this product.
    pub fn name(self, setting: &str) -> &str {
        match (self, setting) {
            (Self::MariaDb, "transaction_isolation") => "tx_isolation",
            (Self::MariaDb, "transaction_read_only") => "tx_read_only",
            _ => setting,
        }
    }
}

/// Sends the commands and reads their responses.
#[derive(Debug)]
pub struct SessionRestore {
    capabilities: Capabilities,
    replies: VecDeque<RestoreReply>,
    packets: PacketReader,
    adopted: RestoredSession,
    refusal: Option<Error>,
}

#[derive(Debug)]
enum RestoreReply {
    /// An OK or an EOF.
    Ok,
    /// The same, for a default database, which may have been dropped.
    Database,
    /// An OK whose status flags are kept.
    Status,
    Values(MySqlRowsReader),
    /// An OK without which a statement must not be prepared.
    BeforePrepare,
    Prepared(MySqlPrepareReader),
}

/// What the server answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoredSession {
    /// The last OK, if it was asked for.
    pub status: Option<OkPacket>,
    /// The values asked for; `None` if the server refused.
    pub values: Option<Vec<Option<Vec<u8>>>>,
    /// The prepared statement, or the server's ERR.
    pub prepared: Option<Result<PrepareOk, Vec<u8>>>,
    /// The server's ERR if it refused the client's default database.
    pub no_database: Option<Vec<u8>>,
}

impl SessionRestore {
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            replies: VecDeque::new(),
            packets: PacketReader::for_response(),
            adopted: RestoredSession::default(),
            refusal: None,
        }
    }

    /// Whether no response is pending.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Appends a change of the default database. A refusal is [`RestoredSession::no_database`].
    pub fn database(&mut self, name: &str, out: &mut Vec<u8>) -> Result<(), Error> {
        encode_init_db(out, name)?;
        self.replies.push_back(RestoreReply::Database);
        Ok(())
    }

    /// Appends a statement that returns no rows.
    pub fn statement(&mut self, sql: &str, out: &mut Vec<u8>) -> Result<(), Error> {
        encode_query_on(self.capabilities, out, sql)?;
        self.replies.push_back(RestoreReply::Ok);
        Ok(())
    }

    /// Appends the client's `COM_SET_OPTION`.
    pub fn option(&mut self, option: u16, out: &mut Vec<u8>) {
        encode_multi_statements(
            out,
            if option == 0 { StatementsPerQuery::Several } else { StatementsPerQuery::One },
        );
        self.replies.push_back(RestoreReply::Ok);
    }

    /// Appends a request for the session's status flags.
    pub fn status(&mut self, out: &mut Vec<u8>) {
        encode_ping(out);
        self.replies.push_back(RestoreReply::Status);
    }

    /// Appends a query for the values of these expressions.
    pub fn values(&mut self, expressions: &[String], out: &mut Vec<u8>) -> Result<(), Error> {
        encode_query_on(self.capabilities, out, &format!("SELECT {}", expressions.join(",")))?;
        self.replies
            .push_back(RestoreReply::Values(MySqlRowsReader::new(self.capabilities, MAX_VALUES_BYTES)));
        Ok(())
    }

    /// Appends a request to prepare a statement with the client's own text.
    pub fn prepare(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        packet::write(out, 0, |out| {
            out.push(COM_STMT_PREPARE);
            out.extend_from_slice(text);
        })?;
        self.replies.push_back(RestoreReply::Prepared(MySqlPrepareReader::new(self.capabilities)));
        Ok(())
    }

    /// The same, with other settings and another default database.
    pub fn prepare_in_context(
        &mut self,
        ContextSwitch { before, after }: &ContextSwitch,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let replies = self.replies.len();
        self.context(before, out)?;
        // If one of these is refused, the statement cannot be prepared.
        self.replies.iter_mut().skip(replies).for_each(|reply| *reply = RestoreReply::BeforePrepare);
        self.prepare(text, out)?;
        self.context(after, out)
    }

    fn context(
        &mut self,
        (settings, database): &(Option<String>, Option<String>),
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if let Some(settings) = settings {
            self.statement(settings, out)?;
        }
        database.as_ref().map_or(Ok(()), |database| self.database(database, out))
    }

    /// Takes whole packets from the front of `input`. A refusal is returned only after all responses have
    /// been read, so that the connection awaits commands. After any other error the connection is unusable.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<RestoredSession>, Error> {
        while let Some(reply) = self.replies.front_mut() {
            let refused = match reply {
                RestoreReply::Ok | RestoreReply::Status => {
                    let Some(payload) = self.packets.take(input, "response to the proxy")? else {
                        return Ok(Response::NeedInput);
                    };
                    match refuse_err(payload) {
                        Ok(()) => {
                            let ok = OkPacket::parse_any(payload)?;
                            if let RestoreReply::Status = reply {
                                self.adopted.status = Some(ok);
                            }
                            None
                        }
                        Err(error) => Some(error),
                    }
                }
                RestoreReply::Database => {
                    let Some(payload) = self.packets.take(input, "response to the proxy")? else {
                        return Ok(Response::NeedInput);
                    };
                    if ErrPacket::is(payload) {
                        self.adopted.no_database.get_or_insert_with(|| payload.to_vec());
                    } else {
                        OkPacket::parse_any(payload)?;
                    }
                    None
                }
                RestoreReply::Values(reader) => match reader.step(input) {
                    Ok(Response::NeedInput) => return Ok(Response::NeedInput),
                    Ok(Response::Done(rows)) => {
                        self.adopted.values = one(rows);
                        None
                    }
                    Err(Error::Server { .. }) => None,
                    Err(error) => return Err(error),
                },
                RestoreReply::BeforePrepare | RestoreReply::Prepared(_) if starts_with_err(input) => {
                    let Some(payload) = self.packets.take(input, "response to PREPARE")? else {
                        return Ok(Response::NeedInput);
                    };
                    self.adopted.prepared.get_or_insert_with(|| Err(payload.to_vec()));
                    None
                }
                RestoreReply::BeforePrepare => {
                    let Some(payload) = self.packets.take(input, "response to the proxy")? else {
                        return Ok(Response::NeedInput);
                    };
                    OkPacket::parse_any(payload)?;
                    None
                }
                RestoreReply::Prepared(reader) => {
                    let Response::Done(prepared) = reader.step(input)? else {
                        return Ok(Response::NeedInput);
                    };
                    self.adopted.prepared.get_or_insert(Ok(prepared));
                    None
                }
            };
            match refused {
                Some(refusal @ Error::Server { .. }) => drop(self.refusal.get_or_insert(refusal)),
                Some(error) => return Err(error),
                None => {}
            }
            self.replies.pop_front();
            self.packets = PacketReader::for_response();
        }
        self.refusal.take().map_or_else(|| Ok(Response::Done(std::mem::take(&mut self.adopted))), Err)
    }
}

fn one(rows: Vec<Row>) -> Option<Row> {
    <[Row; 1]>::try_from(rows).ok().map(|[row]| row)
}

/// Appends a statement that makes the server fail with this error, whose message must be safe to quote.
pub fn encode_refusal(
    capabilities: Capabilities,
    err: &ErrPacket<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let sql = format!(
        "SIGNAL SQLSTATE '{}' SET MYSQL_ERRNO={},MESSAGE_TEXT='{}'",
        String::from_utf8_lossy(&err.sql_state),
        err.code,
        String::from_utf8_lossy(err.message)
    );
    encode_query_on(capabilities, out, &sql)
}

fn starts_with_err(input: &[u8]) -> bool {
    packet::peek_header(input).is_some_and(|(_, payload)| ErrPacket::is(payload))
}
