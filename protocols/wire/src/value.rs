//! Parameter values, in every protocol.

/// A parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    /// PostgreSQL is sent its decimal digits.
    I64(i64),
    /// Text, or the text form of a value of another type.
    Text(&'a [u8]),
}
