//! Splits one side's bytes into messages and keeps the start of each, whatever is missing behind it.

use crate::passive::event::Content;

/// How much of a message's body is kept: more than a server's greeting, a login's method or an error's code needs.
const KEPT_BYTES: usize = 512;
/// Of a client's login: drivers of MongoDB put up to 512 bytes on themselves in front of it.
const KEPT_LOGIN_BYTES: usize = 2_048;
const MAX_HEADER_BYTES: usize = 16;
/// The longest message of any of these protocols.
const MAX_BODY_BYTES: u64 = 1 << 30;

/// How a protocol delimits messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageLayout {
    /// A client's first message to PostgreSQL: a length that counts itself.
    PostgresStartup,
    /// One byte: PostgreSQL's answer to a request for encryption.
    PostgresAnswer,
    /// A type and a length that counts itself.
    Postgres,
    /// A three-byte length (little-endian) and a sequence number.
    MySql,
    /// The same, of a client that logs in.
    MySqlLogin,
    /// The same, and the length before compression.
    MySqlCompressed,
    /// A length that counts the header (little-endian), two identifiers and the operation.
    MongoDb,
    /// The same, of a client that may log in.
    MongoDbLogin,
}

/// What the bytes so far make.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A message's header, and the start of its body. The rest is skipped.
    Message { header: &'a [u8], body: &'a [u8], body_bytes: u64 },
    /// More bytes are needed.
    Starved,
    /// The length is impossible, or bytes are missing that would say where the next message begins.
    Lost,
}

/// One side's messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    /// The header and the start of the body.
    start: Vec<u8>,
    /// Bytes of the last message that are still to come.
    skipped: u64,
    is_lost: bool,
    /// Whether `start` belongs to a message that was returned.
    is_returned: bool,
}

impl Messages {
    /// Takes the next message from the front of `content`, which shrinks to what follows. A message that arrives whole is not
    /// copied.
    pub(super) fn next<'m, 'c: 'm>(
        &'m mut self,
        content: &mut Content<'c>,
        layout: MessageLayout,
    ) -> Next<'m> {
        if self.is_lost {
            return Next::Lost;
        }
        if std::mem::take(&mut self.is_returned) {
            // Freed, not cleared: idle connections keep nothing.
            self.start = Vec::new();
        }
        self.skip(content);
        if self.skipped > 0 || content.is_empty() {
            return Next::Starved;
        }
        let header_bytes = layout.header_bytes();
        let Content::Bytes(bytes) = content else { return self.lost() };
        if self.start.is_empty()
            && let Some((header, rest)) = bytes.split_at_checked(header_bytes)
        {
            let Some(body_bytes) = layout.body_bytes(header) else { return self.lost() };
            let kept = layout.kept_bytes(body_bytes);
            if let Some((body, rest)) = rest.split_at_checked(kept) {
                *bytes = rest;
                self.skipped = body_bytes - kept as u64;
                self.skip(content);
                return Next::Message { header, body, body_bytes };
            }
        }
        take(&mut self.start, bytes, header_bytes);
        if self.start.len() < header_bytes {
            return Next::Starved;
        }
        let Some(body_bytes) = layout.body_bytes(&self.start) else { return self.lost() };
        // The peer's messages may have changed the layout since the message began.
        let kept = layout.kept_bytes(body_bytes).max(self.start.len() - header_bytes);
        take(&mut self.start, bytes, header_bytes + kept);
        if self.start.len() < header_bytes + kept {
            return Next::Starved;
        }
        self.skipped = body_bytes.saturating_sub(kept as u64);
        self.is_returned = true;
        self.skip(content);
        let (header, body) = self.start.split_at(header_bytes);
        Next::Message { header, body, body_bytes }
    }

    /// Allocated memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.start.capacity()
    }

    /// Whether the next byte begins a message.
    pub(super) fn is_between(&self) -> bool {
        self.skipped == 0 && (self.start.is_empty() || self.is_returned)
    }

    /// Skips what is left of the last message, so that [`Self::is_between`] says what the next byte is.
    pub(super) fn skip(&mut self, content: &mut Content<'_>) {
        match content {
            Content::Bytes(bytes) => {
                let now = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(bytes.len());
                *bytes = &bytes[now..];
                self.skipped -= now as u64;
            }
            Content::Missing(missing) => {
                let now = self.skipped.min(*missing);
                *missing -= now;
                self.skipped -= now;
            }
        }
    }

    fn lost(&mut self) -> Next<'static> {
        self.is_lost = true;
        self.start = Vec::new();
        Next::Lost
    }
}

