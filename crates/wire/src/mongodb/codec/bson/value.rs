//! The types of values.

use crate::mongodb::{
    codec::bson::document::{Document, array, bytes, error, length, nul_terminated},
    error::Error,
};

/// The bytes that identify an element's type.
pub mod kind {
    pub const DOUBLE: u8 = 0x01;
    pub const STRING: u8 = 0x02;
    pub const DOCUMENT: u8 = 0x03;
    pub const ARRAY: u8 = 0x04;
    /// Bytes.
    pub const BINARY: u8 = 0x05;
    /// Deprecated.
    pub const UNDEFINED: u8 = 0x06;
    /// 12 bytes that identify a document.
    pub const OBJECT_ID: u8 = 0x07;
    pub const BOOLEAN: u8 = 0x08;
    /// Milliseconds since 1970.
    pub const DATE_TIME: u8 = 0x09;
    pub const NULL: u8 = 0x0a;
    pub const REGEX: u8 = 0x0b;
    /// A reference to a document; deprecated.
    pub const DB_POINTER: u8 = 0x0c;
    /// JavaScript.
    pub const CODE: u8 = 0x0d;
    /// Text; deprecated.
    pub const SYMBOL: u8 = 0x0e;
    /// JavaScript with variables; deprecated.
    pub const CODE_WITH_SCOPE: u8 = 0x0f;
    pub const INT32: u8 = 0x10;
    /// The time of a change in replication.
    pub const TIMESTAMP: u8 = 0x11;
    pub const INT64: u8 = 0x12;
    /// 128-bit decimal floating point.
    pub const DECIMAL128: u8 = 0x13;
    /// Less than every other value.
    pub const MIN_KEY: u8 = 0xff;
    /// Greater than every other value.
    pub const MAX_KEY: u8 = 0x7f;
}

/// A value. Nested documents are not checked yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BsonValue<'a> {
    Double(f64),
    String(&'a str),
    Document(Document<'a>),
    Array(Document<'a>),
    Binary {
        /// The kind of data; 0 is generic.
        subtype: u8,
        bytes: &'a [u8],
    },
    /// Deprecated.
    Undefined,
    /// 12 bytes that identify a document.
    ObjectId([u8; 12]),
    Boolean(bool),
    /// Milliseconds since 1970.
    DateTime(i64),
    Null,
    Regex {
        pattern: &'a str,
        /// One letter per option.
        options: &'a str,
    },
    /// A reference to a document; deprecated.
    DbPointer {
        /// The collection.
        namespace: &'a str,
        /// The document.
        id: [u8; 12],
    },
    /// JavaScript.
    Code(&'a str),
    /// Text; deprecated.
    Symbol(&'a str),
    /// JavaScript with variables; deprecated.
    CodeWithScope {
        code: &'a str,
        scope: Document<'a>,
    },
    Int32(i32),
    /// The time of a change in replication, with the seconds in the upper half.
    Timestamp(u64),
    Int64(i64),
    /// 128-bit decimal floating point, in its stored form.
    Decimal128([u8; 16]),
    /// Less than every other value.
    MinKey,
    /// Greater than every other value.
    MaxKey,
}

impl<'a> BsonValue<'a> {
    /// Reads the value of this type from `input`, which must have exactly its length.
    pub(crate) fn read(kind: u8, mut input: &'a [u8]) -> Result<Self, Error> {
        let input = &mut input;
        let value = match kind {
            kind::DOUBLE => Self::Double(f64::from_le_bytes(*array(input)?)),
            kind::STRING => Self::String(string(input)?),
            kind::DOCUMENT => Self::Document(Document::take(input)?),
            kind::ARRAY => Self::Array(Document::take(input)?),
            kind::BINARY => {
                let length = length(input)?;
                let &[_, _, _, _, subtype] = array::<5>(input)?;
                Self::Binary { subtype, bytes: bytes(input, length)? }
            }
            kind::UNDEFINED => Self::Undefined,
            kind::OBJECT_ID => Self::ObjectId(*array(input)?),
            kind::BOOLEAN => Self::Boolean(boolean(input)?),
            kind::DATE_TIME => Self::DateTime(i64::from_le_bytes(*array(input)?)),
            kind::NULL => Self::Null,
            kind::REGEX => {
                Self::Regex { pattern: utf8(nul_terminated(input)?)?, options: utf8(nul_terminated(input)?)? }
            }
            kind::DB_POINTER => Self::DbPointer { namespace: string(input)?, id: *array(input)? },
            kind::CODE => Self::Code(string(input)?),
            kind::SYMBOL => Self::Symbol(string(input)?),
            kind::CODE_WITH_SCOPE => {
                array::<4>(input)?;
                Self::CodeWithScope { code: string(input)?, scope: Document::take(input)? }
            }
            kind::INT32 => Self::Int32(i32::from_le_bytes(*array(input)?)),
            kind::TIMESTAMP => Self::Timestamp(u64::from_le_bytes(*array(input)?)),
            kind::INT64 => Self::Int64(i64::from_le_bytes(*array(input)?)),
            kind::DECIMAL128 => Self::Decimal128(*array(input)?),
            kind::MIN_KEY => Self::MinKey,
            kind::MAX_KEY => Self::MaxKey,
            _ => return Err(error("an element of an unknown type")),
        };
        // The inner lengths must add up to the outer one.
        if input.is_empty() { Ok(value) } else { Err(error("a value whose lengths disagree")) }
    }

    /// The value as an integer, whatever numeric type the server chose.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int32(number) => Some(number.into()),
            Self::Int64(number) => Some(number),
            // Up to this limit doubles represent all integers exactly.
            Self::Double(number) if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 => {
                Some(number as i64)
            }
            _ => None,
        }
    }

    /// Whether servers treat the value as true, such as the 1.0 in `ok`.
    pub fn is_true(self) -> bool {
        match self {
            Self::Boolean(truth) => truth,
            Self::Double(number) => number != 0.0,
            Self::Int32(number) => number != 0,
            Self::Int64(number) => number != 0,
            _ => false,
        }
    }

    pub fn as_str(self) -> Option<&'a str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }
}

fn string<'a>(input: &mut &'a [u8]) -> Result<&'a str, Error> {
    let length = length(input)?;
    array::<4>(input)?;
    match bytes(input, length)?.split_last() {
        Some((0, text)) => utf8(text),
        _ => Err(error("a string is not NUL-terminated")),
    }
}

fn utf8(text: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(text).map_err(|_| error("a text that is not UTF-8"))
}

fn boolean(input: &mut &[u8]) -> Result<bool, Error> {
    match array(input)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(error("a boolean that is neither 0 nor 1")),
    }
}
