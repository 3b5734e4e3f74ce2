//! Commands from client to server ("Simple Query", "Extended Query", "COPY Operations").
//!
//! Each [`encode_query`] and [`encode_sync`] gets one response, which ends in `ReadyForQuery`. After an error
//! the server skips the messages up to the next `Sync`, so several may be sent without waiting; see
//! `PostgresResponseReader::pipelined`.

use crate::postgres::{
    codec::{
        column::ValueFormat,
        kind,
        message::{write, write_empty},
        reader::{Reader, put_nul_terminated, put_nullable_bytes, put_u16, put_u32},
    },
    error::Error,
};

/// In `Describe` and `Close`: a prepared statement, or a portal.
pub(crate) const STATEMENT: u8 = b'S';
pub(crate) const PORTAL: u8 = b'P';
/// Digits and sign of the longest number.
const MAX_DECIMAL_BYTES: usize = 20;

/// A parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param<'a> {
    Null,
    /// Sent as decimal digits.
    I64(i64),
    /// The text form of a value of any type.
    Text(&'a [u8]),
    /// The binary form of a value.
    Binary(&'a [u8]),
}

impl Param<'_> {
    fn format(self) -> ValueFormat {
        match self {
            Self::Null | Self::I64(_) | Self::Text(_) => ValueFormat::Text,
            Self::Binary(_) => ValueFormat::Binary,
        }
    }
}

/// `Query`: one or more statements as text.
pub fn encode_query(out: &mut Vec<u8>, sql: &str) -> Result<(), Error> {
    write(out, kind::QUERY, |out| put_text(out, sql, "SQL"))
}

/// `Parse`: prepares a statement under a name; the empty name is the unnamed statement. The server infers the
/// types of parameters that are omitted or 0.
pub fn encode_parse(out: &mut Vec<u8>, name: &str, sql: &str, param_types: &[u32]) -> Result<(), Error> {
    write(out, kind::PARSE, |out| {
        put_text(out, name, "statement's name")?;
        put_text(out, sql, "SQL")?;
        put_count(out, param_types.len())?;
        for &oid in param_types {
            put_u32(out, oid);
        }
        Ok(())
    })
}

/// `Parse` for the statement named `s` and a number, for [`encode_run_numbered`].
pub(crate) fn encode_parse_numbered(out: &mut Vec<u8>, statement: u32, sql: &str) -> Result<(), Error> {
    write(out, kind::PARSE, |out| {
        put_numbered(out, statement);
        put_text(out, sql, "SQL")?;
        put_count(out, 0)
    })
}

/// `Bind`: creates a portal from a prepared statement and as many parameters as it has. `result_format`
/// applies to all columns.
#[inline]
pub fn encode_bind(
    out: &mut Vec<u8>,
    portal: &str,
    statement: &str,
    params: &[Param<'_>],
    result_format: ValueFormat,
) -> Result<(), Error> {
    write(out, kind::BIND, |out| {
        put_text(out, portal, "portal's name")?;
        put_text(out, statement, "statement's name")?;
        put_params(out, params.iter().copied())?;
        put_result_format(out, result_format);
        Ok(())
    })
}

/// `Bind`, `Execute` and `Sync` for the statement named `s` and a number, with a text result: what a load
/// generator repeats. Allocates only for `out`.
#[inline]
pub(crate) fn encode_run_numbered<'a>(
    out: &mut Vec<u8>,
    statement: u32,
    params: impl ExactSizeIterator<Item = Param<'a>> + Clone,
) -> Result<(), Error> {
    write(out, kind::BIND, |out| {
        out.push(0);
        put_numbered(out, statement);
        put_params(out, params)?;
        put_result_format(out, ValueFormat::Text);
        Ok(())
    })?;
    encode_execute(out, "", 0)?;
    encode_sync(out);
    Ok(())
}

/// `Describe` for a prepared statement: the types of its parameters, and its columns.
pub fn encode_describe_statement(out: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    write_named(out, kind::DESCRIBE, STATEMENT, name)
}

/// `Describe` for a portal: its columns.
pub fn encode_describe_portal(out: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    write_named(out, kind::DESCRIBE, PORTAL, name)
}

/// `Execute`: returns the portal's rows, at most `max_rows` unless that is 0.
#[inline]
pub fn encode_execute(out: &mut Vec<u8>, portal: &str, max_rows: u32) -> Result<(), Error> {
    write(out, kind::EXECUTE, |out| {
        put_text(out, portal, "portal's name")?;
        put_u32(out, max_rows);
        Ok(())
    })
}

