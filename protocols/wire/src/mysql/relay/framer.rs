//! Splits the bytes of one direction into packets.

use crate::mysql::codec::packet::{HEADER_BYTES, Header, MAX_PART_BYTES};

/// The position within the packets of one direction.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    pub(crate) left_bytes: usize,
    pub(crate) continues: bool,
}

impl Framer {
    /// Skips the rest of the current packet, as far as it has arrived. Returns whether the packet is
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
        *at += HEADER_BYTES;
        self.left_bytes = header.length;
        self.continues = header.length == MAX_PART_BYTES;
    }

    pub(crate) fn is_between_messages(&self) -> bool {
        self.left_bytes == 0 && !self.continues
    }
}
