//! Handshake messages (RFC 8446, 4) in the content of handshake records, regardless of where records begin.

use crate::tls::partial::Partial;

/// `HandshakeType` (RFC 8446, 4; RFC 5246, 7.4).
pub(crate) const HELLO_REQUEST: u8 = 0;
pub(crate) const CLIENT_HELLO: u8 = 1;
pub(crate) const SERVER_HELLO: u8 = 2;
pub(crate) const CERTIFICATE: u8 = 11;
pub(crate) const SERVER_KEY_EXCHANGE: u8 = 12;
pub(crate) const CERTIFICATE_REQUEST: u8 = 13;
pub(crate) const SERVER_HELLO_DONE: u8 = 14;
pub(crate) const CLIENT_KEY_EXCHANGE: u8 = 16;

const HEADER_BYTES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u8,
    /// Of the body.
    pub(crate) length: usize,
    /// The beginning of the body, as long as was asked for; `None` if a part of it was not captured.
    pub(crate) start: Option<Vec<u8>>,
}

/// Splits bytes, cut anywhere, into messages.
#[derive(Debug, Clone)]
pub(crate) enum MessageReader {
    Header(Partial<HEADER_BYTES>),
    Start(Box<MessageStart>),
    Rest {
        left: u32,
    },
    /// It is not known where the next message begins.
    Lost,
}

/// A message whose start is not complete.
#[derive(Debug, Clone)]
pub(crate) struct MessageStart {
    kind: u8,
    length: usize,
    start: Vec<u8>,
    wanted: usize,
}

impl MessageReader {
    /// The next message, as soon as its start is complete; `None` if more bytes are needed. `wanted` returns the
    /// number of bytes to keep of a body, by its message's type and its length.
    pub(crate) fn next(&mut self, input: &mut &[u8], wanted: impl Fn(u8, usize) -> usize) -> Option<Message> {
        loop {
            match self {
                Self::Header(header) => {
                    let [kind, high, middle, low] = header.take(input)?;
                    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
                    let wanted = wanted(kind, length).min(length);
                    *self = Self::Start(Box::new(MessageStart { kind, length, start: Vec::new(), wanted }));
                }
                Self::Start(message) => {
                    let MessageStart { kind, length, start, wanted } = &mut **message;
                    let (now, rest) = input.split_at(input.len().min(*wanted - start.len()));
                    *input = rest;
                    start.extend_from_slice(now);
                    if start.len() < *wanted {
                        return None;
                    }
                    let (kind, length, start) = (*kind, *length, std::mem::take(start));
                    *self = Self::rest(length - start.len());
                    return Some(Message { kind, length, start: Some(start) });
                }
                Self::Rest { left } => {
                    let skipped = input.len().min(*left as usize);
                    *input = &input[skipped..];
                    *left -= skipped as u32;
                    if *left > 0 {
                        return None;
                    }
                    *self = Self::default();
                }
                Self::Lost => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    /// Skips bytes that were not captured. Returns the message whose start they cut.
    pub(crate) fn skip(&mut self, count: u64) -> Option<Message> {
        let before = std::mem::replace(self, Self::Lost);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (cut, left) = match before {
            Self::Start(message) => {
                let MessageStart { kind, length, start, .. } = *message;
                (Some(Message { kind, length, start: None }), length - start.len())
            }
            Self::Rest { left } => (None, left as usize),
            Self::Header(_) | Self::Lost => return None,
        };
        if let Some(left) = left.checked_sub(count) {
            *self = Self::rest(left);
        }
        cut
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }

    /// Allocated memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Start(message) => size_of::<MessageStart>() + message.start.capacity(),
            _ => 0,
        }
    }

    /// The length of a message has three bytes.
    fn rest(left: usize) -> Self {
        if left == 0 { Self::default() } else { Self::Rest { left: left as u32 } }
    }
}

impl Default for MessageReader {
    fn default() -> Self {
        Self::Header(Partial::default())
    }
}
