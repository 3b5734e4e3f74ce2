//! The types of values.

use super::{Document, Error, array, bytes, error, length, nul_terminated};

/// The bytes that say of which type an element is.
pub mod kind {
    /// 64-bit floating point.
    pub const DOUBLE: u8 = 0x01;
    /// UTF-8 text.
    pub const STRING: u8 = 0x02;
    /// A document.
    pub const DOCUMENT: u8 = 0x03;
    /// An array.
    pub const ARRAY: u8 = 0x04;
    /// Bytes.
    pub const BINARY: u8 = 0x05;
    /// Nothing; no longer made.
    pub const UNDEFINED: u8 = 0x06;
    /// 12 bytes that name a document.
    pub const OBJECT_ID: u8 = 0x07;
    /// A truth.
    pub const BOOLEAN: u8 = 0x08;
    /// Milliseconds since 1970.
    pub const DATE_TIME: u8 = 0x09;
    /// Null.
    pub const NULL: u8 = 0x0a;
    /// A regular expression.
    pub const REGEX: u8 = 0x0b;
    /// A reference to a document; no longer made.
    pub const DB_POINTER: u8 = 0x0c;
    /// JavaScript.
    pub const CODE: u8 = 0x0d;
    /// Text; no longer made.
    pub const SYMBOL: u8 = 0x0e;
    /// JavaScript with variables; no longer made.
    pub const CODE_WITH_SCOPE: u8 = 0x0f;
    /// 32-bit integer.
    pub const INT32: u8 = 0x10;
    /// The time of a change, as replication counts it.
    pub const TIMESTAMP: u8 = 0x11;
    /// 64-bit integer.
    pub const INT64: u8 = 0x12;
    /// 128-bit decimal floating point.
    pub const DECIMAL128: u8 = 0x13;
    /// Less than everything.
    pub const MIN_KEY: u8 = 0xff;
    /// More than everything.
    pub const MAX_KEY: u8 = 0x7f;
}

/// A value; what nests is a [`Document`] whose inside is not checked yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// 64-bit floating point.
    Double(f64),
    /// Text.
    String(&'a str),
    /// A document.
    Document(Document<'a>),
    /// An array.
    Array(Document<'a>),
    /// Bytes.
    Binary {
        /// What they are; 0 is anything.
        subtype: u8,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Nothing; no longer made.
    Undefined,
    /// 12 bytes that name a document.
    ObjectId([u8; 12]),
    /// A truth.
    Boolean(bool),
    /// Milliseconds since 1970.
    DateTime(i64),
    /// Null.
    Null,
    /// A regular expression.
    Regex {
        /// The expression.
        pattern: &'a str,
        /// Its options, one letter each.
        options: &'a str,
    },
    /// A reference to a document; no longer made.
    DbPointer {
        /// The collection.
        namespace: &'a str,
        /// The document.
        id: [u8; 12],
    },
    /// JavaScript.
    Code(&'a str),
    /// Text; no longer made.
    Symbol(&'a str),
    /// JavaScript with variables; no longer made.
    CodeWithScope {
        /// The code.
        code: &'a str,
        /// The variables.
        scope: Document<'a>,
    },
    /// 32-bit integer.
    Int32(i32),
    /// The time of a change, as replication counts it: seconds in the upper half.
    Timestamp(u64),
    /// 64-bit integer.
    Int64(i64),
    /// 128-bit decimal floating point, as it is sent.
    Decimal128([u8; 16]),
    /// Less than everything.
    MinKey,
    /// More than everything.
    MaxKey,
}

impl<'a> Value<'a> {
    /// Reads the value of this kind that `input` is.
    pub(super) fn read(kind: u8, mut input: &'a [u8]) -> Result<Self, Error> {
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
        // The lengths inside must come to the one outside.
        if input.is_empty() { Ok(value) } else { Err(error("a value that is longer than it says")) }
    }

    /// The whole number that it is, whatever type the server chose for it.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int32(number) => Some(number.into()),
            Self::Int64(number) => Some(number),
            // Up to here each whole number is a double of its own.
            Self::Double(number) if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 => {
                Some(number as i64)
            }
            _ => None,
        }
    }

    /// Whether servers take it for true, such as the 1.0 in `ok`.
    pub fn is_true(self) -> bool {
        match self {
            Self::Boolean(truth) => truth,
            Self::Double(number) => number != 0.0,
            Self::Int32(number) => number != 0,
            Self::Int64(number) => number != 0,
            _ => false,
        }
    }

    /// The text that it is.
    pub fn as_str(self) -> Option<&'a str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }
}

fn string<'a>(input: &mut &'a [u8]) -> Result<&'a str, Error> {
    let length = length(input)?;
    array::<4>(input)?;
    match bytes(input, length)?.split_last() {
        Some((0, text)) => utf8(text),
        _ => Err(error("a string has no end")),
    }
}

fn utf8(text: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(text).map_err(|_| error("a text that is not UTF-8"))
}

fn boolean(input: &mut &[u8]) -> Result<bool, Error> {
    match array(input)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(error("neither true nor false")),
    }
}
