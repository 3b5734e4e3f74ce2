//! What a server has said of a prepared statement: the types of its parameters, and its columns.

use crate::postgres::{
    codec::{
        command::put_parse_types,
        kind,
        message::{self, HEADER_BYTES},
        reader::Reader,
    },
    error::Error,
};

/// The types of the parameters, and the columns unless it returns no rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The payload of the `ParameterDescription`, which has the form of the types in a `Parse`.
    parameter_types: Vec<u8>,
    columns: Option<Columns>,
}

/// Names, types and type modifiers, as far as the server compares them when it plans a statement anew: not the tables
/// that the columns come from, and not their formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns(Vec<u8>);

impl Columns {
    /// Parses the payload of a `RowDescription`.
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "RowDescription");
        let mut columns = Vec::with_capacity(payload.len());
        for _ in 0..reader.u16()? {
            put_name(&mut columns, reader.nul_terminated()?);
            let (_table, _number) = (reader.u32()?, reader.u16()?);
            let (type_oid, _size, modifier, _format) =
                (reader.u32()?, reader.u16()?, reader.u32()?, reader.u16()?);
            columns.push(0);
            columns.extend_from_slice(&type_oid.to_be_bytes());
            columns.extend_from_slice(&modifier.to_be_bytes());
        }
        reader.end()?;
        Ok(Self(columns))
    }
}

/// Appends the name of a column as it is in every encoding of the client: bytes that are not ASCII are not compared.
fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    if name.is_ascii() {
        return out.extend_from_slice(name);
    }
    for run in name.chunk_by(|byte, next| byte.is_ascii() == next.is_ascii()) {
        out.extend_from_slice(if run.is_ascii() { run } else { b"\x80" });
    }
}

impl Shape {
    pub(super) fn new(parameter_types: Vec<u8>, columns: Option<Columns>) -> Self {
        Self { parameter_types, columns }
    }

    pub(super) fn has_columns(&self) -> bool {
        self.columns.is_some()
    }

    /// Whether the columns of `other` are the same.
    pub(super) fn has_columns_of(&self, other: &Self) -> bool {
        self.columns == other.columns
    }

    /// How the answer to a `Describe` begins.
    pub(super) fn parameter_description(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.parameter_types.len());
        message::write(&mut out, kind::PARAMETER_DESCRIPTION, |out| {
            out.extend_from_slice(&self.parameter_types);
            Ok(())
        })?;
        Ok(out)
    }

    /// A `Parse` of nothing: a statement without columns that has these parameters.
    pub(super) fn empty_parse(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        let mut names = name.to_vec();
        names.extend_from_slice(b"\0\0");
        put_parse_types(&mut out, &names, &self.parameter_types)?;
        Ok(out)
    }

    /// The same `Parse` with the types of all parameters, so that the server infers none.
    pub(super) fn typed_parse(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(message.len() + self.parameter_types.len());
        put_parse_types(&mut out, &message[HEADER_BYTES.min(message.len())..], &self.parameter_types)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_same_in_every_client_encoding() {
        let columns = |name: &[u8]| {
            Columns::parse(&[b"\0\x01", name, b"\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0"].concat())
        };
        let expected = columns("caf\u{e9}s".as_bytes());
        assert!(expected.is_ok());
        assert_eq!(columns(b"caf\xe9s"), expected, "LATIN1");
        for other in [&b"cafes"[..], b"caf\xe9", b"cafs", b"\xe9cafs"] {
            assert_ne!(columns(other), expected, "{other:?}");
        }
    }
}