/// `Close` for a prepared statement.
pub fn encode_close_statement(out: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    write_named(out, kind::CLOSE, STATEMENT, name)
}

/// `Close` for a portal.
pub(crate) fn encode_close_portal(out: &mut Vec<u8>, name: &str) -> Result<(), Error> {
    write_named(out, kind::CLOSE, PORTAL, name)
}

/// `Close` or `Describe` for a prepared statement whose name came from a client.
pub(crate) fn put_of_statement(out: &mut Vec<u8>, kind: u8, name: &[u8]) -> Result<(), Error> {
    write(out, kind, |out| {
        out.push(STATEMENT);
        put_nul_terminated(out, name);
        Ok(())
    })
}

/// `Parse` without parameter types, for a name that came from a client.
pub(crate) fn put_parse(out: &mut Vec<u8>, name: &[u8], sql: &str) -> Result<(), Error> {
    write(out, kind::PARSE, |out| {
        put_nul_terminated(out, name);
        put_text(out, sql, "SQL")?;
        put_count(out, 0)
    })
}

/// `Parse` with the name and the text of another one's payload. `types` are a count and as many types.
pub(crate) fn put_parse_types(out: &mut Vec<u8>, payload: &[u8], types: &[u8]) -> Result<(), Error> {
    write(out, kind::PARSE, |out| {
        let mut reader = Reader::new(payload, "Parse");
        put_nul_terminated(out, reader.nul_terminated()?);
        put_nul_terminated(out, reader.nul_terminated()?);
        out.extend_from_slice(types);
        Ok(())
    })
}

/// `Sync`: ends an extended query and requests `ReadyForQuery`.
#[inline]
pub fn encode_sync(out: &mut Vec<u8>) {
    write_empty(out, kind::SYNC);
}

/// `Flush`: requests pending output.
pub fn encode_flush(out: &mut Vec<u8>) {
    write_empty(out, kind::FLUSH);
}

/// `Terminate`: the server closes the connection.
pub fn encode_terminate(out: &mut Vec<u8>) {
    write_empty(out, kind::TERMINATE);
}

/// `CopyData`: a portion of a COPY's data, cut anywhere.
pub fn encode_copy_data(out: &mut Vec<u8>, data: &[u8]) -> Result<(), Error> {
    write(out, kind::COPY_DATA, |out| {
        out.extend_from_slice(data);
        Ok(())
    })
}

/// `CopyDone`: all data were sent. Read the response with `PostgresResponseReader`.
pub fn encode_copy_done(out: &mut Vec<u8>) {
    write_empty(out, kind::COPY_DONE);
}

/// `CopyFail`: aborts the COPY, which the server rolls back. The response is the server's error.
pub fn encode_copy_fail(out: &mut Vec<u8>, reason: &str) -> Result<(), Error> {
    write(out, kind::COPY_FAIL, |out| put_text(out, reason, "reason"))
}

#[inline]
fn put_numbered(out: &mut Vec<u8>, statement: u32) {
    out.push(b's');
    put_decimal(out, i64::from(statement));
    out.push(0);
}

/// Appends the decimal digits of a number.
#[inline]
fn put_decimal(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; MAX_DECIMAL_BYTES];
    let mut start = MAX_DECIMAL_BYTES;
    let mut left = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if value < 0 {
        start -= 1;
        digits[start] = b'-';
    }
    out.extend_from_slice(&digits[start..]);
}

fn write_named(out: &mut Vec<u8>, kind: u8, what: u8, name: &str) -> Result<(), Error> {
    write(out, kind, |out| {
        out.push(what);
        put_text(out, name, "name")
    })
}

#[inline]
fn put_text(out: &mut Vec<u8>, text: &str, field: &'static str) -> Result<(), Error> {
    // The server would take the bytes after a NUL for the next field of the message.
    if text.as_bytes().contains(&0) {
        return Err(Error::InvalidText { field });
    }
    put_nul_terminated(out, text.as_bytes());
    Ok(())
}

fn put_count(out: &mut Vec<u8>, count: usize) -> Result<(), Error> {
    put_u16(out, u16::try_from(count).map_err(|_| Error::TooManyParams { count })?);
    Ok(())
}