impl MessageLayout {
    fn header_bytes(self) -> usize {
        match self {
            Self::PostgresStartup | Self::MySql | Self::MySqlLogin => 4,
            Self::PostgresAnswer => 1,
            Self::Postgres => 5,
            Self::MySqlCompressed => 7,
            Self::MongoDb | Self::MongoDbLogin => MAX_HEADER_BYTES,
        }
    }

    /// The length of the body, if it is possible.
    fn body_bytes(self, header: &[u8]) -> Option<u64> {
        let four = |at: usize| header.get(at..at + 4)?.try_into().ok();
        let three =
            || Some(u64::from(u32::from_le_bytes([*header.first()?, *header.get(1)?, *header.get(2)?, 0])));
        let counted = |length: u32, own: u64| u64::from(length).checked_sub(own);
        let bytes = match self {
            Self::PostgresStartup => counted(u32::from_be_bytes(four(0)?), 4)?,
            Self::PostgresAnswer => 0,
            Self::Postgres => counted(u32::from_be_bytes(four(1)?), 4)?,
            Self::MySql | Self::MySqlLogin | Self::MySqlCompressed => three()?,
            Self::MongoDb | Self::MongoDbLogin => {
                counted(u32::from_le_bytes(four(0)?), MAX_HEADER_BYTES as u64)?
            }
        };
        (bytes <= MAX_BODY_BYTES).then_some(bytes)
    }

    /// How much of a body of this length is kept.
    fn kept_bytes(self, body_bytes: u64) -> usize {
        let most = match self {
            Self::PostgresStartup | Self::MySqlLogin | Self::MongoDbLogin => KEPT_LOGIN_BYTES,
            Self::PostgresAnswer | Self::Postgres | Self::MySql | Self::MySqlCompressed | Self::MongoDb => {
                KEPT_BYTES
            }
        };
        usize::try_from(body_bytes).unwrap_or(most).min(most)
    }
}

impl Content<'_> {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Missing(missing) => *missing == 0,
        }
    }
}

/// Moves bytes from the front of `from` until `into` has `length`.
fn take(into: &mut Vec<u8>, from: &mut &[u8], length: usize) {
    let now = length.saturating_sub(into.len()).min(from.len());
    into.extend_from_slice(&from[..now]);
    *from = &from[now..];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types and kept bodies of all messages.
    fn read(contents: &[Content<'_>]) -> (Vec<(u8, Vec<u8>, u64)>, bool) {
        let (mut messages, mut found) = (Messages::default(), Vec::new());
        for content in contents {
            let mut content = *content;
            loop {
                match messages.next(&mut content, MessageLayout::Postgres) {
                    Next::Message { header, body, body_bytes } => {
                        found.push((header[0], body.to_vec(), body_bytes));
                    }
                    Next::Starved => break,
                    Next::Lost => return (found, true),
                }
            }
        }
        (found, false)
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    #[test]
    fn messages_are_the_same_wherever_they_are_cut() {
        let stream = [message(b'Q', b"SELECT 1\0"), message(b'S', b""), message(b'd', &[7; 2_000])].concat();
        let whole = read(&[Content::Bytes(&stream)]);
        assert_eq!(whole.0.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), b"QSd");
        assert_eq!(whole.0[2].1.len(), KEPT_BYTES);
        for cut in 0..stream.len() {
            let (left, right) = stream.split_at(cut);
            assert_eq!(read(&[Content::Bytes(left), Content::Bytes(right)]), whole, "{cut}");
        }
    }

    #[test]
    fn bytes_may_be_missing_where_they_are_not_read() {
        let large = message(b'd', &[7; 2_000]);
        let next = message(b'Q', b"\0");
        let missing = [Content::Bytes(&large[..700]), Content::Missing(1_305), Content::Bytes(&next)];
        let (found, is_lost) = read(&missing);
        assert_eq!((found.len(), found[1].0, is_lost), (2, b'Q', false));
        let too_many = [Content::Bytes(&large[..700]), Content::Missing(1_306), Content::Bytes(&next)];
        assert!(read(&too_many).1);
        assert!(read(&[Content::Bytes(&large[..3]), Content::Missing(10)]).1);
    }

    #[test]
    fn an_impossible_length_ends_the_reading() {
        assert_eq!(read(&[Content::Bytes(&[b'Q', 0, 0, 0, 3])]), (Vec::new(), true));
        assert_eq!(read(&[Content::Bytes(&[b'Q', 0xff, 0, 0, 3])]), (Vec::new(), true));
    }
}
