//! Which statement or portal a message names.

use crate::postgres::codec::message::Header;

/// The longest part of a name that is read. Servers truncate names at 63 bytes.
const MAX_READ_BYTES: usize = 0x1_0000;

/// What was read of a message, whose bytes may not all have arrived.
pub(crate) enum Read<T> {
    Done(T),
    /// Not enough of the message has arrived.
    Incomplete,
    /// The server refuses the message.
    Unreadable,
}

impl<T> Read<T> {
    /// Whether the message is as `is_so` says, or unreadable; `None` if it is incomplete.
    pub(crate) fn unreadable_or(self, is_so: impl FnOnce(T) -> bool) -> Option<bool> {
        match self {
            Self::Done(value) => Some(is_so(value)),
            Self::Incomplete => None,
            Self::Unreadable => Some(true),
        }
    }
}

pub(crate) enum ReferencedName<'a> {
    Statement(&'a [u8]),
    Portal,
}

/// Which statement or portal a `Describe` or `Close` names.
pub(crate) fn referenced_name(header: Header, payload: &[u8]) -> Read<ReferencedName<'_>> {
    let Some(rest_bytes) = header.payload_bytes.checked_sub(1) else { return Read::Unreadable };
    match payload.split_first() {
        None => Read::Incomplete,
        Some((b'S', payload)) => match name_at(payload, Header { payload_bytes: rest_bytes, ..header }) {
            Read::Done(name) => Read::Done(ReferencedName::Statement(name)),
            Read::Incomplete => Read::Incomplete,
            Read::Unreadable => Read::Unreadable,
        },
        Some(_) => Read::Done(ReferencedName::Portal),
    }
}

/// What a `Bind` names.
#[derive(Clone, Copy)]
pub(crate) struct BindNames<'a> {
    pub(crate) portal: &'a [u8],
    pub(crate) statement: &'a [u8],
}

impl<'a> BindNames<'a> {
    pub(crate) fn parse(header: Header, payload: &'a [u8]) -> Read<Self> {
        let portal = match name_at(payload, header) {
            Read::Done(portal) => portal,
            Read::Incomplete => return Read::Incomplete,
            Read::Unreadable => return Read::Unreadable,
        };
        if payload.get(portal.len()) != Some(&0) {
            // Its end is not known.
            return Read::Unreadable;
        }
        let rest = Header { payload_bytes: header.payload_bytes - portal.len() - 1, ..header };
        match name_at(&payload[portal.len() + 1..], rest) {
            Read::Done(statement) => Read::Done(Self { portal, statement }),
            Read::Incomplete => Read::Incomplete,
            Read::Unreadable => Read::Unreadable,
        }
    }
}

/// The NUL-terminated name at the front of a payload, or the part of it that is read.
pub(crate) fn name_at(payload: &[u8], header: Header) -> Read<&[u8]> {
    let payload = &payload[..payload.len().min(header.payload_bytes).min(MAX_READ_BYTES)];
    match memchr::memchr(0, payload) {
        Some(end) => Read::Done(&payload[..end]),
        None if payload.len() == MAX_READ_BYTES => Read::Done(payload),
        None if payload.len() == header.payload_bytes => Read::Unreadable,
        None => Read::Incomplete,
    }
}
