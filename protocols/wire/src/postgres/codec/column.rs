//! `RowDescription` and `ParameterDescription`: the columns and parameters of a statement.

use crate::postgres::{
    codec::reader::{Reader, put_nul_terminated, put_u16, put_u32},
    error::Error,
};

/// The format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ValueFormat {
    #[default]
    Text,
    /// The type's binary representation.
    Binary,
}

impl ValueFormat {
    /// The format code in the protocol.
    pub fn code(self) -> u16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }

    pub(crate) fn from_code(code: u16) -> Option<Self> {
        [Self::Text, Self::Binary].into_iter().find(|format| format.code() == code)
    }
}

/// One column of a `RowDescription`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a [u8],
    /// 0 for none.
    pub table_oid: u32,
    /// The column's number in the table, 0 for none.
    pub attribute: u16,
    pub type_oid: u32,
    /// The type's length in bytes; negative if it varies.
    pub type_bytes: i16,
    /// The type modifier, such as a length limit.
    pub type_modifier: i32,
    /// Text if the format is not known yet.
    pub format: ValueFormat,
}

impl<'a> Field<'a> {
    /// A text column without a table, for the server side.
    pub fn text(name: &'a [u8]) -> Self {
        const TEXT_OID: u32 = 25;
        Self {
            name,
            table_oid: 0,
            attribute: 0,
            type_oid: TEXT_OID,
            type_bytes: -1,
            type_modifier: -1,
            format: ValueFormat::Text,
        }
    }

    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            name: reader.nul_terminated()?,
            table_oid: reader.u32()?,
            attribute: reader.u16()?,
            type_oid: reader.u32()?,
            type_bytes: reader.array().map(i16::from_be_bytes)?,
            type_modifier: reader.array().map(i32::from_be_bytes)?,
            format: ValueFormat::from_code(reader.u16()?).ok_or_else(|| reader.error("an unknown format"))?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_nul_terminated(out, self.name);
        put_u32(out, self.table_oid);
        put_u16(out, self.attribute);
        put_u32(out, self.type_oid);
        out.extend_from_slice(&self.type_bytes.to_be_bytes());
        out.extend_from_slice(&self.type_modifier.to_be_bytes());
        put_u16(out, self.format.code());
    }
}

/// The part of a column description that readers keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Not necessarily UTF-8.
    pub name: Vec<u8>,
    /// The type's OID in `pg_type`.
    pub type_oid: u32,
}

impl From<Field<'_>> for Column {
    fn from(field: Field<'_>) -> Self {
        Self { name: field.name.to_vec(), type_oid: field.type_oid }
    }
}

/// Parses the payload of a `RowDescription`.
pub fn parse_row_description(payload: &[u8]) -> Result<Vec<Field<'_>>, Error> {
    let mut reader = Reader::new(payload, "RowDescription");
    let count = reader.u16()?;
    // Not allocated by the count, which a hostile peer chooses.
    let mut fields = Vec::new();
    for _ in 0..count {
        fields.push(Field::parse(&mut reader)?);
    }
    reader.end()?;
    Ok(fields)
}

/// Appends the payload of a `RowDescription`. Names must have no NUL.
pub fn encode_row_description(out: &mut Vec<u8>, fields: &[Field<'_>]) {
    put_u16(out, fields.len() as u16);
    for field in fields {
        field.encode(out);
    }
}

/// Parses the payload of a `ParameterDescription`: the OIDs of the parameter types.
pub fn parse_parameter_description(payload: &[u8]) -> Result<Vec<u32>, Error> {
    let mut reader = Reader::new(payload, "ParameterDescription");
    let types = parse_types(&mut reader)?;
    reader.end()?;
    Ok(types)
}

pub fn encode_parameter_description(out: &mut Vec<u8>, types: &[u32]) {
    put_u16(out, types.len() as u16);
    for &oid in types {
        put_u32(out, oid);
    }
}

/// A count, and as many type OIDs.
pub(crate) fn parse_types(reader: &mut Reader<'_>) -> Result<Vec<u32>, Error> {
    let count = reader.u16()?;
    (0..count).map(|_| reader.u32()).collect()
}
