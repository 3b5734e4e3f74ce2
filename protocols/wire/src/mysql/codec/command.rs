//! Commands from client to server ("Command Phase"). Each is a packet that starts a new sequence.

use crate::mysql::{
    codec::{capabilities::Capabilities, packet, reader::put_lenenc_bytes},
    error::Error,
};

const COM_QUIT: u8 = 0x01;
const COM_INIT_DB: u8 = 0x02;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_STMT_RESET: u8 = 0x1a;
const COM_SET_OPTION: u8 = 0x1b;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// `CURSOR_TYPE_NO_CURSOR`: the server sends all rows at once.
const NO_CURSOR: u8 = 0;
/// The protocol allows no other number of iterations.
const ITERATIONS: u32 = 1;
/// The parameter types follow. They are always sent, so the server need not remember them.
const NEW_PARAMS_BOUND: u8 = 1;

/// "`COM_QUERY`": no attributes, in the one parameter set.
pub(crate) const NO_ATTRIBUTES: [u8; 2] = [0, 1];

/// "`COM_SET_OPTION`": `MYSQL_OPTION_MULTI_STATEMENTS_ON` and `_OFF`.
const MULTI_STATEMENTS_ON: u8 = 0;
const MULTI_STATEMENTS_OFF: u8 = 1;

/// "Column types": `MYSQL_TYPE_NULL`, `MYSQL_TYPE_LONGLONG`, `MYSQL_TYPE_VAR_STRING`.
const TYPE_NULL: u8 = 0x06;
const TYPE_LONGLONG: u8 = 0x08;
const TYPE_VAR_STRING: u8 = 0xfd;

/// How many statements a `COM_QUERY` may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StatementsPerQuery {
    /// A single one, which protects against statements injected after it.
    #[default]
    One,
    /// Any number, separated by semicolons; each returns its own result.
    Several,
}

/// A parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param<'a> {
    Null,
    I64(i64),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

pub fn encode_query(out: &mut Vec<u8>, sql: &str) -> Result<(), Error> {
    encode_text(out, COM_QUERY, sql)
}

/// `COM_QUERY` on a connection with these negotiated capabilities. It has no query attributes, even if the
/// capabilities allow them.
pub fn encode_query_on(capabilities: Capabilities, out: &mut Vec<u8>, sql: &str) -> Result<(), Error> {
    packet::write(out, 0, |out| {
        out.push(COM_QUERY);
        if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
            out.extend_from_slice(&NO_ATTRIBUTES);
        }
        out.extend_from_slice(sql.as_bytes());
    })
}

/// `COM_INIT_DB`: changes the default database. The response is an OK.
pub fn encode_init_db(out: &mut Vec<u8>, database: &str) -> Result<(), Error> {
    encode_text(out, COM_INIT_DB, database)
}

/// `COM_SET_OPTION`: whether a query may have several statements. The response is an EOF or an OK.
pub(crate) fn encode_multi_statements(out: &mut Vec<u8>, statements: StatementsPerQuery) {
    let option = match statements {
        StatementsPerQuery::Several => MULTI_STATEMENTS_ON,
        StatementsPerQuery::One => MULTI_STATEMENTS_OFF,
    };
    out.extend_from_slice(&[3, 0, 0, 0, COM_SET_OPTION, option, 0]);
}

pub fn encode_prepare(out: &mut Vec<u8>, sql: &str) -> Result<(), Error> {
    encode_text(out, COM_STMT_PREPARE, sql)
}

/// `COM_STMT_EXECUTE`. `params` must have as many values as the statement has parameters.
pub fn encode_execute(out: &mut Vec<u8>, statement_id: u32, params: &[Param<'_>]) -> Result<(), Error> {
    packet::write(out, 0, |out| {
        out.push(COM_STMT_EXECUTE);
        out.extend_from_slice(&statement_id.to_le_bytes());
        out.push(NO_CURSOR);
        out.extend_from_slice(&ITERATIONS.to_le_bytes());
        if !params.is_empty() {
            put_params(out, params);
        }
    })
}

/// `COM_STMT_CLOSE`. There is no response.
pub fn encode_statement_close(out: &mut Vec<u8>, statement_id: u32) {
    encode_of_statement(out, COM_STMT_CLOSE, statement_id);
}

/// `COM_STMT_RESET`: closes the statement's cursor and discards its long data. The response is an OK.
pub fn encode_statement_reset(out: &mut Vec<u8>, statement_id: u32) {
    encode_of_statement(out, COM_STMT_RESET, statement_id);
}

/// `COM_RESET_CONNECTION`: rolls back, and discards temporary tables, variables and prepared statements. The
/// response is an OK.
pub fn encode_reset_connection(out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, 0, 0, 0, COM_RESET_CONNECTION]);
}

