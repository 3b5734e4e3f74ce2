//! Packets: a three-byte length, a sequence number and a payload ("MySQL Packets").
//!
//! A message of [`MAX_PART_BYTES`] or more takes several packets: a packet of that length is followed by
//! another, which may be empty ("Sending More Than 16Mb").

use crate::mysql::{codec::err::ErrPacket, error::Error};

/// The length of every packet of a message except its last.
pub const MAX_PART_BYTES: usize = 0xff_ffff;
/// The longest payload that fits in a single packet. Only rows and commands are longer.
pub const MAX_PAYLOAD_BYTES: usize = MAX_PART_BYTES - 1;
/// The longest message, over all its packets: the largest `max_allowed_packet` of any server.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// The longest payload accepted before the peer has authenticated. No login message is nearly as long.
pub const MAX_LOGIN_PAYLOAD_BYTES: usize = 0x1_0000;

pub(crate) const HEADER_BYTES: usize = 4;
/// The number of packets of the longest message, without the first.
const MAX_MORE_PARTS: u8 = (MAX_MESSAGE_BYTES / MAX_PART_BYTES) as u8;

/// Takes packets from the front of the input and checks their sequence numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketReader {
    next: u8,
    /// How much larger the next sequence number may be.
    slack: u8,
    limit: usize,
}

/// What is known of a packet before all of it has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketStart {
    pub(crate) length: usize,
    /// `None` if the payload is empty.
    pub(crate) first: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    pub(crate) sequence: u8,
}

impl Header {
    /// As much of the payload as has arrived. `input` starts with this header.
    #[inline]
    pub(crate) fn arrived(self, input: &[u8]) -> &[u8] {
        let rest = &input[HEADER_BYTES..];
        &rest[..rest.len().min(self.length)]
    }
}

impl PacketReader {
    /// Expects `first` as the first sequence number. [`Self::take`] accepts payloads up to `limit` bytes.
    pub(crate) fn new(first: u8, limit: usize) -> Self {
        Self { next: first, slack: 0, limit: limit.min(MAX_PAYLOAD_BYTES) }
    }

    /// Expects the response to a command. Its sequence numbers continue those of the command, whose number of
    /// packets the reader does not know.
    pub(crate) fn for_response() -> Self {
        Self { next: 1, slack: MAX_MORE_PARTS, limit: MAX_PAYLOAD_BYTES }
    }

    /// The payload of the next complete packet, if it has arrived. `message` names it in errors.
    pub(crate) fn take<'a>(
        &mut self,
        input: &mut &'a [u8],
        message: &'static str,
    ) -> Result<Option<&'a [u8]>, Error> {
        let Some((length, sequence, rest)) = split_header(input) else {
            return Ok(None);
        };
        // Checked before the payload arrives, so that a packet that will be refused is not buffered.
        if length > self.limit {
            return Err(Error::PacketTooLarge { length, limit: self.limit });
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        // A server that closes the connection (shutdown, idle timeout) sends an ERR with an unrelated
        // sequence number.
        if !ErrPacket::is(payload) {
            self.check(sequence, message)?;
        }
        self.count(sequence);
        *input = rest;
        Ok(Some(payload))
    }

    /// The length and first byte of the packet at the front, if they have arrived.
    pub(crate) fn peek(input: &[u8]) -> Option<PacketStart> {
        let (length, _, rest) = split_header(input)?;
        match (length, rest.first()) {
            (0, _) => Some(PacketStart { length, first: None }),
            (_, None) => None,
            (_, Some(&first)) => Some(PacketStart { length, first: Some(first) }),
        }
    }

    /// Takes the header of a packet whose payload the caller reads as it arrives. Returns its length, up to
    /// [`MAX_PART_BYTES`].
    pub(crate) fn begin(&mut self, input: &mut &[u8], message: &'static str) -> Result<Option<usize>, Error> {
        let Some((length, sequence, rest)) = split_header(input) else {
            return Ok(None);
        };
        self.check(sequence, message)?;
        self.count(sequence);
        *input = rest;
        Ok(Some(length))
    }

    /// Allocates the sequence number of the next packet in either direction.
    pub(crate) fn number(&mut self) -> u8 {
        let number = self.next;
        self.count(number);
        number
    }

    fn check(&self, sequence: u8, message: &'static str) -> Result<(), Error> {
        if sequence.wrapping_sub(self.next) <= self.slack {
            return Ok(());
        }
        Err(Error::Protocol { message, reason: "a packet is missing or out of order" })
    }

    fn count(&mut self, sequence: u8) {
        self.next = sequence.wrapping_add(1);
        self.slack = 0;
    }
}

/// Appends a message, in as many packets as needed, whose payload `payload` appends. Appends nothing if it
/// exceeds [`MAX_MESSAGE_BYTES`].
pub(crate) fn write(
    out: &mut Vec<u8>,
    sequence: u8,
    payload: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Error> {
    write_within(MAX_MESSAGE_BYTES, out, sequence, payload).map(drop)
}

/// As [`write()`]; returns the next sequence number.
pub(crate) fn write_numbered(
    out: &mut Vec<u8>,
    sequence: u8,
    payload: impl FnOnce(&mut Vec<u8>),
) -> Result<u8, Error> {
    write_within(MAX_MESSAGE_BYTES, out, sequence, payload)
}

fn write_within(
    limit: usize,
    out: &mut Vec<u8>,
    sequence: u8,
    payload: impl FnOnce(&mut Vec<u8>),
) -> Result<u8, Error> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    payload(out);
    let length = out.len() - start - HEADER_BYTES;
    if length > limit {
        out.truncate(start);
        return Err(Error::PacketTooLarge { length, limit });
    }
    if length < MAX_PART_BYTES {
        out[start..start + HEADER_BYTES].copy_from_slice(&header(length, sequence));
        return Ok(sequence.wrapping_add(1));
    }
    Ok(split(out, start, length, sequence))
}

