//! TLS records (RFC 8446, 5.1): where each begins and ends in one direction of a connection.

use crate::tls::partial::Partial;

/// `ContentType` (RFC 8446, 5.1).
pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;
/// RFC 6520.
const HEARTBEAT: u8 = 24;

const HEADER_BYTES: usize = 5;
/// The longest record in any version (RFC 5246, 6.2.3).
pub(crate) const MAX_RECORD_BYTES: u16 = (1 << 14) + 2048;
const MAJOR_VERSION: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) content_type: u8,
    major_version: u8,
    /// Of the body.
    pub(crate) bytes: u16,
}

impl RecordHeader {
    /// Whether a version of TLS has such records.
    pub(crate) fn is_valid(self) -> bool {
        (CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(&self.content_type)
            && self.major_version == MAJOR_VERSION
            && self.bytes <= MAX_RECORD_BYTES
    }
}

/// What follows in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Portion<'a> {
    Header(RecordHeader),
    /// A part of the body of a record with this content type.
    Body(u8, &'a [u8]),
}

/// Splits bytes, cut anywhere, into records. It does not judge their headers.
#[derive(Debug, Clone)]
pub(crate) enum RecordReader {
    Header(Partial<HEADER_BYTES>),
    Body {
        content_type: u8,
        left: u16,
    },
    /// It is not known where the next record begins.
    Lost,
}

impl RecordReader {
    /// The next portion, taken from the front of `input`; `None` if more bytes are needed.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<Portion<'a>> {
        match self {
            Self::Header(header) => {
                let [content_type, major_version, _, high, low] = header.take(input)?;
                let bytes = u16::from_be_bytes([high, low]);
                *self = Self::body(content_type, bytes);
                Some(Portion::Header(RecordHeader { content_type, major_version, bytes }))
            }
            Self::Body { .. } if input.is_empty() => None,
            Self::Body { content_type, left } => {
                let content_type = *content_type;
                // The whole of a longer input is more than is left.
                let now = u16::try_from(input.len()).map_or(*left, |bytes| bytes.min(*left));
                let (body, rest) = input.split_at(usize::from(now));
                *input = rest;
                *self = Self::body(content_type, *left - now);
                Some(Portion::Body(content_type, body))
            }
            Self::Lost => {
                *input = &[];
                None
            }
        }
    }

    /// Skips bytes that were not captured. Returns the content type of the record that they belong to; `None` if they
    /// contain the header of another one.
    pub(crate) fn skip(&mut self, count: u64) -> Option<u8> {
        if let Self::Body { content_type, left } = *self
            && let Some(left) = u16::try_from(count).ok().and_then(|count| left.checked_sub(count))
        {
            *self = Self::body(content_type, left);
            return Some(content_type);
        }
        *self = Self::Lost;
        None
    }

    fn body(content_type: u8, left: u16) -> Self {
        if left == 0 { Self::default() } else { Self::Body { content_type, left } }
    }
}

impl Default for RecordReader {
    fn default() -> Self {
        Self::Header(Partial::default())
    }
}
