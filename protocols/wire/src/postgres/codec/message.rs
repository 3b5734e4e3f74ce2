//! Messages: a type byte, a length that includes itself, a payload ("Message Formats").

use crate::postgres::error::Error;

/// The longest payload accepted before the peer has authenticated. No login message is nearly as long.
pub const MAX_LOGIN_PAYLOAD_BYTES: usize = 0x1_0000;
/// The longest payload sent: PostgreSQL's limit, a little under 1 GiB.
pub const MAX_SENT_PAYLOAD_BYTES: usize = 0x3fff_fffa;
/// The longest payload buffered, except rows, whose readers have their own limits.
pub const MAX_GATHERED_PAYLOAD_BYTES: usize = 0x100_0000;

/// The size of the length field, which the length includes.
pub(crate) const LENGTH_BYTES: usize = 4;
pub(crate) const HEADER_BYTES: usize = 1 + LENGTH_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u8,
    pub(crate) payload: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) payload_bytes: usize,
}

/// The next message's header, if it has arrived. It is not consumed.
#[inline]
pub(crate) fn peek(input: &[u8]) -> Result<Option<Header>, Error> {
    let Some(&[kind, a, b, c, d]) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([a, b, c, d]);
    match usize::try_from(length).ok().and_then(|length| length.checked_sub(LENGTH_BYTES)) {
        Some(payload_bytes) => Ok(Some(Header { kind, payload_bytes })),
        None => Err(Error::protocol("message", "an impossible length")),
    }
}

/// Consumes a header that was peeked at.
#[inline]
pub(crate) fn take_header(input: &mut &[u8]) {
    *input = input.get(HEADER_BYTES..).unwrap_or_default();
}

/// Takes a message whose header was peeked at, if it has arrived.
#[inline]
pub(crate) fn take_payload<'a>(
    input: &mut &'a [u8],
    header: Header,
    limit: usize,
) -> Result<Option<&'a [u8]>, Error> {
    // Checked before the payload arrives, so that a message that will be refused is not buffered.
    if header.payload_bytes > limit {
        return Err(Error::MessageTooLarge { length: header.payload_bytes, limit });
    }
    let payload = input.get(HEADER_BYTES..).and_then(|rest| rest.split_at_checked(header.payload_bytes));
    let Some((payload, rest)) = payload else {
        return Ok(None);
    };
    *input = rest;
    Ok(Some(payload))
}

/// Takes the next complete message, if it has arrived.
pub(crate) fn take<'a>(input: &mut &'a [u8], limit: usize) -> Result<Option<Message<'a>>, Error> {
    let Some(header) = peek(input)? else {
        return Ok(None);
    };
    let payload = take_payload(input, header, limit)?;
    Ok(payload.map(|payload| Message { kind: header.kind, payload }))
}

/// Appends a message whose payload `payload` appends. Appends nothing if that fails or exceeds the limit.
#[inline]
pub(crate) fn write(
    out: &mut Vec<u8>,
    kind: u8,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = out.len();
    out.push(kind);
    let written = write_with_length(out, payload);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Appends a length and the payload it counts: a message without its type byte, as at startup.
#[inline]
pub(crate) fn write_with_length(
    out: &mut Vec<u8>,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    write_limited(out, MAX_SENT_PAYLOAD_BYTES, payload)
}

#[inline]
fn write_limited(
    out: &mut Vec<u8>,
    limit: usize,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let written = payload(out);
    let length = out.len() - start - LENGTH_BYTES;
    let written = match written {
        Ok(()) if length > limit => Err(Error::MessageTooLarge { length, limit }),
        written => written,
    };
    match written {
        Ok(()) => {
            let length = (length + LENGTH_BYTES) as u32;
            out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        }
        Err(_) => out.truncate(start),
    }
    written
}

/// Appends a message without payload.
#[inline]
pub(crate) fn write_empty(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[kind, 0, 0, 0, LENGTH_BYTES as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_appends_nothing() {
        let mut out = b"before".to_vec();
        let put = |bytes: usize| {
            move |out: &mut Vec<u8>| {
                out.resize(out.len() + bytes, b'x');
                Ok(())
            }
        };
        let error = Error::MessageTooLarge { length: 4, limit: 3 };
        assert_eq!(write_limited(&mut out, 3, put(4)), Err(error));
        let failed = write(&mut out, b'Q', |out| {
            out.push(b'x');
            Err(Error::NotReset)
        });
        assert_eq!(failed, Err(Error::NotReset));
        assert_eq!(out, b"before");
        assert_eq!(write_limited(&mut out, 3, put(3)), Ok(()));
        assert_eq!(out, b"before\0\0\0\x07xxx");
    }
}
