//! Splits the bytes of one direction into messages.

use crate::postgres::{codec::message::{self, Header, MAX_SENT_PAYLOAD_BYTES}, error::Error};

/// The position within the messages of one direction.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    pub(crate) left_bytes: usize,
}

impl Framer {
    /// Skips the rest of the current message, as far as it has arrived. Returns whether the message is
    /// complete.
    #[inline]
    pub(crate) fn skip(&mut self, input: &[u8], at: &mut usize) -> bool {
        let bytes = self.left_bytes.min(input.len() - *at);
        *at += bytes;
        self.left_bytes -= bytes;
        self.left_bytes == 0
    }

    #[inline]
    pub(crate) fn begin(&mut self, header: Header, at: &mut usize) {
        *at += message::HEADER_BYTES;
        self.left_bytes = header.payload_bytes;
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
