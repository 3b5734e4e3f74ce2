//! The protocol's basic types: integers in network byte order, and strings ("Message Data Types").

use crate::postgres::error::Error;

/// Parses one message from its front. Every length is checked against the remaining bytes.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    message: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8], message: &'static str) -> Self {
        Self { rest: payload, message }
    }

    pub(crate) fn error(&self, reason: &'static str) -> Error {
        Error::Protocol { message: self.message, reason }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails unless the whole message has been read.
    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.is_empty() { Ok(()) } else { Err(self.error("unexpected bytes at its end")) }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.error("it is truncated"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return Err(self.error("it is truncated"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// A cell or parameter: its length, or -1 for NULL, and its bytes.
    pub(crate) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, Error> {
        match self.array().map(i32::from_be_bytes)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.bytes(length).map(Some),
                Err(_) => Err(self.error("a negative length")),
            },
        }
    }

    /// The bytes up to a NUL, which is consumed.
    pub(crate) fn nul_terminated(&mut self) -> Result<&'a [u8], Error> {
        let Some(length) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(self.error("a string is not NUL-terminated"));
        };
        let text = self.bytes(length)?;
        self.u8()?;
        Ok(text)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a NUL-terminated string. `text` must have no NUL.
pub(crate) fn put_nul_terminated(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

/// Appends a cell or parameter. A value too long for its length field is too long for its message, which is
/// refused.
pub(crate) fn put_nullable_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            put_u32(out, bytes.len() as u32);
            out.extend_from_slice(bytes);
        }
    }
}

/// A peer's text made safe to show: at most `limit` characters, without control characters.
pub(crate) fn printable(text: &[u8], limit: usize) -> String {
    // A character has up to four bytes; the rest of a longer text would not be shown.
    let text = &text[..text.len().min(limit.saturating_mul(4))];
    String::from_utf8_lossy(text)
        .chars()
        .take(limit)
        .map(|character| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character })
        .collect()
}
