//! Parses one message from its front, in every protocol. The protocols add their own basic types.

use std::marker::PhantomData;

/// The error of a protocol, of which a reader needs one variant.
pub(crate) trait ProtocolError {
    fn malformed(message: &'static str, reason: &'static str) -> Self;
}

/// Every length is checked against the remaining bytes.
#[derive(Clone)]
pub(crate) struct Reader<'a, E> {
    rest: &'a [u8],
    message: &'static str,
    error: PhantomData<E>,
}

impl<'a, E: ProtocolError> Reader<'a, E> {
    pub(crate) fn new(payload: &'a [u8], message: &'static str) -> Self {
        Self { rest: payload, message, error: PhantomData }
    }

    pub(crate) fn error(&self, reason: &'static str) -> E {
        E::malformed(self.message, reason)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails unless the whole message has been read.
    pub(crate) fn end(&self) -> Result<(), E> {
        if self.is_empty() { Ok(()) } else { Err(self.error("unexpected bytes at its end")) }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], E> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.error("it is truncated"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], E> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return Err(self.error("it is truncated"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, E> {
        self.array().map(|[byte]| byte)
    }

    /// The bytes up to a NUL, which is consumed.
    pub(crate) fn nul_terminated(&mut self) -> Result<&'a [u8], E> {
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

/// Appends a NUL-terminated string. `text` must have no NUL.
pub(crate) fn put_nul_terminated(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}