/// The format codes, none if all are text, and the values.
#[inline]
fn put_params<'a>(
    out: &mut Vec<u8>,
    params: impl ExactSizeIterator<Item = Param<'a>> + Clone,
) -> Result<(), Error> {
    if params.clone().all(|param| param.format() == ValueFormat::Text) {
        put_u16(out, 0);
    } else {
        put_count(out, params.len())?;
        for param in params.clone() {
            put_u16(out, param.format().code());
        }
    }
    put_count(out, params.len())?;
    for param in params {
        match param {
            Param::Null => put_nullable_bytes(out, None),
            Param::Text(bytes) | Param::Binary(bytes) => put_nullable_bytes(out, Some(bytes)),
            Param::I64(value) => {
                let length = out.len();
                put_u32(out, 0);
                let start = out.len();
                put_decimal(out, value);
                let digits = (out.len() - start) as u32;
                out[length..start].copy_from_slice(&digits.to_be_bytes());
            }
        }
    }
    Ok(())
}

#[inline]
fn put_result_format(out: &mut Vec<u8>, format: ValueFormat) {
    match format {
        ValueFormat::Text => put_u16(out, 0),
        ValueFormat::Binary => {
            put_u16(out, 1);
            put_u16(out, format.code());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        for value in [0, 7, -7, 10, 1_000_000, i64::MAX, i64::MIN, i64::from(u32::MAX)] {
            let mut out = Vec::new();
            put_decimal(&mut out, value);
            assert_eq!(String::from_utf8(out), Ok(value.to_string()));
        }
    }

    #[test]
    fn simple_commands() {
        let mut out = Vec::new();
        encode_query(&mut out, "SELECT 1").unwrap();
        encode_sync(&mut out);
        encode_flush(&mut out);
        encode_terminate(&mut out);
        assert_eq!(out, b"Q\0\0\0\x0dSELECT 1\0S\0\0\0\x04H\0\0\0\x04X\0\0\0\x04");
    }

    #[test]
    fn extended_commands() {
        let mut out = Vec::new();
        encode_parse(&mut out, "s1", "SELECT $1", &[23]).unwrap();
        encode_describe_statement(&mut out, "s1").unwrap();
        encode_describe_portal(&mut out, "").unwrap();
        encode_execute(&mut out, "", 5).unwrap();
        encode_close_statement(&mut out, "s1").unwrap();
        let expected = [
            &b"P\0\0\0\x17s1\0SELECT $1\0\0\x01\0\0\0\x17"[..],
            b"D\0\0\0\x08Ss1\0",
            b"D\0\0\0\x06P\0",
            b"E\0\0\0\x09\0\0\0\0\x05",
            b"C\0\0\0\x08Ss1\0",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn bind() {
        let mut out = Vec::new();
        let params = [Param::I64(-12), Param::Null, Param::Text(b"x")];
        encode_bind(&mut out, "", "s", &params, ValueFormat::Text).unwrap();
        let text = b"B\0\0\0\x1d\0s\0\0\0\0\x03\0\0\0\x03-12\xff\xff\xff\xff\0\0\0\x01x\0\0";
        assert_eq!(out, [&text[..]].concat());
        out.clear();
        encode_bind(&mut out, "p", "", &[Param::Null, Param::Binary(b"\0")], ValueFormat::Binary).unwrap();
        let binary = b"B\0\0\0\x1c\
            p\0\0\0\x02\0\0\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x01\0\0\x01\0\x01";
        assert_eq!(out, binary);
    }

    #[test]
    fn a_numbered_statement_is_encoded_like_a_named_one() {
        let (mut numbered, mut named) = (Vec::new(), Vec::new());
        encode_run_numbered(&mut numbered, 42, [Param::I64(7), Param::Null].into_iter()).unwrap();
        encode_bind(&mut named, "", "s42", &[Param::Text(b"7"), Param::Null], ValueFormat::Text).unwrap();
        encode_execute(&mut named, "", 0).unwrap();
        encode_sync(&mut named);
        assert_eq!(numbered, named);
    }

    #[test]
    fn a_failed_encoder_appends_nothing() {
        let mut out = b"before".to_vec();
        assert_eq!(encode_query(&mut out, "SELECT 1\0"), Err(Error::InvalidText { field: "SQL" }));
        let many = vec![Param::Null; 65_536];
        let error = encode_bind(&mut out, "", "", &many, ValueFormat::Text);
        assert_eq!(error, Err(Error::TooManyParams { count: 65_536 }));
        assert_eq!(out, b"before");
        assert_eq!(encode_bind(&mut out, "", "", &many[1..], ValueFormat::Text), Ok(()));
    }
}
