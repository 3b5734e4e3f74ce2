//! Splits the bytes of one direction into messages.

use crate::postgres::{
    codec::message::{self, Header, MAX_SENT_PAYLOAD_BYTES},
    error::Error,
};

/// The position within the messages of one direction.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    left_bytes: usize,
}

/// Bytes of the payload of the current message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the message ends with them.
    pub(crate) is_last: bool,
}

impl Framer {
    /// Reads the rest of the current message, as far as it has arrived, and advances `at` past it.
    #[inline]
    pub(crate) fn read<'a>(&mut self, input: &'a [u8], at: &mut usize) -> Piece<'a> {
        let start = *at;
        *at += self.left_bytes.min(input.len() - start);
        self.left_bytes -= *at - start;
        Piece { bytes: &input[start..*at], is_last: self.left_bytes == 0 }
    }

    /// The header of the next message, if the current one is complete and the header has arrived.
    #[inline]
    pub(crate) fn next_header(&self, input: &[u8]) -> Result<Option<Header>, Error> {
        if self.left_bytes == 0 { checked_header(input) } else { Ok(None) }
    }

    #[inline]
    pub(crate) fn begin(&mut self, header: Header, at: &mut usize) {
        *at += message::HEADER_BYTES;
        self.left_bytes = header.payload_bytes;
    }

    pub(crate) fn is_between_messages(&self) -> bool {
        self.left_bytes == 0
    }
}

/// The header at the front, if it has arrived. Fails if its length is impossible.
#[inline]
pub(crate) fn checked_header(input: &[u8]) -> Result<Option<Header>, Error> {
    let header = message::peek(input)?;
    match header {
        Some(Header { payload_bytes, .. }) if payload_bytes > MAX_SENT_PAYLOAD_BYTES => {
            Err(Error::MessageTooLarge { length: payload_bytes, limit: MAX_SENT_PAYLOAD_BYTES })
        }
        _ => Ok(header),
    }
}
