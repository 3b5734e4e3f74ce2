//! Which statement or portal a message names.

use crate::postgres::{codec::message::Header, error::Error};

/// The longest names of portal and statement that are read. Servers truncate names at 63 bytes.
const MAX_NAMES_BYTES: usize = 4096;

pub(crate) enum ReferencedName<'a> {
    Statement(&'a [u8]),
    Portal,
    /// Not enough of the message has arrived.
    Unknown,
}

/// Which statement or portal a `Describe` or `Close` names.
pub(crate) fn referenced_name(header: Header, payload: &[u8]) -> Result<ReferencedName<'_>, Error> {
    let statement = |name: Option<_>| name.map_or(ReferencedName::Unknown, ReferencedName::Statement);
    let rest = Header { payload_bytes: header.payload_bytes.saturating_sub(1), ..header };
    match payload.split_first() {
        None => Ok(ReferencedName::Unknown),
        Some((b'S', payload)) => name_at(payload, rest).map(statement),
        Some(_) => Ok(ReferencedName::Portal),
    }
}

/// What a `Bind` names.
#[derive(Clone, Copy)]
pub(crate) struct BindNames<'a> {
    pub(crate) portal: &'a [u8],
    pub(crate) statement: &'a [u8],
}

impl<'a> BindNames<'a> {
    /// `None` if they are incomplete.
    pub(crate) fn parse(header: Header, payload: &'a [u8]) -> Result<Option<Self>, Error> {
        let Some(portal) = name_at(payload, header)? else { return Ok(None) };
        let rest = Header { payload_bytes: header.payload_bytes - portal.len() - 1, ..header };
        let statement = name_at(&payload[portal.len() + 1..], rest)?;
        Ok(statement.map(|statement| Self { portal, statement }))
    }
}

/// The NUL-terminated name at the front of a payload, as far as it has arrived; `None` if it is incomplete.
pub(crate) fn name_at(payload: &[u8], header: Header) -> Result<Option<&[u8]>, Error> {
    let all = payload.len().min(header.payload_bytes);
    let payload = &payload[..all];
    if let Some(end) = payload.iter().take(MAX_NAMES_BYTES).position(|byte| *byte == 0) {
        return Ok(Some(&payload[..end]));
    }
    if all < header.payload_bytes && all < MAX_NAMES_BYTES {
        return Ok(None);
    }
    Err(Error::protocol("command", "a name is not NUL-terminated"))
}
