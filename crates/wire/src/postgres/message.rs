//! Messages: a byte that says which, a length that counts itself, a payload ("Message Formats").

use super::Error;

/// The longest payload taken before the peer has authenticated; no message of a login comes near it.
pub const MAX_LOGIN_PAYLOAD_BYTES: usize = 0x1_0000;
/// The longest payload sent: what PostgreSQL takes at most, a little under 1 GiB.
pub const MAX_SENT_PAYLOAD_BYTES: usize = 0x3fff_fffa;
/// The longest payload gathered in memory, of messages other than rows, whose readers have limits of their own.
pub const MAX_GATHERED_PAYLOAD_BYTES: usize = 0x100_0000;

/// The length of a length, which counts itself.
pub(super) const LENGTH_BYTES: usize = 4;
pub(super) const HEADER_BYTES: usize = 1 + LENGTH_BYTES;

/// A whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    pub(super) payload: &'a [u8],
}

/// The front of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) payload_bytes: usize,
}

/// Looks at the next message's header, if it is there, without taking it.
#[inline]
pub(super) fn peek(input: &[u8]) -> Result<Option<Header>, Error> {
    let Some(&[kind, a, b, c, d]) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([a, b, c, d]);
    match usize::try_from(length).ok().and_then(|length| length.checked_sub(LENGTH_BYTES)) {
        Some(payload_bytes) => Ok(Some(Header { kind, payload_bytes })),
        None => Err(Error::Protocol { message: "message", reason: "an impossible length" }),
    }
}

/// Takes a header that was peeked at.
#[inline]
pub(super) fn take_header(input: &mut &[u8]) {
    *input = input.get(HEADER_BYTES..).unwrap_or_default();
}

/// Takes a message whose header was peeked at, or none yet.
#[inline]
pub(super) fn take_payload<'a>(
    input: &mut &'a [u8],
    header: Header,
    limit: usize,
) -> Result<Option<&'a [u8]>, Error> {
    // Checked before the payload is here, so that nobody buffers what would be refused.
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

/// Takes the next whole message, or none yet.
pub(super) fn take<'a>(input: &mut &'a [u8], limit: usize) -> Result<Option<Message<'a>>, Error> {
    let Some(header) = peek(input)? else {
        return Ok(None);
    };
    let payload = take_payload(input, header, limit)?;
    Ok(payload.map(|payload| Message { kind: header.kind, payload }))
}

/// Appends one message whose payload is what `payload` appends; appends nothing if that fails or is too long.
#[inline]
pub(super) fn write(
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

/// Appends a length and what it is the length of: all of a message but its first byte, which start-up messages lack.
#[inline]
pub(super) fn write_with_length(
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
pub(super) fn write_empty(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[kind, 0, 0, 0, LENGTH_BYTES as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_or_fails_leaves_nothing() {
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
