//! The header of a message: its length, the numbers of request and response, and the operation.

use crate::mongodb::error::Error;

/// The longest message: the limit of servers (`maxMessageSizeBytes`).
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;

pub(crate) const OP_COMPRESSED: i32 = 2012;
pub(crate) const OP_MSG: i32 = 2013;
pub(crate) const HEADER_BYTES: usize = 16;

pub(crate) fn error(reason: &'static str) -> Error {
    Error::protocol("message", reason)
}
