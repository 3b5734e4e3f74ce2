//! Packets: a three-byte length, a sequence number and a payload ("MySQL Packets").

use super::{Error, err::ErrPacket};

/// The longest payload taken or sent. One byte more announces a continuation, which is refused so far.
pub const MAX_PAYLOAD_BYTES: usize = 0xff_fffe;
/// The longest payload taken before the peer has authenticated; no message of a login comes near it.
pub const MAX_LOGIN_PAYLOAD_BYTES: usize = 0x1_0000;

const HEADER_BYTES: usize = 4;

/// Cuts packets from the front of the input and checks that none is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packets {
    next: u8,
    limit: usize,
}

impl Packets {
    /// Expects `first` as the first sequence number and takes payloads up to `limit` bytes.
    pub(super) fn new(first: u8, limit: usize) -> Self {
        Self { next: first, limit: limit.min(MAX_PAYLOAD_BYTES) }
    }

    /// The next whole packet's payload, or none yet; `message` is what it is expected to be.
    pub(super) fn take<'a>(
        &mut self,
        input: &mut &'a [u8],
        message: &'static str,
    ) -> Result<Option<&'a [u8]>, Error> {
        let Some((&[low, middle, high, sequence], rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        // Checked before the payload is here, so that nobody buffers what would be refused.
        let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
        if length > self.limit {
            return Err(Error::PacketTooLarge { length, limit: self.limit });
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        // A server that gives up (shutdown, idle timeout) numbers its ERR without regard to what it answers.
        if sequence != self.next && !ErrPacket::is(payload) {
            return Err(Error::Protocol { message, reason: "a packet is missing or out of order" });
        }
        self.next = sequence.wrapping_add(1);
        *input = rest;
        Ok(Some(payload))
    }

    /// The sequence number that the next packet in either direction has, and counts it as used.
    pub(super) fn number(&mut self) -> u8 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }
}

/// Appends one packet whose payload is what `payload` appends; appends nothing if that is too long.
pub(super) fn write(
    out: &mut Vec<u8>,
    sequence: u8,
    payload: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, sequence]);
    payload(out);
    let length = out.len() - start - HEADER_BYTES;
    if length > MAX_PAYLOAD_BYTES {
        out.truncate(start);
        return Err(Error::PacketTooLarge { length, limit: MAX_PAYLOAD_BYTES });
    }
    out[start..start + 3].copy_from_slice(&length.to_le_bytes()[..3]);
    Ok(())
}