/// Inserts a header before every part of the long message at `start`, which has room for the first one.
fn split(out: &mut Vec<u8>, start: usize, length: usize, sequence: u8) -> u8 {
    let last = length / MAX_PART_BYTES;
    out.resize(out.len() + last * HEADER_BYTES, 0);
    // From the back, so that no byte is overwritten before it has moved.
    for part in (0..=last).rev() {
        let begin = part * MAX_PART_BYTES;
        let part_length = (length - begin).min(MAX_PART_BYTES);
        let from = start + HEADER_BYTES + begin;
        let to = start + part * (HEADER_BYTES + MAX_PART_BYTES);
        out.copy_within(from..from + part_length, to + HEADER_BYTES);
        let number = sequence.wrapping_add(part as u8);
        out[to..to + HEADER_BYTES].copy_from_slice(&header(part_length, number));
    }
    sequence.wrapping_add(last as u8).wrapping_add(1)
}

/// The header at the front, and as much of its payload as has arrived: an empty packet's is empty, whatever follows.
#[inline]
pub(crate) fn peek_header(input: &[u8]) -> Option<(Header, &[u8])> {
    let (length, sequence, _) = split_header(input)?;
    let header = Header { length, sequence };
    Some((header, header.arrived(input)))
}

fn header(length: usize, sequence: u8) -> [u8; HEADER_BYTES] {
    let [low, middle, high, ..] = length.to_le_bytes();
    [low, middle, high, sequence]
}

fn split_header(input: &[u8]) -> Option<(usize, u8, &[u8])> {
    let (&[low, middle, high, sequence], rest) = input.split_first_chunk::<HEADER_BYTES>()?;
    Some((u32::from_le_bytes([low, middle, high, 0]) as usize, sequence, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths and sequence numbers of the packets, and their concatenated payloads.
    fn cut(mut bytes: &[u8]) -> (Vec<(usize, u8)>, Vec<u8>) {
        let (mut headers, mut payload) = (Vec::new(), Vec::new());
        while let Some((length, sequence, rest)) = split_header(bytes) {
            headers.push((length, sequence));
            payload.extend_from_slice(&rest[..length]);
            bytes = &rest[length..];
        }
        assert!(bytes.is_empty());
        (headers, payload)
    }

    #[test]
    fn long_messages_are_split_into_packets() {
        let full = MAX_PART_BYTES;
        let cases: [(usize, &[(usize, u8)]); 6] = [
            (0, &[(0, 254)]),
            (1, &[(1, 254)]),
            (full - 1, &[(full - 1, 254)]),
            (full, &[(full, 254), (0, 255)]),
            (full + 1, &[(full, 254), (1, 255)]),
            (2 * full + 5, &[(full, 254), (full, 255), (5, 0)]),
        ];
        for (length, expected) in cases {
            let message: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let mut out = b"before".to_vec();
            let next = write_numbered(&mut out, 254, |out| out.extend_from_slice(&message)).unwrap();
            assert_eq!(&out[..6], b"before");
            let (headers, payload) = cut(&out[6..]);
            assert_eq!(headers, expected);
            assert_eq!(next, expected[expected.len() - 1].1.wrapping_add(1));
            assert!(payload == message, "{length} bytes");
        }
    }

    #[test]
    fn too_long_messages_are_refused() {
        let mut out = b"before".to_vec();
        let error = write_within(3, &mut out, 0, |out| out.extend_from_slice(b"four")).unwrap_err();
        assert_eq!(error, Error::PacketTooLarge { length: 4, limit: 3 });
        assert_eq!(out, b"before");
    }

    #[test]
    fn a_response_continues_the_sequence_of_its_command() {
        for first in [1, 2, 65] {
            let mut packets = PacketReader::for_response();
            let bytes = [0, 0, 0, first, 0, 0, 0, first + 1, 0, 0, 0, first + 3];
            let mut input = &bytes[..];
            assert_eq!(packets.take(&mut input, "answer"), Ok(Some(&[][..])), "{first}");
            assert_eq!(packets.take(&mut input, "answer"), Ok(Some(&[][..])));
            assert!(packets.take(&mut input, "answer").is_err(), "only the first may differ");
        }
        for first in [0, 66, 255] {
            assert!(PacketReader::for_response().take(&mut &[0, 0, 0, first][..], "answer").is_err());
        }
    }

    #[test]
    fn peeking_needs_one_byte_of_the_payload() {
        assert_eq!(PacketReader::peek(&[1, 0, 0]), None);
        assert_eq!(PacketReader::peek(&[1, 0, 0, 9]), None);
        assert_eq!(PacketReader::peek(&[2, 1, 0, 9, 7]), Some(PacketStart { length: 258, first: Some(7) }));
        assert_eq!(PacketReader::peek(&[0, 0, 0, 9]), Some(PacketStart { length: 0, first: None }));
    }
}