/// `COM_PING`. The response is an OK.
pub fn encode_ping(out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, 0, 0, 0, COM_PING]);
}

/// `COM_QUIT`. The server closes the connection.
pub fn encode_quit(out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, 0, 0, 0, COM_QUIT]);
}

fn encode_of_statement(out: &mut Vec<u8>, command: u8, statement_id: u32) {
    let [a, b, c, d] = statement_id.to_le_bytes();
    out.extend_from_slice(&[5, 0, 0, 0, command, a, b, c, d]);
}

fn encode_text(out: &mut Vec<u8>, command: u8, sql: &str) -> Result<(), Error> {
    packet::write(out, 0, |out| {
        out.push(command);
        out.extend_from_slice(sql.as_bytes());
    })
}

fn put_params(out: &mut Vec<u8>, params: &[Param<'_>]) {
    let bitmap = out.len();
    out.resize(bitmap + params.len().div_ceil(8), 0);
    for (index, param) in params.iter().enumerate() {
        if *param == Param::Null {
            out[bitmap + index / 8] |= 1 << (index % 8);
        }
    }
    out.push(NEW_PARAMS_BOUND);
    for param in params {
        let code = match param {
            Param::Null => TYPE_NULL,
            Param::I64(_) => TYPE_LONGLONG,
            Param::Bytes(_) => TYPE_VAR_STRING,
        };
        out.extend_from_slice(&[code, 0]);
    }
    for param in params {
        match param {
            Param::Null => {}
            Param::I64(value) => out.extend_from_slice(&value.to_le_bytes()),
            Param::Bytes(bytes) => put_lenenc_bytes(out, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_commands() {
        let mut out = Vec::new();
        encode_query(&mut out, "SELECT 1").unwrap();
        encode_prepare(&mut out, "DO ?").unwrap();
        encode_query_on(Capabilities::DEPRECATE_EOF, &mut out, "DO 0").unwrap();
        encode_query_on(Capabilities::QUERY_ATTRIBUTES, &mut out, "DO 0").unwrap();
        assert_eq!(
            out,
            b"\x09\0\0\0\x03SELECT 1\x05\0\0\0\x16DO ?\x05\0\0\0\x03DO 0\x07\0\0\0\x03\0\x01DO 0"
        );
    }

    #[test]
    fn short_commands() {
        let mut out = Vec::new();
        encode_ping(&mut out);
        encode_statement_close(&mut out, 0x0102_0304);
        encode_quit(&mut out);
        assert_eq!(out, b"\x01\0\0\0\x0e\x05\0\0\0\x19\x04\x03\x02\x01\x01\0\0\0\x01");
        out.clear();
        encode_reset_connection(&mut out);
        encode_statement_reset(&mut out, 7);
        assert_eq!(out, b"\x01\0\0\0\x1f\x05\0\0\0\x1a\x07\0\0\0");
    }

    #[test]
    fn execute() {
        let mut out = Vec::new();
        encode_execute(&mut out, 7, &[]).unwrap();
        assert_eq!(out, b"\x0a\0\0\0\x17\x07\0\0\0\0\x01\0\0\0");
        out.clear();
        encode_execute(&mut out, 7, &[Param::I64(-5), Param::Bytes(b"hey"), Param::Null]).unwrap();
        let expected = [
            &b"\x1e\0\0\0\x17\x07\0\0\0\0\x01\0\0\0"[..],
            b"\x04\x01",                         // the third is NULL; types follow
            b"\x08\0\xfd\0\x06\0",               // LONGLONG, VAR_STRING, NULL
            b"\xfb\xff\xff\xff\xff\xff\xff\xff", // -5
            b"\x03hey",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn null_bitmap_of_many() {
        let mut out = Vec::new();
        encode_execute(&mut out, 1, &[Param::Null; 9]).unwrap();
        assert_eq!(out[14..17], [0xff, 0x01, NEW_PARAMS_BOUND]);
    }
}
